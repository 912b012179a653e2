// SPDX-License-Identifier: Apache-2.0
//! Defines a protocol: a table entry ([`ProtocolSpec`]) and a parser per flow ([`Parser`]).
//!
//! A protocol is one file in `protocols/` and one line in `protocols/mod.rs`. Parsers are state machines
//! without I/O, clock or globals: bytes come in, transactions come out.

use crate::event::EventCode;
pub use crate::transaction::NumberId;
use crate::transaction::{Bodies, Transaction, TxId};
use crate::worklist::Worklist;
use bartizan_base::limit::LimitSpec;
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, Timestamp};
use bartizan_events::config::AlertOptions;

/// A protocol's number: its position in [`crate::protocols::TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolId(pub u8);

/// The transport that carries a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// A literal at the beginning of a direction's data that identifies the protocol.
#[derive(Clone, Copy, Debug)]
pub struct DetectionPattern {
    /// Transport on which the literal is searched.
    pub transport: Transport,
    /// Direction whose first bytes contain the literal.
    pub direction: Direction,
    /// The bytes.
    pub bytes: &'static [u8],
    /// Whether letter case is ignored.
    pub nocase: bool,
    /// Offset at which the search starts.
    pub offset: u16,
    /// Number of bytes, from the beginning, that must contain the literal.
    pub depth: u16,
}

/// A port at which the probe of the protocol runs.
#[derive(Clone, Copy, Debug)]
pub struct ProbePort {
    /// Transport.
    pub transport: Transport,
    /// The server's port; 0 matches any port.
    pub port: u16,
    /// Number of bytes that the probe needs.
    pub min_depth: u16,
    /// Number of bytes after which the probe runs no longer.
    pub max_depth: u16,
}

/// The answer of a probe to a direction's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The bytes are of this protocol and typical of the given direction. If that differs from the flow's,
    /// the flow was picked up with its directions exchanged.
    Yes(Direction),
    /// Certainly not.
    No,
    /// More bytes are needed.
    More,
}

/// Inspects the first bytes of a direction.
pub type ProbeFn = fn(Transport, Direction, &[u8]) -> Probe;

/// The number and growth of a buffer's values, which decide when they may be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// One value per transaction (or none).
    Single,
    /// Several values per transaction, index 0, 1, ...; rules match if one of them does.
    Multi,
    /// A growing value (a body, a file): each call gives the window that is held, with its absolute offset.
    Streaming,
    /// Several growing values, index 0, 1, ... (files).
    Files,
}

impl BufferKind {
    /// Whether a value grows while it is inspected.
    #[must_use]
    pub const fn grows(self) -> bool {
        matches!(self, BufferKind::Streaming | BufferKind::Files)
    }

    /// Whether there can be several values.
    #[must_use]
    pub const fn is_multi(self) -> bool {
        matches!(self, BufferKind::Multi | BufferKind::Files)
    }
}

/// The form that all values of a buffer have. A content of a rule that no such value can have is refused when
/// the rule loads, as in Suricata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// Any bytes.
    Any,
    /// In lower case. The buffer with `.raw` at the end of its name has the value as it was sent.
    LowerCase,
    /// A word, without blanks around it.
    Word,
    /// A digest in lower case, of this many characters.
    Digest {
        /// Characters.
        length: usize,
        /// Colons between its bytes.
        colons: usize,
    },
    /// A number in upper case, with colons between its bytes.
    Number,
}

/// A named piece of a transaction that rules inspect.
#[derive(Clone, Copy, Debug)]
pub struct BufferSpec {
    /// Number within the protocol, passed to [`Transaction::buffer`].
    pub id: u16,
    /// Name of the rule keyword, `http.uri`. Several protocols may offer a buffer of one name.
    pub name: &'static str,
    /// Directions in which the buffer is inspected; both, if both have it (`file.data`, `http.header`).
    pub directions: PerDirection<bool>,
    /// Progress in that direction at which the value is complete (see [`Transaction::progress`]).
    pub ready: u8,
    /// Progress from which an incomplete value is inspected: a match is final, a value without a match is
    /// inspected again. Equals `ready` if there is nothing to inspect before.
    pub early: u8,
    /// The state of the buffer, as hooks of rules name it: mostly `ready`, or the state during which the
    /// value is collected.
    pub state: u8,
    /// Number and growth of the values.
    pub kind: BufferKind,
    /// Another buffer with the same value in transactions to the client: literals of both are searched
    /// together.
    pub to_client_as: Option<&'static str>,
    /// The setting of the protocol on which its value is computed. `auto`, and no value, mean: if a rule
    /// reads the buffer.
    pub computed_by: Option<&'static str>,
    /// Form of the values.
    pub form: ValueForm,
}

/// Constructor for table entries.
#[must_use]
pub const fn buffer(
    id: u16,
    name: &'static str,
    to_server: bool,
    to_client: bool,
    ready: u8,
    kind: BufferKind,
) -> BufferSpec {
    let directions = PerDirection { to_server, to_client };
    BufferSpec {
        id,
        name,
        directions,
        ready,
        early: ready,
        state: ready,
        kind,
        to_client_as: None,
        computed_by: None,
        form: ValueForm::Any,
    }
}

impl BufferSpec {
    /// This buffer with another state.
    #[must_use]
    pub const fn of_state(self, state: u8) -> Self {
        BufferSpec { state, ..self }
    }

    /// This buffer, inspected from this progress on.
    #[must_use]
    pub const fn from(self, early: u8) -> Self {
        BufferSpec { early, ..self }
    }

    /// This buffer, whose single value to the client always equals that of another buffer of the protocol.
    #[must_use]
    pub const fn to_client_as(self, other: &'static str) -> Self {
        BufferSpec { to_client_as: Some(other), ..self }
    }

    /// This buffer, computed on a setting of the protocol.
    #[must_use]
    pub const fn computed_by(self, setting: &'static str) -> Self {
        BufferSpec { computed_by: Some(setting), ..self }
    }

    /// This buffer, with values of a form.
    #[must_use]
    pub const fn of_form(self, form: ValueForm) -> Self {
        BufferSpec { form, ..self }
    }
}

/// A number of a transaction that keywords compare.
#[derive(Clone, Copy, Debug)]
pub struct NumberSpec {
    /// Identifier within the protocol, passed to [`Transaction::number`].
    pub id: NumberId,
    /// Name by which keywords find the number when rules load. A name belongs to one protocol.
    pub name: &'static str,
}

/// The side of a flow that is the source of a protocol's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSource {
    /// The client.
    Client,
    /// In records of the latest version the sender of the message; in older ones the client.
    Message,
    /// The sender of the packet at which the record is written, mostly the one that acknowledges the message.
    Packet,
}

/// The parts of a protocol's records and alerts that differ between protocols.
#[derive(Clone, Copy, Debug)]
pub struct RecordSpec {
    /// Records contain the transaction's number (`tx_id`), as Suricata's of this protocol do.
    pub tx_id: bool,
    /// An alert on a transaction contains its progress (`ts_progress`, `tc_progress`).
    pub progress: bool,
    /// Selects the options of an alert that enable bodies of messages in it (`http-body`); `None`: alerts
    /// contain none.
    pub bodies: Option<fn(&AlertOptions) -> Bodies>,
    /// Records contain the address for which a proxy forwards (`xff`), if the output's options enable it.
    pub forwarded: bool,
    /// Source of the records.
    pub source: RecordSource,
    /// Latest version of the records, the default of the option `version`; 0 if there is only one form.
    pub version: u8,
    /// Environment variable that replaces this default.
    pub version_variable: Option<&'static str>,
    /// Type in the list of an output that includes these records; `None`: their own type.
    pub listed_as: Option<&'static str>,
    /// Records name the protocol that the flow had before a switch (`from_proto`).
    pub from_proto: bool,
}

impl RecordSpec {
    /// Records without peculiarities; alerts contain the progress.
    pub const PLAIN: RecordSpec = RecordSpec {
        tx_id: false,
        progress: true,
        bodies: None,
        forwarded: false,
        source: RecordSource::Client,
        version: 0,
        version_variable: None,
        listed_as: None,
        from_proto: false,
    };
}

/// Names of the counters of the memory that all parsers of a protocol hold.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCounters {
    /// Bytes held (`http.memuse`).
    pub used: &'static str,
    /// Memory limit (`http.memcap`).
    pub limit: &'static str,
}

/// A protocol's counters in `stats`, beside those of every protocol.
#[derive(Clone, Copy, Debug)]
pub struct CounterSpec {
    /// Names of `app_layer` counters contain the transport (`dns_udp`), even if this program parses only one.
    pub by_transport: bool,
    /// Counters of the parsers' memory, as Suricata has them.
    pub memory: Option<MemoryCounters>,
    /// Only flows have counters: Suricata, too, recognises the protocol and parses nothing.
    pub flows_only: bool,
}

impl CounterSpec {
    /// The counters of every protocol.
    pub const PLAIN: CounterSpec = CounterSpec { by_transport: false, memory: None, flows_only: false };
}

/// All constant properties of a protocol. Other parts of the program read them and compare no names.
pub struct ProtocolSpec {
    /// Name in rules, in settings (`app-layer.protocols.NAME`) and as prefix of its events: `http`.
    pub name: &'static str,
    /// Other names that rules may use (`ssl` for TLS).
    pub aliases: &'static [&'static str],
    /// Name in rules that stands for all protocols that declare it (`http` for both versions).
    pub family: Option<&'static str>,
    /// Names of protocols whose rules apply here, too, since messages of this protocol carry their messages
    /// (`dcerpc` in pipes of SMB).
    pub carries: Option<&'static [&'static str]>,
    /// Name that means this protocol and no other of its family, in hooks and in settings of firewall mode
    /// (`http1`).
    pub exact_name: &'static str,
    /// Name in EVE's `app_proto`.
    pub eve_name: &'static str,
    /// Name of the EVE event type and of the object with a transaction's record (`http`, `dns`, `tls`);
    /// `None` for protocols without records.
    pub eve_type: Option<&'static str>,
    /// Properties of its records and alerts that differ between protocols.
    pub records: RecordSpec,
    /// Counters beside those of every protocol.
    pub counters: CounterSpec,
    /// Transports that can carry the protocol.
    pub transports: &'static [Transport],
    /// First bytes that identify the protocol.
    pub patterns: &'static [DetectionPattern],
    /// Ports at which the probe runs, unless settings name others (`detection-ports.dp`).
    pub ports: &'static [ProbePort],
    /// Inspects first bytes; `None` if patterns alone decide.
    pub probe: Option<ProbeFn>,
    /// Inspects a stream's first bytes, or a datagram, as a lenient receiver does: on any port, or at its own
    /// ports if the protocol has no patterns. Must answer within a bounded number of bytes, and not with
    /// [`Probe::More`] to bytes on which a receiver acts. `None`: patterns and `probe` match all that
    /// receivers accept.
    pub likely: Option<ProbeFn>,
    /// Whether the protocol is enabled if the settings do not mention it (Suricata's built-in default).
    pub enabled_by_default: bool,
    /// Progress value of a finished transaction, by direction.
    pub complete: PerDirection<u8>,
    /// Names of the progress values, by direction, for hooks (`http1:request_headers`) and `explain`.
    pub states: PerDirection<&'static [&'static str]>,
    /// Buffers that rules can inspect.
    pub buffers: &'static [BufferSpec],
    /// Numbers that keywords compare.
    pub numbers: &'static [NumberSpec],
    /// The number that is 1 once a direction is encrypted, so that rules cannot inspect its later bytes.
    pub encrypted: Option<NumberId>,
    /// Names of its frames ([`crate::frames`]), the stream's own first.
    pub frames: &'static [&'static str],
    /// Names of its events without prefix, by [`crate::event::EventCode`] (`app-layer-event:http.NAME`).
    pub events: &'static [&'static str],
    /// Event of a flow that agreed to switch to this protocol and then used another one.
    pub absent: EventCode,
    /// Bytes that come together with a message's end belong to that message unless they begin another one: a
    /// cut between them changes the result of parsing.
    pub has_trailing_bytes: bool,
    /// Bounds of the protocol, for docs/limits.md.
    pub limits: &'static [LimitSpec],
    /// Reads the protocol's section of the settings (keys without the prefix `app-layer.protocols.NAME.`) and
    /// makes the factory of its parsers.
    pub configure: fn(&SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError>,
}

impl ProtocolSpec {
    /// The identifier of a number, by its name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<NumberId> {
        self.numbers.iter().find(|number| number.name == name).map(|number| number.id)
    }

    /// Whether its transactions have all buffers of a protocol that it carries, and so its numbers.
    #[must_use]
    pub fn carries_all_of(&self, other: &ProtocolSpec) -> bool {
        let has = |name: &str| self.buffers.iter().any(|buffer| buffer.name == name);
        let carried = self.carries.unwrap_or_default();
        carried.contains(&other.name) && other.buffers.iter().all(|buffer| has(buffer.name))
    }

    /// Whether transactions are parsed. A protocol that is only recognised has none, and so no states.
    #[must_use]
    pub const fn is_parsed(&self) -> bool {
        !self.states.to_server.is_empty()
    }

    /// Whether a name in rules means this protocol: its name, an alias, the name of its family or of a
    /// protocol that it carries.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let carried = self.carries.unwrap_or_default();
        self.name == name
            || self.aliases.contains(&name)
            || self.family == Some(name)
            || carried.contains(&name)
    }
}

/// Makes parsers; holds the settings that all parsers of the protocol share.
pub trait ParserFactory: Send + Sync {
    /// Makes a parser for a new flow.
    fn make(&self) -> Box<dyn Parser>;

    /// Makes a parser for a flow that was expected; `context`: the data of the flow that announced it
    /// ([`crate::expectation::Expectation::context`]).
    fn make_expected(&self, context: &[u8]) -> Box<dyn Parser> {
        let _ = context;
        self.make()
    }
}

/// A piece of a direction's data.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The bytes: for a stream, all that was not consumed yet; for UDP, one datagram.
    pub data: &'a [u8],
    /// Offset of the first byte in the direction's stream (0 for datagrams).
    pub offset: u64,
    /// Whether no more data will arrive in this direction.
    pub eof: bool,
}

/// The parts of the flow that a parser may use while it parses.
pub struct ParseContext<'c> {
    /// Packet clock.
    pub now: Timestamp,
    /// The server's port.
    pub server_port: u16,
    /// The client's port.
    pub client_port: u16,
    /// Transport of the flow.
    pub transport: Transport,
    /// Settings of file tracking.
    pub files: &'c crate::file::FileSettings,
    /// The data has not reached its receiver yet ([`crate::flow::FlowInfo::prevents`]): data on which a
    /// lenient receiver acts is parsed as that receiver reads it, even if Suricata would parse nothing.
    pub prevents: bool,
    /// Receives events that belong to no transaction ([`crate::event::Events::set`]).
    pub events: &'c mut crate::event::Events,
}

/// The result of a call of a parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of the input was consumed.
    Done,
    /// `consumed` bytes were consumed; the parser needs to be called again when at least `needed` bytes
    /// beyond those have come (it gets the unconsumed bytes again, together with later ones).
    Incomplete {
        /// Number of bytes consumed.
        consumed: usize,
        /// Number of bytes needed beyond the consumed ones, at least 1.
        needed: usize,
    },
    /// The data is not of this protocol, or broken beyond repair: the parser gets no more data of the stream.
    /// A datagram that fails does not affect the next one.
    Error,
    /// Prevention cannot know how the receiver reads the data: the rest of the flow is refused, also over
    /// UDP.
    Refuse,
    /// From `consumed` on the direction's data belongs to another protocol (STARTTLS, HTTP CONNECT, upgrade).
    Switch {
        /// Number of bytes consumed.
        consumed: usize,
        /// Name of the expected protocol; `None`: detection starts again.
        to: Option<&'static str>,
    },
    /// The rest of the flow needs no parsing (encrypted from here on, `encryption-handling`).
    Stop {
        /// No function needs to see the rest either: the flow may be bypassed.
        bypass: bool,
    },
}

/// One flow's parser.
///
/// The shared property suite checks these contracts for each protocol: a parser never panics, consumes no
/// more than its input, gives the same transactions however the input is split, and holds bounded memory.
pub trait Parser: Send {
    /// Parses data of one direction.
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress;

    /// Handles `missing` bytes of a direction that will never come. `false`: the parser cannot continue in
    /// this direction.
    fn gap(&mut self, direction: Direction, missing: u64, context: &mut ParseContext<'_>) -> bool;

    /// Ids of the transactions held: `first..next`. Some in between may be freed ([`Parser::tx`] is then
    /// `None`). A parser without transactions leaves this method and the next ones out.
    fn tx_range(&self) -> core::ops::Range<TxId> {
        0..0
    }

    /// A transaction.
    fn tx(&self, id: TxId) -> Option<&dyn Transaction> {
        let _ = id;
        None
    }

    /// A transaction, for changes of its marks.
    fn tx_mut(&mut self, id: TxId) -> Option<&mut dyn Transaction> {
        let _ = id;
        None
    }

    /// Handles a rule's request that a transaction gets no record. Parsers that keep related messages in
    /// several transactions extend it to those.
    fn silence(&mut self, id: TxId) {
        if let Some(tx) = self.tx_mut(id) {
            tx.common_mut().silent = true;
        }
    }

    /// Frees a transaction that was inspected and recorded.
    fn free_tx(&mut self, id: TxId) {
        let _ = id;
    }

    /// Transactions that were begun or changed since the last inspection. Parsers add every transaction that
    /// they begin or change ([`crate::transaction::TxList`] does so for them).
    fn worklist(&self) -> &Worklist;

    /// The worklist, to add and to take transactions.
    fn worklist_mut(&mut self) -> &mut Worklist;

    /// Whether the raw stream should be inspected after the last parsed data of a direction, however little
    /// that is.
    fn wants_raw(&mut self, direction: Direction) -> bool {
        let _ = direction;
        true
    }

    /// Whether all later data of both directions is encrypted and cannot be parsed.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// The parser's notes of protocol frames, if it has any.
    fn frames(&mut self) -> Option<&mut crate::frames::Notes> {
        None
    }

    /// The connections that the parser expects, to be taken; `None` for protocols without such connections.
    fn expectations(&mut self) -> Option<&mut Vec<crate::expectation::Expectation>> {
        None
    }

    /// Data for the parser of the protocol to which the flow switches ([`ParserFactory::make_expected`]).
    fn switch_context(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Stops a direction (depth, gap, error): no more of its data is handed in, while the other direction
    /// continues. Its open transactions count as ended, and so do later ones.
    fn disrupt(&mut self, direction: Direction, context: &mut ParseContext<'_>) {
        let _ = context;
        self.worklist_mut().disrupt(direction);
        for id in self.tx_range() {
            if let Some(tx) = self.tx_mut(id) {
                tx.common_mut().ended[direction] = true;
                self.worklist_mut().changed(id);
            }
        }
    }

    /// Records that this link sees no packets of a direction while it sees the other side: transactions count
    /// as ended in that direction.
    fn leave_out(&mut self, direction: Direction) {
        self.worklist_mut().leave_out(direction);
        for id in self.tx_range() {
            if let Some(tx) = self.tx_mut(id) {
                tx.common_mut().ended[direction] = true;
                self.worklist_mut().changed(id);
            }
        }
    }

    /// Records that this link sees a direction after all. Its next data belongs to no transaction that has
    /// ended.
    fn rejoin(&mut self, direction: Direction) {
        self.worklist_mut().rejoin(direction);
    }

    /// The protocol that the flow has from here on, with this parser, since its messages show more than was
    /// detected.
    fn refined_protocol(&self) -> Option<&'static str> {
        None
    }

    /// Another protocol that a client has begun to speak within this one, without asking the server.
    fn begun(&self) -> Option<ProtocolId> {
        None
    }

    /// Bytes of memory held by the parser and all transactions. Called after each packet: its cost depends on
    /// the changes since the last call ([`crate::transaction::TxList::held`] sums transactions up).
    fn held(&mut self) -> usize;

    /// Ends `direction`: no more data comes, and its open transactions become complete.
    fn end(&mut self, direction: Direction, context: &mut ParseContext<'_>);
}
