// SPDX-License-Identifier: Apache-2.0
//! A family of scenes, and the rules that are wanted on one.

use crate::pair::Rule;
use crate::scene::{Scene, Target};
use crate::states::action;
use bartizan_testkit::random::Random;

/// A family of scenes.
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Makes a scene.
    pub scene: fn(&mut Random) -> Scene,
    /// Conditions of its own that a rule may have.
    pub conditions: &'static [&'static str],
    /// Makes a rule on one of the scene's targets.
    pub rule: Maker,
}

/// Makes a rule, and the name of the way in which it looks.
pub type Maker = fn(&mut Random, &Order<'_>) -> (String, Rule);

/// The rule that is wanted.
pub struct Order<'a> {
    /// The conversation.
    pub scene: &'a Scene,
    /// The bytes to look at.
    pub target: &'a Target,
    /// Conditions of the family.
    pub conditions: &'static [&'static str],
    /// How many rules in a hundred have a condition beside the bytes.
    pub extra: usize,
    /// The rule's action; `None`: any.
    pub action: Option<&'static str>,
}

impl Order<'_> {
    /// The rule with this head and these options.
    #[must_use]
    pub fn rule(&self, random: &mut Random, head: String, options: Vec<String>) -> Rule {
        Rule { action: self.action.unwrap_or_else(|| action(random)), head, options }
    }
}
