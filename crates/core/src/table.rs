//! Tables: zeroed memory that is reserved once and lives as long as the pager.
use core::ops::Deref;

/// Where tables come from: the live pager maps them without reserving, tests allocate them.
pub trait Reserve {
    /// Returns `bytes` of zeroed memory aligned to a page, which stays valid for as long as the pager lives,
    /// or null where there is none.
    fn reserve(&self, bytes: usize) -> *mut u8;
}

/// Types for which memory of zero bytes is a valid value.
///
/// # Safety
/// All-zero bytes must be a valid value of the type, and it must need no drop.
pub unsafe trait Zeroed {}
// SAFETY: integers in atomics are valid when zero.
unsafe impl Zeroed for crate::sync::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for crate::sync::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for crate::sync::AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for u64 {}

/// A fixed array in reserved memory. Reading an element that was never written gives zero.
pub struct Table<T: 'static> {
    items: &'static [T],
}

impl<T: Zeroed> Table<T> {
    /// Reserves a table of `len` elements; `None` where there is no memory.
    pub fn new(from: &impl Reserve, len: usize) -> Option<Table<T>> {
        let base = from.reserve(core::mem::size_of::<T>() * len) as *const T;
        if base.is_null() {
            return None;
        }
        // SAFETY: `reserve` returned zeroed, page-aligned memory of that size that outlives the pager, and zero is
        // a valid `T`.
        Some(Table { items: unsafe { core::slice::from_raw_parts(base, len) } })
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.items
    }
}

/// For tests of what lies in tables.
#[cfg(test)]
pub(crate) mod tests {
    use super::Reserve;
    use std::alloc::{Layout, alloc_zeroed};

    /// Memory that is never given back.
    pub(crate) struct Leak;
    impl Reserve for Leak {
        fn reserve(&self, bytes: usize) -> *mut u8 {
            let layout = Layout::from_size_align(bytes.max(1), 4096).expect("tests are small");
            // SAFETY: the size is not zero.
            unsafe { alloc_zeroed(layout) }
        }
    }
}
