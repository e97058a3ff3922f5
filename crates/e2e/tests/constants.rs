//! Constants of a program that the dynamic linker fills in, in a file where they are much for the limit.
use outswap_e2e::{Run, Tmp, build, plain_mode, setup};
use std::path::PathBuf;

/// A page is written to, so that it is in core dumps.
const IN_FILE_KIB: u64 = 4;

/// How the constants come into a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Program,
    /// And once more, in a program that it executes.
    Executed,
    /// Of a library that is opened.
    Library,
    /// The same, with so many zeros that it lies in managed memory.
    LibraryInside,
    /// In a program whose files may have 2 MB.
    ShortOfFile,
}

/// KiB of 4,096 that are the process's own memory, with such options; what it prints is checked.
fn own_kib(options: &[&str], how: As) -> u64 {
    let again = how == As::Executed;
    let mut command = vec![build::program("tests/programs/constants.c")];
    if matches!(how, As::Library | As::LibraryInside) {
        let inside = how == As::LibraryInside;
        let source = "tests/programs/constants.c";
        let library = if inside { build::library_with(source, "ZEROS") } else { build::library(source) };
        command = vec![build::program("tests/programs/constants_opened.c"), library];
    }
    if how == As::ShortOfFile {
        command.splice(0..0, ["sh", "-c", "ulimit -S -f 2000; exec \"$0\" \"$@\""].map(PathBuf::from));
    }
    let (program, library) = command.split_first().expect("a program");
    let dir = Tmp::new();
    let file = dir.join("kib");
    let more = if again { &["again"][..] } else { &[] };
    let plain = Run::new(program).args(library).arg(&file).args(more).run().exited(0);
    assert_eq!(plain.text(), if again { "constants\nconstants\n" } else { "constants\n" });
    let kib = || std::fs::read_to_string(&file).expect("it was written").trim().parse().expect("a number");
    let plainly: u64 = kib();
    assert!(plainly >= 4096, "{plainly}");
    if plain_mode() {
        return IN_FILE_KIB;
    }
    std::fs::remove_file(&file).expect("it was written");
    let run =
        Run::new(setup::outswap()).arg("run").args(options).arg("--").arg(program).args(library).arg(&file).args(more);
    let end = run.timeout_s(120).run().exited(0).same_as(&plain);
    // The swap file may be full at so little, too, which is told.
    assert!(how == As::ShortOfFile || end.stderr.is_empty(), "{}", end.describe());
    kib()
}

#[test]
fn they_are_in_a_file_where_they_are_much() {
    for source in ["move", "copy", "guard", "mprotect"] {
        assert_eq!(own_kib(&["--ram", "24M", "--fault-source", source], As::Program), IN_FILE_KIB, "{source}");
    }
}

#[test]
fn so_are_those_of_a_program_that_is_executed() {
    assert_eq!(own_kib(&["--ram", "24M"], As::Executed), IN_FILE_KIB);
}

#[test]
fn so_are_those_of_a_library_that_is_opened() {
    for source in ["move", "copy", "guard", "mprotect"] {
        for how in [As::Library, As::LibraryInside] {
            assert_eq!(own_kib(&["--ram", "24M", "--fault-source", source], how), IN_FILE_KIB, "{source}");
        }
    }
}

#[test]
fn they_stay_where_they_are_little_or_there_is_no_such_file() {
    if plain_mode() {
        return;
    }
    assert!(own_kib(&["--ram", "24M"], As::ShortOfFile) >= 4096);
    let without: [&[&str]; 5] = [
        &["--ram", "4G"],
        &["--resident", "24M"],
        &["--ram", "24M", "--mechanism", "bss=off"],
        &["--ram", "24M", "--swap", "compressed"],
        &["--ram", "64M", "--swap-dir", "/dev/shm", "--quiet"],
    ];
    for options in without {
        for how in [As::Program, As::Library] {
            assert!(own_kib(options, how) >= 4096, "{options:?}");
        }
    }
}
