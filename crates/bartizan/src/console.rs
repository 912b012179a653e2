// SPDX-License-Identifier: Apache-2.0
//! Printing. `print!`, `println!` and `eprintln!` of this program are those of this module: text from
//! traffic, rules, policies and file names cannot control the terminal ([`bartizan_events::harmless`]).
//! Files and pipes get the same text, since a terminal may show it later.
//!
//! Only this program's own colours pass, by [`diagnostic`].
//!
//! All standard output goes through [`out`], which notes a failed write: the program reports it when it
//! ends, and its exit status is not that of a success ([`failure`]).

use crate::signals;
use bartizan_events::harmless;
use bartizan_rules::Diagnostic;
use bartizan_runtime::log::Note;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;

/// The standard library's macro, with harmless output.
macro_rules! println {
    () => { $crate::console::line(&mut $crate::console::out(), format_args!("")) };
    ($($text:tt)*) => { $crate::console::line(&mut $crate::console::out(), format_args!($($text)*)) };
}

/// The standard library's macro, with harmless output.
macro_rules! print {
    ($($text:tt)*) => { $crate::console::text(&mut $crate::console::out(), format_args!($($text)*)) };
}

/// The standard library's macro, with harmless output.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::console::line(&mut std::io::stderr().lock(), format_args!($($text)*)) };
}

/// The first error of writing to standard output.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Standard output.
pub struct Out(StdoutLock<'static>);

/// Standard output; its failures are noted.
pub fn out() -> Out {
    Out(io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(note)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(note)
    }
}

/// Notes an error of standard output. A closed pipe is none: its reader has read enough, and the command
/// ends.
pub fn note(error: &io::Error) {
    match error.kind() {
        ErrorKind::BrokenPipe => signals::output_closed(),
        ErrorKind::Interrupted => {}
        _ => drop(FAILURE.set(error.to_string())),
    }
}

/// The message that standard output could not be written; `None` if all of it was.
pub fn failure() -> Option<String> {
    // The end of a line may still be buffered; a failure is noted.
    let _ = out().flush();
    let error = FAILURE.get()?;
    Some(format!(
        "the output is incomplete: cannot write to standard output: {error}; free space or redirect it, and run the command again"
    ))
}

/// Writes a line. A failure is noted, and reported at the end only.
pub fn line(out: &mut impl Write, text: Arguments<'_>) {
    self::text(out, format_args!("{text}\n"));
}

/// Writes text that ends its lines itself.
pub fn text(out: &mut impl Write, text: Arguments<'_>) {
    let _ = out.write_all(harmless(&text.to_string()).as_bytes());
}

/// Writes a finding with its line, in colour if wanted and if the line has nothing that would control a
/// terminal.
pub fn diagnostic(out: &mut impl Write, finding: &Diagnostic, color: bool) {
    let plain = finding.render(false);
    let safe = harmless(&plain);
    let colored = (color && safe == plain.as_str()).then(|| finding.render(true));
    let text = colored.as_deref().unwrap_or(&safe);
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n"));
}

/// Writes notes to standard error.
pub fn notes(notes: &[Note]) {
    let color = std::io::stderr().is_terminal();
    let mut err = std::io::stderr().lock();
    for note in notes {
        match note {
            Note::Line(text) => line(&mut err, format_args!("{text}")),
            Note::Finding(finding) => diagnostic(&mut err, finding, color),
        }
    }
}

/// A writer of text, made harmless line by line.
pub struct Harmless<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Harmless<W> {
    /// Writes to `out`.
    pub const fn new(out: W) -> Self {
        Harmless { out, line: Vec::new() }
    }

    fn write_line(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.line);
        self.out.write_all(harmless(&text).as_bytes())?;
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.contains(&b'\n') {
            // The bytes after the last line end may be the beginning of a character.
            let whole = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = self.line.split_off(whole);
            self.write_line()?;
            self.line = rest;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_line()?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_does_nothing_to_a_terminal() {
        let mut out = Vec::new();
        line(&mut out, format_args!("a {} b\n{}", "\u{1b}[2J", "\u{9b}"));
        assert_eq!(out, b"a \\u001b[2J b\n\\u009b\n");
        let mut out = Vec::new();
        let mut writer = Harmless::new(&mut out);
        // In pieces that cut characters.
        for byte in "\u{1b}x größe\n\u{9b}y".as_bytes() {
            writer.write_all(&[*byte]).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\\u001bx größe\n\\u009by");
    }

    #[test]
    fn findings_in_what_is_not_just_text_have_no_colours() {
        let shown = |rule: &str| {
            let file = bartizan_rules::parse_file(rule.as_bytes().to_vec(), "a.rules");
            let mut out = Vec::new();
            diagnostic(&mut out, &file.diagnostics[0], true);
            String::from_utf8(out).unwrap()
        };
        assert!(shown("alret tcp any any -> any any (sid:1;)").contains('\u{1b}'));
        let hostile =
            shown("alret tcp any any -> any any (msg:\"\u{9b}31m\u{1b}]0;x\u{7}\u{202e}\"; sid:1;)");
        assert!(!hostile.chars().any(|c| bartizan_events::is_control(c) && c != '\n'), "{hostile:?}");
    }
}
