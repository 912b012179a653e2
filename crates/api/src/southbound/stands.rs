// SPDX-License-Identifier: Apache-2.0
//! The state of links' levels, and the rules that are not evaluated: a part of the acknowledgement of a
//! generation, from version 4 on.

use super::body;
use super::error::DecodeError;
use super::ids::Hash;
use super::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a level on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelState {
    /// The level handles packets.
    On,
    /// The level is unavailable for now: the host handles all packets, if the link has its interfaces.
    Off,
    /// The program that serves the link shows no sign of life, and the link fails open: packets pass
    /// uninspected.
    Open,
    /// The program that serves the link shows no sign of life, and the link fails closed: packets are
    /// dropped.
    Closed,
}

/// A rule that is not evaluated at some place, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLeftOut {
    /// The rule: `acme/web: rule 3 of pfw`, `web.rules:12: 1:2001`.
    pub rule: String,
    /// The feature that is missing, or the error in the rule.
    pub why: String,
}

/// Summary of rules that are not evaluated at some place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Number of the rules that are left out.
    pub count: u64,
    /// The first of the rules that are left out, at most [`limits::LEFT_OUT`].
    pub first: Vec<RuleLeftOut>,
}

impl LeftOut {
    /// Counts a rule; lists it if there is room.
    pub fn add(&mut self, one: impl FnOnce() -> RuleLeftOut) {
        self.count += 1;
        if self.first.len() < limits::LEFT_OUT {
            let RuleLeftOut { rule, why } = one();
            self.first.push(RuleLeftOut { rule: shortened(rule), why: shortened(why) });
        }
    }

    fn check(&self) -> Result<(), DecodeError> {
        body::bound("running", "rules that are left out by name", self.first.len(), limits::LEFT_OUT)
    }
}

/// Cuts a text to its bound: a rule's file and message may be of any length.
fn shortened(mut text: String) -> String {
    let cut = text.char_indices().find(|(at, letter)| at + letter.len_utf8() > limits::LEFT_OUT_BYTES);
    if let Some((at, _)) = cut {
        text.truncate(at);
    }
    text
}

/// A level's evaluation of header rules on packets without a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesAtLevel {
    /// Whether the level drops packets without a flow only while it is open; if true, such packets otherwise
    /// go up to the host.
    pub while_open: bool,
    /// Number of rules that the level evaluates itself, by function.
    pub evaluates: BTreeMap<String, u64>,
    /// Rules that the level does not evaluate: packets that match them go up to the host.
    pub left_out: LeftOut,
}

/// The generation and state of a level on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelStands {
    /// The link.
    pub link: String,
    /// The level (`host`, `xdp`, `rtl`).
    pub level: String,
    /// The generation whose entries and rules act there; 0: none of the controller's, or the level is off.
    pub generation: u64,
    /// The state of the level.
    pub state: LevelState,
    /// Why the level is not in its intended state; empty if it is.
    pub why: String,
    /// The level's evaluation of header rules; `None` if it evaluates none and only handles flows that the
    /// host has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesAtLevel>,
}

/// The state of levels, and the rules that the device does not evaluate at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelStatus {
    /// The state of each level of each link.
    pub levels: Vec<LevelStands>,
    /// Rules of libraries that are not evaluated: malformed ones, and ones with keywords or protocols that
    /// the device does not have.
    pub left_out: LeftOut,
    /// Content hashes of the device's own files; from version 6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<LocalContent>,
}

/// Content hashes of files that did not come from a controller ([`crate::content`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalContent {
    /// Files that rules name, and files of reputations and locations.
    pub lists: Hash,
    /// Host file, suricata.yaml, and other files that they name.
    pub settings: Hash,
}

impl LevelStatus {
    /// Whether only the generation differs, and is this one at each level that is on.
    pub(super) fn is_of(&self, generation: u64, before: &LevelStatus) -> bool {
        let same = |(now, before): (&LevelStands, &LevelStands)| {
            let generation = if before.generation == 0 { 0 } else { generation };
            *now == LevelStands { generation, ..before.clone() }
        };
        (&self.left_out, &self.content) == (&before.left_out, &before.content)
            && self.levels.len() == before.levels.len()
            && self.levels.iter().zip(&before.levels).all(same)
    }

    /// Sets the generation of each level that is on.
    pub(super) fn advance(&mut self, generation: u64) {
        let there = self.levels.iter_mut().filter(|level| level.generation != 0);
        there.for_each(|level| level.generation = generation);
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        body::bound("running", "levels", self.levels.len(), limits::TOLD_LEVELS)?;
        self.left_out.check()?;
        self.levels
            .iter()
            .filter_map(|level| level.rules.as_ref())
            .try_for_each(|rules| rules.left_out.check())
    }
}
