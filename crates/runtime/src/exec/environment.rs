//! The environment of a new program: ours in it, and the program's own kept.
use super::buffer::{Buffer, Read, word};
use crate::limits::EXEC_BUFFER_BYTES;
use crate::rlimits::VARIABLE;
use outswap_control::{ENV, PLACE_BYTES, Place};
use outswap_sys::Errno;

/// What a new program is to find.
pub struct Wanted<'a> {
    /// Whether it is to be managed.
    pub follow: bool,
    /// Where this process has the control block.
    pub ours: Place,
    /// Our libraries, as a value of `LD_PRELOAD`.
    pub libraries: &'a [u8],
    /// The value of [`VARIABLE`]; empty for none.
    pub limits: &'a [u8],
}

/// Makes a new program's environment of the one that this program gives it. Returns its address in the buffer.
///
/// # Errors
/// `EFAULT` for memory that is not readable, `E2BIG` where the buffer is full.
pub fn build(buffer: &mut Buffer, read: &mut Read<'_>, envp: usize, wanted: &Wanted<'_>) -> Result<usize, Errno> {
    let Wanted { follow, ours, libraries, limits } = *wanted;
    // The program may have cleared or changed the environment.
    let mut found = Found::default();
    let mut i = 0;
    while envp != 0 && i * 8 < EXEC_BUFFER_BYTES {
        let pointer = word(read, envp + i * 8)?;
        if pointer == 0 {
            break;
        }
        let mark = buffer.used;
        if !found.see(buffer.bytes(read, pointer)?) {
            buffer.used = mark;
        }
        i += 1;
    }
    let mut more = [0usize; 3];
    let mut n = 0;
    if follow && !limits.is_empty() {
        more[n] = buffer.text(&[VARIABLE, b"=", limits])?;
        n += 1;
    }
    let place = found.control.and_then(Place::parse);
    if follow && place.is_some_and(|place| !place.is_same_run(&ours) && place.is_inside(&ours)) {
        // A run that was started inside this one manages the program, and keeps to our limit as well.
        return buffer.array(read, envp, |entry| is_other(entry, &[VARIABLE]), &more[..n]);
    }
    let (mark, start) = (buffer.used, buffer.end());
    buffer.put(b"LD_PRELOAD=")?;
    if write_preload(libraries, found.preload.unwrap_or_default(), follow, |part| buffer.put(part))? {
        buffer.put(b"\0")?;
        more[n] = start;
        n += 1;
    } else {
        buffer.used = mark;
    }
    if follow {
        let mut value = [0u8; PLACE_BYTES];
        more[n] = buffer.text(&[ENV.as_bytes(), b"=", ours.write(&mut value)])?;
        n += 1;
    }
    let written = [ENV.as_bytes(), b"LD_PRELOAD", VARIABLE];
    buffer.array(read, envp, |entry| is_other(entry, &written), &more[..n])
}

/// What of a new program's environment concerns us.
#[derive(Default)]
struct Found<'a> {
    /// Of several, the dynamic linker takes the last.
    preload: Option<&'a [u8]>,
    /// Of several, our own set-up takes the first.
    control: Option<&'a [u8]>,
}

impl<'a> Found<'a> {
    /// Looks at the next entry. Returns whether it is kept.
    fn see(&mut self, entry: &'a [u8]) -> bool {
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
fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Whether an entry of the environment is none of these variables.
fn is_other(entry: &[u8], names: &[&[u8]]) -> bool {
    names.iter().all(|name| value_of(entry, name).is_none())
}

/// Writes a value for `LD_PRELOAD`: our libraries first, if they are to be `with`in it, then what else stands in `value`.
/// Returns whether it is not empty.
fn write_preload(
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

    const OURS: Place = Place { fd: 5, supervisor_pid: 4242, supervisor_fd: 3 };

    /// The environment that is built of these entries.
    fn built(entries: &[&str], follow: bool, limits: &[u8]) -> Vec<String> {
        let strings: Vec<_> = entries.iter().map(|e| std::ffi::CString::new(*e).expect("no NUL")).collect();
        let array: Vec<usize> = strings.iter().map(|s| s.as_ptr() as usize).chain([0]).collect();
        let mut buffer = Buffer::for_test();
        let mut read = |from: usize, buf: &mut [u8]| crate::usermem::peek(from, buf);
        let wanted = Wanted { follow, ours: OURS, libraries: b"/o/p.so", limits };
        let mut at = build(&mut buffer, &mut read, array.as_ptr() as usize, &wanted).expect("readable");
        let mut found = Vec::new();
        // SAFETY: an array of strings that ends with a null pointer, as is tested here.
        unsafe {
            while *(at as *const usize) != 0 {
                let text = core::ffi::CStr::from_ptr(*(at as *const *const core::ffi::c_char));
                found.push(text.to_str().expect("text").to_string());
                at += 8;
            }
        }
        found
    }

    #[test]
    fn a_program_that_is_managed_finds_where_and_by_what() {
        let control = "OUTSWAP_CONTROL=5:/proc/4242/fd/3";
        assert_eq!(built(&[], true, b""), ["LD_PRELOAD=/o/p.so", control]);
        assert_eq!(
            built(&["A=1", "B="], true, b"ff"),
            ["A=1", "B=", "OUTSWAP_LIMITS=ff", "LD_PRELOAD=/o/p.so", control]
        );
        let changed =
            ["OUTSWAP_CONTROL=9:/proc/1/fd/9", "A=1", "LD_PRELOAD=/u.so", "OUTSWAP_LIMITS=old", "LD_PRELOAD=/v.so"];
        assert_eq!(built(&changed, true, b""), ["A=1", "LD_PRELOAD=/o/p.so:/v.so", control]);
        assert_eq!(built(&["OUTSWAP_CONTROL=nothing", control], true, b""), ["LD_PRELOAD=/o/p.so", control]);
    }

    #[test]
    fn a_program_that_is_not_managed_finds_nothing_of_ours() {
        let all = ["OUTSWAP_CONTROL=5:/proc/4242/fd/3", "A=1", "LD_PRELOAD=/o/p.so", "OUTSWAP_LIMITS=ff"];
        assert_eq!(built(&all, false, b"ff"), ["A=1"]);
        assert_eq!(built(&["LD_PRELOAD=/o/p.so:/u.so", "A=1"], false, b""), ["A=1", "LD_PRELOAD=/u.so"]);
    }

    #[test]
    fn no_environment_is_an_empty_one() {
        let mut buffer = Buffer::for_test();
        let wanted = Wanted { follow: false, ours: OURS, libraries: b"/o/p.so", limits: b"" };
        let at = build(&mut buffer, &mut |_, _| false, 0, &wanted).expect("nothing to read");
        // SAFETY: an array that was just made.
        assert_eq!(unsafe { *(at as *const usize) }, 0);
        assert_eq!(build(&mut buffer, &mut |_, _| false, 4096, &wanted), Err(Errno::EFAULT));
    }
}
