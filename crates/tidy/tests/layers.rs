//! The layers: of crates, as the documents have them, and of modules, in the order in which they are declared. Nothing points up,
//! so nothing goes round in a circle.
use outswap_tidy::{Module, crates, modules, root, text};
use std::collections::{BTreeMap, BTreeSet};

/// The longest file of sources.
const LINES_MAX: usize = 700;
/// Files that are one table.
const TABLES: &[&str] = &["crates/sys/src/nr.rs"];

/// The lines of the block of a document that follows a line which ends with `title`.
fn block(document: &str, title: &str) -> Vec<String> {
    let text = text(&root().join(document));
    let mut lines = text.lines().skip_while(|l| !l.ends_with(title)).skip_while(|l| !l.starts_with("```")).skip(1);
    lines.by_ref().take_while(|l| !l.starts_with("```")).map(str::to_owned).collect()
}

/// Crates that a crate is built with, and those that only its tests need.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = text(&root().join("crates").join(name).join("Cargo.toml"));
    let paths = manifest.lines().filter_map(|l| l.split_once("path = \"../")).map(|(_, rest)| rest);
    paths.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

#[test]
fn crates_use_those_below_them() {
    let layers = block("docs/ARCHITECTURE.md", "lowest first:");
    let order: Vec<&str> = layers.iter().flat_map(|l| l.split_whitespace().take(1)).collect();
    let mut known: Vec<String> = order.iter().map(|s| (*s).to_owned()).collect();
    known.sort();
    assert_eq!(known, crates(), "the document names every crate once");
    for (at, name) in order.iter().enumerate() {
        for used in dependencies(name) {
            assert!(order[..at].contains(&used.as_str()), "{name} uses {used}, which does not stand below it");
        }
    }
}

/// The part of `path` that is a module.
fn module_of<'a>(all: &'a BTreeMap<Vec<String>, Module>, path: &[String]) -> &'a [String] {
    (0..=path.len()).rev().find_map(|n| all.get(&path[..n])).map_or(&[], |module| &module.path)
}

/// Why `from` may not use `to`, if so: where their paths part, `to`'s side must be declared first.
fn is_upwards(all: &BTreeMap<Vec<String>, Module>, from: &[String], to: &[String]) -> Option<String> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let tell = |why: &str| Some(format!("{} uses {}, {why}", from.join("::"), to.join("::")));
    if common == from.len() {
        // Itself, or a part of it.
        return None;
    }
    if common == to.len() {
        // A policy, or a kind of tier, is told what it is by the file that lists it: the trait stands there.
        let lists = ["\npolicies! {", "\nkinds! {"];
        let is_listed =
            all[to].children.contains(&from[common]) && lists.iter().any(|list| text(&all[to].file).contains(list));
        return if is_listed || to.is_empty() { None } else { tell("of which it is a part") };
    }
    let order = &all[&from[..common]].children;
    let place = |name: &String| order.iter().position(|n| n == name).expect("modules are declared");
    if place(&to[common]) < place(&from[common]) { None } else { tell("which is declared after it") }
}

#[test]
fn modules_use_those_declared_before_them() {
    let mut wrong = BTreeSet::new();
    for name in crates() {
        let all = modules(&name);
        for module in all.values() {
            for path in &module.uses {
                let to = module_of(&all, path);
                if let Some(why) = is_upwards(&all, &module.path, to) {
                    wrong.insert(format!("{name}: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

/// A type whose methods stand in several files could go round in circles without an import.
#[test]
fn methods_call_those_of_files_declared_before_theirs() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for name in crates() {
        let all = modules(&name);
        let mut of_types: BTreeMap<&str, BTreeMap<&str, BTreeSet<&Vec<String>>>> = BTreeMap::new();
        for module in all.values() {
            for (of, methods) in &module.methods {
                for method in methods {
                    of_types.entry(of).or_default().entry(method).or_default().insert(&module.path);
                }
            }
        }
        for (of, methods) in &of_types {
            let files: BTreeSet<_> = methods.values().flatten().collect();
            if files.len() < 2 {
                continue;
            }
            for module in all.values().filter(|m| m.methods.contains_key(*of)) {
                for (receiver, method) in &module.calls {
                    let Some(places) = methods.get(method.as_str()).filter(|p| receiver == "self" && p.len() == 1)
                    else {
                        continue;
                    };
                    seen += 1;
                    let to = places.first().expect("one");
                    if let Some(why) = is_upwards(&all, &module.path, to) {
                        wrong.push(format!("{name}: {of}::{method}: {why}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "calls between the pager's files are seen: {seen}");
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for name in crates() {
        for folder in ["src", "tests", "examples", "benches"] {
            files(&root().join("crates").join(&name).join(folder), "rs", &mut |path| {
                let short = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                let lines = text(path).lines().count();
                if lines > LINES_MAX && !TABLES.contains(&short.as_str()) {
                    long.push(format!("{short}: {lines} lines"));
                }
            });
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The files below a folder whose names end so.
fn files(folder: &std::path::Path, end: &str, f: &mut impl FnMut(&std::path::Path)) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files(&path, end, f);
        } else if path.extension().is_some_and(|e| e == end) {
            f(&path);
        }
    }
}

/// A document that names a file names one that is there.
#[test]
fn documents_name_files_that_exist() {
    let mut wrong = Vec::new();
    let mut documents = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    files(&root().join("docs"), "md", &mut |path| documents.push(path.to_path_buf()));
    assert!(documents.iter().any(|path| path.ends_with("docs/features/README.md")), "folders are looked into");
    for path in documents {
        let text = text(&path);
        // What stands between backticks and looks like a path of this repository.
        for word in text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
            let word = word.trim_matches([',', '.', '(', ')']);
            let is_path = ["crates/", "docs/", "tests/", "scripts/"].iter().any(|start| word.starts_with(start));
            let is_source = word.ends_with(".rs") && !word.contains('/');
            let exists = if is_path {
                word.contains(['*', '<', '{']) || root().join(word).exists()
            } else if is_source {
                let mut found = false;
                for name in crates() {
                    files(&root().join("crates").join(name), "rs", &mut |p| {
                        found |= p.file_name().is_some_and(|n| n == word)
                    });
                }
                found
            } else {
                true
            };
            if !exists {
                wrong.push(format!("{}: {word}", path.file_name().expect("a file").to_string_lossy()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
