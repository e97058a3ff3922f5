//! Fault sources: how pages leave and enter the program's reach, and how a touch of a missing page is noticed.
//!
//! One file each: [`moving`] (userfaultfd with `UFFDIO_MOVE`), [`copying`] (userfaultfd with `UFFDIO_COPY`), and
//! [`mprotect`] (access rights and SIGSEGV, for hosts that forbid userfaultfd). `hidden` takes what the kernel does not read for
//! the first two.
pub mod copying;
mod hidden;
pub mod moving;
pub mod mprotect;

use crate::machine::LiveMachine;
use outswap_control::source;
use outswap_core::machine::{BatchNo, Prot, PutError};
use outswap_core::units::PageNo;

/// The fault source in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// userfaultfd with `UFFDIO_MOVE`.
    Move,
    /// userfaultfd with `UFFDIO_COPY`.
    Copy,
    /// mprotect and SIGSEGV.
    Mprotect,
}

impl Source {
    /// From its number in the control block.
    pub fn of(number: u32) -> Source {
        match number {
            source::MOVE => Source::Move,
            source::COPY => Source::Copy,
            _ => Source::Mprotect,
        }
    }

    /// See [`outswap_core::machine::Machine::take`].
    pub fn take(
        self,
        m: &LiveMachine,
        first: PageNo,
        count: usize,
        present: u64,
        batch: BatchNo,
        offset: usize,
    ) -> u64 {
        match self {
            Source::Move => moving::take(m, first, count, present, batch, offset),
            Source::Copy => copying::take(m, first, count, present, batch, offset),
            Source::Mprotect => mprotect::take(m, first, count, present, batch, offset),
        }
    }

    /// See [`outswap_core::machine::Machine::put`].
    pub fn put(self, m: &LiveMachine, first: PageNo, src: &[u8]) -> (usize, Option<PutError>) {
        match self {
            Source::Move | Source::Copy => copying::put(m, first, src),
            Source::Mprotect => mprotect::put(m, first, src),
        }
    }

    /// See [`outswap_core::machine::Machine::put_zero`].
    pub fn put_zero(self, m: &LiveMachine, first: PageNo, count: usize) -> (usize, Option<PutError>) {
        match self {
            Source::Move | Source::Copy => copying::put_zero(m, first, count),
            Source::Mprotect => mprotect::put_zero(first, count),
        }
    }

    /// See [`outswap_core::machine::Machine::drop_pages`].
    pub fn drop_pages(self, first: PageNo, count: usize) -> bool {
        // Closed first: a write in between would be kept under a page that counts as empty.
        let closed = match self {
            Source::Move | Source::Copy => true,
            Source::Mprotect => mprotect::close(first, count),
        };
        assert!(crate::machine::drop_content(first, count), "managed pages can be dropped");
        closed
    }

    /// See [`outswap_core::machine::Machine::transfer`].
    pub fn transfer(self, m: &LiveMachine, from: PageNo, to: PageNo) -> bool {
        match self {
            Source::Move => moving::transfer(m, from, to),
            Source::Copy => copying::transfer(m, from, to),
            Source::Mprotect => mprotect::transfer(m, from, to),
        }
    }

    /// See [`outswap_core::machine::Machine::protect`].
    pub fn protect(self, first: PageNo, count: usize, prot: Prot) -> bool {
        match self {
            Source::Move | Source::Copy => copying::protect(first, count, prot),
            Source::Mprotect => mprotect::protect(first, count, prot),
        }
    }

    /// See [`outswap_core::machine::Machine::grain`].
    pub fn grain(self) -> usize {
        match self {
            Source::Move | Source::Copy => 1,
            Source::Mprotect => mprotect::grain(),
        }
    }
}
