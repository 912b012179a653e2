// SPDX-License-Identifier: Apache-2.0
//! Generates random strategies.
//!
//! As in Geneva, trees for received packets do not branch. Most triggers are flags, as in published
//! strategies: a trigger that fires for no packet tests nothing.

use super::{Action, Change, Gas, Strategy, Tree, Trigger, fields};
use bartizan_testkit::random::Random;

/// Fields to tamper with; repeated entries are chosen more often.
const FIELDS: &[(&str, &str)] = &[
    ("TCP", "flags"),
    ("TCP", "flags"),
    ("TCP", "flags"),
    ("TCP", "seq"),
    ("TCP", "seq"),
    ("TCP", "ack"),
    ("TCP", "ack"),
    ("TCP", "dataofs"),
    ("TCP", "reserved"),
    ("TCP", "window"),
    ("TCP", "chksum"),
    ("TCP", "chksum"),
    ("TCP", "urgptr"),
    ("TCP", "load"),
    ("TCP", "load"),
    ("TCP", "load"),
    ("TCP", "sport"),
    ("TCP", "dport"),
    ("IP", "ttl"),
    ("IP", "ttl"),
    ("IP", "ttl"),
    ("IP", "tos"),
    ("IP", "len"),
    ("IP", "id"),
    ("IP", "flags"),
    ("IP", "frag"),
    ("IP", "chksum"),
    ("IP", "proto"),
    ("IP", "version"),
    ("IP", "ihl"),
];

/// Flags that triggers name for a client: of packets that it sends, and of those that it receives.
const CLIENT: [&[&str]; 2] =
    [&["PA", "PA", "PA", "S", "S", "S", "A", "A", "A", "FA", "R"], &["SA", "SA", "A", "PA", "FA", "R", "RA"]];
/// Flags that triggers name for a server: of packets that it sends, and of those that it receives.
const SERVER: [&[&str]; 2] =
    [&["SA", "SA", "SA", "SA", "PA", "PA", "PA", "A", "A", "FA", "RA"], &["S", "S", "A", "PA", "FA", "R"]];

/// A random strategy of a client, a function of the generator's state.
pub fn strategy(random: &mut Random) -> Strategy {
    of(CLIENT, random)
}

/// A random strategy of a server.
pub fn server_strategy(random: &mut Random) -> Strategy {
    of(SERVER, random)
}

fn of([sent, heard]: [&[&str]; 2], random: &mut Random) -> Strategy {
    let mut strategy = Strategy::default();
    for _ in 0..1 + usize::from(random.percent(25)) {
        let flags = *random.pick(sent);
        let depth = random.within(1, 4);
        let tree = Tree { trigger: trigger(flags, random), action: action(depth, true, random) };
        // An action that only sends tests nothing.
        if tree.action != Action::Send {
            strategy.outbound.push(tree);
        }
    }
    if random.percent(10) {
        let flags = *random.pick(heard);
        strategy.inbound.push(Tree { trigger: trigger(flags, random), action: action(2, false, random) });
    }
    strategy
}

fn trigger(flags: &str, random: &mut Random) -> Trigger {
    let some = [Gas::Times(1), Gas::Times(1), Gas::Times(2), Gas::Times(3), Gas::After(1), Gas::After(2)];
    let gas = if random.percent(15) { *random.pick(&some) } else { Gas::Unlimited };
    Trigger { protocol: "TCP".to_owned(), field: "flags".to_owned(), value: flags.to_owned(), gas }
}

fn action(depth: usize, branches: bool, random: &mut Random) -> Action {
    if depth == 0 || random.percent(12) {
        return Action::Send;
    }
    let next = |random: &mut Random| Box::new(action(depth - 1, branches, random));
    match random.below(20) {
        0 => Action::Drop,
        1 => {
            let time = random.within(1, 40) as u64;
            Action::Sleep(time, next(random))
        }
        2..=9 if branches => {
            let left = next(random);
            Action::Duplicate(left, next(random))
        }
        10..=12 if branches => {
            let segments = random.percent(70);
            let size = if random.percent(40) { -1 } else { random.within(1, 40) as i64 };
            let in_order = random.percent(50);
            let overlap = if segments && random.percent(30) { random.within(1, 20) } else { 0 };
            let left = next(random);
            Action::Fragment { segments, size, in_order, overlap, left, right: next(random) }
        }
        _ => tamper(next(random), random),
    }
}

fn tamper(next: Box<Action>, random: &mut Random) -> Action {
    let (protocol, field) = if random.percent(12) {
        ("TCP", format!("options-{}", random.pick(fields::OPTIONS).0))
    } else {
        let (protocol, field) = *random.pick(FIELDS);
        (protocol, field.to_owned())
    };
    let how = match (field.as_str(), random.below(10)) {
        ("ttl", _) => Change::Replace(random.within(1, 14).to_string()),
        ("seq" | "ack", 0..=5) => {
            let far = *random.pick(&[1i64, -1, 8, 1000, -1000, 100_000, -100_000, 1 << 30, -(1 << 31)]);
            Change::Add(far)
        }
        ("flags", 0..=5) if protocol == "TCP" => Change::Replace(
            (*random.pick(&["R", "RA", "F", "FA", "S", "SA", "A", "P", "", "FRAPUEN", "U"])).to_owned(),
        ),
        ("dataofs", 0..=5) => Change::Replace(random.within(4, 12).to_string()),
        ("load", 0..=4) => {
            let length = *random.pick(&[1usize, 5, 40, 200, 600]);
            Change::Replace(String::from_utf8_lossy(&random.letters(length)).into_owned())
        }
        _ => Change::Corrupt,
    };
    Action::Tamper { protocol: protocol.to_owned(), field, how, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ones_are_of_the_grammar_and_follow_from_the_seed() {
        let make = || (0..500).map(|seed| strategy(&mut Random::new(seed))).collect::<Vec<_>>();
        let made = make();
        assert_eq!(made, make());
        for strategy in &made {
            assert_eq!(Strategy::parse(&strategy.to_string()).as_ref(), Ok(strategy));
        }
        let different: std::collections::BTreeSet<_> = made.iter().map(ToString::to_string).collect();
        assert!(different.len() > 400, "{}", different.len());
    }
}
