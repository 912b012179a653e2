// SPDX-License-Identifier: Apache-2.0
//! What a keyword is: a table entry whose `parse` adds to the signature that is being built.
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
    /// One sentence for the reference: what it matches.
    pub summary: &'static str,
    /// Whether and how an argument is given.
    pub argument: Argument,
    /// What it is to the rule, and by that how it is known to have an effect.
    pub role: Role,
    /// How it is written; capitals stand for what the author fills in.
    pub syntax: &'static str,
    /// A rule with it that loads; a test loads it.
    pub example: &'static str,
    /// Where it differs from Suricata 8, and its limits; empty where there is nothing to say.
    pub note: &'static str,
    /// Adds the keyword to the signature. The argument is the text after the colon, blanks around it removed,
    /// quotes and escapes still in place; empty when there is none.
    pub parse: ParseFn,
}

/// See [`Keyword::parse`].
pub type ParseFn = fn(&mut SignatureBuilder<'_>, &[u8]) -> Result<(), KeywordError>;

/// What a keyword is to its rule.
///
/// No keyword is taken and then ignored: what a `Condition`, `Modifier`, `Effect` or `Limit` adds is seen in
/// [`crate::compile::builder::SignatureBuilder::weight`], and the loader refuses a rule in which it added
/// nothing. Conditions, effects and limits are traits that inspection calls for every rule; what is asked of
/// the program around the engine is a [`crate::model::request::Request`], which whoever carries it out
/// matches without a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Must hold for the rule to match (or changes the value that the next one looks at).
    Condition,
    /// Changes the content before it.
    Modifier,
    /// Chooses what the keywords behind it look at; a buffer that nothing is asked of is refused.
    Buffer,
    /// Does something when the rule matches.
    Effect,
    /// Says how often a match counts.
    Limit,
    /// Describes the rule; read by the rule language, shown in events.
    Description,
    /// Says how the rule may be found faster: what matches is the same without it.
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

    /// Whether it must leave something in the signature.
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
