// SPDX-License-Identifier: Apache-2.0
//! A program's answer to a pair, and the file of answers.
//!
//! An answer is a multiset of findings: `0@5>1.0:allowed` is an alert of the first rule at the fifth frame,
//! sent to the server, in the flow of the first host's first port; `drop@5:rules` is a dropped packet with
//! its reason, `refused:1` a rule that was not loaded; all other findings are names of records, with their
//! flow (`http~3.1`) where the pair has several. In files of application protocols alerts that differ only by
//! their frame stand together: `0@5,7>1.0:allowed`.

use crate::applications::Grammar;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Findings, each with its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer(BTreeMap<String, u32>);

impl Answer {
    /// Adds a finding; spaces in it become dots.
    pub fn add(&mut self, finding: String) {
        *self.0.entry(finding.replace(' ', ".")).or_default() += 1;
    }

    /// The findings that only one of the two answers has: with a minus those that `self` lacks, with a plus
    /// those that `expected` lacks.
    #[must_use]
    pub fn differences(&self, expected: &Answer) -> Vec<String> {
        let mut names: Vec<&String> = self.0.keys().chain(expected.0.keys()).collect();
        names.sort();
        names.dedup();
        let count = |answer: &Answer, name: &String| answer.0.get(name).copied().unwrap_or(0);
        let mut lines = Vec::new();
        for name in names {
            let (got, want) = (count(self, name), count(expected, name));
            if got != want {
                let (sign, number) = if got < want { ('-', want - got) } else { ('+', got - want) };
                lines.push(if number == 1 {
                    format!("{sign}{name}")
                } else {
                    format!("{sign}{name}*{number}")
                });
            }
        }
        lines
    }

    /// The names of the findings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether some finding begins with this text.
    #[must_use]
    pub fn has(&self, begin: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(begin))
    }

    fn read(text: &str) -> Option<Self> {
        let mut answer = Answer::default();
        for item in text.split(' ').filter(|item| !item.is_empty()) {
            let (name, count) = match item.rsplit_once('*') {
                Some((name, count)) => (name, count.parse().ok()?),
                None => (item, 1),
            };
            for name in frames_of(name) {
                answer.0.insert(name, count);
            }
        }
        Some(answer)
    }
}

/// The findings of an item whose frames stand together.
fn frames_of(name: &str) -> Vec<String> {
    let alert = name.split_once('@').and_then(|(rule, rest)| {
        let (frames, rest) = rest.split_at(rest.find(['>', '<'])?);
        frames.contains(',').then_some((rule, frames, rest))
    });
    match alert {
        Some((rule, frames, rest)) => {
            frames.split(',').map(|frame| format!("{rule}@{frame}{rest}")).collect()
        }
        None => vec![name.into()],
    }
}

impl Answer {
    /// The findings, with the frames of like alerts together.
    fn compact(&self) -> String {
        let mut items: Vec<(String, String)> = Vec::new();
        for (name, count) in &self.0 {
            let times = if *count == 1 { String::new() } else { format!("*{count}") };
            let alert =
                name.split_once('@').filter(|(rule, _)| rule.bytes().all(|byte| byte.is_ascii_digit()));
            let parts = alert.and_then(|(rule, rest)| {
                let (frame, rest) = rest.split_at(rest.find(['>', '<'])?);
                Some((rule, frame, rest))
            });
            let Some((rule, frame, rest)) = parts else {
                items.push((format!("{name}{times}"), String::new()));
                continue;
            };
            let key = format!("{rule}@ {rest}{times}");
            match items.iter_mut().find(|(of, _)| *of == key) {
                Some((_, frames)) => frames.extend([",", frame]),
                None => items.push((key, frame.into())),
            }
        }
        let texts = items.into_iter().map(|(key, frames)| key.replacen("@ ", &format!("@{frames}"), 1));
        texts.collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (name, count)) in self.0.iter().enumerate() {
            let blank = if at == 0 { "" } else { " " };
            match count {
                1 => write!(formatter, "{blank}{name}")?,
                _ => write!(formatter, "{blank}{name}*{count}")?,
            }
        }
        Ok(())
    }
}

/// Suricata's answers to the pairs of a seed.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The seed.
    pub seed: u64,
    /// The grammar that made the pairs.
    pub grammar: Grammar,
    /// By the pair's number: its digest, and the answers passive and in prevention.
    pub answers: BTreeMap<u32, (u64, [Answer; 2])>,
}

/// Mark before the protocols of the grammar of application protocols.
const PROTOCOLS: &str = " protocols: ";

const HEAD: &str = "# Answers of Suricata 8.0.8; docs/differential.md says how they are made. Seed: ";

impl File {
    /// The file's text: one line per pair; `=` stands for an answer in prevention that equals the passive
    /// one.
    #[must_use]
    pub fn text(&self) -> String {
        let protocols = match self.grammar.names() {
            names if names.is_empty() => names,
            names => format!("{PROTOCOLS}{names}"),
        };
        let mut text = format!("{HEAD}{}{protocols}\n", self.seed);
        for (number, (digest, [passive, inline])) in &self.answers {
            let write =
                |answer: &Answer| if protocols.is_empty() { answer.to_string() } else { answer.compact() };
            let inline = if inline == passive { "=".to_string() } else { write(inline) };
            let passive = write(passive);
            let _ = writeln!(text, "{number} {digest:016x} | {passive} | {inline}");
        }
        text
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// The first line that is not an answer.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.strip_prefix(HEAD)).unwrap_or_default();
        let (seed, protocols) = head.split_once(PROTOCOLS).unwrap_or((head, ""));
        let seed = seed.parse().map_err(|_| "line 1: the seed is missing")?;
        let grammar = Grammar::read(protocols).map_err(|problem| format!("line 1: {problem}"))?;
        let mut file = File { seed, grammar, ..File::default() };
        for (at, line) in lines.enumerate() {
            let (number, entry) =
                entry(line).ok_or_else(|| format!("line {}: not an answer: {line}", at + 2))?;
            file.answers.insert(number, entry);
        }
        Ok(file)
    }
}

fn entry(line: &str) -> Option<(u32, (u64, [Answer; 2]))> {
    let mut parts = line.split('|').map(str::trim);
    let (number, digest) = parts.next()?.split_once(' ')?;
    let passive = Answer::read(parts.next()?)?;
    let inline = match parts.next()? {
        "=" => passive.clone(),
        text => Answer::read(text)?,
    };
    Some((number.parse().ok()?, (u64::from_str_radix(digest, 16).ok()?, [passive, inline])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(items: &[&str]) -> Answer {
        let mut answer = Answer::default();
        items.iter().for_each(|item| answer.add((*item).into()));
        answer
    }

    #[test]
    fn what_is_written_is_read() {
        let mut file = File { seed: 7, ..File::default() };
        let one = answer(&["0@3>1.0:allowed", "http", "http", "anomaly:a b"]);
        file.answers.insert(0, (1, [one.clone(), one.clone()]));
        file.answers.insert(9, (u64::MAX, [one, Answer::default()]));
        let read = File::read(&file.text()).unwrap();
        assert_eq!(read.answers, file.answers);
        assert_eq!(read.seed, 7);
        assert!(File::read("nonsense").is_err());
    }

    #[test]
    fn like_alerts_stand_together_in_files_of_protocols() {
        let grammar = Grammar::read("smtp").unwrap();
        let mut file = File { seed: 7, grammar, ..File::default() };
        let one = answer(&[
            "0@3>1.0:allowed",
            "0@12>1.0:allowed",
            "0@->1.0:allowed",
            "0@5>1.0:allowed",
            "0@5>1.0:allowed",
            "drop@7:rules",
            "smtp:12ab",
        ]);
        file.answers.insert(0, (1, [one.clone(), one]));
        assert!(file.text().contains("| 0@-,12,3>1.0:allowed 0@5>1.0:allowed*2 drop@7:rules smtp:12ab | ="));
        let read = File::read(&file.text()).unwrap();
        assert_eq!((read.answers, read.grammar), (file.answers, file.grammar));
    }

    #[test]
    fn differences_say_what_is_missing_and_what_is_too_much() {
        let (got, want) = (answer(&["a", "b", "b", "b"]), answer(&["b", "c"]));
        assert_eq!(got.differences(&want), ["+a", "+b*2", "-c"]);
        assert!(got.differences(&got).is_empty());
    }
}
