//! The runtime's descriptors, which the program neither closes nor replaces.
use crate::live::Live;
use crate::store::ProcessStore;
use crate::{child_end, kept};
use core::sync::atomic::Ordering::Relaxed;
use outswap_control::Once;
use outswap_sys::nr;

/// Opens what is otherwise opened when it is needed: before there is a second thread, or less may be opened. The caller is the only thread
/// of its process.
pub fn open_all(live: &Live) {
    kept::open_held();
    if live.pager.store.is_file_put_off() {
        live.pager.store.make_file();
        if live.pager.store.file_error().is_some() {
            live.control.post_once(Once::NoFileLater);
        }
    }
}

/// Whether a descriptor is the runtime's.
pub fn is_ours(live: &Live, fd: i32) -> bool {
    // The control block's two come first.
    (live.control_fd..live.control_fd + 2).contains(&fd)
        || fd == live.control_fd + 2 && live.control.requests_fd() == Some(fd)
        || live.pager.machine.source_fd.load(Relaxed) == fd
        || kept::is_ours(fd)
        || child_end::is_ours(fd)
        || live.pager.store.descriptors().any(|ours| ours == fd)
}

/// `close_range`, which passes over our descriptors.
pub fn close_range(live: &Live, [first, last, flags, ..]: [usize; 6]) -> isize {
    let (first, last) = (first as u32 as usize, last as u32 as usize);
    let close = |first: usize, last: usize| {
        // SAFETY: closes the program's descriptors, as it asked.
        unsafe { outswap_sys::syscall3(nr::CLOSE_RANGE, first, last, flags) }
    };
    if first > last || last < *live.fds.start() as usize {
        return close(first, last);
    }
    let (mut from, mut result) = (first, 0);
    for ours in live.fds.clone().map(|fd| fd as usize).filter(|fd| (first..=last).contains(fd)) {
        if is_ours(live, ours as i32) {
            if from < ours {
                result = result.min(close(from, ours - 1));
            }
            from = ours + 1;
        }
    }
    if from <= last { result.min(close(from, last)) } else { result }
}
