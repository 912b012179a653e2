// SPDX-License-Identifier: Apache-2.0
//! Conversations of mail, files and remote calls (SMTP, FTP, SMB, DCERPC and SSH), and QUIC, in both modes.
//!
//! The first byte chooses the protocol, unless `PROTOCOL` in the environment names one; the second has flags
//! (`FREES`, `WRAPS`, `REPEATS`); then come four lengths of segments, and pieces with direction,
//! length, loss and end. Beyond "does not panic":
//!
//! * The same bytes in other segments give the same transactions, events and expected connections, unless
//!   bytes are lost.
//! * The memory that a parser reports is within `held_max` of the bytes that it was given, and never less
//!   than the contents of files that it shows.
//! * A conversation takes less than `TIME_MAX`, also when it is repeated in the same flow.

use crate::planted::planted;
use crate::protocol::{Driver, choices};
use crate::take::Take;
use bartizan_applayer::protocol::{ProtocolSpec, Transport};
use bartizan_base::Direction;
use bartizan_testkit::quic;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The protocols, by their names in the table.
const PROTOCOLS: &[&str] = &["smtp", "ftp", "ftp-data", "smb", "dcerpc", "ssh", "websocket", "http2", "quic"];

/// Flag: transactions are freed when they are complete.
const FREES: u8 = 1;
/// Flag: a piece is a whole message, whose length is put into its header (SMB, DCERPC, HTTP/2), or the frames
/// of an Initial packet, which is encrypted (QUIC).
const WRAPS: u8 = 2;
/// Flag: the pieces come [`ROUNDS`] times, in one flow.
const REPEATS: u8 = 4;

/// Number of times that pieces are repeated.
const ROUNDS: usize = 16;
/// Limit of the time that a conversation of 8 KiB takes: far above the milliseconds of good ones.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Limit of the memory that a parser holds for so many bytes of a conversation. A line of FTP that is empty
/// is a transaction; a byte of deflate stands for 1,032 of a message of WebSocket.
fn held_max(name: &str, bytes: usize) -> usize {
    (256 << 10) + if name == "websocket" { 4096 } else { 1024 } * bytes
}

/// A piece of a conversation.
struct ConversationPiece {
    direction: Direction,
    bytes: Vec<u8>,
    /// Bytes lost before it.
    lost: u64,
    /// The direction ends with it.
    ends: bool,
}

/// An Initial packet. The first byte of the piece has the packet's number, and a bit for another connection;
/// its frames follow.
fn initial(direction: Direction, piece: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 4_096;
    let (first, frames) = piece.split_first().unwrap_or((&0, &[]));
    let frames = frames.get(..LONGEST).unwrap_or(frames);
    let number = u64::from(first & 0x7f);
    let packet = match direction {
        Direction::ToServer => quic::client(number, frames),
        Direction::ToClient => quic::server(number, frames),
    };
    if first & 0x80 == 0 { packet.seal() } else { packet.of(b"another").seal() }
}

/// Reads a piece.
fn piece(take: &mut Take<'_>, name: &str, wraps: bool) -> ConversationPiece {
    let (kind, len) = (take.byte(), take.short());
    let direction = if kind & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
    let lost = if kind & 0xf0 == 0xf0 { u64::from(kind & 0x0e) } else { 0 };
    let mut bytes = take.bytes(usize::from(len)).to_vec();
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    match name {
        "smb" if wraps => {
            let [high, low] = length.to_be_bytes();
            bytes.splice(..0, [0, 0, high, low]);
        }
        "dcerpc" if wraps && bytes.len() >= 16 => {
            let is_little = bytes[4] & 0x10 != 0;
            let order = if is_little { length.to_le_bytes() } else { length.to_be_bytes() };
            bytes[8..10].copy_from_slice(&order);
        }
        "http2" if wraps && bytes.len() >= 9 => {
            let [high, low] = length.saturating_sub(9).to_be_bytes();
            bytes.splice(..3, [0, high, low]);
        }
        "quic" if wraps => bytes = initial(direction, &bytes),
        _ => {}
    }
    ConversationPiece { direction, bytes, lost, ends: kind & 0xf2 == 2 }
}

/// The name in the environment of the only protocol.
fn only() -> Option<&'static str> {
    static ONLY: OnceLock<Option<&'static str>> = OnceLock::new();
    *ONLY.get_or_init(|| {
        let name = std::env::var("PROTOCOL").ok()?;
        PROTOCOLS.iter().copied().find(|known| *known == name)
    })
}

/// The protocols with their transports, in the order of the first byte.
pub fn flows() -> Vec<(&'static ProtocolSpec, Transport)> {
    let is_wanted = |name| only().map_or(PROTOCOLS.contains(&name), |only| only == name);
    let mut flows: Vec<_> = choices().into_iter().filter(|(spec, _)| is_wanted(spec.name)).collect();
    // Findings have the places of the others.
    flows.sort_by_key(|(spec, _)| spec.name == "http2");
    flows
}

/// A conversation in one flow.
struct Conversation {
    spec: &'static ProtocolSpec,
    transport: Transport,
    pieces: Vec<ConversationPiece>,
    frees: bool,
}

impl Conversation {
    /// Plays the conversation, each piece in segments of the lengths that `cuts` gives in turn; returns all
    /// results.
    fn play(&self, prevents: bool, cuts: &[usize], rounds: usize) -> Vec<String> {
        let mut driver = Driver::new(self.spec, self.transport);
        driver.prevents = prevents;
        let mut expected = Vec::new();
        let mut cuts = cuts.iter().copied().cycle();
        let mut sent = 0;
        for piece in core::iter::repeat_n(&self.pieces, rounds).flatten() {
            driver.lose(piece.direction, piece.lost);
            let mut rest = piece.bytes.as_slice();
            while let Some(cut) = cuts.next().filter(|_| self.transport == Transport::Tcp) {
                let Some((head, tail)) = rest.split_at_checked(cut) else { break };
                driver.send(piece.direction, head);
                rest = tail;
            }
            driver.send(piece.direction, rest);
            if piece.ends {
                driver.end(piece.direction);
            }
            sent += piece.bytes.len();
            if let Some(list) = driver.parser().expectations() {
                expected.extend(core::mem::take(list).iter().map(|it| format!("{it:?}")));
            }
            if self.frees {
                driver.free_complete();
            }
        }
        let (held, shown) = (driver.parser().held(), driver.shown());
        assert!(held <= held_max(self.spec.name, sent), "{}: {held} bytes held of {sent}", self.spec.name);
        assert!(shown <= held, "{}: {held} bytes held, {shown} shown", self.spec.name);
        driver.finish();
        let mut seen = driver.outcome();
        seen.append(&mut expected);
        seen
    }
}

/// Plays a conversation in both modes, whole and in segments.
pub fn run(data: &[u8]) {
    let flows = flows();
    let mut take = Take(data);
    let (spec, transport) = flows[usize::from(take.byte()) % flows.len()];
    let flags = take.byte();
    let cuts: Vec<usize> = take.bytes(4).iter().map(|cut| usize::from(*cut) % 60 + 1).collect();
    let mut pieces = Vec::new();
    while !take.is_empty() {
        pieces.push(piece(&mut take, spec.name, flags & WRAPS != 0));
    }
    for probe in [spec.probe, spec.likely].into_iter().flatten() {
        for piece in &pieces {
            let _ = probe(transport, piece.direction, &piece.bytes);
        }
    }
    let has_all = pieces.iter().all(|piece| piece.lost == 0);
    let rounds = if flags & REPEATS == 0 { 1 } else { ROUNDS };
    let conversation = Conversation { spec, transport, pieces, frees: flags & FREES != 0 };
    let begin = Instant::now();
    let mut found = false;
    for prevents in [true, false] {
        let whole = conversation.play(prevents, &[], rounds);
        if !cuts.is_empty() && rounds == 1 {
            let cut = conversation.play(prevents, &cuts, 1);
            let is_excepted = !prevents && depends_on_segments(spec, &whole);
            assert!(
                !has_all || is_excepted || whole == cut,
                "{} in prevention {prevents}, cut at {cuts:?}:\n{whole:#?}\n{cut:#?}",
                spec.name
            );
        }
        found |= whole.iter().any(|line| line.contains("\"helo\":\"d\""));
    }
    let took = begin.elapsed();
    assert!(took < TIME_MAX, "{}: {took:?} for {} bytes", spec.name, data.len());
    planted(spec.name == "smtp" && found);
}

/// Whether a result depends on the segments, as in Suricata: passively, of an identification line of SSH that
/// is too long, the bytes are read that have come with its 256th.
fn depends_on_segments(spec: &ProtocolSpec, seen: &[String]) -> bool {
    let long = spec.events.iter().position(|name| spec.name == "ssh" && *name == "long_banner");
    long.is_some_and(|code| {
        let code = code.to_string();
        let lists = seen.iter().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
        lists.flat_map(|list| list.split(", ")).any(|event| event == code)
    })
}
