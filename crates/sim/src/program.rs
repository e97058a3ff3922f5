//! The program of a seed: what each of its threads does, and what it must find.
use crate::machine::{Found, SimPager};
use crate::sched::{Rng, step};
use crate::store::Worker;
use crate::world::{FOREIGN, Model, NOBODY, World, context};
use outswap_core::fault::Fault;
use outswap_core::machine::{Event, Prot};
use outswap_core::pager::Context;
use outswap_core::protection::Access;
use outswap_core::readahead::{Over, Window};
use outswap_core::store::Page;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PageNo};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;

/// Faults that are held back in a row before the thread has the limit exceeded.
const FULL_TRIES: u32 = 50;

/// One thread of the program.
pub(crate) struct Program<'a> {
    pub(crate) world: &'a World,
    pub(crate) pager: &'a SimPager,
    pub(crate) me: u8,
    pub(crate) rng: Rng,
    pub(crate) cx: Box<Context<Worker>>,
    pub(crate) writes: u64,
    pub(crate) chaos_over: bool,
}

impl<'a> Program<'a> {
    pub(crate) fn new(world: &'a World, me: u8, seed: u64) -> Self {
        let (pager, mut cx) = (&*world.pager, context());
        cx.lane = usize::from(me);
        Program { world, pager, me, rng: Rng(seed), cx, writes: 0, chaos_over: false }
    }

    fn tell(&self, what: &str, first: usize, count: usize) {
        if self.world.told {
            eprintln!("thread {}: {what} {first}+{count}", self.me);
        }
    }
    fn model(&self) -> &'a Model {
        &self.world.model
    }
    fn mine(&self, page: usize) -> bool {
        self.model().owner[page].load(Relaxed) == self.me
    }
    fn prot(&self, page: usize) -> u8 {
        self.model().prot[page].load(Relaxed)
    }
    fn locked(&self, page: usize) -> bool {
        self.model().locked[page].load(Relaxed)
    }

    pub(crate) fn run(&mut self) {
        if self.world.setup.dense {
            for page in 0..self.world.setup.pages {
                if self.mine(page) {
                    self.write(page as u32);
                }
            }
        }
        for _ in 0..self.world.setup.ops {
            step();
            match self.rng.below(100) {
                0..22 => self.on_page(|s, page| s.verify(page)),
                22..44 => self.on_page(|s, page| s.write(page)),
                44..56 => self.sequential(),
                56..62 => self.discard(),
                62..66 => self.unmap(),
                66..70 => self.map(),
                70..73 => self.protect(),
                73..77 => self.remap(),
                77..79 => self.lock(),
                79..81 => self.unlock(),
                81..85 => self.page_out(),
                85 => self.take_content(),
                86..89 => self.will_need(),
                89..92 => self.change_limits(),
                92..96 => self.call(),
                96 => self.stray(),
                97 => self.map_foreign(),
                98 => self.unmap_foreign(),
                _ => self.verify_mine(),
            }
            self.read_ahead();
            self.take_for_others();
        }
    }

    /// A thread that has just been given a page takes others, and frees what is written out, for one that only writes.
    fn take_for_others(&mut self) {
        match self.rng.below(32) {
            0 => _ = self.pager.isolate_ahead(self.rng.below(100), &mut self.cx),
            1 => _ = self.pager.write_back(&mut self.cx),
            2 => _ = self.pager.release_kept(),
            _ => {}
        }
    }

    /// A thread that has time reads ahead what was asked for; now and then something else.
    fn read_ahead(&mut self) {
        if self.rng.once_in(8) {
            let over = if self.rng.once_in(2) { Over::Pages } else { Over::Slots };
            let first = self.rng.below(self.world.setup.pages) as u32;
            let (step, count) = (self.rng.pick(&[1, 1, -1, 3, -17]), self.rng.range(1, 40) as u32);
            self.pager.ask_ahead(Window { over, first, step, count });
        }
        if self.rng.once_in(8) {
            self.pager.ask_stream(PageNo(self.rng.below(self.world.setup.pages) as u32).block());
        }
        if self.rng.once_in(3) {
            self.pager.read_ahead(&mut self.cx);
            self.pager.bring_stream(&mut self.cx);
        }
        if self.rng.once_in(16) {
            self.pager.drop_ahead();
        }
    }

    /// A page of this thread, at random.
    fn page(&mut self) -> Option<usize> {
        let pages = self.world.setup.pages;
        // Some pages are used more than others.
        let span = if self.rng.once_in(2) { pages } else { pages / 8 };
        let start = self.rng.below(span);
        (0..pages).map(|i| (start + i) % pages).find(|&p| self.mine(p))
    }
    /// A run of this thread's pages, of at most `max`, all with `wanted`.
    fn run_of(&mut self, max: usize, wanted: impl Fn(&Self, usize) -> bool) -> Option<(usize, usize)> {
        let first = self.page()?;
        let max = self.rng.range(1, max);
        let pages = self.world.setup.pages;
        let count = (first..pages).take(max).take_while(|&p| self.mine(p) && wanted(self, p)).count();
        (count > 0).then_some((first, count))
    }

    fn on_page(&mut self, f: impl Fn(&mut Self, u32)) {
        if let Some(page) = self.page() {
            f(self, page as u32);
        }
    }

    /// Fails unless the pager's answer has a cause that was injected. True where it is worth trying again.
    fn excuse(&mut self, fault: Fault, page: u32, tries: u32) -> bool {
        match fault {
            Fault::Done => {
                assert!(tries < 20_000, "page {page} never comes");
                true
            }
            Fault::NoMemory => {
                assert!(self.world.setup.no_memory && !self.chaos_over, "page {page}: no memory");
                true
            }
            Fault::Corrupt => {
                assert!(self.cx.worker.saw_corrupt, "page {page}: called corrupt though the store was right");
                false
            }
            Fault::Unreadable => {
                assert!(self.cx.worker.saw_io, "page {page}: called unreadable though the store was read");
                tries < 20
            }
            Fault::Full => {
                assert!(self.world.setup.insists, "page {page}: held back though nobody insists");
                if tries > FULL_TRIES {
                    self.pager.full.give_up();
                }
                true
            }
            Fault::NotMapped => panic!("page {page}: not mapped"),
        }
    }

    /// The program gives up the content of a page that cannot be read back.
    fn lose(&mut self, page: u32) {
        *self.model().content[page as usize].lock().expect("no panic while held") = None;
        self.pager.discard(PageNo(page), 1);
    }

    /// An instruction of the program that uses a page: it faults, and is run again, until the page is there.
    fn access(&mut self, page: u32, write: bool, mut f: impl FnMut(&mut Page)) {
        self.tell(if write { "write" } else { "read" }, page as usize, 1);
        let mut tries = 0;
        loop {
            step();
            let found = self.pager.machine.access(page, write, &mut f);
            if found == Found::Done {
                return;
            }
            assert!(
                found == Found::Protected || !self.locked(page as usize),
                "page {page} is locked, and yet not there"
            );
            self.cx.worker = Worker::default();
            let limit = self.pager.limit_pages();
            let wanted = if write { Access::Write } else { Access::Read };
            let fault = self.pager.fault(PageNo(page), wanted, &mut self.cx);
            self.check_limit(limit);
            tries += 1;
            if !self.excuse(fault, page, tries) {
                self.lose(page);
            }
        }
    }

    /// After a fault the limit holds but for what the threads at work may add together, unless pages are held in. After an attempt
    /// that failed while some were, the next few faults make none: then it holds after as many attempts.
    pub(crate) fn check_limit(&mut self, limit_before: u64) {
        const RESTING_PAGES: usize = 16;
        let limit = self.pager.limit_pages();
        let held = self.model().calls.load(Relaxed) > 0 || self.model().locked.iter().any(|l| l.load(Relaxed));
        if !self.world.setup.calm || self.chaos_over || held || limit != limit_before {
            return;
        }
        // One that maps zero pages as the limit is lowered adds a block.
        let each = if self.world.setup.chaos.maps_zero_in > 0 { 32 + BLOCK_PAGES as u64 } else { 32 };
        let most = limit + each * (self.world.setup.threads as u64 + 1);
        let over_limit = self.pager.machine.events[Event::OverLimit as usize].load(Relaxed);
        let fits = |program: &Self| program.pager.used_pages() <= most;
        // Where a limit was set just now that is far below what is in use, a fault may have needed no room.
        if over_limit > 0 || self.world.setup.large {
            let mut left = RESTING_PAGES;
            while left > 0 && !fits(self) {
                self.pager.make_room(1, &mut self.cx);
                left -= 1;
            }
        }
        assert!(fits(self), "{} pages in use with a limit of {limit}", self.pager.used_pages());
    }

    fn expect(&self, page: u32, found: &Page) {
        let expected = self.model().content[page as usize].lock().expect("no panic while held");
        let zero: Page = [0; PAGE_BYTES];
        let expected = expected.as_deref().unwrap_or(&zero);
        if expected != found {
            let at = expected.iter().zip(found).position(|(a, b)| a != b).expect("they differ");
            let some = at..(at + 8).min(PAGE_BYTES);
            let (found, expected) = (&found[some.clone()], &expected[some]);
            panic!("page {page} holds wrong bytes from byte {at} on: {found:x?} instead of {expected:x?}");
        }
    }

    pub(crate) fn verify(&mut self, page: u32) {
        if self.prot(page as usize) == 0 {
            return;
        }
        let mut found: Page = [0; PAGE_BYTES];
        self.access(page, false, |content| found = *content);
        self.expect(page, &found);
    }

    /// The content of a new write: incompressible, repeated, zero, or a change of a part.
    fn new_content(&mut self, page: u32) -> Option<Box<Page>> {
        self.writes += 1;
        let mut content: Box<Page> = Box::new([0; PAGE_BYTES]);
        match self.rng.below(8) {
            0 if !self.world.setup.dense => return None,
            1 => content.fill(self.rng.range(1, 4) as u8),
            2 | 3 => {
                let old = self.model().content[page as usize].lock().expect("no panic while held").clone();
                content = old.unwrap_or(content);
                let at = self.rng.below(PAGE_BYTES - 8);
                content[at..at + 8].copy_from_slice(&self.rng.draw().to_ne_bytes());
            }
            4 => {
                // The same bytes again.
                let old = self.model().content[page as usize].lock().expect("no panic while held").clone();
                if old.is_some() || !self.world.setup.dense {
                    return old;
                }
                content.fill(5);
            }
            _ => {
                let mut noise = Rng((self.me as u64) << 56 | (page as u64) << 32 | self.writes);
                content.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&noise.draw().to_ne_bytes()));
            }
        }
        Some(content)
    }

    fn write(&mut self, page: u32) {
        if self.prot(page as usize) & 2 == 0 {
            return;
        }
        let content = self.new_content(page);
        let zero: Page = [0; PAGE_BYTES];
        let bytes = content.as_deref().unwrap_or(&zero);
        let model = self.model();
        self.access(page, true, |to| *to = *bytes);
        *model.content[page as usize].lock().expect("no panic while held") = content;
    }

    fn sequential(&mut self) {
        let Some((first, count)) = self.run_of(80, |_, _| true) else { return };
        let write = self.rng.once_in(2);
        for page in first..first + count {
            if write { self.write(page as u32) } else { self.verify(page as u32) }
        }
    }

    pub(crate) fn verify_mine(&mut self) {
        for page in 0..self.world.setup.pages {
            if self.mine(page) {
                self.verify(page as u32);
            }
        }
    }

    fn forget(&self, page: usize) -> Option<Box<Page>> {
        self.model().locked[page].store(false, Relaxed);
        self.model().content[page].lock().expect("no panic while held").take()
    }

    fn discard(&mut self) {
        // The kernel refuses this for locked pages.
        let Some((first, count)) = self.run_of(70, |s, p| !s.locked(p)) else { return };
        self.tell("discard", first, count);
        self.pager.discard(PageNo(first as u32), count as u32);
        (first..first + count).for_each(|p| drop(self.forget(p)));
    }

    /// What pages hold leaves the pager's hands: all of it, and nothing else. Some of it comes back.
    fn take_content(&mut self) {
        let Some((first, count)) = self.run_of(70, |_, _| true) else { return };
        self.tell("take content", first, count);
        self.cx.worker = Worker::default();
        let call = self.pager.begin_call();
        let mut taken: BTreeMap<u32, Box<Page>> = BTreeMap::new();
        let outcome = self.pager.take_content(PageNo(first as u32), count as u32, &mut self.cx, |page, content| {
            let content = Box::new(content.try_into().expect("a page"));
            assert!(taken.insert(page.0, content).is_none(), "page {} was handed over twice", page.0);
        });
        if let Err(fault) = outcome {
            // A machine that refuses again and again says so in the same way.
            let refused = fault == Fault::NoMemory && !self.chaos_over;
            let _ = refused || self.excuse(fault, first as u32, 0);
        }
        for page in first as u32..(first + count) as u32 {
            let Some(found) = taken.remove(&page) else {
                let held = self.model().content[page as usize].lock().expect("no panic while held").is_some();
                assert!(!held || outcome.is_err() || self.is_zero(page), "page {page} was left out");
                if !self.pager.machine.is_mapped(page) {
                    // The kernel had not filled it.
                    self.model().locked[page as usize].store(false, Relaxed);
                }
                continue;
            };
            self.expect(page, &found);
            let content = self.forget(page as usize);
            if self.rng.once_in(2) && self.pager.put_content(PageNo(page), &*found) {
                *self.model().content[page as usize].lock().expect("no panic while held") = content;
            }
        }
        drop(call);
    }
    fn is_zero(&self, page: u32) -> bool {
        let content = self.model().content[page as usize].lock().expect("no panic while held");
        content.as_deref().is_none_or(|content| content.iter().all(|byte| *byte == 0))
    }

    fn map(&mut self) {
        let count = self.rng.range(1, 70) as u32;
        let align = self.rng.pick(&[1, 1, 16, 64]);
        let call = self.pager.begin_call();
        if let Some(first) = self.pager.gap(count, align) {
            assert!(self.pager.is_free(first, count));
            self.tell("map", first.0 as usize, count as usize);
            if self.pager.map(first, count, Prot::READ_WRITE, false) {
                self.own(first.0 as usize, count as usize);
            } else {
                assert!(self.pager.is_free(first, count), "a mapping that was refused leaves nothing behind");
            }
        }
        drop(call);
    }
    fn own(&self, first: usize, count: usize) {
        for page in first..first + count {
            assert_eq!(self.model().owner[page].load(Relaxed), NOBODY, "page {page} was given away twice");
            self.model().owner[page].store(self.me, Relaxed);
            self.model().prot[page].store(3, Relaxed);
        }
    }

    /// An access that hits nothing, by mistake: it brings nothing in.
    fn stray(&mut self) {
        let page = self.rng.below(self.world.setup.pages);
        if self.model().owner[page].load(Relaxed) >= FOREIGN {
            let fault = self.pager.fault(PageNo(page as u32), Access::Read, &mut self.cx);
            // Another thread may map it meanwhile, and use it; or be moving something there, which the store cannot read.
            if self.model().owner[page].load(Relaxed) >= FOREIGN {
                assert!(fault != Fault::Corrupt, "{fault:?}");
            }
        }
        assert_eq!(
            self.pager.fault(PageNo(self.world.setup.pages as u32), Access::Write, &mut self.cx),
            Fault::NotMapped
        );
    }

    fn map_foreign(&mut self) {
        let count = self.rng.range(1, 20) as u32;
        let call = self.pager.begin_call();
        let gap = self.pager.gap(count, 1).filter(|&f| self.pager.vacate(f, count));
        let gap = gap.filter(|&f| self.pager.map_foreign(f, count, Prot::READ_WRITE));
        if let Some(first) = gap {
            self.tell("map foreign", first.0 as usize, count as usize);
            for page in first.0 as usize..(first.0 + count) as usize {
                assert_eq!(self.model().owner[page].swap(FOREIGN, Relaxed), NOBODY);
                self.pager.machine.set_foreign(page, true);
            }
        }
        drop(call);
    }
    fn unmap_foreign(&mut self) {
        let call = self.pager.begin_call();
        let pages = self.world.setup.pages;
        let foreign = |p: usize| self.model().owner[p].load(Relaxed) == FOREIGN;
        if let Some(first) = (0..pages).find(|&p| foreign(p)) {
            let count = (first..pages).take_while(|&p| foreign(p)).count();
            // Given back first, as the pager asks.
            (first..first + count).for_each(|p| self.pager.machine.set_foreign(p, false));
            if self.pager.unmap(PageNo(first as u32), count as u32) {
                self.tell("unmap foreign", first, count);
                self.disown(first, count);
            } else {
                (first..first + count).for_each(|p| self.pager.machine.set_foreign(p, true));
            }
        }
        drop(call);
    }

    fn unmap(&mut self) {
        let Some((first, count)) = self.run_of(50, |_, _| true) else { return };
        self.tell("unmap", first, count);
        let call = self.pager.begin_call();
        if self.pager.unmap(PageNo(first as u32), count as u32) {
            self.disown(first, count);
        }
        drop(call);
    }
    pub(crate) fn disown(&self, first: usize, count: usize) {
        for page in first..first + count {
            self.forget(page);
            self.model().owner[page].store(NOBODY, Relaxed);
            self.model().prot[page].store(0, Relaxed);
        }
    }

    fn protect(&mut self) {
        let Some((first, count)) = self.run_of(40, |_, _| true) else { return };
        let prot = self.rng.pick(&[0, 1, 1, 3, 3]);
        self.tell(["protect none", "protect read", "", "protect write"][prot as usize], first, count);
        let call = self.pager.begin_call();
        let done = self.pager.protect(PageNo(first as u32), count as u32, Prot(prot));
        for page in first..first + count {
            // Refused, it may have changed a part, as the kernel's does; but map and machine must agree.
            let now = self.pager.find(PageNo(page as u32)).expect("the page is mapped").prot;
            assert_eq!(self.pager.machine.prot(page), now, "page {page}: map against machine");
            assert!(now == Prot(prot) || !done && now == Prot(self.prot(page)), "page {page}: access");
            self.model().prot[page].store(now.0, Relaxed);
        }
        drop(call);
    }

    fn remap(&mut self) {
        let Some((first, count)) = self.run_of(50, |s, p| s.prot(p) == 3) else { return };
        let (n, from) = (count as u32, PageNo(first as u32));
        let call = self.pager.begin_call();
        if let Some(to) = self.pager.gap(n, self.rng.pick(&[1, 1, 16])) {
            if self.pager.map(to, n, Prot::READ_WRITE, false) {
                self.tell("move from", first, count);
                self.tell("move to", to.0 as usize, count);
                let moved = self.pager.move_pages(from, to, n, &mut self.cx);
                assert_eq!(moved, n, "the machine does not refuse for ever");
                self.own(to.0 as usize, count);
                for i in 0..count {
                    let content = self.forget(first + i);
                    *self.model().content[to.0 as usize + i].lock().expect("no panic while held") = content;
                }
                if self.pager.unmap(from, n) {
                    self.disown(first, count);
                } else {
                    self.pager.discard(from, n);
                }
            }
        }
        drop(call);
    }

    fn lock(&mut self) {
        let all = self.model().locked.iter().filter(|l| l.load(Relaxed)).count();
        if all > self.world.setup.max_limit / 4 {
            return;
        }
        let Some((first, count)) = self.run_of(5, |s, p| s.prot(p) != 0) else { return };
        let (page, n) = (PageNo(first as u32), count as u32);
        let way = self.rng.below(3);
        if way > 0 {
            // What is not there yet is locked when it is touched.
            self.tell(if way == 1 { "lock on fault" } else { "keep private" }, first, count);
            let call = self.pager.begin_call();
            self.cx.worker = Worker::default();
            let done = match way {
                1 => self.pager.set_locked(page, n, true, true),
                _ => self.pager.keep_private(page, n, &mut self.cx) == Fault::Done,
            };
            drop(call);
            for page in first..first + count {
                self.verify(page as u32);
                if done && self.pager.machine.is_mapped(page as u32) {
                    self.model().locked[page].store(true, Relaxed);
                }
            }
            return;
        }
        let Some(pin) = self.pager.pins.acquire(self.me as u32 + 1, usize::MAX) else { return };
        self.pager.pins.publish(pin, page, n);
        if self.pin(first, count, Access::Write) == count {
            self.tell("lock", first, count);
            let call = self.pager.begin_call();
            let done = self.pager.set_locked(page, n, true, false);
            drop(call);
            if done {
                (first..first + count).for_each(|p| self.model().locked[p].store(true, Relaxed));
            }
        }
        self.pager.pins.release(pin);
    }

    fn unlock(&mut self) {
        let Some((first, count)) = self.run_of(10, |_, _| true) else { return };
        (first..first + count).for_each(|p| self.model().locked[p].store(false, Relaxed));
        let call = self.pager.begin_call();
        self.pager.set_locked(PageNo(first as u32), count as u32, false, false);
        self.pager.end_private(PageNo(first as u32), count as u32);
        drop(call);
    }

    fn page_out(&mut self) {
        let Some((first, count)) = self.run_of(90, |_, _| true) else { return };
        // A hint may name any pages, also those of others.
        let around = if self.world.setup.large { 4 * BLOCK_PAGES - 1 } else { 15 };
        let (first, count) =
            if self.rng.once_in(3) { (first & !around, count | (2 * around + 1)) } else { (first, count) };
        let count = count.min(self.world.setup.pages - first);
        let write = self.rng.once_in(2);
        self.tell(if write { "page out" } else { "cold" }, first, count);
        self.pager.page_out(PageNo(first as u32), count as u32, write, &mut self.cx);
    }

    fn will_need(&mut self) {
        let Some((first, count)) = self.run_of(90, |_, _| true) else { return };
        self.pager.will_need(PageNo(first as u32), count as u32, &mut self.cx);
    }

    fn change_limits(&mut self) {
        let limit = self.rng.range(8, self.world.setup.max_limit);
        self.pager.set_limit_pages(limit as u64);
        if self.rng.once_in(3) {
            self.pager.set_swapcache_max(self.rng.pick(&[0, 5, 50, u64::MAX]));
        }
        // As if there had been a fork, whose other side has ended by now.
        if self.rng.once_in(4) {
            self.pager.copies.forked(true);
            self.pager.hold_copies(&mut self.cx);
        }
        if self.rng.once_in(2) {
            self.pager.copies.begin_measurement(1, None);
        }
    }

    /// Brings a published range in; gives how many pages from its start are there.
    fn pin(&mut self, first: usize, count: usize, access: Access) -> usize {
        let mut tries = 0;
        loop {
            self.cx.worker = Worker::default();
            let (sure, fault) = self.pager.pin(PageNo(first as u32), count as u32, access, &mut self.cx);
            assert!(sure as usize <= count);
            tries += 1;
            if fault == Fault::Done {
                assert_eq!(sure as usize, count);
                return count;
            }
            if !self.excuse(fault, first as u32 + sure, tries) {
                return sure as usize;
            }
        }
    }

    /// A system call: the kernel uses pages that must not go until it is done.
    fn call(&mut self) {
        self.model().calls.fetch_add(1, Relaxed);
        self.call_inner();
        self.model().calls.fetch_sub(1, Relaxed);
    }
    fn call_inner(&mut self) {
        let Some(pin) = self.pager.pins.acquire(self.me as u32 + 1, usize::MAX) else { return };
        let mut ranges = Vec::new();
        for _ in 0..self.rng.pick(&[1, 1, 2, 4, 11, 40]) {
            let most = self.rng.pick(&[2, 6, 20]);
            if let Some((first, count)) = self.run_of(most, |_, _| true) {
                self.pager.pins.publish(pin, PageNo(first as u32), count as u32);
                self.tell("call with", first, count);
                ranges.push((first, count));
            }
        }
        let access = if self.rng.once_in(3) { Access::Read } else { Access::Write };
        for range in &mut ranges {
            range.1 = self.pin(range.0, range.1, access);
        }
        for _ in 0..self.rng.below(12) {
            step();
            if ranges.is_empty() {
                break;
            }
            let (first, count) = self.rng.pick(&ranges);
            if count == 0 {
                continue;
            }
            let page = first + self.rng.below(count);
            if self.prot(page) == 0 {
                continue;
            }
            let write = access == Access::Write && self.prot(page) & 2 != 0 && self.rng.once_in(2);
            let mut found: Page = [0; PAGE_BYTES];
            let byte = self.rng.draw() as u8;
            let at = self.rng.below(PAGE_BYTES);
            let there = self.pager.machine.access(page as u32, write, |content| {
                found = *content;
                if write {
                    content[at] = byte;
                }
            });
            assert_eq!(there, Found::Done, "EFAULT: page {page} went away under a system call");
            self.expect(page as u32, &found);
            if write {
                found[at] = byte;
                *self.model().content[page].lock().expect("no panic while held") = Some(Box::new(found));
            }
        }
        self.pager.pins.release(pin);
    }
}
