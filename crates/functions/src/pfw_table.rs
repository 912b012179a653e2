// SPDX-License-Identifier: Apache-2.0
//! The packet filter's header half: the action of a rule is an entry of a table ([`RuleEntry`]), and this is
//! the only interpreter. The host does nothing else with a matching rule, so a level below with the table
//! decides alike.
//!
//! Two lookups: classification finds the index of the entry by the rules' headers, and the entry has the
//! action.

use bartizan_base::{Generation, PortIndex, Reason, Verdict};
use bartizan_config::policy::sections::FilterAction;
use bartizan_packet::tables::{RuleEntry, RuleEntryFlags};

/// An entry in its serialised form.
pub type RuleWords = [u8; RuleEntry::LEN];

/// Protocols whose flows have packets of several types.
const ICMP: [u8; 2] = [1, 58];

/// The part of the table with one policy's outcomes: one for each rule, then that of the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySpan {
    /// Index of the first rule's outcome.
    pub first: u32,
    /// Number of rules.
    pub rules: u32,
}

impl PolicySpan {
    /// Index of the outcome of the matching rule, by its number from 0; without a match the outcome of the
    /// default.
    #[inline]
    #[must_use]
    pub fn place(self, matched: Option<u32>) -> usize {
        (self.first + matched.map_or(self.rules, |rule| rule.min(self.rules))) as usize
    }
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfwRuleAction {
    /// An action that the default can have as well.
    Filter(FilterAction),
    /// Forward the flow by a named port.
    Redirect(PortIndex),
}

/// The result of an entry for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfwOutcome {
    /// Whether the packet is forwarded.
    pub verdict: Verdict,
    /// The reason of a refusal.
    pub reason: Option<Reason>,
    /// Number of the rule that decided, from 1; 0: the default.
    pub rule: u32,
    /// Index of the counter to increment.
    pub counter: u32,
    /// Whether the decision applies to all packets of the flow.
    pub for_flow: bool,
    /// The named port through which packets leave; `None`: the other port of their link.
    pub egress: Option<PortIndex>,
}

/// The entry of a rule, by its number from 1, or of the default (0). Its counter has the entry's own index.
#[must_use]
pub fn entry(
    action: PfwRuleAction,
    rule: u32,
    place: u32,
    each_icmp: bool,
    generation: Generation,
) -> RuleWords {
    let (verdict, refused) = match action {
        PfwRuleAction::Filter(FilterAction::Allow) | PfwRuleAction::Redirect(_) => (Verdict::Continue, false),
        PfwRuleAction::Filter(FilterAction::Drop) => (Verdict::Drop, true),
        PfwRuleAction::Filter(FilterAction::Reject) => (Verdict::Reject, true),
    };
    let egress = match action {
        PfwRuleAction::Redirect(port) => Some(port.0),
        PfwRuleAction::Filter(_) => None,
    };
    let reason = if rule == 0 { Reason::PfwDefault } else { Reason::PfwRule };
    let mut flags = RuleEntryFlags::VALID;
    flags.set(RuleEntryFlags::EACH_ICMP, each_icmp);
    flags.set(RuleEntryFlags::REDIRECT, egress.is_some());
    RuleEntry {
        egress: egress.unwrap_or_default(),
        rule,
        counter: place,
        verdict: verdict as u8,
        reason: if refused { reason as u8 } else { 0 },
        flags: flags.bits(),
        generation: generation.0 as u8,
    }
    .write()
}

/// Interprets an entry for a packet: beyond the match, only the protocol of the packet's flow matters, if it
/// has one.
#[inline]
#[must_use]
pub fn interpret(entry: &RuleWords, flow: Option<u8>) -> PfwOutcome {
    let entry = RuleEntry::read(entry);
    let verdict = match entry.verdict {
        0 => Verdict::Continue,
        3 => Verdict::Reject,
        // No other number is ever written; an unreadable entry fails closed.
        _ => Verdict::Drop,
    };
    let flags = RuleEntryFlags::from_bits_retain(entry.flags);
    let each_icmp = flags.contains(RuleEntryFlags::EACH_ICMP);
    let redirects = flags.contains(RuleEntryFlags::REDIRECT) && verdict.forwards();
    let reason = Reason::ALL.get(usize::from(entry.reason)).copied();
    PfwOutcome {
        verdict,
        reason: reason.filter(|_| !verdict.forwards()),
        rule: entry.rule,
        counter: entry.counter,
        for_flow: flow.is_some_and(|protocol| !(each_icmp && ICMP.contains(&protocol))),
        egress: redirects.then_some(PortIndex(entry.egress)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_its_rule_does() {
        let actions = [
            (FilterAction::Allow, Verdict::Continue),
            (FilterAction::Drop, Verdict::Drop),
            (FilterAction::Reject, Verdict::Reject),
        ];
        for (action, verdict) in actions {
            for (rule, reason) in [(0, Reason::PfwDefault), (7, Reason::PfwRule)] {
                let entry = entry(PfwRuleAction::Filter(action), rule, 11, false, Generation(0x1_02));
                assert_eq!(entry[11], 2, "the generation's low 8 bits");
                let said = PfwOutcome {
                    verdict,
                    reason: (!verdict.forwards()).then_some(reason),
                    rule,
                    counter: 11,
                    for_flow: true,
                    egress: None,
                };
                assert_eq!(interpret(&entry, Some(6)), said);
                assert_eq!(interpret(&entry, None), PfwOutcome { for_flow: false, ..said });
            }
        }
    }

    #[test]
    fn what_is_redirected_goes_on_by_its_port() {
        for port in [0, 1, 15] {
            let entry = entry(PfwRuleAction::Redirect(PortIndex(port)), 3, 5, false, Generation(1));
            let said = interpret(&entry, Some(17));
            assert_eq!((said.verdict, said.reason), (Verdict::Continue, None));
            assert_eq!((said.egress, said.for_flow), (Some(PortIndex(port)), true));
        }
    }

    #[test]
    fn icmp_is_decided_packet_by_packet_where_codes_count() {
        for (each, protocol, for_flow) in
            [(true, 1, false), (true, 58, false), (true, 17, true), (false, 1, true), (false, 58, true)]
        {
            let entry = entry(PfwRuleAction::Filter(FilterAction::Allow), 1, 0, each, Generation(1));
            assert_eq!(interpret(&entry, Some(protocol)).for_flow, for_flow, "{each} {protocol}");
        }
    }

    #[test]
    fn what_cannot_be_read_lets_nothing_through() {
        let mut entry = entry(PfwRuleAction::Filter(FilterAction::Allow), 1, 0, false, Generation(1));
        for verdict in [1, 4, 255] {
            entry[8] = verdict;
            assert_eq!(interpret(&entry, Some(6)).verdict, Verdict::Drop);
        }
    }

    #[test]
    fn the_default_stands_behind_the_rules() {
        let span = PolicySpan { first: 5, rules: 3 };
        assert_eq!([Some(0), Some(2), None, Some(9)].map(|matched| span.place(matched)), [5, 7, 8, 8]);
    }
}
