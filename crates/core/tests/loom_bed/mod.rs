//! What the loom models of the pager and of its pins stand on.

use outswap_core::table::Reserve;
use outswap_core::units::PAGE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Mutex;

/// Memory of zeros, given back when the execution is over.
pub struct Memory {
    pub base: *mut u8,
    layout: Layout,
}
impl Memory {
    pub fn new(bytes: usize) -> Memory {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).expect("sizes are small");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Memory { base, layout }
    }
}
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

#[derive(Default)]
pub struct Arena(Mutex<Vec<Memory>>);
impl Reserve for Arena {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        let memory = Memory::new(bytes);
        let base = memory.base;
        self.0.lock().expect("no panic while held").push(memory);
        base
    }
}
