//! Every experiment runs at a tiny size, says what it should, and fails where a worker does.
//!
//! A script stands for `outswap`: it knows the names of the mechanisms, runs the worker as it is, and writes statistics of nothing.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Script(PathBuf);

impl Script {
    /// Runs what it is given, changed by `filter`, and says of it whether it was managed.
    fn new(name: &str, managed: bool, filter: &str) -> Script {
        let path = std::env::temp_dir().join(format!("outswap-bench-{name}-{}", std::process::id()));
        let text = format!(
            "#!/bin/sh\ncase \"$2\" in --help) cat <<'END'\n    reuse=protect: a\n    reuse=hash, default: b\n    \
             folios=as-it-came, default: c\n    folios=small: d\n    readahead=streams, default: e\nEND\nexit;; esac\n\
             while [ \"$1\" != -- ]; do\n  if [ \"$1\" = --stats ]; then file=$2; fi\n  shift\ndone\nshift\n\
             echo '{{\"managed\": {managed}}}' > \"$file\"\n\"$@\" | {filter}\n"
        );
        fs::write(&path, text).expect("the temporary folder can be written to");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Script(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outswap-bench"));
        command.args(arguments).args(["--only=alone,outswap", "--runs=1", "--outswap"]).arg(&self.0);
        command.output().expect("the benchmark was built")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Left behind, it would do no harm.
        let _ = fs::remove_file(&self.0);
    }
}

const EXPERIMENTS: [&[&str]; 4] = [
    &["reuse", "--size=1M", "--resident=512K", "--passes=3", "--writes=0,50"],
    &["swapin-path", "--size=1M", "--resident=512K", "--store=ram", "--store=file"],
    &["cache-contention", "--size=8M", "--threads=1,3", "--kpages=5"],
    &["large-folios", "--size=1M", "--rounds=2", "--churn-rounds=3"],
];

#[test]
fn every_experiment_gives_tables_a_verdict_json_and_a_chart() {
    let script = Script::new("experiments", true, "cat");
    for experiment in EXPERIMENTS {
        let file = |end: &str| {
            std::env::temp_dir().join(format!("outswap-bench-{}-{}.{end}", experiment[0], std::process::id()))
        };
        let (json, svg) = (file("json"), file("svg"));
        let files = [format!("--json={}", json.display()), format!("--svg={}", svg.display())];
        let output = script.run(&[experiment, &files.each_ref().map(String::as_str)].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(text.contains("published") && text.contains("\nDid it pay? "), "{text}");
        let document: serde_json::Value =
            serde_json::from_slice(&fs::read(&json).expect("it was written")).expect("it is JSON");
        assert_eq!(document["benchmark"], experiment[0]);
        assert!(document["summary"]["checks"].as_array().is_some_and(|checks| !checks.is_empty()));
        assert!(document["results"].as_array().is_some_and(|results| !results.is_empty()));
        assert!(fs::read_to_string(&svg).expect("it was drawn").ends_with("</svg>\n"));
        [json, svg].iter().for_each(|file| fs::remove_file(file).expect("it is there"));
    }
}

#[test]
fn a_worker_that_nothing_managed_or_that_says_nonsense_is_a_failure() {
    for (name, managed, filter, reason) in [
        ("unmanaged", false, "cat", "ran without Outswap"),
        ("nonsense", true, "sed s/elapsed/}/", "the worker printed"),
    ] {
        let output = Script::new(name, managed, filter).run(EXPERIMENTS[0]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("measurements FAILED."), "{said}");
    }
}
