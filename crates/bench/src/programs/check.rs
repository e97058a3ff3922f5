//! One number for all that a program printed and wrote: a wrong byte makes it another one.
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// FNV-1a over bytes, in 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Check(u64);

impl Check {
    /// Of nothing.
    pub fn new() -> Check {
        Check(0xcbf2_9ce4_8422_2325)
    }

    /// Takes more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3));
    }

    /// Takes all that can be read.
    pub fn add_all(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => self.add(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes names and contents of all files below a folder.
    pub fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&entry.path())?;
            } else if kind.is_file() {
                self.add(entry.file_name().as_encoded_bytes());
                self.add_all(File::open(entry.path())?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of(bytes: &[u8]) -> Check {
        let mut check = Check::new();
        check.add(bytes);
        check
    }

    #[test]
    fn it_is_what_others_compute_too() {
        assert_eq!(of(b"").to_string(), "cbf29ce484222325");
        assert_eq!(of(b"foobar").to_string(), "85944171f73967e8");
    }

    #[test]
    fn every_byte_counts_however_they_come() {
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let mut read = Check::new();
        read.add_all(&bytes[..]).expect("a slice can be read");
        assert_eq!(read, of(&bytes));
        for place in [0, 65_535, 65_536, 199_999] {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert_ne!(of(&other), of(&bytes), "byte {place}");
        }
    }

    #[test]
    fn a_folder_is_what_its_files_hold() {
        let folder = std::env::temp_dir().join(format!("outswap-bench-check-{}", std::process::id()));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).expect("a temporary folder");
        let check = || {
            let mut check = Check::new();
            check.add_folder(&folder).expect("it can be read");
            check
        };
        let empty = check();
        let mut file = File::create(inner.join("file")).expect("the folder is ours");
        let named = check();
        file.write_all(b"content").expect("a small file");
        let full = check();
        assert!(empty != named && named != full && full == check());
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
