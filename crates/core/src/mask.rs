//! A set of pages that lie close together, as bits: those of a block, or of the largest folio.
//!
//! What the bits are counted from is the holder's to say; [`Mask::from`] and [`Mask::at`] count from elsewhere.
use crate::units::MAX_FOLIO_PAGES;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub};

const WORDS: usize = MAX_FOLIO_PAGES / 64;

/// A set of numbers below [`MAX_FOLIO_PAGES`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Mask([u64; WORDS]);

impl Mask {
    /// None.
    pub const EMPTY: Mask = Mask([0; WORDS]);

    /// Those of the first 64 whose bits are set.
    pub const fn of_word(word: u64) -> Mask {
        let mut words = [0; WORDS];
        words[0] = word;
        Mask(words)
    }
    /// The first 64, as bits.
    pub const fn first_word(self) -> u64 {
        self.0[0]
    }
    /// One alone.
    pub fn single(at: usize) -> Mask {
        Mask::range(at, 1)
    }
    /// `len` of them from `from` on.
    ///
    /// # Panics
    /// Where there are not so many.
    pub fn range(from: usize, len: usize) -> Mask {
        let end = from + len;
        assert!(end <= MAX_FOLIO_PAGES, "a mask has {MAX_FOLIO_PAGES} bits");
        let below = |bits: usize| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let word = |w: usize| below(end.saturating_sub(w * 64)) & !below(from.saturating_sub(w * 64));
        Mask(core::array::from_fn(word))
    }

    /// Whether it has this one.
    pub fn contains(self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
    /// Adds one.
    pub fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }
    /// Takes one out.
    pub fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }
    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self == Mask::EMPTY
    }
    /// How many it has.
    pub fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
    /// The first that it has.
    pub fn first(self) -> Option<usize> {
        self.next(0)
    }
    /// The first that it has from `from` on.
    pub fn next(self, from: usize) -> Option<usize> {
        self.find(from, |word| word)
    }
    /// The number after the last that it has; 0 where it has none.
    pub fn end(self) -> usize {
        let last = self.0.iter().rposition(|&word| word != 0);
        last.map_or(0, |w| w * 64 + 64 - self.0[w].leading_zeros() as usize)
    }

    /// The first from `from` on whose bit is set in what `f` makes of its word.
    fn find(self, from: usize, f: impl Fn(u64) -> u64) -> Option<usize> {
        let mut w = from / 64;
        let mut word = f(*self.0.get(w)?) & u64::MAX << (from % 64);
        while word == 0 {
            w += 1;
            word = f(*self.0.get(w)?);
        }
        Some(w * 64 + word.trailing_zeros() as usize)
    }

    /// The same ones, counted from `at` on. What lies before is left out.
    #[must_use]
    pub fn from(self, at: usize) -> Mask {
        let (words, bits) = (at / 64, at % 64);
        let word = |w: usize| self.0.get(w).copied().unwrap_or(0);
        // Two steps, because no word can be shifted by all of its bits.
        Mask(core::array::from_fn(|w| word(w + words) >> bits | word(w + words + 1) << 1 << (63 - bits)))
    }
    /// The same ones, where what they are counted from is `offset` itself. What would lie beyond the last is left out.
    #[must_use]
    pub fn at(self, offset: usize) -> Mask {
        let (words, bits) = (offset / 64, offset % 64);
        let word = |w: Option<usize>| w.map_or(0, |w| self.0[w]);
        Mask(core::array::from_fn(|w| {
            word(w.checked_sub(words)) << bits | word(w.checked_sub(words + 1)) >> 1 >> (63 - bits)
        }))
    }

    /// Those that it has, from the first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        core::iter::successors(self.first(), move |at| self.next(at + 1))
    }
    /// Those that it has, in runs: the first of each, and how many follow each other.
    pub fn runs(self) -> impl Iterator<Item = (usize, usize)> {
        let run = move |from: usize| {
            let start = self.next(from)?;
            Some((start, self.find(start, |word| !word).unwrap_or(MAX_FOLIO_PAGES) - start))
        };
        core::iter::successors(run(0), move |(start, len)| run(start + len))
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        Mask(core::array::from_fn(|w| self.0[w] & other.0[w]))
    }
}
impl BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask(core::array::from_fn(|w| self.0[w] | other.0[w]))
    }
}
/// Those that the other does not have.
impl Sub for Mask {
    type Output = Mask;
    fn sub(self, other: Mask) -> Mask {
        Mask(core::array::from_fn(|w| self.0[w] & !other.0[w]))
    }
}
impl BitAndAssign for Mask {
    fn bitand_assign(&mut self, other: Mask) {
        *self = *self & other;
    }
}
impl BitOrAssign for Mask {
    fn bitor_assign(&mut self, other: Mask) {
        *self = *self | other;
    }
}

impl FromIterator<usize> for Mask {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Mask {
        let mut mask = Mask::EMPTY;
        numbers.into_iter().for_each(|at| mask.insert(at));
        mask
    }
}

impl core::fmt::Debug for Mask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.runs().map(|(start, len)| start..start + len)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_begin_and_end_anywhere() {
        for (from, len) in [(0, 0), (0, 1), (0, 64), (63, 1), (63, 2), (64, 64), (5, 200), (511, 1), (512, 0), (0, 512)]
        {
            let mask = Mask::range(from, len);
            assert_eq!(mask.iter().collect::<Vec<_>>(), (from..from + len).collect::<Vec<_>>());
            let runs: Vec<_> = if len == 0 { Vec::new() } else { vec![(from, len)] };
            assert_eq!(mask.runs().collect::<Vec<_>>(), runs);
            assert_eq!((mask.count(), mask.is_empty()), (len, len == 0));
            assert_eq!((mask.first(), mask.end()), if len == 0 { (None, 0) } else { (Some(from), from + len) });
        }
    }

    #[test]
    #[should_panic(expected = "512 bits")]
    fn a_range_beyond_the_last_is_refused() {
        let _ = Mask::range(500, 13);
    }

    #[test]
    fn counting_from_elsewhere_and_back_keeps_what_fits() {
        let mask = Mask::range(60, 10) | Mask::single(200);
        assert_eq!(mask.from(60), Mask::range(0, 10) | Mask::single(140));
        assert_eq!(mask.from(64).at(64), mask - Mask::range(60, 4));
        assert_eq!(mask.at(311), Mask::range(371, 10) | Mask::single(511));
        assert_eq!(mask.at(312), Mask::range(372, 10), "what would lie beyond the last is left out");
        assert_eq!(mask.from(512), Mask::EMPTY);
        assert_eq!(mask.at(512), Mask::EMPTY);
    }

    #[test]
    fn words_are_the_first_64() {
        let mask = Mask::of_word(0x8000_0000_0000_0101);
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 8, 63]);
        assert_eq!((mask | Mask::single(64)).first_word(), 0x8000_0000_0000_0101);
        assert_eq!(format!("{:?}", mask | Mask::range(63, 3)), "[0..1, 8..9, 63..66]");
    }
}
