// SPDX-License-Identifier: Apache-2.0
//! Making room in a [`Scratch`] before packets pass: for each thing that scans with one.

use crate::regex::{LimitExceeded, Regex};
use crate::regex_set::RegexSet;
use crate::scratch::Scratch;
use crate::set::{PatternSet, ScanError};

impl Scratch {
    /// Makes room for scans of `set`, so that none of them allocates.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_patterns(&mut self, set: &PatternSet) -> Result<(), ScanError> {
        set.prepare(self)
    }

    /// Makes room for scans of `set`, machine code of its PCRE2 expressions included.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_regexes(&mut self, set: &RegexSet) -> Result<(), ScanError> {
        set.prepare(self)
    }

    /// Makes room for matches of `regex`, and compiles its machine code if that was left for its first match.
    ///
    /// # Errors
    /// No memory.
    pub fn prepare_regex(&mut self, regex: &Regex) -> Result<(), LimitExceeded> {
        regex.prepare(self)
    }
}
