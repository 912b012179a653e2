// SPDX-License-Identifier: Apache-2.0
//! What levels of links really do, and which rules nobody evaluates: a part of the acknowledgement of a
//! generation, of version 4 on.

use super::body;
use super::error::DecodeError;
use super::ids::Hash;
use super::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a level of a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelState {
    /// It handles packets.
    On,
    /// It handles none: it is not there for now, and the host handles all packets, if the link has its
    /// interfaces.
    Off,
    /// Somebody who is to serve its link gives no sign of life: packets go on uninspected.
    Open,
    /// The same: packets are dropped.
    Closed,
}

/// A rule, and why it is not evaluated where it is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLeftOut {
    /// Which: `acme/web: rule 3 of pfw`, `web.rules:12: 1:2001`.
    pub rule: String,
    /// What it asks for, or what is wrong with it.
    pub why: String,
}

/// Rules that are not evaluated somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The first of them, [`limits::LEFT_OUT`] at most.
    pub first: Vec<RuleLeftOut>,
}

impl LeftOut {
    /// One rule more.
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

/// A text of a bounded length: a rule's file and message may be of any.
fn shortened(mut text: String) -> String {
    let cut = text.char_indices().find(|(at, letter)| at + letter.len_utf8() > limits::LEFT_OUT_BYTES);
    if let Some((at, _)) = cut {
        text.truncate(at);
    }
    text
}

/// What becomes of rules on headers at a level that asks them of packets without a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesAtLevel {
    /// Only while the level is open: else such packets go up.
    pub while_open: bool,
    /// Rules that it evaluates itself, by function.
    pub evaluates: BTreeMap<String, u64>,
    /// Rules that it does not: what they match goes up to the host, which asks them.
    pub left_out: LeftOut,
}

/// What a level of a link does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelStands {
    /// The link.
    pub link: String,
    /// The level (`host`, `xdp`, `rtl`).
    pub level: String,
    /// The generation whose entries and rules act there; 0: none of the controller's, or the level is off.
    pub generation: u64,
    /// How it stands.
    pub state: LevelState,
    /// Why it does not stand as it should; empty if it does.
    pub why: String,
    /// What it makes of rules; none if it is asked for none: then it handles flows of which the host has
    /// decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesAtLevel>,
}

/// What levels do, and which rules the device as a whole does not evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stands {
    /// Level by level of each link.
    pub levels: Vec<LevelStands>,
    /// Rules of libraries that nobody evaluates: no rules, or with keywords and protocols that the device
    /// does not have.
    pub left_out: LeftOut,
    /// Content hashes of the device's own files; of version 6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<LocalContent>,
}

/// Content hashes of files that no controller has sent ([`crate::content`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalContent {
    /// Files that rules name, reputations, locations.
    pub lists: Hash,
    /// Host file, suricata.yaml and what they name.
    pub settings: Hash,
}

impl Stands {
    /// Whether it is the same but for the generation, which is this one at each level that is there.
    pub(super) fn is_of(&self, generation: u64, before: &Stands) -> bool {
        let same = |(now, before): (&LevelStands, &LevelStands)| {
            let generation = if before.generation == 0 { 0 } else { generation };
            *now == LevelStands { generation, ..before.clone() }
        };
        (&self.left_out, &self.content) == (&before.left_out, &before.content)
            && self.levels.len() == before.levels.len()
            && self.levels.iter().zip(&before.levels).all(same)
    }

    /// The same of another generation.
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
