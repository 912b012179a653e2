// SPDX-License-Identifier: Apache-2.0
//! The inputs on which a flow's disposition ([`crate::standing`]) rests, and its renewal in another
//! generation, which decides anew on everything that rests on a generation.
//!
//! | disposition | rests on | in another generation |
//! |---|---|---|
//! | class, path without the functions that are done | policies, rules | looked up anew: all functions of the new path judge again |
//! | redirected to a named port | rules | judged anew |
//! | bypassed: no function is left | the path | ends when the new path has a function |
//! | payload ended: a parser, the depth of the stream or an exception policy ends inspection of the payload | the flow's bytes, settings | stays: payload functions are not on the new path |
//! | passed by an exception policy | settings | stays |
//! | refused by an exception policy | settings | stays while payload functions are on the path: the policy is about inspection |
//! | unopened: headers refuse its packets from the first on | policies, rules | judged anew; in any generation a packet of the other side opens a new flow |
//! | refused packet by packet, each alike | policies, rules | judged anew |
//! | refused by a function for all of the flow | its rules | TCP: stays while payload functions are on the path and the policy is not staged; others: judged anew |
//! | segments were forwarded that the engine would have refused (a staged policy, no payload function on the path) | the flow's bytes | TCP: refused once payload functions of a policy that enforces are on the path |
//!
//! A refused TCP connection is not resumed while a payload function is on its path: the refused bytes would
//! be retransmitted, and count as inspected. As in Suricata the connection stays refused, even when the rule
//! is removed; its ends open another one.
//!
//! Streams are read while a payload function is on the path. When the last one leaves, reassembly ends and
//! its memory is freed; when one arrives, reading begins with the next byte that the session expects, and the
//! parsers are notified of the missed bytes. So the session of a bypassed flow is tracked, without streams
//! and counters: a function that comes onto its path finds the session up to date, and a new connection of
//! the same ports is a new flow.

use crate::chain::{Chains, Enforcement};
use crate::class::classify_flow;
use crate::record::Entry;
use bartizan_base::{Decision, FunctionId, Reason, Verdict};
use bartizan_flow::FlowState;

/// Renews the class and disposition of a flow from another generation; the state of functions stays. Returns
/// the flow's new state, if that changes.
pub fn renew(entry: &mut Entry, chains: &Chains) -> Option<FlowState> {
    if entry.generation == chains.generation {
        return None;
    }
    // A frame that another worker began in an earlier generation does not lift any refusal.
    let forward = entry.generation < chains.generation;
    let class = classify_flow(chains, entry);
    let before = chains.payload_part(entry.path);
    (entry.fid, entry.path, entry.generation) = (class.fid, class.path, chains.generation);
    entry.ext.by_content = chains.wants_payload(class.path);
    entry.ext.stays = None;
    entry.ext.quota = entry.ext.quota.take().or_else(|| chains.quotas.place_of_known(entry.tenant()));
    entry.ext.standing.forget_repeated();
    if forward && entry.ext.standing.refusal().is_some_and(|refused| !still_applies(&refused, entry, chains))
    {
        entry.ext.standing.lift();
    }
    if forward && is_unknown(entry, chains) {
        let decision = Decision::refuse(Verdict::Drop, Reason::ExceptionFlow, FunctionId::ENGINE);
        entry.ext.standing.refuse_by_exception(&decision);
    }
    if entry.ext.standing.is_payload_ended() {
        entry.path = chains.header_part(entry.path);
    }
    let joined = chains.payload_part(entry.path).and_not(before);
    if !joined.is_empty()
        && let Some(app) = entry.ext.app.as_deref_mut()
    {
        app.show_to(joined);
    }
    let lifts = entry.state() == FlowState::LocalBypassed && !entry.path.is_empty();
    lifts.then(|| unbypassed(entry))
}

/// Whether a refusal of a flow still applies in the generation that has just classified the flow.
fn still_applies(refused: &Decision, entry: &Entry, chains: &Chains) -> bool {
    if !chains.wants_payload(entry.path) {
        return false;
    }
    let by_exception = refused.reason == Some(Reason::ExceptionFlow);
    by_exception || entry.key().protocol() == 6 && !chains.is_staged(entry.fid)
}

/// Whether payload functions of an enforcing policy come to a connection of which the engine would have
/// refused forwarded segments: the bytes that the receiver has read, and their number, are unknown.
fn is_unknown(entry: &Entry, chains: &Chains) -> bool {
    entry.ext.standing.is_stray()
        && entry.key().protocol() == 6
        && chains.wants_payload(entry.path)
        && chains.policies().enforcement(entry.fid) == Enforcement::Enforced
}

/// The state that a flow would have if it had not been bypassed.
fn unbypassed(entry: &Entry) -> FlowState {
    if entry.key().protocol() == 6 && entry.ext.session.exists() {
        return tcp_state(entry.ext.session.state().flow_state());
    }
    if entry.both_seen() { FlowState::Established } else { FlowState::New }
}

/// The flow state for a TCP session's phase.
pub const fn tcp_state(state: bartizan_flow::tcp::SessionPhase) -> FlowState {
    match state {
        bartizan_flow::tcp::SessionPhase::New => FlowState::New,
        bartizan_flow::tcp::SessionPhase::Established => FlowState::Established,
        bartizan_flow::tcp::SessionPhase::Closed => FlowState::Closed,
    }
}
