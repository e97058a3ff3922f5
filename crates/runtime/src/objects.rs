//! Shared objects: what one call mapped as shared anonymous memory, as long as it is managed. Only one process can see it by
//! then, so it is managed as private memory is; what differs stands with the calls that can tell the two apart.
//!
//! A number belongs to an object until nothing of it is mapped any more, or until it is the kernel's ([`crate::whole`]). Objects
//! are changed under the lock of memory calls, or while everybody else is kept out.
use crate::limits::OBJECTS;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use outswap_core::units::PageNo;
use outswap_core::vma::ObjectNo;

/// Pages of an object: none where its number is free.
struct Extent {
    first: AtomicU32,
    count: AtomicU32,
}

/// The shared objects of a process.
pub struct Objects {
    extents: [Extent; OBJECTS],
    used: AtomicU32,
    /// New ones are the kernel's.
    closed: AtomicBool,
}

impl Objects {
    /// None yet. Whether shared memory is managed at all.
    pub fn new(on: bool) -> Objects {
        Objects {
            extents: [const { Extent { first: AtomicU32::new(0), count: AtomicU32::new(0) } }; OBJECTS],
            used: AtomicU32::new(0),
            closed: AtomicBool::new(!on),
        }
    }

    /// Whether there is any: else nothing needs to be looked at.
    pub fn any(&self) -> bool {
        self.used.load(Relaxed) > 0
    }
    /// Whether shared memory that is mapped from now on is managed.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Relaxed)
    }
    /// Leaves to the kernel what is mapped from now on.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// A number for an object. `None` where all are in use.
    pub fn add(&self, first: PageNo, count: u32) -> Option<ObjectNo> {
        let free = self.extents.iter().position(|extent| extent.count.load(Relaxed) == 0)?;
        let extent = &self.extents[free];
        extent.first.store(first.0, Relaxed);
        extent.count.store(count, Relaxed);
        self.used.fetch_add(1, Relaxed);
        Some(ObjectNo(free as u16))
    }
    /// Where an object was mapped. All that is left of it lies there: what moves is the kernel's first.
    pub fn extent(&self, object: ObjectNo) -> (PageNo, u32) {
        let extent = &self.extents[object.0 as usize];
        (PageNo(extent.first.load(Relaxed)), extent.count.load(Relaxed))
    }
    /// Nothing of an object is left.
    pub fn free(&self, object: ObjectNo) {
        self.extents[object.0 as usize].count.store(0, Relaxed);
        self.used.fetch_sub(1, Relaxed);
    }
    /// The objects that were mapped somewhere in a range.
    pub fn mapped_in(&self, first: PageNo, count: u32) -> impl Iterator<Item = ObjectNo> + '_ {
        let end = first.0.saturating_add(count);
        let all = (0..OBJECTS as u16).map(ObjectNo).take_while(|_| self.any());
        all.filter(move |object| {
            let (from, pages) = self.extent(*object);
            pages > 0 && from.0 < end && first.0 < from.0 + pages
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_again() {
        let objects = Objects::new(true);
        assert!(!objects.any() && objects.is_open() && !Objects::new(false).is_open());
        let all: Vec<ObjectNo> = (0..OBJECTS as u32).map_while(|i| objects.add(PageNo(i * 10), 10)).collect();
        assert_eq!(all.len(), OBJECTS);
        assert_eq!(objects.add(PageNo(1 << 20), 1), None);
        assert_eq!(objects.mapped_in(PageNo(15), 10).collect::<Vec<_>>(), [all[1], all[2]]);
        assert_eq!(objects.mapped_in(PageNo(20), 1).collect::<Vec<_>>(), [all[2]]);
        objects.free(all[2]);
        assert_eq!(objects.mapped_in(PageNo(20), 1).next(), None);
        let again = objects.add(PageNo(1 << 20), 1).expect("one is free");
        assert_eq!((again, objects.extent(again)), (all[2], (PageNo(1 << 20), 1)));
    }
}
