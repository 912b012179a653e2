// SPDX-License-Identifier: Apache-2.0
//! States of the links' levels, for reports to a controller: the generation that a level enforces, the reason
//! for none, and the rules that it evaluates itself.
//!
//! The watching thread ([`super::Below`]) notes events of links and levels; state that changes by itself (the
//! enforced generation, silent workers) is read from the level's tables on demand.

use bartizan_api::southbound::{LevelState, RuleLeftOut, RulesAtLevel};
use bartizan_base::{FunctionId, Generation, LinkId};
use bartizan_classify::early::{EarlyReach, OnLink, Unknown};
use bartizan_function::HandsUp;
use bartizan_offload::level::{Fail, LevelView, Watch};
use bartizan_stages::chain::Chains;
use bartizan_stages::early::{Early, EarlyOrigin, NotBelow};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The noted state of a link's level.
#[derive(Debug)]
pub(super) struct NotedLevel {
    /// Name of the level.
    pub level: &'static str,
    /// The level's generation and signs of life.
    pub view: Arc<dyn LevelView>,
    /// The watch on the link's workers.
    pub watch: Watch,
    /// Number of the workers of the link.
    pub workers: u32,
    /// The link, and whether the level evaluates rules only while it is open; `None`: it evaluates none.
    pub early: Option<(LinkId, bool)>,
    /// The reason why the level handles no packets, if it does not.
    pub off: Option<String>,
    /// Interfaces of the link that the level sends no frame through, with the reason.
    pub closed: BTreeMap<String, String>,
}

/// Evaluated rules of a generation's early table, by link.
type LinkLevelRules = (u64, BTreeMap<LinkId, RulesAtLevel>);

#[derive(Debug, Default)]
struct Inner {
    /// Levels by the names of their links, the nearest to the wire first.
    links: BTreeMap<String, Vec<NotedLevel>>,
    /// Links that lack interfaces: whether all, and the reason.
    away: BTreeMap<String, (bool, String)>,
    /// Rules of the enforced generation and of the next one, by level: one entry per table.
    rules: BTreeMap<&'static str, [Option<LinkLevelRules>; 2]>,
}

impl Inner {
    /// A level of a link.
    fn level(&mut self, link: &str, level: &str) -> Option<&mut NotedLevel> {
        self.links.get_mut(link)?.iter_mut().find(|of| of.level == level)
    }
}

/// The states of all levels; see the module. Copies share one state.
#[derive(Clone, Debug, Default)]
pub struct LevelsStand(Arc<Mutex<Inner>>);

/// Present state of a link's level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelNow {
    /// Name of the level.
    pub level: &'static str,
    /// The generation whose entries the level enforces, by this program's number; `None` if it is off.
    pub generation: Option<Generation>,
    /// State of the level.
    pub state: LevelState,
    /// The reason for a degraded state; empty if there is none.
    pub why: String,
    /// Rules that the level evaluates, if it evaluates rules.
    pub rules: Option<RulesAtLevel>,
}

impl LevelsStand {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a link has a level.
    pub(super) fn note_level(&self, link: &str, level: NotedLevel) {
        self.inner().links.entry(link.to_owned()).or_default().push(level);
    }

    /// Notes the order of a link's levels, the nearest to the wire first.
    pub(super) fn note_order(&self, link: &str, order: &[&str]) {
        if let Some(levels) = self.inner().links.get_mut(link) {
            levels.sort_by_key(|of| order.iter().position(|name| *name == of.level));
        }
    }

    /// Notes the reason why a link's level handles no packets; `None`: it does.
    pub(super) fn note_off(&self, link: &str, level: &str, off: Option<String>) {
        if let Some(level) = self.inner().level(link, level) {
            level.off = off;
        }
    }

    /// Notes the reason why no frame leaves by an interface at the link's level; `None`: frames leave.
    pub(super) fn note_port(&self, link: &str, level: &str, interface: &str, why: Option<String>) {
        let mut inner = self.inner();
        let Some(level) = inner.level(link, level) else { return };
        match why {
            Some(why) => drop(level.closed.insert(interface.to_owned(), why)),
            None => drop(level.closed.remove(interface)),
        }
    }

    /// Notes the links that lack interfaces: whether all, and the reason.
    pub(super) fn note_away(&self, away: BTreeMap<String, (bool, String)>) {
        self.inner().away = away;
    }

    /// Notes which rules of a generation's list the level's table has, and which it leaves out.
    pub(super) fn note_rules(
        &self,
        level: &'static str,
        chains: &Chains,
        names: &[&'static str],
        reach: EarlyReach,
    ) {
        let early = |of: &NotedLevel| of.early.filter(|_| of.level == level).map(|(link, _)| link);
        let links: Vec<LinkId> = self.inner().links.values().flatten().filter_map(early).collect();
        let none = Early::default();
        let early = chains.early.as_deref().unwrap_or(&none);
        let list = EarlyRuleList { early, chains, names, reach };
        let rules = links.into_iter().map(|link| (link, list.on(link))).collect();
        let generation = chains.generation.0;
        let mut inner = self.inner();
        let places = inner.rules.entry(level).or_default();
        if let Some(place) = places.get_mut(usize::from(generation % 2 == 1)) {
            *place = Some((generation, rules));
        }
    }

    /// Whether a link lacks all of its interfaces, and the reason; `None` if it lacks none.
    pub fn away(&self, link: &str) -> Option<(bool, String)> {
        self.inner().away.get(link).cloned()
    }

    /// The present states of a link's levels below the host, the nearest to the wire first.
    pub fn below(&self, link: &str) -> Vec<LevelNow> {
        let inner = self.inner();
        let levels = inner.links.get(link).map(Vec::as_slice).unwrap_or_default();
        levels.iter().map(|level| level.now(inner.rules.get(level.level))).collect()
    }
}

impl NotedLevel {
    /// The present state. `rules`: those of the level's two tables.
    fn now(&self, rules: Option<&[Option<LinkLevelRules>; 2]>) -> LevelNow {
        if let Some(why) = &self.off {
            let (level, why) = (self.level, why.clone());
            return LevelNow { level, generation: None, state: LevelState::Off, why, rules: None };
        }
        let generation = self.view.generation().0;
        let (state, mut why) = life(&self.watch, self.workers, |worker| self.view.silence(worker));
        for (interface, closed) in &self.closed {
            let before = if why.is_empty() { "" } else { "; " };
            why.push_str(&format!("{before}the level cannot send on `{interface}`: {closed}"));
        }
        let rules = self.early.map(|(link, while_open)| {
            let of = rules.into_iter().flatten().flatten().find(|(of, _)| *of == generation);
            let rules = of.and_then(|(_, rules)| rules.get(&link)).cloned().unwrap_or_default();
            RulesAtLevel { while_open, ..rules }
        });
        LevelNow { level: self.level, generation: Some(Generation(generation)), state, why, rules }
    }
}

/// The level's state by its workers: degraded if one is silent for too long. A worker that has not begun
/// is not watched.
fn life(watch: &Watch, workers: u32, silence: impl Fn(u32) -> Option<Duration>) -> (LevelState, String) {
    let is_silent = |worker: &u32| {
        let silence = silence(watch.first.saturating_add(*worker));
        silence.is_some_and(|silence| silence > watch.stale)
    };
    let silent: Vec<String> = (0..workers).filter(is_silent).map(|worker| worker.to_string()).collect();
    if silent.is_empty() {
        return (LevelState::On, String::new());
    }
    let (state, what) = match watch.fail {
        Fail::Open => (LevelState::Open, "pass uninspected"),
        Fail::Closed => (LevelState::Closed, "are dropped"),
    };
    let which = silent.join(", ");
    (state, format!("worker {which}: no heartbeat; packets that it should serve {what}"))
}

/// An early list, and the part of it that the level's table has.
struct EarlyRuleList<'l> {
    early: &'l Early,
    chains: &'l Chains,
    /// Names of the functions by their bit.
    names: &'l [&'static str],
    reach: EarlyReach,
}

impl EarlyRuleList<'_> {
    /// The outcome of the rules that can match packets of a link.
    fn on(&self, link: LinkId) -> RulesAtLevel {
        let mut rules = RulesAtLevel::default();
        let policies = self.chains.classifier.policies();
        for OnLink { rule, unknown } in self.early.rules.on(link, self.reach) {
            let Some((origin, function)) =
                self.early.origins.get(rule).and_then(|origin| Some((origin, origin.function?)))
            else {
                continue;
            };
            let function = self.name(function);
            match reason_not_evaluated(origin, unknown, rule < self.reach.rules) {
                None => *rules.evaluates.entry(function.to_owned()).or_default() += 1,
                Some(why) => rules.left_out.add(|| {
                    let policy = policies.class_name(origin.fid).map(|name| name.policy);
                    let policy = policy.as_deref().unwrap_or("default");
                    let which = origin.rule.map(|number| format!("rule {} of", u64::from(number) + 1));
                    let which = which.as_deref().unwrap_or("the default of");
                    RuleLeftOut { rule: format!("{policy}: {which} {function}"), why: why.to_owned() }
                }),
            }
        }
        rules
    }

    fn name(&self, function: FunctionId) -> &'static str {
        self.names.get(usize::from(function.0)).copied().unwrap_or("?")
    }
}

/// The reason why a level does not evaluate a rule itself, if it does not. Packets that a rule lets pass go
/// up to become a flow: such a rule counts as evaluated.
fn reason_not_evaluated(
    origin: &EarlyOrigin,
    unknown: Option<Unknown>,
    is_held: bool,
) -> Option<&'static str> {
    Some(match (origin.up, unknown) {
        _ if !is_held => "the level has no room for it and the rules after it",
        (Some(NotBelow::FailOpen), _) => {
            "its policy forwards packets while the function is stopped (`on-failure`)"
        }
        (Some(NotBelow::NoRoom), _) => "the level has no counters for so many rules",
        (Some(NotBelow::Function(HandsUp::Staged)), _) => "its policy is staged",
        (Some(NotBelow::Function(HandsUp::Judges)), _) => "the function evaluates more than headers",
        (Some(NotBelow::Function(HandsUp::Answers)), _) => {
            "it rejects, and only the host can send the answer"
        }
        (_, Some(Unknown::Tenant)) => {
            "it or its policy applies to one tenant, and the level has no room for the selectors of tenants"
        }
        (_, Some(Unknown::Tunnel)) => {
            "it or its policy applies to a tenant selected by `vni`, and the level does not decode tunnels with these settings"
        }
        (_, Some(Unknown::Name)) => "it or its policy matches a DNS name, which the level cannot resolve",
        (_, Some(Unknown::Protocol)) => "it matches a protocol that the level cannot distinguish",
        (None | Some(NotBelow::Function(HandsUp::LetsGo)), None) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::{Fid, Spread};

    #[test]
    fn what_a_rule_asks_for_beyond_its_level_is_the_reason() {
        let origin = |up| EarlyOrigin { fid: Fid(1), function: Some(FunctionId(0)), rule: None, up };
        let of = |hands_up| Some(NotBelow::Function(hands_up));
        let why = |up, unknown, held| reason_not_evaluated(&origin(up), unknown, held).unwrap_or_default();
        assert_eq!(reason_not_evaluated(&origin(None), None, true), None);
        assert_eq!(reason_not_evaluated(&origin(of(HandsUp::LetsGo)), None, true), None);
        assert!(why(None, None, false).contains("no room"));
        assert!(why(None, Some(Unknown::Tenant), true).contains("no room for the selectors of tenants"));
        assert!(why(None, Some(Unknown::Tunnel), true).contains("`vni`"));
        assert!(why(of(HandsUp::LetsGo), Some(Unknown::Name), true).contains("DNS name"));
        assert!(why(None, Some(Unknown::Protocol), true).contains("protocol"));
        assert!(why(of(HandsUp::Staged), Some(Unknown::Tenant), true).contains("staged"));
        assert!(why(of(HandsUp::Answers), None, true).contains("answer"));
        assert!(why(of(HandsUp::Judges), None, true).contains("more than headers"));
        assert!(why(Some(NotBelow::FailOpen), None, true).contains("on-failure"));
    }

    #[test]
    fn a_level_is_open_or_closed_while_a_worker_is_silent() {
        let watch =
            |fail| Watch { fail, stale: Duration::from_nanos(100), spread: Spread::new([1, 2], 3), first: 4 };
        let at = |now: u64| {
            move |worker: u32| {
                let last = [(4, 900), (5, 901)].into_iter().find(|(of, _)| *of == worker)?.1;
                Some(Duration::from_nanos(now - last))
            }
        };
        // The third worker has not begun.
        assert_eq!(life(&watch(Fail::Open), 3, at(1_000)), (LevelState::On, String::new()));
        let (state, why) = life(&watch(Fail::Open), 3, at(1_001));
        assert!(
            state == LevelState::Open && why.contains("worker 0:") && why.contains("uninspected"),
            "{why}"
        );
        let (state, why) = life(&watch(Fail::Closed), 3, at(1_002));
        assert!(
            state == LevelState::Closed && why.contains("worker 0, 1:") && why.contains("dropped"),
            "{why}"
        );
    }
}
