//! userfaultfd with `UFFDIO_COPY` (Linux 5.11): pages are copied both ways.
use crate::host::{FaultSource, Host};
use crate::userfault;
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, PageNo};
use outswap_sys::Result;
use outswap_sys::uffd::{COPY_FEATURES, Uffd};

/// userfaultfd with `UFFDIO_COPY`.
pub struct Copying;

impl FaultSource for Copying {
    const LOSES_PAGES: bool = true;
    const WRITE_PROTECTS: bool = true;

    fn open() -> Result<i32> {
        Uffd::open(COPY_FEATURES).map(|uffd| uffd.0)
    }

    fn register(fd: i32, addr: usize, len: usize) -> Result<()> {
        Uffd(fd).register(addr, len, true)
    }

    fn may_be_missing(signal: i32, code: i32) -> bool {
        userfault::may_be_missing(signal, code)
    }

    fn take(host: &impl Host, first: PageNo, _count: usize, wanted: Wanted, batch: BatchNo, offset: usize) -> Taken {
        userfault::take_by_mapping(host, first, wanted, |at, count, wanted| {
            userfault::take_part(host, first.plus(at), count, wanted, batch, offset + at)
        })
    }

    fn put_back(host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, _held: Mask) -> Mask {
        userfault::put_back(host, first, batch, pages)
    }

    fn put(host: &impl Host, first: PageNo, src: &[u8], write_protected: bool) -> (usize, Option<PutError>) {
        userfault::put(host, first, src, write_protected)
    }

    fn fill(host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
        userfault::fill(host, frame, content)
    }

    fn forbid_writes(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::set_writes(host, first, count, false)
    }

    fn allow_writes(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::set_writes(host, first, count, true)
    }

    fn put_zero(host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        userfault::put_zero(host, first, count)
    }

    const UNTRAPS: bool = true;

    fn untrap(host: &impl Host, first: PageNo, count: usize) -> bool {
        userfault::untrap(host, first, count)
    }

    fn transfer(host: &impl Host, from: PageNo, to: PageNo) -> bool {
        userfault::transfer(host, from, to)
    }

    fn protect(host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
        host.set_access(first, count, prot).is_ok()
    }
}
