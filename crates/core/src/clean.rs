//! Clean pages: what the store holds already is not written again.
//!
//! A hash of each slot's content is kept. It is the checksum that is verified when a page comes back, and the means to know,
//! without a write fault, that a page did not change since: Liang Zhang, "mm: reuse the unshared swapcache page in
//! do_wp_page", 2022, turned round (there a page that is written takes itself back from the swap cache; here a page that was not
//! written goes back to its slot).
use crate::units::PAGE_BYTES;

/// Hash of a page's content (XXH3, 128 bits, seeded per process so that nobody can prepare two pages that collide).
pub fn hash_page(page: &[u8], seed: u64) -> u128 {
    debug_assert!(page.len() == PAGE_BYTES);
    xxhash_rust::xxh3::xxh3_128_with_seed(page, seed)
}

/// Whether a page is all zero.
pub fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(64).all(|chunk| {
        chunk.chunks_exact(8).fold(0u64, |acc, w| acc | u64::from_ne_bytes(w.try_into().expect("8 bytes"))) == 0
    })
}
