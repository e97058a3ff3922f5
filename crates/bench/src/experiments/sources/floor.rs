//! What the parts of a fault take by themselves: a trap and the return from it, one page decompressed, one page put in place. And what
//! it takes to flush the TLB of another processor, which taking pages and freeing frames do where another thread runs.
//!
//! Measured in a process of its own, which changes its signal handlers.
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use outswap_sys::uffd::{COPY_FEATURES, Uffd};
use serde_json::{Value, json};

use crate::content::{Content, Page};
use crate::stats::Summary;
use crate::units::{PAGE_BYTES, PageNo};
use crate::worker;

/// Pages of a batch.
const PAGES: usize = 2048;
/// Batches, of which the median is taken.
const BATCHES: usize = 9;
/// From one page to the next: neighbours would be merged into one mapping of the kernel. It and [`PAGES`] have no factor in common.
const STEP: usize = 731;
/// For how long a thread is looked at that nobody disturbs.
const UNDISTURBED: Duration = Duration::from_millis(50);
/// Bytes of the instruction that touches a page.
const TOUCH_BYTES: libc::greg_t = 2;

/// Goes on behind the instruction that trapped.
extern "C" fn skip(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the context of the thread.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] += TOUCH_BYTES;
}

/// Makes traps by `signal` cost what they cost and nothing else.
fn skip_at(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid action, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = skip as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler is async-signal-safe. Only `touch` traps in this process.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a byte of a page by an instruction of [`TOUCH_BYTES`], `mov al, [rdi]`, which [`skip`] passes over where it traps.
fn touch(page: *const u8) {
    // SAFETY: reads one byte, or nothing where it traps.
    unsafe { std::arch::asm!(".byte 0x8a, 0x07", in("rdi") page, out("al") _, options(readonly, nostack)) };
}

/// The places of a batch, none beside the one before.
fn places() -> impl Iterator<Item = usize> {
    (0..PAGES).map(|n| n * STEP % PAGES)
}

/// The median time of a page, in ns. `before` is not timed.
fn timed(mut before: impl FnMut() -> io::Result<()>, mut page: impl FnMut(usize) -> io::Result<()>) -> io::Result<f64> {
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        before()?;
        let start = Instant::now();
        for place in places() {
            page(place)?;
        }
        batches.push(start.elapsed().as_nanos() as f64 / PAGES as f64);
    }
    Ok(Summary::of(&batches).expect("there are batches").median)
}

/// Memory for a batch.
struct Range(*mut u8);

impl Range {
    fn new() -> io::Result<Range> {
        let pages = worker::map(PAGES, libc::MAP_PRIVATE)?;
        Ok(Range(pages.as_mut_ptr().cast()))
    }
    fn page(&self, place: usize) -> *mut u8 {
        self.0.wrapping_add(place * PAGE_BYTES)
    }
    fn ok(status: libc::c_int) -> io::Result<()> {
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    fn advise(&self, place: usize, pages: usize, advice: usize) -> io::Result<()> {
        // SAFETY: advice for pages of this range, which nobody else uses.
        Range::ok(unsafe { libc::madvise(self.page(place).cast(), pages * PAGE_BYTES, advice as libc::c_int) })
    }
    fn protect(&self, place: usize, pages: usize, rights: libc::c_int) -> io::Result<()> {
        // SAFETY: pages of this range, which nobody else uses.
        Range::ok(unsafe { libc::mprotect(self.page(place).cast(), pages * PAGE_BYTES, rights) })
    }
    /// Fills a page that may be written.
    fn fill(&self, place: usize, content: &Page) {
        // SAFETY: a page of this range.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr().cast(), self.page(place), PAGE_BYTES) };
    }
}

/// The two times of a page, in ns: a trap by [`touch`] and the return from it, and what `put` does. `empty` makes all pages trap.
fn trap_and_put(
    range: &Range,
    empty: impl Fn() -> io::Result<()>,
    put: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<[f64; 2]> {
    let trap = |place| {
        touch(range.page(place));
        Ok(())
    };
    Ok([timed(&empty, trap)?, timed(&empty, put)?])
}

/// With userfaultfd: trap and return, and `UFFDIO_COPY`.
fn userfault(content: &Page) -> io::Result<[f64; 2]> {
    let refused = |error: outswap_sys::Errno| io::Error::from_raw_os_error(error.0);
    let uffd = Uffd::open(COPY_FEATURES).map_err(refused)?;
    let range = Range::new()?;
    uffd.register(range.0 as usize, PAGES * PAGE_BYTES, true).map_err(refused)?;
    skip_at(libc::SIGBUS)?;
    let drop = || range.advise(0, PAGES, libc::MADV_DONTNEED as usize);
    trap_and_put(&range, drop, |place| {
        // SAFETY: a missing page of our range, and a page to copy.
        let progress = unsafe { uffd.copy(range.page(place) as usize, content.as_ptr().cast(), PAGE_BYTES, false) };
        progress.error.map_or(Ok(()), |error| Err(refused(error)))
    })
}

/// With guard markers: trap and return, and a marker taken away and the page written.
fn guard(content: &Page) -> io::Result<[f64; 2]> {
    let range = Range::new()?;
    skip_at(libc::SIGSEGV)?;
    let install = || range.advise(0, PAGES, outswap_sys::os::MADV_GUARD_INSTALL);
    trap_and_put(&range, install, |place| {
        range.advise(place, 1, outswap_sys::os::MADV_GUARD_REMOVE)?;
        range.fill(place, content);
        Ok(())
    })
}

/// With access rights: trap and return, and rights given and the page written.
fn rights(content: &Page) -> io::Result<[f64; 2]> {
    let range = Range::new()?;
    skip_at(libc::SIGSEGV)?;
    let close = || {
        range.advise(0, PAGES, libc::MADV_DONTNEED as usize)?;
        range.protect(0, PAGES, libc::PROT_NONE)
    };
    trap_and_put(&range, close, |place| {
        range.protect(place, 1, libc::PROT_READ | libc::PROT_WRITE)?;
        range.fill(place, content);
        Ok(())
    })
}

/// One page decompressed with LZ4, of content as the workers have it.
fn decompress(content: &Page) -> io::Result<f64> {
    let mut packed = vec![0u8; 2 * PAGE_BYTES];
    let (from, room) = (content.as_ptr().cast(), packed.len() as libc::c_int);
    // SAFETY: lengths are those of the buffers.
    let len =
        unsafe { lz4_sys::LZ4_compress_default(from, packed.as_mut_ptr().cast(), PAGE_BYTES as libc::c_int, room) };
    let mut out = vec![0u8; PAGE_BYTES];
    timed(
        || Ok(()),
        |_| {
            let (packed, out) = (black_box(&packed), black_box(&mut out));
            // SAFETY: lengths are those of the buffers.
            let got = unsafe {
                lz4_sys::LZ4_decompress_safe(
                    packed.as_ptr().cast(),
                    out.as_mut_ptr().cast(),
                    len,
                    PAGE_BYTES as libc::c_int,
                )
            };
            if got == PAGE_BYTES as libc::c_int { Ok(()) } else { Err(io::Error::other("a page was not decompressed")) }
        },
    )
}

/// Counts as long as it is let.
struct Counter {
    counted: AtomicU64,
    ends: AtomicBool,
}

impl Counter {
    fn run(&self) {
        while !self.ends.load(Relaxed) {
            // Work of about a microsecond that needs no memory.
            let mut word = black_box(1u64);
            (0..1000).for_each(|_| word = word.wrapping_mul(3) ^ 1);
            black_box(word);
            self.counted.fetch_add(1, Relaxed);
        }
    }
    /// How much it counts in a nanosecond while `f` runs; and what `f` gives.
    fn rate<R>(&self, f: impl FnOnce() -> R) -> (f64, R) {
        let (before, start) = (self.counted.load(Relaxed), Instant::now());
        let result = f();
        let elapsed_ns = start.elapsed().as_nanos() as f64;
        ((self.counted.load(Relaxed) - before) as f64 / elapsed_ns, result)
    }
}

/// What dropping one page costs more while another thread runs, and what that one loses each time, in ns.
fn flush() -> io::Result<[f64; 2]> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Err(io::Error::other("there is one processor"));
    }
    let range = Range::new()?;
    let content: Page = [0; PAGE_BYTES / 8];
    let drop_one = |place| {
        range.fill(place, &content);
        range.advise(place, 1, libc::MADV_DONTNEED as usize)
    };
    let alone_ns = timed(|| Ok(()), drop_one)?;
    let counter = Counter { counted: AtomicU64::new(0), ends: AtomicBool::new(false) };
    std::thread::scope(|threads| {
        threads.spawn(|| counter.run());
        let (rate, ()) = counter.rate(|| std::thread::sleep(UNDISTURBED));
        let (disturbed, beside_ns) = counter.rate(|| timed(|| Ok(()), drop_one));
        counter.ends.store(true, Relaxed);
        let beside_ns = beside_ns?;
        Ok([beside_ns - alone_ns, (1.0 - disturbed / rate) * beside_ns])
    })
}

fn floors() -> io::Result<Value> {
    let start = Instant::now();
    let mut page: Page = [0; PAGE_BYTES / 8];
    Content::new().write(PageNo(1), 0, &mut page);
    let parts = |measured: io::Result<[f64; 2]>| match measured {
        Ok([trap_ns, put_ns]) => json!({ "trap_ns": trap_ns, "put_ns": put_ns }),
        Err(error) => json!({ "missing": error.to_string() }),
    };
    let userfault = parts(userfault(&page));
    Ok(json!({
        "decompress_ns": decompress(&page)?,
        "move": userfault,
        "copy": userfault,
        "guard": parts(guard(&page)),
        "mprotect": parts(rights(&page)),
        "flush": match flush() {
            Ok([send_ns, lost_ns]) => json!({ "send_ns": send_ns, "lost_ns": lost_ns }),
            Err(error) => json!({ "missing": error.to_string() }),
        },
        "elapsed_ns": start.elapsed().as_nanos() as u64,
    }))
}

/// `floor-worker`: prints one line of JSON.
pub fn main() -> ExitCode {
    worker::end_with_parent();
    worker::finish(floors().map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_comes_once_and_none_beside_the_one_before() {
        let mut all: Vec<_> = places().collect();
        assert!(all.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1));
        all.sort_unstable();
        assert_eq!(all, (0..PAGES).collect::<Vec<_>>());
    }
}
