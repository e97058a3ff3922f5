//! Faults: the way in. A page that is touched, or that a call is about to use, is brought in, or found not to be ours.
//!
//! A fault is a small state machine: it looks at the page, waits for room, claims what it brings, and waits for what is read.
//! Each wait is told to the caller, who pauses ([`Pager::fault`]) or does something else meanwhile ([`Pager::fault_step`]): a
//! simulator parks the fault.
pub use crate::bring::Fault;
use crate::bring::{Next, Target, Way};
use crate::broken::{self, Broken};
use crate::firsttouch::filling;
use crate::machine::{Event, Machine};
use crate::orders::Orders;
use crate::page::{State, Word};
use crate::pager::{Context, Pager, Policies};
use crate::protection::Access;
use crate::readahead::{Plan, Readahead};
use crate::room::{Made, Room};
use crate::store::{Store, Ticket};
use crate::units::{BLOCK_PAGES, BlockNo, Order, PART_PAGES, PageNo};

/// Attempts to bring in a page, or to let it be written, that is mapped but that the machine says is not.
const GONE_TRIES: u32 = 1000;

/// What a fault waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// Who owns the page.
    Page(PageNo),
    /// Room under the limit, which others are making.
    Room,
    /// The store.
    Read,
    /// Nothing that has a name: an attempt failed that may succeed the next time.
    Luck,
}

/// A stream's fault brings in folios larger than a part up to one part in so many of the limit: what comes in must still be there when the
/// stream reaches it.
const LARGE_IN_LIMIT_SHARE: u64 = 16;

/// The page behind a page's block.
fn block_end(page: PageNo) -> PageNo {
    page.block().first_page().plus(BLOCK_PAGES)
}

/// How far a fault has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is over.
    Done(Fault),
    /// It has to wait: how long, in the terms of [`Machine::pause`].
    Wait(WaitFor, u32),
}

/// Who wants a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// The program touched it. What comes next, the readahead policy has to guess.
    Touch,
    /// A call needs all up to the page before this one.
    Call(PageNo),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Look,
    MakeRoom,
    Take,
    AllowWrites,
    Read(Ticket),
}

/// A fault in progress. It keeps the context that it was begun with: what it has claimed stands there.
pub struct Faulting {
    /// The page that was touched.
    touched: PageNo,
    /// What is being brought in: that page, or later ones that are read ahead.
    target: Target,
    cause: Cause,
    stage: Stage,
    /// The page is wanted without its neighbours.
    alone: bool,
    /// Nobody touched the page: it is brought in where nothing is in the way.
    unasked: bool,
    /// What is to come with the touched page, and after it.
    plan: Option<Plan>,
    room: Room,
    busy_spins: u32,
    tries: u32,
    /// When it began to wait, if it did.
    waiting_since_ns: Option<u64>,
}

impl Faulting {
    /// The program has touched a page.
    pub fn touch(page: PageNo, access: Access) -> Faulting {
        Faulting::new(page, access, Cause::Touch)
    }
    /// A stream will reach the part that begins with `page`.
    pub(crate) fn unasked(page: PageNo) -> Faulting {
        let cause = Cause::Call(page.plus(PART_PAGES));
        Faulting { unasked: true, ..Faulting::new(page, Access::Read, cause) }
    }
    fn new(page: PageNo, access: Access, cause: Cause) -> Faulting {
        Faulting {
            touched: page,
            target: Target {
                page,
                access,
                seen: Word::UNTOUCHED,
                way: Way::Bypass,
                range: (page, 1),
                claimed: (page, 0),
                mapped: false,
                asked_ns: 0,
            },
            cause,
            stage: Stage::Look,
            alone: false,
            unasked: false,
            plan: None,
            room: Room::new(1),
            busy_spins: 0,
            tries: 0,
            waiting_since_ns: None,
        }
    }
    /// From a page that is read ahead to the next, see [`Plan::step`].
    fn step(&self) -> usize {
        self.plan.map_or(1, |plan| plan.step)
    }
    /// Whether what is being brought in is read ahead: it is given up where anything is in the way.
    fn is_ahead(&self) -> bool {
        self.unasked || self.target.page != self.touched
    }
}

impl<M: Machine, S: Store, P: Policies> Pager<M, S, P> {
    /// Answers a touch of `page` by the program: brings the page in, lets it be written, or finds that it is not ours.
    pub fn fault(&self, page: PageNo, access: Access, cx: &mut Context<S::Worker>) -> Fault {
        self.answer(Faulting::new(page, access, Cause::Touch), cx)
    }

    /// Brings in a page for a call that needs all pages from there to the one before `end`.
    pub(crate) fn fault_in(&self, page: PageNo, end: PageNo, access: Access, cx: &mut Context<S::Worker>) -> Fault {
        let cause = if broken::is(Broken::CallsAreTouches) { Cause::Touch } else { Cause::Call(end) };
        self.answer(Faulting::new(page, access, cause), cx)
    }

    pub(crate) fn answer(&self, mut fault: Faulting, cx: &mut Context<S::Worker>) -> Fault {
        loop {
            match self.fault_step(&mut fault, cx) {
                Progress::Done(end) => return end,
                Progress::Wait(_, spins) => self.machine.pause(spins),
            }
        }
    }

    /// Goes on with a fault up to where it has to wait. The context is the same in all steps, and nobody else's between them.
    pub fn fault_step(&self, fault: &mut Faulting, cx: &mut Context<S::Worker>) -> Progress {
        if let Some(since_ns) = fault.waiting_since_ns.take() {
            self.machine.count(Event::FaultWaitNs, self.machine.now_ns().saturating_sub(since_ns));
        }
        let progress = self.advance(fault, cx);
        if let Progress::Wait(..) = progress {
            fault.waiting_since_ns = Some(self.machine.now_ns());
        }
        progress
    }

    fn advance(&self, fault: &mut Faulting, cx: &mut Context<S::Worker>) -> Progress {
        if fault.touched.0 as usize >= self.pages.len() {
            return Progress::Done(Fault::NotMapped);
        }
        loop {
            let next = match fault.stage {
                Stage::Look => match self.look(fault) {
                    None => continue,
                    Some(progress) => return progress,
                },
                Stage::MakeRoom => match self.room_step(&mut fault.room, cx) {
                    Made::Wait(spins) => return Progress::Wait(WaitFor::Room, spins),
                    Made::Done(made) => {
                        fault.stage = Stage::Take;
                        if made {
                            self.full.let_in();
                        } else if fault.target.page.block() > fault.touched.block() {
                            // Nothing more of a large folio comes where it has no room.
                            return self.over(fault);
                        } else if self.is_held_back(fault) {
                            if fault.target.range.1 == 1 {
                                return Progress::Done(Fault::Full);
                            }
                            // There may be room for this page alone.
                            (fault.alone, fault.stage) = (true, Stage::Look);
                        }
                        continue;
                    }
                },
                Stage::Take => match fault.target.seen.state() {
                    State::Untouched | State::Zero => self.first_touch(&fault.target, cx),
                    State::Isolated => self.hit(&fault.target, cx),
                    State::Resident => {
                        fault.stage = Stage::AllowWrites;
                        continue;
                    }
                    _ => self.swap_in(&mut fault.target, cx),
                },
                Stage::Read(ticket) => self.finish_swap_in(&mut fault.target, ticket, cx),
                Stage::AllowWrites => {
                    let Target { page, seen, range: (first, count), .. } = fault.target;
                    let end = if let Cause::Call(end) = fault.cause { end } else { first.plus(count) };
                    if self.allow_writes(page, seen, end, cx) > 0 || fault.tries > GONE_TRIES {
                        return Progress::Done(Fault::Done);
                    }
                    Next::Again
                }
            };
            if let Some(progress) = self.follow(fault, next) {
                return progress;
            }
        }
    }

    /// Looks at the page and says what comes next: `None` to go on.
    fn look(&self, fault: &mut Faulting) -> Option<Progress> {
        let word = self.pages.get(fault.target.page);
        fault.target.seen = word;
        match word.state() {
            // Reading ahead ends at the first page that is elsewhere.
            State::Swapped if fault.is_ahead() => {
                if !word.slot().is_some_and(|slot| self.store.is_synchronous(slot)) {
                    return Some(self.over(fault));
                }
            }
            State::Swapped => self.choose_way(fault),
            state if fault.is_ahead() => {
                let is_others = matches!(state, State::Resident | State::Busy)
                    && fault.step() == 1
                    && !broken::is(Broken::StreamsEndWhereMet);
                if let Some(plan) = fault.plan.filter(|_| is_others) {
                    // Somebody brings in the rest of the block from its end: for the policy, it has come.
                    fault.target.page = plan.ahead_end.min(block_end(fault.target.page));
                }
                return Some(self.over(fault));
            }
            State::Resident if word.is_untrapped() => {
                // It was trapped when it was touched, or is so still, where the machine had no room for other borders.
                if fault.cause == Cause::Touch {
                    self.fill_left(fault.target.page, word);
                }
                return Some(Progress::Done(Fault::Done));
            }
            State::Resident if fault.target.access == Access::Read => return Some(Progress::Done(Fault::Done)),
            // Whatever its word says: a page that the machine keeps protected must not be touched in vain for ever.
            State::Resident => {
                // The kernel may be about to copy it.
                let held = fault.cause == Cause::Touch && word.protected() != 0 && self.copies.is_held();
                let (copies, count) = if held { self.held_alone(fault.target.page) } else { (false, 1) };
                (fault.target.range, fault.room) = ((fault.target.page, count), Room::new(1));
                fault.stage = if copies { Stage::MakeRoom } else { Stage::AllowWrites };
                return None;
            }
            State::Busy => {
                if fault.busy_spins == 0 {
                    self.machine.count(Event::FaultWaited, 1);
                }
                fault.busy_spins += 1;
                return Some(Progress::Wait(WaitFor::Page(fault.target.page), fault.busy_spins - 1));
            }
            State::Untouched | State::Zero | State::Isolated => {}
        }
        if word.is_ahead() && fault.cause == Cause::Touch {
            // The policy learns of it as of a page that came by itself.
            fault.plan = Some(Plan::only(fault.target.page, 1));
        }
        fault.target.range = if word.state() == State::Isolated { (fault.target.page, 1) } else { self.range(fault) };
        fault.room = Room::new(fault.target.range.1);
        fault.stage = Stage::MakeRoom;
        None
    }

    /// Whether a page for which there is no room has to wait until the store has some. Not where the program had it before: its
    /// slot is free as soon as it is back, and that makes the room. Nor where a call needs it, which has others by then.
    fn is_held_back(&self, fault: &Faulting) -> bool {
        let is_new = matches!(fault.target.seen.state(), State::Untouched | State::Zero);
        let is_full = fault.room.is_full() && self.full.holds_back() && self.has_used_reserve();
        let is_mapped = || self.find(fault.target.page).is_some_and(|vma| !vma.foreign);
        fault.cause == Cause::Touch && is_new && is_full && is_mapped() && !broken::is(Broken::NoHoldingBack)
    }

    /// How the content of the target, which is in a store, comes.
    fn choose_way(&self, fault: &mut Faulting) {
        let target = &mut fault.target;
        target.way = match fault.cause {
            Cause::Call(_) => Way::Call,
            Cause::Touch if self.is_bypass(target.seen) || broken::is(Broken::MissIsBypass) => Way::Bypass,
            // One that is tried again has said what it wants.
            Cause::Touch if target.way == Way::MissAsked => Way::MissAsked,
            Cause::Touch => Way::Miss,
        };
    }

    /// The pages that a fault should bring: its own and, unless it is wanted alone, what is planned after it, and what the
    /// machine's grain adds around it, within the page's mapping.
    fn range(&self, fault: &mut Faulting) -> (PageNo, usize) {
        let page = fault.target.page;
        fault.target.mapped = false;
        let most = self.orders().pages_max();
        let (before, pages) = if fault.is_ahead() {
            (0, if fault.step() > 1 { 1 } else { PART_PAGES })
        } else {
            let plan = match fault.cause {
                _ if fault.alone || matches!(fault.target.way, Way::Miss | Way::MissAsked) => Plan::only(page, 1),
                Cause::Touch if most == 1 => Plan::only(page, 1),
                Cause::Touch => {
                    let plan = self.readahead().plan(page, self.limit_pages()).within(page, most);
                    if let Some((first, count)) = self.zeros_around(fault.target.seen, page, plan) {
                        let before = (page.0 - first.0) as usize;
                        (fault.target.mapped, fault.target.range) = (true, (first, count));
                        fault.plan = Some(Plan { before, ..Plan::only(page, count - before) });
                        return (first, count);
                    }
                    let filled = filling(page, most);
                    let is_more = plan.step == 1 && plan.pages < filled.pages;
                    let plan = if is_more && self.is_filled_up_to(fault.target.seen, page) { filled } else { plan };
                    self.to_folio_end(&fault.target, plan)
                }
                Cause::Call(end) => {
                    let part_end = page.folio(Order::PART).plus(PART_PAGES);
                    Plan::only(page, ((end.0.min(part_end.0)).saturating_sub(page.0) as usize).clamp(1, most))
                }
            };
            fault.plan = Some(plan);
            (plan.before as u32, plan.pages)
        };
        let grain = self.machine.grain() as u32;
        if fault.alone || before == 0 && pages == 1 && grain == 1 {
            return (page, 1);
        }
        let Some(vma) = self.find(page) else { return (page, 1) };
        let group = page.0 & !(grain - 1);
        let mut first = group.min(page.0 - before);
        let mut end = (page.0 + pages as u32).max(group + grain);
        (first, end) = (first.max(vma.first.0), end.min(vma.end()));
        (PageNo(first), (end - first) as usize)
    }

    /// What is planned for a stream, which reads on to the end of the folio as part of which the touched page is stored, where that is larger
    /// than what is planned.
    fn to_folio_end(&self, target: &Target, plan: Plan) -> Plan {
        let order = target.seen.order().min(self.orders().comes_large());
        let is_large =
            target.seen.state() == State::Swapped && order > Order::PART && !broken::is(Broken::LargeInParts);
        let is_stream = plan.step == 1 && (plan.pages == PART_PAGES || plan.ahead_end > target.page.plus(plan.pages));
        if !is_large || !is_stream || self.limit_pages() < LARGE_IN_LIMIT_SHARE * order.pages() as u64 {
            return plan;
        }
        // What was moved there from elsewhere may lie at the end of what there is.
        let end = target.page.folio(order).plus(order.pages()).min(PageNo(self.pages.len() as u32));
        Plan { ahead_end: plan.ahead_end.max(end), ..plan }
    }

    /// Draws the conclusion from what a stage has come to: `None` to go on.
    fn follow(&self, fault: &mut Faulting, next: Next) -> Option<Progress> {
        fault.stage = Stage::Look;
        match next {
            Next::There(pages) => return self.there(fault, pages),
            Next::Reading(ticket) => {
                fault.stage = Stage::Read(ticket);
                fault.tries += 1;
                return Some(Progress::Wait(WaitFor::Read, fault.tries));
            }
            _ if fault.is_ahead() => return Some(self.over(fault)),
            Next::Alone => {
                fault.target.range = (fault.target.page, 1);
                fault.stage = Stage::Take;
                return None;
            }
            // Pages that lie in one mapping here may lie in two of the machine's, which installs nothing across a border;
            // and the map changes before the machine does. From now on it is asked for this page alone.
            Next::Failed(Fault::NotMapped)
                if fault.tries < GONE_TRIES && self.find(fault.target.page).is_some_and(|v| !v.foreign) =>
            {
                fault.alone = !broken::is(Broken::NeverAlone);
            }
            Next::Failed(end) => return Some(Progress::Done(end)),
            Next::Again => {}
        }
        fault.tries += 1;
        if fault.tries > 1 { Some(Progress::Wait(WaitFor::Luck, fault.tries)) } else { None }
    }

    /// A page is there: reads on where that is planned, or ends the fault.
    fn there(&self, fault: &mut Faulting, pages: usize) -> Option<Progress> {
        let swapped = fault.target.seen.state() == State::Swapped;
        if swapped && !fault.is_ahead() {
            let is_bypass = match fault.target.way {
                Way::Bypass => true,
                Way::Miss | Way::MissAsked => false,
                Way::Call => self.is_bypass(fault.target.seen),
            };
            self.machine.count(if is_bypass { Event::FaultBypass } else { Event::FaultMiss }, 1);
        }
        let (whole, next) = match fault.step() {
            1 => {
                let whole = if fault.is_ahead() { pages == PART_PAGES } else { pages > 1 };
                (whole, fault.target.page.folio(Order::PART).plus(PART_PAGES))
            }
            step => (true, fault.target.page.plus(step)),
        };
        let is_planned = fault.plan.is_some_and(|plan| next < plan.ahead_end);
        let goes_on = swapped && whole && is_planned;
        if whole && (goes_on || fault.is_ahead()) {
            fault.target.page = next;
        }
        if goes_on { None } else { Some(self.over(fault)) }
    }

    /// Ends a fault whose page is there.
    fn over(&self, fault: &Faulting) -> Progress {
        if let (Cause::Touch, Some(plan)) = (fault.cause, fault.plan) {
            let first = PageNo(fault.touched.0 - plan.before as u32);
            let planned = fault.touched.plus(plan.pages);
            let end = fault.target.page.max(planned);
            let mut last_end = block_end(fault.touched);
            if plan.step > 1 || end <= last_end {
                self.readahead().answered(fault.touched, first, end);
            } else {
                // What has come of further blocks is as if it had been touched there.
                self.readahead().answered(fault.touched, first, last_end);
                while last_end < end {
                    let next = last_end;
                    last_end = block_end(next);
                    self.readahead().answered(next, next, end.min(last_end));
                }
            }
            if plan.step == 1 && plan.ahead_end > planned {
                self.ask_stream(BlockNo(last_end.block().0 - 1));
            }
        }
        Progress::Done(Fault::Done)
    }
    /// A stream is at a block, and goes on: the next one is asked for, to be brought in by [`Pager::bring_stream`].
    pub fn ask_stream(&self, block: BlockNo) {
        let next = BlockNo(block.0 + 1);
        if (next.first_page().0 as usize) < self.pages.len() {
            self.upcoming.ask(next);
            if !self.machine.stream_is_asked() {
                self.upcoming.done(next);
            }
        }
    }
}
