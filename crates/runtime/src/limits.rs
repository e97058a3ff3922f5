//! Limits of tables, queues, retries and sizes, and how they hang together.
//!
//! What the kernel defines stands where it is used; so do shares of the budget ([`crate::budget`]), times, and addresses
//! ([`crate::layout`]).
use crate::store::{OurStore, ProcessStore};
use core::mem::size_of;
use outswap_core::occupancy::PLACES;
use outswap_core::pins::DIRECT;
use outswap_core::units::{BLOCK_PAGES, PAGE_BYTES, PART_PAGES};
use outswap_source::GRAIN_MAX_PAGES;
use outswap_sys::signal::Ucontext;

// Calls.

/// Pins: calls on managed memory that may be in progress at the same time.
pub const PINS: usize = 4032 + DIRECT;
/// The last pins are never freed: each belongs to one place that clones (see [`crate::gate::clone_stub`]).
pub const CLONE_PINS: usize = 64;
/// Pins that calls may use which enter the runtime.
pub const CALL_PINS: usize = PINS - CLONE_PINS - DIRECT;
/// These, and those of calls that do not: all with an owner.
pub const OWNED_PINS: usize = CALL_PINS + DIRECT;
/// Bytes of a stub, of which each pin has one.
pub const STUB_BYTES: usize = 64;
/// Calls from this number on are not known.
pub const CALL_NUMBERS: usize = 512;
/// Instructions of a filter at most. The kernel takes 4,096, and for all filters of a process 32,768.
pub const FILTER_OPS: usize = 1024;
/// How far a conditional jump of a filter is made to reach: a little less than it can, because relays may come in between.
pub const FILTER_NEAR: usize = 250;
/// Ranges of values that a filter tells apart by one number.
pub const FILTER_BORDERS: usize = 320;
/// Ends of pipes: threads that wait for children at the same time have one each, and so has such a child.
pub const CHILD_ENDS: usize = 16;
/// Ranges of code, of each kind.
pub const CODE_RANGES: usize = 8;
/// Instructions of the C library that ask for memory for its allocator.
pub const HEAP_CALLS: usize = 8;
/// Those of the dynamic linker that map libraries.
pub const LINKER_CALLS: usize = 4;

/// Resident pages that a process is left whatever happens: with fewer, an instruction with several operands and the calls in
/// progress could not all have their pages.
pub const MIN_RESIDENT_PAGES: u64 = 64;
/// Bytes of a window, the part of a transfer that is resident at once: at least, and at most.
pub const WINDOW_MIN_BYTES: usize = 64 << 10;
/// See [`WINDOW_MIN_BYTES`].
pub const WINDOW_MAX_BYTES: usize = 1 << 20;
/// The least that there is of it where more calls than these are in progress.
pub const WINDOW_LEAST_BYTES: usize = 8 << 10;
/// See [`WINDOW_LEAST_BYTES`].
pub const CALLS_FEW: usize = 16;
/// What a write to a file has resident at most so that it is one operation.
pub const RECORD_MAX_BYTES: usize = 4 << 20;
/// What one call may have resident however small the limit is, bytes.
pub const PINNED_MIN_BYTES: usize = 4 << 20;
/// Ranges up to this length are not looked at before they are pinned: what of them the kernel cannot reach costs little.
pub const SHORT_BYTES: usize = 64 << 10;
/// Bytes made resident behind a pointer argument of a call that has no row.
pub const DEFAULT_BYTES: u32 = 64 * 1024;
/// Blocks that are made mappings of the kernel's of their own, of which a process has 65,530 by default.
pub const SPLITS: u32 = 8192;
/// Longest string that any call takes (an argument of exec).
pub const STRING_MAX_BYTES: usize = 128 * 1024;
/// The longest socket address.
pub const NAME_MAX_BYTES: usize = 128;
/// More control data than the kernel takes (`net.core.optmem_max`, 128 KiB by default).
pub const CONTROL_MAX_BYTES: usize = 1 << 20;
/// Elements of an array that are looked at: more than any call takes.
pub const ELEMENTS_MAX: usize = 1 << 20;
/// Bytes of a buffer that says its own length: the same.
pub const SIZED_MAX_BYTES: usize = 1 << 20;
/// Words of a set of descriptors: the same.
pub const FD_SET_MAX_WORDS: usize = 1 << 14;
/// Words of a structure that are looked at where nobody says which are pointers, and how many of them are taken for pointers.
pub const GUESS_WORDS: usize = 128;
/// Bytes that are wished of another process at a time.
pub const WISH_BYTES: usize = 256 << 10;
/// See [`GUESS_WORDS`].
pub const GUESSES: usize = 16;
/// The kernel's `UIO_MAXIOV`.
pub const IOV_MAX: usize = 1024;
/// Buffers of a message or vector that goes in parts, of one part.
pub const MESSAGE_PARTS: usize = 16;
/// Looks for a free pin after which those of the dead are freed.
pub const PIN_SPINS: u32 = 1000;

const _: () = {
    assert!(CLONE_PINS + DIRECT < PINS && (PINS * STUB_BYTES).is_multiple_of(PAGE_BYTES));
    assert!(FILTER_OPS <= 4096 && FILTER_NEAR < u8::MAX as usize && CALL_NUMBERS <= FILTER_OPS);
    assert!(WINDOW_MIN_BYTES <= WINDOW_MAX_BYTES && WINDOW_MAX_BYTES <= PINNED_MIN_BYTES, "a window can be pinned");
    assert!(WINDOW_MIN_BYTES as u64 <= MIN_RESIDENT_PAGES * PAGE_BYTES as u64, "and be resident");
    assert!(WINDOW_MAX_BYTES <= RECORD_MAX_BYTES && RECORD_MAX_BYTES <= PINNED_MIN_BYTES, "a record can be pinned");
    // What is looked at of one argument of a call leaves room for what its others point to.
    assert!(STRING_MAX_BYTES + PAGE_BYTES < PINNED_MIN_BYTES && (DEFAULT_BYTES as usize) * 6 < PINNED_MIN_BYTES);
    assert!(NAME_MAX_BYTES + CONTROL_MAX_BYTES + WINDOW_MAX_BYTES < PINNED_MIN_BYTES);
    assert!(DEFAULT_BYTES as usize * (GUESSES + 6) < PINNED_MIN_BYTES);
    assert!(SIZED_MAX_BYTES < PINNED_MIN_BYTES && FD_SET_MAX_WORDS * 8 * 3 < PINNED_MIN_BYTES);
    assert!(SHORT_BYTES < PINNED_MIN_BYTES);
    assert!(MESSAGE_PARTS <= IOV_MAX && WISH_BYTES < PINNED_MIN_BYTES);
};

// Stacks.

/// Threads that can have a stack at the same time. Others are served on whatever stack they are on.
pub const THREADS: usize = 4096;
/// Bytes of an alternate stack: three signal frames with all of the processor's state (12 KiB each), and the handlers.
pub const SIGNAL_STACK_BYTES: usize = 64 * 1024;
/// Bytes of the stack on which a thread returns from the program's handlers: a frame, the code that copies it there, and two signal frames.
pub const RETURN_STACK_BYTES: usize = 64 * 1024;
/// The processor's state at most: some more than today's.
pub const FP_MAX_BYTES: usize = 16 * 1024;
/// What that is aligned to.
pub const FP_ALIGN: usize = 64;
/// Stack that is left to a handler of ours on a stack of the program's.
pub const HANDLER_BYTES: usize = 8 * 1024;
/// How far from its frame the kernel's may be then.
pub const OVERLAP_BYTES: usize = 64 * 1024;
/// Bytes of the stack of a context, with room for a signal that comes meanwhile.
pub const CONTEXT_STACK_BYTES: usize = 96 * 1024;
/// Bytes of the background thread's stack.
pub const BACKGROUND_STACK_BYTES: usize = 64 * 1024;

const _: () = {
    const FRAME_BYTES: usize = FP_MAX_BYTES + size_of::<Ucontext>();
    assert!(
        3 * FRAME_BYTES + HANDLER_BYTES <= SIGNAL_STACK_BYTES && 3 * FRAME_BYTES + HANDLER_BYTES <= RETURN_STACK_BYTES
    );
    assert!(FRAME_BYTES + HANDLER_BYTES <= CONTEXT_STACK_BYTES / 2);
    assert!(OVERLAP_BYTES > HANDLER_BYTES);
    // A bit for each context.
    assert!(PLACES <= u64::BITS as usize);
};

// Processes.

/// Threads from which on signals may come while faults are served: with fewer, the kernel's lock that this saves is seldom waited for.
pub const OPEN_THREADS: usize = 4;

/// Processes that can share the memory at the same time; beyond that, vfork answers `EAGAIN`.
pub const SHARERS: usize = 64;
/// Requests at the same time of those who share the memory; further ones wait.
pub const DESKS: usize = 16;
/// Bytes of a request, and of what is given back.
pub const DESK_BYTES: usize = 4096;
/// Ranges that a forked child finds empty (`MADV_WIPEONFORK`) or does not have (`MADV_DONTFORK`).
pub const WIPES: usize = 1024;
/// Mappings that grow downwards.
pub const GROWS: usize = 64;
/// Execs at the same time; further ones wait.
pub const EXEC_BUFFERS: usize = 16;
/// More than the kernel accepts of arguments and pointers (6 MiB at most), so that it is the kernel that refuses.
pub const EXEC_BUFFER_BYTES: usize = 8 << 20;
/// How often to look for a free buffer before giving up: a few seconds. The kernel can hang on to one for as long as a program's
/// file takes to be read.
pub const EXEC_BUFFER_WAITS: u32 = 1 << 14;
/// The range of descriptors that the runtime keeps: the control block's two are inherited, the others follow them.
pub const FDS: i32 = 64;
/// Files of `/proc` that stay open.
pub const KEPT_FDS: i32 = 5;
/// What the store's numbers come after: the fault source's one, and those of files that stay open.
pub const SOURCE_FDS: i32 = 1 + KEPT_FDS;

const _: () = {
    assert!(SOURCE_FDS + <OurStore as ProcessStore>::DESCRIPTORS <= FDS);
    assert!(EXEC_BUFFER_BYTES > 6 << 20 && EXEC_BUFFER_BYTES > STRING_MAX_BYTES);
};

// Memory.

/// Shared objects that are managed at the same time; further ones are the kernel's.
pub const OBJECTS: usize = 512;
/// Slots: 256 GiB of swap space.
pub const SLOTS: usize = 1 << 26;
/// Bytes of a batch.
pub const BATCH_BYTES: usize = BLOCK_PAGES * PAGE_BYTES;
/// Batches of a large managed range: 4 GiB of frames.
pub const BATCHES: usize = 1 << 14;
/// Mappings that the map has room for.
pub const MAPPINGS: usize = 1 << 18;
/// Address space for `brk`, where the program keeps its own allocator: 64 GiB, or an eighth of a smaller managed range.
pub const BRK_PAGES: u32 = 1 << 24;
/// Pages that come in or go between two looks at the budget, for each thread.
pub const PROGRESS_PAGES: u64 = 64;
/// Steps of background reclaim before others are let in again (fork waits for that).
pub const RECLAIM_STEPS: usize = 8;
/// Bytes of a pool over its limit that are given back at one look.
pub const SHRINK_BYTES: u64 = 1 << 20;

const _: () = {
    assert!(SLOTS <= <OurStore as ProcessStore>::MAX_SLOTS as usize && SLOTS.is_multiple_of(PART_PAGES));
    assert!((BATCHES * BLOCK_PAGES) as u64 <= u32::MAX as u64, "frames have 32-bit numbers");
    assert!(GRAIN_MAX_PAGES as u64 <= MIN_RESIDENT_PAGES / 2);
    assert!(PROGRESS_PAGES <= MIN_RESIDENT_PAGES);
};
