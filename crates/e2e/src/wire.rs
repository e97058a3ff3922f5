//! Small clients: as much of Redis's and memcached's protocols as the tests need, with requests sent ahead of answers.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Requests sent before their answers are read. Small enough for the answers to fit into socket buffers: the server
/// would stop reading if nobody took them.
const AHEAD: u32 = 64;
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(120);

/// Either kind of stream.
pub trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// Bytes of a value.
pub const VALUE_BYTES: usize = 1000;

/// The value of a key: one half as random as text gets, the other repetitive, so that it compresses as data does.
pub fn value(key: u32) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(VALUE_BYTES + 32);
    for _ in 0..VALUE_BYTES / 2 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push(LETTERS[(state >> 58) as usize]);
    }
    while bytes.len() < VALUE_BYTES {
        bytes.extend_from_slice(format!("field={key};").as_bytes());
    }
    bytes.truncate(VALUE_BYTES);
    bytes
}

fn key(n: u32) -> String {
    format!("key:{n:08}")
}

/// Connects as soon as the server listens.
fn connect<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(stream) => return stream,
            Err(e) => assert!(started.elapsed() < SILENCE, "the server does not listen: {e}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A connection to Redis.
pub struct Redis(BufReader<UnixStream>);

/// One of Redis's answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// A line that begins with `+`, `-` or `:`, which stays at its head.
    Line(String),
    /// A string; none where there is nothing.
    Bulk(Option<Vec<u8>>),
}

impl Redis {
    /// Connects, and waits until the data is loaded.
    pub fn connect(path: &Path) -> Redis {
        let stream = connect(|| UnixStream::connect(path));
        stream.set_read_timeout(Some(SILENCE)).expect("the time is not zero");
        let mut redis = Redis(BufReader::new(stream));
        let started = Instant::now();
        while redis.ask(&[b"PING"]) != Reply::Line("+PONG".into()) {
            assert!(started.elapsed() < SILENCE, "redis does not finish loading");
            thread::sleep(Duration::from_millis(50));
        }
        redis
    }

    fn send(words: &[&[u8]], out: &mut Vec<u8>) {
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn reply(&mut self) -> Reply {
        let line = line(&mut self.0);
        let Some(size) = line.strip_prefix('$') else { return Reply::Line(line) };
        let Ok(size) = size.parse::<usize>() else { return Reply::Bulk(None) };
        let mut bytes = vec![0; size + 2];
        self.0.read_exact(&mut bytes).expect("redis goes on talking");
        bytes.truncate(size);
        Reply::Bulk(Some(bytes))
    }

    /// One request, one answer.
    pub fn ask(&mut self, words: &[&[u8]]) -> Reply {
        let mut out = Vec::new();
        Redis::send(words, &mut out);
        self.0.get_mut().write_all(&out).expect("redis listens");
        self.reply()
    }

    /// Sets keys `0..count`.
    pub fn load(&mut self, count: u32) {
        for first in (0..count).step_by(AHEAD as usize) {
            let batch = first..count.min(first + AHEAD);
            let mut out = Vec::new();
            for n in batch.clone() {
                Redis::send(&[b"SET", key(n).as_bytes(), &value(n)], &mut out);
            }
            self.0.get_mut().write_all(&out).expect("redis listens");
            for n in batch {
                assert_eq!(self.reply(), Reply::Line("+OK".into()), "SET {n}");
            }
        }
    }

    /// Reads every key back and compares.
    pub fn verify(&mut self, count: u32) {
        assert_eq!(self.ask(&[b"DBSIZE"]), Reply::Line(format!(":{count}")));
        for first in (0..count).step_by(AHEAD as usize) {
            let batch = first..count.min(first + AHEAD);
            let mut out = Vec::new();
            for n in batch.clone() {
                Redis::send(&[b"GET", key(n).as_bytes()], &mut out);
            }
            self.0.get_mut().write_all(&out).expect("redis listens");
            for n in batch {
                assert!(self.reply() == Reply::Bulk(Some(value(n))), "GET {n} gave another value");
            }
        }
    }

    /// Saves in the background and waits for the end, for as long as more keys are saved: that is slow where memory and processors are short.
    pub fn save(&mut self) {
        let began = self.ask(&[b"BGSAVE"]);
        assert!(matches!(&began, Reply::Line(line) if line.starts_with('+')), "BGSAVE: {began:?}");
        let (mut last, mut since) = (None, Instant::now());
        loop {
            let Reply::Bulk(Some(info)) = self.ask(&[b"INFO", b"persistence"]) else { panic!("no INFO") };
            let info = String::from_utf8_lossy(&info).into_owned();
            if info.contains("rdb_bgsave_in_progress:0") {
                assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
                return;
            }
            let saved = info.lines().find(|line| line.starts_with("current_save_keys_processed:")).map(str::to_owned);
            if saved != last {
                (last, since) = (saved, Instant::now());
            }
            assert!(since.elapsed() < SILENCE, "BGSAVE saves nothing more: {info}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server.
    pub fn shut_down(mut self) {
        let mut out = Vec::new();
        Redis::send(&[b"SHUTDOWN", b"NOSAVE"], &mut out);
        self.0.get_mut().write_all(&out).expect("redis listens");
    }
}

fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    let n = stream.read_line(&mut line).expect("the server goes on talking");
    assert!(n > 0, "the server hung up");
    line.trim_end().into()
}

/// A connection to memcached.
pub struct Memcached(BufReader<TcpStream>);

impl Memcached {
    /// Connects.
    pub fn connect(port: u16) -> Memcached {
        let stream = connect(|| TcpStream::connect(("127.0.0.1", port)));
        stream.set_read_timeout(Some(SILENCE)).expect("the time is not zero");
        Memcached(BufReader::new(stream))
    }

    /// Sets keys `0..count`.
    pub fn load(&mut self, count: u32) {
        for first in (0..count).step_by(AHEAD as usize) {
            let batch = first..count.min(first + AHEAD);
            let mut out = Vec::new();
            for n in batch.clone() {
                out.extend_from_slice(format!("set {} {n} 0 {VALUE_BYTES}\r\n", key(n)).as_bytes());
                out.extend_from_slice(&value(n));
                out.extend_from_slice(b"\r\n");
            }
            self.0.get_mut().write_all(&out).expect("memcached listens");
            for n in batch {
                assert_eq!(line(&mut self.0), "STORED", "set {n}");
            }
        }
    }

    /// Reads every key back and compares.
    pub fn verify(&mut self, count: u32) {
        for first in (0..count).step_by(AHEAD as usize) {
            let batch = first..count.min(first + AHEAD);
            let request: String = batch.clone().map(|n| format!("get {}\r\n", key(n))).collect();
            self.0.get_mut().write_all(request.as_bytes()).expect("memcached listens");
            for n in batch {
                assert_eq!(line(&mut self.0), format!("VALUE {} {n} {VALUE_BYTES}", key(n)));
                let mut bytes = vec![0; VALUE_BYTES + 2];
                self.0.read_exact(&mut bytes).expect("memcached goes on talking");
                assert!(bytes[..VALUE_BYTES] == value(n), "get {n} gave another value");
                assert_eq!(line(&mut self.0), "END");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_and_have_their_size() {
        assert_eq!(value(7), value(7));
        assert_ne!(value(7), value(8));
        assert!((0..100).all(|n| value(n).len() == VALUE_BYTES));
    }
}
