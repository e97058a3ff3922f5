//! Times in buckets a sixteenth of their size wide, so that percentiles of any number of them take little memory.
const PARTS_LOG2: u32 = 4;
const PARTS: usize = 1 << PARTS_LOG2;

/// A histogram of nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
}

/// The bucket of a time: exact below [`PARTS`], then so many for each power of two.
fn bucket_of(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    let part = (ns >> (power - PARTS_LOG2)) as usize & (PARTS - 1);
    (power - PARTS_LOG2 + 1) as usize * PARTS + part
}

/// The middle of a bucket.
fn middle_ns(bucket: usize) -> f64 {
    if bucket < PARTS {
        return bucket as f64;
    }
    let width = (1u64 << (bucket / PARTS - 1)) as f64;
    (PARTS + bucket % PARTS) as f64 * width + (width - 1.0) / 2.0
}

impl Histogram {
    /// Of nothing.
    pub fn new() -> Histogram {
        Histogram { buckets: vec![0; bucket_of(u64::MAX) + 1], count: 0, sum_ns: 0 }
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The time that `percent` hundredths of them do not exceed, to a thirtieth; none of no times.
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&n| {
            seen += n;
            seen >= rank
        });
        bucket.map(middle_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_near_the_middle_of_its_bucket() {
        let times = (0..64).map(|power| 1u64 << power).flat_map(|ns| [ns, ns + ns / 3, ns + (ns - 1)]);
        for ns in times.chain(0..5000) {
            let middle = middle_ns(bucket_of(ns));
            assert!((middle - ns as f64).abs() <= ns as f64 / 31.0, "{ns}: {middle}");
        }
        assert!((0..5000u64).all(|ns| bucket_of(ns + 1) >= bucket_of(ns)));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile_ns(50.0), None);
        (1..=1000).rev().for_each(|n| histogram.add(n * 1000));
        for (percent, expected) in [(0.0, 1e3), (50.0, 500e3), (99.0, 990e3), (99.9, 999e3), (100.0, 1000e3)] {
            let found = histogram.percentile_ns(percent).expect("there are times");
            assert!((found / expected - 1.0).abs() < 0.033, "{percent}: {found}");
        }
        assert_eq!((histogram.count(), histogram.sum_ns()), (1000, 500_500_000));
    }
}
