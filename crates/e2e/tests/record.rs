//! `outswap record`: what a program touches is in its trace, in order, and nothing else of its memory.
use outswap_e2e::{Outcome, Run, Tmp, plain_mode, setup};
use outswap_trace::{Event, Reader};
use std::collections::HashMap;
use std::fs::File;

/// Many windows.
const PAGES: usize = 4096;
/// Writes each page of a mapping of its own, reads each twice in order, and unmaps it; a child writes each once.
const TOUCHES: &str = "\
import mmap, os, sys
pages = int(sys.argv[1])
m = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(pages):
    m[i * 4096] = i % 251
if os.fork() == 0:
    for i in range(pages):
        m[i * 4096 + 1] = 7
    os._exit(0)
os.wait()
print(sum(m[i * 4096] for _ in range(2) for i in range(pages)))
m.close()
";

fn record(dir: &Tmp, args: &[&str]) -> (Outcome, Vec<Event>) {
    let end = Run::new(setup::outswap())
        .args(["record", "-o", "trace"])
        .args(args)
        .args(["--", "python3", "-c", TOUCHES, &PAGES.to_string()])
        .dir(dir.path())
        .timeout_s(120)
        .run()
        .succeeded();
    let file = File::open(dir.join("trace")).expect("the trace was made");
    let reader = Reader::new(file).expect("it is a trace");
    assert!(reader.header().program.starts_with("python3 -c import"), "{}", reader.header().program);
    let events = reader.map(|event| event.expect("the trace is whole")).collect();
    (end, events)
}

/// The events of each process, in the order of their first one.
fn by_process(events: &[Event]) -> Vec<(u32, Vec<Event>)> {
    let mut all: Vec<(u32, Vec<Event>)> = Vec::new();
    let (mut places, mut now) = (HashMap::new(), 0);
    for &event in events {
        if let Event::Process(process) = event {
            now = *places.entry(process).or_insert_with(|| {
                all.push((process, Vec::new()));
                all.len() - 1
            });
        } else if !matches!(event, Event::Time { .. }) {
            all[now].1.push(event);
        }
    }
    all
}

#[test]
fn every_touch_outside_of_the_window_is_in_the_trace_in_order() {
    if plain_mode() {
        return;
    }
    for args in [&["--resident-pages", "64"][..], &[], &["--fault-source", "mprotect"]] {
        let dir = Tmp::new();
        let (end, events) = record(&dir, args);
        let sum: usize = (0..PAGES).map(|i| i % 251 * 2).sum();
        assert_eq!(end.text(), format!("{sum}\n"));
        let processes = by_process(&events);
        // The interpreter's start may be a process or two more.
        let (parent, own) = processes.iter().max_by_key(|(_, events)| events.len()).expect("something ran");
        assert_eq!(own.first(), Some(&Event::Begins), "{args:?}");
        assert_eq!(own.last(), Some(&Event::Ends), "{args:?}");
        // The mapping is the longest run of first touches.
        let touches = |events: &[Event], wanted: fn(bool, bool) -> bool| -> Vec<u32> {
            let page = |event: &Event| match *event {
                Event::Access { page, write, first } if wanted(write, first) => Some(page),
                _ => None,
            };
            events.iter().filter_map(page).collect()
        };
        let firsts = touches(own, |write, first| write && first);
        let base = firsts.iter().copied().find(|base| {
            let mut next = *base;
            firsts.iter().for_each(|&page| next += u32::from(page == next));
            next - base >= PAGES as u32
        });
        let base = base.expect("each page of the mapping is written first");
        let range = base..base + PAGES as u32;
        let in_range = |pages: Vec<u32>| pages.into_iter().filter(|page| range.contains(page)).collect::<Vec<_>>();
        // What the window hides is at the borders of the passes, and the interpreter's own pages.
        let reads = in_range(touches(own, |_, first| !first));
        let (few, many) = (2 * PAGES - 300 - PAGES / 50, 2 * PAGES + PAGES / 50);
        assert!((few..=many).contains(&reads.len()), "{args:?}: {} reads", reads.len());
        let in_order = reads.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(in_order >= reads.len() - PAGES / 50, "{args:?}: {in_order} of {}", reads.len());
        let gone: u32 = own
            .iter()
            .map(|event| match *event {
                Event::Gone { first, pages } => (first + pages).min(range.end).saturating_sub(first.max(range.start)),
                _ => 0,
            })
            .sum();
        assert!(gone >= PAGES as u32, "{args:?}: {gone} pages were given up");
        // Where the interpreter is started by a script, that has children of its own.
        let children = processes.iter().filter(|(_, events)| events.first() == Some(&Event::Forked(*parent)));
        let (_, child) = children.max_by_key(|(_, events)| events.len()).expect("a child says whose copy it is");
        let written = in_range(touches(child, |write, first| write && !first)).len();
        assert!((PAGES - 300..=PAGES + PAGES / 50).contains(&written), "{args:?}: the child wrote {written}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_the_program_starts() {
    if plain_mode() {
        return;
    }
    let dir = Tmp::new();
    let end =
        Run::new(setup::outswap()).args(["record", "-o", "no/such/folder", "touch", "started"]).dir(dir.path()).run();
    let end = end.exited(125);
    assert!(end.errors().starts_with("outswap: --output: cannot write no/such/folder"), "{}", end.describe());
    assert!(!dir.join("started").exists());
}

#[test]
fn a_trace_that_does_not_fit_is_told_of_and_the_status_is_the_programs() {
    if plain_mode() {
        return;
    }
    let end =
        Run::new(setup::outswap()).args(["record", "-o", "/dev/full", "--", "sh", "-c", "exit 3"]).run().exited(3);
    assert!(end.errors().starts_with("outswap: error: "), "{}", end.describe());
}
