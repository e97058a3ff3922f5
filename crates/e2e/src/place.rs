//! Where the tests are, and how they were asked to run.
use std::path::{Path, PathBuf};

/// Whether both sides are run plainly, to prove the tests themselves.
pub fn plain_mode() -> bool {
    std::env::var_os("OUTSWAP_E2E_PLAIN").is_some_and(|v| v == "1")
}

/// The workspace.
pub fn workspace() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).expect("the crate lies two levels below the workspace").into()
}
