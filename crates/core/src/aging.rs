//! Aging: what the program has used, as far as the machine can tell, on its way to the reclaim policy.
use crate::machine::{Event, Machine};
use crate::page::State;
use crate::pager::{Pager, Policies};
use crate::reclaim::{ALL_ACCESSED, Reclaim};
use crate::store::Store;
use crate::units::{BLOCK_PAGES, BlockNo};

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Whether it is time to look at what was used.
    pub fn look_is_due(&self) -> bool {
        let now_ns = || self.machine.now_ns();
        self.policy().wants_looks() && self.looks.is_due(self.used_pages(), self.limit_pages(), now_ns)
    }

    /// A look begins. Returns when, for [`Pager::end_look`].
    pub fn begin_look(&self) -> u64 {
        self.looks.begin();
        self.machine.now_ns()
    }

    /// What it has found: of the resident pages of some blocks from `first` on, so many were accessed since the last look.
    pub fn looked(&self, first: BlockNo, blocks: u32, accessed_pages: u64) {
        let all = || (first.0..first.0 + blocks).map(BlockNo);
        let total: u64 = all().map(|block| self.resident_of(block)).sum();
        let all_accessed = u64::from(ALL_ACCESSED);
        // The kernel may count pages that have gone since.
        let Some(share) = (accessed_pages * all_accessed).checked_div(total) else { return };
        for block in all().filter(|&block| self.resident_of(block) > 0) {
            self.policy().looked(block, share.min(all_accessed) as u32, &self.pause());
        }
    }

    /// It is over.
    pub fn end_look(&self, begun_ns: u64) {
        let now_ns = self.machine.now_ns();
        self.looks.end(begun_ns, now_ns);
        self.machine.count(Event::Looks, 1);
        self.machine.count(Event::LookNs, now_ns.saturating_sub(begun_ns));
    }

    /// How many pages of a block are resident.
    pub fn resident_of(&self, block: BlockNo) -> u64 {
        (0..BLOCK_PAGES).filter(|&i| self.state(block.first_page().plus(i)) == State::Resident).count() as u64
    }
}
