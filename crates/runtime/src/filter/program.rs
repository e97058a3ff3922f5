//! Puts filter programs together: jumps, searches, and what the kernel finds in `seccomp_data`.
use crate::layout::{ARENA, ARENA_MAX_BYTES};
use crate::limits::{CALL_NUMBERS, FILTER_BORDERS, FILTER_NEAR, FILTER_OPS};

/// An instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Op {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// Loads a word.
pub const LOAD: u16 = 0x20;
/// Jumps where what is loaded equals `k`.
pub const JEQ: u16 = 0x15;
/// Jumps where it is at least `k`.
pub const JGE: u16 = 0x35;
/// Jumps where it has a bit of `k`.
pub const JSET: u16 = 0x45;
/// Jumps.
pub const JA: u16 = 0x05;
/// Keeps the bits of `k`.
pub const AND: u16 = 0x54;
/// Answers `k`.
pub const RET: u16 = 0x06;
/// Answer: the call is made.
pub const ALLOW: u32 = 0x7fff_0000;
/// What comes with our SIGSYS as `si_errno`: filters of the program's own trap, too, and the kernel tells of the newest.
pub const OUR_TRAP: i32 = 0x0f53;
/// Answer: the thread gets SIGSYS, which is ours.
pub const TRAP: u32 = 0x0003_0000 | OUR_TRAP as u32;
/// Answer: the call fails, with the error number added to this.
pub const ERRNO: u32 = 0x0005_0000;
/// This architecture.
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// Where the call's number is in `seccomp_data`.
pub const AT_NR: u32 = 0;
/// Where its architecture is.
pub const AT_ARCH: u32 = 4;
/// Where its address is.
pub const AT_IP: u32 = 8;
/// Where an argument is.
pub const fn at_arg(i: u32) -> u32 {
    16 + i * 8
}

/// An instruction of a program, as a target of jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At(usize);

/// A program under construction. It is written from its end to its start: jumps only lead forward, so what an instruction leads
/// to is there before it.
pub struct Program {
    ops: [Op; FILTER_OPS],
    /// The first instruction so far.
    start: usize,
    /// How many values a search compares one by one: fewer make calls faster, more make the program shorter.
    few: u64,
}

impl Program {
    /// An empty program, see `few`.
    pub fn new(few: u64) -> Program {
        Program { ops: [Op { code: 0, jt: 0, jf: 0, k: 0 }; FILTER_OPS], start: FILTER_OPS, few }
    }

    /// The instructions.
    pub fn ops(&self) -> &[Op] {
        &self.ops[self.start..]
    }

    /// Puts an instruction in front.
    pub fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> At {
        self.start = self.start.checked_sub(1).expect("filter fits");
        self.ops[self.start] = Op { code, jt, jf, k };
        At(self.start)
    }

    /// Loads a word of `seccomp_data`, then goes on with the instruction written last.
    pub fn load(&mut self, at: u32) -> At {
        self.push(LOAD, at, 0, 0)
    }

    /// Answers `value`.
    pub fn ret(&mut self, value: u32) -> At {
        self.push(RET, value, 0, 0)
    }

    /// Makes `to` what comes next.
    pub fn then(&mut self, to: At) -> At {
        if to.0 == self.start { to } else { self.push(JA, (to.0 - self.start) as u32, 0, 0) }
    }

    /// A place within reach of a conditional jump that leads to `to`.
    pub fn near(&mut self, to: At) -> At {
        if to.0 - self.start <= FILTER_NEAR {
            return to;
        }
        let relay = |&i: &usize| self.ops[i].code == JA && i + 1 + self.ops[i].k as usize == to.0;
        match (self.start..self.start + FILTER_NEAR).find(relay) {
            Some(i) => At(i),
            None => self.push(JA, (to.0 - self.start) as u32, 0, 0),
        }
    }

    /// Branches on what is loaded.
    pub fn branch(&mut self, code: u16, k: u32, yes: At, no: At) -> At {
        let (yes, no) = (self.near(yes), self.near(no));
        self.push(code, k, (yes.0 - self.start) as u8, (no.0 - self.start) as u8)
    }

    /// Branches on what is loaded, a value below `end`, by a binary search. From the value of each border on, up to the next,
    /// its target holds; what is loaded is not below the first.
    pub fn search(&mut self, borders: &[(u32, At)], end: u64) -> At {
        if let [(_, to)] = borders {
            return *to;
        }
        if let Some(at) = self.few(borders, end) {
            return at;
        }
        let (below, above) = borders.split_at(borders.len() / 2);
        let from = above[0].0;
        let above = self.search(above, end);
        let below = self.search(below, from as u64);
        self.branch(JGE, from, above, below)
    }

    /// Branches as [`Program::search`], one value after the other, if all but a few have the same target. An island in a range
    /// of values has two borders but needs one comparison.
    pub fn few(&mut self, borders: &[(u32, At)], end: u64) -> Option<At> {
        let stop = |i: usize| borders.get(i + 1).map_or(end, |b| b.0 as u64);
        let width = |i: usize| stop(i) - borders[i].0 as u64;
        let rest = borders[(0..borders.len()).max_by_key(|&i| width(i))?].1;
        let others = (0..borders.len()).filter(|&i| borders[i].1 != rest);
        if others.clone().map(width).sum::<u64>() > self.few {
            return None;
        }
        let values = others.flat_map(|i| (borders[i].0 as u64..stop(i)).map(move |value| (value, i)));
        let mut next = rest;
        for (value, i) in values.rev() {
            next = self.branch(JEQ, value as u32, borders[i].1, next);
        }
        Some(next)
    }

    /// Loads a word of `seccomp_data` and branches on those of its `bits`, as [`Program::search`].
    pub fn switch(&mut self, word: u32, bits: u32, borders: &[(u32, At)]) -> At {
        let to = self.search(borders, 1 << 32);
        self.then(to);
        if bits != !0 {
            self.push(AND, bits, 0, 0);
        }
        self.load(word)
    }

    /// Branches on whether half of an argument (0: the lower one), as much of it as `bits` says, is a value.
    pub fn if_word(&mut self, (arg, half): (u32, u32), bits: u32, value: u32, yes: At, no: At) -> At {
        self.branch(JEQ, value, yes, no);
        if bits != !0 {
            self.push(AND, bits, 0, 0);
        }
        self.load(at_arg(arg) + 4 * half)
    }

    /// Branches on whether an argument lies in the managed range.
    pub fn if_managed(&mut self, arg: u8, yes: At, no: At) -> At {
        const { assert!(ARENA.is_multiple_of(1 << 32) && ARENA_MAX_BYTES.is_multiple_of(1 << 32)) };
        let to = self.branch(JGE, ((ARENA + ARENA_MAX_BYTES) >> 32) as u32, no, yes);
        self.branch(JGE, (ARENA >> 32) as u32, to, no);
        self.load(at_arg(arg as u32) + 4)
    }

    /// Branches on whether an argument lies in a range of addresses that is not empty.
    pub fn if_inside(&mut self, arg: u8, (start, end): (usize, usize), yes: At, no: At) -> At {
        let (low, high) = (at_arg(arg as u32), at_arg(arg as u32) + 4);
        let (first, last) = ((start >> 32) as u32, ((end - 1) >> 32) as u32);
        let (from, to) = (start as u32, (end - 1) as u32);
        // 64 bits are compared in halves.
        if first == last {
            let below_end = if to == u32::MAX { yes } else { self.branch(JGE, to + 1, no, yes) };
            self.branch(JGE, from, below_end, no);
            let inside = self.load(low);
            self.branch(JEQ, first, inside, no);
            return self.load(high);
        }
        let ends = if to == u32::MAX {
            yes
        } else {
            self.branch(JGE, to + 1, no, yes);
            self.load(low)
        };
        self.branch(JGE, from, yes, no);
        let begins = self.load(low);
        let at_first = self.branch(JEQ, first, begins, no);
        let at_last = self.branch(JEQ, last, ends, no);
        let before_last = self.branch(JGE, first + 1, yes, at_first);
        self.branch(JGE, last, at_last, before_last);
        self.load(high)
    }

    /// Branches on whether the call comes from one of these address ranges, which ascend.
    pub fn if_from(&mut self, code: &[(usize, usize)], yes: At, no: At) -> At {
        // 64 bits are compared in halves: each upper half that occurs has a search of its own for the lower one.
        let mut next = no;
        let halves = code.iter().filter(|r| r.1 > r.0).flat_map(|r| r.0 >> 32..=(r.1 - 1) >> 32);
        let mut last = None;
        for half in halves {
            if last.replace(half) == Some(half) {
                continue;
            }
            let mut borders = Borders::new(no);
            for &(start, end) in code {
                let (low, high) = (start.max(half << 32), end.min((half + 1) << 32));
                if low < high {
                    borders.add(low as u32, yes);
                    if high as u32 != 0 {
                        borders.add(high as u32, no);
                    }
                }
            }
            let low = self.switch(AT_IP, !0, borders.get());
            next = self.branch(JEQ, half as u32, low, next);
        }
        self.then(next);
        self.load(AT_IP + 4)
    }

    /// Branches on the call's number and completes the program. Calls of another architecture are allowed: they carry 32-bit
    /// pointers, which reach no managed memory but the `.bss` of a program that is linked to low addresses.
    pub fn finish(&mut self, targets: &[At; CALL_NUMBERS], beyond: &[(usize, At)], allow: At) {
        let mut borders = Borders::new(targets[0]);
        for (nr, &to) in targets.iter().enumerate() {
            borders.add(nr as u32, to);
        }
        for &(nr, to) in beyond {
            borders.add(nr as u32, to);
        }
        let body = self.switch(AT_NR, !0, borders.get());
        self.branch(JEQ, ARCH_X86_64, body, allow);
        self.load(AT_ARCH);
    }
}

/// From which value on which target holds: neighbours differ.
pub struct Borders {
    of: [(u32, At); FILTER_BORDERS],
    len: usize,
}

impl Borders {
    /// From 0 on, `first` holds.
    pub fn new(first: At) -> Borders {
        let mut borders = Borders { of: [(0, At(0)); FILTER_BORDERS], len: 1 };
        borders.of[0].1 = first;
        borders
    }

    /// Adds a border that is not below the ones so far.
    pub fn add(&mut self, from: u32, to: At) {
        let (last, before) = self.of[self.len - 1];
        assert!(from >= last, "borders ascend");
        if before == to {
            return;
        }
        if last == from {
            self.of[self.len - 1].1 = to;
            return;
        }
        self.of[self.len] = (from, to);
        self.len += 1;
    }

    /// All borders.
    pub fn get(&self) -> &[(u32, At)] {
        &self.of[..self.len]
    }
}
