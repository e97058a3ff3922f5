//! What goes wrong in the simulated machine.

/// How often things go wrong that may go wrong: once in so many times, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// Pages that are not taken.
    pub take_refused_in: u32,
    /// Installs that are to be tried again.
    pub put_again_in: u32,
    /// Installs for which there is no memory.
    pub no_memory_in: u32,
    /// Questions whether zero pages can be mapped that are answered with yes.
    pub maps_zero_in: u32,
    /// Questions whether pages can be left to the kernel that are answered with yes.
    pub untraps_in: u32,
    /// Pages that are not trapped.
    pub trap_refused_in: u32,
    /// Pages of zeros that are taken away where they are trapped.
    pub zeros_taken_in: u32,
    /// Moves that are refused.
    pub transfer_refused_in: u32,
    /// Changes of access that are refused.
    pub protect_refused_in: u32,
    /// Batches that are not released.
    pub release_refused_in: u32,
    /// Dropped pages that stay mapped, as zeros.
    pub drop_kept_in: u32,
    /// Pages at which another of the machine's own mappings starts: nothing is installed across such a border.
    pub border_in: u32,
}
