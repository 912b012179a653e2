// SPDX-License-Identifier: Apache-2.0
//! The least of a pair that still differs: rules, options and packets are left out as long as a difference stays.

use crate::engine::{Answers, Program};
use crate::explained::explain;
use crate::pair::Pair;

/// Shrinks a pair, both programs being asked of all candidates of a round at once.
///
/// # Errors
///
/// When a program cannot be run.
pub fn shrink(pair: &Pair, ips: bool, ours: &Program, peer: &Program) -> Result<Pair, String> {
    let mut least = pair.clone();
    let ask = |pair: &Pair, program: &Program| {
        Ok::<_, String>(
            program.run(std::slice::from_ref(pair), ips, 1)?.remove(&pair.number).unwrap_or_default(),
        )
    };
    // What differs on purpose is none to look for.
    let wanted = kinds(&explain(pair, ips, &ask(pair, ours)?, &ask(pair, peer)?).0);
    loop {
        let candidates: Vec<Pair> = smaller(&least)
            .into_iter()
            .enumerate()
            .map(|(at, mut candidate)| {
                candidate.number = at as u32 + 1;
                candidate
            })
            .collect();
        let (got, want): (Answers, Answers) =
            (ours.run(&candidates, ips, 200)?, peer.run(&candidates, ips, 200)?);
        // Another program's refusal of what was cut too short is another matter.
        let differs = |candidate: &Pair| match (got.get(&candidate.number), want.get(&candidate.number)) {
            (Some(got), Some(want)) => {
                let lines = kinds(&explain(candidate, ips, got, want).0);
                lines.iter().any(|kind| wanted.contains(kind))
                    && !lines.contains(&"refused")
                    && !want.has("refused")
            }
            _ => false,
        };
        match candidates.into_iter().find(differs) {
            Some(mut next) => {
                next.number = pair.number;
                least = next;
            }
            None => return Ok(least),
        }
    }
}

/// What kinds of findings differ.
fn kinds(lines: &[String]) -> Vec<&'static str> {
    const KINDS: &[&str] = &["refused", "drop", "flow", "anomaly", "http", "dns", "tls", "fileinfo"];
    // Alerts of any rule are one kind.
    let kind = |line: &String| {
        let word = line.trim_start_matches(['+', '-']);
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(match (line.starts_with('+'), line.contains("@-")) {
                (true, true) => "+@-",
                (true, false) => "+@",
                (false, true) => "-@-",
                (false, false) => "-@",
            });
        }
        KINDS.iter().copied().find(|kind| word.starts_with(kind))
    };
    lines.iter().filter_map(kind).collect()
}

/// All that have one piece less, the largest pieces first.
fn smaller(pair: &Pair) -> Vec<Pair> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Pair)| {
        let mut next = pair.clone();
        change(&mut next);
        all.push(next);
    };
    if pair.rules.len() > 1 {
        for at in 0..pair.rules.len() {
            add(&|next| drop(next.rules.remove(at)));
        }
    }
    let half = pair.packets.len() / 2;
    if half > 0 {
        add(&|next| next.packets.truncate(half));
    }
    for at in (0..pair.packets.len()).rev().filter(|_| pair.packets.len() > 1) {
        add(&|next| drop(next.packets.remove(at)));
    }
    for (rule, text) in pair.rules.iter().enumerate() {
        for at in (0..text.options.len()).rev().filter(|_| text.options.len() > 1) {
            add(&|next| drop(next.rules[rule].options.remove(at)));
        }
        if text.action != "alert" {
            add(&|next| next.rules[rule].action = "alert");
        }
    }
    if pair.setting != 0 {
        add(&|next| next.setting = 0);
    }
    all
}
