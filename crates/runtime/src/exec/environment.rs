//! The environment of a new program: ours in it, and the program's own kept.
use outswap_control::ENV;
use outswap_sys::Errno;

/// What of a new program's environment concerns us.
#[derive(Default)]
pub struct Found<'a> {
    /// Of several, the dynamic linker takes the last.
    pub preload: Option<&'a [u8]>,
    /// Of several, our own set-up takes the first.
    pub control: Option<&'a [u8]>,
}

impl<'a> Found<'a> {
    /// Looks at the next entry. Returns whether it is kept.
    pub fn see(&mut self, entry: &'a [u8]) -> bool {
        if let Some(value) = value_of(entry, b"LD_PRELOAD") {
            self.preload = Some(value);
            return true;
        }
        match value_of(entry, ENV.as_bytes()) {
            Some(value) if self.control.is_none() => {
                self.control = Some(value);
                true
            }
            _ => false,
        }
    }
}

/// The value of an entry of the environment, if that is its name.
pub fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Whether an entry of the environment is none of these variables.
pub fn is_other(entry: &[u8], names: &[&[u8]]) -> bool {
    names.iter().all(|name| value_of(entry, name).is_none())
}

/// Writes a value for `LD_PRELOAD`: our libraries first, if they are to be `with`in it, then what else stands in `value`.
/// Returns whether it is not empty.
pub fn write_preload(
    libraries: &[u8],
    value: &[u8],
    with: bool,
    mut put: impl FnMut(&[u8]) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    let is_separator = |b: &u8| *b == b':' || *b == b' ';
    let mut any = with && !libraries.is_empty();
    if any {
        put(libraries)?;
    }
    for entry in value.split(is_separator).filter(|e| !e.is_empty()) {
        if libraries.split(is_separator).any(|l| l == entry) {
            continue;
        }
        if any {
            put(b":")?;
        }
        put(entry)?;
        any = true;
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preload(libraries: &str, value: &str, with: bool) -> Option<String> {
        let mut text = Vec::new();
        let put = |part: &[u8]| {
            text.extend_from_slice(part);
            Ok(())
        };
        let any = write_preload(libraries.as_bytes(), value.as_bytes(), with, put).expect("put never fails");
        assert_eq!(any, !text.is_empty());
        any.then(|| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn a_managed_program_has_our_libraries_first_and_keeps_its_own() {
        for (value, want) in [
            ("", "/o/p.so:/o/m.so"),
            ("/o/p.so:/o/m.so", "/o/p.so:/o/m.so"),
            ("/u.so", "/o/p.so:/o/m.so:/u.so"),
            ("/o/p.so:/o/m.so:/u.so /v.so", "/o/p.so:/o/m.so:/u.so:/v.so"),
            ("/u.so:/o/p.so:/o/m.so", "/o/p.so:/o/m.so:/u.so"),
            ("/o/m.so", "/o/p.so:/o/m.so"),
            ("/o/p.so:/o/m.so.2", "/o/p.so:/o/m.so:/o/m.so.2"),
            (" :: ", "/o/p.so:/o/m.so"),
        ] {
            assert_eq!(preload("/o/p.so:/o/m.so", value, true).as_deref(), Some(want), "{value}");
        }
    }

    #[test]
    fn a_program_left_alone_keeps_its_own_libraries() {
        for (value, want) in [
            ("", None),
            ("/o/p.so:/o/m.so", None),
            ("/o/p.so:/o/m.so:/u.so", Some("/u.so")),
            ("/u.so", Some("/u.so")),
            ("/u.so:/o/p.so:/v.so", Some("/u.so:/v.so")),
            ("/o/p.so /o/m.so u.so", Some("u.so")),
            ("/o/p.so.1", Some("/o/p.so.1")),
            (":", None),
        ] {
            assert_eq!(preload("/o/p.so:/o/m.so", value, false).as_deref(), want, "{value}");
        }
        assert_eq!(preload("", "/u.so", true).as_deref(), Some("/u.so"));
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let full = |_: &[u8]| Err(Errno::E2BIG);
        assert_eq!(write_preload(b"/o/p.so", b"", true, full), Err(Errno::E2BIG));
        assert_eq!(write_preload(b"/o/p.so", b"", false, full), Ok(false));
    }

    #[test]
    fn variables_are_known_by_their_whole_name() {
        assert_eq!(value_of(b"LD_PRELOAD=x=y", b"LD_PRELOAD"), Some(b"x=y".as_slice()));
        assert_eq!(value_of(b"LD_PRELOAD=", b"LD_PRELOAD"), Some(b"".as_slice()));
        for other in ["LD_PRELOAD", "LD_PRELOADX=1", "XLD_PRELOAD=1", "=LD_PRELOAD=", ""] {
            assert_eq!(value_of(other.as_bytes(), b"LD_PRELOAD"), None, "{other}");
        }
    }

    #[test]
    fn of_several_the_one_counts_that_the_new_program_takes() {
        let mut found = Found::default();
        let entries = ["A=1", "OUTSWAP_CONTROL=1", "LD_PRELOAD=a", "OUTSWAP_CONTROL=2", "LD_PRELOAD=b", "OUTSWAP=3"];
        let kept = entries.map(|entry| found.see(entry.as_bytes()));
        assert_eq!(kept, [false, true, true, false, true, false]);
        assert_eq!((found.preload, found.control), (Some(b"b".as_slice()), Some(b"1".as_slice())));
    }

    #[test]
    fn only_what_is_written_anew_is_left_out() {
        let ours = [ENV.as_bytes(), b"LD_PRELOAD"];
        let entries =
            ["OUTSWAP_CONTROL=1:/proc/2/fd/3", "OUTSWAP_CONTROLS=1", "LD_PRELOAD=", "LD_PRELOAD", "A=LD_PRELOAD=b", ""];
        let kept = entries.map(|entry| is_other(entry.as_bytes(), &ours));
        assert_eq!(kept, [false, true, false, true, true, true]);
        assert!(is_other(b"LD_PRELOAD=x", &[]));
    }
}
