//! Using a Redis server: the client of the `redis` program, in a process of its own and outside of every limit.
use std::io::{BufRead, BufReader, BufWriter, Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::programs::check::Check;
use crate::random::Random;
use crate::say;

/// How long the server may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Commands sent before answers are read.
const BATCH: u64 = 500;

/// Arguments of the client.
#[derive(clap::Args)]
pub struct Args {
    /// The server's socket
    socket: PathBuf,
    /// Keys that are set
    keys: u64,
    /// Requests that `redis-benchmark` makes
    requests: u64,
}

struct Client {
    to: BufWriter<UnixStream>,
    from: BufReader<UnixStream>,
}

/// The name of a key, as `redis-benchmark` makes them.
fn key(n: u64) -> String {
    format!("key:{n:012}")
}

/// What is set: half of it random, as in a page of records.
fn value(random: &mut Random, n: u64) -> String {
    let mut text = format!("{{\"user\":{n},");
    for field in 0..12 {
        text += &format!("\"field{field}\":\"{:016x}\",\"kind\":\"ordinary\",", random.next());
    }
    text + "\"end\":true}"
}

impl Client {
    fn connect(socket: &Path) -> Result<Client> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        Ok(Client { to: BufWriter::new(stream.try_clone()?), from: BufReader::new(stream) })
    }

    fn send(&mut self, words: &[&str]) -> Result<()> {
        write!(self.to, "*{}\r\n", words.len())?;
        words.iter().try_for_each(|word| write!(self.to, "${}\r\n{word}\r\n", word.len()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if line.ends_with("\r\n") { Ok(line.trim_end().to_owned()) } else { Err(Error::other("the server is gone")) }
    }

    fn expect(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        if line == expected { Ok(()) } else { Err(Error::other(format!("`{line}` instead of `{expected}`"))) }
    }

    /// Sets these keys.
    fn set(&mut self, keys: impl Iterator<Item = u64>, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut sent = 0;
            for n in keys.by_ref().take(BATCH as usize) {
                self.send(&["SET", &key(n), &value(&mut random, n)])?;
                sent += 1;
            }
            self.to.flush()?;
            (0..sent).try_for_each(|_| self.expect("+OK"))?;
        }
        Ok(())
    }

    /// Reads all keys in order.
    fn read_all(&mut self, keys: u64) -> Result<Check> {
        let mut check = Check::new();
        let mut bytes = Vec::new();
        for first in (0..keys).step_by(BATCH as usize) {
            let names: Vec<String> = (first..keys.min(first + BATCH)).map(key).collect();
            let words: Vec<&str> = std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
            self.send(&words)?;
            self.to.flush()?;
            self.expect(&format!("*{}", names.len()))?;
            for name in &names {
                let head = self.line()?;
                let length: Option<usize> = head.strip_prefix('$').and_then(|length| length.parse().ok());
                let length = length.ok_or_else(|| Error::other(format!("{name}: `{head}`")))?;
                bytes.resize(length + 2, 0);
                self.from.read_exact(&mut bytes)?;
                check.add(&bytes);
            }
        }
        Ok(check)
    }
}

fn work(args: &Args) -> Result<Check> {
    let mut client = Client::connect(&args.socket)?;
    client.set(0..args.keys, 4)?;
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.arg("-s").arg(&args.socket).args(["-t", "get", "-c", "8", "-q", "-r", &args.keys.to_string()]);
    benchmark.args(["-n", &args.requests.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = benchmark.status()?;
    if !status.success() {
        return Err(Error::other(format!("redis-benchmark: {status}")));
    }
    client.set((0..args.keys).step_by(3), 5)?;
    let check = client.read_all(args.keys)?;
    client.send(&["SHUTDOWN", "NOSAVE"])?;
    client.to.flush()?;
    Ok(check)
}

/// `redis-client`: fills a server, has `redis-benchmark` read at random, changes every third key, reads all back, and
/// ends the server. Prints the check of all that it read.
pub fn client_main(args: &Args) -> ExitCode {
    match work(args) {
        Ok(check) => {
            println!("{check}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("redis: {error}"));
            ExitCode::FAILURE
        }
    }
}
