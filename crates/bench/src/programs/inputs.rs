//! What the programs work on: made from fixed seeds, the same each time.
use std::io::{self, Write};

use crate::random::Random;

const WORDS: [&str; 32] = [
    "account",
    "balance",
    "capital",
    "delivery",
    "east",
    "forward",
    "goods",
    "harbour",
    "invoice",
    "journal",
    "keeper",
    "ledger",
    "market",
    "notice",
    "order",
    "payment",
    "quarter",
    "receipt",
    "stock",
    "transfer",
    "union",
    "voucher",
    "warehouse",
    "yard",
    "of",
    "the",
    "in",
    "and",
    "by",
    "to",
    "from",
    "for",
];

/// Lines that begin with a random key, for sorting.
pub fn lines(to: &mut impl Write, count: u64) -> io::Result<()> {
    let mut random = Random::new(1);
    for _ in 0..count {
        write!(to, "{:010x}", random.next() >> 24)?;
        for _ in 0..3 + random.below(6) {
            write!(to, " {}", WORDS[random.below(WORDS.len())])?;
        }
        writeln!(to)?;
    }
    Ok(())
}

/// A C file with this many functions, which the compiler has to read, inline, unroll and allocate registers for.
pub fn c_file(to: &mut impl Write, functions: u64) -> io::Result<()> {
    let mut random = Random::new(2);
    writeln!(to, "typedef unsigned int word;\nextern word outside(word, const word *);")?;
    for n in 0..functions {
        let (a, b, c) = (random.below(1000) + 1, random.below(31) + 1, random.below(97) + 2);
        writeln!(to, "struct item{n} {{ word field[8]; struct item{n} *left, *right; double weight; }};")?;
        writeln!(to, "static word step{n}(const struct item{n} *item, word x)\n{{")?;
        writeln!(to, "    for (word i = 0; i < 8; i++)\n        x += item->field[i] * {a}u ^ (x >> {b});")?;
        writeln!(to, "    return x % {c} ? x : outside(x, item->field);\n}}")?;
        writeln!(to, "word walk{n}(struct item{n} *item, word depth)\n{{\n    word sum = {n}u;")?;
        writeln!(to, "    while (item && depth--) {{\n        switch (step{n}(item, sum) % 6) {{")?;
        for case in 0..5 {
            let (field, by) = (random.below(8), random.below(500));
            let (side, sign) = if random.below(2) == 0 { ("left", '+') } else { ("right", '^') };
            writeln!(to, "        case {case}: item->field[{field}] {sign}= sum * {by}u; item = item->{side}; break;")?;
        }
        writeln!(to, "        default: sum -= (word)(item->weight * {a}.5); item = item->left;\n        }}")?;
        writeln!(to, "        sum = sum << 3 | sum >> 29;\n    }}")?;
        match n {
            0 => writeln!(to, "    return sum;\n}}")?,
            _ => writeln!(to, "    return sum + walk{0}((struct item{0} *)item, depth & 7);\n}}", n - 1)?,
        }
    }
    Ok(())
}

/// A history for `git fast-import`: one large text, changed in some places by every commit.
pub fn history(to: &mut impl Write, commits: u64, text_lines: usize) -> io::Result<()> {
    let mut random = Random::new(3);
    let line = |random: &mut Random| {
        let mut line = format!("{:06x}", random.next() >> 40);
        for _ in 0..6 {
            line.push(' ');
            line.push_str(WORDS[random.below(WORDS.len())]);
        }
        line.push('\n');
        line
    };
    let mut text: Vec<String> = (0..text_lines).map(|_| line(&mut random)).collect();
    for commit in 0..commits {
        for _ in 0..text_lines / 50 {
            let place = random.below(text.len());
            text[place] = line(&mut random);
        }
        let message = format!("Change {commit}\n");
        writeln!(to, "commit refs/heads/main\nmark :{}", commit + 1)?;
        writeln!(to, "committer Bench <bench@localhost> {} +0000", 1_700_000_000 + commit * 60)?;
        write!(to, "data {}\n{message}", message.len())?;
        if commit > 0 {
            writeln!(to, "from :{commit}")?;
        }
        let length: usize = text.iter().map(String::len).sum();
        writeln!(to, "M 100644 inline ledger.txt\ndata {length}")?;
        for line in &text {
            to.write_all(line.as_bytes())?;
        }
        writeln!(to)?;
    }
    writeln!(to, "done")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(make: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let one = || {
            let mut bytes = Vec::new();
            make(&mut bytes).expect("a vector takes all");
            bytes
        };
        let bytes = one();
        assert_eq!(bytes, one(), "not the same twice");
        String::from_utf8(bytes).expect("plain text")
    }

    #[test]
    fn lines_are_as_many_as_asked_for_and_in_no_order() {
        let text = made(|to| lines(to, 1000));
        assert_eq!(text.lines().count(), 1000);
        assert!(!text.lines().is_sorted());
    }

    #[test]
    fn the_c_file_has_its_functions_and_its_braces_match() {
        let text = made(|to| c_file(to, 20));
        assert_eq!(text.matches("\nword walk").count(), 20);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn every_commit_of_the_history_has_a_text_of_the_length_it_says() {
        let text = made(|to| history(to, 5, 100));
        assert_eq!(text.matches("commit refs/heads/main\n").count(), 5);
        let mut rest = text.as_str();
        for _ in 0..5 {
            let (_, after) = rest.split_once("ledger.txt\ndata ").expect("one for each commit");
            let (length, after) = after.split_once('\n').expect("a length");
            let length: usize = length.parse().expect("a number");
            assert_eq!(after[..length].lines().count(), 100);
            assert_eq!(&after[length..=length], "\n");
            rest = &after[length..];
        }
        assert!(text.ends_with("\ndone\n"));
    }
}
