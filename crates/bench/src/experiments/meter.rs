//! What a worker's phase took and did: time, the kernel's counts, and those of Outswap where it is in charge.
use std::sync::OnceLock;
use std::time::Instant;

use outswap_control::{ALL_STATS, ENV, Opened, Place, STAT_COUNT, STAT_NAMES, Shared, Stat};
use serde_json::{Map, Value, json};

use crate::rig;

/// What the processes of this run publish, where this is one of them.
fn shared() -> Option<&'static Shared> {
    static SHARED: OnceLock<Option<&'static Shared>> = OnceLock::new();
    *SHARED.get_or_init(|| {
        let value = std::env::var(ENV).ok()?;
        let Opened { shared, .. } = Place::parse(value.as_bytes())?.open()?;
        Some(shared)
    })
}

/// Sums over all processes of the run, those that ended included.
fn counted() -> Option<[u64; STAT_COUNT]> {
    let shared = shared()?;
    let mut sums = [0; STAT_COUNT];
    let all = shared.used_records().iter().map(|record| &record.counters).chain([&shared.ended]);
    for counters in all {
        sums.iter_mut().zip(ALL_STATS).for_each(|(sum, &stat): (&mut u64, &Stat)| *sum += counters.get(stat));
    }
    Some(sums)
}

/// Faults of this process: minor and major ones.
fn faults() -> (u64, u64) {
    // SAFETY: plain structures; getrusage fills the one it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

/// All of it at one moment.
pub struct Meter {
    faults: (u64, u64),
    swap: (u64, u64),
    counted: Option<[u64; STAT_COUNT]>,
    start: Instant,
}

impl Meter {
    /// Now.
    pub fn start() -> Meter {
        let (faults, swap, counted) = (faults(), rig::swap_pages(), counted());
        Meter { faults, swap, counted, start: Instant::now() }
    }

    /// What happened since, in which so many pages were touched.
    pub fn end(self, accesses: u64) -> Value {
        let elapsed_ns = self.start.elapsed().as_nanos() as u64;
        let (faults, swap, counted) = (faults(), rig::swap_pages(), counted());
        let since = |(before, after): (u64, u64)| after.saturating_sub(before);
        let outswap = self.counted.zip(counted).map(|(before, after)| {
            let count = |(index, name): (usize, &&str)| {
                let is_gauge = name.ends_with("_bytes");
                (!is_gauge).then(|| ((*name).to_owned(), Value::from(since((before[index], after[index])))))
            };
            STAT_NAMES.iter().enumerate().filter_map(count).collect::<Map<_, _>>()
        });
        json!({
            "elapsed_ns": elapsed_ns,
            "accesses": accesses,
            "minor_faults": since((self.faults.0, faults.0)),
            "major_faults": since((self.faults.1, faults.1)),
            "swap_in_pages": since((self.swap.0, swap.0)),
            "swap_out_pages": since((self.swap.1, swap.1)),
            "outswap": outswap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_without_outswap_has_time_and_faults_but_none_of_its_counts() {
        let meter = Meter::start();
        let memory = std::hint::black_box(vec![1u8; 8 << 20]);
        let phase = meter.end(memory.len() as u64);
        assert_eq!(phase["accesses"], 8 << 20);
        assert!(phase["elapsed_ns"].as_u64() > Some(0) && phase["minor_faults"].as_u64() > Some(0));
        assert_eq!(phase["outswap"], Value::Null);
    }
}
