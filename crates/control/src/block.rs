//! The control block of a run, with those of the runs around it.
use crate::config::Config;
use crate::shared::{MARKS, Process, SILENT_MARKS, Shared, TREE_PEAKS, exists};
use core::ops::Deref;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};
use outswap_sys::os;

/// Runs inside each other whose limits all hold; those further out are not obeyed.
pub const MAX_LEVELS: usize = 4;

/// Descriptors of a run that processes inherit: configuration, shared part, and where files are asked for.
pub const CONTROL_FDS: i32 = 3;

/// The control block of one run, as this process has it mapped, and those of the runs around it.
pub struct Control {
    /// What was asked for.
    pub config: &'static Config,
    shared: &'static Shared,
    /// The run that this one is inside of.
    pub outer: Option<&'static Control>,
    /// This process's record here, where this is an outer run; null before it has one.
    pub record: AtomicPtr<Process>,
    /// The descriptor of the shared part; negative where this process has none.
    pub shared_fd: AtomicI32,
    /// This process's mark; 0 where its number stands for it.
    mark: AtomicI32,
}

impl Control {
    /// Puts the parts together.
    pub fn new(config: &'static Config, shared: &'static Shared, outer: Option<&'static Control>) -> Control {
        Control {
            config,
            shared,
            outer,
            record: AtomicPtr::new(core::ptr::null_mut()),
            shared_fd: AtomicI32::new(-1),
            mark: AtomicI32::new(0),
        }
    }

    /// What every process of the tree can write.
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// This run and those around it, from the inside out.
    pub fn levels(&self) -> impl Iterator<Item = &Control> {
        core::iter::successors(Some(self), |c| c.outer)
    }

    /// What stands for this process, which is `pid`, in its record.
    pub fn number(&self, pid: i32) -> i32 {
        match self.mark.load(Relaxed) {
            0 => pid,
            mark => mark,
        }
    }

    /// Whether this process is known here by a mark.
    pub fn is_marked(&self) -> bool {
        self.mark.load(Relaxed) != 0
    }

    /// Whether it is known by a mark of which nobody can tell whether it lives.
    pub fn is_silent(&self) -> bool {
        self.mark.load(Relaxed) >= SILENT_MARKS
    }

    /// From here on this process is known by a new mark, because its number is of another pid namespace than the supervisor's. As long
    /// as it lives, it has a byte of the shared part locked, which tells everybody that it does, whatever he can see.
    ///
    /// The lock is gone when the process closes any descriptor of the shared part: it then counts as dead, and has to be marked anew.
    pub fn mark(&self) {
        let number = self.shared.give_mark();
        let fd = self.shared_fd.load(Relaxed);
        let is_told = fd >= 0 && os::lock_byte(fd, number).is_ok();
        self.mark.store(if is_told { MARKS } else { SILENT_MARKS } + number as i32, Relaxed);
    }

    /// Whether the process lives that is known by a number or a mark. One of which that cannot be told does.
    pub fn exists(&self, number: i32) -> bool {
        let (fd, own) = (self.shared_fd.load(Relaxed), self.mark.load(Relaxed));
        if number < MARKS {
            // Who has a mark sees other processes, or none, under the numbers of others.
            return own != 0 || exists(number);
        }
        // Every process of the tree can write any number there.
        self.shared.is_mark(number)
            && (number >= SILENT_MARKS
                || number == own
                || fd < 0
                || os::locked_by(fd, (number - MARKS) as u32) != Ok(None))
    }

    /// The number, in the caller's pid namespace, of the process that is known by a number or a mark. `None` where it has none there, or
    /// nobody can tell.
    pub fn pid_of(&self, number: i32) -> Option<i32> {
        if number < MARKS {
            return (!self.is_marked()).then_some(number);
        }
        let fd = self.shared_fd.load(Relaxed);
        let owner = os::locked_by(fd, (number - MARKS) as u32).ok().flatten();
        owner.filter(|pid| *pid > 0 && number < SILENT_MARKS)
    }

    /// What the processes of the tree have that run unmanaged, in bytes. The supervisor says so at its looks; one that ends before the
    /// next is asked for here.
    pub fn outside(&self) -> u64 {
        self.shared.unmanaged.bytes(|pid| self.exists(pid))
    }

    /// Sum of the charges of all live processes but the one with this record, and of what runs unmanaged, bytes.
    pub fn charges_of_others(&self, own: *const Process) -> u64 {
        self.shared.charges_but(own).saturating_add(self.outside())
    }

    /// Sums of [`TREE_PEAKS`] over all live processes, bytes; they go into the highest ones.
    pub fn note_peaks(&self) -> [u64; TREE_PEAKS.len()] {
        self.shared.note_peaks_with(self.outside())
    }

    /// The descriptor at which this process asks for files, if it is there still.
    pub fn requests_fd(&self) -> Option<i32> {
        let fd = self.shared_fd.load(Relaxed) + 1;
        let status = os::fstat(fd).ok().filter(|_| fd > 0 && self.config.requests != [0; 2])?;
        ([status.device, status.inode] == self.config.requests).then_some(fd)
    }

    /// Counts a process that runs unmanaged, in all runs.
    pub fn count_unmanaged(&self) {
        self.levels().for_each(|level| {
            level.processes_unmanaged.fetch_add(1, Relaxed);
        });
    }

    /// Whether any of the runs has a budget for memory.
    pub fn has_budget(&self) -> bool {
        self.levels().any(|c| c.config.ram_bytes > 0)
    }
}

impl Deref for Control {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_unmanaged_and_has_ended_counts_no_longer() {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        let shared = unsafe { &*(at as *const Shared) };
        let control = Control::new(&Config::EMPTY, shared, None);
        shared.take(7).expect("room").charge_bytes.store(100, Relaxed);
        // No process has the second number.
        shared.unmanaged.set(&[(os::getpid(), 4096), (1 << 23, 8192)], 5);
        assert_eq!((control.outside(), control.charges_of_others(core::ptr::null())), (4101, 4201));
        assert_eq!(control.note_peaks()[TREE_PEAKS.len() - 1], 4101);
        control.mark();
        assert_eq!(control.outside(), 12293, "who cannot see them takes them to live");
    }

    #[test]
    fn who_has_a_mark_judges_by_marks_alone() {
        let at = os::mmap_anonymous(size_of::<Shared>()).expect("memory");
        // SAFETY: fresh zero pages are a valid block, and stay mapped.
        let shared = unsafe { &*(at as *const Shared) };
        let control = Control::new(&Config::EMPTY, shared, None);
        let nobody = MARKS - 1;
        assert!(control.number(7) == 7 && !control.is_marked() && !control.exists(nobody));
        assert_eq!(control.pid_of(7), Some(7));
        control.mark();
        let silent = control.number(7);
        assert!(control.is_marked() && silent >= SILENT_MARKS, "nothing to be locked");
        assert!(control.exists(silent) && control.pid_of(silent).is_none());
        assert!(!control.exists(silent + 1) && !control.exists(i32::MAX), "not given");
        assert!(control.exists(nobody), "another namespace's");

        let fd = os::memfd_create(b"test\0", 0).expect("memory");
        control.shared_fd.store(fd, Relaxed);
        control.mark();
        let own = control.number(7);
        assert!((MARKS..SILENT_MARKS).contains(&own) && own - MARKS == silent + 1 - SILENT_MARKS, "a new one");
        assert!(control.exists(own) && control.exists(silent));
        assert!(!control.exists(own - 1) && control.pid_of(own - 1).is_none(), "nobody has locked that");
        os::close(fd).expect("ours");
    }
}
