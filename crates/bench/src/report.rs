//! Results as a table for people and as JSON.
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::stats::Summary;

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;

/// Where results go, besides standard output.
#[derive(clap::Args)]
pub struct Output {
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the table as Markdown, with the machine and the command line
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// A value of `/proc` or `/sys`, trimmed; for `a [b] c` the chosen `b`. Null where there is none.
fn setting(path: &str) -> Value {
    let Ok(text) = fs::read_to_string(path) else {
        return Value::Null;
    };
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    json!(chosen.unwrap_or(text.trim()))
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The machine, with the kernel settings that change what is measured.
pub fn machine() -> Value {
    let memory_kib = field("/proc/meminfo", "MemTotal").and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map(|n| n.get()).unwrap_or(0),
        "memory_bytes": memory_kib.map(|kib| kib * 1024),
        "kernel": setting("/proc/sys/kernel/osrelease"),
        "transparent_hugepage": setting("/sys/kernel/mm/transparent_hugepage/enabled"),
        "hugepages_64k": setting("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"),
        "page_cluster": setting("/proc/sys/vm/page-cluster"),
        "swappiness": setting("/proc/sys/vm/swappiness"),
        "zswap": setting("/sys/module/zswap/parameters/enabled"),
    })
}

/// Now, in UTC, as ISO 8601.
fn date() -> String {
    // SAFETY: plain structures; gmtime_r fills the one it is given.
    let utc = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut utc: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&now, &mut utc);
        utc
    };
    let (year, month, day) = (utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", utc.tm_hour, utc.tm_min, utc.tm_sec)
}

/// The command line, with the program's name without its folder.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("outswap-bench".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The whole JSON document.
pub fn document(benchmark: &str, settings: Value, notes: &[String], results: Vec<Value>) -> Value {
    // Whatever steers Outswap from outside the command line belongs to the result.
    let environment: serde_json::Map<String, Value> =
        std::env::vars().filter(|(name, _)| name.starts_with("OUTSWAP_")).map(|(n, v)| (n, v.into())).collect();
    json!({
        "schema": SCHEMA,
        "benchmark": benchmark,
        "date": date(),
        "command": command(),
        "environment": environment,
        "machine": machine(),
        "settings": settings,
        "notes": notes,
        "results": results,
    })
}

/// A Markdown table whose columns line up as plain text too.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut text = line(&mut head.iter().copied()) + &line(&mut rules.iter().map(String::as_str));
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

/// `median (min-max)`.
pub fn spread(summary: Option<Summary>, digits: usize) -> String {
    let Some(Summary { median, min, max }) = summary else {
        return "-".to_owned();
    };
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

/// The quotient of two medians, where both were measured.
pub fn ratio(of: Option<Summary>, to: Option<Summary>) -> Option<f64> {
    Some(of?.median / to?.median)
}

/// A number, or `-` for none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Prints the table and writes the files that were asked for.
pub fn publish(output: &Output, document: &Value, table: &str) -> Result<(), String> {
    let notes: Vec<&str> = document["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
    print!("{table}{}{notes}", if notes.is_empty() { "" } else { "\n" });
    if let Some(path) = &output.json {
        fs::write(path, format!("{document:#}\n")).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &output.markdown {
        let machine = &document["machine"];
        let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
        let gib = machine["memory_bytes"].as_u64().unwrap_or(0) as f64 / (1u64 << 30) as f64;
        let page = format!(
            "Machine: {}, {} cores, {gib:.1} GiB, Linux {}, transparent huge pages {}, 64 KiB folios {}.\n\
             Date: {}\nCommand: `{}`\n\n{table}\n{notes}",
            text("cpu"),
            machine["cores"],
            text("kernel"),
            text("transparent_hugepage"),
            text("hugepages_64k"),
            document["date"].as_str().unwrap_or_default(),
            document["command"].as_str().unwrap_or_default(),
        );
        fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_and_lines_up() {
        let rows = [vec!["fill".to_owned(), "1".to_owned()], vec!["rand-read".to_owned(), "12345".to_owned()]];
        let expected = "| what      | n     |\n| --------- | ----- |\n| fill      | 1     |\n| rand-read | 12345 |\n";
        assert_eq!(table(&["what", "n"], &rows), expected);
    }

    #[test]
    fn a_document_names_schema_machine_and_command() {
        let document = document("touch", json!({"runs": 3}), &["a note".to_owned()], vec![json!({"threads": 1})]);
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["benchmark"], "touch");
        assert_eq!(document["settings"]["runs"], 3);
        assert_eq!(document["notes"][0], "a note");
        assert_eq!(document["results"][0]["threads"], 1);
        assert!(document["machine"]["cores"].as_u64() > Some(0));
        assert!(document["machine"]["kernel"].is_string());
        assert!(document["command"].as_str().is_some_and(|command| command.starts_with("outswap-bench")));
        let date = document["date"].as_str().unwrap_or_default();
        assert!(date.len() == 20 && date.ends_with('Z') && date.starts_with("20"), "{date}");
    }

    #[test]
    fn numbers_that_were_not_measured_are_dashes() {
        assert_eq!(spread(None, 2), "-");
        assert_eq!(spread(Summary::of(&[1.0, 2.5, 4.0]), 1), "2.5 (1.0-4.0)");
        assert_eq!(ratio(Summary::of(&[1.0]), None), None);
        assert_eq!(number(ratio(Summary::of(&[1.0]), Summary::of(&[4.0])), 2), "0.25");
        assert_eq!(number(None, 2), "-");
    }
}
