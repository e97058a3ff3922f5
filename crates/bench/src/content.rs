//! What every page of the working set holds, by page number and version.
//!
//! Word 0 tells page and version. The rest of the first half is random, the second half repeats one word, so a
//! page compresses to about half. Each page's random words are a window of one 64 KiB block under a key of its own:
//! that is cheap enough not to count beside a fault, and a compressor that sees several pages at once finds nothing
//! in common between them.
use std::fmt;

use crate::random::mix;
use crate::units::{PAGE_BYTES, PageNo};

/// Words in a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// The content of one page.
pub type Page = [u64; PAGE_WORDS];

const BLOCK_WORDS: usize = 65536 / 8;
const RANDOM_WORDS: usize = PAGE_WORDS / 2;

/// The generator and checker of page contents.
pub struct Content {
    block: Box<[u64]>,
}

/// A word that is not what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The page.
    pub page: PageNo,
    /// The word in the page.
    pub word: usize,
    /// What should be there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (page, byte) = (self.page.0, self.word * 8);
        write!(f, "page {page}, byte {byte}: expected {:#018x}, found {:#018x}", self.expected, self.found)
    }
}

/// What the words of one page are made from.
struct Recipe<'a> {
    key: u64,
    random: &'a [u64],
}

impl Content {
    /// Computes the random block.
    pub fn new() -> Content {
        Content { block: (0..BLOCK_WORDS as u64).map(|i| mix(i ^ 0x6f75_7473_7761_7000)).collect() }
    }

    fn recipe(&self, page: PageNo) -> Recipe<'_> {
        let key = mix(page.0 as u64);
        let start = (key >> 32) as usize % (BLOCK_WORDS - RANDOM_WORDS);
        Recipe { key, random: &self.block[start..start + RANDOM_WORDS] }
    }

    /// Word 0 of a page: the one that writes change.
    pub fn version_word(page: PageNo, version: u8) -> u64 {
        mix((page.0 as u64) << 8 | version as u64 | 1 << 63)
    }

    /// One word of a page.
    pub fn word(&self, page: PageNo, version: u8, index: usize) -> u64 {
        let recipe = self.recipe(page);
        match index {
            0 => Content::version_word(page, version),
            1..RANDOM_WORDS => recipe.random[index] ^ recipe.key,
            _ => recipe.key,
        }
    }

    /// Writes a whole page.
    pub fn write(&self, page: PageNo, version: u8, out: &mut Page) {
        let recipe = self.recipe(page);
        let (random, repeated) = out.split_at_mut(RANDOM_WORDS);
        for (to, from) in random.iter_mut().zip(recipe.random) {
            *to = from ^ recipe.key;
        }
        repeated.fill(recipe.key);
        random[0] = Content::version_word(page, version);
    }

    /// Checks one word of a page.
    #[inline]
    pub fn check_word(&self, page: PageNo, version: u8, index: usize, found: u64) -> Result<(), Mismatch> {
        let expected = self.word(page, version, index);
        if found == expected { Ok(()) } else { Err(Mismatch { page, word: index, expected, found }) }
    }

    /// Checks every byte of a page.
    pub fn check(&self, page: PageNo, version: u8, found: &Page) -> Result<(), Mismatch> {
        let recipe = self.recipe(page);
        let (random, repeated) = found.split_at(RANDOM_WORDS);
        let mut difference = random[0] ^ Content::version_word(page, version);
        difference |= random[1..].iter().zip(&recipe.random[1..]).fold(0, |d, (a, b)| d | (a ^ b ^ recipe.key));
        difference |= repeated.iter().fold(0, |d, a| d | (a ^ recipe.key));
        if difference == 0 {
            return Ok(());
        }
        (0..PAGE_WORDS).try_for_each(|index| self.check_word(page, version, index, found[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_was_written_and_no_other_page_or_version_is() {
        let content = Content::new();
        let mut page = [0; PAGE_WORDS];
        for n in [0, 1, 77, 262_143, u32::MAX] {
            content.write(PageNo(n), 3, &mut page);
            assert_eq!(content.check(PageNo(n), 3, &page), Ok(()));
            assert_eq!(content.check(PageNo(n), 4, &page).unwrap_err().word, 0);
            assert!(content.check(PageNo(n ^ 1), 3, &page).is_err());
            for (index, &word) in page.iter().enumerate() {
                assert_eq!(content.check_word(PageNo(n), 3, index, word), Ok(()));
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_detected_and_located() {
        let content = Content::new();
        let mut page = [0; PAGE_WORDS];
        content.write(PageNo(42), 0, &mut page);
        for word in 0..PAGE_WORDS {
            for bit in [0, 7, 31, 63] {
                page[word] ^= 1 << bit;
                let mismatch = content.check(PageNo(42), 0, &page).unwrap_err();
                assert_eq!((mismatch.page, mismatch.word), (PageNo(42), word));
                assert_eq!(mismatch.expected ^ mismatch.found, 1 << bit);
                page[word] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn half_of_a_page_is_random_and_pages_share_no_words() {
        let content = Content::new();
        let mut words = std::collections::HashSet::new();
        let mut page = [0; PAGE_WORDS];
        for n in 0..64 {
            content.write(PageNo(n), 0, &mut page);
            words.extend(page);
        }
        assert_eq!(words.len(), 64 * (RANDOM_WORDS + 1));
    }
}
