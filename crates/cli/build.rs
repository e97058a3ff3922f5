//! With the feature `bundled`, builds the libraries that are loaded into programs, so that the executable can carry them: for
//! `cargo install`, which installs executables alone.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

/// The crates that the libraries consist of.
const CRATES: &[&str] = &["sys", "core", "control", "source", "store", "runtime", "preload", "malloc"];
const LIBRARIES: &[&str] = &["liboutswap_preload.so", "liboutswap_malloc.so"];

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("Cargo sets {name}")).into()
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_BUNDLED").is_none() {
        return;
    }
    let workspace = variable("CARGO_MANIFEST_DIR").join("../..");
    let target = variable("OUT_DIR").join("libraries");
    for name in CRATES {
        println!("cargo::rerun-if-changed={}", workspace.join("crates").join(name).display());
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(name).display());
    }
    let mut cargo = Command::new(variable("CARGO"));
    // A directory of its own: that of the build around this one is locked.
    cargo.args(["build", "--release", "--locked", "-p", "outswap-preload", "-p", "outswap-malloc", "--target-dir"]);
    cargo.arg(&target).current_dir(&workspace);
    // What this build is told does not hold for that one.
    for (name, _) in std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        ["CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_", "DEP_"].iter().any(|head| name.starts_with(head))
    }) {
        cargo.env_remove(name);
    }
    for name in
        ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "OUT_DIR", "TARGET"]
    {
        cargo.env_remove(name);
    }
    // Carried in each executable, so without what only a debugger reads.
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "0").env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let status = cargo.status().expect("Cargo runs, as it runs this");
    assert!(status.success(), "the libraries could not be built: {status}");
    let mut hasher = DefaultHasher::new();
    for name in LIBRARIES {
        let path = target.join("release").join(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).hash(&mut hasher);
    }
    println!("cargo::rustc-env=BUNDLED_HASH={}", hasher.finish());
}
