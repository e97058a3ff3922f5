//! Linker options of the preload library.
fn main() {
    // All symbols are resolved when the library is loaded: the fault path must not enter the dynamic linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its constructor is the first of all: those of other libraries may make threads, which have to be told of from their first call on.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Until the C library 2.34, what finds functions and what is for threads are libraries of their own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--push-state,--as-needed,-ldl,-lpthread,--pop-state");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboutswap_preload.so");
}
