//! Waiting for a child to execute a program or to end: `clone` with `CLONE_VFORK` and without `CLONE_VM`.
//!
//! The kernel would hold the caller in that call, in which all other threads are kept out of the runtime. So it makes a pipe, whose one
//! end the child has: the kernel closes it when the child executes a program or ends, and the caller, who reads from the other, goes on.
//! Whoever else has the child's end would hold it up. So it is made, and the caller's copy of it closed, while no other thread forks; and a
//! child of the child closes its own.
use crate::limits::CHILD_ENDS;
use crate::process;
use core::sync::atomic::{AtomicI32, Ordering::*};
use outswap_sys::{Errno, nr, os};

const NONE: i32 = -1;
/// Our ends of such pipes.
static ENDS: [AtomicI32; CHILD_ENDS] = [const { AtomicI32::new(NONE) }; CHILD_ENDS];

/// A pipe whose one end closes when a child has executed a program or ended.
#[derive(Clone, Copy)]
pub struct ChildEnd {
    read: i32,
    write: i32,
}

/// Whether a descriptor is one of ours here.
pub fn is_ours(fd: i32) -> bool {
    ENDS.iter().any(|end| end.load(Relaxed) == fd)
}

fn keep(fd: i32) -> bool {
    ENDS.iter().any(|end| end.compare_exchange(NONE, fd, AcqRel, Relaxed).is_ok())
}

/// It is none of ours any more. False where it was none.
fn forget(fd: i32) -> bool {
    ENDS.iter().any(|end| end.compare_exchange(fd, NONE, AcqRel, Relaxed).is_ok())
}

/// Closes an end, unless that was done.
fn close(fd: i32) {
    if forget(fd) {
        let _ = os::close(fd);
    }
}

impl ChildEnd {
    /// Makes one, with numbers from `min_fd` on. `None` where no more descriptors are to be had, or too many threads wait for children: then
    /// nobody waits. No other thread may fork until [`ChildEnd::only_read`].
    pub fn new(min_fd: i32) -> Option<ChildEnd> {
        let make = || {
            let mut fds = [0i32; 2];
            // SAFETY: a place for two descriptors.
            let made = unsafe { outswap_sys::syscall2(nr::PIPE2, fds.as_mut_ptr() as usize, os::O_CLOEXEC) };
            outswap_sys::ret(made).ok().map(|_| fds.map(|fd| process::raise(fd, min_fd)))
        };
        // The program may have used all numbers that it may have; another thread of its may have more for a moment.
        let [read, write] = make().or_else(|| process::with_all_descriptors(make))?;
        if keep(read) && keep(write) {
            return Some(ChildEnd { read, write });
        }
        for fd in [read, write] {
            forget(fd);
            let _ = os::close(fd);
        }
        None
    }

    /// In the parent, once the child is there, or is not after all.
    pub fn only_read(&self) {
        close(self.write);
    }

    /// Waits for the child, and gives the pipe up.
    pub fn wait(self) {
        let mut byte = [0u8; 1];
        while os::read(self.read, &mut byte) == Err(Errno::EINTR) {}
        close(self.read);
    }
}

/// In a forked child: of all ends that were copied only the one stays that tells of this child.
pub fn become_child(own: Option<ChildEnd>) {
    let own = own.map_or(NONE, |end| end.write);
    for end in ENDS.iter().map(|end| end.load(Relaxed)).filter(|&end| end != NONE && end != own) {
        close(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_the_last_copy_of_the_childs_end_is_closed() {
        let end = ChildEnd::new(200).expect("descriptors");
        let copy = os::fcntl(end.write, os::F_DUPFD_CLOEXEC, 0).expect("a number") as i32;
        assert!(is_ours(end.read) && is_ours(end.write) && end.read >= 200 && end.write >= 200);
        assert!(!is_ours(copy) && !is_ours(NONE - 1));
        end.only_read();
        assert!(is_ours(end.read) && !is_ours(end.write));
        let waits = std::thread::spawn(move || end.wait());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waits.is_finished());
        os::close(copy).expect("open");
        waits.join().expect("it ends");
        assert!(!is_ours(end.read));
        // A child keeps its own, and what it copied of others goes.
        let (own, other) = (ChildEnd::new(200).expect("descriptors"), ChildEnd::new(200).expect("descriptors"));
        become_child(Some(own));
        assert!(is_ours(own.write) && !is_ours(own.read) && !is_ours(other.read) && !is_ours(other.write));
        become_child(None);
        assert!(!is_ours(own.write));
        // As many as there are places, and no more descriptors are used than those.
        let ends: Vec<ChildEnd> = std::iter::from_fn(|| ChildEnd::new(200)).collect();
        assert_eq!(ends.len(), CHILD_ENDS / 2);
        become_child(None);
        assert!(ENDS.iter().all(|end| end.load(Relaxed) == NONE));
    }
}
