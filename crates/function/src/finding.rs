// SPDX-License-Identifier: Apache-2.0
//! What a function reports about traffic.

use bartizan_base::{Reason, RuleId};
use std::sync::Arc;

/// What is told of a rule in events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInfo {
    /// gid, sid, rev.
    pub id: RuleId,
    /// `msg`.
    pub message: String,
    /// Text of the class.
    pub category: String,
    /// 1 is the most severe.
    pub severity: u32,
    /// References, as addresses.
    pub references: Vec<String>,
    /// Metadata: names and values, most of which many rules share.
    pub metadata: Vec<(Arc<str>, Arc<str>)>,
    /// Whose side is the target: the packet's source or destination.
    pub target_is_source: Option<bool>,
    /// Text of the rule.
    pub text: String,
    /// Of a rule of the firewall: what events call its hook, and its actions.
    pub firewall: Option<(Option<String>, String)>,
}

/// What the rule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingAction {
    /// Reported; the packet goes on as far as this rule is concerned.
    Allowed,
    /// Refused: EVE's `blocked`.
    Blocked,
    /// No match to report: the rule refuses the packet, and the record of that names it.
    Refusing,
    /// No match to report: rules set variables for this packet.
    Variables,
    /// No match: an earlier one asked for this packet to be recorded (keyword `tag`).
    Tagged,
}

/// Who is told of a refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectTo {
    /// The sender of the packet.
    Source,
    /// The receiver.
    Destination,
    /// Both.
    Both,
}

/// A match that is to be reported as an alert.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Arc<RuleInfo>,
    /// What it did.
    pub action: FindingAction,
    /// Number of the transaction that it is about.
    pub tx: Option<u64>,
    /// Number of the frame that it is about, in the packet's direction.
    pub frame: Option<u64>,
    /// The transaction is a guess: the rule looks at packets or the stream.
    pub guessed: bool,
    /// It matched on stream data.
    pub stream: bool,
    /// A rate filter gave it an action that refuses nothing, and another rule refuses the packet, or would:
    /// EVE calls it `blocked`.
    pub refused_beside: bool,
    /// What the rule and its data sets say of the match, as the members of a JSON object; `None` for nothing.
    pub context: Option<Box<[u8]>>,
    /// Variables that rules set for the packet.
    pub variables: Arc<[(String, Vec<u8>)]>,
}

/// Generator id of findings about what a staged policy would refuse.
pub const STAGED_GID: u32 = 9_000;

/// The rule that stands in findings for what a staged policy would refuse: its sid is the reason's number
/// plus 1. `function`: who would; `None`: the engine.
#[must_use]
pub fn would_refuse(function: Option<&str>, reason: Reason) -> Arc<RuleInfo> {
    let name = function.unwrap_or("the engine");
    Arc::new(RuleInfo {
        id: RuleId { gid: STAGED_GID, sid: reason as u32 + 1, rev: 1 },
        message: format!("staged policy: {name} would refuse this ({})", reason.name()),
        category: "staged".to_owned(),
        severity: 3,
        ..RuleInfo::default()
    })
}

impl FindingAction {
    /// Whether it refuses the packet.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, FindingAction::Blocked | FindingAction::Refusing)
    }

    /// Whether it is an alert, not only something to be recorded.
    #[must_use]
    pub const fn is_alert(self) -> bool {
        matches!(self, FindingAction::Allowed | FindingAction::Blocked)
    }
}

impl Finding {
    /// A match of a rule, of no transaction and with nothing more to say.
    #[must_use]
    pub fn new(rule: Arc<RuleInfo>, action: FindingAction) -> Self {
        Finding {
            rule,
            action,
            tx: None,
            frame: None,
            guessed: false,
            stream: false,
            refused_beside: false,
            context: None,
            variables: Arc::default(),
        }
    }
}

/// Bytes of a packet's payload that a function wants replaced. Only the normaliser does it, and only inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Where in the payload.
    pub offset: u32,
    /// What is put there.
    pub bytes: Vec<u8>,
}
