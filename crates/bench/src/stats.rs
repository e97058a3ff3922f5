//! Medians and spread.

/// Median and range of some runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of these values; none of no values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Summary { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_runs() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[4.0]), Some(Summary { median: 4.0, min: 4.0, max: 4.0 }));
        assert_eq!(Summary::of(&[9.0, 1.0, 4.0]), Some(Summary { median: 4.0, min: 1.0, max: 9.0 }));
        assert_eq!(Summary::of(&[10.0, 1.0, 4.0, 2.0]), Some(Summary { median: 3.0, min: 1.0, max: 10.0 }));
    }
}
