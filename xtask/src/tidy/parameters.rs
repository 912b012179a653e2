// SPDX-License-Identifier: Apache-2.0
//! Parameters of functions: a tuple among them is a struct that has no name yet (CONTRIBUTING.md,
//! "Language").
//!
//! Only sources of the crates count: tests, which pass pairs of ports and numbers, and closures are left out.
//! A tuple inside another type (`&[(A, B)]`,
//! `Option<(A, B)>`) is none of these: it is a list or a value that has its own name.

use super::rust::{code, tests_begin};
use super::{Finding, Tree};

/// Parameters that may be tuples, in all crates.
pub const TUPLES_MOST: usize = 10;

/// Finds tuples among the parameters of functions, once there are more than may be.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let findings = tuple_parameters(tree);
    if findings.len() > TUPLES_MOST { findings } else { Vec::new() }
}

/// Each parameter of the crates that is a tuple.
#[must_use]
pub fn tuple_parameters(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|file| {
        file.path.starts_with("crates/") && file.path.contains("/src/") && !file.path.ends_with("tests.rs")
    });
    let mut findings = Vec::new();
    for file in sources {
        let end = tests_begin(&file.text);
        for (line, function) in tuples(&code(&file.text)).into_iter().filter(|(line, _)| *line < end) {
            let message = format!(
                "`{function}` takes a tuple; make it a struct with names, or two parameters (limit {TUPLES_MOST} in all)"
            );
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    findings
}

/// Functions of a text without comments and strings that take a tuple: line and name, once for each tuple.
fn tuples(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = text[at + 3..].trim_start();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(length);
        let Some(list) = parameters(rest) else { continue };
        let line = text[..at].matches('\n').count() + 1;
        found.extend(split(list).into_iter().filter(|one| is_tuple(one)).map(|_| (line, name.to_owned())));
    }
    found
}

/// The text between the parentheses of a parameter list, which may come after generics.
fn parameters(text: &str) -> Option<&str> {
    let text = match text.strip_prefix('<') {
        Some(_) => text.get(closing(text, '<')?..)?,
        None => text,
    };
    let end = text.starts_with('(').then(|| closing(text, '('))??;
    text.get(1..end - 1)
}

/// The end of the bracket that a text begins with, one past it.
fn closing(text: &str, bracket: char) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            '<' if bracket == '<' => depth += 1,
            '>' if bracket == '<' && before != '-' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        before = c;
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The parameters of a list.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut before) = (0i32, 0, ' ');
    let mut found = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if matches!(before, '-' | '=') => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    found.push(&list[start..]);
    found
}

/// Whether a parameter's type is a tuple, or a reference to one.
fn is_tuple(parameter: &str) -> bool {
    let mut depth = 0i32;
    let colon = parameter.char_indices().find(|(at, c)| {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            ':' => {
                let (before, after) = (parameter[..*at].ends_with(':'), parameter[at + 1..].starts_with(':'));
                return depth == 0 && !before && !after;
            }
            _ => {}
        }
        false
    });
    let Some((colon, _)) = colon else { return false };
    let mut kind = parameter[colon + 1..].trim_start();
    while let Some(rest) = kind.strip_prefix('&') {
        let rest = rest.trim_start();
        // A lifetime, then `mut`.
        let rest = match rest.strip_prefix('\'') {
            Some(named) => named.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start(),
            None => rest,
        };
        kind = rest.strip_prefix("mut ").unwrap_or(rest).trim_start();
    }
    // `(dyn Error + 'static)` is one type in parentheses, `()` none.
    kind.strip_prefix('(')
        .and_then(|_| kind.get(1..closing(kind, '(')? - 1))
        .is_some_and(|inside| split(inside).len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found_whatever_stands_around_them() {
        let of = |text: &str| tuples(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(of("fn f(a: u8, (b, c): (u8, &str)) {}\n"), [1]);
        assert_eq!(of("\npub fn f<'a, F: Fn(u8) -> u8>(&self, a: &'a mut (u8, u16), b: (A, B)) {}"), [2, 2]);
        assert_eq!(of("fn f(\n    a: &(dyn Error + 'static),\n    b: (),\n    c: (u8),\n) {}"), [0; 0]);
        assert_eq!(
            of("fn f(a: Option<(u8, u8)>, b: &[(u8, u8)], c: impl Fn((u8, u8)) -> (u8, u8)) {}"),
            [0; 0]
        );
        assert_eq!(of("fn f(a: a::B<C, (u8, u8)>) -> (u8, u8) {}"), [0; 0]);
        assert_eq!(of("let f = |(a, b): (u8, u8)| a;"), [0; 0]);
    }

    #[test]
    fn more_than_a_few_are_findings_and_tests_are_left_out() {
        let many = "fn f(a: (u8, u8)) {}\n".repeat(TUPLES_MOST + 1);
        let found = |path: &str, text: &str| check(&Tree::of(&[(path, text)])).len();
        assert_eq!(found("crates/a/src/a.rs", &many), TUPLES_MOST + 1);
        assert_eq!(found("crates/a/src/a.rs", many.split_once('\n').unwrap().1), 0);
        assert_eq!(found("crates/a/tests/a.rs", &many), 0);
        assert_eq!(found("crates/a/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{many}}}\n")), 0);
    }
}
