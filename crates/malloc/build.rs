//! Linker options of the allocator library.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Until the C library 2.34, what finds functions and what is for threads are libraries of their own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--push-state,--as-needed,-ldl,-lpthread,--pop-state");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboutswap_malloc.so");
}
