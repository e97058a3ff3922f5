//! A trace as the policies see it: pages numbered from 0 on, block by block in the order of their first touch.
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use outswap_trace::{Error, Event, Reader};

/// Pages that keep their neighbours: no policy looks at larger blocks.
pub const BLOCK_PAGES_MAX: usize = 512;
/// Pages of all blocks of a trace, at most: a damaged trace shall not take all memory.
const PAGES_MAX: usize = 1 << 26;

/// Something that happens to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is touched.
    Access {
        /// Which.
        page: u32,
        /// It is written.
        write: bool,
    },
    /// It has lost its content.
    Gone(u32),
}

/// The steps of a trace.
pub struct Steps {
    /// What ran.
    pub program: String,
    /// Pages that were in memory while it was recorded.
    pub window_pages: u32,
    steps: Vec<u32>,
    /// Page numbers are below this.
    pub pages: usize,
    /// Touches.
    pub accesses: u64,
    /// Different pages that were touched.
    pub touched: u64,
    /// The most pages that had content at a time.
    pub peak: usize,
    /// Why the trace was not read to its end.
    pub cut: Option<String>,
}

const WRITE: u32 = 1 << 31;
const GONE: u32 = 1 << 30;

impl Steps {
    /// All steps in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Step> + ExactSizeIterator + '_ {
        self.steps.iter().map(|&step| {
            let page = step & !(WRITE | GONE);
            if step & GONE != 0 { Step::Gone(page) } else { Step::Access { page, write: step & WRITE != 0 } }
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Steps made by hand.
    #[cfg(test)]
    pub fn of(steps: &[Step]) -> Steps {
        let mut building = Building::default();
        for &step in steps {
            match step {
                Step::Access { page, write } => building.access(page, write),
                Step::Gone(page) => building.gone(page),
            }
        }
        let pages = steps
            .iter()
            .map(|s| match *s {
                Step::Access { page, .. } | Step::Gone(page) => page,
            })
            .max();
        building.pages = pages.map_or(0, |page| (page as usize / BLOCK_PAGES_MAX + 1) * BLOCK_PAGES_MAX);
        building.finish(String::new(), 0, None)
    }
}

#[derive(Default)]
struct Building {
    steps: Vec<u32>,
    live: Vec<bool>,
    seen: Vec<bool>,
    pages: usize,
    live_pages: usize,
    peak: usize,
    accesses: u64,
    touched: u64,
}

impl Building {
    fn access(&mut self, page: u32, write: bool) {
        let index = page as usize;
        if self.live.len() <= index {
            self.live.resize(index + 1, false);
            self.seen.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.live[index], true) {
            self.live_pages += 1;
            self.peak = self.peak.max(self.live_pages);
        }
        self.touched += u64::from(!std::mem::replace(&mut self.seen[index], true));
        self.accesses += 1;
        self.steps.push(page | if write { WRITE } else { 0 });
    }

    fn gone(&mut self, page: u32) {
        if self.live.get_mut(page as usize).is_some_and(std::mem::take) {
            self.live_pages -= 1;
            self.steps.push(page | GONE);
        }
    }

    fn finish(self, program: String, window_pages: u32, cut: Option<String>) -> Steps {
        let Building { steps, pages, peak, accesses, touched, .. } = self;
        Steps { program, window_pages, steps, pages, accesses, touched, peak, cut }
    }
}

/// The blocks of all processes, in the order of their first touch.
#[derive(Default)]
struct Blocks {
    numbers: HashMap<(u32, u32), u32>,
    /// Those of each process.
    of: HashMap<u32, Vec<u32>>,
}

impl Blocks {
    fn place(page: u32) -> (u32, u32) {
        (page / BLOCK_PAGES_MAX as u32, page % BLOCK_PAGES_MAX as u32)
    }

    fn page(&mut self, process: u32, page: u32) -> u32 {
        let next = self.numbers.len() as u32;
        let (block, offset) = Blocks::place(page);
        let number = *self.numbers.entry((process, block)).or_insert_with(|| {
            self.of.entry(process).or_default().push(block);
            next
        });
        number * BLOCK_PAGES_MAX as u32 + offset
    }

    /// The numbers of those pages of a range that may have been touched.
    fn range(&self, process: u32, first: u32, pages: u32) -> Vec<u32> {
        let end = first.saturating_add(pages);
        let blocks = self.of.get(&process).into_iter().flatten();
        let mut found = Vec::new();
        for &block in blocks {
            let base = block * BLOCK_PAGES_MAX as u32;
            let number = self.numbers[&(process, block)] * BLOCK_PAGES_MAX as u32;
            let (from, to) = (first.max(base), end.min(base.saturating_add(BLOCK_PAGES_MAX as u32)));
            found.extend((from..to.max(from)).map(|page| number + (page - base)));
        }
        found
    }
}

/// Reads a trace. One that was cut off, or is damaged further on, gives what stands before that.
pub fn load(path: &Path) -> Result<Steps, String> {
    let told = |error: Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut reader = Reader::new(file).map_err(told)?;
    let header = reader.header().clone();
    let (mut building, mut blocks, mut process, mut cut) = (Building::default(), Blocks::default(), 0, None);
    for event in &mut reader {
        match event {
            Ok(Event::Process(number)) => process = number,
            Ok(Event::Access { page, write, first }) => {
                let page = blocks.page(process, page);
                if page as usize >= PAGES_MAX {
                    cut = Some(told(Error::Damaged { at: 0, what: "its pages lie too far apart" }));
                    break;
                }
                if first {
                    building.gone(page);
                }
                building.access(page, write);
            }
            Ok(Event::Gone { first, pages }) => {
                blocks.range(process, first, pages).into_iter().for_each(|page| building.gone(page));
            }
            Ok(Event::Begins | Event::Forked(_) | Event::Ends) => {
                blocks.range(process, 0, u32::MAX).into_iter().for_each(|page| building.gone(page));
            }
            Ok(Event::Time { .. }) => {}
            Err(error) => cut = Some(told(error)),
        }
    }
    building.pages = blocks.numbers.len() * BLOCK_PAGES_MAX;
    Ok(building.finish(header.program, header.window_pages, cut))
}
