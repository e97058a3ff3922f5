//! The pin of a call: what it uses is resident and stays so until it returns.
use crate::arena::{address, page_of};
use crate::contexts::Cx;
use crate::layout::*;
use crate::limits::{PIN_SPINS, SHORT_BYTES};
use crate::live::Live;
use crate::usermem::peek;
use crate::{budget, desk, gate};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use outswap_control::Once;
use outswap_core::fault::Fault;
use outswap_core::protection::Access;
use outswap_core::units::{PAGE_BYTES, PageNo};
use outswap_sys::os;

/// A pin being filled for a call.
pub struct CallPins<'a> {
    pub(super) live: &'a Live,
    pin: usize,
    /// Managed bytes that were asked for.
    pinned_bytes: usize,
    /// How many may be: as the limit was when the call began. It moves, and what was found to have room would fail for want of it.
    pub(super) most_bytes: usize,
    /// What the call does to what is pinned.
    access: Access,
    /// See [`CallPins::shared`].
    shared: Option<usize>,
}

impl<'a> CallPins<'a> {
    /// Takes a pin, waiting while all are in use.
    pub fn new(live: &'a Live) -> CallPins<'a> {
        let tid = desk::caller();
        let mut spins = 0;
        loop {
            if let Some(pin) = acquire(live, tid) {
                // SAFETY: the pin is this call's. What an earlier one waited with says nothing of this one.
                unsafe { (*gate::state(pin)).waits_with = None };
                live.last_pin.store(pin, Relaxed);
                let most_bytes = budget::pinned_max_bytes(live.pager.limit_pages());
                return CallPins { live, pin, pinned_bytes: 0, most_bytes, access: Access::Write, shared: None };
            }
            if spins == PIN_SPINS {
                free_dead(live);
            }
            os::wait_a_little(spins);
            spins += 1;
        }
    }

    /// The pin's number.
    pub fn number(&self) -> usize {
        self.pin
    }

    /// From now on pins are for this: a call that writes to memory which it was said only to read fails.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// An address in a shared object, where the call uses any that is managed.
    pub fn shared(&self) -> Option<usize> {
        self.shared
    }

    /// Bytes that may be asked for yet.
    pub fn room_bytes(&self) -> usize {
        self.most_bytes.saturating_sub(self.pinned_bytes)
    }

    /// Ends the assistance.
    pub fn release(self) {
        self.live.pager.pins.release(self.pin);
    }

    /// Makes what lies in managed memory of a range resident. Whatever is not accessible is left for the kernel to find.
    ///
    /// # Errors
    /// [`Fault::NoMemory`] also where a call names more than may be resident at once.
    pub fn pin(&mut self, cx: &mut Cx, addr: usize, len: usize) -> Result<(), Fault> {
        let Some((start, end)) = self.live.managed_part(addr, len) else { return Ok(()) };
        let end = if len > SHORT_BYTES { end.min(addr.saturating_add(self.reachable(addr, len))) } else { end };
        if start >= end {
            return Ok(());
        }
        self.pinned_bytes = self.pinned_bytes.saturating_add(end - start);
        if self.pinned_bytes > self.most_bytes {
            self.live.control.post_once(Once::TooLong);
            return Err(Fault::NoMemory);
        }
        let first = page_of(start);
        let count = page_of(end - 1).0 - first.0 + 1;
        if self.live.objects.any() && self.shared.is_none() {
            self.shared = self.shared_in(first, count);
        }
        self.live.pager.pins.publish(self.pin, first, count);
        match self.live.pager.pin(first, count, self.access, cx).1 {
            Fault::Done | Fault::NotMapped => Ok(()),
            error => Err(error),
        }
    }

    fn shared_in(&self, first: PageNo, count: u32) -> Option<usize> {
        let mut page = first.0;
        while let Some(vma) = self.live.pager.next_in(page, first.0 + count) {
            if vma.object.is_some() {
                return Some(address(vma.first));
            }
            page = vma.end();
        }
        None
    }

    /// How much of a buffer there is: in managed memory, up to the first page that is not mapped or has no access. The kernel
    /// goes no further; a number that is no address, with a length to match, must not bring in all that lies between.
    pub(super) fn reachable(&self, addr: usize, len: usize) -> usize {
        let end = addr.saturating_add(len);
        let (first, _) = self.live.stretch(addr, len);
        if addr < first && end > first && os::mincore(first - PAGE_BYTES, PAGE_BYTES, &mut [0]).is_err() {
            return first - addr;
        }
        let mut at = if end > first { addr.max(first) } else { addr };
        while at < end && in_managed(at) {
            match self.live.pager.find(page_of(at)) {
                Some(vma) if vma.prot.0 != 0 => at = address(PageNo(vma.end())),
                _ => return at - addr,
            }
        }
        len
    }

    /// Reads from the program's memory, wherever it is, without faulting.
    pub(super) fn read<T: Copy + Default>(&mut self, cx: &mut Cx, addr: usize) -> Option<T> {
        let mut value = [T::default()];
        let len = core::mem::size_of::<T>();
        self.pin(cx, addr, len).ok()?;
        // SAFETY: plain old data of that size.
        let bytes = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), len) };
        peek(addr, bytes).then_some(value[0])
    }
}

/// Keeps what of a range is managed resident for good, which it is by now.
pub fn keep_pages(live: &Live, addr: usize, len: usize) {
    if let Some((first, count)) = live.managed_pages(addr, len) {
        let _call = live.pager.begin_call();
        live.pager.keep(first, count);
    }
}

/// Takes a pin for a thread; `None` while all are in use.
pub fn acquire(live: &Live, tid: u32) -> Option<usize> {
    loop {
        let pin = live.pager.pins.acquire(tid, gate::built());
        if pin.is_some() || !build_more(live) {
            return pin;
        }
    }
}

/// Builds what some more pins need. False where all have it, or the system refuses.
pub fn build_more(live: &Live) -> bool {
    gate::more(|pin| live.pager.pins.owner_word(pin).as_ptr() as usize)
}

/// The same of direct pins.
pub fn build_more_direct(live: &Live) -> bool {
    gate::more_direct(|pin| live.pager.pins.owner_word(pin).as_ptr() as usize)
}

/// Lets some more direct calls be in progress at a time, of those that have a stub, until there are twice as many as threads.
pub fn build_direct(live: &Live, threads: usize) {
    let pins = &live.pager.pins;
    let is_wanted = live.direct.load(Relaxed) && pins.direct_allowed() < 2 * threads;
    if is_wanted && (pins.direct_allowed() < gate::direct_built() || build_more_direct(live)) {
        pins.allow_direct(gate::direct_built());
    }
}

/// Frees the pins of threads that are gone: a thread can die inside a call.
pub fn free_dead(live: &Live) {
    for (pin, owner) in live.pager.pins.in_use() {
        // Whatever process it is of: a vforked child is no thread of ours, but it uses our pins.
        if !live.is_alive(owner as i32) {
            // Unless it has another owner by now.
            let _ = live.pager.pins.owner_word(pin).compare_exchange(owner, 0, AcqRel, Relaxed);
        }
    }
}
