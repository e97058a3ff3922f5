//! Whether the program does little but bring its memory back: who sees nothing but a slow program is to learn why, and what helps.
//!
//! Of each managed process it is known how long its threads were in faults, and from the kernel how long they ran. Only what is steady is
//! told: a program that fills its memory, or looks at all of it now and then, is like that for a moment, too.
use crate::processes::{Turns, find, turns};
use crate::size::show;
use outswap_control::{Control, Process, Stat};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

/// How long a look covers at least.
const WINDOW: Duration = Duration::from_secs(2);
/// So many looks in a row are told.
const WINDOWS: u32 = 5;
/// Of the time that the program works, and of one processor's time: what of it goes into faults at least. The kernel's part of a fault, the signal
/// among it, is not in it: a program that did nothing but touch what was gone had 0.61 to 1.
const SHARE: f64 = 0.4;

/// What a process, or several together, did in some time, or so far.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Work {
    /// In faults.
    fault_ns: u64,
    /// On a processor, without the runtime's own thread.
    busy_ns: u64,
    /// The same with it, and how long all waited for one.
    turns: Turns,
    /// Faults that read from a store.
    read: u64,
    /// Others.
    other: u64,
    pages: u64,
}

impl Work {
    /// What a process did so far. `None` where the kernel does not say.
    fn of(process: &Process, pid: i32) -> Option<Work> {
        let counters = &process.counters;
        let sum = |stats: &[Stat]| stats.iter().fold(0u64, |sum, &stat| sum.saturating_add(counters.get(stat)));
        Some(Work {
            fault_ns: sum(&[Stat::FaultNs]),
            busy_ns: find(pid)?.processor_ns.saturating_sub(sum(&[Stat::BackgroundNs])),
            turns: turns(pid),
            read: sum(&[Stat::FaultBypass, Stat::FaultMiss]),
            other: sum(&[Stat::FaultFirstTouch, Stat::FaultHit]),
            pages: sum(&[Stat::FaultBypass, Stat::FaultMiss, Stat::FaultHit]),
        })
    }

    fn each(self, other: Work, f: impl Fn(u64, u64) -> u64) -> Work {
        Work {
            fault_ns: f(self.fault_ns, other.fault_ns),
            busy_ns: f(self.busy_ns, other.busy_ns),
            turns: Turns {
                ran_ns: f(self.turns.ran_ns, other.turns.ran_ns),
                waited_ns: f(self.turns.waited_ns, other.turns.waited_ns),
            },
            read: f(self.read, other.read),
            other: f(self.other, other.other),
            pages: f(self.pages, other.pages),
        }
    }

    /// What of its time it was in faults, of 1.
    fn share(self) -> f64 {
        // Where others want the processors, a fault takes longer by what its thread waits for one, as all that the thread does.
        let waits = self.turns.waited_ns as f64 / self.turns.ran_ns.max(1) as f64;
        // A thread that waits for a file in a fault is on no processor, and does not wait for one.
        let all_ns = (self.busy_ns as f64 * (1.0 + waits)).max(self.fault_ns as f64);
        self.fault_ns as f64 / all_ns.max(1.0)
    }

    /// Whether it did little else for so long.
    fn thrashes(self, time: Duration) -> bool {
        let of_time = self.fault_ns as f64 / time.as_nanos() as f64;
        self.share() >= SHARE && of_time >= SHARE && self.read >= self.other
    }
}

/// Looks at it.
pub struct Thrash {
    control: &'static Control,
    /// What each process had done by the last look, and when that was.
    seen: HashMap<i32, Work>,
    looked: Instant,
    /// Looks in a row that found it so, and their sum.
    windows: u32,
    total: Work,
    time: Duration,
    is_told: bool,
}

impl Thrash {
    /// Begins.
    pub fn new(control: &'static Control) -> Thrash {
        Thrash {
            control,
            seen: HashMap::new(),
            looked: Instant::now(),
            windows: 0,
            total: Work::default(),
            time: Duration::ZERO,
            is_told: false,
        }
    }

    /// Looks, where it is time to. Says what is to be told, once.
    pub fn look(&mut self) -> Option<String> {
        let time = self.looked.elapsed();
        // Where accesses are recorded, hardly any memory is to be there.
        if time < WINDOW || self.is_told || self.control.config.record != 0 {
            return None;
        }
        self.looked = Instant::now();
        let mut seen = HashMap::new();
        let mut work = Work::default();
        for record in self.control.used_records() {
            let number = record.pid.load(Acquire);
            let pid = if number > 0 { self.control.pid_of(number) } else { None };
            if let Some(now) = pid.and_then(|pid| Work::of(record, pid)) {
                let before = self.seen.get(&number).copied().unwrap_or(now);
                // Another program may run there by now, and count anew.
                work = work.each(now.each(before, u64::saturating_sub), u64::saturating_add);
                seen.insert(number, now);
            }
        }
        self.seen = seen;
        self.judge(work, time)
    }

    fn judge(&mut self, work: Work, time: Duration) -> Option<String> {
        if !work.thrashes(time) {
            (self.windows, self.total, self.time) = (0, Work::default(), Duration::ZERO);
            return None;
        }
        self.windows += 1;
        self.total = self.total.each(work, u64::saturating_add);
        self.time += time;
        if self.windows < WINDOWS {
            return None;
        }
        self.is_told = true;
        let config = &self.control.config;
        let (limit, option) = match config.ram_bytes {
            0 => (config.resident_bytes, "--resident"),
            ram => (ram, "--ram"),
        };
        Some(format!(
            "{:.0} % of the time that the program worked in the last {:.0} s went into bringing its memory back ({:.0} pages a second): {} are \
             little for what it uses (give more {option})",
            self.total.share() * 100.0,
            self.time.as_secs_f64(),
            self.total.pages as f64 / self.time.as_secs_f64(),
            show(limit),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_control::{Config, Shared};
    use outswap_sys::os;

    const MS: u64 = 1_000_000;

    fn thrash(config: Config) -> Thrash {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        let shared = unsafe { &*(at as *const Shared) };
        Thrash::new(Box::leak(Box::new(Control::new(Box::leak(Box::new(config)), shared, None))))
    }

    fn work(fault_ms: u64, busy_ms: u64, read: u64, other: u64) -> Work {
        Work { fault_ns: fault_ms * MS, busy_ns: busy_ms * MS, turns: Turns::default(), read, other, pages: 3000 }
    }

    #[test]
    fn who_does_little_else_thrashes() {
        let thrashes = |work: Work| work.thrashes(WINDOW);
        assert!(thrashes(work(1400, 2000, 10, 9)));
        assert!(thrashes(work(2000, 100, 10, 0)), "it waits for a file");
        assert!(!thrashes(work(700, 800, 10, 0)), "it sleeps most of the time");
        assert!(!thrashes(work(1400, 4000, 10, 0)), "others of its threads work");
        let waited = |waited_ms| Turns { ran_ns: 1000 * MS, waited_ns: waited_ms * MS };
        let beside_others = |waited_ms| Work { turns: waited(waited_ms), ..work(1400, 1000, 10, 0) };
        assert!(
            thrashes(beside_others(1000)) && (beside_others(1000).share() - 0.7).abs() < 0.01,
            "half of the time it waits for a processor"
        );
        assert!(!thrashes(beside_others(3000)), "most of the time");
        assert!(!thrashes(work(1400, 2000, 10, 11)), "it fills its memory");
        assert!(!thrashes(Work::default()));
    }

    #[test]
    fn what_is_steady_is_told_once_and_with_the_limit() {
        let mut thrash = thrash(Config { ram_bytes: 64 << 20, ..Config::EMPTY });
        let (bad, good) = (work(1600, 2000, 10, 1), work(1, 2000, 10, 1));
        let mut judge = |work| thrash.judge(work, WINDOW);
        for round in [[bad; 4].as_slice(), &[good], &[bad; 4]] {
            assert!(round.iter().all(|work| judge(*work).is_none()));
        }
        let text = judge(bad).expect("five in a row");
        assert!(text.starts_with("80 % of the time"), "{text}");
        assert!(text.contains("last 10 s") && text.contains("(1500 pages a second): 64.0 MiB"), "{text}");
        assert!(text.ends_with("(give more --ram)"), "{text}");
        thrash.looked = Instant::now().checked_sub(2 * WINDOW).expect("the machine runs for longer");
        assert!(thrash.look().is_none() && thrash.seen.is_empty(), "nobody looks any more");
    }

    #[test]
    fn processes_are_looked_at_from_one_time_to_the_next() {
        let mut thrash = thrash(Config { resident_bytes: 8 << 20, ..Config::EMPTY });
        let control = thrash.control;
        let record = control.take(os::getpid()).expect("room");
        record.counters.set(Stat::FaultNs, 1000 * MS);
        let mut look = || {
            thrash.looked = Instant::now().checked_sub(WINDOW).expect("the machine runs for longer");
            let told = thrash.look();
            (told, thrash.windows)
        };
        assert_eq!(look(), (None, 0), "what was before is not known");
        for windows in 1..WINDOWS {
            record.counters.add(Stat::FaultNs, 2000 * MS);
            record.counters.add(Stat::FaultBypass, 100);
            assert_eq!(look(), (None, windows));
        }
        record.counters.add(Stat::FaultNs, 2000 * MS);
        record.counters.add(Stat::FaultBypass, 100);
        let (told, _) = look();
        assert!(told.is_some_and(|text| text.contains("8.0 MiB") && text.ends_with("(give more --resident)")));
        assert!(find(os::getpid()).is_some() && find(-1).is_none());
    }
}
