//! Memory for tables of the core crate that are measured by themselves.
use std::alloc::{Layout, alloc_zeroed};

use outswap_core::table::Reserve;

/// Tables are never given back.
pub struct Leak;

impl Reserve for Leak {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        match Layout::from_size_align(bytes.max(1), 4096) {
            // SAFETY: the size is not zero.
            Ok(layout) => unsafe { alloc_zeroed(layout) },
            Err(_) => std::ptr::null_mut(),
        }
    }
}
