//! Devices as models: when a request to a hard disk, an SSD or an NVMe drive is done. Arithmetic only: whoever asks says what time
//! it is, so that the live store and a simulator can ask alike.
//!
//! ```text
//! request ──► a free lane of `depth` ──► the bus, which carries one transfer at a time ──► done
//!                 (else the first to be)         + time of a request + seek + rotation
//! ```
//! The head stands where the last request ended. A request that begins there costs neither seek nor rotation, however much later
//! it comes: drives read on, and gather what is written, in a buffer of their own. They are served in the order in which they
//! come.

/// Requests that a device works at, at most.
pub const DEPTH_MAX: usize = 32;

macro_rules! device {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a device takes its time for. All zero: it takes none.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Device { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Device {
            /// The names of its numbers, in their order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];
            /// A device that takes no time.
            pub const NONE: Device = Device { $($name: 0),+ };

            /// Its numbers.
            pub const fn to_words(self) -> [u64; WORDS] {
                [$(self.$name),+]
            }

            /// The device of these numbers.
            pub const fn from_words(words: [u64; WORDS]) -> Device {
                let [$($name),+] = words;
                Device { $($name),+ }
            }

            /// Sets one of its numbers by its name. False where it has none of this name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

/// How many numbers a device has.
pub const WORDS: usize = 10;

device! {
    /// Time that the head takes to the next track.
    seek_min_ns,
    /// Time that it takes over all of `span_bytes`. Between the two it grows with the square root of the distance.
    seek_max_ns,
    /// Bytes that the head can reach.
    span_bytes,
    /// Time of a turn.
    rotation_ns,
    /// Bytes that pass under the head in it.
    track_bytes,
    /// Time of a read besides that of its bytes.
    read_ns,
    /// The same of a write.
    write_ns,
    /// Bytes that are read in a second, 0 for any number.
    read_bytes_per_s,
    /// The same of writing.
    write_bytes_per_s,
    /// Requests that are worked at at the same time, [`DEPTH_MAX`] at most.
    depth,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// A write; else a read.
    pub is_write: bool,
    /// Where it begins.
    pub offset: u64,
    /// How much it transfers.
    pub bytes: u64,
}

impl Request {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Makes a request that begins where this one ends a part of it. False where it is none, and where both were more than
    /// `bytes_max` bytes.
    pub fn join(&mut self, next: &Request, bytes_max: u64) -> bool {
        let joins = next.is_write == self.is_write && next.offset == self.end() && self.bytes + next.bytes <= bytes_max;
        self.bytes += if joins { next.bytes } else { 0 };
        joins
    }
}

/// What a device is at. All zero: nothing, and it never was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Where the last request ended.
    pub head: u64,
    /// When the bus is free.
    pub bus_free_ns: u64,
    /// When each of the requests is done that it may work at.
    pub lanes_free_ns: [u64; DEPTH_MAX],
}

/// Devices that have a name: the name, the device, and what it is. Sources of the numbers: `docs/features/devices.md`.
pub const PRESETS: &[(&str, Device, &str)] = &[
    (
        "hdd",
        Device {
            seek_min_ns: 1_000_000,
            // Over two places at random, the root of their distance is 8/15 of the most: 8.5 ms on the average.
            seek_max_ns: 15_000_000,
            span_bytes: 1_000_000_000_000,
            rotation_ns: 8_333_333,
            track_bytes: 1_668_096,
            read_ns: 100_000,
            write_ns: 100_000,
            read_bytes_per_s: 175_000_000,
            write_bytes_per_s: 175_000_000,
            depth: 1,
        },
        "a hard disk of 7200 turns a minute",
    ),
    (
        "ssd",
        Device {
            read_ns: 92_400,
            write_ns: 17_100,
            read_bytes_per_s: 540_000_000,
            write_bytes_per_s: 520_000_000,
            depth: 10,
            ..Device::NONE
        },
        "an SSD at a SATA port",
    ),
    (
        "nvme",
        Device {
            read_ns: 51_500,
            write_ns: 15_400,
            read_bytes_per_s: 3_500_000_000,
            write_bytes_per_s: 3_300_000_000,
            depth: 32,
            ..Device::NONE
        },
        "an SSD at four PCIe lanes",
    ),
];

/// Longest time that a device may be said to take for anything: an hour.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

impl Device {
    /// The device that has this name.
    pub fn named(name: &str) -> Option<Device> {
        PRESETS.iter().find(|(known, ..)| *known == name).map(|(_, device, _)| *device)
    }

    /// Whether it takes no time.
    pub fn is_none(&self) -> bool {
        *self == Device::NONE
    }

    /// Whether it moves a head.
    fn is_mechanical(&self) -> bool {
        self.seek_max_ns > 0 || self.rotation_ns > 0
    }

    /// What makes no sense about it, if anything does: a number's name, and why.
    pub fn complaint(&self) -> Option<(&'static str, &'static str)> {
        let times = [
            ("seek_min_ns", self.seek_min_ns),
            ("seek_max_ns", self.seek_max_ns),
            ("rotation_ns", self.rotation_ns),
            ("read_ns", self.read_ns),
            ("write_ns", self.write_ns),
        ];
        if let Some((name, _)) = times.into_iter().find(|(_, ns)| *ns > TIME_MAX_NS) {
            return Some((name, "is more than an hour"));
        }
        if self.seek_min_ns > self.seek_max_ns {
            return Some(("seek_min_ns", "is more than seek_max_ns"));
        }
        if self.seek_max_ns > 0 && self.span_bytes == 0 {
            return Some(("span_bytes", "is missing: how far is a seek of seek_max_ns?"));
        }
        if self.rotation_ns > 0 && self.track_bytes == 0 {
            return Some(("track_bytes", "is missing: how much passes by in a turn of rotation_ns?"));
        }
        if !(1..=DEPTH_MAX as u64).contains(&self.depth) {
            return Some(("depth", "is not from 1 to 32"));
        }
        self.to_words()[..WORDS - 1].iter().all(|&n| n == 0).then_some(("read_ns", "is missing, as is all else"))
    }

    /// When a request is done that comes now.
    pub fn serve(&self, state: &mut State, request: &Request, now_ns: u64) -> u64 {
        let depth = (self.depth as usize).clamp(1, DEPTH_MAX);
        let lanes = &mut state.lanes_free_ns[..depth];
        let lane = (0..depth).min_by_key(|&i| lanes[i]).unwrap_or(0);
        let begin_ns = now_ns.max(lanes[lane]).max(state.bus_free_ns);
        let (request_ns, bytes_per_s) = if request.is_write {
            (self.write_ns, self.write_bytes_per_s)
        } else {
            (self.read_ns, self.read_bytes_per_s)
        };
        let transfer_ns = transfer_ns(request.bytes, bytes_per_s);
        let at_ns = begin_ns.saturating_add(request_ns);
        let there_ns = at_ns.saturating_add(self.position_ns(state.head, request.offset, at_ns));
        let done_ns = there_ns.saturating_add(transfer_ns);
        state.bus_free_ns = begin_ns.saturating_add(transfer_ns);
        lanes[lane] = done_ns;
        state.head = request.end();
        done_ns
    }

    /// How long the head takes from one place to another, from a moment on.
    fn position_ns(&self, from: u64, to: u64, at_ns: u64) -> u64 {
        let distance = from.abs_diff(to);
        if distance == 0 || !self.is_mechanical() {
            return 0;
        }
        let same_track = distance < self.track_bytes;
        let seek_ns = if same_track { 0 } else { self.seek_ns(distance) };
        let moved_ns = seek_ns.saturating_add(self.turn_ns(to, at_ns.saturating_add(seek_ns)));
        if same_track && to > from {
            // What lies between passes by; the drive reads it, too.
            return moved_ns.min(of(distance, self.rotation_ns, self.track_bytes));
        }
        moved_ns
    }

    /// How long the head takes over a distance.
    fn seek_ns(&self, distance: u64) -> u64 {
        // 32 bits behind the point, of which the root has 16.
        let part = ((u128::from(distance.min(self.span_bytes)) << 32) / u128::from(self.span_bytes.max(1))) as u64;
        self.seek_min_ns + of(part.isqrt(), self.seek_max_ns.saturating_sub(self.seek_min_ns), 1 << 16)
    }

    /// How long it takes from a moment on until a place passes by.
    fn turn_ns(&self, offset: u64, at_ns: u64) -> u64 {
        if self.rotation_ns == 0 {
            return 0;
        }
        let track_bytes = self.track_bytes.max(1);
        let angle_ns = of(offset % track_bytes, self.rotation_ns, track_bytes);
        (angle_ns + self.rotation_ns - at_ns % self.rotation_ns) % self.rotation_ns
    }
}

/// `part / whole` of something.
fn of(part: u64, something: u64, whole: u64) -> u64 {
    (u128::from(part) * u128::from(something) / u128::from(whole.max(1))).min(u128::from(u64::MAX)) as u64
}

fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 { 0 } else { of(bytes, 1_000_000_000, bytes_per_s) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn read(offset: u64, bytes: u64) -> Request {
        Request { is_write: false, offset, bytes }
    }

    fn preset(name: &str) -> Device {
        Device::named(name).expect("a name of the list")
    }

    /// Requests a second where so many are always waited for at the same time, at places that are anywhere in `span_bytes`.
    fn iops(device: &Device, in_flight: usize, is_write: bool, span_bytes: u64) -> f64 {
        const REQUESTS: usize = 4000;
        let (mut state, mut now_ns, mut flying) = (State::default(), 0, Vec::new());
        for i in 0..REQUESTS as u64 {
            if flying.len() == in_flight {
                let first = (0..flying.len()).min_by_key(|&i| flying[i]).expect("there are some");
                now_ns = flying.swap_remove(first);
            }
            let offset = scattered(i) % (span_bytes / PAGE) * PAGE;
            flying.push(device.serve(&mut state, &Request { is_write, offset, bytes: PAGE }, now_ns));
        }
        REQUESTS as f64 / (flying.into_iter().max().expect("there are some") as f64 / 1e9)
    }

    fn scattered(i: u64) -> u64 {
        let mixed = (i ^ i << 33).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
    }

    fn about(got: f64, want: f64) {
        assert!((got / want - 1.0).abs() < 0.05, "{got} instead of {want}");
    }

    #[test]
    fn presets_are_as_fast_as_their_data_sheets_say() {
        for (name, _, _) in PRESETS {
            assert_eq!(preset(name).complaint(), None, "{name}");
        }
        let span = 64 << 30;
        about(iops(&preset("ssd"), 1, false, span), 10_000.0);
        about(iops(&preset("ssd"), 32, false, span), 98_000.0);
        about(iops(&preset("ssd"), 1, true, span), 40_000.0);
        about(iops(&preset("nvme"), 1, false, span), 19_000.0);
        about(iops(&preset("nvme"), 32, false, span), 600_000.0);
        about(iops(&preset("nvme"), 1, true, span), 60_000.0);
        // Half a turn, 8.5 ms of seek, the request and its bytes.
        let hdd = preset("hdd");
        about(iops(&hdd, 1, false, hdd.span_bytes), 1e3 / (8.5 + 4.167 + 0.1 + 0.023));
    }

    #[test]
    fn what_follows_costs_its_bytes_and_what_is_far_a_seek_and_a_turn() {
        let hdd = preset("hdd");
        let mut state = State::default();
        let mut now_ns = 12_345;
        for i in 0..1000 {
            let done_ns = hdd.serve(&mut state, &read(i * PAGE, PAGE), now_ns);
            assert_eq!(done_ns - now_ns, hdd.read_ns + transfer_ns(PAGE, hdd.read_bytes_per_s));
            now_ns = done_ns;
        }
        // A little further, what lies between passes by.
        let gap = 10 * PAGE;
        let near_ns = hdd.serve(&mut state.clone(), &read(state.head + gap, PAGE), now_ns) - now_ns;
        let passing_ns = of(gap, hdd.rotation_ns, hdd.track_bytes);
        assert!(near_ns <= hdd.read_ns + passing_ns + transfer_ns(PAGE, hdd.read_bytes_per_s), "{near_ns}");
        let far_ns = hdd.serve(&mut state.clone(), &read(hdd.span_bytes - PAGE, PAGE), now_ns) - now_ns;
        assert!(far_ns >= 14_000_000 && far_ns <= hdd.seek_max_ns + hdd.rotation_ns + 200_000, "{far_ns}");
        let less_far_ns = hdd.seek_ns(hdd.span_bytes / 4);
        assert_eq!(less_far_ns, (hdd.seek_min_ns + hdd.seek_max_ns) / 2, "half the root of a quarter");
    }

    #[test]
    fn a_request_waits_for_a_lane() {
        let device = Device { read_ns: 100, depth: 2, ..Device::NONE };
        let mut state = State::default();
        let done = [0, 1, 2, 3].map(|i| device.serve(&mut state, &read(i * PAGE, PAGE), 1000));
        assert_eq!(done, [1100, 1100, 1200, 1200]);
        let device = Device { read_bytes_per_s: PAGE * 1_000_000_000 / 10, ..device };
        let mut state = State::default();
        let done = [0, 1, 2, 3].map(|i| device.serve(&mut state, &read(i * PAGE, PAGE), 1000));
        assert_eq!(done, [1110, 1120, 1220, 1230], "one transfer at a time");
    }

    #[test]
    fn requests_that_follow_each_other_become_one() {
        let mut one = read(0, PAGE);
        assert!(one.join(&read(PAGE, PAGE), 3 * PAGE) && one.bytes == 2 * PAGE);
        assert!(!one.join(&read(3 * PAGE, PAGE), 9 * PAGE), "a gap");
        assert!(!one.join(&Request { is_write: true, ..read(2 * PAGE, PAGE) }, 9 * PAGE), "of another kind");
        assert!(!one.join(&read(2 * PAGE, 2 * PAGE), 3 * PAGE), "too long");
        assert_eq!(one, read(0, 2 * PAGE));
    }

    #[test]
    fn nonsense_is_told() {
        for (change, name) in [
            (("seek_min_ns", 16_000_000), "seek_min_ns"),
            (("span_bytes", 0), "span_bytes"),
            (("track_bytes", 0), "track_bytes"),
            (("depth", 0), "depth"),
            (("depth", 33), "depth"),
            (("read_ns", u64::MAX), "read_ns"),
        ] {
            let mut device = preset("hdd");
            assert!(device.set(change.0, change.1));
            assert_eq!(device.complaint().map(|(name, _)| name), Some(name));
        }
        assert!(Device { depth: 1, ..Device::NONE }.complaint().is_some() && !Device::default().set("speed", 1));
        assert_eq!(Device::NAMES.len(), WORDS);
    }

    fn devices() -> impl Strategy<Value = Device> {
        let small = 0u64..1_000_000;
        let mechanical = (small.clone(), small.clone(), 1u64..1 << 30, small.clone(), 1u64..1 << 20);
        let rest = (small.clone(), small, 0u64..1 << 32, 0u64..1 << 32, 0u64..40);
        (mechanical, rest).prop_map(|((a, b, c, d, e), (f, g, h, i, j))| {
            Device::from_words([a.min(b), a.max(b), c, d, e, f, g, h, i, j])
        })
    }

    proptest! {
        #[test]
        fn no_request_is_done_before_it_can_be(
            device in devices(),
            requests in proptest::collection::vec((any::<bool>(), 0u64..1 << 31, 1u64..1 << 20, 0u64..100_000), 1..60),
        ) {
            prop_assert_eq!(Device::from_words(device.to_words()), device);
            let (mut state, mut now_ns, mut all) = (State::default(), 0, Vec::new());
            let (mut least_ns, mut first_ns) = (0, None);
            for (is_write, offset, bytes, later_ns) in requests {
                now_ns += later_ns;
                let request = Request { is_write, offset, bytes };
                let before = state;
                let done_ns = device.serve(&mut state, &request, now_ns);
                let (own_ns, rate) =
                    if is_write { (device.write_ns, device.write_bytes_per_s) } else { (device.read_ns, device.read_bytes_per_s) };
                let bus_ns = transfer_ns(bytes, rate);
                prop_assert!(done_ns >= now_ns + own_ns + bus_ns);
                let mut again = before;
                prop_assert_eq!(device.serve(&mut again, &request, now_ns), done_ns, "the same again");
                prop_assert_eq!(again, state);
                let mut longer = before;
                let more = Request { bytes: bytes + PAGE, ..request };
                prop_assert!(device.serve(&mut longer, &more, now_ns) >= done_ns, "more bytes take no less");
                least_ns += bus_ns;
                first_ns.get_or_insert(now_ns);
                all.push((now_ns, done_ns));
            }
            // The bus carries one transfer at a time.
            let last_ns = all.iter().map(|&(_, done_ns)| done_ns).max().expect("there are some");
            prop_assert!(last_ns - first_ns.expect("there is a first") >= least_ns);
            // Of all that are done after a request came, no more than `depth` were worked at without waiting for another.
            let depth = (device.depth as usize).clamp(1, DEPTH_MAX);
            let mut lanes = all.iter().map(|&(_, done_ns)| done_ns).collect::<Vec<_>>();
            lanes.sort_unstable();
            for window in lanes.windows(depth + 1) {
                let least = device.read_ns.min(device.write_ns);
                prop_assert!(window[depth] - window[0] >= least.min(window[depth]), "more than {depth} at a time");
            }
        }
    }
}
