// SPDX-License-Identifier: Apache-2.0
//! Builds sets: chooses the engine, uses the cache, counts fallbacks.
//!
//! libhs is loaded when the first set needs it, so that a program with a handful of rules avoids the cost.

use std::collections::HashMap;
use std::ffi::{CString, c_uint};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::automaton::Automaton;
use crate::cache::{Cache, CacheKey};
use crate::engine::{
    ENGINE_VARIABLE, EngineInfo, FallbackReason, ParseEngineError, PatternCounters, PatternEngine, Used,
};
use crate::ffi_hs::{Database, HS_FLAG_CASELESS, HsCompileError, Library, LoadError};
use crate::finder::Finder;
use crate::literal::{LiteralError, Literals, Pattern};
use crate::regex::{JitMode, Limits, Regex, RegexError, RegexFlags};
use crate::regex_set::{Fallback, RegexPattern, RegexSet, RegexSetError, translate};
use crate::set::{Matches, PatternSet, SetEngine};

/// Configuration of a [`Compiler`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine.
    pub engine: PatternEngine,
    /// Cache of compiled databases, if there is one.
    pub cache: Option<Arc<Cache>>,
    /// With [`PatternEngine::Auto`]: up to this number of literals each is searched separately.
    pub finders_max: usize,
    /// With [`PatternEngine::Auto`]: libhs from this number of literals on.
    pub hyperscan_min: usize,
    /// With [`PatternEngine::Auto`]: libhs from this number of regular expressions on.
    pub hyperscan_min_regexes: usize,
    /// Limits of regular expressions.
    pub limits: Limits,
    /// Time of compiling regular expressions to machine code.
    pub jit: JitMode,
}

impl Default for Config {
    /// The numbers are the sizes at which one engine becomes faster than another in the example `scan`.
    fn default() -> Self {
        Self {
            engine: PatternEngine::Auto,
            cache: None,
            finders_max: 4,
            hyperscan_min: 8,
            hyperscan_min_regexes: 8,
            limits: Limits::default(),
            jit: JitMode::Lazy,
        }
    }
}

impl Config {
    /// This configuration with the engine that the environment forces by [`ENGINE_VARIABLE`], if it does.
    ///
    /// # Errors
    /// The variable's value names no engine.
    pub fn with_environment(mut self) -> Result<Self, ParseEngineError> {
        if let Some(value) = std::env::var_os(ENGINE_VARIABLE).filter(|v| !v.is_empty()) {
            self.engine = value.to_string_lossy().parse()?;
        }
        Ok(self)
    }
}

/// A forced engine that is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// libhs is forced and not usable.
    #[error("the pattern engine hyperscan is forced, but {0}; install it or use the engine auto")]
    Hyperscan(String),
}

/// A set of literals that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A literal has no bytes.
    #[error("pattern {id} is empty: it would match everywhere")]
    Empty {
        /// Id of the literal.
        id: u32,
    },
    /// More literals than can be numbered.
    #[error("a set of {patterns} patterns is larger than 4 GiB: split it")]
    TooLarge {
        /// Patterns given.
        patterns: usize,
    },
    /// The automaton could not be built.
    #[error("the automaton of {patterns} patterns cannot be built: {message}")]
    Automaton {
        /// Patterns given.
        patterns: usize,
        /// Message of the automaton's builder.
        message: String,
    },
    /// libhs is forced and refuses.
    #[error(
        "the pattern engine hyperscan is forced, but refuses a set of {patterns} patterns: {message}; use the engine auto"
    )]
    Refused {
        /// Patterns given.
        patterns: usize,
        /// Message of the library.
        message: String,
    },
}

/// Builds sets and expressions. One per program; several threads may use it at once.
#[derive(Debug)]
pub struct Compiler {
    config: Config,
    library: OnceLock<Result<Arc<Library>, LoadError>>,
    counters: Arc<PatternCounters>,
    /// Databases in use: sets with equal literals share one, also across generations of rules.
    databases: Mutex<HashMap<[u8; 32], Weak<Database>>>,
}

impl Default for Compiler {
    /// A compiler that chooses the engine for each set, without a cache.
    fn default() -> Self {
        Self::with(Config::default())
    }
}

impl Compiler {
    fn with(config: Config) -> Self {
        Self { config, library: OnceLock::new(), counters: Arc::default(), databases: Mutex::default() }
    }

    /// Makes a compiler. libhs is loaded here only if it is forced.
    ///
    /// # Errors
    /// libhs is forced and not usable.
    pub fn new(config: Config) -> Result<Self, EngineError> {
        let compiler = Self::with(config);
        if compiler.config.engine == PatternEngine::Hyperscan {
            compiler.library().map_err(|error| EngineError::Hyperscan(error.to_string()))?;
        }
        Ok(compiler)
    }

    /// Compiles literals into one set.
    ///
    /// # Errors
    /// A literal is empty, or the forced engine, or every engine, refuses the set.
    pub fn pattern_set(&self, patterns: &[Pattern<'_>], matches: Matches) -> Result<PatternSet, BuildError> {
        let literals = Literals::new(patterns).map_err(|error| match error {
            LiteralError::Empty(id) => BuildError::Empty { id },
            LiteralError::TooLarge => BuildError::TooLarge { patterns: patterns.len() },
        })?;
        let (engine, used) = self.set_engine(&literals)?;
        self.counters.set_built(used);
        Ok(PatternSet::new(literals, matches, engine, Arc::clone(&self.counters)))
    }

    fn set_engine(&self, literals: &Literals) -> Result<(SetEngine, Used), BuildError> {
        let config = &self.config;
        let small = config.engine == PatternEngine::Auto && literals.len() <= config.finders_max;
        if literals.len() == 0 || small || config.engine == PatternEngine::Finders {
            let reason = if small { FallbackReason::Small } else { FallbackReason::Forced };
            if literals.len() > 0 {
                self.counters.set_fallback(reason);
            }
            let finders = literals.iter().map(|(bytes, nocase)| Finder::new(bytes, nocase)).collect();
            return Ok((SetEngine::Finders(finders), Used::Finders));
        }
        match self.hyperscan_set(literals) {
            Ok(database) => return Ok((SetEngine::Hyperscan(database), Used::Hyperscan)),
            Err((_, message)) if config.engine == PatternEngine::Hyperscan => {
                return Err(BuildError::Refused { patterns: literals.len(), message });
            }
            Err((reason, _)) => self.counters.set_fallback(reason),
        }
        let automaton = Automaton::new(literals).map_err(|error| BuildError::Automaton {
            patterns: literals.len(),
            message: error.to_string(),
        })?;
        Ok((SetEngine::Automaton(automaton), Used::AhoCorasick))
    }

    fn hyperscan_set(&self, literals: &Literals) -> Result<Arc<Database>, (FallbackReason, String)> {
        match self.config.engine {
            PatternEngine::AhoCorasick | PatternEngine::Finders => {
                return Err((FallbackReason::Forced, String::new()));
            }
            PatternEngine::Auto if literals.len() < self.config.hyperscan_min => {
                return Err((FallbackReason::Small, String::new()));
            }
            PatternEngine::Auto | PatternEngine::Hyperscan => {}
        }
        let library = self.library().map_err(|error| (FallbackReason::Missing, error.to_string()))?;
        let (expressions, flags): (Vec<CString>, Vec<c_uint>) = literals
            .iter()
            .map(|(bytes, nocase)| (hexadecimal(bytes), if nocase { HS_FLAG_CASELESS } else { 0 }))
            .unzip();
        self.database(library, &expressions, &flags).map_err(|error| (FallbackReason::Refused, error.message))
    }

    /// Compiles regular expressions into one set.
    ///
    /// # Errors
    /// PCRE2 refuses an expression.
    pub fn regex_set(&self, patterns: &[RegexPattern<'_>]) -> Result<RegexSet, RegexSetError> {
        let library = self.library_for_regexes(patterns.len());
        let mut left: Vec<(usize, Regex, FallbackReason, String)> = Vec::new();
        // Index in `patterns`, compiled form (kept until libhs has accepted the expression), text, flags.
        let mut taken: Vec<(usize, Regex, CString, c_uint)> = Vec::new();
        for (place, pattern) in patterns.iter().enumerate() {
            let regex = self
                .regex(pattern.pattern, pattern.flags)
                .map_err(|error| RegexSetError { id: pattern.id, error })?;
            let verdict = library.as_ref().map_err(Clone::clone).and_then(|library| accept(library, pattern));
            match verdict {
                Ok((text, flags)) => taken.push((place, regex, text, flags)),
                Err((reason, message)) => left.push((place, regex, reason, message)),
            }
        }
        let mut database = None;
        while let (Ok(library), false) = (&library, taken.is_empty()) {
            let (texts, flags): (Vec<_>, Vec<_>) = taken.iter().map(|(_, _, t, f)| (t.clone(), *f)).unzip();
            match self.database(library, &texts, &flags) {
                Ok(compiled) => {
                    database = Some(compiled);
                    break;
                }
                Err(error) => {
                    // If one expression causes the error, the others are tried without it; if none does, all
                    // are left to PCRE2.
                    let blamed = match error.expression.filter(|at| *at < taken.len()) {
                        Some(at) => vec![taken.remove(at)],
                        None => std::mem::take(&mut taken),
                    };
                    let refused =
                        |(place, regex, _, _)| (place, regex, FallbackReason::Refused, error.message.clone());
                    left.extend(blamed.into_iter().map(refused));
                }
            }
        }
        left.sort_by_key(|(place, ..)| *place);
        let id_of = |place: usize| patterns.get(place).map_or(0, |pattern| pattern.id);
        let ids: Box<[u32]> = taken.iter().map(|(place, ..)| id_of(*place)).collect();
        let mut single = Vec::with_capacity(left.len());
        let mut fallbacks = Vec::with_capacity(left.len());
        for (place, regex, reason, message) in left {
            self.counters.regex_fallback(reason);
            let message =
                if message.is_empty() { reason.to_string() } else { format!("{reason}: {message}") };
            fallbacks.push(Fallback { id: id_of(place), reason, message });
            single.push((id_of(place), regex));
        }
        for _ in &ids {
            PatternCounters::add(&self.counters.regexes_in_hyperscan);
        }
        Ok(RegexSet { database, ids, single: single.into(), fallbacks: fallbacks.into() })
    }

    fn library_for_regexes(&self, count: usize) -> Result<&Arc<Library>, (FallbackReason, String)> {
        match self.config.engine {
            PatternEngine::AhoCorasick | PatternEngine::Finders => {
                Err((FallbackReason::Forced, String::new()))
            }
            PatternEngine::Auto if count < self.config.hyperscan_min_regexes => {
                Err((FallbackReason::Small, String::new()))
            }
            PatternEngine::Auto | PatternEngine::Hyperscan => {
                self.library().map_err(|error| (FallbackReason::Missing, error.to_string()))
            }
        }
    }

    /// Compiles one regular expression with the limits and the machine-code mode of the configuration.
    ///
    /// # Errors
    /// PCRE2 refuses the expression.
    pub fn regex(&self, pattern: &[u8], flags: RegexFlags) -> Result<Regex, RegexError> {
        Regex::new(pattern, flags, self.config.limits, self.config.jit)
    }

    /// Loads libhs now rather than with the first set that needs it, so that [`Compiler::info`] can report
    /// it. No effect if the forced engine does not use it.
    pub fn load_library(&self) {
        if matches!(self.config.engine, PatternEngine::Auto | PatternEngine::Hyperscan) {
            // The information reports why libhs is missing.
            let _ = self.library();
        }
    }

    /// Information about the engines, with the counters of everything built so far.
    #[must_use]
    pub fn info(&self) -> EngineInfo {
        let (hyperscan, why) = match (self.config.engine, self.library.get()) {
            (PatternEngine::AhoCorasick | PatternEngine::Finders, _) => (None, "forced".to_owned()),
            (PatternEngine::Hyperscan, Some(Ok(library))) => {
                (Some(library.version().to_owned()), "forced".to_owned())
            }
            (_, Some(Ok(library))) => {
                let why = format!("for sets of {} literals or more", self.config.hyperscan_min);
                (Some(library.version().to_owned()), why)
            }
            (_, Some(Err(error))) => (None, error.to_string()),
            (_, None) => (None, format!("no set has {} literals or more", self.config.hyperscan_min)),
        };
        let cache = self.config.cache.as_ref().map(|cache| cache.counters());
        EngineInfo::new(self.config.engine, hyperscan, why, &self.counters, cache)
    }

    fn library(&self) -> Result<&Arc<Library>, &LoadError> {
        self.library.get_or_init(Library::load).as_ref()
    }

    /// A database that is in use, one from the cache, or a new one that is then stored in the cache.
    fn database(
        &self,
        library: &Arc<Library>,
        expressions: &[CString],
        flags: &[c_uint],
    ) -> Result<Arc<Database>, HsCompileError> {
        let mut key = CacheKey::new("libhs block");
        let (tune, features) = library.platform();
        key.part(library.version().as_bytes());
        key.part(&tune.to_le_bytes());
        key.part(&features.to_le_bytes());
        for (expression, flags) in expressions.iter().zip(flags) {
            key.part(expression.as_bytes());
            key.part(&flags.to_le_bytes());
        }
        let key = key.finish();
        if let Some(known) = self.databases.lock().ok().and_then(|known| known.get(&key)?.upgrade()) {
            return Ok(known);
        }
        let database = Arc::new(self.new_database(library, expressions, flags, &key)?);
        if let Ok(mut known) = self.databases.lock() {
            known.retain(|_, database| database.strong_count() > 0);
            known.insert(key, Arc::downgrade(&database));
        }
        Ok(database)
    }

    fn new_database(
        &self,
        library: &Arc<Library>,
        expressions: &[CString],
        flags: &[c_uint],
        key: &[u8; 32],
    ) -> Result<Database, HsCompileError> {
        let Some(cache) = &self.config.cache else { return library.compile(expressions, flags) };
        if let Some(bytes) = cache.load(key) {
            match library.deserialize(&bytes) {
                Ok(database) => return Ok(database),
                Err(_) => cache.refuse(),
            }
        }
        let database = library.compile(expressions, flags)?;
        if let Ok(bytes) = database.serialize() {
            cache.store(key, &bytes);
        }
        Ok(database)
    }
}

/// Whether libhs accepts the expression, as far as is known before compiling.
fn accept(
    library: &Library,
    pattern: &RegexPattern<'_>,
) -> Result<(CString, c_uint), (FallbackReason, String)> {
    let (text, flags) =
        translate(pattern.pattern, pattern.flags).map_err(|reason| (reason, String::new()))?;
    match library.min_width(&text, flags) {
        Ok(0) => Err((FallbackReason::Empty, String::new())),
        Ok(_) => Ok((text, flags)),
        // The same message stands for an expression that matches the empty string and one that it cannot
        // compile.
        Err(error) if error.message.contains("matches empty buffer") => {
            Err((FallbackReason::Empty, String::new()))
        }
        Err(error) => Err((FallbackReason::Refused, error.message)),
    }
}

/// A literal as a regular expression in which every byte stands for itself.
fn hexadecimal(bytes: &[u8]) -> CString {
    let mut text = String::with_capacity(bytes.len() * 4);
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
    CString::new(text).unwrap_or_default()
}
