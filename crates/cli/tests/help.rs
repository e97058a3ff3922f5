//! Help as wide as the terminal that it is printed on.
use std::process::Command;

#[test]
fn help_is_as_wide_as_columns_says() {
    for width in [56usize, 72] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outswap"));
        // Without a terminal this says how wide the reader's is.
        let output =
            command.args(["help", "record"]).env("COLUMNS", width.to_string()).output().expect("outswap starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let widest =
            text.lines().filter(|line| !line.trim_start().starts_with("--")).map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= width && widest > width * 3 / 5), "{width}: {text}");
    }
}

#[test]
fn what_is_hidden_is_not_offered_and_each_exit_status_is_told() {
    let outswap =
        |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_outswap")).args(words).output().expect("outswap starts");
    let bare = outswap(&[]);
    let said = String::from_utf8(bare.stderr).expect("text");
    assert_eq!((bare.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(
        said.starts_with("outswap: a subcommand is missing: run, record, doctor") && !said.contains("generate"),
        "{said}"
    );
    let help = String::from_utf8(outswap(&["help", "run"]).stdout).expect("text");
    let statuses = &help[help.find("Exit status").expect("it tells of them")..];
    for status in ["122", "125", "126", "127"] {
        assert!(statuses.contains(status), "{status}: {statuses}");
    }
}
