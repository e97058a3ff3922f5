//! Figures of histograms.

/// A sum that stops at the largest number.
pub fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Estimates a quantile from log2 buckets, as if latencies were spread evenly within each.
pub fn quantile(buckets: &[u64], q: f64) -> Option<u64> {
    let total = sum(buckets.iter().copied());
    let mut before = 0u64;
    let wanted = q * total as f64;
    for (i, &count) in buckets.iter().enumerate() {
        if count > 0 && before.saturating_add(count) as f64 >= wanted {
            let within = ((wanted - before as f64) / count as f64).clamp(0.0, 1.0);
            return Some(((1u64 << i) as f64 * (1.0 + within)) as u64);
        }
        before = before.saturating_add(count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_control::LATENCY_BUCKETS;

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let mut buckets = [0u64; LATENCY_BUCKETS];
        assert_eq!(quantile(&buckets, 0.5), None);
        (buckets[10], buckets[11], buckets[20]) = (50, 49, 1);
        assert_eq!(quantile(&buckets, 0.5), Some(2048));
        assert_eq!(quantile(&buckets, 0.99), Some(4096));
        assert!(quantile(&buckets, 0.999).is_some_and(|n| n >= 1 << 20));
    }
}
