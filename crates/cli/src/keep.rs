//! The program has the process id that `outswap run` was started with (`--keep-pid`): this process becomes the program, and the supervisor is a
//! new one, which is nobody's child: it is made by a child that ends at once. Where it would come back to this process as an orphan, or where its
//! process id would mean nothing, it is a child of the program's that `wait` passes over, unless it is asked for such (`__WALL`): as threads
//! are, it is made with no signal for its end.
use crate::processes::fields_of;
use crate::supervise::{End, wait_for};
use outswap_sys::os;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The supervisor is ready. Any other byte is a status to end with.
const GO: u8 = 0;
/// Asks the kernel about a process (`struct pidfd_info` of Linux 6.13, its first version).
const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;
/// How it ended is asked for, and answered: since Linux 6.15, once it has been waited for.
const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// Where `/proc/PID/stat` has the status of a process that has ended, counted from behind the name.
const STAT_EXIT_CODE: usize = 49;

/// How long the parent of a program that ended may take to wait for it, where the status is told only then; and between two looks.
const REAPED_WITHIN: Duration = Duration::from_secs(1);
/// See [`REAPED_WITHIN`].
const REAPED_LOOK: Duration = Duration::from_millis(10);

/// The two that one process has become.
pub enum Side {
    /// Keeps the number, and becomes the program.
    Program(ProgramSide),
    /// Is new, and becomes the supervisor.
    Supervisor(SupervisorSide),
}

/// What the process has that becomes the program.
pub struct ProgramSide {
    socket: UnixStream,
    /// The other one.
    pub supervisor_pid: libc::pid_t,
}

/// What the process has that becomes the supervisor.
pub struct SupervisorSide {
    socket: UnixStream,
    program: OwnedFd,
    /// The other one.
    pub program_pid: libc::pid_t,
}

/// Makes two of this process, which must have no other thread, and blocks all signals.
///
/// # Errors
/// A text, where the kernel knows no descriptors of processes (before Linux 5.3), or makes no process.
pub fn part() -> Result<Side, String> {
    let fail = |what: &'static str| move |e: std::io::Error| format!("--keep-pid: {what}: {e}");
    let program_pid = os::getpid();
    // SAFETY: takes integers; the descriptor is new, and ours. It is closed by an exec.
    let program = unsafe {
        match libc::syscall(libc::SYS_pidfd_open, program_pid, 0) {
            fd if fd >= 0 => OwnedFd::from_raw_fd(fd as i32),
            _ => return Err(fail("pidfd_open, which Linux has since 5.3")(std::io::Error::last_os_error())),
        }
    };
    let (ours, theirs) = UnixStream::pair().map_err(fail("socketpair"))?;
    let may_be_orphan = !is_reaper(program_pid);
    let child = fork();
    if child == 0 {
        // The first process of a pid namespace takes all others along when it ends.
        let supervisor = if may_be_orphan && os::getpid() != 1 { fork() } else { -1 };
        if supervisor > 0 {
            // SAFETY: ends the process, which has nothing to tidy up.
            unsafe { libc::_exit(0) };
        }
        // By the supervisor itself, so that nothing that it says later comes before. Who is told no number has it as a child; who cannot be
        // told has ended.
        let number = if supervisor == 0 { os::getpid() } else { 0 };
        let _ = (&theirs).write_all(&number.to_ne_bytes());
        // What a terminal or a shell sends to the program's group is not for us.
        // SAFETY: takes nothing.
        unsafe { libc::setsid() };
        return Ok(Side::Supervisor(SupervisorSide { socket: theirs, program, program_pid }));
    }
    if child < 0 {
        return Err(fail("cannot start a process")(std::io::Error::last_os_error()));
    }
    drop(theirs);
    let mut number = [0; size_of::<libc::pid_t>()];
    (&ours).read_exact(&mut number).map_err(fail("the supervisor has ended at once"))?;
    let supervisor_pid = match libc::pid_t::from_ne_bytes(number) {
        0 => child as libc::pid_t,
        supervisor => {
            // SAFETY: takes no pointer. No signal interrupts it: all are blocked.
            unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
            supervisor
        }
    };
    Ok(Side::Program(ProgramSide { socket: ours, supervisor_pid }))
}

/// A process with no signal for its end: 0 in it, and its number in who made it, or less than 0.
fn fork() -> libc::c_long {
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of all. Only the C library's note of the thread's number is the
    // parent's in it, which is used for signals to oneself and for mutexes that know their owner; the child does with neither.
    unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) }
}

/// Whether orphans become children of this process.
fn is_reaper(pid: libc::pid_t) -> bool {
    let mut reaper: libc::c_int = 0;
    // SAFETY: the kernel writes an int.
    let told = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut reaper) == 0 };
    pid == 1 || !told || reaper != 0
}

impl ProgramSide {
    /// Waits until the supervisor is ready; `Err` is the status to end with where it is not: it has said why.
    pub fn wait(&self) -> Result<(), Option<i32>> {
        let mut byte = [0];
        match (&self.socket).read_exact(&mut byte) {
            Ok(()) if byte == [GO] => Ok(()),
            Ok(()) => Err(Some(byte[0].into())),
            Err(_) => Err(None),
        }
    }

    /// The program could not be executed.
    pub fn give_up(&self) {
        // A supervisor that is not there needs not be told.
        let _ = (&self.socket).write_all(&[GO]);
    }
}

impl SupervisorSide {
    /// All is ready: the other one executes the program. False where it could not, and has said why.
    pub fn let_begin(&self) -> bool {
        let mut byte = [0];
        // The other end is closed by the exec, or by the end of who had it.
        (&self.socket).write_all(&[GO]).is_ok() && matches!((&self.socket).read(&mut byte), Ok(0))
    }

    /// There will be no program: the other one is to end with this status, which is not 0.
    pub fn refuse(&self, status: i32) {
        let _ = (&self.socket).write_all(&[status as u8]);
    }

    /// Waits until the program ends. `tick` is called at once, and then after as long as it says.
    pub fn supervise(&self, mut tick: impl FnMut() -> Duration) -> End {
        let mut next_tick = Instant::now();
        loop {
            let left = next_tick.saturating_duration_since(Instant::now());
            if wait_for([self.program.as_raw_fd()], left) {
                return self.end();
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + tick();
            }
        }
    }

    /// How the program ended, as far as the kernel says: until its parent has waited for it, in its line of `/proc`; after that, where
    /// the kernel is new enough.
    fn end(&self) -> End {
        let until = Instant::now() + REAPED_WITHIN;
        loop {
            let line = std::fs::read(format!("/proc/{}/stat", self.program_pid)).unwrap_or_default();
            // Where another has its number by now, the descriptor knows better; it has nothing to say before.
            if let Some(status) = self.end_by_descriptor() {
                return End::of_status(status);
            }
            match parse_exit_code(&line) {
                Some(0) if !self.may_know() => {}
                status => return status.map_or(End::Unknown, End::of_status),
            }
            if Instant::now() >= until {
                return End::Unknown;
            }
            std::thread::sleep(REAPED_LOOK);
        }
    }

    /// Whether `/proc` tells us the status: of another user's process it is 0. The link to what a process executes is denied to whom the status is,
    /// and is not there for others, once the process has ended.
    fn may_know(&self) -> bool {
        let link = std::fs::read_link(format!("/proc/{}/exe", self.program_pid));
        link.map_or_else(|e| e.kind() != ErrorKind::PermissionDenied, |_| true)
    }

    fn end_by_descriptor(&self) -> Option<i32> {
        /// `struct pidfd_info`.
        #[repr(C)]
        struct Info {
            mask: u64,
            others: [u32; 13],
            exit_code: i32,
        }
        const _: () = assert!(size_of::<Info>() == 64);
        let mut info = MaybeUninit::<Info>::zeroed();
        // SAFETY: all zero is a question for nothing; the kernel writes no more than the size that the code of the call has in it.
        let info = unsafe {
            (*info.as_mut_ptr()).mask = PIDFD_INFO_EXIT;
            if libc::ioctl(self.program.as_raw_fd(), PIDFD_GET_INFO, info.as_mut_ptr()) != 0 {
                return None;
            }
            info.assume_init()
        };
        (info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
    }
}

/// The status in a line of `/proc/PID/stat` of a process that has ended and was not waited for.
fn parse_exit_code(line: &[u8]) -> Option<i32> {
    let fields = fields_of(line)?;
    if *fields.first()? != "Z" {
        return None;
    }
    fields.get(STAT_EXIT_CODE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side_of(child: &std::process::Child) -> SupervisorSide {
        let pid = child.id() as i32;
        // SAFETY: as in `part`.
        let program = unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32) };
        let (socket, _) = UnixStream::pair().expect("descriptors");
        SupervisorSide { socket, program, program_pid: pid }
    }

    #[test]
    fn how_a_program_ended_is_known_before_and_after_it_was_waited_for() {
        for (script, end) in [("exit 3", End::Exited(3)), ("kill -9 $$", End::Killed(9)), ("exit 0", End::Exited(0))] {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().expect("a shell");
            let side = side_of(&child);
            assert_eq!(side.supervise(|| Duration::from_millis(10)), end, "{script}");
            child.wait().expect("our child");
            let after = side.end();
            // Before Linux 6.15 nobody knows any more.
            assert!(after == end || after == End::Unknown && side.end_by_descriptor().is_none(), "{script}: {after:?}");
        }
    }

    #[test]
    fn only_who_has_ended_has_a_status() {
        let line = |state| format!("7 (a) Z b) {state} 1 {} 768\n", "0 ".repeat(STAT_EXIT_CODE - 2));
        assert_eq!(parse_exit_code(line("Z").as_bytes()), Some(768));
        assert!(parse_exit_code(line("S").as_bytes()).is_none() && parse_exit_code(b"7 (a) Z 1 2").is_none());
        assert!(parse_exit_code(b"").is_none());
    }
}
