// SPDX-License-Identifier: Apache-2.0
//! Enough of Rust's lexing to separate code from comments and strings.

/// The text with comments and the contents of strings blanked; lines and columns stay.
#[must_use]
pub fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => find(bytes, at, b"\n").unwrap_or(bytes.len()),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment(bytes, at),
            b'"' => quoted(bytes, at),
            b'r' if !after_word(bytes, at) => match raw_string(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => character(bytes, at),
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the word is in this line of code, not as part of a longer one.
#[must_use]
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].bytes().next_back();
        let after = line[at + word.len()..].bytes().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The number of the first line of the tests at the end of a file (`#[cfg(test)]`), or one past the last.
#[must_use]
pub fn tests_begin(text: &str) -> usize {
    let mut lines = text.lines().zip(text.lines().skip(1));
    // A declaration (`mod testing;`, `use ..;`) is one line, and code goes on after it.
    lines
        .position(|(line, next)| {
            line.trim_start().starts_with("#[cfg(test)]") && !next.trim_end().ends_with(';')
        })
        .map_or(usize::MAX, |index| index + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn after_word(bytes: &[u8], at: usize) -> bool {
    // `br"..."` and `cr"..."` begin with a prefix of one letter.
    match at.checked_sub(1).map(|i| bytes[i]) {
        Some(b'b' | b'c') => at >= 2 && is_word(bytes[at - 2]),
        Some(byte) => is_word(byte),
        None => false,
    }
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes[from..].windows(needle.len()).position(|window| window == needle).map(|at| from + at)
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (0usize, at);
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn quoted(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    Some(find(bytes, at + 2 + hashes, &closing).map_or(bytes.len(), |end| end + closing.len()))
}

/// A character literal, or only the quote of a lifetime.
fn character(bytes: &[u8], at: usize) -> usize {
    match (bytes.get(at + 1), bytes.get(at + 2)) {
        (Some(b'\\'), Some(_)) => find(bytes, at + 3, b"'").map_or(bytes.len(), |end| end + 1),
        (Some(byte), _) if !byte.is_ascii() => find(bytes, at + 1, b"'").map_or(bytes.len(), |end| end + 1),
        (Some(_), Some(b'\'')) => at + 3,
        _ => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_begin_where_they_stand_not_where_they_are_named() {
        assert_eq!(tests_begin("#[cfg(test)]\nmod testing;\nfn f() {}\n#[cfg(test)]\nmod tests {\n}\n"), 4);
        assert_eq!(tests_begin("#[cfg(test)]\nuse x;\nfn f() {}\n"), usize::MAX);
    }

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let text = "let a = \"unsafe // \\\" x\"; // unsafe\n/* unsafe\n /* */ */ let b: &'static str = r#\"un\"safe\"#;\n";
        let code = code(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.len(), text.len());
        assert!(!code.contains("unsafe") && code.contains("let b: & static str ="));
    }

    #[test]
    fn characters_and_lifetimes_do_not_open_strings() {
        let code = code("if c == '\"' || c == '\\'' { unsafe_thing::<'a>() } // x");
        assert!(code.contains("unsafe_thing") && !code.contains('x'));
        assert!(
            !has_word(&code, "unsafe") && has_word("unsafe {", "unsafe") && has_word("x = unsafe", "unsafe")
        );
    }
}
