//! `--mechanism`: which policies a run uses.
use outswap_control::source;
use outswap_core::units::Order;
use outswap_core::{orders, protection, readahead, reclaim};

/// A kind of policy, as a user sees it.
struct Kind {
    name: &'static str,
    about: &'static str,
    /// The names, each with what it is.
    policies: fn() -> Vec<(&'static str, &'static str)>,
    default: fn() -> &'static str,
}

/// In the order of `outswap_control::Config::policies`.
const KINDS: [Kind; 8] = [
    Kind {
        name: "readahead",
        about: "what a fault brings besides its own page",
        policies: || readahead::Kind::ALL.iter().map(|(name, kind)| (*name, kind.about())).collect(),
        default: || name_of(readahead::Kind::ALL, readahead::Kind::DEFAULT),
    },
    Kind {
        name: "reclaim",
        about: "which pages go",
        policies: || reclaim::Kind::ALL.iter().map(|(name, kind)| (*name, kind.about())).collect(),
        default: || name_of(reclaim::Kind::ALL, reclaim::Kind::DEFAULT),
    },
    Kind {
        name: "folios",
        about: "the orders that folios come and go in",
        policies: || orders::Any::ALL.iter().map(|(name, kind)| (*name, kind.about())).collect(),
        default: || name_of(orders::Any::ALL, orders::Any::DEFAULT),
    },
    Kind {
        name: "reuse",
        about: "how pages are known to be unchanged, so that they need not be stored again",
        policies: || protection::Kind::ALL.iter().map(|(name, kind)| (*name, kind.about())).collect(),
        default: || name_of(protection::Kind::ALL, protection::Kind::DEFAULT),
    },
    Kind {
        name: "shared-anon",
        about: "shared anonymous memory of one process",
        policies: || vec![("on", "managed, until a fork needs it whole"), ("off", "the kernel's")],
        default: || "on",
    },
    Kind {
        name: "calls",
        about: "system calls that the C library's functions make on memory that is there",
        policies: || vec![("direct", "made at once"), ("trapped", "trapped, as all others are")],
        default: || "direct",
    },
    Kind {
        name: "bss",
        about: "what programs and libraries begin with, a MiB or more of it: zeros (.bss), and constants that hold addresses",
        policies: || {
            vec![
                ("on", "zeros are managed, where they can be; constants are put into a file of their own"),
                ("off", "the kernel's"),
            ]
        },
        default: || "on",
    },
    Kind {
        name: "zeros",
        about: "what a first touch finds while there is plenty of room",
        policies: || {
            vec![
                ("put", "memory of its own, with that of its neighbours where they are about to be touched"),
                (
                    "kernel",
                    "the kernel's own pages all around it, as it fills them; Outswap takes them over when memory runs short",
                ),
                ("mapped", "zero pages all around it, of which the kernel makes memory where they are written to"),
            ]
        },
        default: || "kernel",
    },
];

fn name_of<T: PartialEq>(all: &'static [(&'static str, T)], wanted: T) -> &'static str {
    all.iter().find(|(_, policy)| *policy == wanted).expect("a default is in its list").0
}

/// The policies asked for, by the numbers of their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mechanisms(pub [u32; KINDS.len()]);

impl Default for Mechanisms {
    fn default() -> Mechanisms {
        Mechanisms([source::AUTO; KINDS.len()])
    }
}

/// Reads `NAME=HOW,...`.
///
/// # Errors
/// What is wrong, for the user.
pub fn parse(text: &str) -> Result<Mechanisms, String> {
    let mut asked = Mechanisms::default();
    for part in text.split(',') {
        let (name, how) = part.split_once('=').ok_or_else(|| format!("'{part}' is not of the form NAME=HOW"))?;
        let at = KINDS.iter().position(|kind| kind.name == name).ok_or_else(|| {
            format!("'{name}' is no mechanism ({})", KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "))
        })?;
        let known: Vec<&str> = (KINDS[at].policies)().iter().map(|(name, _)| *name).collect();
        if !known.contains(&how) {
            return Err(format!("'{how}' is no {name} ({})", known.join(", ")));
        }
        asked.0[at] = source::number(how);
    }
    Ok(asked)
}

/// Adds the readahead policy of `--readahead`.
///
/// # Errors
/// What is wrong, for the user: there is no such policy, or `--mechanism` named another.
pub fn with_readahead(mut asked: Mechanisms, how: &str) -> Result<Mechanisms, String> {
    let Mechanisms([readahead, ..]) = parse(&format!("readahead={how}"))?;
    if ![source::AUTO, readahead].contains(&asked.0[0]) {
        return Err(format!("'{how}' is not what --mechanism says: name the policy once"));
    }
    asked.0[0] = readahead;
    Ok(asked)
}

/// Reads the orders of `--folio-orders`, a bit each.
///
/// # Errors
/// What is wrong, for the user: there is no such order, or `--mechanism` names a policy of orders.
pub fn folio_orders(asked: Mechanisms, text: &str) -> Result<u64, String> {
    let Mechanisms([_, _, folios, ..]) = asked;
    if folios != source::AUTO {
        return Err("--mechanism says the orders of folios, too: name them once".into());
    }
    let highest = Order::MAX.get();
    let bits = text.split(',').try_fold(0u64, |bits, part| {
        let order: Option<usize> = part.trim().parse().ok().filter(|order| *order <= highest);
        let order = order.ok_or_else(|| format!("'{part}' is not an order: they are numbers from 0 to {highest}"))?;
        Ok::<u64, String>(bits | 1 << order)
    })?;
    let (huge, parts) = (1 << highest, Order::PART.get());
    if (bits & !huge) >> (parts + 1) != 0 && bits >> parts & 1 == 0 {
        return Err(format!("orders above {parts} are made of what came in as order {parts}: list that, too"));
    }
    // Single pages are always among them.
    Ok(bits | 1)
}

/// What the help says of them.
pub fn help() -> String {
    let line = |kind: &Kind| {
        let of = |(name, about): &(&str, &str)| {
            let default = if *name == (kind.default)() { ", default" } else { "" };
            format!("    {}={name}{default}: {about}\n", kind.name)
        };
        let policies: String = (kind.policies)().iter().map(of).collect();
        format!("Mechanism {}, {}:\n{policies}", kind.name, kind.about)
    };
    KINDS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_are_known_by_their_names() {
        let asked = parse("reclaim=fifo,readahead=off").expect("both are known");
        let (named, others) = asked.0.split_at(2);
        assert_eq!(named, [source::number("off"), source::number("fifo")]);
        assert!(others.iter().all(|other| *other == source::AUTO), "{others:?}");
        assert!(parse("reclaim=magic").expect_err("unknown").contains("'magic' is no reclaim (fifo"));
        assert!(
            parse("magic=off")
                .expect_err("unknown")
                .contains("(readahead, reclaim, folios, reuse, shared-anon, calls, bss, zeros)")
        );
        assert!(parse("reclaim").is_err() && parse("").is_err());
        assert_eq!(with_readahead(asked, "off"), Ok(asked));
        assert!(with_readahead(asked, "cluster").expect_err("another").contains("--mechanism"));
        let alone = with_readahead(Mechanisms::default(), "cluster").expect("it is known");
        assert_eq!(alone.0[0], source::number("cluster"));
        assert!(
            with_readahead(Mechanisms::default(), "magic").expect_err("unknown").contains("'magic' is no readahead")
        );
    }

    #[test]
    fn orders_are_listed_by_their_numbers() {
        let orders = |text| folio_orders(Mechanisms::default(), text);
        assert_eq!([orders("0,2,4"), orders("0"), orders("6, 4,1")], [Ok(0b10101), Ok(1), Ok(0b101_0011)]);
        assert_eq!([orders("0,9"), orders("4,9"), orders("4,7,8")], [Ok(0x201), Ok(0x211), Ok(0x191)]);
        for (text, wanted) in [
            ("", "'' is not an order"),
            ("-1", "'-1'"),
            ("10", "'10'"),
            ("0,8", "list that"),
            ("a", "'a'"),
            ("0,5", "list that"),
        ] {
            assert!(orders(text).expect_err("wrong").contains(wanted), "{text}");
        }
        let named = parse("folios=small").expect("it is known");
        assert!(folio_orders(named, "0").expect_err("both").contains("--mechanism"));
    }

    #[test]
    fn numbers_of_policies_are_distinct() {
        for kind in &KINDS {
            let mut numbers: Vec<u32> = (kind.policies)().iter().map(|(name, _)| source::number(name)).collect();
            let all = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), all);
            assert!(!numbers.contains(&source::AUTO) && help().contains((kind.default)()));
        }
    }
}
