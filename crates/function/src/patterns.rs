// SPDX-License-Identifier: Apache-2.0
//! Host service: pattern sets that functions search in payloads and streams.
//!
//! A function passes literals or regular expressions when its rules are installed, and scans with the
//! returned set. The engine, the cache of compiled sets and the counters belong to the host, as for
//! detection. Equal sets are shared, between policies, functions and generations.

use bartizan_pattern::{
    BuildError, Compiler, Matches, Pattern, PatternSet, RegexPattern, RegexSet, RegexSetError,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The key of a literal or an expression: id, bytes, and letter case or flags.
type PatternKey = Vec<(u32, Box<[u8]>, u32)>;

/// The sets in use, by their patterns.
#[derive(Debug, Default)]
struct PatternCache {
    literals: HashMap<PatternKey, Weak<PatternSet>>,
    expressions: HashMap<PatternKey, Weak<RegexSet>>,
}

/// Compiles pattern sets, and shares equal ones for as long as one is in use.
#[derive(Clone, Debug, Default)]
pub struct PatternSets {
    compiler: Arc<Compiler>,
    known: Arc<Mutex<PatternCache>>,
}

impl PatternSets {
    /// Pattern sets of this compiler.
    #[must_use]
    pub fn new(compiler: Arc<Compiler>) -> Self {
        PatternSets { compiler, known: Arc::default() }
    }

    /// The set of these literals. A scan reports each once, with the end of its first occurrence.
    ///
    /// # Errors
    /// A literal is empty; a set is too large for every engine.
    pub fn literals(&self, patterns: &[Pattern<'_>]) -> Result<Arc<PatternSet>, BuildError> {
        let key = patterns.iter().map(|p| (p.id, p.bytes.into(), u32::from(p.nocase))).collect();
        shared(
            &self.known,
            |known| &mut known.literals,
            key,
            || self.compiler.pattern_set(patterns, Matches::First),
        )
    }

    /// The set of these regular expressions. A scan reports the id of each that matches somewhere, once.
    ///
    /// # Errors
    /// PCRE2 refuses an expression.
    pub fn expressions(&self, patterns: &[RegexPattern<'_>]) -> Result<Arc<RegexSet>, RegexSetError> {
        let key = patterns.iter().map(|p| (p.id, p.pattern.into(), p.flags.bits())).collect();
        shared(&self.known, |known| &mut known.expressions, key, || self.compiler.regex_set(patterns))
    }
}

/// The set of this key that is in use, or a new one.
fn shared<S, E>(
    known: &Mutex<PatternCache>,
    of: impl Fn(&mut PatternCache) -> &mut HashMap<PatternKey, Weak<S>>,
    key: PatternKey,
    make: impl FnOnce() -> Result<S, E>,
) -> Result<Arc<S>, E> {
    let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(set) = of(&mut lock()).get(&key).and_then(Weak::upgrade) {
        return Ok(set);
    }
    // Compiling may take long, and other callers need the lock.
    let set = Arc::new(make()?);
    let mut known = lock();
    let sets = of(&mut known);
    sets.retain(|_, set| set.strong_count() > 0);
    sets.insert(key, Arc::downgrade(&set));
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_pattern::{RegexFlags, Scratch};

    #[test]
    fn equal_sets_are_one_for_as_long_as_one_is_held() {
        let sets = PatternSets::default();
        let of = |bytes, nocase| sets.literals(&[Pattern { id: 3, bytes, nocase }]).unwrap();
        let first = of(b"word", true);
        assert!(Arc::ptr_eq(&first, &of(b"word", true)));
        assert!(!Arc::ptr_eq(&first, &of(b"word", false)) && !Arc::ptr_eq(&first, &of(b"ward", true)));
        let before = Arc::downgrade(&first);
        drop(first);
        assert!(before.upgrade().is_none(), "nobody holds it any more");
        let of = |id, flags| sets.expressions(&[RegexPattern { id, pattern: b"a+b", flags }]).unwrap();
        let expression = of(1, RegexFlags::empty());
        assert!(Arc::ptr_eq(&expression, &of(1, RegexFlags::empty())));
        assert!(!Arc::ptr_eq(&expression, &of(1, RegexFlags::CASELESS)));
        assert!(!Arc::ptr_eq(&expression, &of(2, RegexFlags::empty())));
    }

    #[test]
    fn a_wrong_pattern_is_an_error_with_its_id() {
        let sets = PatternSets::default();
        let empty = sets.literals(&[Pattern { id: 7, bytes: b"", nocase: false }]);
        assert!(empty.is_err_and(|error| error.to_string().contains("pattern 7 is empty")));
        let wrong = sets.expressions(&[RegexPattern { id: 8, pattern: b"(", flags: RegexFlags::empty() }]);
        assert!(wrong.is_err_and(|error| error.to_string().starts_with("expression 8:")));
    }

    #[test]
    fn a_set_finds_what_it_is_of() {
        let sets = PatternSets::default();
        let words: Vec<String> = (0..40).map(|n| format!("word{n};")).collect();
        let patterns: Vec<Pattern<'_>> = (0..)
            .zip(&words)
            .map(|(id, word)| Pattern { id, bytes: word.as_bytes(), nocase: true })
            .collect();
        let set = sets.literals(&patterns).unwrap();
        let (mut scratch, mut found) = (Scratch::new(), Vec::new());
        let mut note = |id, end| {
            found.push((id, end));
            true
        };
        set.scan(&mut scratch, b"..WORD7;..word39;", &mut note).unwrap();
        found.sort_unstable();
        assert_eq!(found, [(7, 8), (39, 17)]);
    }
}
