// SPDX-License-Identifier: Apache-2.0
//! Refusals of rules: a message for the author, and a code by which refusals are counted.

/// The refusal of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeywordError {
    /// Stable code; refusals are counted by it.
    pub code: RefusalCode,
    /// The defect, in words for the rule's author.
    pub message: String,
    /// The remedy, where it is not obvious.
    pub help: Option<String>,
    /// Byte range within the argument, where known.
    pub range: Option<core::ops::Range<usize>>,
}

impl KeywordError {
    /// The argument cannot be understood.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(RefusalCode::BadArgument, message)
    }

    /// The keyword does not fit its place or the keywords before it.
    pub fn context(message: impl Into<String>) -> Self {
        Self::new(RefusalCode::BadContext, message)
    }

    /// Makes a refusal with a code.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        KeywordError { code, message: message.into(), help: None, range: None }
    }

    /// Adds the remedy.
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

/// The kinds of refusal, as the load report counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalCode {
    /// The line is not a rule.
    Syntax,
    /// The keyword is unknown.
    UnknownKeyword,
    /// A keyword that Suricata has and this engine does not yet evaluate.
    UnsupportedKeyword,
    /// A keyword of another engine's dialect.
    OtherDialect,
    /// The protocol is unknown.
    UnknownProtocol,
    /// A protocol that Suricata has and this build has no parser for.
    UnsupportedProtocol,
    /// A value cannot be understood.
    BadArgument,
    /// A keyword does not fit its place.
    BadContext,
    /// An address or port expression is wrong, or a variable is not defined.
    BadAddress,
    /// A regular expression does not compile.
    BadPattern,
    /// An earlier rule has this gid:sid with an equal or higher revision.
    Duplicate,
    /// A file that the rule names cannot be read.
    MissingFile,
    /// A condition of `requires` is not met: the rule is skipped, not refused.
    RequirementUnmet,
    /// A keyword was parsed and has no effect: a defect of the engine, reported instead of hidden.
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

    /// Whether the rule is valid and this engine cannot evaluate it. Otherwise the rule is malformed: no
    /// rule, or one that Suricata refuses as well.
    #[must_use]
    pub const fn is_unsupported(self) -> bool {
        matches!(
            self,
            RefusalCode::UnsupportedKeyword | RefusalCode::UnsupportedProtocol | RefusalCode::NoEffect
        )
    }

    /// Stable code of the refusal's diagnostics.
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
