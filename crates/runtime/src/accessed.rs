//! What the program has used: the processor's accessed bits, as far as the kernel tells them without privilege.
//!
//! `/proc/self/smaps` has, for each of the kernel's mappings, how many of its bytes were accessed since `/proc/self/clear_refs`
//! was last written. So that a mapping is a block, each second block of the managed range is given advice that makes it another
//! mapping than its neighbours, and does nothing else for anonymous memory. Mappings are limited, so this ends at a number of
//! them; what is known then is known of several blocks together.
//!
//! Only the background thread looks. Where the files cannot be opened (no `/proc`, a process that is not dumpable), nothing is
//! known.
use crate::arena::{self, page_of};
use crate::avoided;
use crate::layout::ARENA;
use crate::limits::SPLITS;
use crate::live::Live;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use outswap_core::units::{BLOCK_PAGES, BlockNo, PAGE_BYTES};
use outswap_sys::os;
use outswap_sys::procfs;

const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE_BYTES;
/// What is read of the file at one time.
const BUFFER_BYTES: usize = 16 << 10;

/// Blocks that were made mappings of their own.
static SPLIT: AtomicU32 = AtomicU32::new(0);

/// Looks, if it is time.
pub fn look_if_due(live: &Live) {
    if !live.pager.look_is_due() || !avoided::may_name_files() {
        return;
    }
    // Inside, so that no fork copies a lock of the pager held.
    live.contexts.with(|_| {
        let begun_ns = live.pager.begin_look();
        if look(live).is_some() {
            let _ = clear();
        }
        live.pager.end_look(begun_ns);
    });
}

/// Has the kernel forget what was accessed.
fn clear() -> Option<()> {
    let fd = os::open(b"/proc/thread-self/clear_refs\0", os::O_WRONLY | os::O_CLOEXEC, 0).ok()?;
    // Of anonymous memory.
    let done = os::write(fd, b"2");
    let _ = os::close(fd);
    done.ok().map(|_| ())
}

/// Reads what was accessed, and tells the pager.
fn look(live: &Live) -> Option<()> {
    let fd = os::open(b"/proc/thread-self/smaps\0", os::O_RDONLY | os::O_CLOEXEC, 0).ok()?;
    let mut buffer = [0u8; BUFFER_BYTES];
    let mut mapping = None;
    let mut len = 0;
    loop {
        let n = match os::read(fd, &mut buffer[len..]) {
            Ok(0) | Err(_) => break,
            Ok(n) => n,
        };
        len += n;
        let mut at = 0;
        while let Some(end) = buffer[at..len].iter().position(|&c| c == b'\n') {
            line(live, &buffer[at..at + end], &mut mapping);
            at += end + 1;
        }
        buffer.copy_within(at..len, 0);
        len -= at;
        if len == BUFFER_BYTES {
            // No line is so long.
            break;
        }
    }
    let _ = os::close(fd);
    Some(())
}

/// A line of the file; `mapping` is the part of the managed range that the lines are about.
fn line(live: &Live, line: &[u8], mapping: &mut Option<(usize, usize)>) {
    const ACCESSED: &[u8] = b"Referenced:";
    const HELD: &[u8] = b"Rss:";
    if let Some(range) = range_of(line) {
        let end = live.arena_end();
        *mapping = (range.0 >= ARENA && range.1 <= end).then_some(range);
    } else if line.starts_with(HELD) && procfs::number(&line[HELD.len()..]) == 0 {
        *mapping = None;
    } else if line.starts_with(ACCESSED)
        && let Some((start, end)) = mapping.take()
    {
        told(live, start, end, procfs::number(&line[ACCESSED.len()..]) * 1024 / PAGE_BYTES as u64);
    }
}

/// The kernel tells how many pages of a mapping were accessed.
fn told(live: &Live, start: usize, end: usize, accessed_pages: u64) {
    let first = page_of(start).block();
    let blocks = (end - ARENA).div_ceil(BLOCK_BYTES) as u32 - first.0;
    if blocks > 1 {
        split(live, first, blocks);
    }
    live.pager.looked(first, blocks, accessed_pages);
}

/// Makes blocks mappings of their own, where there is something in them or beside them.
fn split(live: &Live, first: BlockNo, blocks: u32) {
    for block in (first.0..first.0 + blocks).filter(|block| block % 2 == 1) {
        if SPLIT.load(Relaxed) >= SPLITS {
            return;
        }
        let near = block - 1..=block + 1;
        if !near.into_iter().any(|near| live.pager.resident_of(BlockNo(near)) > 0) {
            continue;
        }
        if arena::keep_apart(BlockNo(block).first_page(), BLOCK_PAGES).is_ok() {
            SPLIT.fetch_add(1, Relaxed);
        }
    }
}

/// The range of addresses that a line begins with, of those that begin with one.
fn range_of(line: &[u8]) -> Option<(usize, usize)> {
    let dash = line.iter().take(17).position(|&c| c == b'-')?;
    let end = line[dash + 1..].iter().take(17).position(|&c| c == b' ')?;
    let hex = |text: &[u8]| text.iter().try_fold(0usize, |n, &c| Some(n << 4 | (c as char).to_digit(16)? as usize));
    Some((hex(&line[..dash])?, hex(&line[dash + 1..dash + 1 + end])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_begin_a_mapping_are_told_from_the_others() {
        assert_eq!(range_of(b"7f00a000-7f00b000 rw-p 00000000 00:00 0 "), Some((0x7f00_a000, 0x7f00_b000)));
        assert_eq!(
            range_of(b"ffffffffff600000-ffffffffff601000 --xp 0"),
            Some((0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000))
        );
        for other in [&b"Referenced:            4 kB"[..], b"Rss:  8 kB", b"VmFlags: rd wr mr", b"", b"-", b"a-"] {
            assert_eq!(range_of(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
