//! Functions in front of those of the C library that make the calls which programs make most: where all that such a call names is
//! in memory, it needs no trap ([`outswap_runtime::direct`]).
use crate::{__errno_location, finish, next_function};
use core::ffi::{CStr, c_int};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use outswap_runtime::direct;
use outswap_sys::{Errno, nr};

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
    fn dl_iterate_phdr(look: extern "C" fn(&Library, usize, &mut Find) -> c_int, find: *mut Find) -> c_int;
}

/// The beginning of `dl_phdr_info`.
#[repr(C)]
struct Library {
    base: usize,
    name: *const u8,
    segments: *const Segment,
    count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Segment {
    kind: u32,
    rights: u32,
    offset: u64,
    address: usize,
    physical: u64,
    file_bytes: u64,
    bytes: usize,
    align: u64,
}

/// Looks for the segment of a library that an address lies in.
#[repr(C)]
struct Find {
    address: usize,
    /// From its first to behind its last byte.
    found: [usize; 2],
}

extern "C" fn look(library: &Library, _: usize, find: &mut Find) -> c_int {
    const LOAD: u32 = 1;
    if library.segments.is_null() {
        return 0;
    }
    // SAFETY: the linker's list of the segments of a library that is loaded.
    let segments = unsafe { core::slice::from_raw_parts(library.segments, usize::from(library.count)) };
    let mut ranges = segments.iter().filter(|segment| segment.kind == LOAD).map(|segment| {
        let start = library.base.wrapping_add(segment.address);
        start..start.wrapping_add(segment.bytes)
    });
    if let Some(range) = ranges.find(|range| range.contains(&find.address)) {
        find.found = [range.start, range.end];
        return 1;
    }
    0
}

/// Where the C library's code lies: empty where that is not known.
fn c_library_code() -> Range<usize> {
    static RANGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let [start, end] = RANGE.each_ref().map(|place| place.load(Acquire));
    if end > 0 {
        return start..end;
    }
    let mut find = Find { address: __errno_location as *const () as usize, found: [0; 2] };
    // SAFETY: a function of that form, and what it is to have. It calls nothing.
    unsafe { dl_iterate_phdr(look, &mut find) };
    let [start, end] = find.found;
    RANGE[0].store(start, Relaxed);
    RANGE[1].store(end, Release);
    start..end
}

/// Of an address of a function: it is somebody else's than the C library's, who must see all calls.
const FOREIGN: usize = 1 << 63;

type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// A function of the C library that one of ours stands in front of.
struct Behind {
    name: &'static CStr,
    /// Its address, perhaps with [`FOREIGN`]; 0 as long as it was not found.
    address: AtomicUsize,
}

impl Behind {
    fn find(&self) -> usize {
        let address = next_function(self.name);
        let foreign = address != 0 && !c_library_code().contains(&address);
        let address = address | if foreign { FOREIGN } else { 0 };
        self.address.store(address, Relaxed);
        address
    }

    fn get(&self) -> usize {
        match self.address.load(Relaxed) {
            0 => self.find(),
            address => address,
        }
    }
}

/// Makes a call of which `count` arguments count, with the function behind ours where it is not made directly.
unsafe fn call(behind: &Behind, nr: usize, count: usize, args: [usize; 6]) -> isize {
    let function = behind.get();
    let mut counted = [0; 6];
    counted[..count].copy_from_slice(&args[..count]);
    if function & FOREIGN == 0
        && let Some(direct) = direct::prepare(nr, counted)
    {
        const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;
        let mut old = 0;
        // All of these calls are points at which a thread can be cancelled, also while it waits; a thread that is alone, by itself
        // before.
        // SAFETY: the place for the old type; then the program's own call.
        unsafe {
            if direct.alone {
                pthread_testcancel();
                return finish(direct.make());
            }
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &mut old);
            let value = direct.make();
            pthread_setcanceltype(old, core::ptr::null_mut());
            return finish(value);
        }
    }
    if function == 0 {
        return finish(-(Errno::ENOSYS.0 as isize));
    }
    let [a, b, c, d, e, f] = args;
    // SAFETY: that is a function of this name, and the program's own call; arguments that it does not have are not looked at.
    unsafe { core::mem::transmute::<usize, Function>(function & !FOREIGN)(a, b, c, d, e, f) }
}

macro_rules! functions {
    ($($name:ident $count:literal $nr:ident)+) => {
        /// Finds what stands behind ours, while that may still take locks: later, a handler may make the first such call.
        pub fn find_all() {
            $(behind::$name.find();)+
        }

        #[allow(non_upper_case_globals)]
        mod behind {
            use super::{AtomicUsize, Behind, CStr};
            $(pub static $name: Behind = Behind {
                name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                address: AtomicUsize::new(0),
            };)+
        }

        $(
            /// The function of this name of the C library.
            ///
            /// # Safety
            /// As that function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
                // SAFETY: the caller vouches.
                unsafe { call(&behind::$name, nr::$nr, $count, [a, b, c, d, e, f]) }
            }
        )+
    };
}

// Name, number of arguments, and the call: those that have the call's arguments, in the call's order.
functions! {
    read 3 READ
    write 3 WRITE
    pread 4 PREAD64
    pread64 4 PREAD64
    pwrite 4 PWRITE64
    pwrite64 4 PWRITE64
    readv 3 READV
    writev 3 WRITEV
    recv 4 RECVFROM
    send 4 SENDTO
    recvfrom 6 RECVFROM
    sendto 6 SENDTO
    recvmsg 3 RECVMSG
    sendmsg 3 SENDMSG
    poll 3 POLL
    epoll_wait 4 EPOLL_WAIT
}
