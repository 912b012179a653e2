// SPDX-License-Identifier: Apache-2.0
//! Prepares a [`Scratch`] before packets pass, for each kind of scan.

use crate::regex::{LimitExceeded, Regex};
use crate::regex_set::RegexSet;
use crate::scratch::Scratch;
use crate::set::{PatternSet, ScanError};

impl Scratch {
    /// Reserves memory for scans of `set`, so that none of them allocates.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_patterns(&mut self, set: &PatternSet) -> Result<(), ScanError> {
        set.prepare(self)
    }

    /// Reserves memory for scans of `set`, including machine code of its PCRE2 expressions.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_regexes(&mut self, set: &RegexSet) -> Result<(), ScanError> {
        set.prepare(self)
    }

    /// Reserves memory for matches of `regex`, and compiles its machine code if that was left for its first
    /// match.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_regex(&mut self, regex: &Regex) -> Result<(), LimitExceeded> {
        regex.prepare(self)
    }
}
