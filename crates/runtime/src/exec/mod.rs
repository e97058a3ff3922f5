//! exec: the new program is managed too.
//!
//! All strings are copied to memory of our own first, so that nothing the kernel reads is managed. A vforked child shares this
//! memory and never comes back to free it; its buffer is taken back once it has left.

mod buffer;
mod environment;
mod program;

pub use buffer::{forget, reserve};

use crate::gate::{self, Part};
use crate::layout::overlaps_managed;
use crate::live::Live;
use crate::pins::{self, CallPins};
use crate::store::ProcessStore;
use crate::{avoided, charge, code, rlimits, stub_call, traced, usermem};
use buffer::{Buffer, Pages};
use environment::Wanted;
use outswap_control::until_nul;
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, PAGE_BYTES, nr, os};
use program::{AT_FDCWD, Target, is_executable, look_ahead};

/// Serves execve and execveat: the call is made to run in a stub, so that a signal that comes before it finds the program's own
/// code, and the new program inherits the program's own signal mask.
pub fn exec(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    if nr == nr::EXECVE
        && let Some(e) = missing(args[0])
    {
        uc.gregs.rax = -(e.0 as i64) as u64;
        return;
    }
    let buffer = match buffer::take(|tid| live.is_alive(tid)) {
        Ok(buffer) => buffer,
        Err(e) => {
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    // As this process has them: the strings may be copied in another.
    let limits = rlimits::handed_on();
    let follow = live.control.config.no_follow == 0;
    let [path, argv, envp] = match strings(live, nr, args, buffer, limits, follow) {
        Ok(copied) => copied,
        Err(e) => {
            buffer::give_back(buffer);
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    let pin = CallPins::new(live).number();
    let (dir, flags) = if nr == nr::EXECVE { (AT_FDCWD, 0) } else { (args[0], args[4]) };
    let looked = look_ahead(live, nr, args, [path, argv]).and_then(|target| match target {
        // Without our libraries, which would keep it from starting.
        Target::Alone => strings(live, nr, args, buffer, limits, false).map(|s| (target, s)),
        _ => Ok((target, [path, argv, envp])),
    });
    let (target, [path, argv, envp]) = match looked {
        Ok(looked) => looked,
        Err(e) => {
            live.pager.pins.release(pin);
            buffer::give_back(buffer);
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    let starts = target != Target::Fails && is_executable(dir, path, flags);
    if target != Target::Managed {
        rlimits::give_to_kernel(starts);
    }
    let domain = code::randomize();
    if live.is_own_process() {
        charge::begin_exec(live, starts);
        live.contexts.with(|_| live.pager.store.begin_exec());
    }
    let changed = match nr {
        nr::EXECVE => [path, argv, envp, 0, 0, 0],
        _ => [args[0], path, argv, envp, args[4], 0],
    };
    // Who searches for a program tries several places: it is not traced before one of them has it.
    if starts {
        traced::begin();
    }
    // The program may have marked all descriptors to be closed; without these, who is not who it was cannot be managed.
    let ours = [live.control_fd, live.control_fd + 1].into_iter().chain(live.control.requests_fd());
    for fd in ours {
        let _ = os::fcntl(fd, os::F_SETFD, 0);
    }
    stub_call::resume(pin, Part::Exec, nr, changed, &mut uc.gregs);
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pin) };
    (state.buffer, state.domain) = (buffer, domain);
}

/// What the kernel says where there is no such file: who searches for a program executes it in each of several directories, until one has it.
/// `None` where there is one, or the path is not seen at once.
fn missing(path_at: usize) -> Option<Errno> {
    const SHORT_BYTES: usize = 512;
    let mut path = [0u8; SHORT_BYTES];
    let in_page = SHORT_BYTES.min(PAGE_BYTES - path_at % PAGE_BYTES);
    let (first, rest) = path.split_at_mut(in_page);
    let is_here = usermem::peek_anywhere(path_at, first)
        && (first.contains(&0) || !rest.is_empty() && usermem::peek_anywhere(path_at + in_page, rest));
    (is_here && avoided::may_name_files()).then(|| program::missing(&path)).flatten()
}

/// After an exec that failed, or is not to be: undoes what was done for it.
pub fn failed(live: &'static Live, buffer: usize, domain: Option<usize>) {
    code::restore(domain);
    rlimits::take_back(live);
    if live.is_own_process() {
        live.contexts.with(|_| {
            live.pager.store.exec_failed();
            charge::exec_failed(live)
        });
    }
    buffer::give_back(buffer);
}

/// Copies what the kernel is to read to a buffer, see [`copy`].
fn strings(
    live: &'static Live,
    nr: usize,
    args: [usize; 6],
    buffer: usize,
    limits: rlimits::HandedOn,
    follow: bool,
) -> Result<[usize; 3], Errno> {
    if !live.is_own_process() {
        // All of it is in memory, nearly always: then nobody needs to be waited for, who would have to be woken first.
        let there = copy(live, usermem::peek_anywhere, nr, args, buffer, &limits, follow);
        if there.is_ok() {
            return there;
        }
    }
    live.with(move |cx| {
        let bring_in = |from: usize, buf: &mut [u8]| {
            if overlaps_managed(from, buf.len()) {
                pins::copy_in(live, cx, from, buf)
            } else {
                usermem::peek(from, buf)
            }
        };
        copy(live, bring_in, nr, args, buffer, &limits, follow)
    })
}

/// Copies path, arguments, and an environment, with ours in it where the program is to be followed. Returns where they are.
fn copy(
    live: &Live,
    read_page: impl FnMut(usize, &mut [u8]) -> bool,
    nr: usize,
    args: [usize; 6],
    number: usize,
    limits: &rlimits::HandedOn,
    follow: bool,
) -> Result<[usize; 3], Errno> {
    // SAFETY: the buffer is this thread's, which copies its strings once at a time.
    let mut pages = Pages::new(read_page, unsafe { buffer::kept(number) });
    let mut read = |from: usize, buf: &mut [u8]| pages.read(from, buf);
    let mut buffer = Buffer::empty(number);
    let [path, argv, envp] = if nr == nr::EXECVE { [args[0], args[1], args[2]] } else { [args[1], args[2], args[3]] };
    let path = buffer.string(&mut read, path)?;
    let argv = buffer.array(&mut read, argv, |_| true, &[])?;
    let wanted = Wanted {
        follow,
        ours: live.place(),
        libraries: until_nul(&live.control.config.preload),
        limits: limits.value(),
    };
    Ok([path, argv, environment::build(&mut buffer, &mut read, envp, &wanted)?])
}
