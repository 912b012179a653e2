// SPDX-License-Identifier: Apache-2.0
//! Bounds on state that traffic or an operator's file can grow, declared beside the code: `cargo xtask
//! generate` makes the tables of docs/limits.md from them.
//!
//! A declaration ([`limits!`](crate::limits)) takes its figures from the constant or default that the code
//! uses, so the page cannot differ. Each crate has its own in `limits.rs`. The program uses none of them:
//! they cost nothing.
//!
//! Bounds other than constants and defaults (`what was sent before the FIN`) are declared without figures; a
//! new constant without a declaration is not detected.

use crate::{PacketDuration, Reason};

/// A bound.
#[derive(Clone, Copy, Debug)]
pub struct LimitSpec {
    /// The table of the bound.
    pub table: LimitTable,
    /// The bounded quantity.
    pub name: &'static str,
    /// The bound in words; each `{}` is one of the figures.
    pub value: &'static str,
    /// The figures, from the constants or defaults that the code uses.
    pub figures: fn() -> Vec<String>,
    /// The expressions of the figures.
    pub made_of: &'static [&'static str],
    /// Files with these constants, and those that enforce them, below `crates/` without `src`.
    pub at: &'static [&'static str],
    /// The effect of reaching the bound.
    pub happens: &'static str,
    /// The signs of reaching the bound: counters and events.
    pub traces: &'static [LimitTrace],
}

/// Tables of docs/limits.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitTable {
    /// Bounds per flow and per packet.
    Flow,
    /// Bounds of protocols.
    Protocol,
    /// Bounds of rules.
    Rule,
    /// Bounds of the command socket.
    Control,
    /// Bounds of the controller, its REST API and its messages to devices.
    Controller,
    /// Bounds of files that operators write, and of output.
    File,
}

impl LimitTable {
    /// All kinds of bounds.
    pub const ALL: [LimitTable; 6] = [
        LimitTable::Flow,
        LimitTable::Protocol,
        LimitTable::Rule,
        LimitTable::Control,
        LimitTable::Controller,
        LimitTable::File,
    ];

    /// Name in the marks around the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LimitTable::Flow => "flow",
            LimitTable::Protocol => "protocol",
            LimitTable::Rule => "rule",
            LimitTable::Control => "control",
            LimitTable::Controller => "controller",
            LimitTable::File => "file",
        }
    }
}

/// A sign that a bound was reached.
#[derive(Clone, Copy, Debug)]
pub enum LimitTrace {
    /// Counters of EVE's `stats`: a name, or the beginning of several names and `*`.
    Stats(&'static str),
    /// A metric.
    Metric(&'static str),
    /// The counter of a reason for refusing packets.
    Refused(Reason),
    /// An event that rules can use: of the decoder, of the stream, of a protocol.
    Event(&'static str),
    /// A counter of a function, in its metrics.
    Function(&'static str),
    /// Another sign, in words: a field of a record, a line that is printed.
    Told(&'static str),
    /// No sign is needed.
    NotNeeded,
    /// No sign, though there should be one: a gap to be closed.
    Nothing,
}

impl LimitTrace {
    /// The text for the page.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            LimitTrace::Stats(name) | LimitTrace::Metric(name) => format!("`{name}`"),
            LimitTrace::Refused(reason) => format!("refused by reason (`{}`)", reason.name()),
            LimitTrace::Event(name) => format!("event `{name}`"),
            LimitTrace::Function(name) => format!("`{name}` of the function"),
            LimitTrace::Told(words) => words.to_owned(),
            LimitTrace::NotNeeded => "none needed".to_owned(),
            LimitTrace::Nothing => "none".to_owned(),
        }
    }
}

impl LimitSpec {
    /// The bound with its figures.
    #[must_use]
    pub fn bound(&self) -> String {
        let mut figures = (self.figures)().into_iter();
        let mut text = String::new();
        for (position, part) in self.value.split("{}").enumerate() {
            if position > 0 {
                text.push_str(&figures.next().unwrap_or_else(|| "{}".to_owned()));
            }
            text.push_str(part);
        }
        text
    }

    /// The error in the declaration itself: a figure within the words, or one too many or too few.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let places = self.value.matches("{}").count();
        let figures = (self.figures)().len();
        if places != figures {
            return Some(format!("{}: {places} places for {figures} figures", self.name));
        }
        // Backquotes enclose names of settings.
        let in_words =
            self.value.split('`').step_by(2).any(|words| words.contains(|c: char| c.is_ascii_digit()));
        in_words.then(|| {
            format!(
                "{}: the description of the bound contains a number; take it from the constant",
                self.name
            )
        })
    }

    /// The row for the page.
    #[must_use]
    pub fn row(&self) -> String {
        let at: Vec<String> = self.at.iter().map(|file| format!("`{file}`")).collect();
        let traces: Vec<String> = self.traces.iter().map(|trace| trace.text()).collect();
        let (name, bound, happens) = (self.name, self.bound(), self.happens);
        format!("| {name} | {bound} | {} | {happens} | {} |\n", at.join(", "), traces.join(", "))
    }
}

/// Declares bounds: table, bounded quantity, the bound and its figures, files, effect, signs.
#[macro_export]
macro_rules! limits {
    ($($table:ident $name:literal = $value:literal [$($figure:expr),* $(,)?] in [$($at:literal),+],
        $happens:literal, [$($trace:expr),+ $(,)?];)*) => {
        &[$($crate::limit::LimitSpec {
            table: $crate::limit::LimitTable::$table,
            name: $name,
            value: $value,
            figures: || ::std::vec![$($figure),*],
            made_of: &[$(::core::stringify!($figure)),*],
            at: &[$($at),+],
            happens: $happens,
            traces: &[$($trace),+],
        },)*]
    };
}

/// A number with commas.
#[must_use]
pub fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes.
#[must_use]
pub fn bytes(number: impl TryInto<u64>) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if number > 0 && number % (1 << shift) == 0 {
            return format!("{} {unit}", count(number >> shift));
        }
    }
    format!("{} bytes", count(number))
}

/// A number of bytes; 0 means that there is no bound.
#[must_use]
pub fn bytes_or_none(number: impl TryInto<u64>) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        0 => "no bound".to_owned(),
        number => bytes(number),
    }
}

/// A time.
#[must_use]
pub fn time(time: PacketDuration) -> String {
    let millis = time.as_nanos() / 1_000_000;
    match (millis / 1_000, millis % 1_000) {
        (seconds, 0) if seconds >= 3_600 && seconds.is_multiple_of(60) => {
            match (seconds / 3_600, seconds % 3_600 / 60) {
                (hours, 0) => format!("{hours} h"),
                (hours, minutes) => format!("{hours} h {minutes} min"),
            }
        }
        (seconds, 0) => format!("{} s", count(seconds)),
        _ => format!("{} ms", count(millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 65_535, 1 << 20].map(count), ["0", "999", "1,000", "65,535", "1,048,576"]);
        assert_eq!(
            [0, 1_172, 18_432, 2_048, 3_u64 << 30].map(bytes),
            ["0 bytes", "1,172 bytes", "18 KiB", "2 KiB", "3 GiB"]
        );
        assert_eq!([0, 1_000].map(bytes_or_none), ["no bound", "1,000 bytes"]);
        let times =
            [0, 150, 3_000, 60_000, 7_440_000, 3_600_000].map(|ms| time(PacketDuration::from_millis(ms)));
        assert_eq!(times, ["0 s", "150 ms", "3 s", "60 s", "2 h 4 min", "1 h"]);
    }

    #[test]
    fn rows_have_the_figures_of_the_constants() {
        const MOST: usize = 8_192;
        let declared: &[LimitSpec] = limits! {
            Flow "fish" = "{} a pond, `pond.max2`" [count(MOST)] in ["base/limit.rs"], "swim away",
                [LimitTrace::Stats("fish.lost"), LimitTrace::Refused(Reason::Unreadable)];
            Rule "birds" = "2 a tree" [] in ["base/limit.rs"], "fly", [LimitTrace::Nothing];
            Rule "bees" = "{}" [] in ["base/limit.rs"], "sting", [LimitTrace::NotNeeded];
        };
        let [fish, birds, bees] = declared else { unreachable!() };
        let row = "| fish | 8,192 a pond, `pond.max2` | `base/limit.rs` | swim away | `fish.lost`, refused by reason (`unreadable`) |\n";
        assert_eq!(fish.row(), row);
        assert_eq!(fish.made_of, ["count(MOST)"]);
        assert_eq!(fish.fault(), None);
        assert!(birds.fault().unwrap().contains("the description of the bound contains a number"));
        assert!(bees.fault().unwrap().contains("1 places for 0 figures"));
    }
}
