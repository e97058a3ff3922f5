//! Where things lie in the address space.
//!
//! All managed memory lies in one range at a fixed address, so that one seccomp filter, inherited through exec, can
//! recognise every pointer into it.
//!
//! ```text
//! GATE   code that may issue system calls on managed memory, and one stub a hazard slot
//! ARENA  managed memory, reserved without access
//! ...    up to ARENA + 4 TiB, of which a process may use less
//! ```
//! Staging windows and tables lie wherever the kernel puts them.
use outswap_sys::PAGE_BYTES;

/// Start of the managed range.
pub const ARENA: usize = 0x2000_0000_0000;
/// Largest managed range, and the range that the filter recognises: 4 TiB.
pub const ARENA_MAX_BYTES: usize = 1 << 42;
/// Sizes of the managed range that are tried, largest first: an address-space limit may forbid the larger ones.
pub const ARENA_SIZES: &[usize] = &[1 << 42, 1 << 40, 1 << 38, 1 << 36, 1 << 34, 1 << 32, 1 << 31];
/// Start of the gate.
pub const GATE: usize = ARENA - (1 << 24);
/// Bytes of code in the gate; the filter lets system calls from there pass.
pub const GATE_CODE_BYTES: usize = PAGE_BYTES + HAZARDS * STUB_BYTES;
/// Bytes of the gate in all: code, then return addresses.
pub const GATE_BYTES: usize = GATE_CODE_BYTES + HAZARDS * 8;
/// Hazard slots: calls on managed memory that may be in progress at the same time.
pub const HAZARDS: usize = 4096;
/// Bytes of a stub.
pub const STUB_BYTES: usize = 32;

/// Whether an address lies in the range that the filter recognises.
pub fn in_arena(addr: usize) -> bool {
    addr.wrapping_sub(ARENA) < ARENA_MAX_BYTES
}

/// Whether a range touches the managed range.
pub fn overlaps_arena(addr: usize, len: usize) -> bool {
    addr < ARENA + ARENA_MAX_BYTES && addr.saturating_add(len) > ARENA
}
