// SPDX-License-Identifier: Apache-2.0
//! A family of scenes, and the order for a rule on a scene.

use crate::pair::Rule;
use crate::scene::{Scene, Target};
use crate::states::action;
use bartizan_testkit::random::Random;

/// A family of scenes.
pub struct Family {
    /// Name of the family.
    pub name: &'static str,
    /// Makes a scene.
    pub scene: fn(&mut Random) -> Scene,
    /// Additional conditions for this family's rules.
    pub conditions: &'static [&'static str],
    /// Makes a rule on one of the scene's targets.
    pub rule: Maker,
}

/// Makes a rule, and returns the name of its way to match.
pub type Maker = fn(&mut Random, &Order<'_>) -> (String, Rule);

/// The order for a rule.
pub struct Order<'a> {
    /// The conversation.
    pub scene: &'a Scene,
    /// The bytes to match.
    pub target: &'a Target,
    /// Conditions of the family.
    pub conditions: &'static [&'static str],
    /// Percentage of rules that have a condition besides the bytes.
    pub extra: usize,
    /// The rule's action; `None`: any.
    pub action: Option<&'static str>,
}

impl Order<'_> {
    /// Makes the rule with this head and these options.
    #[must_use]
    pub fn rule(&self, random: &mut Random, head: String, options: Vec<String>) -> Rule {
        Rule { action: self.action.unwrap_or_else(|| action(random)), head, options }
    }
}
