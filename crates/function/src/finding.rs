// SPDX-License-Identifier: Apache-2.0
//! The findings of a function.

use bartizan_base::{Reason, RuleId};
use std::sync::Arc;

/// The fields of a rule in events.
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
    /// Whether the packet's source, or its destination, is the target of the attack.
    pub target_is_source: Option<bool>,
    /// Text of the rule.
    pub text: String,
    /// A firewall rule: the name of its hook in events, and its actions.
    pub firewall: Option<(Option<String>, String)>,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingAction {
    /// Reported; this rule does not stop the packet.
    Allowed,
    /// Refused: EVE's `blocked`.
    Blocked,
    /// No match to report: the rule refuses the packet, and the record of the refusal names the rule.
    Refusing,
    /// No match to report: rules set variables for this packet.
    Variables,
    /// No match: an earlier match requires this packet to be recorded (keyword `tag`).
    Tagged,
}

/// The sides that get an answer to a refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectTo {
    /// The sender of the packet.
    Source,
    /// The receiver of the packet.
    Destination,
    /// Both sides.
    Both,
}

/// A match, to be reported as an alert.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Arc<RuleInfo>,
    /// The effect of the rule.
    pub action: FindingAction,
    /// Number of the transaction that matched.
    pub tx: Option<u64>,
    /// Number of the frame that matched, in the packet's direction.
    pub frame: Option<u64>,
    /// The transaction is a guess: the rule inspects packets or the stream.
    pub guessed: bool,
    /// It matched on stream data.
    pub stream: bool,
    /// A rate filter turned its action into one that does not refuse, and another rule refuses the packet, or
    /// would: EVE calls it `blocked`.
    pub refused_beside: bool,
    /// Context of the match from the rule and its data sets, as the members of a JSON object.
    pub context: Option<Box<[u8]>>,
    /// Variables that rules set for the packet.
    pub variables: Arc<[(String, Vec<u8>)]>,
}

/// Generator id of findings for would-be refusals of a staged policy.
pub const STAGED_GID: u32 = 9_000;

/// The rule of findings for would-be refusals of a staged policy: its sid is the reason's number plus 1.
/// `function`: the function that would refuse; `None`: the engine.
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
    /// Whether the rule refuses the packet.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, FindingAction::Blocked | FindingAction::Refusing)
    }

    /// Whether it is an alert, rather than only data to record.
    #[must_use]
    pub const fn is_alert(self) -> bool {
        matches!(self, FindingAction::Allowed | FindingAction::Blocked)
    }
}

impl Finding {
    /// A match of a rule without a transaction or context.
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

/// Bytes to be replaced in a packet's payload. Only the normaliser replaces them, and only inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Offset in the payload.
    pub offset: u32,
    /// The new bytes.
    pub bytes: Vec<u8>,
}
