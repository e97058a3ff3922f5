//! Measures the unit of compression: chunks of 4, 16 and 64 KiB, LZ4 and Zstandard, on half-compressible data.
//!
//! `cargo run --release -p outswap-store --example chunks`
use lz4_sys as _;
use std::ffi::c_int;
use std::hint::black_box;
use std::time::Instant;

unsafe extern "C" {
    fn LZ4_compress_default(src: *const u8, dst: *mut u8, src_len: c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe(src: *const u8, dst: *mut u8, src_len: c_int, dst_len: c_int) -> c_int;
    fn LZ4_decompress_safe_partial(
        src: *const u8,
        dst: *mut u8,
        src_len: c_int,
        target_len: c_int,
        dst_len: c_int,
    ) -> c_int;
}

/// Words of which half are small numbers and a third are pointers near each other: much as a heap looks.
fn heap_like(bytes: usize) -> Vec<u8> {
    let mut state = 88172645463325252u64;
    let mut data = Vec::with_capacity(bytes);
    while data.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = match state >> 60 {
            0..=4 => state >> 33 & 0xff,
            5..=9 => 0x7f3a_1000_0000 | (state >> 20 & 0xfffff8),
            10..=12 => 0,
            _ => state,
        };
        data.extend_from_slice(&word.to_le_bytes());
    }
    data
}

/// Half of every 512 bytes random, half one repeated word.
fn half_random(bytes: usize) -> Vec<u8> {
    let mut data = heap_like(bytes);
    let mut state = 88172645463325252u64;
    for (i, word) in data.chunks_exact_mut(8).enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = if i / 32 % 2 == 0 { state } else { (i / 512) as u64 };
        word.copy_from_slice(&value.to_le_bytes());
    }
    data
}

fn main() {
    const BYTES: usize = 64 << 20;
    measure("half random", &half_random(BYTES));
    measure("heap-like", &heap_like(BYTES));
}

fn measure(name: &str, data: &[u8]) {
    const BYTES: usize = 64 << 20;
    let pages = (BYTES / 4096) as f64;
    println!("{name}:");
    println!("codec   chunk  ratio  compress  decompress all  one random page   (ns per page)");
    for zstd in [false, true] {
        for chunk in [4096usize, 16384, 65536] {
            let mut packed = vec![0u8; chunk * 2];
            let mut units = Vec::new();
            let mut total = 0;
            let start = Instant::now();
            for src in data.chunks_exact(chunk) {
                // SAFETY: lengths are those of the buffers.
                let len = unsafe {
                    if zstd {
                        zstd_compress(src, &mut packed)
                    } else {
                        let (src_len, room) = (chunk as c_int, packed.len() as c_int);
                        LZ4_compress_default(src.as_ptr(), packed.as_mut_ptr(), src_len, room) as usize
                    }
                };
                total += len;
                units.push(packed[..len].to_vec());
            }
            let compress_ns = start.elapsed().as_nanos() as f64 / pages;
            let mut out = vec![0u8; chunk];
            let start = Instant::now();
            for unit in &units {
                // SAFETY: as above.
                unsafe {
                    if zstd {
                        zstd_decompress(unit, &mut out);
                    } else {
                        LZ4_decompress_safe(unit.as_ptr(), out.as_mut_ptr(), unit.len() as c_int, chunk as c_int);
                    }
                }
                black_box(&out);
            }
            let all_ns = start.elapsed().as_nanos() as f64 / pages;
            let start = Instant::now();
            let reads = 100_000;
            for i in 0..reads {
                let unit = &units[i * 7919 % units.len()];
                let end = ((i % (chunk / 4096)) + 1) * 4096;
                // SAFETY: as above.
                unsafe {
                    if zstd {
                        zstd_decompress(unit, &mut out);
                    } else {
                        let (len, end) = (unit.len() as c_int, end as c_int);
                        LZ4_decompress_safe_partial(unit.as_ptr(), out.as_mut_ptr(), len, end, end);
                    }
                }
                black_box(&out);
            }
            let one_ns = start.elapsed().as_nanos() as f64 / reads as f64;
            println!(
                "{:5} {:3} KiB  {:5.3} {compress_ns:9.0} {all_ns:15.0} {one_ns:16.0}",
                if zstd { "zstd1" } else { "lz4" },
                chunk >> 10,
                BYTES as f64 / total as f64
            );
        }
    }
}

unsafe fn zstd_compress(src: &[u8], dst: &mut [u8]) -> usize {
    use zstd_sys::*;
    // SAFETY: one context for the whole run, lengths are those of the buffers.
    unsafe {
        static mut CONTEXT: *mut ZSTD_CCtx = std::ptr::null_mut();
        if CONTEXT.is_null() {
            CONTEXT = ZSTD_createCCtx();
        }
        ZSTD_compressCCtx(CONTEXT, dst.as_mut_ptr().cast(), dst.len(), src.as_ptr().cast(), src.len(), 1)
    }
}

unsafe fn zstd_decompress(src: &[u8], dst: &mut [u8]) {
    use zstd_sys::*;
    // SAFETY: as above.
    unsafe {
        static mut CONTEXT: *mut ZSTD_DCtx = std::ptr::null_mut();
        if CONTEXT.is_null() {
            CONTEXT = ZSTD_createDCtx();
        }
        ZSTD_decompressDCtx(CONTEXT, dst.as_mut_ptr().cast(), dst.len(), src.as_ptr().cast(), src.len());
    }
}
