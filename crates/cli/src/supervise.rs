//! Stays beside the program: passes signals on, prints messages, and ends as the program ended.
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Signals that stop by themselves, once for each job.
const JOB_STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The signals as they were when we were started, all blocked now and read from a descriptor.
pub struct Signals {
    fd: i32,
    mask_at_start: libc::sigset_t,
    child_disposition_at_start: libc::sighandler_t,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with a status.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
    /// Nobody knows: the program was no child of ours.
    Unknown,
}

impl End {
    /// What a status means that the kernel gives for a process that has ended.
    pub fn of_status(status: i32) -> End {
        if libc::WIFSIGNALED(status) {
            End::Killed(libc::WTERMSIG(status))
        } else {
            End::Exited(libc::WEXITSTATUS(status))
        }
    }
}

impl Signals {
    /// Blocks all signals and opens the descriptor they are read from.
    pub fn take() -> std::io::Result<Signals> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are written before they are read. An ignored SIGCHLD would let the kernel throw the
        // program's status away, so it gets the default here, and the program what was there before.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let child_disposition_at_start = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let fd = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Signals { fd, mask_at_start: before.assume_init(), child_disposition_at_start })
        }
    }

    /// Puts mask and dispositions back as they were. Async-signal-safe: called between clone and exec.
    pub fn restore_for_program(&self) {
        // SAFETY: dispositions at our start can only have been "default" or "ignore", since exec resets handlers.
        unsafe {
            if self.child_disposition_at_start == libc::SIG_IGN {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask_at_start, std::ptr::null_mut());
        }
    }

    /// All that wait.
    pub fn all(&self) -> Vec<Came> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The next waiting signal.
    fn next(&self) -> Option<Came> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the given size, and is read only where the kernel filled it whole.
        let info = unsafe {
            if libc::read(self.fd, info.as_mut_ptr().cast(), bytes) != bytes as isize {
                return None;
            }
            info.assume_init()
        };
        let sender = info.ssi_pid as libc::pid_t;
        Some(Came { signal: info.ssi_signo as i32, code: info.ssi_code, sender, value: info.ssi_ptr })
    }
}

/// A signal that came.
pub struct Came {
    signal: i32,
    code: i32,
    sender: libc::pid_t,
    /// What came with it, if it was queued.
    value: u64,
}

/// Sleeps until there is something at a descriptor, and then says so, or until the time is over, or a second.
pub fn wait_for(fd: i32, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let milliseconds = timeout.as_micros().div_ceil(1000).min(1000) as i32;
    // SAFETY: one entry, as said.
    unsafe { libc::poll(&mut poll, 1, milliseconds) > 0 }
}

/// Runs until the program ends. `early` came before it was there: none of it has come to it otherwise. `tick` is called at once, and then
/// after as long as it says.
pub fn supervise(pid: libc::pid_t, signals: &Signals, early: Vec<Came>, mut tick: impl FnMut() -> Duration) -> End {
    let mut job = Job { pid, stopped: None, stop_asked: None };
    early.iter().filter(|came| came.signal != libc::SIGCHLD).for_each(|came| job.send(came));
    let mut next_tick = Instant::now();
    loop {
        job.pass_all_on(signals);
        // The program's end may be told by a SIGCHLD that stood for several children.
        if let Some(end) = job.reap() {
            return end;
        }
        job.stop_if_asked(signals);
        if Instant::now() >= next_tick {
            let pause = tick();
            next_tick = Instant::now() + pause;
        }
        wait_for(signals.fd, next_tick.saturating_duration_since(Instant::now()));
    }
}

struct Job {
    pid: libc::pid_t,
    /// The signal that the program is stopped by.
    stopped: Option<i32>,
    /// When a stop was last sent to us.
    stop_asked: Option<Instant>,
}

impl Job {
    /// Sends all signals that wait for us on to the program.
    fn pass_all_on(&mut self, signals: &Signals) {
        while let Some(came) = signals.next() {
            self.pass_on(&came);
        }
    }

    /// Sends a signal of ours on to the program, unless it has it already.
    fn pass_on(&mut self, came: &Came) {
        let &Came { signal, code, sender, .. } = came;
        if signal == libc::SIGCHLD {
            return;
        }
        // The terminal and the kernel signal the whole process group, which the program is in, or has left of its own
        // will. What the program itself sent to its group, and our own SIGPIPE, is not news to it either.
        let ours = sender == self.pid || sender == outswap_sys::os::getpid();
        // Where the terminal hangs up, the kernel tells the leader of its session alone: whoever else is there learns of it when that
        // one ends.
        // SAFETY: takes an integer only.
        let leads = unsafe { libc::getsid(0) } == outswap_sys::os::getpid();
        let hangs_up = leads && matches!(signal, libc::SIGHUP | libc::SIGCONT);
        // One that was set before this began has run out just then.
        let is_timers = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF].contains(&signal);
        if code == libc::SI_KERNEL && !hangs_up && !is_timers || ours && code != libc::SI_QUEUE {
            self.note(signal);
            return;
        }
        self.send(came);
    }

    /// Takes note of what stops the program, or lets it go on.
    fn note(&mut self, signal: i32) {
        if JOB_STOPS.contains(&signal) {
            self.stop_asked = Some(Instant::now());
        }
        if signal == libc::SIGCONT {
            self.stop_asked = None;
            self.stopped = None;
        }
    }

    /// Sends the program a signal.
    fn send(&mut self, &Came { signal, code, value, .. }: &Came) {
        self.note(signal);
        let value = libc::sigval { sival_ptr: value as *mut libc::c_void };
        // SAFETY: our own child, not yet reaped; nobody follows the pointer.
        unsafe {
            if code != libc::SI_QUEUE || libc::sigqueue(self.pid, signal, value) != 0 {
                libc::kill(self.pid, signal);
            }
        }
    }

    /// Takes note of what children did; the program's end ends it. Others are orphans given to us (as PID 1).
    fn reap(&mut self) -> Option<End> {
        loop {
            let mut status = 0;
            // SAFETY: `status` has room for the answer.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
            if pid <= 0 {
                return None;
            }
            if pid != self.pid {
                continue;
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                return Some(End::of_status(status));
            }
            if libc::WIFSTOPPED(status) {
                self.stopped = Some(libc::WSTOPSIG(status));
            } else if libc::WIFCONTINUED(status) {
                self.stopped = None;
                self.stop_asked = None;
            }
        }
    }

    /// Stops with the program where somebody waits to see us stopped: after a stop that was sent to us as well, and in
    /// the foreground of a terminal. A program that somebody else stops and continues by its own process id must
    /// not leave us stopped, with nobody to continue us.
    fn stop_if_asked(&mut self, signals: &Signals) {
        // The program may have a handler that takes its time, or that does not stop.
        const STOPS_WITHIN: Duration = Duration::from_secs(10);
        let is_asked = self.stop_asked.is_some_and(|at| at.elapsed() < STOPS_WITHIN);
        if self.stopped.is_none() || !(is_asked || in_foreground(self.pid)) {
            return;
        }
        // A stop discards a SIGCONT that waits.
        self.pass_all_on(signals);
        let Some(signal) = self.stopped.take() else { return };
        self.stop_asked = None;
        stop_by(signal);
        // Continued. Where SIGCONT came to us alone the program has to have it too; a second one harms nobody.
        // SAFETY: our own child, not yet reaped.
        unsafe { libc::kill(self.pid, libc::SIGCONT) };
    }
}

/// Stops this process until it is continued, by the signal that stopped the program where that can be: who waits for us is told of it.
fn stop_by(signal: i32) {
    if JOB_STOPS.contains(&signal) {
        let mut only = MaybeUninit::uninit();
        let mut waiting = MaybeUninit::uninit();
        // SAFETY: the sets are written before they are read. The signal is for this thread, which alone lets it through.
        let was_continued = unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), signal);
            libc::raise(signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_BLOCK, only.as_ptr(), std::ptr::null_mut());
            libc::sigpending(waiting.as_mut_ptr()) == 0 && libc::sigismember(waiting.as_ptr(), libc::SIGCONT) == 1
        };
        // Whose process group nobody could continue is not stopped by these.
        if was_continued {
            return;
        }
    }
    let _ = outswap_sys::os::kill(outswap_sys::os::getpid(), libc::SIGSTOP);
}

/// Whether we, or the program in a process group of its own, hold the terminal.
fn in_foreground(program: libc::pid_t) -> bool {
    // SAFETY: plain calls; the descriptor is ours.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY;
        let terminal = libc::open(c"/dev/tty".as_ptr(), flags);
        if terminal < 0 {
            return false;
        }
        let foreground = libc::tcgetpgrp(terminal);
        libc::close(terminal);
        foreground > 0 && [libc::getpgrp(), libc::getpgid(program)].contains(&foreground)
    }
}

/// Ends this process as the program ended: its status, or death by its signal, without a second core dump.
pub fn end_like(end: End) -> i32 {
    match end {
        End::Exited(status) => status,
        End::Unknown => 0,
        End::Killed(signal) => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            let mut only = MaybeUninit::uninit();
            // SAFETY: plain calls; the set is emptied before it is read. A core handler behind a pipe is not bound
            // by the limit, but by the process not being dumpable.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
                libc::signal(signal, libc::SIG_DFL);
                libc::sigemptyset(only.as_mut_ptr());
                libc::sigaddset(only.as_mut_ptr(), signal);
                libc::raise(signal);
                libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
            }
            // As PID 1 no signal kills us; say it as shells do.
            128 + signal
        }
    }
}
