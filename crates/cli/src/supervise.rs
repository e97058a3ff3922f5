//! Stays beside the program: passes signals on, prints messages, and ends as the program ended.
use crate::signal_set;
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
            let mut child = MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(libc::SIGCHLD, std::ptr::null(), child.as_mut_ptr());
            let child_disposition_at_start = child.assume_init().sa_sigaction;
            // To set the default discards one that waits, which may be the program's.
            if child_disposition_at_start == libc::SIG_IGN {
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
            let fd = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Signals { fd, mask_at_start: before.assume_init(), child_disposition_at_start })
        }
    }

    /// Puts mask and dispositions back as they were.
    pub fn restore_for_program(&self) {
        // SAFETY: dispositions at our start can only have been "default" or "ignore", since exec resets handlers.
        unsafe {
            if self.child_disposition_at_start == libc::SIG_IGN {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask_at_start, std::ptr::null_mut());
        }
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
struct Came {
    signal: i32,
    code: i32,
    sender: libc::pid_t,
    /// What came with it, if it was queued.
    value: u64,
}

impl Came {
    /// Whether the kernel tells of what a child did.
    fn tells_of_child(&self) -> bool {
        self.signal == libc::SIGCHLD && self.code > 0
    }
}

/// Sleeps until there is something at one of some descriptors, and then says so, or until the time is over, or a second.
pub fn wait_for<const COUNT: usize>(fds: [i32; COUNT], timeout: Duration) -> bool {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let milliseconds = timeout.as_micros().div_ceil(1000).min(1000) as i32;
    // SAFETY: as many entries as said.
    unsafe { libc::poll(polls.as_mut_ptr(), COUNT as libc::nfds_t, milliseconds) > 0 }
}

/// Runs until the program ends. `tick` is called at once, and then after as long as it says.
pub fn supervise(job: &mut Job, signals: &Signals, mut tick: impl FnMut() -> Duration) -> End {
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
        wait_for([signals.fd], next_tick.saturating_duration_since(Instant::now()));
    }
}

/// The program, from the moment in which its process is there.
pub struct Job {
    /// Its process.
    pub pid: libc::pid_t,
    /// How it ended.
    ended: Option<End>,
    /// The signal that the program is stopped by.
    stopped: Option<i32>,
    /// When a stop was last sent to us.
    stop_asked: Option<Instant>,
}

impl Job {
    /// A process that has just begun. To be supervised it has to be a child of ours.
    pub fn new(pid: libc::pid_t) -> Job {
        Job { pid, ended: None, stopped: None, stop_asked: None }
    }

    /// Sends the program all signals that wait for us: it was not there when they came.
    pub fn send_waiting(&mut self, signals: &Signals) {
        while let Some(came) = signals.next() {
            if !came.tells_of_child() {
                self.send(&came);
            }
        }
    }

    /// Passes signals on, stops and goes on with the child, until it has executed the program, or has ended: its end of `socket` is closed by
    /// either.
    ///
    /// # Errors
    /// Why it could not execute the program: what it writes there before it ends.
    pub fn await_exec(&mut self, signals: &Signals, mut socket: &UnixStream) -> std::io::Result<()> {
        socket.set_nonblocking(true)?;
        loop {
            self.pass_all_on(signals);
            if self.reap().is_none() {
                self.stop_if_asked(signals);
            }
            let mut errno = [0; size_of::<i32>()];
            match socket.read(&mut errno) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Ok(bytes) if bytes == errno.len() => {
                    self.end_failed();
                    return Err(std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
                }
                _ => return Ok(()),
            }
            wait_for([signals.fd, socket.as_raw_fd()], Duration::MAX);
        }
    }

    /// Ends a child that is about to end by itself, or has.
    fn end_failed(&mut self) {
        if self.ended.is_none() {
            // SAFETY: our own child, not yet reaped; nobody wants its status. It may have been stopped.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }

    /// Sends all signals that wait for us on to the program.
    fn pass_all_on(&mut self, signals: &Signals) {
        while let Some(came) = signals.next() {
            self.pass_on(&came);
        }
    }

    /// Sends a signal of ours on to the program, unless it has it already.
    fn pass_on(&mut self, came: &Came) {
        let &Came { signal, code, sender, .. } = came;
        if came.tells_of_child() {
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
        while self.ended.is_none() {
            let mut status = 0;
            // SAFETY: `status` has room for the answer.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
            if pid <= 0 {
                break;
            }
            if pid != self.pid {
                continue;
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.ended = Some(End::of_status(status));
            } else if libc::WIFSTOPPED(status) {
                self.stopped = Some(libc::WSTOPSIG(status));
            } else if libc::WIFCONTINUED(status) {
                self.stopped = None;
                self.stop_asked = None;
            }
        }
        self.ended
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
        let watch = ContinueWatch::begin();
        self.pass_all_on(signals);
        if let Some(signal) = self.stopped
            && !watch.has_come()
        {
            self.stop_by(signal, &watch);
        }
        (self.stopped, self.stop_asked) = (None, None);
        // Continued. Where SIGCONT came to us alone the program has to have it too; a second one harms nobody.
        if self.ended.is_none() {
            // SAFETY: our own child, not yet reaped.
            unsafe { libc::kill(self.pid, libc::SIGCONT) };
        }
    }

    /// Stops this process until it is continued, by the signal that stopped the program where that can be: who waits for us is told of it.
    fn stop_by(&mut self, signal: i32, watch: &ContinueWatch) {
        // A signal that was sent has come to all of a process group.
        const SENT_WITHIN: Duration = Duration::from_micros(100);
        if JOB_STOPS.contains(&signal) {
            // SAFETY: takes numbers. The signal is for this thread, which alone lets it through.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            // From here on SIGCONT takes the stop back by itself. One that came just before is seen by the handler; or it was on its way to it,
            // and is discarded, and then the program has it.
            std::thread::sleep(SENT_WITHIN);
            self.reap();
            if watch.has_come() || self.stopped != Some(signal) || self.ended.is_some() {
                let _ = outswap_sys::os::kill(outswap_sys::os::getpid(), libc::SIGCONT);
            }
            signal_set::unblock(signal);
            signal_set::block(signal);
            // Whose process group nobody could continue is not stopped by these.
            if watch.has_come() {
                return;
            }
        }
        let _ = outswap_sys::os::kill(outswap_sys::os::getpid(), libc::SIGSTOP);
    }
}

/// SIGCONT has come since a [`ContinueWatch`] began.
static HAS_COME: AtomicBool = AtomicBool::new(false);

extern "C" fn note_continue(_: libc::c_int) {
    HAS_COME.store(true, Relaxed);
}

/// Lets SIGCONT come to a handler: one that waits to be read is discarded by a stop, which it is to end.
struct ContinueWatch;

impl ContinueWatch {
    fn begin() -> ContinueWatch {
        HAS_COME.store(false, Relaxed);
        // SAFETY: the handler does nothing but to store a flag. It stays: to set the default would discard one that waits.
        unsafe { libc::signal(libc::SIGCONT, note_continue as *const () as libc::sighandler_t) };
        signal_set::unblock(libc::SIGCONT);
        ContinueWatch
    }

    fn has_come(&self) -> bool {
        HAS_COME.load(Relaxed)
    }
}

impl Drop for ContinueWatch {
    fn drop(&mut self) {
        signal_set::block(libc::SIGCONT);
    }
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
            // SAFETY: plain calls. A core handler behind a pipe is not bound by the limit, but by the process not being dumpable.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            signal_set::unblock(signal);
            // As PID 1 no signal kills us; say it as shells do.
            128 + signal
        }
    }
}
