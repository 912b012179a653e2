// SPDX-License-Identifier: Apache-2.0
//! Defines the keyword: a table entry whose `parse` adds to the signature under construction.
//!
//! A keyword is one file in `keywords/` (families of small keywords of one kind share a file) and one line in
//! `keywords/mod.rs`. The doc comment of [`Keyword::summary`] becomes its page of the reference.

use crate::compile::builder::SignatureBuilder;
pub use crate::compile::refusal::{KeywordError, RefusalCode};

/// One keyword of the rule language.
pub struct Keyword {
    /// Name in rules.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// One sentence for the reference about the packets or data that the keyword matches.
    pub summary: &'static str,
    /// Whether and how an argument is given.
    pub argument: Argument,
    /// The keyword's role in the rule, which also decides how its effect is verified.
    pub role: Role,
    /// Syntax of the keyword; words in capitals are placeholders.
    pub syntax: &'static str,
    /// An example rule with this keyword; a test loads it.
    pub example: &'static str,
    /// Differences from Suricata 8, and limits; empty if there are none.
    pub note: &'static str,
    /// Adds the keyword to the signature. The argument is the text after the colon, blanks around it removed,
    /// quotes and escapes still in place; empty when there is none.
    pub parse: ParseFn,
}

/// See [`Keyword::parse`].
pub type ParseFn = fn(&mut SignatureBuilder<'_>, &[u8]) -> Result<(), KeywordError>;

/// The role of a keyword in its rule.
///
/// No keyword is accepted and then ignored: a `Condition`, `Modifier`, `Effect` or `Limit` increases
/// [`crate::compile::builder::SignatureBuilder::weight`], and the loader refuses a rule where it does not.
/// Conditions, effects and limits are traits that the inspection calls for every rule. Requests to the
/// program around the engine are [`crate::model::request::Request`]s, which their executor matches without a
/// wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Must hold for the rule to match (or changes the value that the next condition inspects).
    Condition,
    /// Changes the content before it.
    Modifier,
    /// Selects the data that the following keywords inspect; a buffer without a condition is refused.
    Buffer,
    /// Acts when the rule matches.
    Effect,
    /// Limits how often a match counts.
    Limit,
    /// Describes the rule; the rule language reads it, and events show it.
    Description,
    /// Speeds up the search for the rule; matches are the same without it.
    Hint,
    /// Decides whether the rule is loaded.
    Gate,
}

impl Role {
    /// Name in the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Condition => "condition",
            Role::Modifier => "modifier",
            Role::Buffer => "buffer",
            Role::Effect => "effect",
            Role::Limit => "limit",
            Role::Description => "description",
            Role::Hint => "hint",
            Role::Gate => "gate",
        }
    }

    /// Whether a keyword of this role must add weight to the signature.
    #[must_use]
    pub const fn must_weigh(self) -> bool {
        match self {
            Role::Condition | Role::Modifier | Role::Effect | Role::Limit => true,
            Role::Buffer | Role::Description | Role::Hint | Role::Gate => false,
        }
    }
}

/// Whether a keyword takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// `keyword;`
    None,
    /// `keyword:value;`
    Required,
    /// Either.
    Optional,
}
