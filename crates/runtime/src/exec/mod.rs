//! exec: the new program is managed too.
//!
//! All strings are copied to memory of our own first, so that nothing the kernel reads is managed. A vforked child shares this
//! memory and never comes back to free it; its buffer is taken back once it has left.

mod buffer;
mod environment;
mod program;

pub use buffer::{forget, reserve};

use crate::contexts::Cx;
use crate::gate::{self, Part};
use crate::limits::EXEC_BUFFER_BYTES;
use crate::live::Live;
use crate::pins::CallPins;
use crate::{charge, code, rlimits, stub_call};
use buffer::{Buffer, word};
use environment::{Found, is_other, write_preload};
use outswap_control::{ENV, PLACE_BYTES, Place, until_nul};
use outswap_sys::signal::Ucontext;
use outswap_sys::{Errno, nr};
use program::{AT_FDCWD, Target, is_executable, look_ahead};

/// Serves execve and execveat: the call is made to run in a stub, so that a signal that comes before it finds the program's own
/// code, and the new program inherits the program's own signal mask.
pub fn exec(live: &'static Live, nr: usize, args: [usize; 6], uc: &mut Ucontext) {
    let buffer = match buffer::take(|tid| live.is_alive(tid)) {
        Ok(buffer) => buffer,
        Err(e) => {
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    // As this process has them: the strings may be copied in another.
    let limits = rlimits::handed_on();
    let copied = live.with(move |cx| {
        copy(live, cx, nr, args, buffer, &limits).map(|strings| (strings, CallPins::new(live).number()))
    });
    let ([path, argv, envp], pin) = match copied {
        Ok(copied) => copied,
        Err(e) => {
            buffer::give_back(buffer);
            uc.gregs.rax = -(e.0 as i64) as u64;
            return;
        }
    };
    let (dir, flags) = if nr == nr::EXECVE { (AT_FDCWD, 0) } else { (args[0], args[4]) };
    let target = look_ahead(live, nr, args, path);
    if target != Target::Managed {
        rlimits::give_to_kernel(target != Target::Fails && is_executable(dir, path, flags));
    }
    let domain = code::randomize();
    if live.is_own_process() {
        charge::begin_exec(live);
        live.contexts.with(|_| live.pager.store.begin_exec());
    }
    let changed = match nr {
        nr::EXECVE => [path, argv, envp, 0, 0, 0],
        _ => [args[0], path, argv, envp, args[4], 0],
    };
    stub_call::run(pin, Part::Exec, nr, changed, &mut uc.gregs);
    // SAFETY: the pin is this call's.
    let state = unsafe { &mut *gate::state(pin) };
    (state.buffer, state.domain) = (buffer, domain);
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

fn copy(
    live: &Live,
    cx: &mut Cx,
    nr: usize,
    args: [usize; 6],
    number: usize,
    limits: &rlimits::HandedOn,
) -> Result<[usize; 3], Errno> {
    let mut buffer = Buffer::empty(number);
    let [path, argv, envp] = if nr == nr::EXECVE { [args[0], args[1], args[2]] } else { [args[1], args[2], args[3]] };
    let path = buffer.string(live, cx, path)?;
    let argv = buffer.array(live, cx, argv, |_| true, &[])?;
    let follow = live.control.config.no_follow == 0;

    // The program may have cleared or changed the environment.
    let mut found = Found::default();
    let ours = live.place();
    let mut i = 0;
    while envp != 0 && i * 8 < EXEC_BUFFER_BYTES {
        let pointer = word(live, cx, envp + i * 8)?;
        if pointer == 0 {
            break;
        }
        let mark = buffer.used;
        if !found.see(buffer.bytes(live, cx, pointer)?) {
            buffer.used = mark;
        }
        i += 1;
    }
    let mut more = [0usize; 3];
    let mut n = 0;
    if follow && !limits.value().is_empty() {
        more[n] = buffer.text(&[rlimits::VARIABLE, b"=", limits.value()])?;
        n += 1;
    }
    let place = found.control.and_then(Place::parse);
    if follow && place.is_some_and(|place| !place.is_same_run(&ours) && place.is_inside(&ours)) {
        // A run that was started inside this one manages the program, and keeps to our limit as well.
        let keep = |entry: &[u8]| is_other(entry, &[rlimits::VARIABLE]);
        let envp = buffer.array(live, cx, envp, keep, &more[..n])?;
        return Ok([path, argv, envp]);
    }
    let (mark, start) = (buffer.used, buffer.end());
    buffer.put(b"LD_PRELOAD=")?;
    let libraries = until_nul(&live.control.config.preload);
    if write_preload(libraries, found.preload.unwrap_or_default(), follow, |part| buffer.put(part))? {
        buffer.put(b"\0")?;
        more[n] = start;
        n += 1;
    } else {
        buffer.used = mark;
    }
    if follow {
        let mut value = [0u8; PLACE_BYTES];
        more[n] = buffer.text(&[ENV.as_bytes(), b"=", ours.write(&mut value)])?;
        n += 1;
    }
    let ours = [ENV.as_bytes(), b"LD_PRELOAD", rlimits::VARIABLE];
    let keep = |entry: &[u8]| is_other(entry, &ours);
    let envp = buffer.array(live, cx, envp, keep, &more[..n])?;
    Ok([path, argv, envp])
}
