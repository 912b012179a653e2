// SPDX-License-Identifier: Apache-2.0
//! What a protocol is: a table entry ([`ProtocolSpec`]) and a parser per flow ([`Parser`]).
//!
//! A protocol is one file in `protocols/` and one line in `protocols/mod.rs`. Parsers are state machines
//! without I/O, clock or globals: bytes come in, transactions come out.

use crate::event::EventCode;
pub use crate::transaction::NumberId;
use crate::transaction::{Transaction, TxId};
use crate::worklist::Worklist;
use bartizan_base::limit::Limit;
use bartizan_base::{Direction, PerDirection, SettingError, Settings, Timestamp};

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

/// A literal at the beginning of a direction's data that makes the protocol known.
#[derive(Clone, Copy, Debug)]
pub struct DetectionPattern {
    /// Transport it is looked for on.
    pub transport: Transport,
    /// Direction whose first bytes hold it.
    pub direction: Direction,
    /// The bytes.
    pub bytes: &'static [u8],
    /// Whether letter case does not matter.
    pub nocase: bool,
    /// Offset at which the search starts.
    pub offset: u16,
    /// Number of bytes, from the beginning, in which it must lie.
    pub depth: u16,
}

/// A port that makes the probe of the protocol be asked.
#[derive(Clone, Copy, Debug)]
pub struct ProbePort {
    /// Transport.
    pub transport: Transport,
    /// The server's port; 0 stands for any port.
    pub port: u16,
    /// Bytes needed before the probe is asked.
    pub min_depth: u16,
    /// Bytes after which the probe is no longer asked.
    pub max_depth: u16,
}

/// What a probe says of a direction's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// This protocol. The direction is the one that the bytes *show*: when it differs from the flow's, the
    /// flow was picked up the wrong way round.
    Yes(Direction),
    /// Certainly not.
    No,
    /// More bytes are needed.
    More,
}

/// Looks at the first bytes of a direction.
pub type ProbeFn = fn(Transport, Direction, &[u8]) -> Probe;

/// When a buffer is complete and may be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// One value per transaction (or none).
    Single,
    /// Several values per transaction, index 0, 1, ...; rules match if one of them does.
    Multi,
    /// A growing value (a body, a file): each call gives the window that is there, with its absolute offset.
    Streaming,
    /// Several growing values, index 0, 1, ... (files).
    Files,
}

impl BufferKind {
    /// Whether a value grows while it is looked at.
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

/// A named piece of a transaction that rules look at.
#[derive(Clone, Copy, Debug)]
pub struct BufferSpec {
    /// Number within the protocol, handed to [`Transaction::buffer`].
    pub id: u16,
    /// Name of the rule keyword, `http.uri`. Several protocols may offer a buffer of one name.
    pub name: &'static str,
    /// Direction in which it is inspected; both, if both have it (`file.data`, `http.header`).
    pub directions: PerDirection<bool>,
    /// Progress in that direction at which it is complete (see [`Transaction::progress`]).
    pub ready: u8,
    /// Progress from which it is looked at as far as it is there: what matches then has matched, what does
    /// not is looked at again. `ready`, where nothing is there before.
    pub early: u8,
    /// The state that it belongs to, as hooks of rules name it: mostly `ready`, or the one in whose course it
    /// comes together.
    pub state: u8,
    /// How many values and how they grow.
    pub kind: BufferKind,
    /// Name of the buffer of which it is another name in transactions to the client: literals of both are
    /// searched for together.
    pub to_client_as: Option<&'static str>,
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
    BufferSpec { id, name, directions, ready, early: ready, state: ready, kind, to_client_as: None }
}

impl BufferSpec {
    /// The same, of another state.
    #[must_use]
    pub const fn of_state(self, state: u8) -> Self {
        BufferSpec { state, ..self }
    }

    /// The same, looked at from this progress on.
    #[must_use]
    pub const fn from(self, early: u8) -> Self {
        BufferSpec { early, ..self }
    }

    /// The same; to the client its one value is that of another buffer of the protocol, at every time.
    #[must_use]
    pub const fn to_client_as(self, other: &'static str) -> Self {
        BufferSpec { to_client_as: Some(other), ..self }
    }
}

/// A number of a transaction that keywords compare.
#[derive(Clone, Copy, Debug)]
pub struct NumberSpec {
    /// Identifier within the protocol, handed to [`Transaction::number`].
    pub id: NumberId,
    /// Name by which keywords find it when rules load. A name belongs to one protocol.
    pub name: &'static str,
}

/// The parts of a protocol's records and alerts that differ between protocols.
#[derive(Clone, Copy, Debug)]
pub struct RecordSpec {
    /// Records have the transaction's number (`tx_id`), as Suricata's of this protocol do.
    pub tx_id: bool,
    /// An alert on a transaction has its progress (`ts_progress`, `tc_progress`).
    pub progress: bool,
    /// An alert has the bodies of messages where its options ask for them (`http-body`).
    pub bodies: bool,
    /// Records have the address that a proxy forwards for (`xff`), where the output's options ask for it.
    pub forwarded: bool,
    /// Records of the latest version have the sender of the message as their source.
    pub by_message: bool,
    /// Latest version of the records, the default of the option `version`; 0 where there is one form only.
    pub version: u8,
    /// Environment variable that replaces this default.
    pub version_variable: Option<&'static str>,
}

impl RecordSpec {
    /// Records without peculiarities; alerts have the progress.
    pub const PLAIN: RecordSpec = RecordSpec {
        tx_id: false,
        progress: true,
        bodies: false,
        forwarded: false,
        by_message: false,
        version: 0,
        version_variable: None,
    };
}

/// Names of the counters of the memory that all parsers of a protocol hold.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCounters {
    /// Bytes held (`http.memuse`).
    pub used: &'static str,
    /// The bound (`http.memcap`).
    pub limit: &'static str,
}

/// A protocol's counters in `stats`, beside those that each protocol has.
#[derive(Clone, Copy, Debug)]
pub struct CounterSpec {
    /// `app_layer` counters have the transport in their names (`dns_udp`), also where this program parses one
    /// only.
    pub by_transport: bool,
    /// Counters of its memory, as Suricata has them.
    pub memory: Option<MemoryCounters>,
}

impl CounterSpec {
    /// The counters that each protocol has.
    pub const PLAIN: CounterSpec = CounterSpec { by_transport: false, memory: None };
}

/// All that is fixed about a protocol. Other parts of the program read it and compare no names.
pub struct ProtocolSpec {
    /// Name in rules, in settings (`app-layer.protocols.NAME`) and as prefix of its events: `http`.
    pub name: &'static str,
    /// Other names that rules may use (`ssl` for TLS).
    pub aliases: &'static [&'static str],
    /// Name in rules that stands for all protocols that declare it (`http` for both versions).
    pub family: Option<&'static str>,
    /// Name that means this protocol and none of its family: in hooks and in settings of firewall mode
    /// (`http1`).
    pub exact_name: &'static str,
    /// Name in EVE's `app_proto`.
    pub eve_name: &'static str,
    /// Name of the EVE event type and of the object that holds a transaction's record (`http`, `dns`, `tls`);
    /// `None` for protocols without records.
    pub eve_type: Option<&'static str>,
    /// The parts of its records and alerts that differ between protocols.
    pub records: RecordSpec,
    /// Counters beside those that each protocol has.
    pub counters: CounterSpec,
    /// Transports that can carry it.
    pub transports: &'static [Transport],
    /// First bytes that identify it.
    pub patterns: &'static [DetectionPattern],
    /// Ports at which the probe is asked, unless settings name others (`detection-ports.dp`).
    pub ports: &'static [ProbePort],
    /// Looks at first bytes; `None` when patterns alone decide.
    pub probe: Option<ProbeFn>,
    /// Looks at a stream's first bytes, or at a datagram, as a lenient receiver does: on any port, or where
    /// it has no patterns at its ports; must come to an answer within a bounded number of bytes, and not say
    /// [`Probe::More`] of what a receiver acts upon. `None`: patterns and `probe` know all that receivers
    /// take.
    pub likely: Option<ProbeFn>,
    /// Whether it is on when the settings do not mention it (Suricata's built-in default).
    pub enabled_by_default: bool,
    /// Progress value of a finished transaction, by direction.
    pub complete: PerDirection<u8>,
    /// Names of the progress values, by direction, for hooks (`http1:request_headers`) and `explain`.
    pub states: PerDirection<&'static [&'static str]>,
    /// What rules can look at.
    pub buffers: &'static [BufferSpec],
    /// Numbers that keywords compare.
    pub numbers: &'static [NumberSpec],
    /// The number that is 1 once what a direction sends is encrypted: its bytes tell rules nothing from there
    /// on.
    pub encrypted: Option<NumberId>,
    /// Names of its frames ([`crate::frames`]), the stream's own first.
    pub frames: &'static [&'static str],
    /// Names of its events without prefix, by [`crate::event::EventCode`] (`app-layer-event:http.NAME`).
    pub events: &'static [&'static str],
    /// Event of a flow that agreed to switch to this protocol and speaks another one.
    pub absent: EventCode,
    /// Bytes in one piece with a message's end belong to that message unless they begin another one: a cut
    /// there changes what is parsed.
    pub has_trailing_bytes: bool,
    /// Its bounds, for docs/limits.md.
    pub limits: &'static [Limit],
    /// Reads its section of the settings (keys without the prefix `app-layer.protocols.NAME.`) and makes the
    /// factory that makes a parser per flow.
    pub configure: fn(&Settings) -> Result<Box<dyn ParserFactory>, SettingError>,
}

impl ProtocolSpec {
    /// The identifier of a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<NumberId> {
        self.numbers.iter().find(|number| number.name == name).map(|number| number.id)
    }

    /// Whether its transactions are parsed. A protocol that is recognised only has none, and so no states.
    #[must_use]
    pub const fn is_parsed(&self) -> bool {
        !self.states.to_server.is_empty()
    }

    /// Whether rules may call it so: by its name, another of its names or that of its family.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name) || self.family == Some(name)
    }
}

/// Makes the parser of a flow; holds the settings that all parsers of the protocol share.
pub trait ParserFactory: Send + Sync {
    /// A parser for a new flow.
    fn make(&self) -> Box<dyn Parser>;
}

/// A piece of a direction's data.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The bytes: for a stream, all that was not consumed yet; for UDP, one datagram.
    pub data: &'a [u8],
    /// Offset of the first byte in the direction's stream (0 for datagrams).
    pub offset: u64,
    /// No more data will come in this direction.
    pub eof: bool,
}

/// What a parser may ask of the flow while it parses.
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
    /// What is parsed has not reached its receiver yet ([`crate::flow::FlowInfo::prevents`]): what a lenient
    /// receiver acts upon is read as it reads it, where Suricata would read nothing.
    pub prevents: bool,
    /// Events that belong to no transaction go here ([`crate::event::Events::set`]).
    pub events: &'c mut crate::event::Events,
}

/// How far a parser got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of the input was taken in.
    Done,
    /// `consumed` bytes were taken in; the parser wants to be called again when at least `needed` bytes
    /// beyond those are there (it then sees the unconsumed bytes again, with more behind them).
    Incomplete {
        /// Bytes taken in.
        consumed: usize,
        /// Bytes wanted beyond the consumed ones, at least 1.
        needed: usize,
    },
    /// The data is not of this protocol or broken beyond repair: no more data of the stream is handed to the
    /// parser. Of datagrams
    /// only this one is: it says nothing about the next.
    Error,
    /// From `consumed` on the direction's data is of another protocol (STARTTLS, HTTP CONNECT, upgrade).
    /// `None`: detect anew.
    Switch {
        /// Bytes taken in.
        consumed: usize,
        /// Name of the expected protocol.
        to: Option<&'static str>,
    },
    /// The rest of the flow needs no parsing (encrypted from here on, `encryption-handling`). `bypass` says
    /// that no function needs to see it either.
    Stop {
        /// Offer the flow for bypass.
        bypass: bool,
    },
}

/// One flow's parser.
///
/// Contracts that the shared property suite checks for each protocol: it never panics, consumes no more than
/// it was given, gives the same transactions however the input is split, and holds bounded memory.
pub trait Parser: Send {
    /// Takes in data of one direction.
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress;

    /// `missing` bytes of a direction will never come. `false`: the parser cannot go on in this direction.
    fn gap(&mut self, direction: Direction, missing: u64, context: &mut ParseContext<'_>) -> bool;

    /// Ids of the transactions held: `first..next`. Some in between may be gone ([`Parser::tx`] is then
    /// `None`).
    fn tx_range(&self) -> core::ops::Range<TxId>;

    /// A transaction.
    fn tx(&self, id: TxId) -> Option<&dyn Transaction>;

    /// A transaction to mark as inspected or logged.
    fn tx_mut(&mut self, id: TxId) -> Option<&mut dyn Transaction>;

    /// A rule asks for no record of a transaction to be written. Parsers that keep what belongs together in
    /// several transactions extend it to the others.
    fn silence(&mut self, id: TxId) {
        if let Some(tx) = self.tx_mut(id) {
            tx.common_mut().silent = true;
        }
    }

    /// Frees a transaction that was inspected and logged.
    fn free_tx(&mut self, id: TxId);

    /// Which transactions were begun or changed since somebody looked. Parsers note every transaction that
    /// they begin or change ([`crate::transaction::TxList`] does it for them).
    fn worklist(&self) -> &Worklist;

    /// The same, to note and to take notes.
    fn worklist_mut(&mut self) -> &mut Worklist;

    /// Whether what was parsed last of a direction is worth a look at the raw stream, however little it is.
    fn wants_raw(&mut self, direction: Direction) -> bool {
        let _ = direction;
        true
    }

    /// Whether what follows in both directions is encrypted, so that nothing of it can be read.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Where it notes frames, if it knows any.
    fn frames(&mut self) -> Option<&mut crate::frames::Notes> {
        None
    }

    /// A direction cannot be read on (depth, gap, error): nothing of it is handed in any more, while the
    /// other goes on. What is open there counts as ended, and so does what begins later.
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

    /// Nothing of a direction is seen on this link, while the other side is: transactions count as ended
    /// there.
    fn leave_out(&mut self, direction: Direction) {
        self.worklist_mut().leave_out(direction);
        for id in self.tx_range() {
            if let Some(tx) = self.tx_mut(id) {
                tx.common_mut().ended[direction] = true;
                self.worklist_mut().changed(id);
            }
        }
    }

    /// A direction that was left out is seen after all. What comes next there belongs to no transaction that
    /// is over.
    fn rejoin(&mut self, direction: Direction) {
        self.worklist_mut().rejoin(direction);
    }

    /// Another protocol that a client has begun to speak within this one, without asking the server.
    fn begun(&self) -> Option<ProtocolId> {
        None
    }

    /// Bytes of memory held: its own, and that of all transactions. Asked after each packet: the answer costs
    /// what was changed since ([`crate::transaction::TxList::held`] sums transactions up).
    fn held(&mut self) -> usize;

    /// No more data comes in `direction`: what is open there becomes complete.
    fn end(&mut self, direction: Direction, context: &mut ParseContext<'_>);
}
