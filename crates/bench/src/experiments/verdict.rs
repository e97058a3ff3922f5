//! Whether a mechanism paid, from the figures.
use serde_json::{Value, json};

/// On which side of a figure it must lie.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

/// A condition of having paid.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    what: String,
    value: Option<f64>,
    bound: Bound,
}

impl Check {
    /// Of a figure, where it was measured.
    pub fn new(what: impl Into<String>, value: Option<f64>, bound: Bound) -> Check {
        // What is not a number was not measured.
        Check { what: what.into(), value: value.filter(|value| value.is_finite()), bound }
    }

    fn holds(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.bound {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        })
    }

    fn text(&self) -> String {
        let Some(value) = self.value else { return format!("{} not measured", self.what) };
        let wanted = match self.bound {
            Bound::AtMost(most) => format!("at most {most}"),
            Bound::AtLeast(least) => format!("at least {least}"),
        };
        let missed = if self.holds() == Some(false) { " MISSED" } else { "" };
        format!("{} {value:.3}, wanted {wanted}{missed}", self.what)
    }
}

/// All conditions, and what failed.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The conditions.
    pub checks: Vec<Check>,
    /// Measurements that failed.
    pub failures: usize,
}

impl Verdict {
    /// None where a condition could not be looked at, and none is missed. What failed has not paid.
    pub fn paid(&self) -> Option<bool> {
        let held: Vec<Option<bool>> = self.checks.iter().map(Check::holds).collect();
        if self.failures > 0 || held.contains(&Some(false)) {
            Some(false)
        } else if held.contains(&None) || held.is_empty() {
            None
        } else {
            Some(true)
        }
    }

    /// The answer, in one line.
    pub fn line(&self) -> String {
        let answer = match self.paid() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known, as not all was measured",
        };
        let mut line = format!("Did it pay? {answer}");
        for (index, check) in self.checks.iter().enumerate() {
            line += &format!("{} {}", if index == 0 { ":" } else { ";" }, check.text());
        }
        if self.failures > 0 {
            line += &format!("; {} measurements FAILED", self.failures);
        }
        line + "."
    }

    /// For the report.
    pub fn json(&self) -> Value {
        let check = |check: &Check| {
            let (least, most) = match check.bound {
                Bound::AtMost(most) => (None, Some(most)),
                Bound::AtLeast(least) => (Some(least), None),
            };
            json!({
                "what": check.what, "value": check.value, "at_least": least, "at_most": most, "holds": check.holds(),
            })
        };
        json!({
            "paid": self.paid(),
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(values: &[Option<f64>], failures: usize) -> Verdict {
        let check = |(index, &value): (usize, &Option<f64>)| {
            let bound = if index % 2 == 0 { Bound::AtMost(1.0) } else { Bound::AtLeast(0.5) };
            Check::new(format!("figure {index}"), value, bound)
        };
        Verdict { checks: values.iter().enumerate().map(check).collect(), failures }
    }

    #[test]
    fn it_paid_where_every_condition_holds() {
        let good = verdict(&[Some(1.0), Some(0.5)], 0);
        assert_eq!(good.paid(), Some(true));
        assert!(
            good.line().starts_with("Did it pay? yes: figure 0 1.000, wanted at most 1; figure 1 0.500, wanted at")
        );
        for bad in [[Some(1.001), Some(0.5)], [Some(1.0), Some(0.499)], [Some(2.0), None]] {
            assert_eq!(verdict(&bad, 0).paid(), Some(false), "{bad:?}");
            assert!(verdict(&bad, 0).line().contains("MISSED"));
        }
        assert_eq!(good.json()["checks"][1]["holds"], true);
    }

    #[test]
    fn what_failed_has_not_paid_and_what_was_not_measured_is_not_known() {
        assert_eq!(verdict(&[Some(0.1), Some(1.0)], 1).paid(), Some(false));
        assert!(verdict(&[Some(0.1)], 2).line().ends_with("2 measurements FAILED."));
        for unknown in [vec![], vec![Some(0.1), None], vec![Some(f64::NAN)]] {
            assert_eq!(verdict(&unknown, 0).paid(), None, "{unknown:?}");
        }
    }
}
