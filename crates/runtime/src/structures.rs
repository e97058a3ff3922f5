//! Pointers inside the structures that arguments of system calls point to.
//!
//! The filter sees arguments only, so a call with a row here is trapped wherever its structure is. Calls whose structures are
//! vectors or messages have an argument of that kind in [`crate::calls`] instead.
use crate::limits::DEFAULT_BYTES;
use outswap_sys::nr;

/// How long what a pointer leads to is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many bytes.
    Bytes(u32),
    /// Up to its NUL.
    Str,
    /// A number in the same structure, of so many bytes, of elements.
    Field {
        /// Where it stands.
        at: u16,
        /// Its own length, bytes.
        bytes: u8,
        /// Bytes of an element.
        each: u8,
    },
}
use Length::*;

/// What is in a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner {
    /// Pointers at these places.
    At(&'static [(u16, Length)]),
    /// A list that lies right behind it, in the same argument, and may be long.
    Behind(Length),
    /// Nobody says what: each word that can be an address of managed memory is taken for one, of [`DEFAULT_BYTES`].
    Guess,
}
use Inner::*;

/// How many structures, and how long each is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// One of so many bytes.
    One(u16),
    /// So many of so many bytes.
    Several(u16, u16),
    /// The number that is an argument, of so many bytes.
    Each(u8, u16),
    /// One of as many bytes as an argument says.
    Sized(u8),
    /// One of as many bytes as the code of an `ioctl` says, which is an argument.
    Encoded(u8),
}
use Extent::*;

/// Values of the lower half of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    /// Which argument.
    pub arg: u8,
    /// The first value.
    pub from: u32,
    /// The last value.
    pub to: u32,
}

/// A structure with pointers.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// The call.
    pub nr: usize,
    /// When the call has such a structure: all of these hold. The filter looks at the first one alone, and only for calls that are
    /// made often ([`Structure::trapped_when`]).
    pub when: &'static [When],
    /// The argument that points to it.
    pub arg: u8,
    /// Its extent.
    pub extent: Extent,
    /// Its pointers.
    pub inner: Inner,
}

/// Calls that are made often: only those with such a structure are trapped.
const OFTEN: [usize; 4] = [nr::IOCTL, nr::SETSOCKOPT, nr::GETSOCKOPT, nr::PRCTL];

impl Structure {
    /// The values for which the call is trapped; all if `None`.
    pub fn trapped_when(&self) -> Option<When> {
        self.when.first().copied().filter(|_| OFTEN.contains(&self.nr))
    }

    /// Whether a call with these arguments has the structure.
    pub fn is_in(&self, args: &[usize; 6]) -> bool {
        self.when.iter().all(|when| (when.from..=when.to).contains(&(args[when.arg as usize] as u32)))
    }

    /// How many there are, and bytes of each.
    pub fn extent(&self, args: &[usize; 6]) -> (usize, usize) {
        match self.extent {
            One(bytes) => (1, bytes as usize),
            Several(count, bytes) => (count as usize, bytes as usize),
            Each(k, bytes) => (args[k as usize] as u32 as usize, bytes as usize),
            Sized(k) => (1, args[k as usize] as u32 as usize),
            // The size has 14 bits from bit 16 on.
            Encoded(k) => (1, args[k as usize] >> 16 & 0x3fff),
        }
    }
}

const fn is(arg: u8, value: u32) -> When {
    When { arg, from: value, to: value }
}
const fn within(arg: u8, from: u32, to: u32) -> When {
    When { arg, from, to }
}
/// An option of a socket that is long enough for a pointer and something beside it.
pub const LONG: When = within(4, 16, u32::MAX);
/// An `ioctl` that says of itself that the kernel reads and writes a structure of 16 bytes or more.
const BOTH_WAYS: When = within(1, 0xc010_0000, 0xffff_ffff);
const fn row(nr: usize, when: &'static [When], arg: u8, extent: Extent, inner: Inner) -> Structure {
    Structure { nr, when, arg, extent, inner }
}

/// `struct sock_fprog`: a count of instructions of 8 bytes, and where they are.
const FILTER: Inner = At(&[(8, Field { at: 0, bytes: 2, each: 8 })]);
/// `struct iovec`.
const BUFFER: Inner = At(&[(0, Field { at: 8, bytes: 8, each: 1 })]);
/// `struct ipt_replace`, and of other tables: counters of the rules before, which the kernel writes.
const fn counters(at: u16, field: u16) -> (u16, Length) {
    (at, Field { at: field, bytes: 4, each: 16 })
}
const IP_TABLE: Inner = At(&[counters(88, 84)]);
const ARP_TABLE: Inner = At(&[counters(72, 68)]);
/// `struct ebt_replace`: counters and rules.
const BRIDGE_TABLE: Inner = At(&[counters(104, 96), (112, Field { at: 40, bytes: 4, each: 1 })]);
/// `struct ifreq` with something of the driver's.
const DRIVERS: Inner = At(&[(16, Bytes(DEFAULT_BYTES))]);

const SOL_IP: u32 = 0;
const SOL_IPV6: u32 = 41;
const SOL_SOCKET: u32 = 1;
const SOL_TCP: u32 = 6;
const SOL_PACKET: u32 = 263;

/// All of them. Of several for one call, the first that fits holds.
#[rustfmt::skip]
pub const STRUCTURES: &[Structure] = &[
    // struct futex_waitv: the word's address.
    row(nr::FUTEX_WAITV, &[], 0, Each(1, 24), At(&[(8, Bytes(4))])),
    row(nr::FUTEX_REQUEUE, &[], 0, Several(2, 24), At(&[(8, Bytes(4))])),
    row(nr::SETSOCKOPT, &[LONG, is(2, 26), is(1, SOL_SOCKET)], 3, One(16), FILTER), // SO_ATTACH_FILTER
    row(nr::SETSOCKOPT, &[LONG, is(2, 51), is(1, SOL_SOCKET)], 3, One(16), FILTER), // SO_ATTACH_REUSEPORT_CBPF
    row(nr::SETSOCKOPT, &[LONG, is(2, 22), is(1, SOL_PACKET)], 3, One(16), FILTER), // PACKET_FANOUT_DATA
    row(nr::SETSOCKOPT, &[LONG, is(2, 64), is(1, SOL_IP)], 3, One(96), IP_TABLE), // IPT_SO_SET_REPLACE
    row(nr::SETSOCKOPT, &[LONG, is(2, 64), is(1, SOL_IPV6)], 3, One(96), IP_TABLE), // IP6T_SO_SET_REPLACE
    row(nr::SETSOCKOPT, &[LONG, is(2, 96), is(1, SOL_IP)], 3, One(80), ARP_TABLE), // ARPT_SO_SET_REPLACE
    // EBT_SO_SET_ENTRIES, EBT_SO_SET_COUNTERS.
    row(nr::SETSOCKOPT, &[LONG, within(2, 128, 129), is(1, SOL_IP)], 3, One(120), BRIDGE_TABLE),
    // Of others nobody says what they are.
    row(nr::SETSOCKOPT, &[LONG], 3, Sized(4), Guess),
    // EBT_SO_GET_ENTRIES, EBT_SO_GET_INIT_ENTRIES.
    row(nr::GETSOCKOPT, &[is(2, 129), is(1, SOL_IP)], 3, One(120), BRIDGE_TABLE),
    row(nr::GETSOCKOPT, &[is(2, 131), is(1, SOL_IP)], 3, One(120), BRIDGE_TABLE),
    // TCP_ZEROCOPY_RECEIVE: what is copied, and control data.
    row(nr::GETSOCKOPT, &[is(2, 35), is(1, SOL_TCP)], 3, One(56), At(&[
        (24, Field { at: 32, bytes: 4, each: 1 }), (40, Field { at: 48, bytes: 8, each: 1 }),
    ])),
    row(nr::SECCOMP, &[is(0, 1)], 2, One(16), FILTER),                            // SET_MODE_FILTER
    row(nr::PRCTL, &[is(0, 22), is(1, 2)], 2, One(16), FILTER),                   // PR_SET_SECCOMP
    // PR_SET_MM_MAP: the auxiliary vector.
    row(nr::PRCTL, &[is(0, 35), is(1, 14)], 2, One(104), At(&[(88, Field { at: 96, bytes: 4, each: 1 })])),
    row(nr::IOCTL, &[is(1, 0x1269)], 2, One(24), At(&[(16, Field { at: 8, bytes: 4, each: 1 })])), // BLKPG
    // SG_IO: data, command, and what went wrong.
    row(nr::IOCTL, &[is(1, 0x2285)], 2, One(88), At(&[
        (16, Bytes(260)), (24, Field { at: 12, bytes: 4, each: 1 }), (32, Bytes(256)),
    ])),
    row(nr::IOCTL, &[within(1, 0x890b, 0x890c)], 2, One(120), At(&[(88, Str)])),  // SIOCADDRT, SIOCDELRT
    row(nr::IOCTL, &[is(1, 0x8912)], 2, One(16), At(&[(8, Field { at: 0, bytes: 4, each: 1 })])), // SIOCGIFCONF
    row(nr::IOCTL, &[is(1, 0x8946)], 2, One(40), DRIVERS),                        // SIOCETHTOOL
    row(nr::IOCTL, &[is(1, 0x8994)], 2, One(40), DRIVERS),                        // SIOCBONDINFOQUERY
    row(nr::IOCTL, &[within(1, 0x89b0, 0x89b1)], 2, One(40), DRIVERS),            // SIOCSHWTSTAMP, SIOCGHWTSTAMP
    row(nr::IOCTL, &[within(1, 0x89f0, 0x89ff)], 2, One(40), DRIVERS),            // SIOCDEVPRIVATE
    // Wireless extensions, of which some have a pointer: struct iw_point.
    row(nr::IOCTL, &[within(1, 0x8b00, 0x8bff)], 2, One(32), Guess),
    row(nr::IOCTL, &[is(1, 0xc028_aa03)], 2, One(40), At(&[(8, Field { at: 16, bytes: 8, each: 1 })])), // UFFDIO_COPY
    row(nr::IOCTL, &[BOTH_WAYS, is(1, 0xc020_660b)], 2, One(32), Behind(Field { at: 24, bytes: 4, each: 56 })), // FS_IOC_FIEMAP
    row(nr::IOCTL, &[BOTH_WAYS, is(1, 0xc0c0_583b)], 2, One(192), Behind(Field { at: 8, bytes: 4, each: 64 })), // FS_IOC_GETFSMAP
    row(nr::IOCTL, &[BOTH_WAYS, is(1, 0xc010_1282)], 2, One(16), Behind(Field { at: 8, bytes: 4, each: 64 })), // BLKREPORTZONE
    row(nr::IOCTL, &[BOTH_WAYS, is(1, 0xc070_9411)], 2, One(112), Behind(Field { at: 104, bytes: 8, each: 1 })), // BTRFS_IOC_TREE_SEARCH_V2
    row(nr::IOCTL, &[BOTH_WAYS, is(1, 0xc018_9436)], 2, One(24), Behind(Field { at: 16, bytes: 2, each: 32 })), // FIDEDUPERANGE
    // All that say of themselves that the kernel reads a structure of 16 bytes or more.
    row(nr::IOCTL, &[within(1, 0x4010_0000, 0x7fff_ffff)], 2, Encoded(1), Guess),
    row(nr::IOCTL, &[BOTH_WAYS], 2, Encoded(1), Guess),
    row(nr::KEYCTL, &[is(0, 20)], 2, Each(3, 16), BUFFER),                        // INSTANTIATE_IOV
    // DH_COMPUTE: the name of a hash, and what is hashed beside.
    row(nr::KEYCTL, &[is(0, 23)], 4, One(24), At(&[(0, Str), (8, Field { at: 16, bytes: 4, each: 1 })])),
    row(nr::PTRACE, &[within(0, 0x4204, 0x4205)], 3, One(16), BUFFER),            // GETREGSET, SETREGSET
    // union bpf_attr: what it is depends on the command, and lengths on what a map holds.
    row(nr::BPF, &[], 1, Sized(2), Guess),
    // struct perf_event_attr: names of probes.
    row(nr::PERF_EVENT_OPEN, &[], 0, One(136), Guess),
    // struct xattr_args.
    row(nr::SETXATTRAT, &[], 4, One(16), At(&[(0, Field { at: 8, bytes: 4, each: 1 })])),
    row(nr::GETXATTRAT, &[], 4, One(16), At(&[(0, Field { at: 8, bytes: 4, each: 1 })])),
    // struct sigevent: with SIGEV_THREAD the kernel reads the 32 bytes that its value points to, and else takes it for a number.
    row(nr::MQ_NOTIFY, &[], 1, One(64), At(&[(0, Bytes(32))])),
    // struct kexec_segment.
    row(nr::KEXEC_LOAD, &[], 2, Each(1, 32), BUFFER),
];

/// The structure that a call with these arguments has.
pub fn find(nr: usize, args: &[usize; 6]) -> Option<&'static Structure> {
    STRUCTURES.iter().find(|structure| structure.nr == nr && structure.is_in(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_lengths_lie_in_their_structure() {
        for row in STRUCTURES {
            let bytes = match row.extent {
                One(bytes) | Several(_, bytes) | Each(_, bytes) => bytes,
                Sized(_) | Encoded(_) => u16::MAX,
            };
            let name = nr::name(row.nr);
            assert!(row.arg < 6 && bytes >= 8 && row.when.iter().all(|w| w.from <= w.to && w.arg != row.arg), "{name}");
            let is_within = |length: Length| match length {
                Field { at, bytes: width, each } => {
                    at + width as u16 <= bytes && matches!(width, 2 | 4 | 8) && each > 0
                }
                Bytes(_) | Str => true,
            };
            match row.inner {
                At(pointers) => {
                    for (at, length) in pointers {
                        assert!(at + 8 <= bytes, "{name}: a pointer at {at}");
                        assert!(is_within(*length), "{name}: at {at}");
                    }
                }
                Behind(length) => {
                    assert!(is_within(length) && matches!(row.extent, One(_)), "{name}: a list behind it")
                }
                Guess => {}
            }
        }
    }

    #[test]
    fn a_structure_is_found_by_the_arguments() {
        let of = |nr: usize, args: [usize; 6]| find(nr, &args).map(|row| row.inner);
        assert_eq!(of(nr::SETSOCKOPT, [3, 1, 26, 0, 16, 0]), Some(FILTER));
        assert_eq!(of(nr::SETSOCKOPT, [3, 6, 26, 0, 16, 0]), Some(Guess), "of another level");
        assert_eq!(of(nr::SETSOCKOPT, [3, 1, 26, 0, 15, 0]), None, "too short");
        assert_eq!(of(nr::SETSOCKOPT, [3, 41, 64, 0, 500, 0]), Some(IP_TABLE));
        assert_eq!(of(nr::IOCTL, [3, 0xdead_0000_0000_8946, 0, 0, 0, 0]), Some(DRIVERS), "32 bits count");
        assert_eq!(of(nr::IOCTL, [3, 0x5413, 0, 0, 0, 0]), None);
        assert_eq!(of(nr::IOCTL, [3, 0xc028_aa04, 0, 0, 0, 0]), Some(Guess));
        let copy = find(nr::IOCTL, &[3, 0xc028_aa03, 0, 0, 0, 0]).expect("a row");
        assert_eq!((copy.inner != Guess, copy.extent(&[3, 0xc028_aa03, 0, 0, 0, 0])), (true, (1, 40)));
        let encoded = find(nr::IOCTL, &[3, 0x4018_1234, 0, 0, 0, 0]).expect("a row");
        assert_eq!(encoded.extent(&[3, 0x4018_1234, 0, 0, 0, 0]), (1, 24));
        let waits = find(nr::FUTEX_WAITV, &[0, 7, 0, 0, 0, 0]).expect("a row");
        assert_eq!(waits.extent(&[0, 7, 0, 0, 0, 0]), (7, 24));
    }
}
