// SPDX-License-Identifier: Apache-2.0
//! What a keyword is: a table entry whose `parse` adds to the signature that is being built.
//!
//! A keyword is one file in `keywords/` (families of small keywords of one kind share a file) and one line in
//! `keywords/mod.rs`. The doc comment of [`Keyword::summary`] becomes its page of the reference.

use crate::compile::builder::SignatureBuilder;

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

impl Keyword {
    /// Adds the keyword to the signature: [`Keyword::parse`], behind what holds of every argument.
    ///
    /// # Errors
    /// Quotes where the keyword takes none; what the keyword itself refuses.
    pub fn apply(&self, builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
        if argument.first() == Some(&b'"') && !crate::keywords::QUOTED.contains(&self.name) {
            return Err(KeywordError::argument(format!("`{}` takes no quotes around its value", self.name))
                .help("take the quotes away, as Suricata refuses them here"));
        }
        (self.parse)(builder, argument)
    }
}

/// See [`Keyword::parse`].
pub type ParseFn = fn(&mut SignatureBuilder<'_>, &[u8]) -> Result<(), KeywordError>;

/// What a keyword is to its rule.
///
/// No keyword is taken and then ignored: what a `Condition`, `Modifier`, `Effect` or `Limit` adds is seen in
/// [`crate::compile::builder::SignatureBuilder::weight`], and the loader refuses a rule in which it added nothing. Conditions, effects and
/// limits are traits that inspection calls for every rule; what is asked of the program around the engine is a
/// [`crate::model::request::Request`], which whoever carries it out matches without a wildcard.
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

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeywordError {
    /// Stable code by which refusals are counted.
    pub code: RefusalCode,
    /// What is wrong, in words for the rule's author.
    pub message: String,
    /// What to do about it, where that is not obvious.
    pub help: Option<String>,
    /// Byte range within the argument, where known.
    pub range: Option<core::ops::Range<usize>>,
}

impl KeywordError {
    /// The argument cannot be understood.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(RefusalCode::BadArgument, message)
    }

    /// The keyword does not fit where it stands or with what stands before it.
    pub fn context(message: impl Into<String>) -> Self {
        Self::new(RefusalCode::BadContext, message)
    }

    /// A refusal with its code.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        KeywordError { code, message: message.into(), help: None, range: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

impl From<bartizan_rules::ArgumentError> for KeywordError {
    fn from(error: bartizan_rules::ArgumentError) -> Self {
        KeywordError {
            code: RefusalCode::BadArgument,
            range: (error.end > error.start).then_some(error.start..error.end),
            message: error.message,
            help: None,
        }
    }
}

/// The kinds of refusal, by which the load report counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalCode {
    /// The line is not a rule.
    Syntax,
    /// No such keyword.
    UnknownKeyword,
    /// A keyword that Suricata has and this engine does not yet evaluate.
    UnsupportedKeyword,
    /// A keyword of another engine's dialect.
    OtherDialect,
    /// No such protocol.
    UnknownProtocol,
    /// A protocol that Suricata has and this build has no parser for.
    UnsupportedProtocol,
    /// A value cannot be understood.
    BadArgument,
    /// A keyword does not fit where it stands.
    BadContext,
    /// An address or port expression is wrong, or a variable is not defined.
    BadAddress,
    /// A regular expression does not compile.
    BadPattern,
    /// The same gid:sid stands in an earlier rule with the same or a higher revision.
    Duplicate,
    /// A file that the rule names cannot be read.
    MissingFile,
    /// What the rule `requires` is not there: it is skipped, not refused.
    RequirementUnmet,
    /// A keyword was understood and would have no effect: a defect of the engine, told instead of hidden.
    NoEffect,
}

impl RefusalCode {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RefusalCode::Syntax => "syntax",
            RefusalCode::UnknownKeyword => "unknown_keyword",
            RefusalCode::UnsupportedKeyword => "unsupported_keyword",
            RefusalCode::OtherDialect => "other_dialect",
            RefusalCode::UnknownProtocol => "unknown_protocol",
            RefusalCode::UnsupportedProtocol => "unsupported_protocol",
            RefusalCode::BadArgument => "bad_argument",
            RefusalCode::BadContext => "bad_context",
            RefusalCode::BadAddress => "bad_address",
            RefusalCode::BadPattern => "bad_pattern",
            RefusalCode::Duplicate => "duplicate",
            RefusalCode::MissingFile => "missing_file",
            RefusalCode::RequirementUnmet => "requires",
            RefusalCode::NoEffect => "no_effect",
        }
    }

    /// Whether the rule is right and this engine cannot evaluate it; else it is malformed: no rule, or one that Suricata refuses as well.
    #[must_use]
    pub const fn is_unsupported(self) -> bool {
        matches!(
            self,
            RefusalCode::UnsupportedKeyword | RefusalCode::UnsupportedProtocol | RefusalCode::NoEffect
        )
    }

    /// Stable code of its diagnostics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            RefusalCode::Syntax => "D100",
            RefusalCode::UnknownKeyword => "D101",
            RefusalCode::UnsupportedKeyword => "D102",
            RefusalCode::OtherDialect => "D103",
            RefusalCode::UnknownProtocol => "D104",
            RefusalCode::UnsupportedProtocol => "D114",
            RefusalCode::BadArgument => "D105",
            RefusalCode::BadContext => "D106",
            RefusalCode::BadAddress => "D107",
            RefusalCode::BadPattern => "D108",
            RefusalCode::Duplicate => "D109",
            RefusalCode::MissingFile => "D110",
            RefusalCode::RequirementUnmet => "D111",
            RefusalCode::NoEffect => "D112",
        }
    }
}
