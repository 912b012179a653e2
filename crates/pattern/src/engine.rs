// SPDX-License-Identifier: Apache-2.0
//! Engines, reasons of their choice and fallbacks: the names and counters in the program's summary.
//!
//! Not supported: reports per set (a set has its own engine in [`crate::PatternSet::engine`]).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::CacheCounters;

/// The environment variable that forces an engine: `auto`, `hyperscan`, `aho-corasick` or `finders`.
pub const ENGINE_VARIABLE: &str = "BARTIZAN_PATTERN_ENGINE";

/// The configured engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PatternEngine {
    /// By the size of each set and the installed libraries.
    #[default]
    Auto,
    /// libhs for every set; an error if it is not installed.
    Hyperscan,
    /// The Aho-Corasick automaton for every set, and PCRE2 for every regular expression.
    AhoCorasick,
    /// One search per literal, whatever their number: slow beyond a handful, for comparison and tests.
    Finders,
}

impl PatternEngine {
    /// All values, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Hyperscan, Self::AhoCorasick, Self::Finders];

    /// The name in configuration and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hyperscan => "hyperscan",
            Self::AhoCorasick => "aho-corasick",
            Self::Finders => "finders",
        }
    }
}

/// The error for a name that is no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown pattern engine {0:?}: use auto, hyperscan, aho-corasick or finders")]
pub struct ParseEngineError(pub String);

impl FromStr for PatternEngine {
    type Err = ParseEngineError;

    /// Also accepts Suricata's names in `mpm-algo` for these engines: `hs`, `ac`, `ac-ks`, `ac-bs`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "hs" | "vectorscan" => return Ok(Self::Hyperscan),
            "ac" | "ac-ks" | "ac-bs" => return Ok(Self::AhoCorasick),
            _ => {}
        }
        Self::ALL.into_iter().find(|e| e.name() == name).ok_or_else(|| ParseEngineError(name.into()))
    }
}

impl fmt::Display for PatternEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The engine that a set was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// One search per literal.
    Finders,
    /// The Aho-Corasick automaton.
    AhoCorasick,
    /// libhs.
    Hyperscan,
}

impl Used {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finders => "finders",
            Self::AhoCorasick => "aho-corasick",
            Self::Hyperscan => "hyperscan",
        }
    }
}

/// The reason why a set or expression is not matched by libhs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FallbackReason {
    /// libhs is not installed or cannot be used on this machine.
    Missing,
    /// Another engine is forced.
    Forced,
    /// The set is too small to profit.
    Small,
    /// libhs does not compile it: a construct that libhs lacks, or too large.
    Refused,
    /// The expression has a flag without counterpart in libhs.
    Flag,
    /// The expression may match the empty string, which libhs reports at every position.
    Empty,
    /// The expression contains a NUL byte, at which libhs ends the text.
    Nul,
    /// libhs would interpret the expression in another way than PCRE2.
    Differs,
}

impl FallbackReason {
    /// All values, in the order of the counters of [`EngineInfo`].
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Forced,
        Self::Small,
        Self::Refused,
        Self::Flag,
        Self::Empty,
        Self::Nul,
        Self::Differs,
    ];

    /// A short name for counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forced => "forced",
            Self::Small => "small",
            Self::Refused => "refused",
            Self::Flag => "flag",
            Self::Empty => "empty",
            Self::Nul => "nul",
            Self::Differs => "differs",
        }
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "libhs is not usable here",
            Self::Forced => "another engine is forced",
            Self::Small => "the set is too small to profit",
            Self::Refused => "libhs does not compile it",
            Self::Flag => "a flag that libhs does not have",
            Self::Empty => "it may match the empty string",
            Self::Nul => "it contains a NUL byte",
            Self::Differs => "libhs reads it in another way",
        })
    }
}

/// Counters of one compiler and of the sets that it built.
#[derive(Debug, Default)]
pub(crate) struct PatternCounters {
    pub(crate) sets: [AtomicU64; 3],
    pub(crate) set_fallbacks: [AtomicU64; 8],
    pub(crate) regexes_in_hyperscan: AtomicU64,
    pub(crate) regex_fallbacks: [AtomicU64; 8],
    pub(crate) rescans: AtomicU64,
}

impl PatternCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_built(&self, used: Used) {
        let index = match used {
            Used::Finders => 0,
            Used::AhoCorasick => 1,
            Used::Hyperscan => 2,
        };
        self.sets.get(index).map(Self::add).unwrap_or_default();
    }

    pub(crate) fn set_fallback(&self, reason: FallbackReason) {
        self.set_fallbacks.get(reason as usize).map(Self::add).unwrap_or_default();
    }

    pub(crate) fn regex_fallback(&self, reason: FallbackReason) {
        self.regex_fallbacks.get(reason as usize).map(Self::add).unwrap_or_default();
    }
}

/// A snapshot of engine information for the program's summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The configured engine.
    pub configured: PatternEngine,
    /// libhs' version, if it was loaded.
    pub hyperscan: Option<String>,
    /// Reason why libhs is or is not in use, in one clause.
    pub why: String,
    /// PCRE2's version.
    pub pcre2: String,
    /// Sets of literals built, by engine: finders, Aho-Corasick, libhs.
    pub sets: [(Used, u64); 3],
    /// Sets of literals without libhs, by reason; reasons with 0 are left out.
    pub set_fallbacks: Vec<(FallbackReason, u64)>,
    /// Regular expressions of sets that libhs matches.
    pub regexes_in_hyperscan: u64,
    /// Regular expressions of sets that PCRE2 matches one by one, by reason; reasons with 0 are left out.
    pub regex_fallbacks: Vec<(FallbackReason, u64)>,
    /// Scans that libhs aborted with an internal error and that were repeated without it.
    pub rescans: u64,
    /// The cache's counters, if there is a cache.
    pub cache: Option<CacheCounters>,
}

impl EngineInfo {
    pub(crate) fn new(
        asked: PatternEngine,
        hyperscan: Option<String>,
        why: String,
        counters: &PatternCounters,
        cache: Option<CacheCounters>,
    ) -> Self {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let by_reason = |list: &[AtomicU64; 8]| {
            FallbackReason::ALL.into_iter().zip(list.iter().map(read)).filter(|(_, n)| *n > 0).collect()
        };
        let [finders, automata, databases] = &counters.sets;
        Self {
            configured: asked,
            hyperscan,
            why,
            pcre2: crate::regex::pcre2_version(),
            sets: [
                (Used::Finders, read(finders)),
                (Used::AhoCorasick, read(automata)),
                (Used::Hyperscan, read(databases)),
            ],
            set_fallbacks: by_reason(&counters.set_fallbacks),
            regexes_in_hyperscan: read(&counters.regexes_in_hyperscan),
            regex_fallbacks: by_reason(&counters.regex_fallbacks),
            rescans: read(&counters.rescans),
            cache,
        }
    }
}

impl fmt::Display for EngineInfo {
    /// One line, for example `hyperscan 5.4.0 2021-01-26 (chosen by set size); sets: 2 finders, 1 hyperscan;
    /// pcre2 10.46`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hyperscan {
            Some(version) => write!(f, "hyperscan {version} ({})", self.why)?,
            None => write!(f, "aho-corasick ({})", self.why)?,
        }
        let mut separator = "; sets: ";
        for (used, count) in self.sets.iter().filter(|(_, n)| *n > 0) {
            write!(f, "{separator}{count} {}", used.name())?;
            separator = ", ";
        }
        separator = "; regular expressions left to pcre2: ";
        for (reason, count) in &self.regex_fallbacks {
            write!(f, "{separator}{count} ({reason})")?;
            separator = ", ";
        }
        write!(f, "; pcre2 {}", self.pcre2)?;
        if let Some(cache) = self.cache.filter(|c| *c != CacheCounters::default()) {
            write!(f, "; cache: {} found, {} compiled", cache.hits, cache.misses + cache.refused)?;
            let rest = [
                ("damaged", cache.refused),
                ("removed for room", cache.pruned),
                ("not written", cache.failed),
            ];
            for (what, count) in rest.into_iter().filter(|(_, count)| *count > 0) {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.rescans > 0 {
            write!(f, "; {} scans repeated after an internal error of libhs", self.rescans)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_reasons_are_in_order() {
        for engine in PatternEngine::ALL {
            assert_eq!(engine.name().parse::<PatternEngine>(), Ok(engine));
        }
        assert_eq!("hs".parse(), Ok(PatternEngine::Hyperscan));
        assert!("hyperscn".parse::<PatternEngine>().unwrap_err().to_string().contains("aho-corasick"));
        for (index, reason) in FallbackReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
