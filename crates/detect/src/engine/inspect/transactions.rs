// SPDX-License-Identifier: Apache-2.0
//! Inspects transactions: finds the rules worth evaluating, and evaluates their buffers and conditions.

use super::{InspectionRun, WHOLE};
use crate::engine::candidates::Candidates;
use crate::engine::evaluate::ProgramOutcome;
use crate::engine::guards::Guards;
use crate::engine::txstate::{RuleProgress, RuleTxStatus, ScannedValue, Settled, Side};
use crate::model::buffers::{BufferRef, packet_buffer};
use crate::model::condition::{Answer, ConditionContext};
use crate::model::content::VARIABLES_MAX;
use crate::model::firewall::Gate;
use crate::model::prefilter::{TxRules, TxSet, check_directions};
use crate::model::signature::{Absent, Member, Signature, TxCheck, ValueCheck};
use bartizan_applayer::protocol::{BufferKind, BufferSpec, ProtocolId, ProtocolSpec};
use bartizan_applayer::transaction::{BufferQuery, BufferView, Transaction, TxId};
use bartizan_base::{Direction, PerDirection};
use bartizan_function::{AppView, RecordMark};

/// Whether a transaction's direction is complete or has ended, so that this inspection sees its end.
fn is_over(tx: &dyn Transaction, spec: &ProtocolSpec, direction: Direction) -> bool {
    tx.progress(direction) >= spec.complete[direction] || tx.common().ended[direction]
}

/// Whether a direction of a transaction was parsed past the last place where the buffer can lie, so that a
/// missing buffer is absent. A direction that ended, or is not seen, before that place counts as not parsed.
pub(crate) fn is_read(
    tx: &dyn Transaction,
    protocol: ProtocolId,
    spec: &BufferSpec,
    direction: Direction,
) -> bool {
    let progress = tx.progress(direction);
    let of_protocol = bartizan_applayer::protocols::spec(protocol);
    of_protocol.is_some_and(|of_protocol| progress >= of_protocol.complete[direction])
        || if spec.kind.grows() { progress > spec.state } else { progress >= spec.ready }
}

/// The scan of a transaction for the literals of one set.
#[derive(Clone, Copy)]
struct TxScan<'s> {
    set: &'s TxSet,
    /// The set's number among those of the protocol and direction.
    number: usize,
    id: TxId,
    /// The transaction's direction is complete or has ended.
    complete: bool,
    /// Values that were scanned make their rules candidates once more.
    again: bool,
}

/// The outcome of the scan of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueScan {
    /// The value was scanned.
    Scanned,
    /// It was scanned before, and has not grown.
    Known,
}

/// The progress of a transaction at the place where a buffer lies.
#[derive(Clone, Copy)]
struct BufferProgress {
    direction: Direction,
    /// The buffer is ready, or the direction has ended.
    past: bool,
    /// The transaction's direction is complete or has ended.
    complete: bool,
}

impl InspectionRun<'_, '_> {
    /// The firewall accepts the packet as a whole: the transaction data that the packet brought counts as
    /// inspected, unless the firewall refused an earlier packet with transaction data. That data is judged
    /// when the refused packet comes again.
    pub(super) fn accept_transactions(&mut self, app: &mut AppView<'_>) {
        if self.flow.withheld(self.scene.facts.direction) {
            app.later();
        } else {
            self.judge_transactions(app, false, false);
        }
    }

    /// Inspects the transactions; without `inspect` they are only marked as seen.
    pub(super) fn transactions(&mut self, app: &mut AppView<'_>, inspect: bool) {
        let direction = self.scene.facts.direction;
        self.flow.clear_withheld(direction);
        if !app.has_news() && self.is_settled() {
            return;
        }
        self.varying = self.scene.facts.flow.is_none_or(|flow| !flow.established);
        self.judge_transactions(app, inspect, true);
        let settled = match self.stream {
            _ if self.varying || !inspect || self.rules.firewall.is_some() => Settled::No,
            Some(_) => Settled::Always,
            None => Settled::WithoutStream,
        };
        self.flow.set_outcome(direction, settled);
    }

    /// Whether the last look at the direction's transactions found no rule whose answer can change while they
    /// stay as they are.
    fn is_settled(&self) -> bool {
        match self.flow.outcome(self.scene.facts.direction) {
            Settled::No => false,
            Settled::WithoutStream => self.stream.is_none(),
            Settled::Always => true,
        }
    }

    /// Inspects the transactions as [`InspectionRun::transactions`] does; `gate`: the firewall judges them
    /// first.
    fn judge_transactions(&mut self, app: &mut AppView<'_>, inspect: bool, gate: bool) {
        let layer = app.layer();
        let Some(protocol) = layer.protocol().protocol().or(layer.original()) else { return };
        let rules = self.rules;
        let Some(spec) = bartizan_applayer::protocols::spec(protocol) else { return };
        let direction = self.scene.facts.direction;
        self.fresh = app.is_parsed();
        let empty = TxRules::default();
        let tx_rules = rules.prefilters.tx.of(protocol, direction).unwrap_or(&empty);
        let mut gate = gate && rules.firewall.is_some() && self.scene.facts.packet.is_some();
        for (id, tx) in app.transactions() {
            self.worker.values.reset();
            // Transactions of a refused packet are only marked as seen.
            let mut inspect = inspect && !self.worker.gate.refuses();
            if gate && !self.worker.gate.refuses() {
                match self.gate_tx(protocol, tx, id) {
                    Gate::Open => {}
                    Gate::Packet => gate = false,
                    refused @ Gate::Refused(_) => {
                        self.worker.gate = refused;
                        inspect = false;
                    }
                }
                inspect &= !self.passes;
            }
            if inspect {
                self.transaction(protocol, tx_rules, tx, id);
            }
            if inspect || !self.worker.requests.is_empty() {
                self.carry_out(app, tx, id);
            }
            let shown = self.prevention && self.stream.is_some();
            if let Some(encrypted) = spec.encrypted.filter(|_| shown)
                && tx.number(encrypted, direction) == Some(1)
            {
                self.flow.mark_encrypted(direction);
            }
            let other = direction.flip();
            if self.flow.has_transactions()
                && is_over(tx, spec, direction)
                && tx.common().is_done(other, self.scene.function)
            {
                // The packet may bring further pieces of the stream, which are inspected with this
                // transaction.
                if self.stream.is_some() {
                    self.flow.set_over(id);
                } else {
                    self.flow.forget_tx(id);
                }
            }
        }
        if self.flow.state.certificates != PerDirection::default() {
            let asked = core::mem::take(&mut self.flow.state.certificates);
            app.mark(RecordMark::StoreCertificates(asked));
        }
    }

    /// Inspects a further piece of the stream that the packet brings, after a gap: rules on a transaction and
    /// on the stream are evaluated with this piece as with the pieces before.
    pub(super) fn beside_transactions(&mut self, app: &mut AppView<'_>) {
        let Some(protocol) = app.layer().protocol().protocol().or(app.layer().original()) else { return };
        let rules = self.rules;
        let empty = TxRules::default();
        let tx_rules = rules.prefilters.tx.of(protocol, self.scene.facts.direction).unwrap_or(&empty);
        let on_stream = |rule: u32| {
            let signature = rules.signatures.get(rule as usize);
            signature.is_some_and(|s| s.values.iter().any(|value| value.buffer == BufferRef::Payload))
        };
        // Nothing was parsed since the packet's first piece.
        self.fresh = false;
        self.last_look = false;
        for (id, tx) in app.transactions_again() {
            self.worker.values.reset();
            let mut candidates = core::mem::take(&mut self.worker.candidates);
            tx_rules.always.add_to(self.group, &mut candidates);
            tx_rules.beside_stream.add_to(self.group, &mut candidates);
            self.flow.pending(id, self.scene.facts.direction, |rule| candidates.add(rule));
            let due = self.due();
            for rule in candidates.sorted(|rule| due.has(rule) && on_stream(rule)) {
                self.tx_rule(rule, protocol, tx, id);
            }
            candidates.clear();
            self.worker.candidates = candidates;
            if !self.worker.requests.is_empty() {
                self.carry_out(app, tx, id);
            }
        }
    }

    fn transaction(&mut self, protocol: ProtocolId, tx_rules: &TxRules, tx: &dyn Transaction, id: TxId) {
        if tx_rules.is_empty() && !self.flow.has_transactions() {
            return;
        }
        let mut candidates = core::mem::take(&mut self.worker.candidates);
        let direction = self.scene.facts.direction;
        self.without_literal(tx_rules, tx, &mut candidates);
        let (progress, common) = (tx.progress(direction), tx.common());
        let ended = common.ended[direction];
        let state = bartizan_applayer::protocols::spec(protocol).map(|spec| spec.complete[direction]);
        let complete = ended || state.is_some_and(|complete| progress >= complete);
        self.last_look = complete;
        // Checked before any look-up: most sets have been scanned, or their value has not come.
        let scanned = self.flow.sets_scanned(id, direction);
        for (number, set) in tx_rules.sets.iter().enumerate() {
            // While the state of the complete value lasts, and once after it, rules are evaluated again when
            // more of the direction was parsed, as in Suricata: another condition (a flowbit that the other
            // side sets) may hold now. In passive mode something was parsed before each inspection, possibly
            // of the other direction.
            let again = (self.fresh || !self.prevention) && common.inspected[direction] <= set.spec.state;
            let passed_over = !set.spec.kind.grows()
                && (progress < set.spec.early && !ended || scanned.has(number) && !again);
            if !passed_over && set.set.is_met(self.group) {
                let scan = TxScan { set, number, id, complete, again };
                self.prefilter_tx(scan, tx, &mut candidates);
            }
        }
        self.flow.pending(id, direction, |rule| candidates.add(rule));
        let (due, rules, fresh) = (self.due(), self.rules, self.fresh);
        // Checked for all candidates together: most of these rules are in no cache, and their loads overlap
        // this way.
        let skipped = core::cell::Cell::new(false);
        let waits = |rule: u32| {
            let waits = !fresh && rules.signatures.get(rule as usize).is_none_or(|s| s.hooked);
            skipped.set(skipped.get() || waits);
            waits
        };
        for rule in candidates.sorted(|rule| due.has(rule) && !waits(rule)) {
            self.tx_rule(rule, protocol, tx, id);
        }
        candidates.clear();
        self.worker.candidates = candidates;
        // Fresh data brings the rules that wait for it, and in prevention those of sets that are searched
        // again.
        self.varying |= skipped.get() || !fresh && self.prevention;
    }

    /// Adds the rules without a literal, except those that cannot match now because a guard is missing.
    fn without_literal(&mut self, tx_rules: &TxRules, tx: &dyn Transaction, candidates: &mut Candidates) {
        let mut values = core::mem::take(&mut self.worker.values);
        let mut guards = Guards::new(&tx_rules.guards, tx, self.scene.facts.direction, &mut values);
        tx_rules.always.add_where(self.group, |wanted| guards.can_match(wanted), candidates);
        if self.stream.is_some() {
            tx_rules.beside_stream.add_where(self.group, |wanted| guards.can_match(wanted), candidates);
        }
        self.worker.values = values;
    }

    fn prefilter_tx(&mut self, scan: TxScan<'_>, tx: &dyn Transaction, candidates: &mut Candidates) {
        let TxScan { set, number, id, complete, again } = scan;
        let direction = self.scene.facts.direction;
        let kind = set.spec.kind;
        // A value that is inspected before it is complete is scanned as it comes, and once more when it is
        // complete, since it may have grown.
        let early = !kind.grows() && tx.progress(direction) < set.spec.ready && !tx.common().ended[direction];
        // Some buffers get further values while a direction continues; values that were scanned are not
        // scanned again.
        let noted =
            if kind == BufferKind::Multi { self.flow.values_scanned(id, direction, number) } else { 0 };
        let first = if early || noted & WHOLE != 0 && !again { noted & !WHOLE } else { 0 };
        let mut next_value = first;
        let mut values = core::mem::take(&mut self.worker.values);
        for index in first.. {
            let query = BufferQuery { id: set.spec.id, direction, index };
            let step = values.read(tx, query, |view| {
                let view = view?;
                next_value = index.saturating_add(1);
                if early && kind == BufferKind::Single {
                    // The length of a single value is remembered: the value is scanned again when it has
                    // grown, or when more was parsed while its state lasts (conditions on the packet may hold
                    // now).
                    let length = u32::try_from(view.data.len()).unwrap_or(u32::MAX);
                    if self.flow.values_scanned(id, direction, number) == length && !again {
                        return Some(ValueScan::Known);
                    }
                    self.flow.set_values_scanned(id, direction, number, length);
                }
                self.scan_value(&scan, view, index, candidates);
                Some(ValueScan::Scanned)
            });
            if step == Some(ValueScan::Known) {
                self.worker.values = values;
                return;
            }
            if step.is_none() || !kind.is_multi() {
                break;
            }
        }
        self.worker.values = values;
        if next_value == 0 || kind.grows() || early && kind == BufferKind::Single {
            return;
        }
        if kind == BufferKind::Multi && !complete {
            let whole = if early { 0 } else { WHOLE };
            self.flow.set_values_scanned(id, direction, number, next_value | whole);
        } else {
            self.flow.set_scanned(id, direction, number);
        }
    }

    /// Scans a value for the literals of a set.
    fn scan_value(
        &mut self,
        scan: &TxScan<'_>,
        view: BufferView<'_>,
        index: u32,
        candidates: &mut Candidates,
    ) {
        let TxScan { set, number, id, .. } = *scan;
        if !set.transforms.is_empty() {
            let [mut value, mut next] = core::mem::take(&mut self.worker.transformed);
            value.clear();
            value.extend_from_slice(view.data);
            for transform in &set.transforms {
                next.clear();
                transform.apply(&value, &mut next);
                core::mem::swap(&mut value, &mut next);
            }
            set.set.scan(&mut self.worker.scratch, &value, candidates);
            self.worker.transformed = [value, next];
            return;
        }
        let (direction, grows) = (self.scene.facts.direction, set.spec.kind.grows());
        let place = ScannedValue { set: number, index };
        let from =
            if grows { self.flow.scan_from(id, direction, place, view.offset, set.set.longest()) } else { 0 };
        let fresh = view.data.get(from..).unwrap_or(&[]);
        set.set.scan(&mut self.worker.scratch, fresh, candidates);
        if grows {
            let end = view.offset.saturating_add(view.data.len() as u64);
            self.flow.set_scanned_to(id, direction, place, end);
        }
    }

    fn tx_rule(&mut self, index: u32, protocol: ProtocolId, tx: &dyn Transaction, id: TxId) {
        let rules = self.rules;
        let Some(signature) = rules.signatures.get(index as usize) else { return };
        let side = if signature.spans_directions { Side::Both } else { Side::Of(self.scene.facts.direction) };
        let mut entry = self.flow.entry(id, index, side);
        let again = entry.status == RuleTxStatus::Repeats && self.fresh;
        self.varying |=
            signature.varies && !matches!(entry.status, RuleTxStatus::Matched | RuleTxStatus::Failed);
        if entry.status != RuleTxStatus::Pending && !again {
            return;
        }
        if !entry.begun && !self.header_holds(signature) {
            let over = !again && entry.held == 0 && self.is_over(signature, protocol, tx);
            entry.status = if over { RuleTxStatus::Failed } else { entry.status };
            if over || entry.status == RuleTxStatus::Pending && entry.held != 0 {
                self.keep_entry(id, signature, entry);
            }
            return;
        }
        // The bit of the value with the fast pattern, if that lies in the stream.
        let pattern = signature.fast_pattern.as_ref().map(|fast| fast.value);
        let pattern = pattern
            .filter(|value| signature.values.get(*value).is_some_and(|v| v.buffer == BufferRef::Payload));
        let pattern = pattern.map_or(0, |value| 1u64.checked_shl(value as u32).unwrap_or(0));
        let late = pattern != 0 && tx.progress(self.scene.facts.direction) > 0;
        self.worker.variables = [0; VARIABLES_MAX];
        self.worker.captured.clear();
        let answer = self.tx_checks(signature, protocol, tx, &mut entry);
        match answer {
            Answer::Yes if signature.repeats => {
                self.hit(index, signature, Some(id), false);
                return;
            }
            Answer::No if signature.repeats => return,
            Answer::Yes => {
                let stream = signature.values.iter().any(|v| v.buffer == BufferRef::Payload);
                let repeats = late && !entry.late && side != Side::Both;
                let status = if repeats { RuleTxStatus::Repeats } else { RuleTxStatus::Matched };
                entry = RuleProgress { status, held: 0, begun: false, ..entry };
                self.hit(index, signature, Some(id), stream);
            }
            // The stream does not contain the pattern this time.
            _ if again => return,
            Answer::No => entry.status = RuleTxStatus::Failed,
            Answer::NotYet => {
                let shown = pattern == 0 || entry.held & pattern != 0;
                entry.late |= late && shown;
                if !shown || pattern != 0 && !entry.late {
                    // Conditions on the transaction's state must hold when the stream brings the pattern.
                    let values = 1u64.checked_shl(signature.values.len() as u32).unwrap_or(0);
                    entry.held &= values.wrapping_sub(1);
                }
                // As in Suricata, when the literal that made the rule a candidate cannot do so again.
                entry.begun |= shown
                    && entry.held != 0
                    && side != Side::Both
                    && self.state_of_its_literal(signature, protocol)
                        != Some(tx.progress(self.scene.facts.direction));
            }
        }
        self.keep_entry(id, signature, entry);
    }

    /// Stores a rule's progress, except a failure that no later look asks for: most rules fail with the only
    /// look at a direction of a transaction.
    fn keep_entry(&mut self, id: TxId, signature: &Signature, entry: RuleProgress) {
        // Further pieces of the packet's stream are inspected beside the transaction.
        let asked_again = || signature.values.iter().any(|value| value.buffer == BufferRef::Payload);
        let over = self.last_look && entry.side != Side::Both && entry.status == RuleTxStatus::Failed;
        if !over || asked_again() {
            self.flow.set_entry(id, entry);
        }
    }

    /// The state of the buffer with the rule's literal, if there is one; for the stream, the first state.
    fn state_of_its_literal(&self, signature: &Signature, protocol: ProtocolId) -> Option<u8> {
        match signature.values.get(signature.fast_pattern.as_ref()?.value)?.buffer {
            BufferRef::Tx(buffer) => Some(self.rules.buffers.tx(buffer)?.of(protocol)?.state),
            BufferRef::Payload => Some(0),
            BufferRef::Packet(_) | BufferRef::Frame(_) => None,
        }
    }

    /// Whether a rule whose packet conditions do not hold can be given up for a transaction: all data that it
    /// inspects is complete and the direction has moved on. Suricata no longer searches its pattern then,
    /// either. A rule that reads bits is always evaluated again.
    fn is_over(&mut self, signature: &Member, protocol: ProtocolId, tx: &dyn Transaction) -> bool {
        let direction = self.scene.facts.direction;
        let settled = |check: &ValueCheck| match check.buffer {
            BufferRef::Tx(buffer) => {
                self.rules.buffers.tx(buffer).and_then(|b| b.of(protocol)).is_some_and(|spec| {
                    !spec.kind.grows()
                        && !spec.kind.is_multi()
                        && check_directions(check, spec)[direction]
                        && tx.progress(direction) > spec.state
                })
            }
            BufferRef::Payload | BufferRef::Packet(_) | BufferRef::Frame(_) => false,
        };
        let passed = |check: &TxCheck| {
            check.directions[direction] && check.state.is_some_and(|state| tx.progress(direction) > state)
        };
        // In passive mode something was parsed before each inspection.
        (self.fresh || !self.prevention)
            && signature.tx.iter().all(passed)
            && !signature.spans_directions
            && !signature.ordering.reads_bits()
            && signature.values.iter().all(settled)
            && self.head_holds(signature)
    }

    /// Evaluates the conditions that are not yet known to hold. Bits of `entry.held`: values first, then
    /// transaction conditions.
    pub(super) fn tx_checks(
        &mut self,
        signature: &Signature,
        protocol: ProtocolId,
        tx: &dyn Transaction,
        entry: &mut RuleProgress,
    ) -> Answer {
        let mut all = Answer::Yes;
        // In a rule without a literal the stream's value comes last, as in Suricata: the stream must match
        // when all other conditions hold.
        let last =
            |check: &ValueCheck| signature.fast_pattern.is_none() && check.buffer == BufferRef::Payload;
        for (number, check) in signature.values.iter().enumerate().filter(|(_, check)| !last(check)) {
            let bit = 1u64.checked_shl(number as u32).unwrap_or(0);
            if entry.held & bit != 0 {
                continue;
            }
            match self.value_on_tx(check, protocol, tx, signature.spans_directions) {
                Answer::Yes => entry.held |= bit,
                Answer::No => return Answer::No,
                Answer::NotYet => all = Answer::NotYet,
            }
        }
        let base = signature.values.len();
        for (number, check) in signature.tx.iter().enumerate() {
            let bit = 1u64.checked_shl((base + number) as u32).unwrap_or(0);
            if entry.held & bit != 0 {
                continue;
            }
            let direction = self.scene.facts.direction;
            let answer = if !check.protocols.is_empty() && !check.protocols.contains(&protocol) {
                Answer::No
            } else if check.directions[direction] {
                let scene = ConditionContext { state: Some(&self.flow.state), ..*self.scene };
                check.condition.matches(tx, direction, &scene)
            } else {
                Answer::NotYet
            };
            match answer {
                Answer::Yes => entry.held |= bit,
                Answer::No => return Answer::No,
                Answer::NotYet => all = Answer::NotYet,
            }
        }
        if all == Answer::Yes && signature.fast_pattern.is_none() {
            for check in signature.values.iter().filter(|check| last(check)) {
                match self.value_on_tx(check, protocol, tx, signature.spans_directions) {
                    Answer::Yes => {}
                    other => return other,
                }
            }
        }
        all
    }

    /// Runs a program on the part of a buffer that has come. A transform that needs the complete value of a
    /// growing buffer gives `NotYet` until the rest has come: the hash of a part does not predict the hash of
    /// the whole.
    fn run_on_part(&mut self, check: &ValueCheck, data: &[u8], all: bool, grows: bool) -> ProgramOutcome {
        let waits = grows && !all && check.transforms.iter().any(|transform| transform.needs_all());
        if waits { ProgramOutcome::NotYet } else { self.run(check, data, all) }
    }

    /// Evaluates a condition on a value for a transaction. `spans`: the rule inspects both directions.
    fn value_on_tx(
        &mut self,
        check: &ValueCheck,
        protocol: ProtocolId,
        tx: &dyn Transaction,
        spans: bool,
    ) -> Answer {
        let direction = self.scene.facts.direction;
        let BufferRef::Tx(buffer) = check.buffer else { return self.value_on_packet(check) };
        let rules = self.rules;
        let Some(spec) = rules.buffers.tx(buffer).and_then(|b| b.of(protocol)) else {
            return Answer::from(check.absent != Absent::No);
        };
        let directions = check_directions(check, spec);
        // A rule on both directions inspects the data of either, whatever the packet's direction.
        let direction = if spans && !directions[direction] { direction.flip() } else { direction };
        if !directions[direction] {
            return Answer::NotYet;
        }
        let (progress, ended) = (tx.progress(direction), tx.common().ended[direction]);
        let past = progress >= spec.ready || ended;
        if !past && !spec.kind.grows() && progress < spec.early {
            return Answer::NotYet;
        }
        let complete = bartizan_applayer::protocols::spec(protocol)
            .is_some_and(|of_protocol| progress >= of_protocol.complete[direction])
            || ended;
        let place = BufferProgress { direction, past, complete };
        self.worker.little_endian = tx.rpc().is_some_and(|call| call.is_little);
        let found = self.run_on_values(check, tx, spec, place);
        self.worker.little_endian = false;
        let answer = match found {
            Some(_) if check.absent == Absent::Only => Answer::No,
            Some(answer) => answer,
            None => absent_value(check, protocol, tx, spec, place),
        };
        // With one progress for both directions, a buffer of both fails only when the other direction cannot
        // match any more either.
        let other = direction.flip();
        let elsewhere = spans && directions[other] && !tx.common().is_done(other, self.scene.function);
        let open = !past && !spec.kind.grows();
        match answer {
            Answer::No if elsewhere || spec.kind.is_multi() && !complete => Answer::NotYet,
            Answer::No | Answer::NotYet if open => Answer::NotYet,
            answer => answer,
        }
    }

    /// Evaluates a condition on the packet or its payload beside conditions on a transaction.
    fn value_on_packet(&mut self, check: &ValueCheck) -> Answer {
        // Beside transaction conditions, header conditions inspect the current packet; payload conditions
        // inspect the stream that comes with it, or else the packet's own payload.
        let holds = match check.buffer {
            BufferRef::Packet(buffer) => {
                let data = packet_buffer(buffer, self.scene);
                data.is_some_and(|data| self.run(check, &data, true) == ProgramOutcome::Match)
            }
            // Payload that goes into the stream is inspected as stream data, and positions count in that
            // data. As in Suricata, negated contents do not hold without any data either.
            _ => {
                let own = !self.stored && !self.scene.payload.is_empty();
                let data = self.stream.or(own.then_some(self.scene.payload));
                let holds = data.is_some_and(|data| self.run(check, data, true) == ProgramOutcome::Match);
                // Once the session is encrypted, Suricata keeps no earlier bytes: negated contents are
                // evaluated on the packet alone. Other contents may still begin before it.
                let alone = self.prevention
                    && self.flow.is_veiled(self.scene.facts.direction)
                    && !self.scene.payload.is_empty();
                holds || alone && self.run(check, self.scene.payload, true) == ProgramOutcome::Match
            }
        };
        if holds { Answer::Yes } else { Answer::NotYet }
    }

    /// Evaluates a condition on the values of a buffer that have come; `None` if there is none.
    fn run_on_values(
        &mut self,
        check: &ValueCheck,
        tx: &dyn Transaction,
        spec: &BufferSpec,
        place: BufferProgress,
    ) -> Option<Answer> {
        let mut answer = None;
        let mut values = core::mem::take(&mut self.worker.values);
        for index in 0.. {
            let query = BufferQuery { id: spec.id, direction: place.direction, index };
            let there = values.read(tx, query, |view| {
                let Some(view) = view else { return false };
                let known = answer.get_or_insert(Answer::No);
                let all = view.complete || place.complete;
                match self.run_on_part(check, view.data, all, spec.kind.grows()) {
                    ProgramOutcome::Match => *known = Answer::Yes,
                    ProgramOutcome::NotYet => *known = Answer::NotYet,
                    ProgramOutcome::NoMatch if spec.kind.grows() && !all => *known = Answer::NotYet,
                    ProgramOutcome::NoMatch => {}
                }
                true
            });
            if answer == Some(Answer::Yes) || !there || !spec.kind.is_multi() {
                break;
            }
        }
        self.worker.values = values;
        answer
    }
}

/// The answer of a condition whose buffer has no value, or none yet.
fn absent_value(
    check: &ValueCheck,
    protocol: ProtocolId,
    tx: &dyn Transaction,
    spec: &BufferSpec,
    place: BufferProgress,
) -> Answer {
    let BufferProgress { direction, past, complete } = place;
    if !past && !spec.kind.grows() {
        return Answer::NotYet;
    }
    let present =
        check.absent != Absent::No && tx.is_present(BufferQuery { id: spec.id, direction, index: 0 });
    match if present { Absent::No } else { check.absent } {
        Absent::Only | Absent::OrElse if is_read(tx, protocol, spec, direction) => Answer::Yes,
        Absent::Only | Absent::OrElse if complete => Answer::No,
        Absent::Only | Absent::OrElse => Answer::NotYet,
        Absent::No if complete || !spec.kind.grows() && past => Answer::No,
        Absent::No => Answer::NotYet,
    }
}
