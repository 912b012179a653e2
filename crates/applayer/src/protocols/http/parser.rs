// SPDX-License-Identifier: Apache-2.0
//! One flow's HTTP/1 parser: two state machines, one per direction, over one table of transactions.

use super::feed::{Feed, HttpDirectionStatus, HttpParseStep};
use super::state::HttpParser;
use super::tx::{COMPLETE, HEADERS, NOT_STARTED};
use crate::frames::Notes;
use crate::memory::Held as _;
use crate::protocol::{Input, ParseContext, Parser, Progress, ProtocolId};
use crate::protocols::{by_name, http2};
use crate::transaction::{Transaction, TxId};
use crate::worklist::Worklist;
use bartizan_base::Direction;

impl HttpParser {
    fn status(&mut self, direction: Direction) -> &mut HttpDirectionStatus {
        match direction {
            Direction::ToServer => &mut self.request.status,
            Direction::ToClient => &mut self.response.status,
        }
    }

    fn run(&mut self, direction: Direction, feed: &mut Feed<'_>) -> HttpParseStep {
        let step = match direction {
            Direction::ToServer if !self.watch_tunnel(feed) => HttpParseStep::Fail,
            Direction::ToServer => self.run_request(feed),
            Direction::ToClient => self.run_response(feed),
        };
        if step == HttpParseStep::Fail {
            *self.status(direction) = HttpDirectionStatus::Failed;
        }
        step
    }

    /// Closes a direction: open data is parsed as if a line end followed.
    fn close(&mut self, direction: Direction) {
        self.txs.suppress_events(true);
        for side in [Direction::ToServer, direction] {
            // The end of responses also ends requests: the server will answer no more of them.
            if matches!(*self.status(side), HttpDirectionStatus::Open) {
                *self.status(side) = HttpDirectionStatus::Closed;
                let at = self.next[side];
                self.run(side, &mut Feed::data(&[]).from(at));
            }
        }
        self.txs.suppress_events(false);
    }

    /// Completes both messages of the last transaction before a switch to another protocol.
    fn complete_for_switch(&mut self) {
        let id = self.response_id;
        if let Some(tx) = self.txs.get_mut(id) {
            for direction in Direction::BOTH {
                tx.message_mut(direction).progress = COMPLETE;
                tx.finish_body(direction, &mut self.file_context);
            }
            self.response_id += 1;
            self.request_id = self.request_id.max(self.response_id);
        }
    }
}

impl Parser for HttpParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        if let Some(to) = self.switch {
            return Progress::Switch { consumed: 0, to };
        }
        self.file_context.begin_call(context.files);
        if *self.status(direction) == HttpDirectionStatus::Failed {
            return Progress::Error;
        }
        if input.eof && direction == Direction::ToClient {
            self.response.yield_at_end = false;
        }
        let mut feed = Feed::data(input.data).from(input.offset);
        let mut step = HttpParseStep::More;
        if !input.data.is_empty() && *self.status(direction) != HttpDirectionStatus::Tunnel {
            step = self.run(direction, &mut feed);
            self.next[direction] = feed.position();
            if self.switch.is_none()
                && *self.status(direction) == HttpDirectionStatus::Tunnel
                && let Some(to) = self.upgrade()
            {
                self.switch = Some(Some(to));
                if to == http2::SPEC.name {
                    let tx = self.txs.get(self.response_id);
                    self.upgraded = tx.map(super::upgrade::as_frames).unwrap_or_default();
                }
                self.complete_for_switch();
            }
        }
        if let Some(to) = self.switch {
            return Progress::Switch { consumed: feed.consumed(), to };
        }
        if input.eof {
            self.close(direction);
        }
        match step {
            HttpParseStep::Fail => Progress::Error,
            HttpParseStep::Wait if !feed.is_empty() => {
                Progress::Incomplete { consumed: feed.consumed(), needed: feed.rest().len() + 1 }
            }
            _ => Progress::Done,
        }
    }

    fn gap(&mut self, direction: Direction, missing: u64, context: &mut ParseContext<'_>) -> bool {
        self.file_context.begin_call(context.files);
        match *self.status(direction) {
            HttpDirectionStatus::Failed => return false,
            HttpDirectionStatus::Tunnel => return true,
            HttpDirectionStatus::Open | HttpDirectionStatus::Closed => {}
        }
        let (id, first) = match direction {
            Direction::ToServer => (self.request_id, self.request_id == 0),
            Direction::ToClient => (self.response_id, self.request_id == 0),
        };
        let Some(tx) = self.txs.at(id) else { return false };
        if first && tx.progress(direction) == NOT_STARTED {
            // No data was seen yet: parsing begins after the gap.
            return true;
        }
        let at = self.next[direction];
        self.next[direction] = at.saturating_add(missing);
        self.run(direction, &mut Feed::gap(missing).from(at)) != HttpParseStep::Fail
    }

    fn tx_range(&self) -> core::ops::Range<TxId> {
        let last = self.request_id.max(self.response_id);
        let started = self.txs.get(last).is_some_and(super::tx::HttpTx::started);
        self.txs.first()..(last + u64::from(started)).max(self.txs.freed_to())
    }

    fn tx(&self, id: TxId) -> Option<&dyn Transaction> {
        self.txs.get(id).map(|tx| tx as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: TxId) -> Option<&mut dyn Transaction> {
        self.txs.mark_mut(id).map(|tx| tx as &mut dyn Transaction)
    }

    fn free_tx(&mut self, id: TxId) {
        // A direction that is not parsed any more brings no messages, so no place is kept for them.
        let disrupted = self.txs.worklist().disrupted();
        let keep_from = match (disrupted.to_server, disrupted.to_client) {
            (false, false) => self.request_id.min(self.response_id),
            (true, false) => self.response_id,
            (false, true) => self.request_id,
            (true, true) => self.request_id.max(self.response_id),
        };
        self.txs.free(id, keep_from);
    }

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn wants_raw(&mut self, direction: Direction) -> bool {
        core::mem::take(&mut self.completed[direction])
    }

    fn worklist(&self) -> &Worklist {
        self.txs.worklist()
    }

    fn worklist_mut(&mut self) -> &mut Worklist {
        self.txs.worklist_mut()
    }

    fn switch_context(&self) -> Vec<u8> {
        self.upgraded.clone()
    }

    fn begun(&self) -> Option<ProtocolId> {
        if self.begins_http2 { by_name(http2::SPEC.name).map(|(id, _)| id) } else { None }
    }

    fn held(&mut self) -> usize {
        let lines = self.request.line.held() + self.request.header.held();
        let lines = lines + self.response.line.held() + self.response.header.held();
        let lines = lines + self.request.tunnel.as_ref().map_or(0, |start| start.bytes.held());
        let lines = lines + self.upgraded.held();
        let own = size_of::<Self>().saturating_add(lines).saturating_add(self.ranges.held());
        own.saturating_add(self.txs.held())
    }

    fn disrupt(&mut self, direction: Direction, context: &mut ParseContext<'_>) {
        self.file_context.begin_call(context.files);
        self.txs.worklist_mut().disrupt(direction);
        // The state machine never runs again: its current transaction may be freed now.
        *self.status(direction) = HttpDirectionStatus::Failed;
        for id in self.tx_range() {
            let Some(tx) = self.txs.get_mut(id) else { continue };
            tx.common_mut().ended[direction] = true;
            if tx.message(direction).progress != COMPLETE {
                tx.end_decoding(direction, &mut self.file_context);
                tx.abort_body(direction, &mut self.file_context);
            }
        }
    }

    fn rejoin(&mut self, direction: Direction) {
        self.txs.worklist_mut().rejoin(direction);
        // Messages are paired by their order: unseen ones are not waited for.
        match direction {
            Direction::ToServer => self.request_id = self.request_id.max(self.response_id),
            Direction::ToClient => self.response_id = self.response_id.max(self.request_id),
        }
    }

    fn end(&mut self, direction: Direction, context: &mut ParseContext<'_>) {
        self.file_context.begin_call(context.files);
        self.close(direction);
        for tx in self.txs.iter_mut() {
            let message = tx.message_mut(direction);
            if message.progress != COMPLETE && (message.progress > HEADERS || message.body.seen > 0) {
                tx.end_decoding(direction, &mut self.file_context);
                tx.abort_body(direction, &mut self.file_context);
            }
        }
    }
}
