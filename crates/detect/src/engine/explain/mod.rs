// SPDX-License-Identifier: Apache-2.0
//! Describes the compiled form of rules, for `bartizan explain` and `bartizan ctl trace`.
//!
//! * [`groups_of`]: the rules of a set that a flow's packets can meet;
//! * [`rule`]: one rule: its head, its prefilter, its conditions in the order of evaluation;
//! * [`trace`]: the reason why a rule matched, or did not, in a capture or on live traffic;
//! * [`words`]: conditions in words.
//!
//! The structures grow by adding fields; `--json` prints them.

pub mod rule;
pub mod trace;
pub mod words;

use crate::engine::header;
use crate::model::signature::{Kind, Signature};
use crate::ruleset::VisibleRules;
use bartizan_applayer::protocols;
use bartizan_base::Direction;
use bartizan_function::view::FlowView;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Number of rules up to which rules are listed by sid; more are only counted.
pub(crate) const SIDS_SHOWN: usize = 50;

/// Name of a rule's kind.
#[must_use]
pub const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::IpOnly => "addresses",
        Kind::LikeIpOnly => "addresses, for each packet",
        Kind::Detection => "protocol detection",
        Kind::Packet => "packet",
        Kind::PacketStream => "packet and stream",
        Kind::Stream => "stream",
        Kind::App => "application protocol",
        Kind::Tx => "transaction",
    }
}

/// The application protocols of a rule.
fn apps(signature: &Signature) -> Vec<&'static str> {
    let names = signature.protocol.app.iter().filter_map(|id| protocols::spec(*id));
    names.map(|spec| spec.name).collect()
}

/// The rules with a head that packets of a flow can match, independent of their payload: their number by
/// direction and kind, and their sids when they are few.
#[must_use]
pub fn groups_of(seen: &VisibleRules, flow: &FlowView<'_>) -> Value {
    let rules = &seen.rules;
    let visible = seen.visible.as_deref();
    let (mut total, mut to_server, mut to_client) = (0u64, 0u64, 0u64);
    let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut protocols: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut sids = Vec::new();
    for (index, signature) in (0..).zip(&rules.signatures) {
        if visible.is_some_and(|visible| !visible.has(index)) {
            continue;
        }
        let server = header::can_hold(signature, &rules.heads, flow, Direction::ToServer);
        let client = header::can_hold(signature, &rules.heads, flow, Direction::ToClient);
        if !server && !client {
            continue;
        }
        total += 1;
        to_server += u64::from(server);
        to_client += u64::from(client);
        *kinds.entry(kind_name(signature.kind)).or_default() += 1;
        for app in apps(signature) {
            *protocols.entry(app).or_default() += 1;
        }
        if sids.len() <= SIDS_SHOWN {
            sids.push(signature.id.sid);
        }
    }
    let mut said = json!({
        "total": total,
        "to_server": to_server,
        "to_client": to_client,
        "about": kinds,
        "app_protocols": protocols,
    });
    if sids.len() <= SIDS_SHOWN
        && let Some(said) = said.as_object_mut()
    {
        said.insert("sids".to_owned(), sids.into());
    }
    said
}
