// SPDX-License-Identifier: Apache-2.0
//! The properties that every protocol must have, as tests that a protocol gets with one line.
//!
//! [`protocol_suite!`](crate::suite::protocol_suite) makes a module of property tests from a protocol's table
//! entry and some conversations ("seeds"): arbitrary bytes and damaged seeds never make the parser panic or
//! consume more than its input; a seed gives the same transactions, events, buffers, numbers, files and
//! records however its bytes are cut; gaps are survived; the probe never refuses the beginning of data that
//! it accepts; a flood holds bounded memory when transactions are freed as they become complete.
//!
//! [`Driver`] takes the place of the flow: it keeps unconsumed bytes and calls the parser by the contract of
//! [`crate::protocol::Parser`]. Tests of a protocol use it, too.
//!
//! Memory is measured by the visible contents of transactions (buffers and files), not by counting
//! allocations.

use crate::event::{EventCode, Events};
use crate::file::FileSettings;
use crate::flow::{AppLayer, Engine, FlowInfo};
use crate::protocol::{Input, ParseContext, Parser, Progress, ProtocolSpec, Transport};
use crate::transaction::{BufferQuery, LogOptions, Transaction, TxId};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;

pub(crate) mod cuts;
pub(crate) mod feeder;
use cuts::Player;

/// A conversation: pieces of data in the order in which they are sent. Over UDP each is a datagram.
pub(crate) type Conversation<'a> = &'a [(Direction, &'a [u8])];

/// A conversation that owns its bytes, as seeds do.
pub(crate) type Seed = Vec<(Direction, Vec<u8>)>;

/// Limit of inspected values of one buffer.
const MAX_VALUES: u32 = 100_000;

/// All visible results of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// The protocol's events.
    pub events: Vec<EventCode>,
    /// The transaction's progress by direction.
    pub progress: [u8; 2],
    /// Values of buffers: name, direction, offset, bytes.
    pub buffers: Vec<(&'static str, Direction, u64, Vec<u8>)>,
    /// The transaction's files: name, size, state.
    pub files: Vec<(Direction, Vec<u8>, u64, String)>,
    /// Records in EVE and in an alert.
    pub records: [String; 2],
}

/// All visible results of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConversationResult {
    /// The conversation's transactions.
    pub transactions: Vec<Shape>,
    /// Events that belong to no transaction.
    pub events: Vec<EventCode>,
    /// The parser failed.
    pub failed: bool,
}

/// Plays the flow for a parser.
pub(crate) struct Driver {
    spec: &'static ProtocolSpec,
    transport: Transport,
    parser: Box<dyn Parser>,
    files: FileSettings,
    /// Bytes not consumed yet.
    waiting: PerDirection<Vec<u8>>,
    /// Number of held bytes at which the parser is called.
    needed: PerDirection<usize>,
    /// Stream offset of the first waiting byte.
    offset: PerDirection<u64>,
    /// The parser needs no more data of this direction.
    stopped: PerDirection<bool>,
    /// Events that belong to no transaction.
    pub events: Events,
    /// The parser failed.
    pub failed: bool,
    /// The parser works as in prevention.
    pub prevents: bool,
}

impl Driver {
    /// A flow of the protocol, with default settings.
    pub fn new(spec: &'static ProtocolSpec, transport: Transport) -> Self {
        Driver::with(spec, transport, &SettingsMap::new())
    }

    /// A flow of the protocol, with settings.
    pub fn with(spec: &'static ProtocolSpec, transport: Transport, settings: &SettingsMap) -> Self {
        let factory = (spec.configure)(settings).expect("a protocol must do without settings");
        Driver {
            spec,
            transport,
            parser: factory.make(),
            files: FileSettings::default(),
            waiting: PerDirection::default(),
            needed: PerDirection::default(),
            offset: PerDirection::default(),
            stopped: PerDirection::default(),
            events: Events::default(),
            failed: false,
            prevents: false,
        }
    }

    /// The parser.
    pub fn parser(&mut self) -> &mut dyn Parser {
        self.parser.as_mut()
    }

    /// Sends data.
    pub fn send(&mut self, direction: Direction, data: &[u8]) {
        if self.stopped[direction] || data.is_empty() {
            return;
        }
        self.waiting[direction].extend_from_slice(data);
        if self.waiting[direction].len() >= self.needed[direction] {
            self.parse(direction, false);
        }
    }

    /// Calls the parser with the held data.
    fn parse(&mut self, direction: Direction, eof: bool) {
        let data = std::mem::take(&mut self.waiting[direction]);
        let mut context = ParseContext {
            now: Timestamp::default(),
            server_port: self.spec.ports.first().map_or(1, |p| p.port),
            client_port: 40_000,
            transport: self.transport,
            files: &self.files,
            prevents: self.prevents,
            events: &mut self.events,
        };
        let input = Input { data: &data, offset: self.offset[direction], eof };
        let progress = self.parser.parse(direction, input, &mut context);
        let consumed = match progress {
            Progress::Done => data.len(),
            Progress::Incomplete { consumed, needed } => {
                assert!(consumed <= data.len(), "consumed {consumed} of {}", data.len());
                assert!(needed > 0, "needs nothing, and is not done");
                assert!(self.transport == Transport::Tcp, "datagrams come whole");
                self.needed[direction] = needed;
                consumed
            }
            Progress::Error if self.transport == Transport::Udp => data.len(),
            Progress::Error | Progress::Refuse => {
                self.failed = true;
                self.stopped = PerDirection::new(true, true);
                data.len()
            }
            Progress::Switch { consumed, .. } => {
                assert!(consumed <= data.len(), "consumed {consumed} of {}", data.len());
                self.stopped = PerDirection::new(true, true);
                data.len()
            }
            Progress::Stop { .. } => {
                self.stopped = PerDirection::new(true, true);
                data.len()
            }
        };
        if consumed == data.len() {
            self.needed[direction] = self.needed[direction].min(1);
        }
        if self.transport == Transport::Tcp {
            self.offset[direction] += consumed as u64;
        }
        self.waiting[direction] = data.get(consumed..).unwrap_or_default().to_vec();
    }

    /// Loses data; held data is lost as well.
    pub fn lose(&mut self, direction: Direction, missing: u64) {
        if self.stopped[direction] || self.transport == Transport::Udp {
            return;
        }
        self.offset[direction] += self.waiting[direction].len() as u64 + missing;
        self.waiting[direction].clear();
        self.needed[direction] = 0;
        let mut context = ParseContext {
            now: Timestamp::default(),
            server_port: self.spec.ports.first().map_or(1, |p| p.port),
            client_port: 40_000,
            transport: self.transport,
            files: &self.files,
            prevents: self.prevents,
            events: &mut self.events,
        };
        if !self.parser.gap(direction, missing, &mut context) {
            self.stopped[direction] = true;
        }
    }

    /// Ends both directions.
    pub fn finish(&mut self) {
        for direction in Direction::BOTH {
            if self.transport == Transport::Tcp && !self.stopped[direction] {
                self.parse(direction, true);
            }
            let mut context = ParseContext {
                now: Timestamp::default(),
                server_port: 1,
                client_port: 40_000,
                transport: self.transport,
                files: &self.files,
                prevents: self.prevents,
                events: &mut self.events,
            };
            self.parser.end(direction, &mut context);
        }
    }

    /// Frees the transactions that are complete in both directions, as a flow does after inspection.
    pub fn free_complete(&mut self) {
        for id in self.parser.tx_range() {
            let complete = self
                .parser
                .tx(id)
                .is_some_and(|tx| Direction::BOTH.iter().all(|d| tx.progress(*d) >= self.spec.complete[*d]));
            if complete {
                self.parser.free_tx(id);
            }
        }
    }

    /// Transactions held, and bytes in their buffers and files.
    pub fn held(&self) -> (usize, usize) {
        let range = self.parser.tx_range();
        let slots = usize::try_from(range.end - range.start).expect("a small number");
        let bytes = range
            .filter_map(|id| self.parser.tx(id))
            .flat_map(|tx| shape(self.spec, tx).buffers)
            .map(|(_, _, _, bytes)| bytes.len())
            .sum();
        (slots, bytes)
    }

    /// All visible results so far.
    pub fn outcome(&self) -> ConversationResult {
        let transactions = self
            .parser
            .tx_range()
            .filter_map(|id| self.parser.tx(id))
            .map(|tx| shape(self.spec, tx))
            .collect();
        ConversationResult { transactions, events: self.events.as_slice().to_vec(), failed: self.failed }
    }
}

impl cuts::Player for Driver {
    fn send(&mut self, direction: Direction, data: &[u8]) {
        Driver::send(self, direction, data);
    }

    fn parser(&mut self) -> &mut dyn Parser {
        Driver::parser(self)
    }
}

/// The record of a transaction as JSON text.
pub(crate) fn record(tx: &dyn Transaction, options: &LogOptions, in_alert: bool) -> String {
    let mut json = JsonWriter::new();
    json.begin_object();
    tx.log(&mut json, options, in_alert);
    json.end_object();
    let text = String::from_utf8(json.bytes().to_vec()).expect("records are UTF-8");
    let value: serde_json::Value = serde_json::from_str(&text).expect("records are JSON");
    assert!(!text.contains(":null"), "never null: {text}");
    assert!(value.is_object());
    text
}

/// All visible results of a transaction.
pub(crate) fn shape(spec: &ProtocolSpec, tx: &dyn Transaction) -> Shape {
    let mut buffers = Vec::new();
    let mut files = Vec::new();
    let mut scratch = Vec::new();
    for direction in Direction::BOTH {
        for buffer in spec.buffers.iter().filter(|b| b.directions[direction]) {
            if let Some(name) = buffer.to_client_as.filter(|_| direction == Direction::ToClient) {
                has_one_value(spec, tx, buffer.id, name);
            }
            for index in 0..MAX_VALUES {
                scratch.clear();
                let query = BufferQuery { id: buffer.id, direction, index };
                let Some(view) = tx.buffer(query, &mut scratch) else { break };
                buffers.push((buffer.name, direction, view.offset, view.data.to_vec()));
                if !buffer.kind.is_multi() {
                    break;
                }
            }
        }
        for file in tx.files_of(direction) {
            files.push((direction, file.name.clone(), file.size, format!("{:?}", file.state)));
        }
    }
    let options = LogOptions { extended: true, version: spec.records.version, ..LogOptions::default() };
    Shape {
        events: tx.common().events.as_slice().to_vec(),
        progress: Direction::BOTH.map(|d| tx.progress(d)),
        buffers,
        files,
        records: [record(tx, &options, false), record(tx, &options, true)],
    }
}

/// Checks that a buffer and its other name always have the same value.
fn has_one_value(spec: &ProtocolSpec, tx: &dyn Transaction, id: u16, name: &str) {
    let other = spec
        .buffers
        .iter()
        .find(|b| b.name == name && b.directions.to_client)
        .expect("a buffer to the client");
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let query = |id, index| BufferQuery { id, direction: Direction::ToClient, index };
    let same =
        tx.buffer(query(other.id, 0), &mut one).map(|view| (view.data.to_vec(), view.offset, view.complete));
    let own = tx.buffer(query(id, 0), &mut two).map(|view| (view.data.to_vec(), view.offset, view.complete));
    assert_eq!(own, same, "{name}");
    assert!(tx.buffer(query(id, 1), &mut two).is_none(), "{name}: there is a second value");
}

/// Plays a conversation, each piece cut into parts of the lengths that `cuts` gives in turn (empty: not cut).
/// `prevents`: as in prevention.
pub(crate) fn play(
    spec: &'static ProtocolSpec,
    transport: Transport,
    conversation: Conversation<'_>,
    cuts: &[usize],
    prevents: bool,
) -> ConversationResult {
    let mut driver = Driver::new(spec, transport);
    driver.prevents = prevents;
    let mut cuts = cuts.iter().copied().cycle();
    for (direction, piece) in conversation {
        let mut rest = *piece;
        while let Some(cut) = cuts.next().filter(|_| transport == Transport::Tcp) {
            let Some((head, tail)) = rest.split_at_checked(cut.max(1)) else { break };
            driver.send(*direction, head);
            rest = tail;
        }
        driver.send(*direction, rest);
    }
    driver.finish();
    driver.outcome()
}

/// Checks that cuts do not change the result.
pub(crate) fn assert_cuts_do_not_matter(
    spec: &'static ProtocolSpec,
    transport: Transport,
    conversation: Conversation<'_>,
    cuts: &[usize],
) {
    for prevents in [false, true] {
        let whole = play(spec, transport, conversation, &[], prevents);
        let cut = play(spec, transport, conversation, cuts, prevents);
        assert_eq!(whole, cut, "cut at {cuts:?}, in prevention: {prevents}");
    }
}

/// Checks that the probe, given growing prefixes of data that it accepts, never refuses one.
pub(crate) fn assert_probe_is_steady(
    spec: &ProtocolSpec,
    transport: Transport,
    conversation: Conversation<'_>,
) {
    use crate::protocol::Probe;
    let (Some(probe), Some((direction, first))) = (spec.probe, conversation.first()) else { return };
    let full = probe(transport, *direction, first);
    assert!(matches!(full, Probe::Yes(_)), "{full:?}: the seed's first piece must be accepted");
    if transport == Transport::Tcp {
        for end in 0..first.len() {
            let seen = probe(transport, *direction, first.get(..end).unwrap_or_default());
            assert!(seen == full || seen == Probe::More, "{seen:?} after {end} bytes");
        }
    }
}

/// Checks that a flood of one repeated piece holds bounded memory.
pub(crate) fn assert_flood_is_bounded(
    spec: &'static ProtocolSpec,
    transport: Transport,
    conversation: Conversation<'_>,
    most_slots: usize,
    most_bytes: usize,
) {
    let mut freed = Driver::new(spec, transport);
    for _ in 0..200 {
        for (direction, piece) in conversation {
            freed.send(*direction, piece);
            freed.free_complete();
        }
        let (slots, bytes) = freed.held();
        assert!(slots <= most_slots && bytes <= most_bytes, "{slots} transactions, {bytes} bytes held");
    }
}

/// Makes a module of property tests for a protocol; see the module's page.
///
/// `protocol_suite!(tcp, &SPEC, Transport::Tcp, seeds())` where `seeds()` gives a
/// `Vec<Seed>` of valid conversations.
macro_rules! protocol_suite {
    ($name:ident, $spec:expr, $transport:expr, $seeds:expr) => {
        mod $name {
            use super::*;
            use $crate::suite::{self, Seed};
            use ::bartizan_base::Direction;
            use ::proptest::prelude::*;

            fn borrow(owned: &Seed) -> Vec<(Direction, &[u8])> {
                owned.iter().map(|(d, b)| (*d, b.as_slice())).collect()
            }

            fn direction() -> impl Strategy<Value = Direction> {
                prop_oneof![Just(Direction::ToServer), Just(Direction::ToClient)]
            }

            fn seed() -> impl Strategy<Value = Seed> {
                prop::sample::select($seeds)
            }

            fn cuts() -> impl Strategy<Value = Vec<usize>> {
                prop_oneof![Just(vec![1]), prop::collection::vec(1usize..40, 1..20)]
            }

            /// A seed with some bytes changed, dropped or doubled.
            fn damaged() -> impl Strategy<Value = Seed> {
                let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..3u8);
                (seed(), prop::collection::vec(change, 1..6)).prop_map(|(mut owned, changes)| {
                    for (piece, place, value, kind) in changes {
                        let piece = piece.index(owned.len());
                        let bytes = &mut owned[piece].1;
                        if bytes.is_empty() {
                            continue;
                        }
                        let at = place.index(bytes.len());
                        match kind {
                            0 => bytes[at] = value,
                            1 => drop(bytes.remove(at)),
                            _ => bytes.insert(at, value),
                        }
                    }
                    owned
                })
            }

            #[test]
            fn seeds_give_transactions() {
                for owned in $seeds {
                    let outcome = suite::play($spec, $transport, &borrow(&owned), &[], false);
                    assert!(!outcome.failed && !outcome.transactions.is_empty(), "{outcome:?}");
                }
            }

            #[test]
            fn the_probe_is_steady() {
                for owned in $seeds {
                    suite::assert_probe_is_steady($spec, $transport, &borrow(&owned));
                }
            }

            #[test]
            fn a_flood_is_bounded() {
                for owned in $seeds {
                    suite::assert_flood_is_bounded($spec, $transport, &borrow(&owned), 1000, 1 << 20);
                }
            }

            #[test]
            fn every_single_cut_gives_the_same() {
                for owned in $seeds {
                    let longest = owned.iter().map(|(_, b)| b.len()).max().unwrap_or(0);
                    for cut in 1..longest.min(200) {
                        suite::assert_cuts_do_not_matter($spec, $transport, &borrow(&owned), &[cut, usize::MAX]);
                    }
                }
            }

            proptest! {
                #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

                #[test]
                fn cuts_do_not_matter(owned in seed(), cuts in cuts()) {
                    suite::assert_cuts_do_not_matter($spec, $transport, &borrow(&owned), &cuts);
                }

                #[test]
                fn arbitrary_bytes_never_panic(
                    pieces in prop::collection::vec(
                        (direction(), prop::collection::vec(any::<u8>(), 0..300)), 0..8),
                    cuts in cuts(),
                ) {
                    suite::play($spec, $transport, &borrow(&pieces), &[], false);
                    suite::play($spec, $transport, &borrow(&pieces), &cuts, true);
                    if let Some(probe) = $spec.probe {
                        for (direction, bytes) in &pieces {
                            probe($transport, *direction, bytes);
                        }
                    }
                }

                #[test]
                fn damaged_seeds_never_panic(owned in damaged(), cuts in cuts()) {
                    suite::play($spec, $transport, &borrow(&owned), &[], true);
                    suite::play($spec, $transport, &borrow(&owned), &cuts, true);
                }

                #[test]
                fn gaps_are_survived(
                    owned in seed(),
                    places in prop::collection::vec((0usize..400, 1usize..60), 1..4),
                    cuts in cuts(),
                ) {
                    let mut driver = suite::Driver::new($spec, $transport);
                    let mut at = 0usize;
                    let mut cuts = cuts.iter().copied().cycle();
                    for (direction, bytes) in &owned {
                        let mut rest = bytes.as_slice();
                        while !rest.is_empty() {
                            let hole = places.iter().find(|(p, l)| at >= *p && at < p + l);
                            let length = match hole {
                                Some((place, length)) => place + length - at,
                                None if $transport == Transport::Udp => rest.len(),
                                None => cuts.next().unwrap_or(1),
                            };
                            let (head, tail) = rest.split_at(length.clamp(1, rest.len()));
                            match hole {
                                Some(_) => driver.lose(*direction, head.len() as u64),
                                None => driver.send(*direction, head),
                            }
                            at += head.len();
                            rest = tail;
                        }
                    }
                    driver.finish();
                    driver.outcome();
                }
            }
        }
    };
}
pub(crate) use protocol_suite;
