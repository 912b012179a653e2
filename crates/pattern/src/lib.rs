// SPDX-License-Identifier: Apache-2.0
//! Exact and regular-expression sets, and single regular expressions.
//!
//! Four kinds of searches for rules:
//!
//! * [`PatternSet`]: many literals at once, case-sensitive and caseless ones mixed, exact answers. One of
//!   three engines is chosen when the set is built: one [`Finder`] per literal for tiny sets, an Aho-Corasick
//!   automaton (built in), or libhs (Hyperscan, Vectorscan), which is loaded at run time when a set is large
//!   enough.
//! * [`RegexSet`]: many regular expressions at once; those that libhs does not accept are matched by PCRE2
//!   one by one, with the reason counted and readable.
//! * [`Regex`]: one PCRE2 expression with capture groups, JIT and match limits.
//! * [`Finder`]: one literal.
//!
//! A [`Compiler`] builds sets, owns the engines and the counters ([`EngineInfo`]), and keeps compiled
//! databases in a [`Cache`] on disk. Everything compiled is immutable, `Send + Sync` and meant to be shared;
//! a scan writes to a [`Scratch`], one per thread. After [`Scratch::prepare_patterns`] (and its siblings) a
//! scan does not allocate; without it the first scan of a set does, once, and counts it.
//!
//! ```
//! use bartizan_pattern::{Compiler, Config, Matches, Pattern, Scratch};
//!
//! let compiler = Compiler::new(Config::default())?;
//! let set = compiler.pattern_set(
//!     &[Pattern { id: 7, bytes: b"/etc/passwd", nocase: false }, Pattern { id: 9, bytes: b"SELECT", nocase: true }],
//!     Matches::First,
//! )?;
//! let mut scratch = Scratch::new();
//! let mut found = Vec::new();
//! set.scan(&mut scratch, b"GET /?q=select HTTP/1.1", |id, end| {
//!     found.push((id, end));
//!     true
//! })?;
//! assert_eq!(found, [(9, 14)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Case folding is that of ASCII everywhere: bytes over 0x7f have no case, in every engine and in PCRE2.
//!
//! Not supported: streaming state (streams are scanned as blocks with an overlap of [`PatternSet::longest`]`
//! - 1` bytes), UTF-8 modes, offset and depth of literals (the caller checks `end`), approximate matching.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod automaton;
mod cache;
mod compiler;
mod engine;
// libhs is a C library that is loaded at run time: no safe binding works this way.
#[allow(unsafe_code)]
mod ffi_hs;
// PCRE2 is a C library; the safe `pcre2` crate has neither match limits, match options nor matches of bytes
// from an offset.
#[allow(unsafe_code)]
mod ffi_pcre2;
mod finder;
mod literal;
mod prepare;
mod regex;
mod regex_set;
mod scratch;
mod set;

pub use automaton::DFA_MAX_LINKS;
pub use cache::{CACHE_BYTES, Cache, CacheCounters, CacheError};
pub use compiler::{BuildError, Compiler, Config, EngineError};
pub use engine::{ENGINE_VARIABLE, EngineInfo, FallbackReason, ParseEngineError, PatternEngine, Used};
pub use ffi_hs::SONAME as LIBHS;
pub use finder::Finder;
pub use literal::Pattern;
pub use regex::{
    JitMode, JitSupport, LimitExceeded, Limits, MatchOptions, Regex, RegexError, RegexFlags, RegexMatch,
    jit_support, pcre2_version,
};
pub use regex_set::{Fallback, RegexPattern, RegexSet, RegexSetError};
pub use scratch::Scratch;
pub use set::{Matches, PatternSet, ScanError};
