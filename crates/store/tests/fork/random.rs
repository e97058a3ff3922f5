//! Random families of processes.
use crate::bed::{Bed, wait};
use outswap_core::store::Store;
use outswap_core::units::{Order, PAGE_BYTES};
use outswap_store::ProcessStore;
use outswap_store::{MAX_UNIT_ORDER, TierConfig};
use outswap_sys::os;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A family of processes that put, free, read, fork, end and are killed at random: each sees its own pages.
pub fn random_families(tiers: &[TierConfig], seeds: std::ops::Range<u64>) {
    const SLOTS: u32 = 1500;
    const DEPTH: u32 = 20;
    const FORKS: u32 = 40;
    fn next(state: &mut u64) -> u32 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as u32
    }
    fn live(bed: &mut Bed, state: &mut u64, model: &mut [u32], depth: u32, forks: &AtomicU32) {
        let mut children: Vec<(i32, bool)> = Vec::new();
        for _ in 0..40 {
            // A run of slots: segments must become empty now and then.
            let (first, count) = (next(state) % SLOTS, 1 + next(state) % 100);
            let slots = first..(first + count).min(SLOTS);
            match next(state) % 16 {
                0..7 => {
                    let order = Order::new(next(state) as usize % (MAX_UNIT_ORDER.get() + 2));
                    let folio = first as usize / order.pages() * order.pages();
                    if let Some(seeds) = model.get_mut(folio..folio + order.pages())
                        && seeds.iter().all(|&seed| seed == 0)
                    {
                        seeds.iter_mut().for_each(|seed| *seed = next(state) | 1);
                        if bed.try_put_folio(folio as u32, seeds).is_err() {
                            seeds.fill(0);
                        }
                    }
                    for slot in slots.filter(|&slot| model[slot as usize] == 0).collect::<Vec<_>>() {
                        let seed = next(state) | 1;
                        if bed.try_put(slot, seed).is_ok() {
                            model[slot as usize] = seed;
                        }
                    }
                }
                7..11 => {
                    for slot in slots {
                        if std::mem::take(&mut model[slot as usize]) != 0 {
                            bed.free(slot);
                        }
                    }
                }
                11..14 => slots
                    .filter(|&slot| model[slot as usize] != 0)
                    .for_each(|slot| bed.check(slot, model[slot as usize])),
                14 if next(state).is_multiple_of(4) => bed.store.give_up_writing(),
                14 => drop(bed.store.shrink(1 << 18, bed.worker)),
                _ if depth < DEPTH && children.len() < 3 && forks.fetch_add(1, Relaxed) < FORKS => {
                    let (mut its, killed) = (*state ^ 0x5555, next(state).is_multiple_of(3));
                    let child = bed.fork(|bed| {
                        let deeper = depth + 1 + next(&mut its) % 6;
                        live(bed, &mut its, model, deeper, forks);
                        if killed {
                            let _ = os::kill(os::getpid(), 9);
                        }
                    });
                    if next(state).is_multiple_of(2) {
                        assert_eq!(wait(child), if killed { 9 } else { 0 });
                    } else {
                        children.push((child, killed));
                    }
                }
                _ => {}
            }
        }
        (0..SLOTS).filter(|&slot| model[slot as usize] != 0).for_each(|slot| bed.check(slot, model[slot as usize]));
        for (child, killed) in children {
            assert_eq!(wait(child), if killed { 9 } else { 0 }, "a child of process {}", os::getpid());
        }
        (0..SLOTS).filter(|&slot| model[slot as usize] != 0).for_each(|slot| bed.check(slot, model[slot as usize]));
        assert_eq!(bed.store.stats().corruptions.load(Relaxed), 0);
    }
    for seed in seeds {
        println!("fork: family {seed}");
        let flags = os::MAP_SHARED | os::MAP_ANONYMOUS;
        // SAFETY: no address given, so nothing is replaced.
        let at =
            unsafe { os::mmap(0, PAGE_BYTES, os::PROT_READ | os::PROT_WRITE, flags, -1, 0) }.expect("a shared page");
        // SAFETY: fresh shared memory, zero is a valid value, never unmapped.
        let forks = unsafe { &*(at as *const AtomicU32) };
        live(&mut Bed::new(tiers), &mut { seed }, &mut [0; SLOTS as usize], 0, forks);
    }
}
