//! A library as it was when a run began: whether a file is that one still, or one with the same bytes in it.
use outswap_sys::os;

/// What tells a library's file from others.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Library {
    /// Device and inode.
    pub file: [u64; 2],
    /// Its length.
    pub size_bytes: u64,
    /// When it was written.
    pub written_ns: u64,
    /// So many bytes from its beginning have the hash below: all that is ever loaded of it.
    pub hashed_bytes: u64,
    /// A hash of those.
    pub hash: u64,
}

/// What is found where a library was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// That library, or a copy of it.
    Same,
    /// Something else.
    Other,
    /// What may not be read.
    Unreadable,
    /// Nothing.
    Missing,
}

impl Library {
    /// No library.
    pub const NONE: Library = Library { file: [0; 2], size_bytes: 0, written_ns: 0, hashed_bytes: 0, hash: 0 };

    /// Looks at an open file, of which so many bytes are hashed.
    ///
    /// # Errors
    /// As the kernel says where it cannot be looked at.
    pub fn of(fd: i32, hashed_bytes: u64) -> outswap_sys::Result<Library> {
        let status = os::fstat(fd)?;
        let hash = hash::<0x2000>(fd, hashed_bytes)?;
        Ok(Library { hashed_bytes, hash, ..Library::by_status(&status) })
    }

    fn by_status(status: &os::FileStatus) -> Library {
        let file = [status.device, status.inode];
        Library { file, size_bytes: status.size_bytes, written_ns: status.written_ns, ..Library::NONE }
    }

    /// What is at a path (NUL-terminated) now. It is only read where it is another file, or was written to.
    pub fn find(&self, path: &[u8]) -> Found {
        const R_OK: usize = 4;
        let Ok(status) = os::stat_at(None, path) else { return Found::Missing };
        if !os::may_access(path, R_OK) {
            return Found::Unreadable;
        }
        let now = Library::by_status(&status);
        if now == (Library { hashed_bytes: 0, hash: 0, ..*self }) {
            return Found::Same;
        }
        if now.size_bytes != self.size_bytes {
            return Found::Other;
        }
        let Ok((fd, _)) = os::open_regular(None, path, os::O_RDONLY) else { return Found::Unreadable };
        // In small parts: the runtime has little stack.
        let is_same = hash::<0x800>(fd, self.hashed_bytes) == Ok(self.hash);
        let _ = os::close(fd);
        if is_same { Found::Same } else { Found::Other }
    }
}

/// A hash of the first bytes of a file, eight at a time (FNV-1a of words), read in parts of so many bytes.
fn hash<const PART_BYTES: usize>(fd: i32, bytes: u64) -> outswap_sys::Result<u64> {
    let mut part = [0u8; PART_BYTES];
    let (mut hash, mut at) = (crate::fingerprint::START, 0);
    while at < bytes {
        let want = part.len().min((bytes - at) as usize);
        let mut have = 0;
        while have < want {
            match os::pread(fd, &mut part[have..want], at + have as u64)? {
                0 => break,
                n => have += n,
            }
        }
        let words_end = want.next_multiple_of(size_of::<u64>());
        part[have..words_end].fill(0);
        for word in part[..words_end].as_chunks().0 {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        at += want as u64;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_copy_is_the_same_and_nothing_else_is() {
        let dir = std::env::temp_dir().join(format!("outswap-library-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let path = |name: &str| [dir.join(name).to_str().expect("UTF-8").as_bytes(), b"\0"].concat();
        let content: Vec<u8> = (0..10_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let put = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).expect("writable");
        put("library", &content);
        let fd = os::open(&path("library"), os::O_RDONLY, 0).expect("ours");
        let library = Library::of(fd, 9_999).expect("it can be read");
        os::close(fd).expect("ours");
        assert_eq!(library.find(&path("library")), Found::Same);
        put("copy", &content);
        assert_eq!(library.find(&path("copy")), Found::Same);
        assert_eq!(library.find(&path("nothing")), Found::Missing);
        for at in [0, 2047, 2048, 5_000, 9_998] {
            let mut other = content.clone();
            other[at] ^= 1;
            put("other", &other);
            assert_eq!(library.find(&path("other")), Found::Other, "byte {at}");
        }
        for len in [0, 100, 9_999] {
            put("cut", &content[..len]);
            assert_eq!(library.find(&path("cut")), Found::Other, "{len} bytes");
        }
        put("longer", &[&content[..], b"x"].concat());
        assert_eq!(library.find(&path("longer")), Found::Other);
        put("library", &content[..100]);
        assert_eq!(library.find(&path("library")), Found::Other, "in its place");
        fs::remove_dir_all(&dir).expect("ours");
    }
}
