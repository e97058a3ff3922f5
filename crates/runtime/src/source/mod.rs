//! Fault sources: how pages leave and enter the program's reach, and how a touch of a missing page is noticed.
//!
//! One file each, and one line in the list below, from the best: [`moving`] (userfaultfd with `UFFDIO_MOVE`), [`copying`]
//! (userfaultfd with `UFFDIO_COPY`), and [`mprotect`] (access rights and SIGSEGV, for hosts that forbid userfaultfd). `hidden`
//! takes what the kernel does not read for the first two.

mod host;
mod hidden;
pub mod copying;
pub mod moving;
pub mod mprotect;

pub use host::{FaultSource, Host};

use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::mask::Mask;
use outswap_core::units::PageNo;
use outswap_sys::Result;

macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident = $type:ty,)* ) => {
        /// The fault source in use.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Source { $($(#[$doc])* $name),* }

        impl Source {
            /// All, the best first.
            pub const ALL: &[Source] = &[$(Source::$name),*];

            /// From its number in the control block.
            ///
            /// # Panics
            /// For a number that is no source's; set-up chooses one before anything asks.
            pub fn of(number: u32) -> Source {
                match number {
                    $(n if n == <$type>::NUMBER => Source::$name,)*
                    _ => panic!("a fault source was chosen"),
                }
            }
            /// Its number in the control block.
            pub fn number(self) -> u32 {
                match self { $(Source::$name => <$type>::NUMBER),* }
            }
            /// See [`FaultSource::ASKS_MAP`].
            pub fn asks_map(self) -> bool {
                match self { $(Source::$name => <$type>::ASKS_MAP),* }
            }
            /// See [`FaultSource::learn`].
            pub fn learn(self) {
                match self { $(Source::$name => <$type>::learn()),* }
            }
            /// See [`FaultSource::open`].
            ///
            /// # Errors
            /// As said there.
            pub fn open(self, min_fd: i32) -> Result<i32> {
                match self { $(Source::$name => <$type>::open(min_fd)),* }
            }
            /// See [`FaultSource::register`].
            ///
            /// # Errors
            /// As said there.
            pub fn register(self, fd: i32, addr: usize, len: usize) -> Result<()> {
                match self { $(Source::$name => <$type>::register(fd, addr, len)),* }
            }
            /// See [`FaultSource::may_be_missing`].
            pub fn may_be_missing(self, signal: i32, code: i32) -> bool {
                match self { $(Source::$name => <$type>::may_be_missing(signal, code)),* }
            }
            /// See [`FaultSource::is_missing`].
            pub fn is_missing(self, host: &impl Host, page: PageNo, err: u64) -> bool {
                match self { $(Source::$name => <$type>::is_missing(host, page, err)),* }
            }
            /// See [`FaultSource::counted_pages`].
            pub fn counted_pages(self, writable: u64, resident: u64) -> u64 {
                match self { $(Source::$name => <$type>::counted_pages(writable, resident)),* }
            }
            /// See [`outswap_core::machine::Machine::take`].
            pub fn take(
                self,
                host: &impl Host,
                first: PageNo,
                count: usize,
                present: Mask,
                batch: BatchNo,
                offset: usize,
            ) -> Mask {
                match self { $(Source::$name => <$type>::take(host, first, count, present, batch, offset)),* }
            }
            /// See [`outswap_core::machine::Machine::put`].
            pub fn put(self, host: &impl Host, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
                match self { $(Source::$name => <$type>::put(host, first, src)),* }
            }
            /// See [`outswap_core::machine::Machine::put_zero`].
            pub fn put_zero(self, host: &impl Host, first: PageNo, count: usize) -> (usize, Option<PutError>) {
                match self { $(Source::$name => <$type>::put_zero(host, first, count)),* }
            }
            /// See [`outswap_core::machine::Machine::drop_pages`].
            pub fn drop_pages(self, first: PageNo, count: usize) -> bool {
                match self { $(Source::$name => <$type>::drop_pages(first, count)),* }
            }
            /// See [`outswap_core::machine::Machine::transfer`].
            pub fn transfer(self, host: &impl Host, from: PageNo, to: PageNo) -> bool {
                match self { $(Source::$name => <$type>::transfer(host, from, to)),* }
            }
            /// See [`outswap_core::machine::Machine::protect`].
            pub fn protect(self, host: &impl Host, first: PageNo, count: usize, prot: Prot) -> bool {
                match self { $(Source::$name => <$type>::protect(host, first, count, prot)),* }
            }
            /// See [`outswap_core::machine::Machine::grain`].
            pub fn grain(self, host: &impl Host) -> usize {
                match self { $(Source::$name => <$type>::grain(host)),* }
            }
        }
    };
}
sources! {
    /// userfaultfd with `UFFDIO_MOVE`.
    Move = moving::Moving,
    /// userfaultfd with `UFFDIO_COPY`.
    Copy = copying::Copying,
    /// mprotect and SIGSEGV.
    Mprotect = mprotect::Mprotect,
}

#[cfg(test)]
mod tests {
    use super::*;
    use outswap_control::source;
    use outswap_sys::signal::{SIGBUS, SIGSEGV, SIGSYS};

    #[test]
    fn sources_are_known_by_their_numbers() {
        let numbers = [source::MOVE, source::COPY, source::MPROTECT];
        assert_eq!(numbers.map(Source::of), [Source::Move, Source::Copy, Source::Mprotect]);
        assert!(Source::ALL.iter().map(|s| s.number()).eq(numbers), "the best first");
    }

    #[test]
    fn only_the_signals_of_a_source_are_faults() {
        const BUS_ADRALN: i32 = 1;
        const BUS_ADRERR: i32 = 2;
        const SEGV_MAPERR: i32 = 1;
        const SEGV_ACCERR: i32 = 2;
        for source in [Source::Move, Source::Copy] {
            assert!(source.may_be_missing(SIGBUS, BUS_ADRERR) && !source.asks_map());
            for (signal, code) in [(SIGBUS, BUS_ADRALN), (SIGBUS, 0), (SIGSEGV, SEGV_ACCERR), (SIGSYS, BUS_ADRERR)] {
                assert!(!source.may_be_missing(signal, code), "{source:?} {signal} {code}");
            }
        }
        let source = Source::Mprotect;
        assert!(source.may_be_missing(SIGSEGV, SEGV_ACCERR) && source.asks_map());
        for (signal, code) in [(SIGSEGV, SEGV_MAPERR), (SIGSEGV, 0), (SIGBUS, BUS_ADRERR), (SIGSYS, SEGV_ACCERR)] {
            assert!(!source.may_be_missing(signal, code), "{source:?} {signal} {code}");
        }
    }
}
