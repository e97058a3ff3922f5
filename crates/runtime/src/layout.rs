//! Where things lie in the address space.
//!
//! All managed memory lies in one range at a fixed address, so that one seccomp filter, inherited through exec, can
//! recognise every pointer into it. The gate lies where the run's configuration says, at random, the same for all of its
//! processes: the filter must know it, and nobody else should.
//!
//! ```text
//! gate   code that may issue system calls on managed memory, and one stub a pin
//! ARENA  managed memory, reserved without access
//! ...    up to ARENA + 12 TiB, of which a process may use less
//! ```
//! Batches and tables lie wherever the kernel puts them. One more stretch of managed memory lies where the program was linked to,
//! or loaded: its `.bss`, where that is large ([`crate::bss`]). A filter of its process's own recognises pointers into it.
use crate::limits::{PINS, STUB_BYTES};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use outswap_control::BSS_AFTER_BYTES;
pub use outswap_control::{ARENA, ARENA_MAX_BYTES, BSS_MAX_BYTES};
pub use outswap_sys::OWN_CALL;
use outswap_sys::PAGE_BYTES;

/// Where the memory that a process usually has ends.
pub const TASK_SIZE: usize = (1 << 47) - PAGE_BYTES;
/// Sizes of the managed range that are tried, largest first: an address-space limit may forbid the larger ones.
pub const ARENA_SIZES: &[usize] = &[ARENA_MAX_BYTES, 1 << 42, 1 << 40, 1 << 38, 1 << 36, 1 << 34, 1 << 32, 1 << 31];
/// Bytes of code in the gate; the filter lets system calls from there pass.
pub const GATE_CODE_BYTES: usize = PAGE_BYTES + PINS * STUB_BYTES;
/// Bytes of the gate in all: one page more, whose calls are trapped.
pub const GATE_BYTES: usize = GATE_CODE_BYTES + PAGE_BYTES;
/// The resources whose limits the program sees otherwise than the kernel: a process's data and address space, and its number of
/// descriptors.
pub const RLIMITS: [usize; 3] = [RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE];
/// See [`RLIMITS`].
pub const RLIMIT_DATA: usize = 2;
/// See [`RLIMITS`].
pub const RLIMIT_NOFILE: usize = 7;
/// See [`RLIMITS`].
pub const RLIMIT_AS: usize = 9;

/// The part of the address space that gates are in, below the managed range and far from what the kernel gives out by itself.
const GATES: usize = 0x1000_0000_0000;
const GATES_BYTES: usize = ARENA - GATES - (1 << 32);
static GATE: AtomicUsize = AtomicUsize::new(GATES);

/// Start of the gate.
pub fn gate() -> usize {
    GATE.load(Relaxed)
}

/// Sets where the gate is, from random bits: a page of the range above, such that the gate does not cross a 4 GiB border, which
/// is what the filter's comparisons need. To be called before anything uses the gate.
pub fn place_gate(random: u64) {
    let at = GATES + (random as usize % (GATES_BYTES / PAGE_BYTES)) * PAGE_BYTES;
    let inside = at & 0xffff_ffff;
    let last = (1 << 32) - GATE_BYTES.next_multiple_of(PAGE_BYTES);
    GATE.store(if inside > last { at - (inside - last) } else { at }, Relaxed);
}

/// The number of the first page of the managed part of the program's `.bss`, where there is one: after all those of the arena, with
/// some that are nothing in between, so that no folio has pages of both.
pub const BSS_PAGE: usize = (ARENA_MAX_BYTES + BSS_AFTER_BYTES) / PAGE_BYTES;

/// The managed part of the program's `.bss`: its first address, and the first after it.
static BSS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The managed part of the program's `.bss`: its first address, and the first after it. Twice 0 where nothing of it is managed.
pub fn bss() -> (usize, usize) {
    (BSS[0].load(Relaxed), BSS[1].load(Relaxed))
}

/// Sets what [`bss`] is. To be called before anything in there is managed.
pub fn set_bss((start, end): (usize, usize)) {
    BSS[0].store(start, Relaxed);
    BSS[1].store(end, Relaxed);
}

/// Whether an address lies in the range that the range filter recognises.
pub fn in_arena(addr: usize) -> bool {
    addr.wrapping_sub(ARENA) < ARENA_MAX_BYTES
}

/// Whether a process can have all of a range. What goes beyond is refused before anything of it is touched.
pub fn in_user_space(addr: usize, len: usize) -> bool {
    addr <= TASK_SIZE && len <= TASK_SIZE - addr
}

/// Whether an address may be one of managed memory: lies in the range that the range filter recognises, or in the program's `.bss` as
/// far as that is managed.
pub fn in_managed(addr: usize) -> bool {
    let (start, end) = bss();
    in_arena(addr) || start <= addr && addr < end
}

/// The same of a range, whether any of it does.
pub fn overlaps_managed(addr: usize, len: usize) -> bool {
    let overlaps = |start: usize, end: usize| addr < end && addr.saturating_add(len) > start;
    let (start, end) = bss();
    overlaps(ARENA, ARENA + ARENA_MAX_BYTES) || overlaps(start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_core::units::MAX_FOLIO_PAGES;

    #[test]
    fn gates_lie_below_the_arena_within_four_gib() {
        for random in (0..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).chain([0, u64::MAX, 0xfffff]) {
            place_gate(random);
            let (first, last) = (gate(), gate() + GATE_BYTES - 1);
            assert!(first.is_multiple_of(PAGE_BYTES) && first >= GATES && last < ARENA, "{first:x}");
            assert_eq!(first >> 32, last >> 32, "{first:x}");
        }
    }

    #[test]
    fn bss_has_page_numbers_after_the_arena_and_for_all_that_it_may_be() {
        assert!(BSS_PAGE > ARENA_MAX_BYTES / PAGE_BYTES && BSS_PAGE.is_multiple_of(MAX_FOLIO_PAGES));
        assert!(u32::try_from(BSS_PAGE + BSS_MAX_BYTES / PAGE_BYTES).is_ok_and(|last| last < u32::MAX));
    }
}
