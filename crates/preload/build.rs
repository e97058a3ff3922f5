//! Linker options of the preload library.
fn main() {
    // All symbols are resolved when the library is loaded: the fault path must not enter the dynamic linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboutswap_preload.so");
}
