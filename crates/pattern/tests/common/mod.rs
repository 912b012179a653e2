// SPDX-License-Identifier: Apache-2.0
//! Helpers shared by the tests: the reader of the case files, and compilers for every available engine.
#![allow(dead_code, reason = "each test program uses its part")]

use bartizan_pattern::{Compiler, Config, PatternEngine};

/// A block of a case file: its lines as words (a string in quotes is one), the name first.
pub struct Case {
    pub name: String,
    pub lines: Vec<Vec<Vec<u8>>>,
}

/// Reads a case file; panics with the line number of a malformed line.
pub fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case { name: name.into(), lines: Vec::new() });
            continue;
        }
        let words = words(line).unwrap_or_else(|| panic!("line {}: {line}", number + 1));
        cases.last_mut().expect("a case").lines.push(words);
    }
    cases
}

fn words(line: &str) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(string) => quoted(string)?,
            None => {
                let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
                (word.as_bytes().to_vec(), after)
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

fn quoted(text: &str) -> Option<(Vec<u8>, &str)> {
    let mut out = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => out.push(b'\n'),
                'r' => out.push(b'\r'),
                't' => out.push(b'\t'),
                '0' => out.push(0),
                'x' => {
                    let high = chars.next()?.1.to_digit(16)?;
                    let low = chars.next()?.1.to_digit(16)?;
                    out.push(u8::try_from(high * 16 + low).ok()?);
                }
                same @ ('\\' | '"') => out.push(same as u8),
                _ => return None,
            },
            c => out.push(u8::try_from(c).ok().filter(u8::is_ascii)?),
        }
    }
    None
}

/// A word as a number.
pub fn number(word: &[u8]) -> u32 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

/// A compiler for each engine; libhs only if it is installed, otherwise with a message.
pub fn compilers() -> Vec<(PatternEngine, Compiler)> {
    let mut list = Vec::new();
    for engine in PatternEngine::ALL {
        match Compiler::new(Config { engine, ..Config::default() }) {
            Ok(compiler) => list.push((engine, compiler)),
            Err(error) => {
                assert_eq!(engine, PatternEngine::Hyperscan);
                eprintln!("not tested: {error}");
            }
        }
    }
    list
}
