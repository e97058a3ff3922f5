//! What `outswap` says, each line beginning `outswap: `, on standard error. While a program runs, a thread of its own writes it: where nobody reads,
//! only that thread waits.
use crate::signal_set;
use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Lines that began so are counted.
const WARNING_HEAD: &str = "warning:";
/// Texts that wait to be written; what comes on top of them is lost, and counted.
const QUEUE_TEXTS: usize = 1024;
/// Whoever writes needs no more.
const STACK_BYTES: usize = 64 << 10;
/// How long what was said last may take to be written before signals end us.
const PATIENCE: Duration = Duration::from_secs(1);

/// Warnings given so far.
static WARNINGS: AtomicU64 = AtomicU64::new(0);
/// Texts for which the queue had no room.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Whether a thread is to write, which begins with the first text.
static IS_APART: AtomicBool = AtomicBool::new(false);
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

/// The thread that writes: what it is to write, and what tells that it is done.
struct Writer {
    queue: SyncSender<String>,
    end: Receiver<()>,
}

impl Writer {
    /// `None` where no thread can be made.
    fn start() -> Option<Writer> {
        let (queue, texts) = sync_channel::<String>(QUEUE_TEXTS);
        let (done, end) = sync_channel(1);
        let work = move || {
            texts.iter().for_each(|text| write(&text));
            match LOST.swap(0, Relaxed) {
                0 => {}
                lost => write(&lines(&format!("warning: {lost} more messages: nobody read standard error"))),
            }
            drop(done);
        };
        thread::Builder::new().name("messages".into()).stack_size(STACK_BYTES).spawn(work).ok()?;
        Some(Writer { queue, end })
    }
}

fn writer() -> MutexGuard<'static, Option<Writer>> {
    // Nothing in it can be half done.
    WRITER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something: one line, or several. An error has nowhere to be told.
pub fn say(text: &str) {
    let text = lines(text);
    let mut writer = writer();
    if writer.is_none() && IS_APART.load(Relaxed) {
        *writer = Writer::start();
    }
    match &*writer {
        None => write(&text),
        Some(writer) => {
            if writer.queue.try_send(text).is_err() {
                LOST.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Says something, unless that is not wanted. Warnings count all the same.
pub fn tell(text: &str, quiet: bool) {
    WARNINGS.fetch_add(text.lines().filter(|line| line.starts_with(WARNING_HEAD)).count() as u64, Relaxed);
    if !quiet {
        say(text);
    }
}

/// Warnings given so far.
pub fn warnings() -> u64 {
    WARNINGS.load(Relaxed)
}

/// From now on nobody who says something waits for who reads it.
pub fn begin_apart() {
    IS_APART.store(true, Relaxed);
}

/// Waits until all is written that was said. Where that takes long, `let_signals_end_us` is called first.
pub fn end_apart(let_signals_end_us: impl FnOnce()) {
    IS_APART.store(false, Relaxed);
    let Some(Writer { queue, end }) = writer().take() else { return };
    drop(queue);
    if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let_signals_end_us();
        // It sends nothing: this is the end of it.
        let _ = end.recv();
    }
}

fn lines(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + 16);
    for part in text.lines() {
        all.push_str("outswap: ");
        all.push_str(part);
        all.push('\n');
    }
    all
}

/// Writes to standard error. That nobody reads there any more is no reason to end.
fn write(text: &str) {
    let pipe = signal_set::only(libc::SIGPIPE);
    let (mut before, mut waiting) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: each set is written before it is read.
    let was_waiting = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr());
        libc::sigpending(waiting.as_mut_ptr());
        libc::sigismember(waiting.as_ptr(), libc::SIGPIPE) == 1
    };
    let result = std::io::stderr().write_all(text.as_bytes());
    let is_ours = result.is_err_and(|e| e.kind() == ErrorKind::BrokenPipe) && !was_waiting;
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the mask was written above; nobody wants to know more of the signal, which came to this thread.
    unsafe {
        if is_ours {
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}
