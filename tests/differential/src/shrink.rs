// SPDX-License-Identifier: Apache-2.0
//! Reduces a pair: removes rules, options and packets as long as a difference remains.

use crate::answer::Answer;
use crate::engine::{Answers, Program};
use crate::explained::explain;
use crate::pair::Pair;

/// Shrinks a pair. Each round runs both programs on all pairs that lack one piece, and then removes as many
/// of the needless pieces as can go together.
///
/// # Errors
///
/// When a program cannot be run.
pub fn shrink(pair: &Pair, ips: bool, ours: &Program, peer: &Program) -> Result<Pair, String> {
    let mut least = pair.clone();
    let asking = Asking { ips, ours, peer, wanted: Vec::new() };
    let (got, want) = asking.answers(std::slice::from_ref(pair))?;
    let none = Answer::default();
    let of = |answers: &Answers| answers.get(&pair.number).unwrap_or(&none).clone();
    // Intended differences are not looked for.
    let wanted = kinds(&explain(pair, ips, &of(&got), &of(&want)).0);
    let asking = Asking { wanted, ..asking };
    loop {
        let pieces = pieces(&least);
        let without: Vec<Pair> =
            pieces.iter().map(|piece| least_without(&least, std::slice::from_ref(piece))).collect();
        let needless: Vec<Piece> = pieces
            .into_iter()
            .zip(asking.which_differ(&without)?)
            .filter_map(|(piece, differs)| differs.then_some(piece))
            .collect();
        let left_out = asking.together(&least, Vec::new(), &needless)?;
        if left_out.is_empty() {
            return Ok(least);
        }
        least = least_without(&least, &left_out);
    }
}

/// Both programs, and the kinds of differences that must remain.
struct Asking<'p> {
    ips: bool,
    ours: &'p Program,
    peer: &'p Program,
    wanted: Vec<&'static str>,
}

impl Asking<'_> {
    fn answers(&self, pairs: &[Pair]) -> Result<(Answers, Answers), String> {
        Ok((self.ours.run(pairs, self.ips, 200)?, self.peer.run(pairs, self.ips, 200)?))
    }

    /// Marks the pairs that still differ. A rule that became too short to load does not count.
    fn which_differ(&self, pairs: &[Pair]) -> Result<Vec<bool>, String> {
        let numbered: Vec<Pair> =
            pairs.iter().enumerate().map(|(at, one)| Pair { number: at as u32 + 1, ..one.clone() }).collect();
        let (got, want) = self.answers(&numbered)?;
        let differs = |one: &Pair| match (got.get(&one.number), want.get(&one.number)) {
            (Some(got), Some(want)) => {
                let lines = kinds(&explain(one, self.ips, got, want).0);
                lines.iter().any(|kind| self.wanted.contains(kind))
                    && !lines.contains(&"refused")
                    && !want.has("refused")
            }
            _ => false,
        };
        Ok(numbered.iter().map(differs).collect())
    }

    /// The pieces that can be removed together with `taken`: all of `pieces`, else as many of each half as
    /// possible.
    fn together(&self, pair: &Pair, taken: Vec<Piece>, pieces: &[Piece]) -> Result<Vec<Piece>, String> {
        if pieces.is_empty() {
            return Ok(taken);
        }
        let all = [taken.as_slice(), pieces].concat();
        // Each piece by itself was tried before.
        let known = taken.is_empty() && pieces.len() == 1;
        if known || self.which_differ(&[least_without(pair, &all)])?.contains(&true) {
            return Ok(all);
        }
        if pieces.len() == 1 {
            return Ok(taken);
        }
        let (first, second) = pieces.split_at(pieces.len() / 2);
        let taken = self.together(pair, taken, first)?;
        self.together(pair, taken, second)
    }
}

/// The kinds of the differing findings.
fn kinds(lines: &[String]) -> Vec<&'static str> {
    const KINDS: &[&str] = &[
        "refused", "drop", "flow", "anomaly", "http", "dns", "tls", "fileinfo", "smtp", "ftp_data", "ftp",
        "ssh", "smb", "dcerpc",
    ];
    // Alerts of all rules are one kind.
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

/// A removable piece of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Option(usize, usize),
    Action(usize),
    Rule(usize),
    Packet(usize),
    Setting,
}

/// All removable pieces of a pair; the last rule and packet, and the last option of a rule, stay.
fn pieces(pair: &Pair) -> Vec<Piece> {
    let mut all = Vec::new();
    if pair.rules.len() > 1 {
        all.extend((0..pair.rules.len()).map(Piece::Rule));
    }
    if pair.packets.len() > 1 {
        all.extend((0..pair.packets.len()).map(Piece::Packet));
    }
    for (at, rule) in pair.rules.iter().enumerate() {
        if rule.options.len() > 1 {
            all.extend((0..rule.options.len()).map(|option| Piece::Option(at, option)));
        }
        if rule.action != "alert" {
            all.push(Piece::Action(at));
        }
    }
    if pair.setting != 0 {
        all.push(Piece::Setting);
    }
    all
}

/// Removes pieces from a pair. Later pieces go first, so that indexes stay valid.
fn least_without(pair: &Pair, pieces: &[Piece]) -> Pair {
    let mut next = pair.clone();
    let mut pieces = pieces.to_vec();
    // Options go before their rules.
    pieces.sort_by_key(|piece| (matches!(piece, Piece::Rule(_)), core::cmp::Reverse(*piece)));
    for piece in pieces {
        match piece {
            Piece::Option(rule, at) => {
                if let Some(rule) = next.rules.get_mut(rule).filter(|rule| rule.options.len() > 1) {
                    rule.options.remove(at);
                }
            }
            Piece::Action(rule) => {
                if let Some(rule) = next.rules.get_mut(rule) {
                    rule.action = "alert";
                }
            }
            Piece::Rule(at) if next.rules.len() > 1 => drop(next.rules.remove(at)),
            Piece::Packet(at) if next.packets.len() > 1 => drop(next.packets.remove(at)),
            Piece::Rule(_) | Piece::Packet(_) => {}
            Piece::Setting => next.setting = 0,
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_left_out_together_as_they_are_one_by_one() {
        let pair = crate::make::pair(1, 350);
        let rules = pair.rules.len();
        let all = pieces(&pair);
        assert!(all.contains(&Piece::Packet(0)) && all.contains(&Piece::Rule(rules - 1)));
        let some = [Piece::Packet(0), Piece::Packet(2), Piece::Rule(1), Piece::Option(rules - 1, 0)];
        let less = least_without(&pair, &some);
        assert_eq!((less.packets.len(), less.rules.len()), (pair.packets.len() - 2, rules - 1));
        assert_eq!(less.packets[0].describe(), pair.packets[1].describe());
        assert_eq!(less.packets[1].describe(), pair.packets[3].describe());
        assert_eq!(less.rules[1].head, pair.rules[2].head);
        let options = |pair: &Pair| pair.rules.last().unwrap().options.clone();
        assert_eq!(options(&less), options(&pair)[1.min(options(&pair).len() - 1)..]);
        let nothing = least_without(&pair, &all);
        assert_eq!((nothing.packets.len(), nothing.rules.len(), nothing.setting), (1, 1, 0));
    }
}
