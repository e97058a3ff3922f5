//! `outswap doctor` on the machine where the tests run.
use std::process::{Command, Output};

fn doctor(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outswap")).arg("doctor").args(words).output().expect("outswap starts")
}

#[test]
fn json_says_what_works() {
    let output = doctor(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["schema"], "outswap.doctor/1");
    let sources = report["sources"].as_array().expect("an array");
    assert_eq!(sources.iter().map(|s| &s["source"]).collect::<Vec<_>>(), ["move", "copy", "guard", "mprotect"]);
    let works = sources.iter().find(|s| s["works"] == true).map(|s| s["source"].clone());
    // The libraries may not have been built beside this executable; then it has to say so.
    let managed = report["works"] == true;
    assert!(!managed || works.is_some(), "{report}");
    assert_eq!(report["fault_source"], if managed { works.unwrap_or_default() } else { serde_json::Value::Null });
    assert_eq!(report["cause"].is_null(), managed, "{report}");
    assert_eq!(output.status.code(), Some(if managed { 0 } else { 125 }));
    for source in sources {
        assert_eq!(source["faults"], if source["works"] == true { 64 } else { 0 }, "{source}");
        assert_eq!(source["error"].is_null(), source["works"] == true, "{source}");
    }
    let checks = report["checks"].as_array().expect("an array");
    let page = include_str!("../../../docs/cli.md");
    for check in checks {
        let name = check["name"].as_str().expect("a name");
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/cli.md");
        let good = check["state"] == "ok" || check["state"] == "info";
        assert_eq!(check["fix"].is_null(), good, "{check}: each thing that is missing has its fix");
    }
}

#[test]
fn the_table_names_every_check() {
    let (table, json) = (doctor(&[]), doctor(&["--json"]));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let verdict = if report["works"] == true { "outswap run works here, " } else { "outswap run does not work here: " };
    assert!(table.starts_with(verdict), "{table}");
    for check in report["checks"].as_array().expect("an array") {
        assert!(table.contains(&format!("\n  {} ", check["name"].as_str().expect("a name"))), "{table}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_has_a_fix() {
    let output = doctor(&["--json", "--swap-dir", "/no/such/directory"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let check = report["checks"].as_array().expect("an array").iter().find(|c| c["name"] == "swap_dir");
    assert_eq!(check.expect("it is checked")["state"], "missing");
    assert_eq!((output.status.code(), &report["works"]), (Some(125), &false.into()), "run refuses it, too");
}
