//! LZ4 and Zstandard without allocation, and the scratch memory of one runtime context.
//!
//! # The unit of compression
//! A folio is compressed in units of 2^[`UNIT_ORDER`] pages, or page by page. Measured with
//! `cargo run --release -p outswap-store --example chunks` (one run on a busy
//! 2-core VM; chunks of 4 / 16 / 64 KiB; ns per 4 KiB page; "one" is one random page out of a
//! chunk, decoded no further than needed with LZ4):
//!
//! | data, codec | ratio | compress | decompress all | one |
//! | --- | --- | --- | --- | --- |
//! | half random, LZ4 | 1.94 / 1.95 / 1.95 | 2622 / 2146 / 2183 | 176 / 105 / 231 | 281 / 391 / 979 |
//! | half random, zstd 1 | 1.94 / 1.96 / 1.97 | 5129 / 2925 / 2629 | 294 / 233 / 281 | 473 / 1164 / 4265 |
//! | heap-like, LZ4 | 1.62 / 1.70 / 1.74 | 7790 / 7413 / 7552 | 1390 / 1739 / 1213 | 1937 / 3909 / 11167 |
//! | heap-like, zstd 1 | 1.97 / 2.05 / 2.09 | 15853 / 17058 / 10105 | 5252 / 6198 / 4523 | 5484 / 19666 / 85434 |
//!
//! 16 KiB has most of what 64 KiB wins in ratio; a random page costs a quarter to two fifths of what it costs there.
//! For LZ4, see [`Algorithm::unit_order`].
use crate::limits::{FETCH_BYTES, MAX_SEALED_BYTES, MAX_UNIT_BYTES, UNIT_ORDER};
use crate::pace::Requests;
use core::ffi::{c_char, c_int, c_void};
use lz4_sys as _;
use outswap_core::units::{Order, PAGE_BYTES};

/// How a unit is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

impl Codec {
    /// From two bits of a record or header.
    pub fn from_bits(bits: u64) -> Codec {
        match bits & 3 {
            0 => Codec::Raw,
            1 => Codec::Lz4,
            _ => Codec::Zstd,
        }
    }
}

/// A compressor as the swap specification names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// LZ4, its fast mode.
    Lz4,
    /// Zstandard with a level; 0 stands for level 3, and levels whose state would take more than its share of a
    /// [`Worker`] are lowered to the highest that does not.
    Zstd(i32),
}

impl Algorithm {
    /// The order of the units that a folio is best compressed in. With LZ4 each page is a unit: a folio that is read again at
    /// random would cost two to three pages' decoding for each page wanted, which is a sixth of such a fault, for a
    /// twentieth of space. Who asks for Zstandard asks for space.
    pub fn unit_order(self) -> Order {
        if self == Algorithm::Lz4 { Order::PAGE } else { UNIT_ORDER }
    }
}

/// The longest compressed form that is kept: 7/8 of the unit. What saves less than an eighth loses a third
/// of that to size classes and headers, and each read of it would still pay for decompression.
pub(crate) const fn worthwhile(len: usize) -> usize {
    len - len / 8
}

/// `sizeof(LZ4_stream_t)`.
const LZ4_STATE_BYTES: usize = (1 << 14) + 32;
/// What Zstandard's state may take for units of [`UNIT_ORDER`] and below, and how it grows with those above.
const ZSTD_STATE_BYTES: usize = 256 << 10;
const ZSTD_CCTX_BYTES: usize = ZSTD_STATE_BYTES * (MAX_UNIT_BYTES / UNIT_ORDER.pages() / PAGE_BYTES);
const ZSTD_DCTX_BYTES: usize = 144 << 10;

unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe(src: *const c_char, dst: *mut c_char, src_len: c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe_partial(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        target_len: c_int,
        dst_len: c_int,
    ) -> c_int;
}

/// Scratch memory of one runtime context. All-zero memory is a valid worker. What Zstandard needs is touched by Zstandard only,
/// and of each buffer as much as the units are large.
#[repr(C, align(64))]
pub struct Worker {
    lz4: [u8; LZ4_STATE_BYTES],
    /// Compressed bytes on their way in or out.
    pub(crate) packed: [u8; MAX_SEALED_BYTES],
    /// A sealed unit on its way to the file.
    pub(crate) sealed: [u8; MAX_SEALED_BYTES],
    /// Sealed units as they were read from a file.
    pub(crate) fetched: [u8; FETCH_BYTES],
    /// What is asked of devices that tiers are slowed to.
    pub(crate) requests: Requests,
    pub(crate) scratch: Scratch,
    zstd_c: *mut zstd_sys::ZSTD_CCtx,
    zstd_c_space: [u64; ZSTD_CCTX_BYTES / 8],
}

/// What decoding needs.
#[repr(C, align(64))]
pub(crate) struct Scratch {
    /// A decoded unit of which only a part is wanted.
    plain: [u8; MAX_UNIT_BYTES],
    zstd_d: *mut zstd_sys::ZSTD_DCtx,
    zstd_d_space: [u64; ZSTD_DCTX_BYTES / 8],
}

// SAFETY: the pointers point into the worker itself, which its user never shares.
unsafe impl Send for Worker {}

impl Worker {
    /// Bytes of memory that a worker needs, virtual; see [`Worker`] for what is touched.
    pub const BYTES: usize = size_of::<Worker>();

    /// Makes a worker at `at`.
    ///
    /// # Safety
    /// `at` is page-aligned, points to `Worker::BYTES` of zeroed memory that nothing else uses, and stays there.
    pub unsafe fn init(at: *mut u8) -> &'static mut Worker {
        // SAFETY: zeroed memory is a valid worker, and the caller gives it to us alone.
        unsafe { &mut *at.cast::<Worker>() }
    }
}

/// The compressor of one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compressor {
    pub codec: Codec,
    level: i32,
}

impl Compressor {
    /// For units of an order and below.
    pub fn new(algorithm: Algorithm, order: Order) -> Compressor {
        match algorithm {
            Algorithm::Lz4 => {
                // SAFETY: reads a constant.
                let need = unsafe { LZ4_sizeofState() };
                // A library with a larger state would write past ours: then only raw storage is safe.
                let codec = if need as usize <= LZ4_STATE_BYTES { Codec::Lz4 } else { Codec::Raw };
                Compressor { codec, level: 0 }
            }
            Algorithm::Zstd(level) => {
                let mut level = if level == 0 { 3 } else { level.clamp(-50, 22) };
                let highest = order.max(UNIT_ORDER);
                let room = ZSTD_STATE_BYTES * highest.pages().div_ceil(UNIT_ORDER.pages());
                let fits = |level| {
                    Order::ALL[..=highest.get()].iter().all(|order| {
                        // SAFETY: arithmetic on parameters only.
                        unsafe {
                            let params = zstd_sys::ZSTD_getCParams(level, (order.pages() * PAGE_BYTES) as u64, 0);
                            zstd_sys::ZSTD_estimateCCtxSize_usingCParams(params) <= room
                        }
                    })
                };
                while level > 1 && !fits(level) {
                    level -= 1;
                }
                Compressor { codec: Codec::Zstd, level }
            }
        }
    }

    /// In two numbers.
    pub fn pack(self) -> [i32; 2] {
        [self.codec as i32, self.level]
    }

    /// By what [`Compressor::pack`] gave.
    pub fn unpack([codec, level]: [i32; 2]) -> Compressor {
        Compressor { codec: Codec::from_bits(codec as u64), level }
    }

    /// Compresses into `worker.packed`. `None` where that saves too little.
    pub fn compress(self, src: &[u8], worker: &mut Worker) -> Option<usize> {
        let room = worthwhile(src.len());
        match self.codec {
            Codec::Raw => None,
            Codec::Lz4 => {
                // SAFETY: the state is large enough (checked in `new`), `room` is within `packed`.
                let len = unsafe {
                    LZ4_compress_fast_extState(
                        worker.lz4.as_mut_ptr().cast(),
                        src.as_ptr().cast(),
                        worker.packed.as_mut_ptr().cast(),
                        src.len() as c_int,
                        room as c_int,
                        1,
                    )
                };
                (len > 0).then_some(len as usize)
            }
            Codec::Zstd => {
                // SAFETY: the context lies in its own aligned space inside the worker; lengths are the buffers'.
                unsafe {
                    if worker.zstd_c.is_null() {
                        let space = worker.zstd_c_space.as_mut_ptr().cast();
                        worker.zstd_c = zstd_sys::ZSTD_initStaticCCtx(space, ZSTD_CCTX_BYTES);
                        if worker.zstd_c.is_null() {
                            return None;
                        }
                    }
                    let dst = worker.packed.as_mut_ptr().cast();
                    let src_at = src.as_ptr().cast();
                    let len = zstd_sys::ZSTD_compressCCtx(worker.zstd_c, dst, room, src_at, src.len(), self.level);
                    (zstd_sys::ZSTD_isError(len) == 0).then_some(len)
                }
            }
        }
    }
}

/// Extra bytes that are decoded past a part of a unit: LZ4 copies what reaches up to the end byte by byte.
const LZ4_TAIL_BYTES: usize = 64;

/// Decodes the unit in `src`, of `unit_bytes` when decoded, and writes what follows `skip_bytes` of it to `out`.
/// Decodes no further than needed where the codec can stop early.
pub(crate) fn decode(
    codec: Codec,
    src: &[u8],
    unit_bytes: usize,
    skip_bytes: usize,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<(), ()> {
    let end = skip_bytes + out.len();
    if end > unit_bytes || unit_bytes > MAX_UNIT_BYTES {
        return Err(());
    }
    let whole = skip_bytes == 0 && end == unit_bytes;
    let dst: *mut u8 = if whole { out.as_mut_ptr() } else { scratch.plain.as_mut_ptr() };
    // At least so much must come out; more may.
    let got = match codec {
        Codec::Raw => {
            out.copy_from_slice(src.get(skip_bytes..end).ok_or(())?);
            return Ok(());
        }
        Codec::Lz4 => {
            let target = (end + LZ4_TAIL_BYTES).min(unit_bytes);
            let (len, target) = (src.len() as c_int, target as c_int);
            // SAFETY: `dst` has room for a whole unit where `target` may be less; the decoder checks its input.
            unsafe {
                if target as usize == unit_bytes {
                    LZ4_decompress_safe(src.as_ptr().cast(), dst.cast(), len, target) as isize
                } else {
                    LZ4_decompress_safe_partial(src.as_ptr().cast(), dst.cast(), len, target, target) as isize
                }
            }
        }
        // SAFETY: as above; the context lies in its own aligned space inside the scratch.
        Codec::Zstd => unsafe {
            if scratch.zstd_d.is_null() {
                let space = scratch.zstd_d_space.as_mut_ptr().cast();
                scratch.zstd_d = zstd_sys::ZSTD_initStaticDCtx(space, ZSTD_DCTX_BYTES);
                if scratch.zstd_d.is_null() {
                    return Err(());
                }
            }
            // Zstandard decodes whole units only.
            let got =
                zstd_sys::ZSTD_decompressDCtx(scratch.zstd_d, dst.cast(), unit_bytes, src.as_ptr().cast(), src.len());
            if zstd_sys::ZSTD_isError(got) != 0 { -1 } else { got as isize }
        },
    };
    if got < end as isize {
        return Err(());
    }
    if !whole {
        out.copy_from_slice(&scratch.plain[skip_bytes..end]);
    }
    Ok(())
}
