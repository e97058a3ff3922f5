//! The control block of a run, with those of the runs around it.
use crate::config::Config;
use crate::shared::{Process, Shared};
use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Runs inside each other whose limits all hold; those further out are not obeyed.
pub const MAX_LEVELS: usize = 4;

/// The control block of one run, as this process has it mapped, and those of the runs around it.
pub struct Control {
    /// What was asked for.
    pub config: &'static Config,
    shared: &'static Shared,
    /// The run that this one is inside of.
    pub outer: Option<&'static Control>,
    /// This process's record here, where this is an outer run; null before it has one.
    pub record: AtomicPtr<Process>,
}

impl Control {
    /// Puts the parts together.
    pub fn new(config: &'static Config, shared: &'static Shared, outer: Option<&'static Control>) -> Control {
        Control { config, shared, outer, record: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// What every process of the tree can write.
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// This run and those around it, from the inside out.
    pub fn levels(&self) -> impl Iterator<Item = &Control> {
        core::iter::successors(Some(self), |c| c.outer)
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
