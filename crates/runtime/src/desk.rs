//! Work for processes that share the memory.
//!
//! Such a process leaves what it wants on a desk, and the background thread of the process that owns the runtime does it. What
//! lies on the desk is whole and refers to nothing on our part of the asking thread's stack, so it can be done also while that
//! thread ends; one that has ended asks for nothing any more.
use crate::contexts::{Contexts, Cx};
use crate::limits::{DESK_BYTES, DESKS};
use crate::{background, sharers};
use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, size_of};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use outswap_control::Control;
use outswap_sys::os;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;

/// A place for one request.
#[repr(C, align(64))]
struct Desk {
    /// The thread that asks; 0: free.
    owner: AtomicU32,
    state: AtomicU32,
    call: AtomicUsize,
    data: &'static Data,
}

/// What is on a desk.
#[repr(C, align(64))]
struct Data(UnsafeCell<[u64; DESK_BYTES / 8]>);

// SAFETY: a desk's data belongs to its owner, but for the time between ASKED and DONE, when it is the background thread's.
unsafe impl Sync for Data {}

/// Apart from the desks, all of which are looked at, in a forked child, too.
static ALL_DATA: [Data; DESKS] = [const { Data(UnsafeCell::new([0; DESK_BYTES / 8])) }; DESKS];

static DESKS_ALL: [Desk; DESKS] = {
    let mut all = [const { Desk::free(&ALL_DATA[0]) }; DESKS];
    let mut i = 1;
    while i < DESKS {
        all[i] = Desk::free(&ALL_DATA[i]);
        i += 1;
    }
    all
};

impl Desk {
    const fn free(data: &'static Data) -> Desk {
        Desk { owner: AtomicU32::new(0), state: AtomicU32::new(IDLE), call: AtomicUsize::new(0), data }
    }
}

/// The thread for which the background thread works.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// The thread that asked for what the calling thread does: itself, unless that is the background thread at a desk.
pub fn caller() -> u32 {
    let tid = os::gettid() as u32;
    match SERVED.load(Relaxed) {
        0 => tid,
        served if background::is_thread(tid) => served,
        _ => tid,
    }
}

/// What a request is made of: a closure before, its result afterwards.
union Work<F, R> {
    f: ManuallyDrop<F>,
    result: ManuallyDrop<R>,
}

unsafe fn work<F: FnOnce(&mut Cx) -> R, R>(data: *mut u64, cx: &mut Cx) {
    // SAFETY: `ask` put an `F` there, which is taken once.
    unsafe {
        let place = data.cast::<Work<F, R>>();
        let f = ManuallyDrop::take(&mut (*place).f);
        (*place).result = ManuallyDrop::new(f(cx));
    }
}

/// Has the background thread of process `pid`, whose runtime this is, do something.
///
/// # Panics
/// Never: a process whose runtime is gone is ended with a message, since its memory cannot be had any more.
pub fn ask<R: 'static, F: FnOnce(&mut Cx) -> R + 'static>(pid: i32, control: &Control, f: F) -> R {
    const { assert!(size_of::<Work<F, R>>() <= DESK_BYTES && align_of::<Work<F, R>>() <= 64) };
    let desk = take_desk(pid, control);
    let data = desk.data.0.get().cast::<u64>();
    // SAFETY: the desk is ours, and large enough.
    unsafe { data.cast::<Work<F, R>>().write(Work { f: ManuallyDrop::new(f) }) };
    desk.call.store(work::<F, R> as *const () as usize, Relaxed);
    desk.state.store(ASKED, SeqCst);
    background::wake();
    while desk.state.load(Acquire) != DONE {
        const LOOK_NS: u64 = 20_000_000;
        let _ = os::futex_wait(&desk.state, ASKED, LOOK_NS, false);
        if desk.state.load(Acquire) != DONE && !background::will_serve(pid) {
            end(control);
        }
    }
    // SAFETY: done: the result is there, and is taken once.
    let result = unsafe { ManuallyDrop::take(&mut (*data.cast::<Work<F, R>>()).result) };
    desk.state.store(IDLE, Relaxed);
    desk.owner.store(0, Release);
    result
}

fn end(control: &Control) -> ! {
    control.post(
        b"error: a process outlived the one whose memory it shares, and was ended: nobody can bring its memory in",
    );
    let _ = os::kill(os::getpid(), 9);
    os::exit_group(125);
}

fn take_desk(pid: i32, control: &Control) -> &'static Desk {
    let tid = os::gettid() as u32;
    let mut spins = 0;
    loop {
        for desk in &DESKS_ALL {
            let owner = desk.owner.load(Acquire);
            // A desk whose owner is gone is free once nobody works at it.
            let left = owner != 0 && desk.state.load(Acquire) != ASKED && !sharers::is_alive(pid, owner as i32);
            if (owner == 0 || left) && desk.owner.compare_exchange(owner, tid, AcqRel, Relaxed).is_ok() {
                return desk;
            }
        }
        if !background::will_serve(pid) {
            end(control);
        }
        os::wait_a_little(spins);
        spins += 1;
    }
}

/// Does what lies on the desks. Called by the background thread; says whether there was anything.
pub fn serve(pid: i32, contexts: &Contexts) -> bool {
    let mut any = false;
    for desk in DESKS_ALL.iter().filter(|d| d.state.load(SeqCst) == ASKED) {
        any = true;
        let owner = desk.owner.load(Acquire);
        if !sharers::is_alive(pid, owner as i32) {
            // What it pointed to may be used for something else by now.
            desk.state.store(DONE, SeqCst);
            continue;
        }
        SERVED.store(owner, Relaxed);
        let call = desk.call.load(Relaxed);
        let data = desk.data.0.get().cast::<u64>();
        contexts.with(|cx| {
            // SAFETY: `ask` stored this function for what it put on the desk.
            unsafe {
                let call: unsafe fn(*mut u64, &mut Cx) = core::mem::transmute(call);
                call(data, cx);
            }
        });
        SERVED.store(0, Relaxed);
        desk.state.store(DONE, SeqCst);
        os::futex_wake(&desk.state, 1, false);
    }
    any
}

/// Whether somebody waits at a desk.
pub fn is_asked() -> bool {
    sharers::any() && DESKS_ALL.iter().any(|d| d.state.load(SeqCst) == ASKED)
}

/// In a forked child nobody asks.
pub fn forget() {
    SERVED.store(0, Relaxed);
    for desk in &DESKS_ALL {
        desk.owner.store(0, Relaxed);
        desk.state.store(IDLE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_on_its_desk() {
        #[repr(align(64))]
        struct Place([u64; DESK_BYTES / 8]);
        let mut place = Place([0; DESK_BYTES / 8]);
        let (table, text) = ([1u64, 2, 3], *b"left by somebody who is gone");
        let f = move |_: &mut Cx| (table.iter().sum::<u64>(), text);
        fn put<F: FnOnce(&mut Cx) -> R, R>(data: *mut u64, f: F) -> unsafe fn(*mut u64, &mut Cx) {
            // SAFETY: the place is large enough and aligned.
            unsafe { data.cast::<Work<F, R>>().write(Work { f: ManuallyDrop::new(f) }) };
            work::<F, R>
        }
        let call = put(place.0.as_mut_ptr(), f);
        let at = os::mmap_anonymous(size_of::<Cx>()).expect("memory");
        // SAFETY: zero is a valid context; the request was put there just now, and its result is of that type.
        let (sum, back) = unsafe {
            call(place.0.as_mut_ptr(), &mut *(at as *mut Cx));
            place.0.as_ptr().cast::<(u64, [u8; 28])>().read()
        };
        assert_eq!((sum, &back), (6, b"left by somebody who is gone"));
    }
}
