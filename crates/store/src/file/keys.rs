//! The keys of one process: those that it writes under, one after the other, and those that it may have to read with.
//!
//! A fork ends the life of a key as one to write under, on both sides: what is written afterwards is sealed with a key
//! drawn after the fork, which the other side never sees. A key that some segment still needs is kept for reading; the
//! entry of one that none needs is used again.
use crate::broken::{self, Broken};
use crate::limits::{MAX_KEYS, SCANNED_KEYS};
use crate::lock::SpinLock;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes of the tag behind a sealed payload.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// The last nonce. Far more units than will ever be sealed, and what a record has room for.
pub(crate) const MAX_NONCE: u64 = (1 << 56) - 1;
/// Words of a key with its salt.
const WORDS: usize = 5;

/// Bytes of the table.
pub(crate) const fn table_bytes() -> usize {
    MAX_KEYS * size_of::<Entry>()
}

#[repr(C)]
struct Entry {
    /// Key (16 bytes) and salt (4 bytes).
    words: [AtomicU32; WORDS],
    /// Segments of this process that are sealed under the key.
    segments: AtomicU32,
}

/// What is written under.
struct Current {
    /// Whether there is a key.
    is_drawn: bool,
    index: u32,
    /// Made of the key as it is first used: many processes never write, and what a processor can do is dear to ask for in a virtual
    /// machine.
    cipher: Option<(LessSafeKey, [u8; 4])>,
}

/// A key with its number.
pub(crate) struct Sealer {
    cipher: LessSafeKey,
    salt: [u8; 4],
    /// The number of the key.
    pub key: u16,
}

/// The keys. All-zero memory but for [`Keys::zero_to_valid`] is a process without any.
pub(crate) struct Keys {
    table: usize,
    current: SpinLock<Current>,
    /// Entries from this number on were never used.
    used: AtomicU32,
    cursor: AtomicU32,
    /// Counts units sealed by this process and, before the forks, by those that it stems from. Never goes back, whatever
    /// the key, so that it also tells the units of a process apart.
    nonce: AtomicU64,
}

fn nonce(salt: [u8; 4], counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&salt);
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn cipher(secret: &[u8; 4 * WORDS]) -> (LessSafeKey, [u8; 4]) {
    let mut salt = [0; 4];
    salt.copy_from_slice(&secret[KEY_BYTES..]);
    let key = UnboundKey::new(&AES_128_GCM, &secret[..KEY_BYTES]).expect("a key of the algorithm's length");
    (LessSafeKey::new(key), salt)
}

/// Overwrites secret bytes in a way that is not optimised away.
fn wipe(secret: &mut [u8]) {
    for byte in secret {
        // SAFETY: a byte of our own array.
        unsafe { core::ptr::write_volatile(byte, 0) };
    }
}

impl Keys {
    /// Makes zeroed memory valid.
    ///
    /// # Safety
    /// `at` points to zeroed memory that nothing else uses.
    pub unsafe fn zero_to_valid(at: *mut Keys) {
        // SAFETY: as the caller says; all-zero is valid for every other field.
        unsafe { (&raw mut (*at).current).write(SpinLock::new(Current { is_drawn: false, index: 0, cipher: None })) };
    }

    /// Sets the keys up over a zeroed table of [`table_bytes`]. There is none to write under yet.
    pub fn set(&mut self, table: usize) {
        self.table = table;
    }

    fn entry(&self, index: u32) -> &Entry {
        debug_assert!((index as usize) < MAX_KEYS);
        // SAFETY: the table has `MAX_KEYS` entries and lives as long as the store.
        unsafe { &*(self.table as *const Entry).add(index as usize) }
    }

    /// Bytes of the table that were touched.
    pub fn touched_bytes(&self) -> u64 {
        (self.used.load(Relaxed) as usize * size_of::<Entry>()).next_multiple_of(4096) as u64
    }

    /// Draws a new key to write under. Where that fails, or every key is needed, nothing can be written until the next
    /// attempt: an old key is not used again. No other call may be in progress.
    pub fn renew(&self, random: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let mut current = self.current.lock();
        if broken::is(Broken::KeyKept) && current.is_drawn {
            return true;
        }
        (current.is_drawn, current.cipher) = (false, None);
        let Some(index) = self.unneeded() else { return false };
        let mut secret = [0u8; 4 * WORDS];
        let drawn = random(&mut secret);
        if drawn {
            let entry = self.entry(index);
            for (word, bytes) in entry.words.iter().zip(secret.chunks_exact(4)) {
                word.store(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), Relaxed);
            }
            (current.is_drawn, current.index) = (true, index);
        }
        wipe(&mut secret);
        drawn
    }

    /// An entry that no segment needs.
    fn unneeded(&self) -> Option<u32> {
        let used = self.used.load(Relaxed);
        let full = used as usize == MAX_KEYS;
        let start = self.cursor.load(Relaxed);
        for i in 0..if full { used } else { used.min(SCANNED_KEYS) } {
            let index = start.wrapping_add(i) % used;
            if self.entry(index).segments.load(Acquire) == 0 {
                self.cursor.store(index, Relaxed);
                return Some(index);
            }
        }
        if full {
            return None;
        }
        self.cursor.store(start.wrapping_add(SCANNED_KEYS) % (used + 1), Relaxed);
        self.used.store(used + 1, Relaxed);
        Some(used)
    }

    /// The key to write under.
    pub fn current(&self) -> Option<Sealer> {
        let mut current = self.current.lock();
        if !current.is_drawn {
            return None;
        }
        let index = current.index;
        let (cipher, salt) = current.cipher.get_or_insert_with(|| self.cipher(index));
        Some(Sealer { cipher: cipher.clone(), salt: *salt, key: index as u16 })
    }

    /// The number of the key to write under.
    pub fn current_key(&self) -> Option<u16> {
        let current = self.current.lock();
        current.is_drawn.then_some(current.index as u16)
    }

    /// A key to read with.
    pub fn reader(&self, key: u16) -> Sealer {
        {
            let current = self.current.lock();
            if let Some((cipher, salt)) = current.cipher.as_ref()
                && current.index == key as u32
            {
                return Sealer { cipher: cipher.clone(), salt: *salt, key };
            }
        }
        let (cipher, salt) = self.cipher(key as u32);
        Sealer { cipher, salt, key }
    }

    /// Makes a cipher of an entry.
    fn cipher(&self, index: u32) -> (LessSafeKey, [u8; 4]) {
        let mut secret = [0u8; 4 * WORDS];
        for (word, bytes) in self.entry(index).words.iter().zip(secret.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        let made = cipher(&secret);
        wipe(&mut secret);
        made
    }

    /// One more segment needs the key.
    pub fn hold(&self, key: u16) {
        self.entry(key as u32).segments.fetch_add(1, AcqRel);
    }

    /// One segment fewer needs the key.
    pub fn release(&self, key: u16) {
        self.entry(key as u32).segments.fetch_sub(1, AcqRel);
    }

    /// Units sealed so far: the next nonce.
    pub fn sealed(&self) -> u64 {
        self.nonce.load(Relaxed)
    }

    /// A number that no unit under the current key has. `None` where they have run out.
    pub fn next_nonce(&self) -> Option<u64> {
        let nonce = self.nonce.fetch_add(!broken::is(Broken::NonceTwice) as u64, Relaxed);
        (nonce <= MAX_NONCE).then_some(nonce)
    }

    /// Key and salt, for tests that compare them.
    #[cfg(test)]
    pub fn secret(&self, key: u16) -> [u32; WORDS] {
        core::array::from_fn(|i| self.entry(key as u32).words[i].load(Relaxed))
    }
}

impl Sealer {
    /// Seals `body` in place. Returns its tag.
    pub fn seal(&self, counter: u64, header: &[u8], body: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        let sealed = self.cipher.seal_in_place_separate_tag(nonce(self.salt, counter), Aad::from(header), body).ok()?;
        sealed.as_ref().try_into().ok()
    }

    /// Opens what stands in `sealed` in place, its tag behind it. False where anything was changed; then it is worthless.
    pub fn open(&self, counter: u64, header: &[u8], sealed: &mut [u8]) -> bool {
        self.cipher.open_in_place(nonce(self.salt, counter), Aad::from(header), sealed).is_ok()
    }
}
