// SPDX-License-Identifier: Apache-2.0
//! Makes text from traffic, rules and files harmless for a terminal.
//!
//! Control characters (C0, DEL, C1: ECMA-48) move the cursor, change titles, and cause answers as if a user
//! had typed; characters that change the direction of text (Unicode Standard Annex 9) make it look like other
//! text. Both are written as `\u001b`, which is the same character within JSON strings, so one text serves
//! people and programs.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal would do more than display the character. Line ends and tabs count: see [`harmless`].
#[must_use]
pub const fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with control characters written as `\u001b`; line ends and tabs stay.
#[must_use]
pub fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// The text as by [`harmless`], but on one line: line ends and tabs are written as `\u000a`, too.
#[must_use]
pub fn harmless_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_control)
}

fn escaped(text: &str, harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            // Writing to a String does not fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_text_is_left() {
        let title = "\u{1b}]0;owned\u{7} \u{9b}31m \u{7f} \r \u{8}x";
        assert_eq!(harmless(title), r"\u001b]0;owned\u0007 \u009b31m \u007f \u000d \u0008x");
        assert_eq!(harmless("\u{202e}cod.exe\u{2066}\u{200f}\u{61c}"), r"\u202ecod.exe\u2066\u200f\u061c");
        for text in ["plain", "two\n\tlines", "größe 漢字 \u{a0}\u{200d}", "back\\slash"] {
            assert!(matches!(harmless(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(harmless_line("a\nb\tc"), r"a\u000ab\u0009c");
    }

    #[test]
    fn within_json_it_is_the_same_text() {
        for c in (0..=0x20ff).filter_map(char::from_u32) {
            let text = format!("a{c}\"\n\\b");
            let json = serde_json::to_string(&text).unwrap();
            let shown = harmless(&json);
            assert!(!shown.chars().any(is_control), "{c:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }
}
