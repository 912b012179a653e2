// SPDX-License-Identifier: Apache-2.0
//! Compares a program's answers with Suricata's, and knows the open differences.

use crate::answer::{Answer, File};
use crate::engine::Program;
use crate::explained::{Why, reasons};
use crate::pair::Pair;
use crate::reasons::Reason;
use std::collections::{BTreeMap, BTreeSet};

/// Modes in which pairs are run; their index is the mode's number.
pub const MODES: [&str; 2] = ["passive", "prevention"];

/// A pair whose answer differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The pair's number.
    pub number: u32,
    /// Index in [`MODES`].
    pub mode: usize,
    /// Lines of the difference.
    pub lines: Vec<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} {}", self.number, MODES[self.mode], self.lines.join(" "))
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Differences without a reason.
    pub differences: Vec<Difference>,
    /// Number of explained differences, by reason.
    pub explained: BTreeMap<Reason, u32>,
    /// Explained lines with their reasons, for review.
    pub lines: Vec<String>,
}

/// Generates the pairs of a file of answers.
///
/// # Errors
///
/// A generated pair differs from the one that was answered.
pub fn pairs(file: &File) -> Result<Vec<Pair>, String> {
    let pairs: Vec<Pair> = file.answers.keys().map(|number| file.grammar.pair(file.seed, *number)).collect();
    match pairs.iter().find(|pair| file.answers[&pair.number].0 != pair.digest()) {
        Some(pair) => Err(format!(
            "pair {} is not the one that was asked about: the generator has changed. Make the answers anew: differential answers \
             --seed {} --pairs {} --protocols '{}'",
            pair.number,
            file.seed,
            pairs.len(),
            file.grammar.names()
        )),
        None => Ok(pairs),
    }
}

/// Compares a program's answers to pairs with those of a file.
///
/// # Errors
///
/// The program cannot be run.
pub fn compare(program: &Program, pairs: &[Pair], file: &File, batch: usize) -> Result<Comparison, String> {
    let mut comparison = Comparison::default();
    for (mode, name) in MODES.iter().enumerate() {
        let got = program.run(pairs, mode == 1, batch)?;
        for pair in pairs {
            let none = Answer::default();
            let got = got.get(&pair.number).unwrap_or(&none);
            let want = &file.answers[&pair.number].1[mode];
            if got == want {
                continue;
            }
            let (mut open, mut because) = (Vec::new(), BTreeSet::new());
            for (line, why) in reasons(pair, mode == 1, got, want) {
                let reason = match why {
                    Why::Open => {
                        open.push(line);
                        continue;
                    }
                    Why::Reason(reason) => {
                        because.insert(reason);
                        reason.cause
                    }
                    Why::Follows => "what follows from one with a reason",
                };
                comparison.lines.push(format!("{} {name} {line}: {reason}", pair.number));
            }
            if !open.is_empty() {
                comparison.differences.push(Difference { number: pair.number, mode, lines: open });
            } else {
                for reason in because {
                    *comparison.explained.entry(reason).or_default() += 1;
                }
            }
        }
    }
    Ok(comparison)
}

/// Known open differences, one per line; lines with `#` are comments.
#[must_use]
pub fn known(text: &str) -> BTreeSet<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}
