// SPDX-License-Identifier: Apache-2.0
//! One regular expression of PCRE2, on bytes, with limits.
//!
//! Traffic chooses an expression's input, so every match has limits: [`Limits`]. A match that reaches one
//! counts as no match, and the caller gets the limit. Machine code (JIT) is compiled at the first match by
//! default, so that a program with thousands of expressions starts at once; a thread that must not pause then
//! calls [`crate::Scratch::prepare_regex`].
//!
//! Source: pcre2api(3), pcre2pattern(3). Not supported: UTF and Unicode properties (`(*UTF)` is refused:
//! haystacks are bytes), partial matches, callouts, substitution.

use std::sync::OnceLock;

use pcre2_sys as sys;

use crate::ffi_pcre2::{self, Code, Pcre2Outcome, UNSET};
use crate::scratch::Scratch;

bitflags::bitflags! {
    /// Flags for the syntax and meaning of an expression.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct RegexFlags: u32 {
        /// `i`: ASCII letters match in either case.
        const CASELESS = 1;
        /// `m`: `^` and `$` also match at line ends.
        const MULTILINE = 1 << 1;
        /// `s`: `.` also matches a line end.
        const DOTALL = 1 << 2;
        /// `x`: white space and `#` comments in the expression are ignored.
        const EXTENDED = 1 << 3;
        /// `A`: matches only at the start of the search.
        const ANCHORED = 1 << 4;
        /// `E`: `$` matches at the very end only, not before a last line end.
        const DOLLAR_ENDONLY = 1 << 5;
        /// `G`: quantifiers match as little as they can, and `?` inverts that.
        const UNGREEDY = 1 << 6;
        /// Plain parentheses do not capture; named groups do.
        const NO_AUTO_CAPTURE = 1 << 7;
    }
}

impl RegexFlags {
    /// The flag for a letter of the `pcre` keyword after its second slash; `None` for letters that do not
    /// concern the expression (letters that choose a buffer, `R`, `O`).
    #[must_use]
    pub const fn from_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'i' => Self::CASELESS,
            b'm' => Self::MULTILINE,
            b's' => Self::DOTALL,
            b'x' => Self::EXTENDED,
            b'A' => Self::ANCHORED,
            b'E' => Self::DOLLAR_ENDONLY,
            b'G' => Self::UNGREEDY,
            _ => return None,
        })
    }

    fn to_pcre2(self) -> u32 {
        let table = [
            (Self::CASELESS, sys::PCRE2_CASELESS),
            (Self::MULTILINE, sys::PCRE2_MULTILINE),
            (Self::DOTALL, sys::PCRE2_DOTALL),
            (Self::EXTENDED, sys::PCRE2_EXTENDED),
            (Self::ANCHORED, sys::PCRE2_ANCHORED),
            (Self::DOLLAR_ENDONLY, sys::PCRE2_DOLLAR_ENDONLY),
            (Self::UNGREEDY, sys::PCRE2_UNGREEDY),
            (Self::NO_AUTO_CAPTURE, sys::PCRE2_NO_AUTO_CAPTURE),
        ];
        let set = table.iter().filter(|(flag, _)| self.contains(*flag)).fold(0, |sum, (_, bit)| sum | bit);
        set | sys::PCRE2_NEVER_UTF | sys::PCRE2_NEVER_UCP
    }
}

bitflags::bitflags! {
    /// Assumptions of one match attempt about its haystack.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MatchOptions: u32 {
        /// The haystack does not start at the beginning of a line: `^` does not match there.
        const NOT_BOL = 1;
        /// The haystack does not end at the end of a line: `$` does not match there.
        const NOT_EOL = 1 << 1;
        /// An empty match does not count.
        const NOT_EMPTY = 1 << 2;
        /// An empty match at the start of the search does not count.
        const NOT_EMPTY_AT_START = 1 << 3;
        /// Match only at the start of the search. Such a match is interpreted: machine code does not support
        /// this option.
        const ANCHORED = 1 << 4;
    }
}

impl MatchOptions {
    #[inline]
    fn to_pcre2(self) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let table = [
            (Self::NOT_BOL, sys::PCRE2_NOTBOL),
            (Self::NOT_EOL, sys::PCRE2_NOTEOL),
            (Self::NOT_EMPTY, sys::PCRE2_NOTEMPTY),
            (Self::NOT_EMPTY_AT_START, sys::PCRE2_NOTEMPTY_ATSTART),
            (Self::ANCHORED, sys::PCRE2_ANCHORED),
        ];
        table.iter().filter(|(flag, _)| self.contains(*flag)).fold(0, |sum, (_, bit)| sum | bit)
    }
}

/// Limits of one match. The defaults of the first two are Suricata's shipped ones (`pcre.match-limit`,
/// `pcre.match-limit-recursion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Limit of calls of the matcher's inner function (for machine code: backtracking points, counted more
    /// rarely).
    pub matches: u32,
    /// Limit of the depth of backtracking; machine code has a stack of fixed size instead and ignores it.
    pub depth: u32,
    /// Limit of the interpreter's heap in KiB; also bounds the memory that a scratch keeps.
    pub heap_kib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { matches: 3500, depth: 1500, heap_kib: 16 * 1024 }
    }
}

/// Time of compiling an expression to machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JitMode {
    /// At its first match or when a scratch is prepared for it.
    #[default]
    Lazy,
    /// When the expression is compiled.
    Eager,
    /// Never.
    Off,
}

/// Whether PCRE2 can make machine code in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitSupport {
    /// PCRE2 can make machine code.
    Works,
    /// The library was built without it.
    NotBuilt,
    /// The system refuses executable memory.
    Refused,
}

/// A match attempt that ended without an answer. The caller counts it and treats it as no match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LimitExceeded {
    /// [`Limits::matches`] was reached.
    #[error("the match limit was reached")]
    Matches,
    /// [`Limits::depth`] was reached.
    #[error("the limit of backtracking depth was reached")]
    Depth,
    /// [`Limits::heap_kib`] was reached.
    #[error("the heap limit was reached")]
    Heap,
    /// The stack of machine code (512 KiB) is exhausted.
    #[error("the stack of machine code was used up")]
    Stack,
    /// There is no memory for the scratch.
    #[error("no memory for the scratch space of a regular expression")]
    Memory,
    /// An error that PCRE2 does not give for valid input, by its code.
    #[error("PCRE2 gave the error {0}")]
    Internal(i32),
}

impl LimitExceeded {
    fn from_code(code: i32) -> Self {
        match code {
            sys::PCRE2_ERROR_MATCHLIMIT => Self::Matches,
            sys::PCRE2_ERROR_DEPTHLIMIT => Self::Depth,
            sys::PCRE2_ERROR_HEAPLIMIT => Self::Heap,
            sys::PCRE2_ERROR_JIT_STACKLIMIT => Self::Stack,
            sys::PCRE2_ERROR_NOMEMORY => Self::Memory,
            other => Self::Internal(other),
        }
    }
}

/// An expression that PCRE2 refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("regular expression refused at byte {offset}: {message}")]
pub struct RegexError {
    /// Message of PCRE2.
    pub message: String,
    /// Byte of the expression at which compilation ended.
    pub offset: usize,
}

/// A compiled expression. Shared between threads.
#[derive(Debug)]
pub struct Regex {
    code: Code,
    /// Whether there is machine code; set once, before the first match of any thread.
    jit: OnceLock<bool>,
    pattern: Box<[u8]>,
    flags: RegexFlags,
    limits: Limits,
    groups: u32,
}

impl Regex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// PCRE2 refuses the expression; the error has the byte of the pattern.
    pub fn new(pattern: &[u8], flags: RegexFlags, limits: Limits, jit: JitMode) -> Result<Self, RegexError> {
        let code = Code::compile(pattern, flags.to_pcre2())
            .map_err(|error| RegexError { message: error.message, offset: error.offset })?;
        let groups = code.capture_count();
        let regex = Self { code, jit: OnceLock::new(), pattern: pattern.into(), flags, limits, groups };
        match jit {
            JitMode::Lazy => {}
            JitMode::Eager => {
                regex.ready();
            }
            JitMode::Off => {
                let _ = regex.jit.set(false);
            }
        }
        Ok(regex)
    }

    /// Compiles machine code unless that was done or is disabled. Every match calls this first, so that no
    /// thread matches while another one compiles.
    #[inline]
    fn ready(&self) -> bool {
        *self.jit.get_or_init(|| self.code.jit_compile())
    }

    /// Searches `haystack` for the first match that starts at `start` or later. Look-behind and `^` see the
    /// bytes before `start`; pass a shorter haystack to hide them.
    ///
    /// # Errors
    /// The limit that was reached before there was an answer.
    #[inline]
    pub fn find_at<'s>(
        &self,
        scratch: &'s mut Scratch,
        haystack: &[u8],
        start: usize,
        options: MatchOptions,
    ) -> Result<Option<RegexMatch<'s>>, LimitExceeded> {
        self.ready();
        let state = scratch.match_state(self.groups + 1).ok_or(LimitExceeded::Memory)?;
        match state.find(&self.code, haystack, start, options.to_pcre2(), self.limits) {
            Pcre2Outcome::Matched(pairs) => Ok(Some(RegexMatch { offsets: state.offsets(pairs) })),
            Pcre2Outcome::NoMatch => Ok(None),
            Pcre2Outcome::Failed(code) => Err(LimitExceeded::from_code(code)),
        }
    }

    /// Whether the expression matches anywhere in `haystack`.
    ///
    /// # Errors
    /// As [`Self::find_at`].
    #[inline]
    pub fn is_match(&self, scratch: &mut Scratch, haystack: &[u8]) -> Result<bool, LimitExceeded> {
        Ok(self.find_at(scratch, haystack, 0, MatchOptions::empty())?.is_some())
    }

    pub(crate) fn prepare(&self, scratch: &mut Scratch) -> Result<(), LimitExceeded> {
        self.ready();
        scratch.match_state(self.groups + 1).map(|_| ()).ok_or(LimitExceeded::Memory)
    }

    /// Whether matches run as machine code; `None` while that is not decided (lazy, no match yet).
    #[must_use]
    pub fn jitted(&self) -> Option<bool> {
        self.jit.get().copied()
    }

    /// The text of the expression.
    #[must_use]
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The expression's flags.
    #[must_use]
    pub fn flags(&self) -> RegexFlags {
        self.flags
    }

    /// Number of capture groups, without the whole match.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        self.groups
    }

    /// Names of capture groups and their numbers, sorted by name.
    #[must_use]
    pub fn group_names(&self) -> Vec<(String, u32)> {
        self.code.names()
    }

    /// Bytes of memory held, machine code included.
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.pattern.len() + self.code.memory_usage()
    }
}

/// The place of a match. Lives in the scratch until the next match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegexMatch<'s> {
    /// Start and end of the whole match, of group 1, ...
    offsets: &'s [usize],
}

impl RegexMatch<'_> {
    /// Offset of the first byte of the match.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        self.offsets.first().copied().unwrap_or_default()
    }

    /// Offset after the last byte of the match.
    #[inline]
    #[must_use]
    pub fn end(&self) -> usize {
        self.offsets.get(1).copied().unwrap_or_default()
    }

    /// Start and end of a group (0 is the whole match); `None` if it took no part in the match. The start is
    /// never above the end.
    #[inline]
    #[must_use]
    pub fn group(&self, number: usize) -> Option<(usize, usize)> {
        match self.offsets.chunks_exact(2).nth(number)? {
            [start, end] if *start != UNSET && start <= end => Some((*start, *end)),
            _ => None,
        }
    }

    /// Number of groups with offsets, the whole match included; later groups took no part.
    #[must_use]
    pub fn group_len(&self) -> usize {
        self.offsets.len() / 2
    }
}

/// Whether PCRE2 can make machine code in this process. Compiles an expression to determine this.
#[must_use]
pub fn jit_support() -> JitSupport {
    let limits = Limits::default();
    let made = Regex::new(b"a+b", RegexFlags::default(), limits, JitMode::Eager).is_ok_and(|r| r.ready());
    match (made, ffi_pcre2::has_jit()) {
        (true, _) => JitSupport::Works,
        (false, true) => JitSupport::Refused,
        (false, false) => JitSupport::NotBuilt,
    }
}

/// The version of PCRE2 in use, for example `10.42 2022-12-11`.
#[must_use]
pub fn pcre2_version() -> String {
    ffi_pcre2::version()
}
