// SPDX-License-Identifier: Apache-2.0
//! The lines of the conformance files, as docs/conformance.md describes them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Time between two frames of a case, unless the case has another.
pub const BETWEEN_MS: u64 = 1;

/// A line of a conformance file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    pub ip: u8,
    pub policy: String,
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    pub link: String,
    pub tenant: String,
    pub flow: Option<Flow>,
    pub before: Vec<String>,
    #[serde(default)]
    pub before_verdicts: Vec<Outcome>,
    pub state_before: Option<String>,
    pub numbers: Option<Numbers>,
    pub wait_ms: Option<u64>,
    pub packet: String,
    pub verdict: Outcome,
    pub reason: Option<String>,
    pub rule: Option<String>,
    pub state_after: Option<String>,
    #[serde(default)]
    pub after: Vec<Later>,
    pub why: String,
}

/// The outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The frame is forwarded.
    Forward,
    /// The frame is dropped.
    Drop,
    /// The frame is dropped, and its sender notified.
    Reject,
    /// The frame is held until its datagram is complete.
    Hold,
}

/// The conversation of a case; the initiator comes first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub protocol: u8,
    pub client: IpAddr,
    pub client_port: u16,
    pub server: IpAddr,
    pub server_port: u16,
}

/// The next sequence number of each side, before the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    pub client: u32,
    pub server: u32,
}

/// A later frame, which shows the state that the packet left.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Later {
    pub packet: String,
    pub verdict: Outcome,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

pub fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len())
        .step_by(2)
        .map(digit)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("not hexadecimal: {hex}"))
}

/// Every case with its file and line.
pub fn cases() -> Vec<(String, Case)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (number, line) in (1..).zip(std::fs::read_to_string(&path).unwrap().lines()) {
            let place = format!("tests/conformance/{name}:{number}");
            let case = serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            all.push((place, case));
        }
    }
    all
}

impl Case {
    /// All frames, in order: each in hexadecimal, with the milliseconds since the previous one.
    pub fn frames(&self) -> impl Iterator<Item = (&str, u64)> {
        let wait = self.wait_ms.unwrap_or(BETWEEN_MS);
        let before = self.before.iter().map(|hex| (hex.as_str(), BETWEEN_MS));
        let after = self.after.iter().map(|later| (later.packet.as_str(), BETWEEN_MS));
        before.chain([(self.packet.as_str(), wait)]).chain(after)
    }
}
