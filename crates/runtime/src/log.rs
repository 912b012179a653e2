// SPDX-License-Identifier: Apache-2.0
//! Log lines and diagnostics. Lines are events of [`tracing`]: an embedding program installs a subscriber of
//! its choice; without one nothing is written. Diagnostics of rules, settings and policies are values
//! ([`Note`]) that go to the receiver in the options ([`Report`]).

use bartizan_rules::Diagnostic;
use tracing::{error, info, warn};

/// A diagnostic of a build.
#[derive(Clone, Debug)]
pub enum Note {
    /// A line, which may begin with its severity (`warning:`).
    Line(String),
    /// A finding in a file, with its line.
    Finding(Diagnostic),
}

/// Receiver of diagnostics: the log, unless a program takes them itself.
#[derive(Clone, Copy, Default)]
pub struct Report(Option<fn(&[Note])>);

impl Report {
    /// A receiver function.
    pub const fn to(take: fn(&[Note])) -> Self {
        Report(Some(take))
    }

    /// Passes diagnostics on.
    pub(crate) fn notes(self, notes: &[Note]) {
        match self.0 {
            Some(take) => take(notes),
            None => notes.iter().for_each(|note| match note {
                Note::Line(text) => line(text),
                Note::Finding(finding) => warn!("{}", finding.render(false)),
            }),
        }
    }
}

/// Logs a line at the level that it begins with (`error:`, `warning:`), else as information.
pub fn line(text: &str) {
    match text.split_once(": ") {
        Some(("error", text)) => error!("{text}"),
        Some(("warning", text)) => warn!("{text}"),
        _ => info!("{text}"),
    }
}
