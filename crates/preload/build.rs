//! Linker options of the preload library.
fn main() {
    // All symbols are resolved when the library is loaded: the fault path must not enter the dynamic linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its constructor is the first of all: those of other libraries may make threads, which have to be told of from their first call on.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboutswap_preload.so");
}
