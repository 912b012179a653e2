// SPDX-License-Identifier: Apache-2.0
//! Log lines on standard error: `warning:` and `error:` before those of these levels, as messages of commands have it.

use crate::say;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Writes the runtime's events from here on. Those of libraries are left out: they are not for operators.
pub fn install() {
    tracing_subscriber::registry().with(Lines.with_filter(LevelFilter::INFO)).init();
}

/// Writes an event as a line.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("bartizan") {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        say::line(
            &mut std::io::stderr().lock(),
            format_args!("{}{}", prefix(event.metadata().level()), text.0),
        );
    }
}

/// What stands before a message of a level.
const fn prefix(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        _ => "",
    }
}

/// The message of an event; other fields follow by their names.
struct Text(String);

impl Visit for Text {
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

    #[test]
    fn lines_of_a_level_begin_with_its_name() {
        assert_eq!(
            [Level::ERROR, Level::WARN, Level::INFO].map(|level| prefix(&level)),
            ["error: ", "warning: ", ""]
        );
    }
}
