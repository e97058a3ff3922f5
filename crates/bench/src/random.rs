//! Cheap deterministic random numbers, a Zipf sampler that needs no table, and a permutation of page numbers.

/// A bijection of 64-bit words whose output looks random.
#[inline]
pub fn mix(word: u64) -> u64 {
    let mut x = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of random words: [`mix`] over a counter.
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: mix(seed) }
    }

    /// The next word.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform in `0..bound`.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }

    /// Uniform in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks `0..n` with probability proportional to `(rank + 1)^-exponent`.
///
/// Rejection-inversion (Hörmann and Derflinger, 1996): a table of 262,144 probabilities would itself compete for the
/// memory under test.
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    area_first: f64,
    area_last: f64,
    accept_width: f64,
}

impl Zipf {
    /// A sampler over `ranks` (at least one) ranks; `exponent` is positive and not 1.
    pub fn new(ranks: usize, exponent: f64) -> Zipf {
        let mut zipf = Zipf { ranks: ranks as f64, exponent, area_first: 0.0, area_last: 0.0, accept_width: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(zipf.ranks + 0.5);
        zipf.accept_width = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Weight of the (1-based) rank `x`.
    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// An integral of [`Zipf::weight`].
    fn area(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn area_inverse(&self, area: f64) -> f64 {
        (1.0 + area * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    /// One rank, 0 the most frequent.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> usize {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.accept_width || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as usize - 1;
            }
        }
    }
}

/// A permutation of `0..n` that scatters neighbours.
pub struct Scatter {
    n: u32,
    mask: u32,
    shift: u32,
}

impl Scatter {
    /// A permutation of `0..n`.
    pub fn new(n: usize) -> Scatter {
        let mask = (n as u32).next_power_of_two() - 1;
        Scatter { n: n as u32, mask, shift: (mask.count_ones() / 2).max(1) }
    }

    /// Where `i` (below `n`) goes.
    #[inline]
    pub fn apply(&self, i: usize) -> usize {
        let mut x = i as u32;
        // Each step permutes 0..=mask; walking on until the result is below n makes it a permutation of 0..n.
        loop {
            x = x.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15) & self.mask;
            x ^= x >> self.shift;
            x = x.wrapping_mul(0x85eb_ca6b) & self.mask;
            x ^= x >> self.shift;
            if x < self.n {
                return x as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_frequencies_are_those_of_the_law() {
        let (ranks, samples, exponent) = (10_000, 1_000_000, 1.2);
        let zipf = Zipf::new(ranks, exponent);
        let mut random = Random::new(7);
        let mut counts = vec![0u32; ranks];
        for _ in 0..samples {
            counts[zipf.sample(&mut random)] += 1;
        }
        let total: f64 = (1..=ranks).map(|k| (k as f64).powf(-exponent)).sum();
        for rank in [0, 1, 2, 3, 4, 9, 19, 49, 99] {
            let expected = samples as f64 * (rank as f64 + 1.0).powf(-exponent) / total;
            let deviation = (counts[rank] as f64 - expected).abs();
            assert!(deviation < 5.0 * expected.sqrt(), "rank {rank}: {} instead of {expected:.0}", counts[rank]);
        }
        let tail: u32 = counts[1000..].iter().sum();
        let expected: f64 = samples as f64 * (1001..=ranks).map(|k| (k as f64).powf(-exponent)).sum::<f64>() / total;
        assert!((tail as f64 - expected).abs() < 5.0 * expected.sqrt(), "tail: {tail} instead of {expected:.0}");
    }

    #[test]
    fn scatter_is_a_permutation_that_separates_neighbours() {
        for n in [1, 2, 3, 5, 64, 1000, 4096, 65_537] {
            let scatter = Scatter::new(n);
            let mut seen = vec![false; n];
            (0..n).for_each(|i| assert!(!std::mem::replace(&mut seen[scatter.apply(i)], true), "{i} of {n}"));
        }
        let scatter = Scatter::new(65_536);
        let near = (1..65_536).filter(|&i| scatter.apply(i).abs_diff(scatter.apply(i - 1)) < 16).count();
        assert!(near < 655, "{near} neighbours stayed within 64 KiB");
    }

    #[test]
    fn uniform_numbers_cover_their_range_evenly() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10)] += 1);
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 500), "{counts:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
