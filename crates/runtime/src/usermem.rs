//! The program's memory, read and written without faulting, and the structures that system calls find there.
use crate::arena::page_of;
use crate::errno::EFAULT;
use crate::live::{Live, try_live};
use crate::{avoided, gate, kept};
use outswap_core::machine::Prot;
use outswap_core::units::PageNo;
use outswap_sys::{PAGE_BYTES, nr, os};

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

/// Whether the kernel refuses the calls by which a process reads and writes its own memory without faulting, as Docker's profile did up to
/// 20.10. They are made in no case where [`kept::MEM`] is wanted.
pub fn is_refused() -> bool {
    let (from, mut to) = ([1u8; 1], [0u8; 1]);
    through_call(nr::PROCESS_VM_READV, from.as_ptr() as usize, to.as_mut_ptr(), 1) < 0
}

fn through_call(nr: usize, addr: usize, local: *mut u8, len: usize) -> isize {
    let mine = Iovec { base: local as usize, len };
    let theirs = Iovec { base: addr, len };
    let (a, b) = (&raw const mine as usize, &raw const theirs as usize);
    // By the thread's number: a main thread that has ended leaves the process's number without memory.
    // SAFETY: the local part is memory of ours of that length; the other part is checked by the kernel.
    unsafe { gate::call(nr, os::gettid() as usize, a, 1, b, 1, 0) }
}

/// The same through `/proc/self/mem`, which passes access rights by: a pointer to memory of the kernel's that the program must not read,
/// or write, is not found wrong.
fn through_file(nr: usize, addr: usize, local: *mut u8, len: usize) -> isize {
    let Some(fd) = kept::MEM.fd() else { return EFAULT };
    let (nr, needs) = if nr == nr::PROCESS_VM_READV { (nr::PREAD64, Prot::READ) } else { (nr::PWRITE64, Prot::WRITE) };
    if try_live().is_some_and(|live| !allows(live, addr, len, needs)) {
        return EFAULT;
    }
    // SAFETY: as above.
    unsafe { gate::call(nr, fd as usize, local as usize, len, addr, 0, 0) }
}

/// Whether the program may do that with all that is managed of a range.
fn allows(live: &Live, addr: usize, len: usize, needs: Prot) -> bool {
    let Some((start, end)) = live.managed_part(addr, len) else { return true };
    let (mut page, end) = (page_of(start).0, page_of(end - 1).0 + 1);
    while page < end {
        match live.pager.find(PageNo(page)) {
            Some(vma) if vma.foreign || vma.prot.0 & needs.0 != 0 => page = vma.end(),
            _ => return false,
        }
    }
    true
}

/// The same without a call that names the memory, where a filter of the program's own has no room for one. A pointer to memory that is mapped
/// and that the program must not use ends it.
fn through_copy(nr: usize, addr: usize, local: *mut u8, len: usize) -> isize {
    let Some(end) = addr.checked_add(len) else { return EFAULT };
    let is_mapped = |at: usize| os::mincore(at, PAGE_BYTES, &mut [0]).is_ok();
    let needs = if nr == nr::PROCESS_VM_READV { Prot::READ } else { Prot::WRITE };
    let pages = (addr / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|page| page * PAGE_BYTES);
    if !pages.into_iter().all(is_mapped) || try_live().is_some_and(|live| !allows(live, addr, len, needs)) {
        return EFAULT;
    }
    let (to, from) = if nr == nr::PROCESS_VM_READV { (local, addr as *mut u8) } else { (addr as *mut u8, local) };
    // SAFETY: the local part is memory of ours of that length; the other part is mapped, and what is managed of it resident. Bytes are
    // copied that the program may be changing, as the kernel would.
    unsafe { core::ptr::copy(from, to, len) };
    len as isize
}

fn transfer(nr: usize, addr: usize, local: *mut u8, len: usize) -> bool {
    let through = match () {
        () if !avoided::may_name_memory() => through_copy,
        () if kept::wants_mem() => through_file,
        () => through_call,
    };
    len == 0 || through(nr, addr, local, len) == len as isize
}

/// Reads the program's memory without faulting. What is managed must be resident.
pub fn peek(addr: usize, buf: &mut [u8]) -> bool {
    transfer(nr::PROCESS_VM_READV, addr, buf.as_mut_ptr(), buf.len())
}

/// Reads the program's memory, also where it may have left by now: false then, and where only ways are left that would bring it in, or fault.
pub fn peek_anywhere(addr: usize, buf: &mut [u8]) -> bool {
    let by_call = avoided::may_name_memory() && !kept::wants_mem();
    by_call && through_call(nr::PROCESS_VM_READV, addr, buf.as_mut_ptr(), buf.len()) == buf.len() as isize
}

/// Writes the program's memory without faulting. What is managed must be resident.
pub fn poke(addr: usize, buf: &[u8]) -> bool {
    transfer(nr::PROCESS_VM_WRITEV, addr, buf.as_ptr().cast_mut(), buf.len())
}
