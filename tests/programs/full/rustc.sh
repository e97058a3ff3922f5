#!/bin/bash
# rustc: a made-up library with many generic functions is compiled with all optimisations; the sum of the object file is printed.
# Argument: scale.
set -eu
awk -v n=$((60 * $1)) 'BEGIN {
    print "use std::collections::{BTreeMap, HashMap};\nuse std::fmt::Debug;"
    for (i = 0; i < n; i++) {
        printf "#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\npub struct S%d { pub a: u64, pub b: Vec<u32>, pub c: Option<String> }\n", i
        printf "pub fn f%d<T: Debug + Clone + Ord>(map: &mut BTreeMap<T, S%d>, key: T, x: u64) -> u64 {\n", i, i
        printf "    let s = map.entry(key).or_insert_with(|| S%d { a: x, b: (0..x as u32 %% %d).collect(), c: None });\n", i, i + 3
        printf "    s.a = s.a.rotate_left(%d) ^ s.b.iter().map(|v| u64::from(*v)).sum::<u64>();\n", i % 60
        printf "    if s.a %% 3 == 0 { s.c = Some(format!(\"{:?}\", s.b)); }\n    s.a\n}\n"
        printf "pub fn g%d(words: &[String], m: &mut HashMap<String, S%d>) -> usize {\n    let mut t = BTreeMap::new();\n", i, i
        printf "    for (j, w) in words.iter().enumerate() { f%d(&mut t, w.clone(), j as u64); }\n    m.extend(t); m.len()\n}\n", i
    }
}' >large.rs
rustc --remap-path-prefix "$PWD=." --edition 2021 -O -C codegen-units=4 --crate-type lib -o large.rlib large.rs
sha256sum <large.rlib
