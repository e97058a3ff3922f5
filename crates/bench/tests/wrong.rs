//! A wrong output, and a program that ran without Outswap, fail the benchmark of programs.
//!
//! A script stands for `outswap`: it runs the program as it is told, or not quite.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Script(PathBuf);

impl Script {
    /// Runs the program, writes statistics with so many managed processes, and gives the output to `filter`.
    fn new(name: &str, processes: u32, filter: &str) -> Script {
        let path = std::env::temp_dir().join(format!("outswap-bench-{name}-{}", std::process::id()));
        let stats = format!(
            r#"{{"stores":{{"memory":{{"pages_in":1,"pages_out":1}},"file":{{"pages_in":0,"pages_out":0}}}},
            "faults":{{"miss":1,"bypass":0,"hit":0}},"problems":{{"over_budget":0}},
            "memory":{{"current":{{"unmanaged_bytes":0}}}},"processes":{{"managed":{processes}}}}}"#
        );
        let text = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do\n  if [ \"$1\" = --stats ]; then file=$2; fi\n  shift\ndone\nshift\n\
             cat > \"$file\" <<'END'\n{stats}\nEND\n\"$@\" | {filter}\n"
        );
        fs::write(&path, text).expect("the temporary folder can be written to");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Script(path)
    }

    fn measured(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outswap-bench"));
        command.args(["programs", "--only=outswap", "--quick", "--programs=sort", "--percent=70", "--outswap"]);
        command.arg(&self.0).output().expect("the benchmark was built")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Left behind, it would do no harm.
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_same_output_is_a_measurement() {
    let output = Script::new("same", 1, "cat").measured();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("FAILED"), "{text}");
}

#[test]
fn one_other_byte_is_a_failure() {
    let output = Script::new("other", 1, "sed '500s/a/b/'").measured();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("resident FAILED: its output is not that of the first run"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 measurements FAILED"));
}

#[test]
fn a_program_that_nothing_managed_is_a_failure() {
    let output = Script::new("alone", 0, "cat").measured();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ran without Outswap"), "{said}");
}
