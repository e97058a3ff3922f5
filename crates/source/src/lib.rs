//! Fault sources: how pages leave and enter the program's reach, and how a touch of a missing page is noticed.
//!
//! A fault source is a file of this folder and a line of the list at the end of this one. All else follows from that line: the
//! choice at the command line, by name or `auto`, the name in statistics, and the proof that `outswap doctor` makes of it.
//!
//! `no_std`, and without an allocator: it runs in a signal handler at any instruction of the program.
#![cfg_attr(not(test), no_std)]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod host;
mod hidden;
mod userfault;
mod access;

pub use access::{allows, open_mem};
pub use host::{FaultSource, GRAIN_MAX_PAGES, Host, Taker};

use outswap_control::source;
use outswap_core::machine::{BatchNo, Prot, PutError, Taken, Wanted};
use outswap_core::mask::Mask;
use outswap_core::units::{FrameNo, PageNo};
use outswap_sys::Result;
use outswap_sys::signal::{SIGBUS, SIGSEGV};

macro_rules! sources {
    ($($name:literal $module:ident::$type:ident $about:literal)+) => {
        $(mod $module;)+

        /// The fault sources there are.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Source { $(#[doc = $about] $type),+ }

        impl Source {
            /// All, the best first.
            pub const ALL: &[Source] = &[$(Source::$type),+];
            /// Their names, and `auto` for the first that works, as a user is told of the choice.
            pub const CHOICE: &str = concat!("auto" $(, "|", $name)+);

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Source::$type => $name),+ }
            }
            /// What it is, in a few words.
            pub const fn about(self) -> &'static str {
                match self { $(Source::$type => $about),+ }
            }
            /// Its number in the control block.
            pub const fn number(self) -> u32 {
                match self { $(Source::$type => const { source::number($name) }),+ }
            }
            /// From its number in the control block.
            pub fn of(number: u32) -> Option<Source> {
                match number {
                    $(n if n == const { source::number($name) } => Some(Source::$type),)+
                    _ => None,
                }
            }
            /// See [`FaultSource::ASKS_MAP`].
            pub fn asks_map(self) -> bool {
                match self { $(Source::$type => <$module::$type>::ASKS_MAP),+ }
            }
            /// See [`FaultSource::CHANGES_ACCESS`].
            pub fn changes_access(self) -> bool {
                match self { $(Source::$type => <$module::$type>::CHANGES_ACCESS),+ }
            }
            /// See [`FaultSource::LOSES_PAGES`].
            pub fn loses_pages(self) -> bool {
                match self { $(Source::$type => <$module::$type>::LOSES_PAGES),+ }
            }
            /// See [`FaultSource::SHOWS_ZEROS`].
            pub fn shows_zeros(self) -> bool {
                match self { $(Source::$type => <$module::$type>::SHOWS_ZEROS),+ }
            }
            /// See [`FaultSource::MOVES_HUGE`].
            pub fn moves_huge(self) -> bool {
                match self { $(Source::$type => <$module::$type>::MOVES_HUGE),+ }
            }
            /// See [`FaultSource::MAPS_ZERO`].
            pub fn maps_zero(self) -> bool {
                match self { $(Source::$type => <$module::$type>::MAPS_ZERO),+ }
            }
            /// See [`FaultSource::map_zero`].
            pub fn map_zero(self, host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
                match self { $(Source::$type => <$module::$type>::map_zero(host, first, count)),+ }
            }
            /// See [`FaultSource::UNTRAPS`].
            pub fn untraps(self) -> bool {
                match self { $(Source::$type => <$module::$type>::UNTRAPS),+ }
            }
            /// See [`FaultSource::untrap`].
            pub fn untrap(self, host: &impl Host, first: PageNo, count: usize) -> bool {
                match self { $(Source::$type => <$module::$type>::untrap(host, first, count)),+ }
            }
            /// See [`FaultSource::put_huge`].
            pub fn put_huge(self, host: &impl Host, first: PageNo, from: usize) -> bool {
                match self { $(Source::$type => <$module::$type>::put_huge(host, first, from)),+ }
            }
            /// See [`FaultSource::learn`].
            pub fn learn(self) {
                match self { $(Source::$type => <$module::$type>::learn()),+ }
            }
            /// See [`FaultSource::open`].
            ///
            /// # Errors
            /// As said there.
            pub fn open(self) -> Result<i32> {
                match self { $(Source::$type => <$module::$type>::open()),+ }
            }
            /// See [`FaultSource::register`].
            ///
            /// # Errors
            /// As said there.
            pub fn register(self, fd: i32, addr: usize, len: usize) -> Result<()> {
                match self { $(Source::$type => <$module::$type>::register(fd, addr, len)),+ }
            }
            /// See [`FaultSource::renew`].
            ///
            /// # Errors
            /// As said there.
            pub fn renew(self, host: &impl Host, first: PageNo, count: u32) -> Result<()> {
                match self { $(Source::$type => <$module::$type>::renew(host, first, count)),+ }
            }
            /// See [`FaultSource::while_still`].
            pub fn while_still<R>(self, host: &impl Host, f: impl FnOnce() -> R) -> R {
                match self { $(Source::$type => <$module::$type>::while_still(host, f)),+ }
            }
            /// See [`FaultSource::may_be_missing`].
            pub fn may_be_missing(self, signal: i32, code: i32) -> bool {
                match self { $(Source::$type => <$module::$type>::may_be_missing(signal, code)),+ }
            }
            /// The signal that tells of a missing page.
            pub fn signal(self) -> i32 {
                let codes = [1, 2, 3];
                let is_it = |signal: i32| codes.iter().any(|&code| self.may_be_missing(signal, code));
                if is_it(SIGBUS) { SIGBUS } else { SIGSEGV }
            }
            /// See [`FaultSource::is_missing`].
            pub fn is_missing(self, host: &impl Host, page: PageNo, err: u64) -> bool {
                match self { $(Source::$type => <$module::$type>::is_missing(host, page, err)),+ }
            }
            /// See [`FaultSource::counted_pages`].
            pub fn counted_pages(self, host: &impl Host, writable: u64, resident: u64) -> u64 {
                match self { $(Source::$type => <$module::$type>::counted_pages(host, writable, resident)),+ }
            }
            /// See [`outswap_core::machine::Machine::take`].
            pub fn take(
                self,
                host: &impl Host,
                first: PageNo,
                count: usize,
                wanted: Wanted,
                batch: BatchNo,
                offset: usize,
            ) -> Taken {
                match self { $(Source::$type => <$module::$type>::take(host, first, count, wanted, batch, offset)),+ }
            }
            /// See [`outswap_core::machine::Machine::put_back`].
            pub fn put_back(self, host: &impl Host, first: PageNo, batch: BatchNo, pages: Mask, held: Mask) -> Mask {
                match self { $(Source::$type => <$module::$type>::put_back(host, first, batch, pages, held)),+ }
            }
            /// See [`outswap_core::machine::Machine::put`].
            pub fn put(
                self,
                host: &impl Host,
                first: PageNo,
                src: &[u8],
                write_protected: bool,
            ) -> (usize, Option<PutError>) {
                match self { $(Source::$type => <$module::$type>::put(host, first, src, write_protected)),+ }
            }
            /// See [`outswap_core::machine::Machine::moves_back`].
            pub fn moves_back(self) -> bool {
                match self { $(Source::$type => <$module::$type>::MOVES_BACK),+ }
            }
            /// See [`outswap_core::machine::Machine::write_protects`].
            pub fn write_protects(self) -> bool {
                match self { $(Source::$type => <$module::$type>::WRITE_PROTECTS),+ }
            }
            /// See [`outswap_core::machine::Machine::puts_protected`].
            pub fn puts_protected(self) -> bool {
                self.write_protects() && outswap_sys::uffd::protects_unwritable()
            }
            /// See [`FaultSource::TAKER`].
            pub fn taker(self) -> Taker {
                match self { $(Source::$type => <$module::$type>::TAKER),+ }
            }
            /// See [`outswap_core::machine::Machine::forbid_writes`].
            pub fn forbid_writes(self, host: &impl Host, first: PageNo, count: usize) -> bool {
                match self { $(Source::$type => <$module::$type>::forbid_writes(host, first, count)),+ }
            }
            /// See [`outswap_core::machine::Machine::allow_writes`].
            pub fn allow_writes(self, host: &impl Host, first: PageNo, count: usize) -> bool {
                match self { $(Source::$type => <$module::$type>::allow_writes(host, first, count)),+ }
            }
            /// See [`outswap_core::machine::Machine::put_zero`].
            pub fn put_zero(self, host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
                match self { $(Source::$type => <$module::$type>::put_zero(host, first, count)),+ }
            }
            /// See [`outswap_core::machine::Machine::drop_pages`].
            pub fn drop_pages(self, host: &impl Host, first: PageNo, count: usize) -> bool {
                match self { $(Source::$type => <$module::$type>::drop_pages(host, first, count)),+ }
            }
            /// See [`outswap_core::machine::Machine::fill`].
            pub fn fill(self, host: &impl Host, frame: FrameNo, content: &[u8]) -> bool {
                match self { $(Source::$type => <$module::$type>::fill(host, frame, content)),+ }
            }
            /// See [`outswap_core::machine::Machine::release`].
            pub fn release(self, host: &impl Host, batch: BatchNo) -> bool {
                match self { $(Source::$type => <$module::$type>::release(host, batch)),+ }
            }
            /// See [`outswap_core::machine::Machine::transfer`].
            pub fn transfer(self, host: &impl Host, from: PageNo, to: PageNo) -> bool {
                match self { $(Source::$type => <$module::$type>::transfer(host, from, to)),+ }
            }
            /// See [`outswap_core::machine::Machine::protect`].
            pub fn protect(self, host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
                match self { $(Source::$type => <$module::$type>::protect(host, first, count, prot)),+ }
            }
            /// See [`outswap_core::machine::Machine::grain`].
            pub fn grain(self, host: &impl Host) -> usize {
                match self { $(Source::$type => <$module::$type>::grain(host)),+ }
            }
        }
    };
}

impl Source {
    /// By its name.
    pub fn named(name: &str) -> Option<Source> {
        Source::ALL.iter().copied().find(|source| source.name() == name)
    }
}

// A number names one source.
const _: () = {
    let mut at = 0;
    while at < Source::ALL.len() {
        assert!(Source::ALL[at].number() != source::AUTO);
        let mut before = 0;
        while before < at {
            assert!(Source::ALL[at].number() != Source::ALL[before].number());
            before += 1;
        }
        at += 1;
    }
};

// From the best: a source is chosen by itself where none before it works. It uses only those before it.
sources! {
    "move" moving::Moving "userfaultfd with UFFDIO_MOVE, Linux 6.8"
    "copy" copying::Copying "userfaultfd with UFFDIO_COPY, Linux 5.11"
    "guard" guard::Guard "guard markers and SIGSEGV, Linux 6.13"
    "mprotect" mprotect::Mprotect "access rights and SIGSEGV, where userfaultfd is forbidden"
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_sys::signal::{SIGBUS, SIGSEGV, SIGSYS};

    #[test]
    fn sources_are_known_by_their_names_and_numbers() {
        for &source in Source::ALL {
            assert_eq!((Source::of(source.number()), Source::named(source.name())), (Some(source), Some(source)));
            assert!(!source.about().is_empty() && source.name() != "auto");
        }
        assert_eq!((Source::of(source::AUTO), Source::named("auto")), (None, None));
        assert_eq!((Source::of(7), Source::named("magic")), (None, None));
        assert!(Source::CHOICE.starts_with("auto|move|copy|guard|mprotect"));
    }

    #[test]
    fn only_the_signals_of_a_source_are_faults() {
        const BUS_ADRALN: i32 = 1;
        const BUS_ADRERR: i32 = 2;
        const SEGV_MAPERR: i32 = 1;
        const SEGV_ACCERR: i32 = 2;
        for source in [Source::Moving, Source::Copying] {
            assert!(source.may_be_missing(SIGBUS, BUS_ADRERR) && !source.asks_map());
            for (signal, code) in [(SIGBUS, BUS_ADRALN), (SIGBUS, 0), (SIGSEGV, SEGV_ACCERR), (SIGSYS, BUS_ADRERR)] {
                assert!(!source.may_be_missing(signal, code), "{source:?} {signal} {code}");
            }
        }
        let source = Source::Guard;
        assert!(source.may_be_missing(SIGSEGV, SEGV_MAPERR) && source.may_be_missing(SIGSEGV, SEGV_ACCERR));
        for (signal, code) in [(SIGSEGV, 0), (SIGSEGV, 3), (SIGBUS, BUS_ADRERR), (SIGSYS, SEGV_MAPERR)] {
            assert!(!source.may_be_missing(signal, code) && source.asks_map(), "{source:?} {signal} {code}");
        }
        let source = Source::Mprotect;
        assert!(source.may_be_missing(SIGSEGV, SEGV_ACCERR) && source.asks_map());
        for (signal, code) in [(SIGSEGV, SEGV_MAPERR), (SIGSEGV, 0), (SIGBUS, BUS_ADRERR), (SIGSYS, SEGV_ACCERR)] {
            assert!(!source.may_be_missing(signal, code), "{source:?} {signal} {code}");
        }
    }
}
