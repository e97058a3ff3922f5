//! The memory of the tree as the kernel counts it, seen from outside.
//!
//! A managed process measures itself where it has a thread that does so, or brings pages in. One that does neither may use any
//! amount of what is not managed without a word, and one that runs unmanaged says nothing at all: those are measured here, and
//! put where the others look, so that these make room.
use crate::causes::Causes;
use crate::processes::{Found, find, processes};
use crate::size::show;
use crate::thrash::Thrash;
use outswap_control::{CHARGE_MAX_BYTES, Control, Process, Stat};
use outswap_sys::PAGE_BYTES;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// Between two looks: as a rule, while much is taken, and at most.
const LOOK: Duration = Duration::from_millis(100);
/// See [`LOOK`].
const LOOK_SOON: Duration = Duration::from_millis(25);
/// See [`LOOK`].
const LOOK_LATE: Duration = Duration::from_secs(10);
/// A look may take one part in so many of the time until the next, on one processor.
const COST_SHARE: u32 = 200;
/// A search because of a process more takes so much of the time since the last one, at most.
const SEARCH_SHARE: u32 = 20;
/// What a tree may be over its limit without it counting: one part in so many of the limit, and so much a process. Processes are
/// looked at one after the other, and measure themselves now and then.
const TOLERANCE_SHARE: u64 = 20;
/// See [`TOLERANCE_SHARE`].
const TOLERANCE_BYTES: u64 = 8 << 20;
/// Less of tables is not worth a word.
const TABLES_MIN_BYTES: u64 = 1 << 20;
/// Processes whose mappings are looked at for a warning.
const CAUSES_OF: usize = 8;
/// What less of a process is that runs unmanaged counts until the next look, whether it lives or not: to ask takes a call.
const OWN_MIN_BYTES: u64 = 1 << 20;
/// No process has this number.
const NOBODY: i32 = -1;
/// Processes of a tree that are remembered.
const MAX_KNOWN: usize = 1 << 16;

/// What was seen of a record: whose it was, and how often that process had measured itself.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    number: i32,
    measured: u32,
    /// Whether the process that this is here is one of ours.
    is_ours: Option<bool>,
}

/// A process of the tree that is remembered: it stays when its parent ends.
#[derive(Clone, Copy)]
struct Known {
    /// When it started, and where its stack does: another program has another.
    identity: [u64; 2],
    is_managed: bool,
    /// It was executing a program when it was looked at, which may be managed in a moment.
    is_changing: bool,
}

/// What a process has of the memory of the tree.
struct Part {
    pid: i32,
    unmanaged_bytes: u64,
    /// The runtime's, beside managed pages in their places.
    own_bytes: u64,
    /// What is managed of its program's `.bss`, from one address to another.
    bss: [u64; 2],
    /// Managed, as far as its record says.
    has_record: bool,
}

/// Looks at the tree.
pub struct Watch {
    control: &'static Control,
    root: i32,
    /// Whether what runs unmanaged counts: not where all that the program starts is to be left alone.
    follows: bool,
    seen: Vec<Seen>,
    known: HashMap<i32, Known>,
    /// When the tree is to be looked for again, and how many processes had run unmanaged by the last time.
    next_search: Instant,
    /// What searching took so far, which has a pace of its own; and what it took the last time, and when that was.
    search_time: Duration,
    searched: (Duration, Instant),
    unmanaged_seen: u32,
    /// When to look again.
    next_look: Instant,
    last_bytes: u64,
    is_over: bool,
    over: u64,
    warned: bool,
    thrash: Thrash,
}

impl Watch {
    /// Begins to watch the tree below `root`.
    pub fn new(control: &'static Control, root: i32, follows: bool) -> Watch {
        let seen = vec![Seen::default(); control.processes.len()];
        Watch {
            control,
            root,
            follows,
            seen,
            known: HashMap::new(),
            next_search: Instant::now(),
            search_time: Duration::ZERO,
            searched: (Duration::ZERO, Instant::now()),
            unmanaged_seen: 0,
            next_look: Instant::now(),
            last_bytes: 0,
            is_over: false,
            over: 0,
            warned: false,
            thrash: Thrash::new(control),
        }
    }

    /// Times that the tree was seen to go over its limit.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Looks, where it is time to, warns where there is cause, and says when to ask again.
    pub fn look(&mut self, warn: impl FnMut(&str)) -> Duration {
        let early = self.next_look.saturating_duration_since(Instant::now());
        if early.is_zero() { self.look_now(warn) } else { early.min(LOOK) }
    }

    /// As [`Watch::look`], at once.
    pub fn look_now(&mut self, mut warn: impl FnMut(&str)) -> Duration {
        let (began, searched) = (cpu_time(), self.search_time);
        let mut parts = Vec::new();
        let bytes = self.managed(&mut parts).saturating_add(self.unmanaged(&mut parts));
        let control = self.control;
        control.note_charge(|| bytes);
        let [.., tables, _, unmanaged] = control.note_peaks();
        if let Some(text) = self.thrash.look() {
            warn(&text);
        }
        let took = cpu_time().saturating_sub(began).saturating_sub(self.search_time - searched);
        self.judge(bytes, [unmanaged, tables], &mut parts, warn);
        let ram = control.config.ram_bytes;
        let grows = bytes > ram / 4 && bytes.saturating_sub(self.last_bytes) > ram / 32;
        self.last_bytes = bytes;
        let soonest = if grows && ram > 0 { LOOK_SOON } else { LOOK };
        let pause = (took * COST_SHARE).clamp(soonest, LOOK_LATE);
        self.next_look = Instant::now() + pause;
        pause.min(LOOK)
    }

    /// The program has ended: says what was only seen afterwards.
    pub fn finish(&mut self, mut warn: impl FnMut(&str)) {
        let ram = self.control.config.ram_bytes;
        let [.., unmanaged] = self.control.tree_peaks.each_ref().map(|peak| peak.load(Relaxed));
        if ram == 0 || unmanaged <= ram || self.warned {
            return;
        }
        self.over += u64::from(self.over == 0);
        self.warn(&mut warn, unmanaged, "for a moment, which was seen afterwards");
    }

    /// Measures managed processes. Gives the sum.
    fn managed(&mut self, parts: &mut Vec<Part>) -> u64 {
        let (mut sum, mut told) = (0u64, Vec::new());
        let control = self.control;
        for (record, seen) in control.used_records().iter().zip(&mut self.seen) {
            let (number, measured) = (record.pid.load(Acquire), record.measured.load(Acquire));
            // One that executes another program has no memory of its own in a moment.
            if number <= 0 || measured == u32::MAX {
                *seen = Seen::default();
                continue;
            }
            // A process that was just made, or measured itself since, knows better.
            let is_silent = (seen.number, seen.measured) == (number, measured);
            let is_ours = seen.is_ours.filter(|_| seen.number == number);
            *seen = Seen { number, measured, is_ours };
            let pid = control.pid_of(number).unwrap_or(NOBODY);
            let bytes = if is_silent {
                // Where the kernel does not say, it is asked again.
                seen.is_ours = is_ours.or_else(|| has_mapped(pid, control.config.shared_file));
                if seen.is_ours == Some(true) { measure(control, record, pid) } else { None }
            } else {
                None
            };
            // Its memory is on its way back to the kernel, or to those that share it, who count it then.
            match bytes {
                _ if record.is_ending() => {}
                Some(bytes) => sum = sum.saturating_add(bytes),
                None => told.push((record, record.charge())),
            }
            let unmanaged_bytes = record.counters.get(Stat::UnmanagedBytes);
            let bss = record.bss.each_ref().map(|border| border.load(Relaxed));
            parts.push(Part { pid, unmanaged_bytes, own_bytes: own_bytes(record), bss, has_record: true });
        }
        // What has moved to another meanwhile would count in both.
        let is_there = |(record, _): &&(&Process, u64)| !record.is_ending();
        told.iter().filter(is_there).fold(sum, |sum, (record, bytes)| sum.saturating_add(record.charge().min(*bytes)))
    }

    /// Measures what runs unmanaged, where anything does, and publishes the sum.
    fn unmanaged(&mut self, parts: &mut Vec<Part>) -> u64 {
        let control = self.control;
        let unmanaged = control.processes_unmanaged.load(Relaxed);
        if !self.follows || unmanaged == 0 {
            return 0;
        }
        let (took, at) = self.searched;
        let is_soon = unmanaged != self.unmanaged_seen && at.elapsed() >= took * SEARCH_SHARE;
        if Instant::now() >= self.next_search || is_soon {
            self.unmanaged_seen = unmanaged;
            self.search();
        }
        let (mut sum, mut own) = (0u64, Vec::new());
        // One that was found while it executed a managed program has a record by now.
        let counted: HashSet<i32> = parts.iter().filter(|part| part.has_record).map(|part| part.pid).collect();
        for (&pid, known) in self.known.iter().filter(|(pid, known)| !known.is_managed && !counted.contains(pid)) {
            // It may have ended since, and another have its number.
            let Some(found) = find(pid).filter(|found| found.identity == known.identity) else { continue };
            if shares_memory(pid, found.parent) {
                continue;
            }
            let (bytes, own_bytes) = Reading::of(pid).parts();
            sum = sum.saturating_add(bytes);
            if own_bytes >= OWN_MIN_BYTES {
                own.push((pid, own_bytes.min(bytes)));
            }
            parts.push(Part { pid, unmanaged_bytes: bytes, own_bytes: 0, bss: [0; 2], has_record: false });
        }
        // Not for all is there a place.
        own.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        control.unmanaged.set(&own, sum.saturating_sub(own.iter().map(|(_, bytes)| bytes).sum::<u64>()));
        sum
    }

    /// Looks which processes are of the tree, and which of them run unmanaged. Dear where there are many processes.
    fn search(&mut self) {
        let began = cpu_time();
        let all = processes();
        // Whether a process has a record, and whether it is executing a program.
        let records = self.control.used_records().iter();
        let records: HashMap<i32, bool> = records
            .filter_map(|r| Some((self.control.pid_of(r.pid.load(Relaxed))?, r.measured.load(Relaxed) == u32::MAX)))
            .collect();
        self.follow(&all);
        let own = std::process::id() as i32;
        for (pid, known) in self.known.iter_mut().filter(|(pid, _)| **pid != own) {
            let Some(found) = all.get(pid) else { continue };
            let record = records.get(pid);
            if record == Some(&false) {
                *known = Known { identity: found.identity, is_managed: true, is_changing: false };
            } else if known.identity != found.identity || known.is_managed {
                let is_managed = has_mapped(*pid, self.control.config.shared_file) == Some(true);
                let is_changing = !is_managed && record == Some(&true) && !known.is_changing;
                // What is changing is looked at once more.
                let identity = if is_changing { [found.identity[0], 0] } else { found.identity };
                *known = Known { identity, is_managed: is_managed || is_changing, is_changing };
            }
        }
        let took = cpu_time().saturating_sub(began);
        self.search_time += took;
        self.searched = (took, Instant::now());
        self.next_search = Instant::now() + (took * COST_SHARE).clamp(LOOK, LOOK_LATE);
    }

    /// Brings what is known of the tree up to date.
    fn follow(&mut self, all: &HashMap<i32, Found>) {
        self.known.retain(|pid, known| all.get(pid).is_some_and(|found| found.identity[0] == known.identity[0]));
        // Not yet looked at: as if another program had run there.
        let unknown = |found: &Found| Known { identity: [found.identity[0], 0], is_managed: true, is_changing: false };
        // Whoever lost its parent may have come to this process: as the first of a container, it gets all of them. Children that
        // it had before the program are none of the tree.
        let own = std::process::id() as i32;
        let begun = all.get(&self.root).map_or(u64::MAX, |root| root.identity[0]);
        let is_ours = |found: &Found| found.parent != own || found.identity[0] >= begun;
        for root in [self.root, own] {
            if let Some(found) = all.get(&root) {
                self.known.entry(root).or_insert_with(|| unknown(found));
            }
        }
        loop {
            let is_new = |pid: &i32, found: &Found| {
                !self.known.contains_key(pid) && self.known.contains_key(&found.parent) && is_ours(found)
            };
            let new: Vec<(i32, Known)> = all
                .iter()
                .filter(|(pid, found)| is_new(pid, found))
                .map(|(pid, found)| (*pid, unknown(found)))
                .collect();
            if new.is_empty() || self.known.len() + new.len() > MAX_KNOWN {
                return;
            }
            self.known.extend(new);
        }
    }

    /// Counts it where the limit does not hold, and warns where that cannot be helped.
    fn judge(&mut self, bytes: u64, [unmanaged, tables]: [u64; 2], parts: &mut [Part], mut warn: impl FnMut(&str)) {
        let (ram, fixed) = (self.control.config.ram_bytes, unmanaged.saturating_add(tables));
        if ram == 0 {
            return;
        }
        let tolerance = (ram / TOLERANCE_SHARE).saturating_add(TOLERANCE_BYTES.saturating_mul(parts.len() as u64));
        let is_over = fixed > ram || bytes > ram.saturating_add(tolerance);
        self.over += u64::from(is_over && !self.is_over);
        self.is_over = is_over;
        if fixed <= ram || self.warned {
            return;
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.unmanaged_bytes));
        let mut causes = Causes::default();
        for part in parts.iter().take(CAUSES_OF) {
            // Any number may stand in a record; nothing is told of a process that is none of ours.
            if !part.has_record || has_mapped(part.pid, self.control.config.shared_file) == Some(true) {
                causes.add(part.pid, part.own_bytes, part.bss);
            }
        }
        let mut text = causes.text();
        if tables >= TABLES_MIN_BYTES {
            let rest = if text.is_empty() { text } else { format!(", {text}") };
            text = format!("tables of Outswap's {}{rest}", show(tables));
        }
        let text = if text.is_empty() { "the kernel does not say of what kind".to_owned() } else { text };
        self.warn(&mut warn, fixed, &text);
    }

    fn warn(&mut self, warn: &mut impl FnMut(&str), bytes: u64, what: &str) {
        self.warned = true;
        let ram = show(self.control.config.ram_bytes);
        // Every process of the tree can write there.
        if bytes >= CHARGE_MAX_BYTES {
            warn(&format!(
                "whether the limit of {ram} holds cannot be told: a process has written over the statistics (see docs/security.md)"
            ));
            return;
        }
        let bytes = show(bytes);
        warn(&format!(
            "{bytes} of memory cannot be managed ({what}): the limit of {ram} is exceeded (give more --ram)"
        ));
    }
}

/// What this thread has worked for so far.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a process has of the runtime's beside managed pages in their places, bytes.
fn own_bytes(record: &Process) -> u64 {
    let stats = [Stat::IsolatedBytes, Stat::PoolBytes, Stat::TablesBytes];
    stats.map(|stat| record.counters.get(stat)).into_iter().fold(0, u64::saturating_add)
}

/// Measures a managed process that has not done so itself for a while, and tells the others. `None` where the kernel does not say.
fn measure(control: &Control, record: &Process, pid: i32) -> Option<u64> {
    let (charge, number) = (record.charge_bytes.load(Acquire), control.begin_measurement());
    let bytes = if record.family.load(Acquire) == 0 { anonymous_bytes(pid) } else { shared_anonymous_bytes(pid) }?;
    let managed = record.resident_bytes().saturating_add(own_bytes(record));
    let counters = &record.counters;
    let unmanaged = bytes.saturating_sub(managed);
    // A swap file in memory is nobody's anonymous memory, and counts all the same.
    let bytes = bytes.saturating_add(counters.get(Stat::FileMemoryBytes));
    // What it has left to the kernel may be filled at any moment, without a word.
    let bytes = bytes.max(charge.min(bytes.saturating_add(record.left_bytes.load(Acquire))));
    if control.config.ram_bytes == 0 {
        counters.set(Stat::UnmanagedBytes, unmanaged);
        return Some(bytes);
    }
    // Unless it says something else by now.
    if record.charge_bytes.compare_exchange(charge, bytes, AcqRel, Relaxed).is_ok() {
        counters.set(Stat::UnmanagedBytes, unmanaged);
        counters.set(Stat::ChargeBytes, bytes);
        record.measured_number.store(number, Release);
        // It does nothing, and the others have had time to measure.
        record.others_part_bytes.store(0, Relaxed);
        counters.stats[Stat::PeakChargeBytes as usize].fetch_max(bytes, Relaxed);
    }
    Some(bytes)
}

/// Anonymous memory of a process in bytes. What it shares with a forked one counts in full.
fn anonymous_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut fields = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, file_and_shared) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(file_and_shared).saturating_mul(PAGE_BYTES as u64))
}

/// The same with the process's share of what it shares. Dearer: the kernel looks at every page.
fn shared_anonymous_bytes(pid: i32) -> Option<u64> {
    Reading::of(pid).share_bytes()
}

/// What the kernel says of a process's anonymous memory, in bytes. It may end at any moment, and have nothing then; and its memory
/// goes on while it is looked at.
struct Reading {
    before: Option<u64>,
    share: Option<u64>,
    after: Option<u64>,
}

impl Reading {
    fn of(pid: i32) -> Reading {
        let before = anonymous_bytes(pid);
        let share = pss_anon_bytes(pid);
        Reading { before, share, after: anonymous_bytes(pid) }
    }

    /// The share counts those pages twice that move from one mapping to another meanwhile, as they do on their way out; it is never
    /// more than all.
    fn share_bytes(&self) -> Option<u64> {
        let all = self.before.max(self.after);
        self.share.map(|share| all.map_or(share, |all| share.min(all)))
    }

    /// What counts, and the part of it that goes with the process when it ends. Of what it shares, which is the others' then, half or
    /// less is its share.
    fn parts(&self) -> (u64, u64) {
        let Some(share) = self.share_bytes() else { return (self.after.unwrap_or(0), 0) };
        // One that has ended by now had what it had before.
        let all = self.after.filter(|all| *all > 0).or(self.before).unwrap_or(0);
        (share, share.saturating_sub(all.saturating_sub(share)))
    }
}

fn pss_anon_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Whether a process has a file mapped, of which device and inode are given. `None` where the kernel does not say.
fn has_mapped(pid: i32, [device, inode]: [u64; 2]) -> Option<bool> {
    let file = fs::File::open(format!("/proc/{pid}/maps")).ok()?;
    let device = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    for line in BufReader::new(file).split(b'\n') {
        let line = line.ok()?;
        let mut fields = line.split(|c| *c == b' ').skip(3);
        if fields.next() == Some(device.as_bytes())
            && fields.next().is_some_and(|field| field == inode.to_string().as_bytes())
        {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether a process has its parent's memory (a child of `vfork`), which is counted there.
fn shares_memory(pid: i32, parent: i32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: takes numbers only.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, pid, parent, KCMP_VM, 0, 0) };
    // Where a sandbox forbids to ask: what is alike in all its sizes. A child that was forked differs as soon as it does anything.
    let sizes = |pid: i32| fs::read_to_string(format!("/proc/{pid}/statm")).ok();
    compared == 0 || compared == -1 && sizes(pid).is_some_and(|own| sizes(parent) == Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_control::{Config, Shared};
    use outswap_sys::os;

    fn control(ram_bytes: u64) -> &'static Control {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        let shared = unsafe { &*(at as *const Shared) };
        let config = Box::leak(Box::new(Config { ram_bytes, shared_file: [1, 1], ..Config::EMPTY }));
        Box::leak(Box::new(Control::new(config, shared, None)))
    }

    #[test]
    fn a_silent_process_is_measured_and_one_that_speaks_is_believed() {
        let control = control(64 << 20);
        let record = control.take(os::getpid()).expect("room");
        record.charge_bytes.store(4096, Relaxed);
        record.measured.store(3, Relaxed);
        let mut watch = Watch::new(control, os::getpid(), true);
        let mut parts = Vec::new();
        assert_eq!(watch.managed(&mut parts), 4096);
        // It is not one of ours as far as can be seen: it has not mapped the block.
        assert_eq!(watch.managed(&mut parts), 4096);
        watch.seen[0].is_ours = Some(true);
        assert!(watch.managed(&mut parts) > 4096 && record.charge() > 4096);
        assert!(record.counters.get(Stat::UnmanagedBytes) > 4096);
        record.charge_bytes.store(8192, Relaxed);
        record.measured.store(4, Relaxed);
        assert_eq!(watch.managed(&mut parts), 8192);
        record.measured.store(u32::MAX, Relaxed);
        assert_eq!(watch.managed(&mut parts), 0, "it executes another program");
    }

    #[test]
    fn each_time_over_the_limit_counts_and_one_warning_is_given() {
        let ram = 64u64 << 20;
        let mut watch = Watch::new(control(ram), os::getpid(), true);
        let mut told = Vec::new();
        let mut judge = |bytes, fixed| {
            let mut parts =
                [Part { pid: os::getpid(), unmanaged_bytes: fixed, own_bytes: 0, bss: [0; 2], has_record: false }];
            watch.judge(bytes, [fixed / 2, fixed - fixed / 2], &mut parts, |text| told.push(text.to_owned()));
            watch.over
        };
        assert_eq!(judge(ram, ram), 0);
        assert_eq!(judge(ram + (4 << 20), 0), 0, "a little more is no news");
        assert_eq!((judge(ram * 2, 0), judge(ram * 2, 0), judge(0, 0)), (1, 1, 1));
        assert_eq!((judge(ram * 2, ram + 1), judge(0, 0), judge(ram * 2, ram * 2)), (2, 2, 3));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("cannot be managed") && told[0].contains("limit of 64.0 MiB"), "{told:?}");
        assert!(told[0].contains("(tables of Outswap's 32.0 MiB"), "{told:?}");
    }

    #[test]
    fn a_figure_that_no_machine_has_is_not_told() {
        let control = control(64 << 20);
        control.take(os::getpid()).expect("room").counters.set(Stat::UnmanagedBytes, u64::MAX);
        let mut told = Vec::new();
        Watch::new(control, os::getpid(), true).look_now(|text| told.push(text.to_owned()));
        control.tree_peaks[4].store(u64::MAX, Relaxed);
        Watch::new(control, os::getpid(), true).finish(|text| told.push(text.to_owned()));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|text| text.contains("cannot be told") && !text.contains("TiB")), "{told:?}");
    }

    #[test]
    fn what_was_there_between_two_looks_is_told_at_the_end() {
        let ram = 64u64 << 20;
        let control = control(ram);
        let mut watch = Watch::new(control, os::getpid(), true);
        let mut told = 0;
        watch.finish(|_| told += 1);
        control.tree_peaks[4].store(ram + 1, Relaxed);
        watch.finish(|_| told += 1);
        watch.finish(|_| told += 1);
        assert_eq!((told, watch.over()), (1, 1));
    }

    #[test]
    fn what_a_process_has_alone_goes_with_it() {
        const MIB: u64 = 1 << 20;
        let parts = |before, share, after| Reading { before, share, after }.parts();
        assert_eq!(parts(Some(40 * MIB), Some(40 * MIB), Some(40 * MIB)), (40 * MIB, 40 * MIB));
        assert_eq!(parts(Some(40 * MIB), Some(30 * MIB), Some(40 * MIB)), (30 * MIB, 20 * MIB), "it shares some");
        assert_eq!(parts(Some(40 * MIB), Some(20 * MIB), Some(40 * MIB)), (20 * MIB, 0), "it shares all");
        // It ends while it is looked at.
        assert_eq!(parts(Some(40 * MIB), Some(40 * MIB), None), (40 * MIB, 40 * MIB));
        assert_eq!(parts(Some(40 * MIB), Some(40 * MIB), Some(0)), (40 * MIB, 40 * MIB));
        assert_eq!(parts(Some(40 * MIB), Some(20 * MIB), None), (20 * MIB, 0));
        assert_eq!(parts(Some(40 * MIB), Some(20 * MIB), Some(0)), (20 * MIB, 0));
        assert_eq!(parts(Some(40 * MIB), None, None), (0, 0));
        // It grows, or what moves counts twice.
        assert_eq!(parts(Some(40 * MIB), Some(44 * MIB), Some(50 * MIB)), (44 * MIB, 38 * MIB));
        assert_eq!(parts(Some(40 * MIB), Some(60 * MIB), Some(40 * MIB)), (40 * MIB, 40 * MIB));
        // Its share is not told.
        assert_eq!(parts(Some(40 * MIB), None, Some(40 * MIB)), (40 * MIB, 0));
    }

    #[test]
    fn the_kernel_tells_of_processes() {
        let own = os::getpid();
        assert!(anonymous_bytes(own).is_some_and(|bytes| bytes > 0));
        assert!(shared_anonymous_bytes(own).is_some_and(|bytes| bytes > 0));
        assert!(
            anonymous_bytes(-1).is_none() && shared_anonymous_bytes(-1).is_none() && has_mapped(-1, [0; 2]).is_none()
        );
        assert_eq!(has_mapped(own, [1, 1]), Some(false));
        assert!(shares_memory(own, own) && !shares_memory(own, 1));
        let found = processes();
        // SAFETY: asks for a number.
        assert_eq!(found.get(&own).map(|found| found.parent), Some(unsafe { libc::getppid() }));
    }
}
