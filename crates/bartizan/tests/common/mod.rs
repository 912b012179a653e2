// SPDX-License-Identifier: Apache-2.0
//! The program as its users run it: folders for it, a run that ends by itself, and one that goes on during
//! the test.
#![allow(dead_code)]

use bartizan_testkit::packet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_bartizan");
/// The longest time of a step: more than it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder of its own for a test, removed afterwards.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bartizan-program-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The exit code and the output of a run that ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program in a folder until it ends. Without a cache of patterns, unless the arguments name one.
pub fn run(folder: &Path, arguments: &[&str]) -> Ended {
    Running::start(Command::new(PROGRAM).args(arguments).current_dir(folder)).wait()
}

/// A running program.
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

fn collect(from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(read) if read > 0) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().unwrap(), &stdout),
            collect(child.stderr.take().unwrap(), &stderr),
        ];
        Running { child, stdout, stderr, readers }
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until standard error contains `text`.
    ///
    /// # Panics
    /// The program ends without it, or the time limit is over.
    pub fn until(&self, text: &str) {
        let begun = Instant::now();
        loop {
            // This comes before the read: text printed at the very end counts, too.
            let goes_on = !self.has_ended() && begun.elapsed() < LIMIT;
            let said = self.stderr();
            if said.contains(text) {
                return;
            }
            assert!(goes_on, "waited in vain for `{text}` on standard error: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until standard output contains `text`.
    ///
    /// # Panics
    /// The program ends without it, or the time limit is over.
    pub fn until_on_stdout(&self, text: &str) {
        let begun = Instant::now();
        loop {
            let goes_on = !self.has_ended() && begun.elapsed() < LIMIT;
            let said = self.stdout.lock().unwrap().clone();
            if said.contains(text) {
                return;
            }
            assert!(goes_on, "waited in vain for `{text}` on standard output: {said} {}", self.stderr());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the process is over and all of its output was read.
    fn has_ended(&self) -> bool {
        self.readers.iter().all(std::thread::JoinHandle::is_finished)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub fn wait(mut self) -> Ended {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if begun.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("the program does not end: {}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let stdout = self.stdout.lock().unwrap().clone();
        Ended { code, stdout, stderr: self.stderr() }
    }

    /// Stops it as an operator does, by a signal.
    pub fn stop(self) -> Ended {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `holds` is true.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The program's answer to a request at a path of its metrics' address.
pub fn get(path: &str) -> String {
    let mut stream = TcpStream::connect("127.0.0.1:9100").unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a series on the metrics page; sums over those that have these labels.
pub fn value(page: &str, name: &str, labels: &[&str]) -> u64 {
    let fits = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or("-");
        rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label))
    };
    page.lines().filter(fits).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Address of a host by its number: 192.0.2.N, 2001:db8::N.
pub fn address(v6: bool, host: u8) -> IpAddr {
    if v6 { packet::address(true, host) } else { [192, 0, 2, host].into() }
}

/// A UDP packet from host 1 to host 2 in an Ethernet frame.
pub fn udp(v6: bool, source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (address(v6, 1), address(v6, 2));
    packet::udp((from, source_port), (to, destination_port), payload).frame()
}

/// A capture file of Ethernet frames, one a millisecond.
pub fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    bartizan_testkit::capture::paced(1_000, frames)
}
