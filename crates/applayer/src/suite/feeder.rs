// SPDX-License-Identifier: Apache-2.0
//! Takes the place of the two streams of a flow whose protocol is not known yet. The fuzz target `open`
//! includes this file, too.

use super::{
    AppLayer, Direction, Engine, FlowInfo, Input, Parser, PerDirection, Player, Timestamp, Transaction,
    Transport, TxId,
};

/// A flow between a client and a server's port, by the contract of [`AppLayer::stream`].
pub(crate) struct Feeder<'e> {
    engine: &'e Engine,
    info: FlowInfo,
    pub(crate) app: AppLayer,
    sent: PerDirection<Vec<u8>>,
    taken: PerDirection<usize>,
    needed: PerDirection<usize>,
    ended: PerDirection<bool>,
    hole: PerDirection<u64>,
    none: NoParser,
}

impl<'e> Feeder<'e> {
    pub(crate) fn new(engine: &'e Engine, port: u16) -> Self {
        let ports = PerDirection::new(port, 40_000);
        Feeder {
            engine,
            info: FlowInfo {
                now: Timestamp::default(),
                ports,
                transport: Transport::Tcp,
                prevents: true,
                may_turn: false,
            },
            app: AppLayer::default(),
            sent: PerDirection::default(),
            taken: PerDirection::default(),
            needed: PerDirection::default(),
            ended: PerDirection::default(),
            hole: PerDirection::default(),
            none: NoParser(super::Worklist::default()),
        }
    }

    /// A flow in passive mode.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn passive(engine: &'e Engine, port: u16) -> Self {
        let mut flow = Self::new(engine, port);
        flow.info.prevents = false;
        flow
    }

    /// Marks the flow's beginning as not seen.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn mark_midstream(&mut self) {
        self.info.may_turn = true;
    }

    /// Number of a direction's bytes that were not consumed.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn left(&self, direction: Direction) -> usize {
        self.sent[direction].len() - self.taken[direction]
    }

    /// Loses bytes of a direction that were acknowledged.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn lose(&mut self, direction: Direction, missing: u64) {
        self.hole[direction] = missing;
        self.read_on(direction);
    }

    /// Delivers lost bytes late, before the data that came since.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn fill(&mut self, direction: Direction, data: &[u8]) {
        assert_eq!(
            core::mem::take(&mut self.hole[direction]),
            data.len() as u64,
            "nobody has gone on without it"
        );
        let at = self.taken[direction];
        self.sent[direction].splice(at..at, data.iter().copied());
        self.read_on(direction);
    }

    /// Skips bytes of a direction unread.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn pass_over(&mut self, direction: Direction, missing: u64) {
        self.app.pass_over(self.engine, direction, missing, &self.info);
    }

    /// Hands in a datagram, which must not turn the flow.
    #[allow(dead_code, reason = "not every file that has this one asks")]
    pub(crate) fn datagram(&mut self, direction: Direction, data: &[u8]) {
        self.info.transport = Transport::Udp;
        let advance = self.app.datagram(self.engine, direction, data, &self.info);
        assert!(!advance.reverse);
    }

    /// Ends both sides.
    pub(crate) fn finish(&mut self) {
        for direction in Direction::BOTH {
            self.ended[direction] = true;
            self.needed[direction] = 0;
            self.read_on(direction);
        }
        self.app.end(self.engine, &self.info);
    }

    /// Hands in all data that can be parsed, beginning with a direction that has new data.
    fn read_on(&mut self, mut direction: Direction) {
        let mut readable = PerDirection::new(false, false);
        readable[direction] = true;
        for _ in 0..12 {
            if core::mem::take(&mut readable[direction]) {
                self.read(direction, &mut readable);
            }
            direction = direction.flip();
        }
        assert!(!readable.to_server && !readable.to_client, "the directions wait for each other");
    }

    fn read(&mut self, direction: Direction, readable: &mut PerDirection<bool>) {
        loop {
            let taken = self.taken[direction];
            let data = self.sent[direction].get(taken..).unwrap_or_default();
            let (hole, ended) = (self.hole[direction], self.ended[direction]);
            if hole > 0 && !data.is_empty() {
                if !self.app.gap(self.engine, direction, hole, data, ended, &self.info) {
                    return;
                }
                self.hole[direction] = 0;
            }
            if self.app.finished() || data.is_empty() || data.len() < self.needed[direction] {
                return;
            }
            let input = Input { data, offset: taken as u64, eof: self.ended[direction] };
            let advance = self.app.stream(self.engine, direction, input, &self.info);
            assert!(!advance.reverse, "the handshake was seen");
            assert!(advance.consumed <= data.len(), "more is taken than there was");
            self.needed[direction] = if advance.consumed == data.len() { 0 } else { advance.needed };
            self.taken[direction] += advance.consumed;
            let other = direction.flip();
            if advance.other_side_first || advance.other_side_ready {
                self.needed[other] = 0;
                readable[other] = true;
            }
            readable[direction] |= advance.other_side_first;
            if self.app.take_switched() {
                readable[direction] = true;
                return;
            }
            if advance.consumed == 0 {
                return;
            }
        }
    }
}

impl Player for Feeder<'_> {
    fn send(&mut self, direction: Direction, data: &[u8]) {
        self.sent[direction].extend_from_slice(data);
        self.read_on(direction);
    }

    fn parser(&mut self) -> &mut dyn Parser {
        match self.app.parser_mut() {
            Some(parser) => parser,
            None => &mut self.none,
        }
    }
}

/// The parser of a flow before its protocol is known.
struct NoParser(super::Worklist);

impl Parser for NoParser {
    fn held(&mut self) -> usize {
        0
    }

    fn parse(&mut self, _: Direction, _: Input<'_>, _: &mut super::ParseContext<'_>) -> super::Progress {
        super::Progress::Done
    }

    fn gap(&mut self, _: Direction, _: u64, _: &mut super::ParseContext<'_>) -> bool {
        false
    }

    fn end(&mut self, _: Direction, _: &mut super::ParseContext<'_>) {}

    fn tx_range(&self) -> core::ops::Range<TxId> {
        0..0
    }

    fn tx(&self, _: TxId) -> Option<&dyn Transaction> {
        None
    }

    fn tx_mut(&mut self, _: TxId) -> Option<&mut dyn Transaction> {
        None
    }

    fn free_tx(&mut self, _: TxId) {}

    fn worklist(&self) -> &super::Worklist {
        &self.0
    }

    fn worklist_mut(&mut self) -> &mut super::Worklist {
        &mut self.0
    }
}
