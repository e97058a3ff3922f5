//! Traces come back as they were written, and whatever else is read as one ends with an error.
use outswap_trace::{Error, Event, Header, Reader, Writer};

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn header() -> Header {
    Header { window_pages: 256, program: "sort -o /dev/null übung".to_owned() }
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header());
    events.iter().for_each(|&event| writer.write(event).expect("memory takes it"));
    let len = writer.finish().expect("memory takes it");
    assert_eq!(len, bytes.len() as u64);
    bytes
}

fn random_events(numbers: &mut Numbers, count: usize) -> Vec<Event> {
    let far = |numbers: &mut Numbers| [0, 5, 70_000, u32::MAX][numbers.below(4) as usize] ^ numbers.below(100) as u32;
    let one = |numbers: &mut Numbers| match numbers.below(12) {
        0 => Event::Process(far(numbers)),
        1 => Event::Begins,
        2 => Event::Forked(far(numbers)),
        3 => Event::Ends,
        4 => {
            let first = far(numbers);
            Event::Gone { first, pages: (u32::MAX - first).min(numbers.below(1 << 31) as u32).max(1) }
        }
        5 => Event::Time { us: 1 + numbers.below(1 << 31) * numbers.below(1 << 20) },
        _ => Event::Access { page: far(numbers), write: numbers.below(2) == 0, first: numbers.below(3) == 0 },
    };
    (0..count).map(|_| one(numbers)).collect()
}

/// Reads as far as it goes.
fn read(bytes: &[u8]) -> Result<(Vec<Event>, Option<Error>), Error> {
    let (mut events, mut error) = (Vec::new(), None);
    for event in Reader::new(bytes)? {
        match event {
            Ok(event) => events.push(event),
            Err(e) => error = Some(e),
        }
    }
    Ok((events, error))
}

#[test]
fn what_was_written_is_read() {
    let events = random_events(&mut Numbers(1), 50_000);
    let bytes = written(&events);
    assert_eq!(Reader::new(&bytes[..]).expect("it is a trace").header(), &header());
    let (back, error) = read(&bytes).expect("it is a trace");
    assert!(error.is_none());
    assert!(back == events);
}

#[test]
fn a_sequence_takes_a_byte_an_access() {
    let accesses = |n: u32| (0..n).map(|page| Event::Access { page, write: false, first: false }).collect::<Vec<_>>();
    let (few, many) = (written(&accesses(1000)).len(), written(&accesses(11_000)).len());
    assert_eq!(many - few, 10_000);
}

#[test]
fn a_trace_that_is_cut_off_says_so_and_gives_what_it_has() {
    let events = random_events(&mut Numbers(2), 200);
    let bytes = written(&events);
    let head = written(&[]).len() - 1;
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            Err(Error::NotATrace) => assert!(len < 8, "{len}"),
            Err(Error::Cut) => assert!((8..head).contains(&len), "{len}"),
            Err(error) => panic!("{len}: {error}"),
            Ok((back, error)) => {
                assert!(matches!(error, Some(Error::Cut)), "{len}: {error:?}");
                assert!(len >= head && events.starts_with(&back), "{len}");
            }
        }
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut numbers = Numbers(3);
    let bytes = written(&random_events(&mut numbers, 300));
    let (mut failed, mut read_on) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + numbers.below(8) {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.below(256) as u8;
        }
        match read(&bytes) {
            Err(_) => failed += 1,
            Ok(_) => read_on += 1,
        }
    }
    assert!(failed > 0 && read_on > 0, "{failed} {read_on}");
    for _ in 0..20_000 {
        let mut noise = bytes[..20 + header().program.len()].to_vec();
        noise.extend((0..numbers.below(64)).map(|_| numbers.below(256) as u8 | (numbers.below(2) as u8) << 7));
        assert!(read(&noise).is_ok(), "the header is good");
    }
}

#[test]
fn what_is_no_trace_is_told() {
    assert!(matches!(read(b""), Err(Error::NotATrace)));
    assert!(matches!(read(b"#!/bin/sh\n# something else"), Err(Error::NotATrace)));
    let mut other = written(&[]);
    other[8] = 9;
    assert!(matches!(read(&other), Err(Error::Version(9))));
    let mut long = written(&[]);
    long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&long), Err(Error::Damaged { .. })));
}

#[test]
fn pages_that_there_are_not_are_damage() {
    let head = written(&[]).len() - 1;
    // An access to a page before the first, and pages beyond the last.
    for wrong in [&[0b1000][..], &[0b100, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0b100, 0]] {
        let bytes = [&written(&[])[..head], wrong].concat();
        let (events, error) = read(&bytes).expect("the header is good");
        assert!(events.is_empty() && matches!(error, Some(Error::Damaged { .. })), "{wrong:?}: {error:?}");
    }
}
