// SPDX-License-Identifier: Apache-2.0
//! Detection state that a flow keeps from packet to packet.
//!
//! The part that refers to positions in a rule set (the progress of rules with transactions) carries the
//! numbers of the set and of its visible part, and is dropped when either changes.

use crate::engine::window::WindowScan;
use crate::model::visibility::Visibility;
use crate::ruleset::{RuleDecision, RuleSet};
use crate::state::FlowRuleState;
use crate::state::refused::RefusedBytes;
use bartizan_applayer::memory::Held as _;
use bartizan_applayer::transaction::TxId;
use bartizan_base::{Direction, Generation, PerDirection, RuleId};
use bartizan_function::{FlowDescription, OfFlow, SlotState};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The state of a rule's evaluation on a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleTxStatus {
    /// Some conditions are open.
    #[default]
    Pending,
    /// The rule matched and will not match again.
    Matched,
    /// The rule matched, and matches again when more of its direction was parsed and the stream brings its
    /// pattern (see [`RuleProgress::late`]).
    Repeats,
    /// The rule cannot match any more.
    Failed,
}

/// Scope of a rule's progress. As in Suricata, directions are judged apart, so that a rule can match once for
/// each. Only a rule with conditions on both directions has one progress for the whole transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Progress in this direction.
    Of(Direction),
    /// Progress in both directions together.
    #[default]
    Both,
}

/// A rule's progress with a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleProgress {
    /// The rule's position in the rule set.
    pub rule: u32,
    /// Scope of the progress.
    pub side: Side,
    /// Status.
    pub status: RuleTxStatus,
    /// For a rule whose pattern is searched in the stream: some conditions held for the first time after its
    /// direction had left its first state. Such a rule matches once, as all rules do whose pattern comes with
    /// the transaction. A rule that holds at once in such a state matches whenever the stream brings its
    /// pattern, as in Suricata, which treats its pattern as one that does not come again.
    pub late: bool,
    /// Conditions that hold, a bit each.
    pub held: u64,
    /// The conditions on packets held when the rule began with the transaction, and are not evaluated again.
    pub begun: bool,
}

impl RuleProgress {
    /// Order of the entries of a transaction.
    const fn key_of(rule: u32, side: Side) -> u64 {
        let side = match side {
            Side::Of(Direction::ToServer) => 0,
            Side::Of(Direction::ToClient) => 1,
            Side::Both => 2,
        };
        (rule as u64) << 2 | side
    }

    const fn key(&self) -> u64 {
        Self::key_of(self.rule, self.side)
    }
}

/// Takes the place of a value's index in [`TxState::growing`]: the entry holds the number of scanned values,
/// not the offset up to which one was scanned.
const VALUES: u32 = u32::MAX;

/// The firewall's progress with one direction of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateState {
    /// The next state to judge.
    pub from: u8,
    /// A rule has accepted a state.
    pub ruled: bool,
}

/// A value of a buffer that a set scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedValue {
    /// The set's number among those of its protocol and direction.
    pub set: usize,
    /// The value's index in its buffer.
    pub index: u32,
}

/// A growing value of a transaction, in the form in which it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrowthKey {
    direction: u8,
    set: u16,
    index: u32,
}

impl GrowthKey {
    const fn new(direction: Direction, set: usize, index: u32) -> Self {
        GrowthKey { direction: direction as u8, set: set as u16, index }
    }
}

/// The scan of a growing value.
#[derive(Clone, Copy, Debug)]
struct ScannedGrowth {
    key: GrowthKey,
    /// The offset up to which it was scanned, in bytes.
    end: u64,
}

#[derive(Debug, Default)]
struct TxState {
    id: TxId,
    /// Sorted by rule and side: there can be a hundred entries, which are read one after the other.
    entries: SmallVec<[RuleProgress; 4]>,
    /// The firewall's progress, by direction.
    gate: [GateState; 2],
    /// The firewall has accepted the whole transaction, both directions.
    accepted: bool,
    /// The transaction is over: nothing needs this entry after the current packet.
    over: bool,
    /// Number of alerts of rules on packets that showed this transaction.
    guessed: u8,
    /// Sets that were scanned, a bit each, by direction.
    scanned: [u64; 2],
    /// Growing values. For complete values, the number of scanned ones ([`VALUES`]).
    growing: SmallVec<[ScannedGrowth; 2]>,
}

impl TxState {
    /// Position of a rule's progress, or the position at which to insert it.
    fn place_of(&self, rule: u32, side: Side) -> Result<usize, usize> {
        // Rules are evaluated in order, so most new entries come last.
        let key = RuleProgress::key_of(rule, side);
        match self.entries.last() {
            Some(last) if last.key() >= key => self.entries.binary_search_by_key(&key, RuleProgress::key),
            _ => Err(self.entries.len()),
        }
    }

    /// Bytes of memory held outside of the entry itself.
    fn held(&self) -> usize {
        self.entries.held().saturating_add(self.growing.held())
    }
}

/// Sets of literals that were scanned for a direction of a transaction, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetsScanned(u64);

impl SetsScanned {
    /// Whether a set was scanned. Sets beyond the 64th count as not scanned.
    pub(crate) fn has(self, set: usize) -> bool {
        set < 64 && self.0 >> set & 1 == 1
    }
}

/// Limit of remembered transactions per flow; beyond it, the oldest are forgotten.
pub(crate) const TRANSACTIONS_MAX: usize = 512;
/// Capacity, in transactions, that an empty list keeps.
const ROOM_KEPT: usize = 16;

/// Whether a further look at a direction's transactions can give another answer while they stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It can.
    #[default]
    No,
    /// Not beside a packet without a piece of the stream.
    WithoutStream,
    /// It cannot.
    Always,
}

/// Detection state of one flow; see the module.
#[derive(Debug, Default)]
pub struct FlowDetect {
    generation: Generation,
    /// Numbers of the rule set and of its visible part.
    inspected_with: (u64, u64),
    /// State that rules set in this flow; kept across generations.
    pub state: FlowRuleState,
    /// Transactions, sorted by id.
    tx: VecDeque<TxState>,
    /// Bytes of memory that the transactions hold outside of the list.
    tx_held: usize,
    /// Some transactions are over.
    some_over: bool,
    /// Rules on addresses were evaluated, by direction.
    ip_only_done: [bool; 2],
    /// By direction: no rule that is found by an address names an end of the flow's packets.
    unnamed: PerDirection<bool>,
    /// Scan state of the stream windows, by direction. A flow without a stream has none, so it allocates
    /// none.
    windows: Option<Box<PerDirection<WindowScan>>>,
    /// By direction: the firewall refused a packet with payload, and its transaction data is not judged yet.
    withheld: PerDirection<bool>,
    turned: bool,
    /// By direction: whether its transactions, as they are, can still give another answer.
    settled: PerDirection<Settled>,
    /// By direction: the stream was inspected including the bytes from which on the session is encrypted.
    veiled: PerDirection<bool>,
    /// Stream bytes that rules refused with their packets, by direction. Few flows have such bytes.
    refused: Option<Box<PerDirection<Option<RefusedBytes>>>>,
}

impl FlowDetect {
    /// Enters a generation: drops state of other rule sets. A decision for the whole flow stays in force
    /// while the policy sees the rule that made it and the rule would still decide so.
    pub fn enter_generation(
        &mut self,
        rules: &RuleSet,
        visible: Option<&Visibility>,
        generation: Generation,
    ) {
        // A frame whose processing began on another worker in an earlier generation lifts no refusal.
        let forward = self.generation <= generation;
        self.generation = generation;
        let now = (rules.number, visible.map_or(0, Visibility::number));
        if self.inspected_with != now {
            self.inspected_with = now;
            self.forget_all_tx();
            self.settled = PerDirection::default();
            self.ip_only_done = [false; 2];
            self.unnamed = PerDirection::default();
            self.windows = None;
            let FlowRuleState { passed, dropped, accepted, .. } = &mut self.state;
            *accepted = accepted.filter(|rule| rules.accepts(rule));
            *passed = passed.filter(|rule| rules.has_decision(rule, RuleDecision::Pass, visible));
            *dropped =
                dropped.filter(|rule| !forward || rules.has_decision(rule, RuleDecision::Refuse, visible));
            for side in self.refused.iter_mut().flat_map(|both| [&mut both.to_server, &mut both.to_client]) {
                *side = side.filter(|bytes| {
                    !forward || rules.has_decision(&bytes.rule, RuleDecision::Refuse, visible)
                });
            }
        }
    }

    /// Records that the firewall refuses a packet with transaction data.
    pub(crate) fn withhold(&mut self, direction: Direction) {
        self.withheld[direction] = true;
    }

    /// Records that the transactions of a direction are judged.
    pub(crate) fn clear_withheld(&mut self, direction: Direction) {
        self.withheld[direction] = false;
    }

    /// Whether transaction data of a direction is not judged yet.
    pub(crate) fn withheld(&self, direction: Direction) -> bool {
        self.withheld[direction]
    }

    /// The firewall's progress with a direction of a transaction.
    pub(crate) fn gate(&self, id: TxId, direction: Direction) -> GateState {
        self.tx(id).and_then(|tx| tx.gate.get(direction as usize)).copied().unwrap_or_default()
    }

    /// Whether the firewall has accepted all of a transaction.
    pub(crate) fn is_tx_accepted(&self, id: TxId) -> bool {
        self.tx(id).is_some_and(|tx| tx.accepted)
    }

    /// Records that the firewall accepts the whole transaction.
    pub(crate) fn accept_tx(&mut self, id: TxId) {
        if let Some(tx) = self.tx_mut(id) {
            tx.accepted = true;
        }
    }

    /// Sets the firewall's progress with a direction of a transaction.
    pub(crate) fn set_gate(&mut self, id: TxId, direction: Direction, state: GateState) {
        if let Some(gate) = self.tx_mut(id).and_then(|tx| tx.gate.get_mut(direction as usize)) {
            *gate = state;
        }
    }

    /// Records that the stream of a direction was inspected after its session became encrypted.
    pub(crate) fn mark_encrypted(&mut self, direction: Direction) {
        self.veiled[direction] = true;
    }

    /// Whether [`FlowDetect::mark_encrypted`] was called for the direction.
    pub(crate) fn is_veiled(&self, direction: Direction) -> bool {
        self.veiled[direction]
    }

    /// Notes the outcome of a look at a direction's transactions, for the next packets.
    pub(crate) fn set_outcome(&mut self, direction: Direction, settled: Settled) {
        self.settled[direction] = settled;
    }

    /// The outcome of the last look at a direction's transactions.
    pub(crate) fn outcome(&self, direction: Direction) -> Settled {
        self.settled[direction]
    }

    /// Drops the state of the streams when the flow's directions are exchanged.
    pub(crate) fn turn(&mut self, turned: bool) {
        if self.turned != turned {
            self.turned = turned;
            self.settled = PerDirection::default();
            self.unnamed = PerDirection::default();
            self.windows = None;
            self.veiled = PerDirection::default();
            self.refused = None;
        }
    }

    /// Records bytes of a direction's stream that a rule refuses with their packet.
    pub(crate) fn refuse_bytes(&mut self, direction: Direction, bytes: RefusedBytes) {
        let side = &mut self.refused.get_or_insert_default()[direction];
        *side = Some(bytes.and(*side));
    }

    /// The rule that refused bytes which a segment brings again. `seq`: the segment's first sequence number;
    /// `length`: its number of bytes.
    pub fn refuses_again(&mut self, direction: Direction, seq: u32, length: u32) -> Option<RuleId> {
        let side = &mut self.refused.as_deref_mut()?[direction];
        *side = side.filter(|bytes| !bytes.is_far(seq));
        side.filter(|bytes| bytes.meets(seq, length)).map(|bytes| bytes.rule)
    }

    /// Scan state of the window on a direction's stream, for the generation's set of literals.
    pub(crate) fn window(&mut self, direction: Direction) -> &mut WindowScan {
        &mut self.windows.get_or_insert_default()[direction]
    }

    /// Whether the rules on addresses were evaluated for this direction already.
    #[must_use]
    pub fn ip_only_done(&self, direction: Direction) -> bool {
        self.ip_only_done.get(direction as usize).copied().unwrap_or(false)
    }

    /// Records that the rules on addresses were evaluated for this direction.
    pub fn set_ip_only_done(&mut self, direction: Direction) {
        if let Some(done) = self.ip_only_done.get_mut(direction as usize) {
            *done = true;
        }
    }

    /// Whether it is known that no rule which is found by an address names an end of the flow's packets in
    /// this direction.
    pub(crate) fn is_unnamed(&self, direction: Direction) -> bool {
        self.unnamed[direction]
    }

    /// Records that no such rule names an end of the flow's packets in this direction.
    pub(crate) fn set_unnamed(&mut self, direction: Direction) {
        self.unnamed[direction] = true;
    }

    /// Whether the state of any transaction is kept.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        !self.tx.is_empty()
    }

    /// Position of a transaction, or the position at which to insert it.
    fn place_of_tx(&self, id: TxId) -> Result<usize, usize> {
        // Most flows have one transaction at a time, and inspect the newest one.
        match self.tx.back() {
            None => Err(0),
            Some(last) if last.id == id => Ok(self.tx.len().saturating_sub(1)),
            Some(last) if last.id < id => Err(self.tx.len()),
            Some(_) => self.tx.binary_search_by_key(&id, |t| t.id),
        }
    }

    fn tx(&self, id: TxId) -> Option<&TxState> {
        self.tx.get(self.place_of_tx(id).ok()?)
    }

    fn tx_mut(&mut self, id: TxId) -> Option<&mut TxState> {
        let at = match self.place_of_tx(id) {
            Ok(at) => at,
            Err(mut at) => {
                if self.tx.len() >= TRANSACTIONS_MAX
                    && let Some(oldest) = self.tx.pop_front()
                {
                    self.tx_held = self.tx_held.saturating_sub(oldest.held());
                    at = at.saturating_sub(1);
                }
                self.tx.insert(at, TxState { id, ..TxState::default() });
                at
            }
        };
        self.tx.get_mut(at)
    }

    /// Counts an alert that shows a transaction by guess; `false` when the limit is reached.
    pub fn guess(&mut self, id: TxId, limit: u8) -> bool {
        let Some(tx) = self.tx_mut(id) else { return false };
        let more = tx.guessed < limit;
        tx.guessed = tx.guessed.saturating_add(1);
        more
    }

    /// Marks a transaction as over; it is forgotten when the flow's next packet comes.
    pub(crate) fn set_over(&mut self, id: TxId) {
        if let Ok(at) = self.place_of_tx(id)
            && let Some(tx) = self.tx.get_mut(at)
        {
            tx.over = true;
            self.some_over = true;
        }
    }

    /// Forgets the transactions that are over.
    pub(crate) fn forget_over(&mut self) {
        if !core::mem::take(&mut self.some_over) {
            return;
        }
        let mut held = 0usize;
        self.tx.retain(|tx| {
            held = held.saturating_add(if tx.over { tx.held() } else { 0 });
            !tx.over
        });
        self.tx_held = self.tx_held.saturating_sub(held);
        self.shrink();
    }

    /// Forgets a transaction.
    pub fn forget_tx(&mut self, id: TxId) {
        if let Ok(at) = self.place_of_tx(id)
            && let Some(tx) = self.tx.remove(at)
        {
            self.tx_held = self.tx_held.saturating_sub(tx.held());
            self.shrink();
        }
    }

    /// Releases the memory of a long list that is empty.
    fn shrink(&mut self) {
        if self.tx.is_empty() && self.tx.capacity() > ROOM_KEPT {
            self.forget_all_tx();
        }
    }

    fn forget_all_tx(&mut self) {
        self.tx = VecDeque::new();
        self.tx_held = 0;
    }

    /// Changes the state of a transaction and updates the memory count.
    fn change(&mut self, id: TxId, change: impl FnOnce(&mut TxState)) {
        let Some(tx) = self.tx_mut(id) else { return };
        let before = tx.held();
        change(tx);
        let after = tx.held();
        self.tx_held = self.tx_held.saturating_add(after).saturating_sub(before);
    }

    /// A rule's progress with a transaction.
    #[must_use]
    pub fn entry(&self, id: TxId, rule: u32, side: Side) -> RuleProgress {
        self.tx(id)
            .and_then(|t| t.entries.get(t.place_of(rule, side).ok()?))
            .copied()
            .unwrap_or(RuleProgress { rule, side, ..RuleProgress::default() })
    }

    /// Stores a rule's progress.
    pub fn set_entry(&mut self, id: TxId, entry: RuleProgress) {
        self.change(id, |tx| match tx.place_of(entry.rule, entry.side) {
            Ok(at) => {
                if let Some(known) = tx.entries.get_mut(at) {
                    *known = entry;
                }
            }
            Err(at) => tx.entries.insert(at, entry),
        });
    }

    /// Calls `found` for the rules that have begun with a transaction and can still match in a direction.
    pub fn pending(&self, id: TxId, direction: Direction, mut found: impl FnMut(u32)) {
        if let Some(tx) = self.tx(id) {
            let concerns = |e: &&RuleProgress| e.side == Side::Both || e.side == Side::Of(direction);
            for entry in tx.entries.iter().filter(|e| e.status == RuleTxStatus::Pending).filter(concerns) {
                found(entry.rule);
            }
        }
    }

    /// The sets that were scanned for a transaction.
    #[must_use]
    pub(crate) fn sets_scanned(&self, id: TxId, direction: Direction) -> SetsScanned {
        SetsScanned(self.tx(id).and_then(|t| t.scanned.get(direction as usize)).copied().unwrap_or(0))
    }

    /// Records that a set was scanned. Sets beyond the 64th are scanned again each time, which is slower and
    /// never wrong.
    pub fn set_scanned(&mut self, id: TxId, direction: Direction, set: usize) {
        let bit = 1u64.checked_shl(set as u32).unwrap_or(0);
        if let Some(scanned) = self.tx_mut(id).and_then(|t| t.scanned.get_mut(direction as usize)) {
            *scanned |= bit;
        }
    }

    /// Index in the visible part of a growing value at which to continue the scan.
    /// `offset`: position of the part's first byte in the value; `longest`: length of the longest literal.
    #[must_use]
    pub fn scan_from(
        &self,
        id: TxId,
        direction: Direction,
        value: ScannedValue,
        offset: u64,
        longest: usize,
    ) -> usize {
        let done = self.scanned_to(id, GrowthKey::new(direction, value.set, value.index));
        let from = done.saturating_sub(longest.saturating_sub(1) as u64).saturating_sub(offset);
        usize::try_from(from).unwrap_or(usize::MAX)
    }

    /// Records up to which offset a growing value was scanned.
    pub fn set_scanned_to(&mut self, id: TxId, direction: Direction, value: ScannedValue, end: u64) {
        self.note_scanned(id, GrowthKey::new(direction, value.set, value.index), end);
    }

    /// Number of values of a multi-value buffer that were scanned.
    #[must_use]
    pub fn values_scanned(&self, id: TxId, direction: Direction, set: usize) -> u32 {
        u32::try_from(self.scanned_to(id, GrowthKey::new(direction, set, VALUES))).unwrap_or(VALUES)
    }

    /// Records the number of scanned values.
    pub fn set_values_scanned(&mut self, id: TxId, direction: Direction, set: usize, values: u32) {
        self.note_scanned(id, GrowthKey::new(direction, set, VALUES), u64::from(values));
    }

    fn scanned_to(&self, id: TxId, key: GrowthKey) -> u64 {
        self.tx(id)
            .and_then(|t| t.growing.iter().find(|growth| growth.key == key))
            .map_or(0, |growth| growth.end)
    }

    fn note_scanned(&mut self, id: TxId, key: GrowthKey, end: u64) {
        self.change(id, |tx| match tx.growing.iter_mut().find(|growth| growth.key == key) {
            Some(known) => known.end = end,
            None => tx.growing.push(ScannedGrowth { key, end }),
        });
    }
}

impl SlotState for FlowDetect {
    fn held(&self) -> usize {
        let of = |windows: &PerDirection<WindowScan>| {
            windows.to_server.held().saturating_add(windows.to_client.held())
        };
        let windows =
            self.windows.as_deref().map_or(0, |windows| of(windows).saturating_add(size_of_val(windows)));
        let transactions = self.tx.held().saturating_add(self.tx_held);
        let refused = self.refused.as_deref().map_or(0, size_of_val);
        transactions.saturating_add(windows).saturating_add(self.state.held()).saturating_add(refused)
    }

    fn release_state(&mut self) {
        self.forget_all_tx();
        self.windows = None;
    }

    fn describe(&self) -> FlowDescription<'_> {
        let state = &self.state;
        let decided = [
            (state.dropped.is_some(), OfFlow::Refuses),
            (state.accepted.is_some(), OfFlow::Accepts),
            (state.passed.is_some(), OfFlow::Passes),
        ];
        FlowDescription {
            decided: decided.into_iter().find_map(|(is, of_flow)| is.then_some(of_flow)),
            bits: state.bits(),
            integers: state.integers(),
            variables: state.variables(),
            measures: state.measures(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_own_progress_by_side_whatever_the_order() {
        let mut flow = FlowDetect::default();
        let sides = [Side::Both, Side::Of(Direction::ToServer), Side::Of(Direction::ToClient)];
        let order = |n: u64| (n * 7919 % 101, n);
        for (rule, n) in (0..101).map(order) {
            for (at, side) in sides.into_iter().enumerate() {
                let entry = RuleProgress {
                    rule: rule as u32,
                    side,
                    held: n * 3 + at as u64,
                    ..RuleProgress::default()
                };
                flow.set_entry(5, entry);
                flow.set_entry(5, RuleProgress { status: RuleTxStatus::Matched, ..entry });
            }
        }
        for (rule, n) in (0..101).map(order) {
            for (at, side) in sides.into_iter().enumerate() {
                let entry = flow.entry(5, rule as u32, side);
                assert_eq!(
                    (entry.status, entry.held),
                    (RuleTxStatus::Matched, n * 3 + at as u64),
                    "{rule} {side:?}"
                );
            }
        }
        assert_eq!(flow.tx(5).unwrap().entries.len(), 303);
        assert_eq!(flow.entry(5, 500, Side::Both).status, RuleTxStatus::Pending);
    }

    #[test]
    fn what_is_held_is_counted_and_let_go_of() {
        let mut flow = FlowDetect::default();
        assert_eq!(flow.held(), 0);
        for id in 0..TRANSACTIONS_MAX as u64 * 2 {
            for rule in 0..9 {
                flow.set_entry(id, RuleProgress { rule, ..RuleProgress::default() });
                flow.set_scanned_to(
                    id,
                    Direction::ToServer,
                    ScannedValue { set: rule as usize, index: 0 },
                    7,
                );
            }
        }
        let counted: usize = flow.tx.iter().map(TxState::held).sum();
        assert!(counted > 0 && flow.tx_held == counted, "{} {counted}", flow.tx_held);
        let held = flow.held();
        assert!(held >= counted + TRANSACTIONS_MAX * size_of::<TxState>(), "{held}");
        let remembered = TRANSACTIONS_MAX as u64..TRANSACTIONS_MAX as u64 * 2;
        remembered.for_each(|id| flow.forget_tx(id));
        assert_eq!((flow.held(), flow.tx.capacity()), (0, 0), "a burst leaves nothing behind");

        flow.set_entry(1, RuleProgress::default());
        flow.state.set_variable(1, &[0; 1000]);
        flow.state.set_bit(1);
        flow.release_state();
        assert!(!flow.has_transactions() && flow.state.bit(1) && flow.state.variable(1).is_some());
        let variable = flow.held();
        assert!((1000..1400).contains(&variable), "{variable}");
        flow.state.set_variable(1, &[0; 10]);
        assert!(flow.held() < variable - 900, "{}", flow.held());

        let without = flow.held();
        flow.window(Direction::ToClient);
        assert_eq!(flow.held() - without, 2 * size_of::<WindowScan>(), "a stream's windows, both directions");
        flow.release_state();
        assert_eq!(flow.held(), without);
    }
}
