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
