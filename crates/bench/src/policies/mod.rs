//! `policies`: what eviction policies would have done with the accesses of a trace.
//!
//! A policy is a file of this folder and a line of the list at the end of this one. Each is run over the same steps with the same
//! room; pages are counted that it had to read back.
mod load;
mod chain;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::policies::load::{Step, Steps};
use crate::process::Failure;
use crate::report::{self, Output};
use crate::say;

/// What a policy finds when a page is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The page is in memory: nobody would have noticed.
    Resident,
    /// It is in memory, on a list of pages about to go: a fault brings it back without reading.
    Isolated,
    /// It is not.
    Missing,
}

/// An eviction policy. It never has more pages in memory than its limit.
pub trait Policy {
    /// A page is touched, and is in memory from now on.
    fn access(&mut self, page: u32, write: bool) -> Outcome;

    /// A page has lost its content: it is in memory no more, and of no interest.
    fn gone(&mut self, page: u32);

    /// How often it has looked at which pages were accessed.
    fn looks(&self) -> u64 {
        0
    }

    /// Pages that it brought back though another one was touched.
    fn along(&self) -> u64 {
        0
    }
}

/// Arguments of `policies`.
#[derive(clap::Args)]
pub struct Args {
    /// Traces that `outswap record` wrote
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Room, in hundredths of the most pages that had content at a time
    #[arg(long, value_delimiter = ',', default_value = "50,70", value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: Vec<u32>,
    /// Policies, by name [default: all]
    #[arg(long, value_delimiter = ',', value_parser = names())]
    policies: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// What became of the accesses of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    /// Pages that had to be read back.
    read_back: u64,
    /// Faults on pages about to go.
    hits: u64,
    /// Pages that had no content before.
    first: u64,
    looks: u64,
    /// Pages that came back with a touched one.
    along: u64,
}

/// Runs a policy over a trace.
fn run(policy: &mut dyn Policy, steps: &Steps) -> Counts {
    let (mut counts, mut live) = (Counts::default(), vec![false; steps.pages]);
    for step in steps.iter() {
        match step {
            Step::Access { page, write } => {
                let had_content = std::mem::replace(&mut live[page as usize], true);
                match policy.access(page, write) {
                    Outcome::Resident => {}
                    Outcome::Isolated => counts.hits += 1,
                    Outcome::Missing if had_content => counts.read_back += 1,
                    Outcome::Missing => counts.first += 1,
                }
            }
            Step::Gone(page) => {
                live[page as usize] = false;
                policy.gone(page);
            }
        }
    }
    counts.looks = policy.looks();
    counts.along = policy.along();
    counts
}

/// `policies`: a table for each trace and limit.
pub fn main(args: &Args) -> Result<(), Failure> {
    let (mut text, mut results, mut notes) = (String::new(), Vec::new(), Vec::new());
    let chosen: Vec<&Entry> = LIST
        .iter()
        .filter(|entry| args.policies.is_empty() || args.policies.iter().any(|name| name == entry.name))
        .collect();
    for path in &args.traces {
        let steps = load::load(path).map_err(Failure::Failed)?;
        if let Some(cut) = &steps.cut {
            say(cut);
            notes.push(cut.clone());
        }
        for &percent in &args.limit {
            let limit = (steps.peak * percent as usize / 100).max(1);
            let optimum = run(&mut opt::new(limit, &steps), &steps).read_back;
            let mut rows = Vec::new();
            let mut counted = Vec::new();
            for entry in &chosen {
                let counts = run(&mut *(entry.new)(limit, &steps), &steps);
                rows.push(row(entry, counts, optimum));
                counted.push(json!({
                    "policy": entry.name,
                    "read_back": counts.read_back,
                    "isolated_hits": counts.hits,
                    "looks": counts.looks,
                    "brought_along": counts.along,
                }));
            }
            let title = head(path, &steps, percent, limit);
            text += &format!("{title}\n\n{}\n", report::table(&HEAD, &rows));
            results.push(described(path, &steps, percent, limit, counted));
        }
    }
    let settings = json!({ "limit_percent": args.limit });
    let document = report::document("policies", settings, &notes, results);
    report::publish(&args.output, &document, &text).map_err(Failure::Failed)
}

const HEAD: [&str; 7] = ["policy", "read back", "to the optimum", "hits while isolated", "brought along", "looks", ""];

fn row(entry: &Entry, counts: Counts, optimum: u64) -> Vec<String> {
    let ratio = (optimum > 0).then(|| counts.read_back as f64 / optimum as f64);
    let some = |n: u64| if n == 0 { "-".to_owned() } else { n.to_string() };
    vec![
        entry.name.to_owned(),
        counts.read_back.to_string(),
        report::number(ratio, 2),
        some(counts.hits),
        some(counts.along),
        some(counts.looks),
        entry.about.to_owned(),
    ]
}

fn head(path: &Path, steps: &Steps, percent: u32, limit: usize) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "{name}: {} touches of {} pages, {} at most at a time; recorded with {} in memory. Room for {percent} %: {limit} pages.",
        steps.accesses, steps.touched, steps.peak, steps.window_pages
    )
}

fn described(path: &Path, steps: &Steps, percent: u32, limit: usize, policies: Vec<Value>) -> Value {
    json!({
        "trace": path.file_name().unwrap_or_default().to_string_lossy(),
        "program": steps.program,
        "window_pages": steps.window_pages,
        "accesses": steps.accesses,
        "touched_pages": steps.touched,
        "peak_pages": steps.peak,
        "limit_percent": percent,
        "limit_pages": limit,
        "policies": policies,
    })
}

/// A policy, as the list has it.
struct Entry {
    name: &'static str,
    about: &'static str,
    new: fn(usize, &Steps) -> Box<dyn Policy>,
}

fn names() -> clap::builder::PossibleValuesParser {
    LIST.iter().map(|entry| entry.name).collect::<Vec<_>>().into()
}

macro_rules! policies {
    ($($name:literal $module:ident::$new:ident $about:literal)+) => {
        $(mod $module;)+

        /// The policies there are.
        const LIST: &[Entry] = &[$(Entry {
            name: $name,
            about: $about,
            new: |limit, steps| Box::new($module::$new(limit, steps)),
        }),+];
    };
}

mod blocks;
policies! {
    "opt" opt::new "the page whose next use is furthest away: the least that is possible"
    "lru" lru::new "the page that was not used for longest"
    "clock" clock::new "first in, first out, a page with its accessed bit set once more; bits exact and free"
    "arc" arc::new "ARC"
    "s3-fifo" s3fifo::new "S3-FIFO"
    "2q" twoq::new "2Q"
    "workingset" workingset::new "active and inactive list, with refault distance"
    "fifo" fifo::new "first in, first out, page by page"
    "live-fifo" live_fifo::new "by blocks, first in, first out; a page that is touched while isolated stays once more"
    "live-accessed" live_accessed::new "--mechanism reclaim=accessed"
    "together" together::new "--mechanism reclaim=fifo: live-fifo; a hit brings its block back; as much waits as pays"
    "together-accessed" together_accessed::new "live-accessed; a hit brings its block back"
    "kept" kept::new "together-accessed; what came in since the last look stays"
    "protected" protected::new "together; pages that came back soon are passed by once"
    "distance" distance::new "together; blocks queue by refault distance"
    "small-queue" small_queue::new "together; a small queue for blocks that are new, as in S3-FIFO"
    "probation" probation::new "--mechanism reclaim=probation"
    "probes" probes::new "probation; what waits of a block comes back where probes say that it pays"
    "hot" hot::new "probes; a block that is touched each time that it waits is passed by"
    "sounded" sounded::new "--mechanism reclaim=sounded"
    "small-blocks" small_blocks::new "together; blocks of 16 pages"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Random touches of parts of the memory, changing ones, and pages given up.
    fn random_steps(pages: usize, count: usize) -> Steps {
        let mut random = Random::new(5);
        let mut steps = Vec::new();
        while steps.len() < count {
            let (first, len) = (random.below(pages), 1 + random.below(pages / 4));
            let is_gone = random.below(20) == 0;
            for _ in 0..1 + random.below(3) {
                let range = first..(first + len).min(pages);
                steps.extend(range.map(|page| match is_gone {
                    true => Step::Gone(page as u32),
                    false => Step::Access { page: page as u32, write: false },
                }));
            }
        }
        Steps::of(&steps)
    }

    #[test]
    fn no_policy_reads_less_than_the_optimum_or_finds_what_does_not_fit() {
        let steps = random_steps(4 * load::BLOCK_PAGES_MAX, 60_000);
        for limit in [200, 700, 1500] {
            let least = run(&mut opt::new(limit, &steps), &steps);
            assert!(least.read_back > 0);
            for entry in LIST {
                let counts = run(&mut *(entry.new)(limit, &steps), &steps);
                assert!(counts.read_back >= least.read_back, "{} {limit}", entry.name);
                assert_eq!(counts.first, least.first, "{} {limit}", entry.name);
                let at_once = ["opt", "lru", "clock", "arc", "s3-fifo", "2q", "workingset", "fifo"];
                assert_eq!(counts.hits == 0, at_once.contains(&entry.name), "{} {limit}", entry.name);
            }
        }
    }

    #[test]
    fn with_room_for_all_nothing_is_read_back() {
        let steps = random_steps(2 * load::BLOCK_PAGES_MAX, 20_000);
        for entry in LIST {
            let counts = run(&mut *(entry.new)(steps.peak + 1, &steps), &steps);
            assert_eq!(counts.read_back, 0, "{}", entry.name);
        }
    }

    /// A loop over one page more than there is room for: with LRU and FIFO each touch misses, and the optimum misses one a round.
    #[test]
    fn a_loop_that_does_not_fit_is_told_right() {
        const PAGES: u32 = 100;
        let rounds = (0..20).flat_map(|_| 0..PAGES).map(|page| Step::Access { page, write: false });
        let steps = Steps::of(&rounds.collect::<Vec<_>>());
        let limit = PAGES as usize - 1;
        assert_eq!(run(&mut lru::new(limit, &steps), &steps).read_back, 19 * 100);
        assert_eq!(run(&mut fifo::new(limit, &steps), &steps).read_back, 19 * 100);
        let least = run(&mut opt::new(limit, &steps), &steps).read_back;
        assert!((19..=21).contains(&least), "{least}");
    }

    #[test]
    fn a_page_that_was_given_up_is_not_read_back() {
        let touch = |page| Step::Access { page, write: true };
        let steps = Steps::of(&[touch(0), touch(1), Step::Gone(0), touch(0), touch(1), touch(0)]);
        assert_eq!((steps.peak, steps.accesses, steps.touched), (2, 5, 2));
        let counts = run(&mut lru::new(1, &steps), &steps);
        // Page 1 and the second life of page 0 are pushed out once each.
        assert_eq!((counts.first, counts.read_back), (3, 2));
    }
}
