//! A store under operations that the input chooses, against a plain table of what each slot holds.
use outswap_core::slots::Unused;
use outswap_core::store::{Page, Store, StoreError};
use outswap_core::units::{Order, PAGE_BYTES, SlotId};
use outswap_store::{Config, FileIo, MAX_UNIT_ORDER, TierConfig, Tiers, Worker};
use outswap_sys::os;

pub const SLOTS: usize = 512;

/// Content that the seed tells: zeros, one word again and again, half noise, or noise.
fn fill(seed: u8, page: &mut [u8]) {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = match seed % 4 {
            0 => seed as u64,
            1 => (i / 64) as u64 ^ seed as u64,
            2 if i % 2 == 0 => seed as u64,
            _ => state,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

pub fn worker() -> &'static mut Worker {
    let at = os::mmap_anonymous(Worker::BYTES).expect("memory for a worker");
    // SAFETY: fresh zeroed memory that is never unmapped.
    unsafe { Worker::init(at as *mut u8) }
}

/// A store of these tiers for each order of units.
pub fn stores<I: FileIo>(tiers: &[TierConfig], io: impl Fn() -> I) -> Vec<&'static Tiers<I>> {
    let make = |&order: &Order| {
        let tiers: Vec<_> = tiers.iter().map(|tier| TierConfig { unit_order: Some(order), ..*tier }).collect();
        let config = Config { tiers: &tiers, slots: SLOTS as u32, directory: b"/tmp", min_fd: 100, devices: None };
        Tiers::init_with(&config, io()).expect("memory for a small store")
    };
    Order::ALL[..=MAX_UNIT_ORDER.get()].iter().map(make).collect()
}

/// Runs the operations; at the end the store is empty again. `may_fail`: reads may fail, but never give something else.
pub fn run<I: FileIo>(store: &'static Tiers<I>, worker: &mut Worker, data: &[u8], may_fail: impl Fn() -> bool) {
    let mut model: Vec<Option<u8>> = vec![None; SLOTS];
    let look = |slot: usize, seed: u8, worker: &mut Worker| {
        let (mut found, mut expected): (Page, Page) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        fill(seed, &mut expected);
        match store.get(SlotId(slot as u32), &mut found, worker) {
            Ok(()) => assert!(found == expected, "slot {slot} holds something else"),
            Err(StoreError::Full) => panic!("a read is never refused for room"),
            Err(error) => assert!(may_fail(), "slot {slot}: {error:?}"),
        }
    };
    for op in data.chunks_exact(4) {
        let (what, slot, seed) = (op[0] % 8, u16::from_le_bytes([op[1], op[2]]) as usize % SLOTS, op[3]);
        match what {
            0..=2 if model[slot].is_none() => {
                let mut page: Page = [0; PAGE_BYTES];
                fill(seed, &mut page);
                if store.put(SlotId(slot as u32), &page, worker).is_ok() {
                    model[slot] = Some(seed);
                }
            }
            3 => {
                let order = Order::new(op[0] as usize / 8 % Order::ALL.len());
                let first = slot / order.pages() * order.pages();
                let seeds: Vec<u8> = (0..order.pages()).map(|i| seed.wrapping_add(i as u8)).collect();
                if model[first..first + order.pages()].iter().all(Option::is_none) {
                    let mut folio = vec![0u8; PAGE_BYTES * order.pages()];
                    for (page, &seed) in folio.chunks_exact_mut(PAGE_BYTES).zip(&seeds) {
                        fill(seed, page);
                    }
                    if store.put(SlotId(first as u32), &folio, worker).is_ok() {
                        seeds.iter().enumerate().for_each(|(i, &seed)| model[first + i] = Some(seed));
                    }
                }
            }
            4 | 5 => {
                if let Some(seed) = model[slot] {
                    look(slot, seed, worker);
                }
            }
            6 => {
                if model[slot].take().is_some() {
                    store.free(Unused::vouched(SlotId(slot as u32)));
                }
            }
            _ => {
                store.shrink(seed as u64 * PAGE_BYTES as u64, worker);
            }
        }
    }
    for slot in 0..SLOTS {
        if let Some(seed) = model[slot].take() {
            look(slot, seed, worker);
            store.free(Unused::vouched(SlotId(slot as u32)));
        }
    }
}
