// SPDX-License-Identifier: Apache-2.0
//! Threshold files: `threshold` (also called `event_filter`), `rate_filter` and `suppress`, which change the
//! reports of rules without changing the rules. Source: Suricata 8's user guide, "Global-Thresholds". The
//! caller matches entries to rules (0 stands for all).

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, code};
use crate::expr::{AddressExpr, parse_expr};
use crate::source::{SourceFile, Span};
use crate::suggest::suggest;

/// The key by which events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThresholdTrack {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The pair of addresses, in either order.
    Both,
    /// The rule alone.
    Rule,
    /// The flow.
    Flow,
    /// Either address (suppression only).
    Either,
}

/// The kind of a threshold's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThresholdType {
    /// At most `count` reports in the time.
    Limit,
    /// Every `count`-th event in the time reports.
    Threshold,
    /// One report in the time, after `count` events.
    Both,
}

/// The action of a rule while its rate is too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewAction {
    /// Report.
    Alert,
    /// Drop.
    Drop,
    /// Let the packet pass.
    Pass,
    /// Send a rejection and drop.
    Reject,
    /// `log` and `sdrop`, which Suricata parses without effect.
    None,
}

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThresholdKind {
    /// Limits reports.
    EventFilter {
        /// Kind of the limit.
        kind: ThresholdType,
        /// Key of the count.
        track: ThresholdTrack,
        /// Number of events.
        count: u32,
        /// Interval in seconds.
        seconds: u32,
    },
    /// Changes the action at a rate.
    RateFilter {
        /// Key of the count.
        track: ThresholdTrack,
        /// Number of events.
        count: u32,
        /// Interval in seconds.
        seconds: u32,
        /// Action above the rate.
        action: NewAction,
        /// Duration of that action in seconds.
        timeout: u32,
    },
    /// Never reports, for some addresses or for all.
    Suppress {
        /// Side and addresses; `None`: all.
        only: Option<(ThresholdTrack, AddressExpr)>,
    },
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdEntry {
    /// Generator; 0 for all.
    pub gid: u32,
    /// Signature; 0 for all.
    pub sid: u32,
    /// Effect of the entry.
    pub kind: ThresholdKind,
    /// Place in the file.
    pub span: Span,
}

/// The entries of a file.
#[derive(Clone, Debug)]
pub struct Thresholds {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Entries in the order of the file.
    pub entries: Vec<ThresholdEntry>,
    /// Findings: lines that could not be read.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a threshold file. A line that cannot be read is left out with a diagnostic.
#[must_use]
pub fn parse_thresholds(text: impl Into<Vec<u8>>, name: &str) -> Thresholds {
    let source = Arc::new(SourceFile::settings(name, text));
    let (mut entries, mut diagnostics) = (Vec::new(), Vec::new());
    for span in source.settings_lines() {
        let mut line = ThresholdLine { text: source.bytes(span), at: 0 };
        match line.entry(span) {
            Ok(entry) => entries.push(entry),
            Err(e) => {
                let d =
                    Diagnostic::error(&source, span.slice(e.start, e.end), code::BAD_THRESHOLD, e.message);
                diagnostics.push(d.suggestion(e.near).help(
                    "an entry has one of the forms: threshold gen_id G, sig_id S, type T, track BY, count N, seconds N; \
                     rate_filter gen_id G, sig_id S, track BY, count N, seconds N, new_action A, timeout N; \
                     suppress gen_id G, sig_id S[, track BY, ip ADDRESSES]",
                ));
            }
        }
    }
    Thresholds { source, entries, diagnostics }
}

struct LineError {
    message: String,
    start: usize,
    end: usize,
    near: Option<&'static str>,
}

struct ThresholdLine<'a> {
    text: &'a [u8],
    at: usize,
}

type ThresholdWords<T> = [(&'static str, T)];

const TRACKS: &ThresholdWords<ThresholdTrack> = &[
    ("by_src", ThresholdTrack::Source),
    ("by_dst", ThresholdTrack::Destination),
    ("by_both", ThresholdTrack::Both),
    ("by_rule", ThresholdTrack::Rule),
    ("by_flow", ThresholdTrack::Flow),
];

const SUPPRESS_TRACKS: &ThresholdWords<ThresholdTrack> = &[
    ("by_src", ThresholdTrack::Source),
    ("by_dst", ThresholdTrack::Destination),
    ("by_either", ThresholdTrack::Either),
];

const TYPES: &ThresholdWords<ThresholdType> = &[
    ("limit", ThresholdType::Limit),
    ("threshold", ThresholdType::Threshold),
    ("both", ThresholdType::Both),
];

const ACTIONS: &ThresholdWords<NewAction> = &[
    ("alert", NewAction::Alert),
    ("drop", NewAction::Drop),
    ("pass", NewAction::Pass),
    ("reject", NewAction::Reject),
    ("log", NewAction::None),
    ("sdrop", NewAction::None),
];

#[derive(Clone, Copy)]
enum ThresholdCommand {
    Filter,
    Rate,
    Suppress,
}

const COMMANDS: &ThresholdWords<ThresholdCommand> = &[
    ("threshold", ThresholdCommand::Filter),
    ("event_filter", ThresholdCommand::Filter),
    ("rate_filter", ThresholdCommand::Rate),
    ("suppress", ThresholdCommand::Suppress),
];

impl<'a> ThresholdLine<'a> {
    fn entry(&mut self, span: Span) -> Result<ThresholdEntry, LineError> {
        let command = self.choice(COMMANDS)?;
        let gid = self.named("gen_id")?;
        self.comma()?;
        let start = self.at;
        let sid = self.named("sig_id")?;
        if gid == 0 && sid != 0 {
            return Err(self.error("gen_id 0 means every generator and needs sig_id 0", start));
        }
        let kind = match command {
            ThresholdCommand::Filter => {
                let kind = self.field("type", TYPES)?;
                let track = self.field("track", TRACKS)?;
                let (count, seconds) = self.rate()?;
                ThresholdKind::EventFilter { kind, track, count, seconds }
            }
            ThresholdCommand::Rate => {
                let track = self.field("track", TRACKS)?;
                let (count, seconds) = self.rate()?;
                let action = self.field("new_action", ACTIONS)?;
                self.comma()?;
                let timeout = self.named("timeout")?;
                ThresholdKind::RateFilter { track, count, seconds, action, timeout }
            }
            ThresholdCommand::Suppress => ThresholdKind::Suppress { only: self.suppressed()? },
        };
        self.blanks();
        if self.at < self.text.len() {
            let start = self.at;
            self.at = self.text.len();
            return Err(self.error("unexpected text after the entry", start));
        }
        Ok(ThresholdEntry { gid, sid, kind, span })
    }

    fn suppressed(&mut self) -> Result<Option<(ThresholdTrack, AddressExpr)>, LineError> {
        self.blanks();
        if self.at == self.text.len() {
            return Ok(None);
        }
        let track = self.field("track", SUPPRESS_TRACKS)?;
        self.comma()?;
        self.word("ip")?;
        self.blanks();
        let start = self.at;
        let text = self.rest();
        self.at = self.text.len();
        if text.contains(&b'!') {
            return Err(self.error("addresses to suppress cannot be negated", start));
        }
        let expr = parse_expr(text).map_err(|e| LineError {
            message: e.to_string(),
            start: start + e.start,
            end: start + e.end,
            near: None,
        })?;
        Ok(Some((track, expr)))
    }

    fn rate(&mut self) -> Result<(u32, u32), LineError> {
        self.comma()?;
        let count = self.named("count")?;
        self.comma()?;
        Ok((count, self.named("seconds")?))
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.at += self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
    }

    fn error(&self, message: impl Into<String>, start: usize) -> LineError {
        LineError { message: message.into(), start, end: self.at.max(start), near: None }
    }

    fn comma(&mut self) -> Result<(), LineError> {
        self.blanks();
        if self.rest().first() != Some(&b',') {
            return Err(self.error("a comma and the next field are missing here", self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Parses a comma, the field's name and one of its words.
    fn field<T: Copy>(
        &mut self,
        name: &'static str,
        table: &'static ThresholdWords<T>,
    ) -> Result<T, LineError> {
        self.comma()?;
        self.word(name)?;
        self.choice(table)
    }

    fn take_word(&mut self) -> (&'a [u8], usize) {
        self.blanks();
        let start = self.at;
        self.at += self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        (self.text.get(start..self.at).unwrap_or_default(), start)
    }

    /// Parses the field's name; as in Suricata, blanks after it are optional.
    fn word(&mut self, name: &'static str) -> Result<(), LineError> {
        self.blanks();
        if self.rest().starts_with(name.as_bytes()) {
            self.at += name.len();
            return Ok(());
        }
        let (_, start) = self.take_word();
        let mut e = self.error(format!("`{name}` is expected here"), start);
        e.near = Some(name).filter(|_| e.end > e.start);
        Err(e)
    }

    fn choice<T: Copy>(&mut self, table: &'static ThresholdWords<T>) -> Result<T, LineError> {
        let (word, start) = self.take_word();
        if let Some((_, value)) = table.iter().find(|(n, _)| n.as_bytes() == word) {
            return Ok(*value);
        }
        let names: Vec<&str> = table.iter().map(|(n, _)| *n).collect();
        let shown = String::from_utf8_lossy(word).into_owned();
        let mut e = self.error(format!("`{shown}` is not one of {}", names.join(", ")), start);
        e.near = suggest(&shown, table.iter().map(|(n, _)| *n));
        Err(e)
    }

    fn named(&mut self, name: &'static str) -> Result<u32, LineError> {
        self.word(name)?;
        let (word, start) = self.take_word();
        let digits = core::str::from_utf8(word).ok().filter(|w| w.bytes().all(|b| b.is_ascii_digit()));
        digits
            .and_then(|d| d.parse().ok())
            .ok_or_else(|| self.error(format!("{name} takes a number up to {}", u32::MAX), start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<ThresholdKind, (u32, u32, String)> {
        let mut t = parse_thresholds(text.as_bytes(), "threshold.config");
        match t.diagnostics.first() {
            Some(d) => Err((d.line, d.column, d.message.clone())),
            None => Ok(t.entries.remove(0).kind),
        }
    }

    #[test]
    fn every_kind() {
        use ThresholdKind as K;
        assert_eq!(
            one("# c\nthreshold gen_id 1, sig_id 10, type both, track by_flow, \\\n  count 5, seconds 60\n"),
            Ok(K::EventFilter {
                kind: ThresholdType::Both,
                track: ThresholdTrack::Flow,
                count: 5,
                seconds: 60
            })
        );
        assert_eq!(
            one(
                "rate_filter gen_id 1,sig_id 10,track by_both,count 1,seconds 60,new_action reject,timeout 1000"
            ),
            Ok(K::RateFilter {
                track: ThresholdTrack::Both,
                count: 1,
                seconds: 60,
                action: NewAction::Reject,
                timeout: 1000
            })
        );
        assert_eq!(one("suppress gen_id 0, sig_id 0"), Ok(K::Suppress { only: None }));
        let Ok(K::Suppress { only: Some((track, ip)) }) = one(
            "  suppress gen_id 1, sig_id 2, track by_either, ip [145.254.160.0/24, fe80::/10,$HOME_NET]\r\n",
        ) else {
            panic!("not a suppression")
        };
        assert_eq!(
            (track, ip.to_string().as_str()),
            (ThresholdTrack::Either, "[145.254.160.0/24,fe80::/10,$HOME_NET]")
        );
    }

    #[test]
    fn errors_have_their_place() {
        let at = |t: &str| one(t).map_err(|(l, c, _)| (l, c)).unwrap_err();
        assert_eq!(at("supress gen_id 1, sig_id 2"), (1, 1));
        assert_eq!(at("suppress gen_id 0, sig_id 2"), (1, 19));
        assert_eq!(at("suppress gen_id 1, sig_id x"), (1, 27));
        assert_eq!(at("suppress gen_id 1, sig_id 2, track by_src, ip 1.2.3"), (1, 47));
        assert_eq!(at("suppress gen_id 1, sig_id 2, track by_src, ip !1.2.3.4"), (1, 47));
        assert_eq!(
            at("threshold gen_id 1, sig_id 2, type limits, track by_src, count 1, seconds 1"),
            (1, 36)
        );
        assert_eq!(at("threshold gen_id 1, sig_id 2, type limit, track by_src, count 1"), (1, 64));
        assert_eq!(at("suppress gen_id 1, sig_id 2 x"), (1, 29));
        let t = parse_thresholds(b"treshold gen_id 1, sig_id 2".as_slice(), "t");
        assert_eq!(t.diagnostics[0].suggestion.as_deref(), Some("threshold"));
        assert!(t.diagnostics[0].render(false).contains("did you mean"));
    }
}
