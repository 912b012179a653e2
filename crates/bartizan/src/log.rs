// SPDX-License-Identifier: Apache-2.0
//! Log lines on standard error, as text or as JSON.
//!
//! Text has `warning:` and `error:` before lines of these levels, as messages of commands have. JSON is an
//! object a line: `timestamp` (as in events), `level`, `target` (the module that logs), `message`.

use crate::console;
use bartizan_base::Timestamp;
use bartizan_events::{is_control, time_text};
use bartizan_runtime::log::Report;
use serde_json::json;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// The least severe level that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Least {
    /// An error.
    Error,
    /// Errors, and warnings that an operator should look into.
    Warn,
    /// All of these, and normal events.
    #[default]
    Info,
}

/// Log options of long-running programs.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct LogArgs {
    /// Form of log lines on standard error: for people, or one JSON object a line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Least severe log lines that are written.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    pub log_level: Least,
}

/// The form, once set.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Writes the runtime's events from now on. Those of libraries are left out: they are not for operators.
pub fn install(args: LogArgs) {
    let _ = FORMAT.set(args.log_format);
    let least = match args.log_level {
        Least::Error => LevelFilter::ERROR,
        Least::Warn => LevelFilter::WARN,
        Least::Info => LevelFilter::INFO,
    };
    tracing_subscriber::registry().with(Lines.with_filter(least)).init();
}

fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// The receiver of diagnostics of rules, settings and policies: for people they are printed with the lines
/// that they are about, for programs as log lines.
pub fn report() -> Report {
    if is_json() { Report::default() } else { Report::to(console::notes) }
}

/// Writes the reason why the program ends.
pub fn last(message: &str) {
    if is_json() {
        write(&object(Level::ERROR, env!("CARGO_CRATE_NAME"), message));
    } else {
        console::line(&mut std::io::stderr().lock(), format_args!("bartizan: {message}"));
    }
}

/// Writes an event as a line.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        if !about.target().starts_with("bartizan") {
            return;
        }
        let mut text = LogMessage(String::new());
        event.record(&mut text);
        if is_json() {
            write(&object(*about.level(), about.target(), &text.0));
        } else {
            let line = format_args!("{}{}", prefix(*about.level()), text.0);
            console::line(&mut std::io::stderr().lock(), line);
        }
    }
}

/// A line as JSON.
fn object(level: Level, target: &str, message: &str) -> String {
    let level = match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        _ => "info",
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let line = json!({"timestamp": time_text(now), "level": level, "target": target, "message": message});
    // JSON escapes some of the characters that would control a terminal; the others occur in strings only.
    let mut safe = String::new();
    for c in line.to_string().chars() {
        match is_control(c) {
            true => safe.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
            false => safe.push(c),
        }
    }
    safe
}

/// Writes a line; a failure is ignored, since it could be reported nowhere else.
fn write(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// The prefix of a message of this level.
const fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        _ => "",
    }
}

/// The message of an event; other fields follow with their names.
struct LogMessage(String);

impl Visit for LogMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn lines_of_a_level_begin_with_its_name() {
        assert_eq!([Level::ERROR, Level::WARN, Level::INFO].map(prefix), ["error: ", "warning: ", ""]);
    }

    #[test]
    fn a_line_of_json_is_one_object_whatever_it_holds() {
        let line = object(Level::WARN, "bartizan_runtime::supervisor", "a \"rule\"\nand \u{1b}[2J \u{9b}");
        assert!(!line.chars().any(is_control), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["level"], "warning");
        assert_eq!(read["target"], "bartizan_runtime::supervisor");
        assert_eq!(read["message"], "a \"rule\"\nand \u{1b}[2J \u{9b}");
        assert!(read["timestamp"].as_str().is_some_and(|time| time.contains('T')), "{line}");
    }
}
