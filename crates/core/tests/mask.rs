//! Sets of pages against sets of numbers.
#![cfg(not(loom))]

use outswap_core::mask::Mask;
use outswap_core::units::MAX_FOLIO_PAGES;
use proptest::prelude::*;
use std::collections::BTreeSet;

type Model = BTreeSet<usize>;

/// Runs and single pages, so that both long runs and many short ones come up.
fn model() -> impl Strategy<Value = Model> {
    let run = (0..MAX_FOLIO_PAGES, prop_oneof![Just(1), 1..5usize, 1..200usize]);
    prop::collection::vec(run, 0..40)
        .prop_map(|runs| runs.into_iter().flat_map(|(start, len)| start..(start + len).min(MAX_FOLIO_PAGES)).collect())
}

fn mask(model: &Model) -> Mask {
    model.iter().copied().collect()
}

fn runs(model: &Model) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &at in model {
        match runs.last_mut() {
            Some((start, len)) if *start + *len == at => *len += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_in_it(model in model(), from in 0..MAX_FOLIO_PAGES) {
        let mask = mask(&model);
        prop_assert!((0..MAX_FOLIO_PAGES).all(|at| mask.contains(at) == model.contains(&at)));
        prop_assert!(mask.iter().eq(model.iter().copied()));
        prop_assert_eq!(mask.runs().collect::<Vec<_>>(), runs(&model));
        prop_assert_eq!(mask.count(), model.len());
        prop_assert_eq!(mask.is_empty(), model.is_empty());
        prop_assert_eq!(mask.first(), model.first().copied());
        prop_assert_eq!(mask.end(), model.last().map_or(0, |last| last + 1));
        prop_assert_eq!(mask.next(from), model.range(from..).next().copied());
    }

    #[test]
    fn two_of_them(a in model(), b in model()) {
        let (x, y) = (mask(&a), mask(&b));
        prop_assert_eq!(x & y, mask(&(&a & &b)));
        prop_assert_eq!(x | y, mask(&(&a | &b)));
        prop_assert_eq!(x - y, mask(&(&a - &b)));
        prop_assert_eq!(x == y, a == b);
        let (mut and, mut or) = (x, x);
        and &= y;
        or |= y;
        prop_assert_eq!((and, or), (x & y, x | y));
    }

    #[test]
    fn one_comes_and_goes(model in model(), at in 0..MAX_FOLIO_PAGES) {
        let (mut with, mut without) = (mask(&model), mask(&model));
        with.insert(at);
        without.remove(at);
        prop_assert_eq!(with, mask(&model) | Mask::single(at));
        prop_assert_eq!(without, mask(&model) - Mask::single(at));
        prop_assert!(with.contains(at) && !without.contains(at));
    }

    #[test]
    fn counted_from_elsewhere(model in model(), by in 0..=MAX_FOLIO_PAGES) {
        let down: Model = model.iter().filter_map(|at| at.checked_sub(by)).collect();
        let up: Model = model.iter().map(|at| at + by).filter(|&at| at < MAX_FOLIO_PAGES).collect();
        prop_assert_eq!(mask(&model).from(by), mask(&down));
        prop_assert_eq!(mask(&model).at(by), mask(&up));
    }

    #[test]
    fn ranges(from in 0..=MAX_FOLIO_PAGES, len in 0..=MAX_FOLIO_PAGES) {
        let len = len.min(MAX_FOLIO_PAGES - from);
        prop_assert_eq!(Mask::range(from, len), mask(&(from..from + len).collect()));
    }
}
