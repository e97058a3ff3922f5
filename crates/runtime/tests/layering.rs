//! The order of the modules is their layering: a module uses only those that are declared above it.
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that a file declares, in order.
fn modules(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a source file");
    let name = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_string())
    };
    text.lines().filter_map(name).collect()
}

/// The source files of a module, each with its name in the folder, if it is in one.
fn files(src: &Path, module: &str) -> Vec<(PathBuf, Option<String>)> {
    let folder = src.join(module).join("mod.rs");
    if !folder.exists() {
        return vec![(src.join(format!("{module}.rs")), None)];
    }
    let children = modules(&folder);
    let file = |child: &String| (src.join(module).join(format!("{child}.rs")), Some(child.clone()));
    children.iter().map(file).chain([(folder.clone(), None)]).collect()
}

/// The code of a file without comments and string literals' text, up to its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source file");
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What a path that starts with `prefix` names right after that, wherever one stands; all parts of a list in braces.
fn named(code: &str, prefix: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if !rest.starts_with('{') {
            found.push(word(rest));
            continue;
        }
        let (mut depth, mut fresh) = (0, false);
        for (i, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && (c == '{' || c == ',') {
                fresh = true;
            } else if fresh && (c.is_alphanumeric() || c == '_') {
                found.push(word(&rest[i..]));
                fresh = false;
            }
        }
    }
    found
}

/// What is wrong with one file: `above` may be used by `crate::`, `siblings` by `super::`.
fn wrong(code: &str, file: &str, above: &[String], siblings: &[String], own: &str) -> Vec<String> {
    let outer = named(code, "crate::").into_iter().filter(|name| !above.contains(name)).map(|name| {
        if name == own { format!("{file}: its own folder by crate::{name}") } else { format!("{file}: crate::{name}") }
    });
    let inner = named(code, "super::").into_iter().filter(|name| !siblings.contains(name));
    outer.chain(inner.map(|name| format!("{file}: super::{name}"))).collect()
}

#[test]
fn modules_use_only_what_stands_above_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = modules(&src.join("lib.rs"));
    assert!(all.len() > 30, "the modules are found: {all:?}");
    let (mut errors, mut uses) = (Vec::new(), 0);
    for (i, module) in all.iter().enumerate() {
        let children: Vec<_> = files(&src, module).into_iter().filter_map(|(_, child)| child).collect();
        for (path, child) in files(&src, module) {
            let code = code(&path);
            uses += named(&code, "crate::").len();
            let siblings = child.as_ref().and_then(|child| children.iter().position(|c| c == child)).unwrap_or(0);
            let file = path.strip_prefix(&src).expect("below it").display().to_string();
            errors.extend(wrong(&code, &file, &all[..i], &children[..siblings], module));
        }
    }
    assert!(uses > 100, "uses are found: {uses}");
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_seen() {
    let names = |list: &[&str]| list.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let (above, siblings) = (names(&["gate", "live"]), names(&["host"]));
    let check = |code: &str| wrong(code, "f", &above, &siblings, "source");
    assert!(
        check("use crate::gate::{self, x};\nuse crate::{gate, live::{Live, y}};\nuse super::host::Host;").is_empty()
    );
    assert_eq!(check("use crate::{gate, trap::{a, gate}};"), ["f: crate::trap"]);
    assert_eq!(check("fn f() { crate::machine::g(); }"), ["f: crate::machine"]);
    assert_eq!(check("use super::copying::X;"), ["f: super::copying"]);
    assert_eq!(check("use super::*;"), ["f: super::"]);
    assert_eq!(check("use crate::source::Source;"), ["f: its own folder by crate::source"]);
    assert!(check("use outswap_crate::x; use mycrate::gone;").is_empty());
}
