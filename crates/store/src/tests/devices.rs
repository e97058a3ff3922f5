//! Tiers that are slowed to a device take as long as its model says, and hold what they held.
use super::bed::{Bed, FILE, LZ4, RAM, fill_file, page, read, take};
use crate::{Config, DeviceStates, Later, LiveIo, TierConfig, Tiers};
use outswap_core::device::Device;
use outswap_core::store::{Read, Run, Store};
use outswap_core::units::{PAGE_BYTES, SlotId};
use outswap_sys::os;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Takes its time for each read, and none for what is written.
const SLOW_NS: u64 = 3_000_000;
const SLOW: Device = Device { read_ns: SLOW_NS, depth: 2, ..Device::NONE };

fn took_ns(work: impl FnOnce()) -> u64 {
    let begun_ns = os::monotonic_ns();
    work();
    os::monotonic_ns() - begun_ns
}

#[test]
fn a_read_takes_as_long_as_the_model_says() {
    for kind in [RAM, LZ4, FILE] {
        let mut bed = Bed::with_device(&[(kind, 0)], SLOW, 1 << 12);
        let worker = bed.worker();
        fill_file(&mut bed, worker, 600);
        assert!(!bed.store.is_synchronous(SlotId(0)), "{kind:?}: nobody may take it for one that does not wait");
        for slot in [0, 17, 5] {
            let ns = took_ns(|| assert!(read(&bed, worker, slot) == Ok(page(slot as u64 * 4 + 2))));
            assert!(ns >= SLOW_NS, "{kind:?}: {ns} ns");
        }
        let stats = bed.store.stats();
        assert!(stats.device_requests.load(Relaxed) >= 3, "{kind:?}");
        assert!(stats.device_ns.load(Relaxed) >= 3 * SLOW_NS && stats.device_wait_ns.load(Relaxed) >= 2 * SLOW_NS);
    }
}

#[test]
fn neighbours_are_one_request_and_others_are_made_at_the_same_time() {
    for kind in [RAM, FILE] {
        let mut bed = Bed::with_device(&[(kind, 0)], SLOW, 1 << 12);
        let worker = bed.worker();
        fill_file(&mut bed, worker, 600);
        let mut requests = |runs: &[(u32, u32)]| {
            let before = bed.store.stats().device_requests.load(Relaxed);
            let (mut list, mut at) = (Vec::new(), 0);
            for &(first, pages) in runs {
                list.push(Run { first: SlotId(first), pages, at });
                at += pages;
            }
            let mut out = vec![0; at as usize * PAGE_BYTES];
            let ns = took_ns(|| assert_eq!(bed.store.read(&list, &mut out, worker), Ok(Read::Done)));
            for run in &list {
                for i in 0..run.pages {
                    let want = page((run.first.0 + i) as u64 * 4 + 2);
                    assert!(
                        out[(run.at + i) as usize * PAGE_BYTES..][..PAGE_BYTES] == want,
                        "slot {}",
                        run.first.0 + i
                    );
                }
            }
            (bed.store.stats().device_requests.load(Relaxed) - before, ns)
        };
        assert_eq!(requests(&[(0, 16)]).0, 1, "{kind:?}");
        assert_eq!(requests(&[(0, 4), (4, 4)]).0, 1, "{kind:?}");
        let (count, ns) = requests(&[(0, 1), (20, 2), (10, 1), (40, 1)]);
        assert_eq!(count, 4, "{kind:?}");
        assert!(ns >= 2 * SLOW_NS, "two at a time");
    }
}

#[test]
fn whoever_reads_waits_for_what_is_being_written() {
    let device = Device { write_ns: 20_000_000, depth: 1, ..Device::NONE };
    let mut bed = Bed::with_device(&[(RAM, 0)], device, 1 << 12);
    let worker = bed.worker();
    bed.store.put(SlotId(0), &page(2), worker).expect("there is room");
    assert_eq!(bed.store.stats().device_wait_ns.load(Relaxed), 0, "it is written behind");
    assert!(read(&bed, worker, 0) == Ok(page(2)));
    assert!(bed.store.stats().device_ns.load(Relaxed) >= device.write_ns, "{:?}", bed.store.stats());
    let ns = took_ns(|| (1..8).for_each(|i| bed.store.put(SlotId(i * 9), &page(2), worker).expect("there is room")));
    assert!(ns > 2 * device.write_ns, "not without end: {ns} ns");
}

#[test]
fn errors_of_a_slow_file_are_as_of_any() {
    let mut bed = Bed::with_device(&[(FILE, 0)], SLOW, 1 << 12);
    let worker = bed.worker();
    fill_file(&mut bed, worker, 600);
    let mut out = vec![0; 16 * PAGE_BYTES];
    bed.faults.read_error.store(1, SeqCst);
    bed.store.get(SlotId(0), &mut out, worker).expect("tried again");
    assert!(!take(&bed.faults.read_error) && out[15 * PAGE_BYTES..] == page(62));
}

/// One device for two stores, whose state others scribble over.
#[test]
fn what_stands_in_shared_memory_cannot_stop_anybody() {
    let states: &'static DeviceStates =
        Box::leak(Box::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))));
    let tiers = [TierConfig { device: Device { read_ns: 1000, depth: 4, ..Device::NONE }, ..TierConfig::new(RAM, 0) }];
    let config = Config {
        tiers: &tiers,
        slots: 64,
        directory: b"",
        requests_fd: None,
        min_fd: 0,
        later: Later::Never,
        devices: Some(states),
    };
    let mut bed = Bed::new(&[(RAM, 0)], 64);
    let worker = bed.worker();
    for word in [1, 7, u64::MAX - 1, u64::MAX] {
        let store = Tiers::init_with(&config, LiveIo).expect("a small store");
        store.put(SlotId(0), &page(2), worker).expect("there is room");
        states[0][0].store(word, SeqCst);
        let mut out = [0; PAGE_BYTES];
        let ns = took_ns(|| store.get(SlotId(0), &mut out, worker).expect("it can be read"));
        assert!(out == page(2) && ns < 5_000_000_000, "{ns} ns");
        // SAFETY: nobody else uses it.
        unsafe { store.destroy() };
    }
    // Who holds it for long is not waited for for ever; nor is a device that is busy until the end of time.
    let before_ns = os::monotonic_ns();
    let pace = crate::pace::tests::of(tiers[0].device, &states[0]);
    states[0].iter().for_each(|word| word.store(u64::MAX, SeqCst));
    let done_ns = pace.begin(&outswap_core::device::Request { is_write: false, offset: 0, bytes: 4096 });
    assert!(done_ns <= os::monotonic_ns() + crate::limits::BACKLOG_MAX_NS && done_ns > before_ns);
}
