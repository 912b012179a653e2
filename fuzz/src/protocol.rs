// SPDX-License-Identifier: Apache-2.0
//! Conversations: the first byte chooses protocol and transport from the table, then pieces with direction
//! and length.

use crate::planted::planted;
use crate::take::Take;
use bartizan_applayer::event::Events;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::protocol::{
    BufferKind, Input, ParseContext, Parser, Progress, ProtocolSpec, Transport,
};
use bartizan_applayer::protocols::TABLE;
use bartizan_applayer::transaction::{BufferQuery, LogOptions};
use bartizan_base::{Direction, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;

/// Protocols with each of their transports.
pub fn choices() -> Vec<(&'static ProtocolSpec, Transport)> {
    TABLE.iter().flat_map(|spec| spec.transports.iter().map(move |transport| (*spec, *transport))).collect()
}

/// The announcement of a flow, for protocols whose flows other flows announce: FTP's download of a file.
const ANNOUNCED: &[u8] = &[1, 0, b'f'];

/// A piece of a conversation: direction, bytes, bytes lost before it.
pub type Piece<'a> = (Direction, &'a [u8], u64);

/// Reads a conversation.
pub fn pieces<'a>(take: &mut Take<'a>) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    while !take.is_empty() {
        let (kind, len) = (take.byte(), take.short());
        let direction = if kind & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
        let lost = if kind & 0xf0 == 0xf0 { u64::from(kind & 0x0e) } else { 0 };
        pieces.push((direction, take.bytes(usize::from(len)), lost));
    }
    pieces
}

/// A flow for one parser, by the contract of [`Parser`].
pub struct Driver {
    spec: &'static ProtocolSpec,
    transport: Transport,
    parser: Box<dyn Parser>,
    files: FileSettings,
    waiting: [Vec<u8>; 2],
    needed: [usize; 2],
    offset: [u64; 2],
    stopped: [bool; 2],
    ended: [bool; 2],
    events: Events,
    /// The parser works as in prevention.
    pub prevents: bool,
}

impl Driver {
    /// A flow with default settings.
    pub fn new(spec: &'static ProtocolSpec, transport: Transport) -> Self {
        let factory = (spec.configure)(&SettingsMap::new()).expect("a protocol must do without settings");
        Driver {
            spec,
            transport,
            parser: factory.make_expected(ANNOUNCED),
            files: FileSettings::default(),
            waiting: [Vec::new(), Vec::new()],
            needed: [0; 2],
            offset: [0; 2],
            stopped: [false; 2],
            ended: [false; 2],
            events: Events::default(),
            prevents: false,
        }
    }

    /// Calls the parser with the flow's context.
    fn call<R>(&mut self, call: impl FnOnce(&mut dyn Parser, &mut ParseContext<'_>) -> R) -> R {
        let mut context = ParseContext {
            now: Timestamp::ZERO,
            server_port: self.spec.ports.first().map_or(1, |p| p.port),
            client_port: 40_000,
            transport: self.transport,
            files: &self.files,
            prevents: self.prevents,
            events: &mut self.events,
        };
        call(&mut *self.parser, &mut context)
    }

    /// Passes data to the parser when enough has come.
    pub fn send(&mut self, direction: Direction, data: &[u8]) {
        let d = direction as usize;
        if !self.stopped[d] && !data.is_empty() {
            self.waiting[d].extend_from_slice(data);
            if self.waiting[d].len() >= self.needed[d] {
                self.parse(direction, false);
            }
        }
    }

    /// The parser.
    pub fn parser(&mut self) -> &mut dyn Parser {
        self.parser.as_mut()
    }

    fn parse(&mut self, direction: Direction, eof: bool) {
        let d = direction as usize;
        let data = std::mem::take(&mut self.waiting[d]);
        let input = Input { data: &data, offset: self.offset[d], eof };
        let consumed = match self.call(|parser, context| parser.parse(direction, input, context)) {
            Progress::Done => data.len(),
            Progress::Incomplete { consumed, needed } => {
                assert!(consumed <= data.len(), "{}: consumed {consumed} of {}", self.spec.name, data.len());
                assert!(needed > 0, "{}: needs nothing and is not done", self.spec.name);
                self.needed[d] = needed;
                consumed
            }
            Progress::Error if self.transport == Transport::Udp => data.len(),
            Progress::Error | Progress::Refuse | Progress::Switch { .. } | Progress::Stop { .. } => {
                self.stopped = [true; 2];
                data.len()
            }
        };
        if consumed == data.len() {
            self.needed[d] = self.needed[d].min(1);
        }
        if self.transport == Transport::Tcp {
            self.offset[d] += consumed as u64;
        }
        self.waiting[d] = data.get(consumed..).unwrap_or_default().to_vec();
    }

    /// Drops `missing` bytes of a direction.
    pub fn lose(&mut self, direction: Direction, missing: u64) {
        let d = direction as usize;
        if missing == 0 || self.stopped[d] || self.transport == Transport::Udp {
            return;
        }
        self.offset[d] += self.waiting[d].len() as u64 + missing;
        self.waiting[d].clear();
        self.needed[d] = 0;
        if !self.call(|parser, context| parser.gap(direction, missing, context)) {
            self.stopped[d] = true;
        }
    }

    /// Ends both directions.
    pub fn finish(&mut self) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.end(direction);
        }
    }

    /// Ends a direction, unless it has ended.
    pub fn end(&mut self, direction: Direction) {
        let d = direction as usize;
        if core::mem::replace(&mut self.ended[d], true) {
            return;
        }
        if self.transport == Transport::Tcp && !self.stopped[d] {
            self.parse(direction, true);
        }
        self.stopped[d] = true;
        self.call(|parser, context| parser.end(direction, context));
    }

    /// Frees the transactions that are complete in both directions, as a flow does after inspection.
    pub fn free_complete(&mut self) {
        for id in self.parser.tx_range() {
            let is_complete = self.parser.tx(id).is_some_and(|tx| {
                [Direction::ToServer, Direction::ToClient]
                    .into_iter()
                    .all(|direction| tx.progress(direction) >= self.spec.complete[direction])
            });
            if is_complete {
                self.parser.free_tx(id);
            }
        }
    }

    /// Bytes of the contents that the files of all transactions show.
    pub fn shown(&self) -> usize {
        let txs = self.parser.tx_range().filter_map(|id| self.parser.tx(id));
        let files = txs.flat_map(|tx| [Direction::ToServer, Direction::ToClient].map(|d| tx.files_of(d)));
        files.flatten().map(|file| file.content().0.len()).sum()
    }

    /// All visible results of the conversation, as text.
    pub fn outcome(&self) -> Vec<String> {
        let mut seen = vec![format!("{:?}", self.events.as_slice())];
        seen.extend(look(self.spec, self.parser.as_ref()));
        seen
    }
}

/// All visible properties of a parser's transactions, as text.
pub fn look(spec: &ProtocolSpec, parser: &dyn Parser) -> Vec<String> {
    let options = LogOptions { extended: true, version: spec.records.version, ..LogOptions::default() };
    let mut seen = Vec::new();
    let mut scratch = Vec::new();
    for tx in parser.tx_range().filter_map(|id| parser.tx(id)) {
        let mut json = JsonWriter::new();
        json.begin_object();
        tx.log(&mut json, &options, false);
        json.end_object();
        seen.push(String::from_utf8(json.bytes().to_vec()).expect("records are UTF-8"));
        seen.push(format!("{:?}", tx.common().events.as_slice()));
        for direction in [Direction::ToServer, Direction::ToClient] {
            seen.push(format!("{direction:?} {}", tx.progress(direction)));
            for buffer in spec.buffers.iter().filter(|b| b.directions[direction]) {
                for index in 0..1000 {
                    scratch.clear();
                    let query = BufferQuery { id: buffer.id, direction, index };
                    let Some(view) = tx.buffer(query, &mut scratch) else { break };
                    seen.push(format!("{} {} {:?}", buffer.name, view.offset, view.data));
                    if buffer.kind != BufferKind::Multi {
                        break;
                    }
                }
            }
            for file in tx.files_of(direction) {
                seen.push(format!("file {:?} {} {:?}", file.name, file.size, file.state));
            }
        }
    }
    seen
}

/// Sends the conversation, passively and as in prevention, and reads all results.
pub fn run(data: &[u8]) {
    let choices = choices();
    let mut take = Take(data);
    let (spec, transport) = choices[usize::from(take.byte()) % choices.len()];
    let pieces = pieces(&mut take);
    if let (Some(probe), Some((direction, first, _))) = (spec.probe, pieces.first()) {
        let _ = probe(transport, *direction, first);
    }
    if let Some(probe) = spec.likely {
        for (direction, first, _) in &pieces {
            let _ = probe(transport, *direction, first);
        }
    }
    let play = |prevents| {
        let mut driver = Driver::new(spec, transport);
        driver.prevents = prevents;
        for (direction, bytes, lost) in &pieces {
            driver.lose(*direction, *lost);
            driver.send(*direction, bytes);
        }
        driver.finish();
        driver.outcome()
    };
    play(true);
    let seen = play(false);
    let has = |text: &str| seen.iter().any(|line| line.contains(text));
    planted(spec.name == "http" && has("\"status\":2") && !has("\"status\":200"));
}
