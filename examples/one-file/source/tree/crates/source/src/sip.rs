//! Takes pages in sips: as [`crate::copying`] does, but a few at a time. What is left of a block goes another time.
use crate::copying::Copying;
use crate::host::{FaultSource, Host};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, PageNo};
use outswap_sys::Result;

/// Most pages that are taken at a time.
const SIP_PAGES: usize = 8;
/// How many pages have been taken when the user is told.
const TOLD_PAGES: u64 = 1000;

/// Pages that this process has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// See the top of the file.
pub struct Sip;

impl FaultSource for Sip {
    fn open() -> Result<i32> {
        Copying::open()
    }

    fn register(fd: i32, addr: usize, len: usize) -> Result<()> {
        Copying::register(fd, addr, len)
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        Copying::may_be_missing(signal, code)
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        let sip: Mask = wanted.all().iter().take(SIP_PAGES).collect();
        let wanted = Wanted { framed: wanted.framed & sip, clean: wanted.clean & sip };
        let taken = Copying::take(host, first, sip.end(), wanted, batch, offset);
        let count = taken.all().count() as u64;
        let before = TAKEN.fetch_add(count, Relaxed);
        if before < TOLD_PAGES && before + count >= TOLD_PAGES {
            host.post(b"the fault source sip has taken 1000 pages, up to 8 at a time");
        }
        taken
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
        Copying::put_back(host, first, batch, pages, held)
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        Copying::put(host, first, src, write_protected)
    }

    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
        Copying::fill(host, frame, content)
    }

    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        Copying::put_zero(host, first, count)
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        Copying::transfer(host, from, to)
    }

    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        Copying::protect(host, first, count, prot)
    }
}
