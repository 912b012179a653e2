// SPDX-License-Identifier: Apache-2.0
//! The peer: librte_acl in a process of its own, driven by commands.

use bartizan_base::Fid;
use bartizan_classify::{FlatV4, HeaderRule, Net};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The peer's methods.
pub const METHODS: [&str; 5] = ["scalar", "sse", "avx2", "avx512x16", "avx512x32"];

/// The peer's process.
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The seconds of its build.
    pub build: f64,
    /// The bytes of its tables.
    pub memory: f64,
}

impl Peer {
    /// Starts it on the files in a folder; `None` if it cannot build the rules.
    pub fn try_start(acl: &Path, files: &Path) -> Option<Self> {
        let mut child = Command::new(acl)
            .args([files.join("rules"), files.join("headers")])
            .arg("1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the peer's program");
        let stdin = child.stdin.take().expect("its stdin");
        let mut peer = Peer {
            stdout: BufReader::new(child.stdout.take().expect("its stdout")),
            stdin,
            child,
            build: 0.0,
            memory: 0.0,
        };
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            if peer.stdout.read_line(&mut line).expect("its answer") == 0 {
                return None;
            }
        }
        let words: Vec<f64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        (peer.build, peer.memory) = (words[0], words[1]);
        Some(peer)
    }

    /// Starts the process.
    pub fn start(acl: &Path, files: &Path) -> Self {
        Self::try_start(acl, files).expect("the peer ended: run it by hand to see why")
    }

    /// The number of headers with another answer than the peer's.
    pub fn differ(&mut self, method: &str, files: &Path, answers: &[Fid]) -> usize {
        let out = files.join("answers");
        self.ask(&format!("answers {method} {}", out.display()));
        let bytes = std::fs::read(out).expect("the peer's answers");
        let right = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_ne_bytes(*b));
        right.zip(answers).filter(|(a, b)| *a != b.0 as i32).count()
    }

    pub fn ask(&mut self, what: &str) -> Option<f64> {
        writeln!(self.stdin, "{what}").expect("the peer takes commands");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("its answer");
        line.trim().parse().ok()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes rules and headers in the peer's form.
pub fn write_files(files: &Path, rules: &[HeaderRule], headers: &[FlatV4]) {
    let mut text = String::new();
    let net = |net: Option<Net>| match net {
        Some(Net { address: std::net::IpAddr::V4(address), length }) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (u32::from(address) & mask, length)
        }
        _ => (0, 0),
    };
    for rule in rules {
        let ((s, sl), (d, dl)) = (net(rule.source), net(rule.destination));
        let (sp, dp) = (rule.source_ports, rule.destination_ports);
        let (protocol, mask) = rule.protocol.map_or((0, 0), |p| (p, 255));
        let ports = format!("{} {} {} {}", sp.first, sp.last, dp.first, dp.last);
        let _ = writeln!(text, "{s} {sl} {d} {dl} {ports} {protocol} {mask}");
    }
    std::fs::write(files.join("rules"), text).expect("a scratch file");
    let mut bytes = Vec::with_capacity(headers.len() * 16);
    for h in headers {
        bytes.extend([h.protocol, 0, 0, 0]);
        bytes.extend(h.source.to_be_bytes());
        bytes.extend(h.destination.to_be_bytes());
        bytes.extend(h.source_port.to_be_bytes());
        bytes.extend(h.destination_port.to_be_bytes());
    }
    std::fs::write(files.join("headers"), bytes).expect("a scratch file");
}
