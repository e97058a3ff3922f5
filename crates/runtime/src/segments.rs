//! The segments of what the kernel and the dynamic linker have mapped: the program, and its libraries.
use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;

/// A program header (`Elf64_Phdr`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    /// What it is.
    pub kind: u32,
    /// Rights.
    pub rights: u32,
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in memory, from where its object lies.
    pub at: u64,
    /// Nothing.
    pub physical: u64,
    /// Bytes that the file has of it.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Its border.
    pub align: u64,
}

/// A segment that is loaded.
pub const PT_LOAD: u32 = 1;
/// Of [`Segment::rights`]: its code may run.
pub const PF_X: u32 = 1;
/// The headers themselves.
pub const PT_PHDR: u32 = 6;
/// What is only read once the linker has filled in its addresses (`PT_GNU_RELRO`).
pub const PT_RELRO: u32 = 0x6474_e552;

/// The beginning of `dl_phdr_info`.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    segments: *const Segment,
    count: u16,
}

type Look = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

unsafe extern "C" {
    /// The C library's.
    fn dl_iterate_phdr(look: Look, data: *mut c_void) -> c_int;
}

/// Calls `f` with where each object lies, its name, which is empty for the program, and its segments, the program first, until it says that it
/// has seen enough. The linker is kept from loading and closing others meanwhile, by a lock: not for handlers of signals.
pub fn each_object<F: FnMut(usize, &CStr, &[Segment]) -> bool>(mut f: F) {
    unsafe extern "C" fn look<F: FnMut(usize, &CStr, &[Segment]) -> bool>(
        object: *const Object,
        _: usize,
        f: *mut c_void,
    ) -> c_int {
        // SAFETY: what the linker passes, and the closure below, which nobody else uses meanwhile.
        let (object, f) = unsafe { (&*object, &mut *f.cast::<F>()) };
        if object.segments.is_null() {
            return 0;
        }
        // SAFETY: the linker's list of the segments of what is loaded, and its name for that.
        let (segments, name) = unsafe {
            let name = if object.name.is_null() { c"" } else { CStr::from_ptr(object.name) };
            (slice::from_raw_parts(object.segments, usize::from(object.count)), name)
        };
        f(object.base, name, segments).into()
    }
    // SAFETY: a function of that form, and what it is to have.
    unsafe { dl_iterate_phdr(look::<F>, (&raw mut f).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_code_is_in_one_object() {
        let at = this_programs_code_is_in_one_object as *const () as usize;
        let mut found = 0;
        each_object(|base, _, segments| {
            let within = |s: &&Segment| (s.at..s.at + s.bytes).contains(&(at.wrapping_sub(base) as u64));
            found += segments.iter().filter(|s| s.kind == PT_LOAD).filter(within).count();
            false
        });
        assert_eq!(found, 1);
        let mut objects = 0;
        each_object(|_, _, _| {
            objects += 1;
            true
        });
        assert_eq!(objects, 1, "it ends where it is told to");
    }
}
