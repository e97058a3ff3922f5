//! The calls about signals: `sigaction`, `sigprocmask`, `sigpending`, `sigtimedwait`, `sigaltstack`.
use crate::dispositions::OURS;
use crate::errno::{EFAULT, EINVAL, ENOMEM};
use crate::live::Live;
use crate::pins::{read, write};
use crate::stacks::{self, SI_TKILL, Thread};
use crate::usermem::word;
use crate::{deliver, threads};
use outswap_sys::os;
use outswap_sys::signal::{self, KernelSigaction, Stack, Ucontext, bit};

/// `sigaction`: see [`deliver::change`].
pub fn sigaction(live: &'static Live, [signal, new, old, size, ..]: [usize; 6]) -> isize {
    const BYTES: usize = core::mem::size_of::<KernelSigaction>();
    if size != 8 {
        return EINVAL;
    }
    let action = match new {
        0 => None,
        at => match read::<BYTES>(live, at) {
            // SAFETY: plain old data of that size.
            Some(bytes) => Some(unsafe { core::mem::transmute::<[u8; BYTES], KernelSigaction>(bytes) }),
            None => return EFAULT,
        },
    };
    match deliver::change(live, signal as i32, action.as_ref(), !live.is_own_process()) {
        Err(e) => -(e.0 as isize),
        Ok(before) if old != 0 => {
            // SAFETY: plain old data of that size.
            let bytes = unsafe { core::mem::transmute::<KernelSigaction, [u8; BYTES]>(before) };
            if write(live, old, bytes) { 0 } else { EFAULT }
        }
        Ok(_) => 0,
    }
}

/// `sigprocmask`: the mask that the program believes in. Our signals are never in the kernel's.
pub fn sigprocmask(live: &'static Live, [how, new, old, size, ..]: [usize; 6], uc: &mut Ucontext) -> isize {
    if size != 8 {
        return EINVAL;
    }
    let thread = threads::current_or_new(live, uc);
    let before = uc.sigmask | thread.map_or(0, Thread::pretended);
    let mut after = before;
    if new != 0 {
        let Some(set) = read::<8>(live, new).map(u64::from_le_bytes) else { return EFAULT };
        // An int: the register may have anything above it.
        after = match how as u32 {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return EINVAL,
        };
    }
    const SIGKILL: u64 = bit(9);
    const SIGSTOP: u64 = bit(19);
    uc.sigmask = after & !(OURS | SIGKILL | SIGSTOP);
    if let Some(thread) = thread {
        thread.set_pretended(after);
    }
    if old != 0 && !write(live, old, before.to_le_bytes()) {
        return EFAULT;
    }
    0
}

/// `sigpending`: with those that wait here because the kernel does not know them to be blocked. `None` where none does.
pub fn sigpending(live: &'static Live, [set, size, ..]: [usize; 6], uc: &mut Ucontext) -> Option<isize> {
    let held = threads::current_or_new(live, uc)?.held();
    if held == 0 || size != 8 {
        return None;
    }
    let all = held | signal::pending();
    Some(if write(live, set, all.to_le_bytes()) { 0 } else { EFAULT })
}

/// `sigtimedwait` for a signal that waits here. `None` where none does. What else was sent with it is not kept: it looks as if the
/// program had sent it itself.
pub fn sigtimedwait(live: &'static Live, [set, info, _, size, ..]: [usize; 6], uc: &mut Ucontext) -> Option<isize> {
    const SI_USER: i32 = 0;
    let thread = threads::current_or_new(live, uc)?;
    if thread.held() == 0 || size != 8 {
        return None;
    }
    let wanted = u64::from_le_bytes(read::<8>(live, set)?);
    let (signal, own) = thread.take_held(wanted)?;
    let mut bytes = [0u8; 128];
    let words = [signal, 0, if own { SI_TKILL } else { SI_USER }, 0, os::getpid()];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    Some(if info == 0 || write(live, info, bytes) { signal as isize } else { EFAULT })
}

/// `sigaltstack`: the stack that the program believes in. The kernel's is always ours.
pub fn sigaltstack(live: &'static Live, [new, old, ..]: [usize; 6], uc: &mut Ucontext) -> isize {
    const BYTES: usize = core::mem::size_of::<Stack>();
    let stack = match new {
        0 => None,
        at => match read::<BYTES>(live, at) {
            Some(bytes) => Some(Stack { sp: word(&bytes, 0), flags: word(&bytes, 8) as i32, size: word(&bytes, 16) }),
            None => return EFAULT,
        },
    };
    let Some(thread) = threads::current_or_new(live, uc) else { return ENOMEM };
    match stacks::change_stack(thread, stack.as_ref(), uc.gregs.rsp as usize) {
        Err(e) => -(e.0 as isize),
        Ok(before) if old != 0 => {
            let mut bytes = [0u8; BYTES];
            bytes[..8].copy_from_slice(&before.sp.to_le_bytes());
            bytes[8..12].copy_from_slice(&before.flags.to_le_bytes());
            bytes[16..].copy_from_slice(&before.size.to_le_bytes());
            if write(live, old, bytes) { 0 } else { EFAULT }
        }
        Ok(_) => 0,
    }
}
