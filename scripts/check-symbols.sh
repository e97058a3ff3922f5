#!/bin/bash
# The fault path may not allocate, unwind, do buffered I/O or set up thread-local storage: the built preload library must not
# import what would do so. (`dlsym`, `dl_iterate_phdr`
# and the pthread functions serve functions that stand in front of the C library's, outside the fault path; `malloc` and `free` belong to functions of LZ4 and zstd
# that are not called.)
set -euo pipefail
lib=target/release/liboutswap_preload.so
allowed='^(__cxa_finalize|__errno_location|__libc_stack_end|getauxval|__gmon_start__|_ITM_.*|dlsym|dl_iterate_phdr|malloc|free|pthread_mutexattr_getrobust|pthread_setcanceltype|pthread_testcancel|mem(cpy|move|set|cmp)|bcmp|strlen|__stack_chk_fail|ZSTD_trace_.*)$'
bad=$(nm -D --undefined-only "$lib" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -vE "$allowed" || true)
if [[ -n $bad ]]; then
    echo "$lib imports what the fault path must not use:" >&2
    echo "$bad" >&2
    exit 1
fi
# Rust's own allocator is a stand-in that gives nothing (crates/preload/src/lib.rs): the linker leaves it out where nobody asks.
asked=$(nm -C "$lib" | grep -E ' (__rustc::)?__rust_alloc|alloc::alloc::|alloc::raw_vec::|outswap_preload::allocates' || true)
if [[ -n $asked ]]; then
    echo "$lib has code that allocates:" >&2
    echo "$asked" >&2
    exit 1
fi
if readelf -lW "$lib" | grep -q ' TLS '; then
    echo "$lib has thread-local storage, which may be set up lazily" >&2
    exit 1
fi
echo "symbols of the preload library: ok"
