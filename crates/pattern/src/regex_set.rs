// SPDX-License-Identifier: Apache-2.0
//! Sets of regular expressions: finds those that match a block of bytes.
//!
//! All expressions that libhs accepts are one database and one scan; PCRE2 matches each of the others by
//! itself, with the reason kept ([`RegexSet::fallbacks`]). Both answer one question, *does it match
//! anywhere*, which does not depend on greediness or on the choice among several matches; so a set reports
//! ids and no offsets. Use a [`Regex`] for these.
//!
//! PCRE2 decides about validity: an expression that it refuses is refused here too, even if libhs accepts it.
//!
//! libhs compiles regular expressions far more slowly than literals. Build sets with a cache, not where a
//! start must be quick.
//!
//! Not supported: libhs' prefilter mode (candidates that PCRE2 confirms), offsets.

use std::ffi::{CString, c_uint};

use crate::engine::FallbackReason;
use crate::ffi_hs::{Database, HS_FLAG_CASELESS, HS_FLAG_DOTALL, HS_FLAG_MULTILINE, HS_FLAG_SINGLEMATCH};
use crate::regex::{LimitExceeded, MatchOptions, Regex, RegexError, RegexFlags};
use crate::scratch::Scratch;
use crate::set::ScanError;

/// One expression as given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegexPattern<'a> {
    /// Id that a match reports.
    pub id: u32,
    /// The text of the expression.
    pub pattern: &'a [u8],
    /// The expression's flags.
    pub flags: RegexFlags,
}

/// An expression of a set that PCRE2 matches, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Id of the expression.
    pub id: u32,
    /// Reason why libhs does not match it.
    pub reason: FallbackReason,
    /// The reason in words, with libhs' message.
    pub message: String,
}

/// An expression of a set that PCRE2 refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expression {id}: {error}")]
pub struct RegexSetError {
    /// Id of the expression.
    pub id: u32,
    /// Error of PCRE2.
    #[source]
    pub error: RegexError,
}

/// Many expressions, compiled. Shared between threads.
#[derive(Debug)]
pub struct RegexSet {
    pub(crate) database: Option<std::sync::Arc<Database>>,
    /// Ids of the expressions in the database, by their index in it.
    pub(crate) ids: Box<[u32]>,
    pub(crate) single: Box<[(u32, Regex)]>,
    pub(crate) fallbacks: Box<[Fallback]>,
}

impl RegexSet {
    /// Calls `on_match(id)` once for each expression that matches somewhere in `haystack`, until it returns
    /// false. The order is not specified. Returns the number of expressions that ended without an answer
    /// because of a limit; the caller counts these.
    ///
    /// # Errors
    /// A haystack over 4 GiB, no memory (at the first scan with a scratch that was not prepared), an internal
    /// error of libhs.
    pub fn scan(
        &self,
        scratch: &mut Scratch,
        haystack: &[u8],
        mut on_match: impl FnMut(u32) -> bool,
    ) -> Result<u32, ScanError> {
        let mut go_on = true;
        if let Some(database) = &self.database {
            scratch.fit_database(database).map_err(|_| ScanError::Memory)?;
            if u32::try_from(haystack.len()).is_err() {
                return Err(ScanError::TooLong(haystack.len()));
            }
            let Some(hyperscan) = &mut scratch.hyperscan else { return Err(ScanError::Memory) };
            let result = database.scan(hyperscan, haystack, |place, _| {
                go_on = self.ids.get(place as usize).is_none_or(|id| on_match(*id));
                go_on
            });
            result.map_err(|error| ScanError::Internal(error.0))?;
        }
        let mut limited = 0;
        for (id, regex) in &self.single {
            if !go_on {
                break;
            }
            match regex.find_at(scratch, haystack, 0, MatchOptions::empty()) {
                Ok(Some(_)) => go_on = on_match(*id),
                Ok(None) => {}
                Err(LimitExceeded::Memory) => return Err(ScanError::Memory),
                Err(_) => limited += 1,
            }
        }
        Ok(limited)
    }

    pub(crate) fn prepare(&self, scratch: &mut Scratch) -> Result<(), ScanError> {
        if let Some(database) = &self.database {
            scratch.fit_database(database).map_err(|_| ScanError::Memory)?;
        }
        self.single.iter().try_for_each(|(_, regex)| regex.prepare(scratch)).map_err(|_| ScanError::Memory)
    }

    /// Number of expressions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len() + self.single.len()
    }

    /// Whether there is nothing to match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of expressions that libhs matches.
    #[must_use]
    pub fn in_hyperscan(&self) -> usize {
        self.ids.len()
    }

    /// The expressions that PCRE2 matches one by one, with the reasons, in the order of the set.
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.database.as_ref().map_or(0, |database| database.memory_usage())
            + size_of_val(&*self.ids)
            + self.single.iter().map(|(_, regex)| size_of::<u32>() + regex.memory_usage()).sum::<usize>()
            + self.fallbacks.iter().map(|f| size_of::<Fallback>() + f.message.len()).sum::<usize>()
    }
}

/// The text and flags by which libhs gives the same matches as PCRE2, or the reason why there are none.
pub(crate) fn translate(pattern: &[u8], flags: RegexFlags) -> Result<(CString, c_uint), FallbackReason> {
    // libhs always lets `$` match before a last line end. Without a `$` in the expression the flag has no
    // effect.
    if flags.contains(RegexFlags::DOLLAR_ENDONLY) && pattern.contains(&b'$') {
        return Err(FallbackReason::Flag);
    }
    if has_new_quantifier(pattern) {
        return Err(FallbackReason::Differs);
    }
    let extended = flags.contains(RegexFlags::EXTENDED);
    let anchored = flags.contains(RegexFlags::ANCHORED);
    let mut text = Vec::with_capacity(pattern.len() + 16);
    text.extend_from_slice(if extended { b"(?x)" } else { b"" });
    text.extend_from_slice(if anchored { b"\\A(?:" } else { b"" });
    text.extend_from_slice(pattern);
    if extended && pattern.contains(&b'#') {
        // A comment at the end must be closed by a line end, for libhs and before the added parenthesis. The
        // line end itself has no meaning, unless the expression has disabled the flag or quotes the rest.
        if memchr::memmem::find(pattern, b"(?").is_some() || memchr::memmem::find(pattern, b"\\Q").is_some() {
            return Err(FallbackReason::Differs);
        }
        text.push(b'\n');
    }
    text.extend_from_slice(if anchored { b")" } else { b"" });
    // UNGREEDY and NO_AUTO_CAPTURE do not change whether there is a match.
    let mut bits = HS_FLAG_SINGLEMATCH;
    for (flag, bit) in [
        (RegexFlags::CASELESS, HS_FLAG_CASELESS),
        (RegexFlags::MULTILINE, HS_FLAG_MULTILINE),
        (RegexFlags::DOTALL, HS_FLAG_DOTALL),
    ] {
        if flags.contains(flag) {
            bits |= bit;
        }
    }
    CString::new(text).map(|text| (text, bits)).map_err(|_| FallbackReason::Nul)
}

/// Whether the expression has a quantifier that PCRE2 supports only since 10.43, and libhs not: `{,3}`, `{ 1,
/// 3 }`. Libraries without it read it as plain characters.
fn has_new_quantifier(pattern: &[u8]) -> bool {
    pattern.split(|b| *b == b'{').skip(1).any(|rest| {
        let inner = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b',' | b' ' | b'\t'));
        let Some(end) = inner.filter(|end| rest.get(*end) == Some(&b'}')) else { return false };
        let inner = rest.get(..end).unwrap_or_default();
        inner.first() == Some(&b',') || inner.iter().any(|b| matches!(b, b' ' | b'\t'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translation() {
        let text = |pattern: &[u8], flags| translate(pattern, flags).map(|(text, _)| text.into_bytes());
        assert_eq!(text(b"a|b", RegexFlags::ANCHORED), Ok(b"\\A(?:a|b)".to_vec()));
        assert_eq!(
            text(b"a # b", RegexFlags::ANCHORED | RegexFlags::EXTENDED),
            Ok(b"(?x)\\A(?:a # b\n)".to_vec())
        );
        assert_eq!(text(b"a # b", RegexFlags::EXTENDED), Ok(b"(?x)a # b\n".to_vec()));
        assert_eq!(text(b"a#(?-x)", RegexFlags::EXTENDED), Err(FallbackReason::Differs));
        for quantifier in ["a{,3}", "a{ 1}", "x{2}a{1, 3}", "a{1,3 }", "a{,}"] {
            assert_eq!(text(quantifier.as_bytes(), RegexFlags::empty()), Err(FallbackReason::Differs));
        }
        for other in ["a{1,3}", "a{1,}", "a{2}", "a{b}", "a{", "a{1", "{x,3}"] {
            assert_eq!(text(other.as_bytes(), RegexFlags::empty()), Ok(other.as_bytes().to_vec()));
        }
        assert_eq!(text(b"a$", RegexFlags::DOLLAR_ENDONLY), Err(FallbackReason::Flag));
        assert_eq!(text(b"a", RegexFlags::DOLLAR_ENDONLY), Ok(b"a".to_vec()));
        assert_eq!(text(b"a\0", RegexFlags::empty()), Err(FallbackReason::Nul));
        assert_eq!(
            translate(b"a", RegexFlags::CASELESS | RegexFlags::UNGREEDY).unwrap().1,
            HS_FLAG_SINGLEMATCH | HS_FLAG_CASELESS
        );
    }
}
