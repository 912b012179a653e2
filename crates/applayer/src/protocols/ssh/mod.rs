// SPDX-License-Identifier: Apache-2.0
//! SSH as far as it is visible without keys (RFC 4253): identification lines, key exchange, HASSH.
//!
//! One transaction per flow. Each side has its states: the identification line, the packets before the keys
//! are taken into use, and what follows SSH_MSG_NEWKEYS, which is encrypted.
//!
//! - `parser`: lines and packets; `hassh`: fingerprints of SSH_MSG_KEXINIT; `tx`: the transaction.
//!
//! Settings (below `app-layer.protocols.ssh`): `hassh` (`auto`: the loader of rules that need it sets `yes`),
//! `encryption-handling` (`track-only`, `bypass`, `full`).
//!
//! Not supported: packets of SSH 1 (their lines are read), lists of algorithms in records.

mod hassh;
mod parser;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::{EventCode, UNEXPECTED_PROTOCOL};
use crate::protocol::{
    BufferKind, BufferSpec, CounterSpec, DetectionPattern, NumberId, NumberSpec, Parser, ParserFactory,
    Probe, ProtocolSpec, RecordSpec, Transport, ValueForm, buffer,
};
use bartizan_base::limit::LimitTrace::Event;
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits, parse_bool};
use tx::SshState;

/// The identification line of a side is complete.
const BANNER: u8 = SshState::BannerDone as u8;
/// The side's later bytes are encrypted.
const COMPLETE: u8 = SshState::Finished as u8;

const PROTO: u16 = 0;
const SOFTWARE: u16 = 1;
const HASSH: u16 = 2;
const HASSH_STRING: u16 = 3;
const HASSH_SERVER: u16 = 4;
const HASSH_SERVER_STRING: u16 = 5;

const BUFFERS: &[BufferSpec] = &[
    buffer(PROTO, "ssh.proto", true, true, BANNER, BufferKind::Single),
    buffer(SOFTWARE, "ssh.software", true, true, BANNER, BufferKind::Single),
    hassh_buffer(HASSH, "ssh.hassh", Direction::ToServer).of_form(MD5),
    hassh_buffer(HASSH_STRING, "ssh.hassh.string", Direction::ToServer),
    hassh_buffer(HASSH_SERVER, "ssh.hassh.server", Direction::ToClient).of_form(MD5),
    hassh_buffer(HASSH_SERVER_STRING, "ssh.hassh.server.string", Direction::ToClient),
];

/// The setting on which fingerprints are computed.
const HASSH_SETTING: &str = "hassh";
/// A digest of 16 bytes.
const MD5: ValueForm = ValueForm::Digest { length: 32, colons: 0 };

/// A fingerprint, which exists some time between the identification line and the new keys.
const fn hassh_buffer(id: u16, name: &'static str, direction: Direction) -> BufferSpec {
    let to_server = matches!(direction, Direction::ToServer);
    buffer(id, name, to_server, !to_server, COMPLETE, BufferKind::Single)
        .from(BANNER)
        .of_state(BANNER)
        .computed_by(HASSH_SETTING)
}

/// 1 once encrypted payload was seen after both sides had taken their keys into use, and
/// `encryption-handling` is not `full`.
const ENCRYPTED: NumberId = 0;

const NUMBERS: &[NumberSpec] = &[NumberSpec { id: ENCRYPTED, name: "ssh.encrypted" }];

const EVENTS: &[&str] = &["invalid_banner", "long_banner", "invalid_record", "long_kex_record"];
const INVALID_BANNER: EventCode = 0;
const LONG_BANNER: EventCode = 1;
const INVALID_RECORD: EventCode = 2;
const LONG_KEX_RECORD: EventCode = 3;

/// First bytes of an identification line.
const PREFIX: &[u8] = b"SSH-";

/// SSH's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "ssh",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "ssh",
    eve_name: "ssh",
    eve_type: Some("ssh"),
    records: RecordSpec::PLAIN,
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[first(Direction::ToServer), first(Direction::ToClient)],
    ports: &[],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: PerDirection { to_server: tx::CLIENT_STATES, to_client: tx::SERVER_STATES },
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: Some(ENCRYPTED),
    frames: &["stream", "record.hdr", "record.data", "record.pdu"],
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

const fn first(direction: Direction) -> DetectionPattern {
    DetectionPattern {
        transport: Transport::Tcp,
        direction,
        bytes: PREFIX,
        nocase: true,
        offset: 0,
        depth: 4,
    }
}

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "SSH: identification line, line before it" = "{}, as OpenSSH; passively {}"
        [bytes(parser::LINE_MAX), bytes(parser::LINE_USUAL)]
        in ["applayer/protocols/ssh/parser.rs"], "in prevention refused; passively the version is read of what came, the rest of the line is skipped",
        [Event("ssh.long_banner")];
    Protocol "SSH: lines of a server before its identification line" = "{}, as OpenSSH" [count(parser::LINES_MAX)]
        in ["applayer/protocols/ssh/parser.rs"], "event, parsing of the flow ends", [Event("ssh.invalid_banner")];
    Protocol "SSH: SSH_MSG_KEXINIT of which a HASSH is made" = "{}" [bytes(parser::KEX_MAX)]
        in ["applayer/protocols/ssh/parser.rs"], "event, there is no HASSH", [Event("ssh.long_kex_record")];
};

/// Matches the beginning of an identification line, of either side.
fn probe(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let begin = data.get(..PREFIX.len()).unwrap_or(data);
    let is_same = PREFIX.get(..begin.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(begin));
    match (is_same, begin.len() == PREFIX.len()) {
        (false, _) => Probe::No,
        (true, false) => Probe::More,
        (true, true) => Probe::Yes(direction),
    }
}

/// Settings that all flows share.
#[derive(Clone, Copy, Debug)]
struct SshConfig {
    /// Fingerprints are made.
    hassh: bool,
    /// Once encrypted, the flow is bypassed.
    bypass: bool,
    /// Encrypted bytes are inspected as any others.
    full: bool,
}

impl SshConfig {
    fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let error = |key: &str, value: &str, expected| SettingError {
            key: format!("app-layer.protocols.ssh.{key}"),
            value: value.to_owned(),
            expected,
        };
        let hassh = match settings.get(HASSH_SETTING) {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("auto") => false,
            Some(text) => parse_bool(text).ok_or_else(|| error("hassh", text, "auto, yes or no"))?,
        };
        let key = "encryption-handling";
        let (bypass, full) = match settings.get(key) {
            None | Some("track-only" | "default") => (false, false),
            Some("bypass") => (true, false),
            Some("full") => (false, true),
            Some(other) => return Err(error(key, other, "track-only, bypass or full")),
        };
        Ok(SshConfig { hassh, bypass, full })
    }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    Ok(Box::new(SshFactory { config: SshConfig::read(settings)? }))
}

struct SshFactory {
    config: SshConfig,
}

impl ParserFactory for SshFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::SshParser::new(self.config))
    }
}
