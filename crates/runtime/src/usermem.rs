//! The program's memory, read and written without faulting, and the structures that system calls find there.
use crate::gate;
use outswap_sys::{nr, os};

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Iovec {
    /// First address.
    pub base: usize,
    /// Bytes.
    pub len: usize,
}

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Msghdr {
    /// Address of the other side.
    pub name: usize,
    /// Its length in bytes.
    pub namelen: u32,
    /// The buffers.
    pub iov: usize,
    /// How many.
    pub iovlen: usize,
    /// Control data.
    pub control: usize,
    /// Its length in bytes.
    pub controllen: usize,
    /// Flags.
    pub flags: i32,
}
/// Bytes of a `struct msghdr`.
pub const MSGHDR_BYTES: usize = core::mem::size_of::<Msghdr>();

/// Bytes of a `struct mmsghdr`.
pub const MMSGHDR_BYTES: usize = 64;
/// The most that one call moves.
pub const MAX_RW_COUNT: usize = 0x7fff_f000;

/// Eight bytes of a structure, as a number.
pub fn word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn transfer(nr: usize, addr: usize, local: *mut u8, len: usize) -> bool {
    if len == 0 {
        return true;
    }
    let mine = Iovec { base: local as usize, len };
    let theirs = Iovec { base: addr, len };
    let (a, b) = (&raw const mine as usize, &raw const theirs as usize);
    // By the thread's number: a main thread that has ended leaves the process's number without memory.
    // SAFETY: the local part is memory of ours of that length; the other part is checked by the kernel.
    unsafe { gate::call(nr, os::gettid() as usize, a, 1, b, 1, 0) == len as isize }
}

/// Reads the program's memory without faulting. What is managed must be resident.
pub fn peek(addr: usize, buf: &mut [u8]) -> bool {
    transfer(nr::PROCESS_VM_READV, addr, buf.as_mut_ptr(), buf.len())
}

/// Writes the program's memory without faulting. What is managed must be resident.
pub fn poke(addr: usize, buf: &[u8]) -> bool {
    transfer(nr::PROCESS_VM_WRITEV, addr, buf.as_ptr().cast_mut(), buf.len())
}
