//! Files that a run writes: opened before it begins, so that a mistake shows at once, and changed only where it has begun.
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file to be written. Dropped before [`Output::begin`], it leaves what was there before.
pub struct Output {
    file: File,
    made: Made,
    /// What was written there before stays.
    is_appended: bool,
}

/// The file that was made, where there was none: nobody shall find it who finds no run.
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Output {
    /// Opens a file, which is made where there is none. To open a pipe waits for who reads it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> std::io::Result<Output> {
        Output::open_with(path, 0)
    }

    /// Standard output, behind what the program writes there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn standard() -> std::io::Result<Output> {
        let file = std::io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Output { file, made: Made(None), is_appended: true })
    }

    fn open_with(path: &Path, flags: i32) -> std::io::Result<Output> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags);
        let (file, made) = match options.create_new(true).open(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                (options.create_new(false).create(true).open(path)?, Made(None))
            }
            made => (made?, Made(Some(path.into()))),
        };
        Ok(Output { file, made, is_appended: false })
    }

    /// Whether such a file could be written, as far as that shows without a change.
    ///
    /// # Errors
    /// As [`Output::open`]. That nobody reads a pipe yet is none.
    pub fn test(path: &Path) -> std::io::Result<()> {
        match Output::open_with(path, libc::O_NONBLOCK) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            tried => tried.map(drop),
        }
    }

    /// The run has begun: the file, empty. A pipe or terminal cannot be cut to length and needs no cutting.
    pub fn begin(mut self) -> File {
        self.made.0 = None;
        if !self.is_appended {
            let _ = self.file.set_len(0);
        }
        self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_what_has_begun_changes_anything() {
        let path = std::env::temp_dir().join(format!("outswap-output-{}", std::process::id()));
        Output::test(&path).expect("it can be written");
        drop(Output::open(&path).expect("it can be written"));
        assert!(!path.exists());
        fs::write(&path, "before").expect("ours");
        Output::test(&path).expect("it can be written");
        let output = Output::open(&path).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "before");
        output.begin().write_all(b"new").expect("there is room");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        fs::remove_file(&path).expect("ours");
        assert!(Output::open(Path::new("/no/such/directory")).is_err());
    }
}
