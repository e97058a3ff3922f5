//! What is read from a run, and what follows from all runs together.
use serde_json::{Value, json};

/// A limit: so many hundredths of the plain peak, in whole pages.
pub fn limit_bytes(peak_bytes: u64, percent: u32) -> u64 {
    (peak_bytes / 100 * percent as u64) & !4095
}

/// What `outswap run --stats` counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutswapCounts {
    /// Pages read from the stores, those read ahead included.
    pub pages_in: u64,
    /// Pages written to the stores.
    pub pages_out: u64,
    /// Faults that read a page from a store.
    pub store_faults: u64,
    /// Faults answered from the swap cache.
    pub hits: u64,
    /// Times that the limit could not be held.
    pub over_limit: u64,
    /// Anonymous memory that is not managed, when last looked at.
    pub unmanaged_bytes: u64,
    /// Managed processes.
    pub processes: u64,
}

impl OutswapCounts {
    /// From the JSON, in which all of them must be.
    pub fn of(stats: &Value) -> Result<OutswapCounts, String> {
        let number = |path: &str| {
            let value = stats.pointer(path).and_then(Value::as_u64);
            value.ok_or_else(|| format!("Outswap's statistics have no number at {path}"))
        };
        Ok(OutswapCounts {
            pages_in: number("/stores/memory/pages_in")? + number("/stores/file/pages_in")?,
            pages_out: number("/stores/memory/pages_out")? + number("/stores/file/pages_out")?,
            store_faults: number("/faults/miss")? + number("/faults/bypass")?,
            hits: number("/faults/hit")?,
            over_limit: number("/problems/over_budget")?,
            unmanaged_bytes: number("/memory/current/unmanaged_bytes")?,
            processes: number("/processes/managed")?,
        })
    }

    /// For the report.
    pub fn json(&self) -> Value {
        json!({
            "pages_in": self.pages_in,
            "pages_out": self.pages_out,
            "store_faults": self.store_faults,
            "hits": self.hits,
            "over_limit": self.over_limit,
            "unmanaged_bytes": self.unmanaged_bytes,
            "managed_processes": self.processes,
        })
    }
}

/// The geometric mean; none of no values.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// The ratios of one program under one limit, where they were measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Ratios {
    /// The program and the limit, for people.
    pub name: String,
    /// Time with `--resident`, to the kernel's.
    pub time: Option<f64>,
    /// Pages brought back with `--resident`, to the kernel's.
    pub pages: Option<f64>,
    /// Time with `--ram`, to that with `--resident`.
    pub ram: Option<f64>,
}

/// Time to the kernel's, in the geometric mean.
const TIME_MEAN: f64 = 0.6;
/// Time to the kernel's, each.
const TIME_EACH: f64 = 0.9;
/// Pages brought back to the kernel's, in the geometric mean.
const PAGES_MEAN: f64 = 1.1;
/// Time with `--ram` to that with `--resident`, each.
const RAM_EACH: f64 = 1.5;

/// A geometric mean, and the largest of the values with its name.
#[derive(Clone, PartialEq, Debug)]
pub struct Overall {
    /// The geometric mean.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// What was largest.
    pub worst_of: String,
    /// How many values there are.
    pub count: usize,
}

impl Overall {
    fn of(ratios: &[Ratios], ratio: impl Fn(&Ratios) -> Option<f64>) -> Option<Overall> {
        let known: Vec<(f64, &str)> = ratios.iter().filter_map(|r| Some((ratio(r)?, r.name.as_str()))).collect();
        let (worst, worst_of) = known.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let mean = geometric_mean(&known.iter().map(|&(ratio, _)| ratio).collect::<Vec<_>>())?;
        Some(Overall { mean, worst, worst_of: worst_of.to_owned(), count: known.len() })
    }

    fn json(&self) -> Value {
        json!({
            "geometric_mean": self.mean,
            "worst": self.worst,
            "worst_of": self.worst_of,
            "count": self.count,
        })
    }
}

/// Whether Outswap paid.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    time: Option<Overall>,
    pages: Option<Overall>,
    ram: Option<Overall>,
    /// Cells that there should have been.
    wanted: usize,
    /// Measurements that failed.
    failures: usize,
}

impl Verdict {
    /// Over these cells. What failed cannot have paid.
    pub fn of(ratios: &[Ratios], failures: usize) -> Verdict {
        Verdict {
            time: Overall::of(ratios, |r| r.time),
            pages: Overall::of(ratios, |r| r.pages),
            ram: Overall::of(ratios, |r| r.ram),
            wanted: ratios.len(),
            failures,
        }
    }

    /// None where a part of it was not measured at all.
    pub fn paid(&self) -> Option<bool> {
        if self.failures > 0 {
            return Some(false);
        }
        let (time, pages, ram) = (self.time.as_ref()?, self.pages.as_ref()?, self.ram.as_ref()?);
        let fast = time.mean <= TIME_MEAN && time.worst <= TIME_EACH;
        Some(fast && pages.mean <= PAGES_MEAN && ram.worst <= RAM_EACH)
    }

    /// The answer, in one line.
    pub fn line(&self) -> String {
        let answer = match self.paid() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known, for want of a side",
        };
        let part = |what: &str, overall: &Option<Overall>, limits: &str| match overall {
            None => format!("{what} not measured"),
            Some(Overall { mean, worst, worst_of, count }) => format!(
                "{what} {mean:.2} in the geometric mean, {worst:.2} at worst ({worst_of}), wanted {limits} ({count} of {})",
                self.wanted
            ),
        };
        let mut line = format!(
            "Did it pay? {answer}: {}; {}; {}",
            part("time to the kernel's", &self.time, &format!("{TIME_MEAN:.2} and {TIME_EACH:.2}")),
            part("pages brought back to the kernel's", &self.pages, &format!("{PAGES_MEAN:.2} in the mean")),
            part("time of --ram to --resident", &self.ram, &format!("{RAM_EACH:.2} at worst")),
        );
        if self.failures > 0 {
            line += &format!("; {} measurements FAILED", self.failures);
        }
        line + "."
    }

    /// For the report.
    pub fn json(&self) -> Value {
        let part = |overall: &Option<Overall>| overall.as_ref().map(Overall::json);
        json!({
            "paid": self.paid(),
            "time_to_kernel": part(&self.time),
            "pages_in_to_kernel": part(&self.pages),
            "ram_to_resident": part(&self.ram),
            "cells": self.wanted,
            "failures": self.failures,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn limits_are_parts_of_the_peak_in_whole_pages() {
        assert_eq!(limit_bytes(100 << 20, 50), 52_428_800);
        assert_eq!(limit_bytes(204_801, 70), 143_360);
        assert_eq!(limit_bytes(0, 50), 0);
    }

    #[test]
    fn geometric_means() {
        assert_eq!(geometric_mean(&[]), None);
        let close = |values: &[f64], expected: f64| {
            let mean = geometric_mean(values).expect("there are values");
            assert!((mean - expected).abs() < 1e-12, "{mean}");
        };
        close(&[0.5], 0.5);
        close(&[0.5, 2.0], 1.0);
        close(&[1.0, 2.0, 4.0], 2.0);
    }

    /// Statistics as `outswap run` writes them, in short.
    pub fn stats() -> Value {
        json!({
            "stores": { "memory": { "pages_in": 10, "pages_out": 20 }, "file": { "pages_in": 1, "pages_out": 2 } },
            "faults": { "miss": 3, "bypass": 4, "hit": 5 },
            "problems": { "over_budget": 6 },
            "memory": { "current": { "unmanaged_bytes": 7 } },
            "processes": { "managed": 8 },
        })
    }

    #[test]
    fn counts_are_read_from_the_statistics_and_none_may_be_missing() {
        let expected = OutswapCounts {
            pages_in: 11,
            pages_out: 22,
            store_faults: 7,
            hits: 5,
            over_limit: 6,
            unmanaged_bytes: 7,
            processes: 8,
        };
        assert_eq!(OutswapCounts::of(&stats()), Ok(expected));
        for name in ["stores", "faults", "problems", "memory", "processes"] {
            let mut stats = stats();
            stats[name] = Value::Null;
            let error = OutswapCounts::of(&stats).expect_err("something is missing");
            assert!(error.contains(&format!("/{name}/")), "{error}");
        }
    }

    fn ratios(name: &str, time: f64, pages: f64, ram: f64) -> Ratios {
        Ratios { name: name.to_owned(), time: Some(time), pages: Some(pages), ram: Some(ram) }
    }

    #[test]
    fn it_paid_where_all_conditions_hold() {
        let good = [ratios("a", 0.5, 1.0, 1.2), ratios("b", 0.6, 1.2, 1.4)];
        let verdict = Verdict::of(&good, 0);
        assert_eq!(verdict.paid(), Some(true));
        assert!(
            verdict
                .line()
                .starts_with("Did it pay? yes: time to the kernel's 0.55 in the geometric mean, 0.60 at worst (b)")
        );
        assert_eq!(verdict.json()["time_to_kernel"]["worst_of"], "b");
        assert_eq!(verdict.json()["paid"], true);
        let bad = [
            vec![ratios("slow", 0.7, 1.0, 1.0), ratios("slow too", 0.6, 1.0, 1.0)],
            vec![ratios("fast", 0.2, 1.0, 1.0), ratios("one slow", 0.91, 1.0, 1.0)],
            vec![ratios("much read", 0.5, 1.2, 1.0)],
            vec![ratios("tight", 0.5, 1.0, 1.51)],
        ];
        for cells in bad {
            assert_eq!(Verdict::of(&cells, 0).paid(), Some(false), "{cells:?}");
        }
    }

    #[test]
    fn what_failed_has_not_paid_and_what_was_not_measured_is_not_known() {
        let cells = [ratios("a", 0.5, 1.0, 1.0)];
        assert_eq!(Verdict::of(&cells, 1).paid(), Some(false));
        assert!(Verdict::of(&cells, 1).line().ends_with("1 measurements FAILED."));
        let alone = [Ratios { name: "a".to_owned(), time: None, pages: None, ram: Some(1.0) }];
        let verdict = Verdict::of(&alone, 0);
        assert_eq!(verdict.paid(), None);
        assert!(verdict.line().contains("time to the kernel's not measured"));
        assert_eq!(Verdict::of(&[], 0).paid(), None);
    }
}
