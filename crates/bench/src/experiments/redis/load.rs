//! The client: several connections, requests one after the other on each without waiting for answers, all in one thread, which
//! looks at every byte that comes back.
//!
//! A key belongs to one connection, so that it is known what its value is, whatever the server does first.
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::experiments::histogram::Histogram;
use crate::experiments::redis::wire::{Answer, Values, answer, command, key};
use crate::random::{Random, Scatter, Zipf};
use crate::units::Bytes;
use crate::worker;

/// How long the server may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for answers that are read at one time.
const READ_BYTES: usize = 256 << 10;
/// A part of each phase that is not counted, so that it does not begin with what the phase before left in memory.
const WARM_PART: u64 = 10;

/// Arguments of the client.
#[derive(clap::Args)]
pub struct Args {
    /// The server's socket
    socket: PathBuf,
    /// Keys
    keys: u32,
    /// Size of a value
    value: Bytes,
    /// Requests in each phase
    requests: u64,
    /// Connections
    connections: u32,
    /// Requests that wait for answers on each
    pipeline: u32,
    /// Exponent of the Zipf law
    exponent: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Get,
    Set,
}

/// A request that has no answer yet.
struct Waiting {
    op: Op,
    key: u32,
    version: u8,
    sent: Instant,
    counts: bool,
}

struct Connection {
    stream: UnixStream,
    to_send: Vec<u8>,
    sent: usize,
    came: Vec<u8>,
    waiting: VecDeque<Waiting>,
}

/// Which of the keys of a connection is next.
enum Choice {
    Each(Vec<u32>),
    Uniform,
    Zipf(Zipf, Scatter),
}

struct Client {
    connections: Vec<Connection>,
    versions: Vec<u8>,
    values: Values,
    pipeline: usize,
    random: Random,
    expected: Vec<u8>,
    buffer: Vec<u8>,
}

/// What a phase took.
struct Phase {
    requests: u64,
    elapsed: Duration,
    busy: Duration,
    latency: Histogram,
}

/// Processor time of this process.
fn busy() -> Duration {
    // SAFETY: plain structures; getrusage fills the one it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn connect(socket: &Path) -> Result<Connection, String> {
    let deadline = Instant::now() + PATIENCE;
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= deadline => return Err(format!("{}: {error}", socket.display())),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    stream.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok(Connection { stream, to_send: Vec::new(), sent: 0, came: Vec::new(), waiting: VecDeque::new() })
}

impl Connection {
    /// Sends what can be sent.
    fn flush(&mut self) -> Result<(), String> {
        while self.sent < self.to_send.len() {
            match self.stream.write(&self.to_send[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("the server: {error}")),
            }
        }
        self.to_send.clear();
        self.sent = 0;
        Ok(())
    }

    fn events(&self) -> libc::c_short {
        if self.sent < self.to_send.len() { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN }
    }
}

impl Client {
    fn new(args: &Args) -> Result<Client, String> {
        let count = args.connections.clamp(1, args.keys.max(1));
        Ok(Client {
            connections: (0..count).map(|_| connect(&args.socket)).collect::<Result<_, _>>()?,
            versions: vec![0; args.keys as usize],
            values: Values::new(args.value.0 as usize),
            pipeline: args.pipeline.max(1) as usize,
            random: Random::new(11),
            expected: Vec::new(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// The keys of a connection: every so manieth.
    fn keys_of(&self, connection: usize) -> usize {
        (self.versions.len() + self.connections.len() - 1 - connection) / self.connections.len()
    }

    fn next_key(&mut self, connection: usize, choice: &mut Choice) -> u32 {
        let mine = self.keys_of(connection);
        let place = match choice {
            Choice::Each(next) => {
                next[connection] += 1;
                next[connection] as usize - 1
            }
            Choice::Uniform => self.random.below(mine),
            // The law is that of the connection with the most keys.
            Choice::Zipf(zipf, scatter) => scatter.apply(zipf.sample(&mut self.random)) % mine,
        };
        (place * self.connections.len() + connection) as u32
    }

    /// Puts a request behind the others of a connection.
    fn ask(&mut self, connection: usize, op: Op, n: u32, now: Instant, counts: bool) {
        let version = &mut self.versions[n as usize];
        let to = &mut self.connections[connection];
        match op {
            Op::Get => command(&mut to.to_send, &[b"GET", &key(n)]),
            Op::Set => {
                *version = version.wrapping_add(1);
                self.values.write(n, *version, &mut self.expected);
                command(&mut to.to_send, &[b"SET", &key(n), &self.expected]);
            }
        }
        to.waiting.push_back(Waiting { op, key: n, version: *version, sent: now, counts });
    }

    /// Reads what has come, and looks at it. Gives how many answers there were.
    fn take(&mut self, connection: usize, latency: &mut Histogram) -> Result<u64, String> {
        let from = &mut self.connections[connection];
        let read = match from.stream.read(&mut self.buffer) {
            Ok(0) => return Err("the server is gone".to_owned()),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            Err(error) => return Err(format!("the server: {error}")),
        };
        let now = Instant::now();
        from.came.extend_from_slice(&self.buffer[..read]);
        let (mut at, mut answers) = (0, 0);
        while let Some((answer, length)) = answer(&from.came[at..])? {
            let asked = from.waiting.pop_front().ok_or("an answer that nobody asked for")?;
            let right = match (asked.op, answer) {
                (Op::Set, Answer::Done) => true,
                (Op::Get, Answer::Value(value)) => {
                    self.values.write(asked.key, asked.version, &mut self.expected);
                    value == self.expected
                }
                (_, Answer::Error(text)) => return Err(format!("the server: {}", String::from_utf8_lossy(text))),
                _ => false,
            };
            if !right {
                return Err(format!("content is wrong: key {}, version {}, {:?}", asked.key, asked.version, asked.op));
            }
            if asked.counts {
                latency.add(now.duration_since(asked.sent).as_nanos() as u64);
            }
            at += length;
            answers += 1;
        }
        from.came.drain(..at);
        Ok(answers)
    }

    /// Makes requests and waits for all of their answers.
    fn phase(&mut self, op: Op, mut choice: Choice, requests: u64) -> Result<Phase, String> {
        let warm = if matches!(choice, Choice::Each(_)) { 0 } else { requests / WARM_PART };
        let (mut asked, mut answered) = (0, 0);
        let mut latency = Histogram::new();
        let (mut start, mut busy_before) = (Instant::now(), busy());
        let mut fds: Vec<libc::pollfd> = Vec::new();
        while answered < requests {
            for number in 0..self.connections.len() {
                // A batch at a time, as clients that pipeline do.
                if self.connections[number].waiting.is_empty() {
                    let now = Instant::now();
                    for _ in 0..self.pipeline {
                        let mine = match &choice {
                            Choice::Each(next) => (next[number] as usize) < self.keys_of(number),
                            _ => asked < requests,
                        };
                        if !mine {
                            break;
                        }
                        let n = self.next_key(number, &mut choice);
                        self.ask(number, op, n, now, asked >= warm);
                        asked += 1;
                    }
                }
                self.connections[number].flush()?;
            }
            fds.clear();
            fds.extend(self.connections.iter().map(|c| libc::pollfd {
                fd: c.stream.as_raw_fd(),
                events: c.events(),
                revents: 0,
            }));
            // SAFETY: so many valid entries.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
            if ready < 0 && std::io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                return Err(format!("poll: {}", std::io::Error::last_os_error()));
            }
            for number in 0..fds.len() {
                if fds[number].revents & !libc::POLLOUT != 0 {
                    let before = answered;
                    answered += self.take(number, &mut latency)?;
                    if before < warm && answered >= warm {
                        (start, busy_before) = (Instant::now(), busy());
                    }
                }
            }
        }
        Ok(Phase {
            requests: requests - warm,
            elapsed: start.elapsed(),
            busy: busy().saturating_sub(busy_before),
            latency,
        })
    }

    fn each(&self) -> Choice {
        Choice::Each(vec![0; self.connections.len()])
    }

    fn zipf(&self, exponent: f64) -> Choice {
        let most = self.keys_of(0).max(1);
        Choice::Zipf(Zipf::new(most, exponent), Scatter::new(most))
    }
}

impl Phase {
    fn json(&self, name: &str) -> Value {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        json!({
            "phase": name,
            "requests": self.requests,
            "elapsed_ns": self.elapsed.as_nanos() as u64,
            "requests_per_s": self.requests as f64 / seconds,
            "p50_ns": self.latency.percentile_ns(50.0),
            "p99_ns": self.latency.percentile_ns(99.0),
            "p999_ns": self.latency.percentile_ns(99.9),
            "client_busy": self.busy.as_secs_f64() / seconds,
        })
    }
}

/// The phases whose figures count, by name.
pub const PHASES: [&str; 4] = ["get-uniform", "set-uniform", "get-zipf", "set-zipf"];

fn work(args: &Args) -> Result<Value, String> {
    if args.keys == 0 || args.exponent <= 0.0 || args.exponent == 1.0 {
        return Err("there must be keys, and the exponent is positive and not 1".to_owned());
    }
    let mut client = Client::new(args)?;
    let start = Instant::now();
    let all = u64::from(args.keys);
    let fill = client.each();
    let mut phases = vec![client.phase(Op::Set, fill, all)?.json("fill")];
    for name in PHASES {
        let op = if name.starts_with("get") { Op::Get } else { Op::Set };
        let choice = if name.ends_with("uniform") { Choice::Uniform } else { client.zipf(args.exponent) };
        phases.push(client.phase(op, choice, args.requests)?.json(name));
    }
    let check = client.each();
    phases.push(client.phase(Op::Get, check, all)?.json("check"));
    let elapsed_ns = start.elapsed().as_nanos() as u64;
    let last = &mut client.connections[0];
    command(&mut last.to_send, &[b"SHUTDOWN", b"NOSAVE"]);
    last.flush()?;
    Ok(json!({ "elapsed_ns": elapsed_ns, "phases": phases }))
}

/// `redis-load`: fills a server, asks it in several ways, reads all back, and ends it. Prints one line of JSON.
pub fn main(args: &Args) -> ExitCode {
    worker::end_with_parent();
    worker::finish(work(args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::os::unix::net::UnixListener;

    /// Reads `*N` commands whose parts are `$LENGTH` and bytes; `None` where one is not whole yet.
    fn parse(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
        let line = |at: usize| {
            let end = at + bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
            let number: usize = std::str::from_utf8(&bytes[at + 1..end]).ok()?.parse().ok()?;
            Some((number, end + 2))
        };
        let (count, mut at) = line(0)?;
        let mut words = Vec::new();
        for _ in 0..count {
            let (length, start) = line(at)?;
            if bytes.len() < start + length + 2 {
                return None;
            }
            words.push(bytes[start..start + length].to_vec());
            at = start + length + 2;
        }
        Some((words, at))
    }

    /// A server in a few lines, which answers a bit at a time; from the `lies`th GET on it gives what was set before.
    fn serve(stream: UnixStream, lies: usize) {
        let (mut from, mut to) = (stream.try_clone().expect("a descriptor"), stream);
        let (mut bytes, mut buffer) = (Vec::new(), [0; 1500]);
        let (mut now, mut before, mut gets) = (HashMap::new(), HashMap::new(), 0);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..read]);
            while let Some((words, length)) = parse(&bytes) {
                bytes.drain(..length);
                let sent = match &words[0][..] {
                    b"SET" => {
                        let old = now.insert(words[1].clone(), words[2].clone());
                        before.insert(words[1].clone(), old.unwrap_or_default());
                        to.write_all(b"+OK\r\n")
                    }
                    b"GET" => {
                        gets += 1;
                        let value: &Vec<u8> = if gets > lies { &before[&words[1]] } else { &now[&words[1]] };
                        let head = format!("${}\r\n", value.len());
                        to.write_all(head.as_bytes())
                            .and_then(|()| to.write_all(value))
                            .and_then(|()| to.write_all(b"\r\n"))
                    }
                    _ => return,
                };
                if sent.is_err() {
                    return;
                }
            }
        }
    }

    fn against(name: &str, lies: usize) -> Result<Value, String> {
        let socket = std::env::temp_dir().join(format!("outswap-bench-load-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("the temporary folder can be written to");
        std::thread::spawn(move || {
            for stream in listener.incoming().take(3).flatten() {
                std::thread::spawn(move || serve(stream, lies));
            }
        });
        let args = Args {
            socket: socket.clone(),
            keys: 100,
            value: Bytes(1000),
            requests: 500,
            connections: 3,
            pipeline: 8,
            exponent: 0.99,
        };
        let result = work(&args);
        let _ = std::fs::remove_file(socket);
        result
    }

    #[test]
    fn every_phase_makes_its_requests_and_finds_what_it_set() {
        let result = against("right", usize::MAX).expect("the server is right");
        let phases = result["phases"].as_array().expect("there are phases");
        let requests: Vec<u64> = phases.iter().filter_map(|phase| phase["requests"].as_u64()).collect();
        assert_eq!(requests, [100, 450, 450, 450, 450, 100]);
        assert!(phases.iter().all(|phase| phase["p99_ns"].as_f64() > Some(0.0)), "{phases:?}");
    }

    #[test]
    fn a_value_of_yesterday_is_noticed() {
        let result = against("stale", 20);
        assert!(result.as_ref().is_err_and(|reason| reason.starts_with("content is wrong: key ")), "{result:?}");
    }
}
