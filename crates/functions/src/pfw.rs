// SPDX-License-Identifier: Apache-2.0
//! `pfw`, the packet filter: ordered rules on the 5-tuple, first match decides (UniSec's model 1).
//!
//! A flow is decided once, by the tuple of the side that opened it; a refused flow stays refused, an allowed
//! one loses the function's path bit. ICMP is decided packet by packet if rules test codes, which may change
//! within a flow. A rule counts the packets that it decided: the first one of an allowed flow. A level below
//! the host may drop packets of a flow that the rule drops; they are then counted for the rule. A redirected
//! flow leaves by a named port, with the packets of both sides.
//!
//! The function has no lookup of its own: its rules are part of the generation's one lookup
//! ([`Function::take_header_rules`]). The action of a rule is an entry of a table, which [`pfw_table`]
//! interprets.
//!
//! Rules cannot test TCP flags, DSCP or the time of day.

use crate::pfw_table::{self, PfwOutcome, PfwRuleAction, PolicySpan, RuleWords};
use bartizan_base::{Decision, Fid, FunctionId, Generation, TenantId, Verdict};
use bartizan_classify::{HeaderRule, NameId, Net, Range};
use bartizan_config::policy::sections::{FilterAction, PfwRule, PfwSection};
use bartizan_config::policy::shadow::{Addresses, ListedSides, Shadowed, shadowed};
use bartizan_config::policy::values::IpProtocol;
use bartizan_config::policy::{IpVersions, OneOrMany, Ports, Prefix};
use bartizan_function::classes::{
    self, AddressMember, ByFid, PolicyClass, SectionNames, SideCondition, sides,
};
use bartizan_function::{
    Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, HandsUp, HeaderField, HeaderHalf,
    HeaderRules, PacketContext, RuleCount, RuleName, RuleSource, RulesError, WorkerState,
};
use bartizan_packet::tables::MatchEntry;
use core::cell::RefCell;
use core::num::NonZeroU32;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "pfw",
    summary: "Packet filter: ordered rules on addresses, ports, protocol and ICMP type; the first match decides.",
    model: FunctionModel::StatelessHeaders,
    runs_after: &[],
    runs_before: &["sfw", "ids"],
    header_half: Some(HeaderHalf {
        fields: &[
            HeaderField { name: "tenant", width: 16 },
            HeaderField { name: "source", width: 128 },
            HeaderField { name: "destination", width: 128 },
            HeaderField { name: "protocol", width: 8 },
            HeaderField { name: "source_port", width: 16 },
            HeaderField { name: "destination_port", width: 16 },
        ],
        entry_bytes: MatchEntry::LEN as u16,
        // The match, and its action.
        lookups: 2,
    }),
    host_slot: None,
    counters: &[
        FunctionCounter { name: "allowed", help: "Packets evaluated and allowed: the first of each flow." },
        FunctionCounter { name: "dropped", help: "Packets dropped." },
        FunctionCounter {
            name: "rejected",
            help: "Packets rejected: dropped, with an answer to the sender.",
        },
        FunctionCounter {
            name: "redirected",
            help: "Allowed packets whose flow leaves by a named port (`redirect`).",
        },
    ],
};

/// Most header rules that the rules of one policy may become.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;

/// The kind of function `pfw`: builds packet filters from their rules.
#[derive(Debug)]
pub struct PfwKind;

impl Pfw {
    /// The filter of a generation.
    fn of(source: &RuleSource<'_>) -> Result<Pfw, Vec<RulesError>> {
        let warnings = RefCell::new(Vec::new());
        let (_, classes) =
            classes::read_and_make::<PfwSection, PfwPolicyRules>(SPEC.name, source, |class, names, path| {
                let (filter, hidden) = filter(class, names, path)?;
                warnings.borrow_mut().extend(hidden);
                Ok(filter)
            })?;
        let warnings = warnings.into_inner();
        let mut pfw = Pfw { id: source.id, by_fid: ByFid::new(&classes), warnings, ..Pfw::default() };
        classes.iter().for_each(|made| pfw.add(&made.class, &made.made, source.generation));
        Ok(pfw)
    }
}

/// Compiles the section of a policy; with warnings of rules that no packet reaches.
fn filter(
    class: &PolicyClass<PfwSection>,
    names: &SectionNames,
    path: &str,
) -> Result<(PfwPolicyRules, Vec<RulesError>), Vec<RulesError>> {
    let (mut actions, mut matches, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut expansions = Vec::new();
    let rules = &class.rules.rules;
    for (number, rule) in (0u32..).zip(rules) {
        match Expansion::of(rule, class, names) {
            Ok((action, expansion)) => {
                actions.push(action);
                expansion.entries(number, &mut matches);
                expansions.push(expansion);
            }
            Err((key, message)) => {
                errors.push(classes::error(SPEC.name, format!("{path}/rules/{number}{key}"), message));
            }
        }
        if matches.len() > ENTRIES_MAX {
            let message = format!(
                "the rules up to this one have more than {ENTRIES_MAX} combinations of addresses and ports; use fewer or larger ranges"
            );
            errors.push(classes::error(SPEC.name, format!("{path}/rules/{number}"), message));
            break;
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let counters = rule_names(&class.policy, rules).map_err(|(number, message)| {
        vec![classes::error(SPEC.name, format!("{path}/rules/{number}/name"), message)]
    })?;
    let each_icmp = rules.iter().any(|rule| rule.code.is_some());
    let filter = PfwPolicyRules { actions, each_icmp, header_rules: matches.into(), counters };
    Ok((filter, hidden_rules(&expansions, path)))
}

/// Warnings of rules that one rule before them hides. `path`: of their section.
fn hidden_rules(rules: &[Expansion], path: &str) -> Vec<RulesError> {
    let sides: Vec<_> = rules.iter().map(Expansion::addresses).collect();
    let rest = |first: usize, second: usize| match (rules.get(first), rules.get(second)) {
        (Some(first), Some(second)) => first.covers_all_but_addresses(second),
        _ => false,
    };
    let warning = |Shadowed { item, by }: Shadowed| {
        let message = format!(
            "this rule is never reached: rule {} of this policy already matches all its packets; move this rule before that one, or remove it",
            by + 1
        );
        classes::error(SPEC.name, format!("{path}/rules/{item}"), message)
    };
    shadowed(&sides, false, rest, &(0..rules.len())).into_iter().map(warning).collect()
}

/// Maximum length of a rule's name, in bytes.
const NAME_MAX: usize = 64;

/// Names of the counters of a policy's rules and of its default. A rule without a name is named by its
/// content: it is the same rule at any position, and another one when its content changes. Equal rules
/// without names are numbered: only the first of them ever decides.
///
/// # Errors The index of an invalid or duplicate name, and the reason.
fn rule_names(policy: &str, rules: &[PfwRule]) -> Result<Vec<Arc<RuleName>>, (usize, String)> {
    let named = |rule: String| Arc::new(RuleName { policy: policy.to_owned(), rule });
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::with_capacity(rules.len() + 1);
    for (at, rule) in rules.iter().enumerate() {
        let Some(name) = &rule.name else {
            let by_content = content_name(rule);
            let before = places.entry(by_content.clone()).and_modify(|count| *count += 1).or_insert(0);
            all.push(named(if *before == 0 { by_content } else { format!("{by_content}~{}", *before + 1) }));
            continue;
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) || name == DEFAULT {
            let message = format!(
                "the name of a rule has 1 to {NAME_MAX} letters, digits, `-` and `_`, and is not `{DEFAULT}`; give it another"
            );
            return Err((at, message));
        }
        if let Some(other) = places.insert(name.clone(), at) {
            return Err((
                at,
                format!("rule {} of this policy has this name already; give one of them another", other + 1),
            ));
        }
        all.push(named(name.clone()));
    }
    all.push(named(DEFAULT.to_owned()));
    Ok(all)
}

/// The counter of packets that no rule matches.
const DEFAULT: &str = "default";

/// The name of a rule by its content: its action and a hash (FNV-1a, 64 bits) of all keys but its remark.
/// Configured names cannot contain a colon.
fn content_name(rule: &PfwRule) -> String {
    let mut content = serde_json::to_value(PfwRule { comment: None, ..rule.clone() }).unwrap_or_default();
    if let Some(keys) = content.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    let hash = content.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let action = match rule {
        PfwRule { allow: Some(_), .. } => "allow",
        PfwRule { drop: Some(_), .. } => "drop",
        PfwRule { reject: Some(_), .. } => "reject",
        _ => "redirect",
    };
    format!("{action}:{hash:016x}")
}

impl FunctionKind for PfwKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        Ok(Box::new(Pfw::of(source)?))
    }
}

/// The compiled rules of one policy, independent of their position in a generation's table.
struct PfwPolicyRules {
    /// The action of each rule.
    actions: Vec<PfwRuleAction>,
    /// Whether packets of ICMP are decided one by one.
    each_icmp: bool,
    /// The header rules.
    header_rules: Arc<[(u32, HeaderRule)]>,
    /// Names of the counters: of the rules, then of the default.
    counters: Vec<Arc<RuleName>>,
}

/// The packet filter with the rules of one generation.
#[derive(Debug, Default)]
pub struct Pfw {
    id: FunctionId,
    by_fid: ByFid,
    /// The span of each policy in the table.
    filters: Vec<PolicySpan>,
    /// The actions, by the rule that matched.
    table: Vec<RuleWords>,
    /// The header rules of each policy with its classes, until the generation takes them.
    header_rules: Vec<HeaderRules>,
    /// Names of the counters, at the index of their outcome.
    counters: Vec<Arc<RuleName>>,
    /// Names of the ports to which rules redirect, by the index of their outcomes.
    ports: BTreeMap<u32, String>,
    /// Remarks on rules that were made for this generation, until they are taken.
    warnings: Vec<RulesError>,
}

#[derive(Debug, Default)]
struct PfwCounts {
    allowed: u64,
    dropped: u64,
    rejected: u64,
    redirected: u64,
    rules: Vec<u64>,
}

impl Pfw {
    /// Adds the rules of a policy.
    fn add(&mut self, class: &PolicyClass<PfwSection>, filter: &PfwPolicyRules, generation: Generation) {
        let rules = &class.rules.rules;
        let span = PolicySpan { first: self.table.len() as u32, rules: rules.len() as u32 };
        for ((number, rule), action) in (0u32..).zip(rules).zip(&filter.actions) {
            let place = span.first + number;
            if let Some(name) = &rule.egress {
                self.ports.insert(place, name.clone());
            }
            self.table.push(pfw_table::entry(*action, number + 1, place, filter.each_icmp, generation));
        }
        let place = span.first + span.rules;
        let default = PfwRuleAction::Filter(class.rules.default);
        self.table.push(pfw_table::entry(default, 0, place, filter.each_icmp, generation));
        self.filters.push(span);
        let (fids, rules) = (Arc::clone(&class.fids), Arc::clone(&filter.header_rules));
        self.header_rules.push(HeaderRules { called: "rule", fids, rules });
        self.counters.extend(filter.counters.iter().cloned());
    }
}

/// The alternatives of a rule, field by field.
struct Expansion {
    protocols: Vec<Option<u8>>,
    tenants: Vec<Option<TenantId>>,
    from: Vec<SideCondition>,
    to: Vec<SideCondition>,
    first_ports: Vec<Range>,
    second_ports: Vec<Range>,
}

/// The key of a rule with an error (`/to-ports`), and the error.
type Wrong = (&'static str, String);

const WITH_PORTS: [u8; 3] = [6, 17, 132];
const ICMP: [u8; 2] = [1, 58];

/// The action of a rule, and its protocols.
fn action_of<'r>(
    rule: &'r PfwRule,
    names: &SectionNames,
) -> Result<(PfwRuleAction, &'r OneOrMany<IpProtocol>), Wrong> {
    let filter = PfwRuleAction::Filter;
    let (action, protocols) = match (&rule.allow, &rule.drop, &rule.reject, &rule.redirect) {
        (Some(protocols), None, None, None) => (filter(FilterAction::Allow), protocols),
        (None, Some(protocols), None, None) => (filter(FilterAction::Drop), protocols),
        (None, None, Some(protocols), None) => (filter(FilterAction::Reject), protocols),
        (None, None, None, Some(protocols)) => {
            let Some(name) = rule.egress.as_ref().filter(|name| !name.is_empty()) else {
                let message = "`redirect` needs a port to send to; name a port of the host file: `egress: \
                     NAME`";
                return Err(("/redirect", message.to_owned()));
            };
            let port = names.port(name).map_err(|message| ("/egress", message))?;
            return Ok((PfwRuleAction::Redirect(port), protocols));
        }
        _ => {
            let message = "a rule needs exactly one of `allow`, `drop`, `reject` and `redirect`, with protocols: `allow: tcp`";
            return Err(("", message.to_owned()));
        }
    };
    match rule.egress {
        None => Ok((action, protocols)),
        Some(_) => Err((
            "/egress",
            "only `redirect` rules can have `egress`; write `redirect`, or remove `egress`".to_owned(),
        )),
    }
}

impl Expansion {
    fn of(
        rule: &PfwRule,
        class: &PolicyClass<PfwSection>,
        names: &SectionNames,
    ) -> Result<(PfwRuleAction, Self), Wrong> {
        let (action, protocols) = action_of(rule, names)?;
        let only = |allowed: &[u8]| protocols.iter().all(|p| p.0.is_some_and(|p| allowed.contains(&p)));
        let icmp = rule.r#type.is_some() || rule.code.is_some();
        if icmp && !only(&ICMP) {
            let key = if rule.r#type.is_some() { "/type" } else { "/code" };
            return Err((key, "only icmp and icmpv6 have types and codes; split the rule".to_owned()));
        }
        if (rule.from_ports.is_some() || rule.to_ports.is_some()) && !only(&WITH_PORTS) {
            let key = if rule.to_ports.is_some() { "/to-ports" } else { "/from-ports" };
            return Err((key, "only tcp, udp and sctp have ports; split the rule".to_owned()));
        }
        within_icmp(rule)?;
        let side = |targets: &Option<OneOrMany<_>>, own: &[AddressMember], key| match targets {
            Some(targets) => names.members(targets).map(|m| sides(&m)).map_err(|message| (key, message)),
            None => Ok(sides(own)),
        };
        let tenants = match &rule.tenant {
            None => vec![None],
            Some(list) => {
                let ids: Result<Vec<_>, _> = list.iter().map(|name| names.tenant(name).map(Some)).collect();
                ids.map_err(|message| ("/tenant", message))?
            }
        };
        let (first, second) =
            if icmp { (&rule.r#type, &rule.code) } else { (&rule.from_ports, &rule.to_ports) };
        let expansion = Expansion {
            protocols: protocols.iter().map(|p| p.0).collect(),
            tenants,
            from: side(&rule.from, &class.from, "/from")?,
            to: side(&rule.to, &class.to, "/to")?,
            first_ports: ranges(first),
            second_ports: ranges(second),
        };
        expansion.can_match(rule)?;
        Ok((action, expansion))
    }

    /// The addresses of both sides.
    fn addresses(&self) -> ListedSides<NameId> {
        let of = |side: &SideCondition| match (side.net, side.name) {
            (Some(net), _) => Addresses::Prefix(Prefix { address: net.address, length: net.length }),
            (None, Some(name)) => Addresses::Name(name),
            (None, None) => Addresses::All,
        };
        ListedSides::new(self.from.iter().map(of).collect(), self.to.iter().map(of).collect())
    }

    /// Whether it matches, beside addresses, all that another one matches.
    fn covers_all_but_addresses(&self, other: &Self) -> bool {
        fn any_or_each<T: PartialEq>(own: &[Option<T>], other: &[Option<T>]) -> bool {
            own.contains(&None) || other.iter().all(|one| own.contains(one))
        }
        let ports = |own: &[Range], other: &[Range]| {
            other.iter().all(|one| own.iter().any(|own| own.first <= one.first && one.last <= own.last))
        };
        any_or_each(&self.protocols, &other.protocols)
            && any_or_each(&self.tenants, &other.tenants)
            && ports(&self.first_ports, &other.first_ports)
            && ports(&self.second_ports, &other.second_ports)
    }

    /// The IP versions of the packets that both sides select.
    fn versions(&self) -> (IpVersions, IpVersions) {
        let of = |sides: &[SideCondition]| {
            IpVersions::of(sides.iter().map(|side| side.net.map(|net| net.address)))
        };
        (of(&self.from), of(&self.to))
    }

    /// Checks that some packet can have the rule's addresses and one of its protocols.
    fn can_match(&self, rule: &PfwRule) -> Result<(), Wrong> {
        let (from, to) = self.versions();
        if let Some(why) = from.apart(to) {
            let key = if rule.to.is_some() { "/to" } else { "/from" };
            return Err((key, format!("this rule never matches: {why}")));
        }
        let IpVersions { v4, v6 } = from.and(to);
        if v4 == v6 {
            return Ok(());
        }
        let (other, protocol, its, theirs, instead) = match v4 {
            true => (ICMP[1], "icmpv6", "IPv6", "IPv4", "icmp"),
            false => (ICMP[0], "icmp", "IPv4", "IPv6", "icmpv6"),
        };
        if self.protocols.iter().any(|own| *own != Some(other)) {
            return Ok(());
        }
        let key = match rule {
            PfwRule { allow: Some(_), .. } => "/allow",
            PfwRule { drop: Some(_), .. } => "/drop",
            PfwRule { reject: Some(_), .. } => "/reject",
            _ => "/redirect",
        };
        let message = format!(
            "this rule never matches: {protocol} belongs to {its}, and the rule has only {theirs} addresses; write `{instead}`, or use addresses of {its}"
        );
        Err((key, message))
    }

    fn entries(&self, index: u32, entries: &mut Vec<(u32, HeaderRule)>) {
        // Long lists of one version have no pair with those of the other: no pair is skipped, so the bound
        // ends the loop.
        let is_v4 = |side: &SideCondition| side.net.map(|net: Net| net.address.is_ipv4());
        let of = |v4| self.to.iter().filter(move |to| is_v4(to).is_none_or(|own| own == v4)).collect();
        let (v4, v6, all): (Vec<&SideCondition>, Vec<&SideCondition>, Vec<&SideCondition>) =
            (of(true), of(false), self.to.iter().collect());
        let towards = |from: &SideCondition| match is_v4(from) {
            Some(true) => v4.iter(),
            Some(false) => v6.iter(),
            None => all.iter(),
        };
        for (source, destination) in
            self.from.iter().flat_map(|from| towards(from).map(move |to| (from, *to)))
        {
            for (protocol, tenant) in
                self.protocols.iter().flat_map(|p| self.tenants.iter().map(move |t| (p, t)))
            {
                let ports =
                    self.first_ports.iter().flat_map(|a| self.second_ports.iter().map(move |b| (a, b)));
                for (source_ports, destination_ports) in ports {
                    if entries.len() > ENTRIES_MAX {
                        return;
                    }
                    let rule = HeaderRule {
                        tenant: *tenant,
                        link: None,
                        source: source.net,
                        destination: destination.net,
                        protocol: *protocol,
                        source_ports: *source_ports,
                        destination_ports: *destination_ports,
                        source_name: source.name,
                        destination_name: destination.name,
                    };
                    entries.push((index, rule));
                }
            }
        }
    }
}

/// The last ICMP type and code that a packet can have.
const ICMP_LAST: u16 = 255;

/// Checks that packets can have a rule's ICMP types and codes.
fn within_icmp(rule: &PfwRule) -> Result<(), Wrong> {
    for (key, called, list) in [("/type", "types", &rule.r#type), ("/code", "codes", &rule.code)] {
        let beyond = |range: &&Ports| range.last > ICMP_LAST && **range != Ports::ANY;
        if let Some(range) = list.iter().flat_map(|list| list.iter()).find(beyond) {
            let message =
                format!("`{range}` is out of range for ICMP {called}; use numbers from 0 to {ICMP_LAST}");
            return Err((key, message));
        }
    }
    Ok(())
}

fn ranges(ports: &Option<OneOrMany<Ports>>) -> Vec<Range> {
    match ports {
        None => vec![Range::ANY],
        Some(list) => list.iter().map(|p| Range { first: p.first, last: p.last }).collect(),
    }
}

impl Pfw {
    /// The span of a class of flows in the table.
    fn span(&self, fid: Fid) -> Option<PolicySpan> {
        self.filters.get(self.by_fid.get(fid)?).copied()
    }

    /// The decision for an outcome.
    fn decision(&self, outcome: &PfwOutcome) -> Decision {
        Decision {
            verdict: outcome.verdict,
            reason: outcome.reason,
            function: self.id,
            rule: NonZeroU32::new(outcome.rule),
            rule_id: None,
            done: outcome.for_flow && outcome.verdict.forwards(),
            repeats: outcome.for_flow,
            egress: outcome.egress,
        }
    }

    /// The outcome for a packet.
    fn outcome(&self, span: PolicySpan, context: &PacketContext<'_>) -> Option<PfwOutcome> {
        let entry = self.table.get(span.place(context.notes.matched(self.id)))?;
        Some(pfw_table::interpret(entry, context.facts.flow.map(|flow| flow.protocol)))
    }
}

impl PfwCounts {
    fn count(&mut self, outcome: &PfwOutcome, packets: u64) {
        if let Some(count) = self.rules.get_mut(outcome.counter as usize) {
            *count += packets;
        }
        if outcome.egress.is_some() {
            self.redirected += packets;
        }
        *match outcome.verdict {
            Verdict::Continue | Verdict::Pass => &mut self.allowed,
            Verdict::Drop => &mut self.dropped,
            Verdict::Reject => &mut self.rejected,
        } += packets;
    }
}

impl Function for Pfw {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(PfwCounts { rules: vec![0; self.counters.len()], ..PfwCounts::default() })
    }

    fn take_header_rules(&mut self) -> Vec<HeaderRules> {
        core::mem::take(&mut self.header_rules)
    }

    fn take_warnings(&mut self) -> Vec<RulesError> {
        core::mem::take(&mut self.warnings)
    }

    fn rules_of(&self, fid: Fid) -> Option<(usize, usize)> {
        let span = self.span(fid)?;
        Some((span.first as usize, span.rules as usize))
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let outcome = self.span(context.notes.fid).and_then(|span| self.outcome(span, context));
        let (Some(outcome), Some(counts)) = (outcome, context.worker.downcast_mut::<PfwCounts>()) else {
            return Decision::CONTINUE;
        };
        counts.count(&outcome, 1);
        self.decision(&outcome)
    }

    fn refuses(&self, fid: Fid, matched: Option<u32>) -> Result<Decision, HandsUp> {
        let entry = self.span(fid).and_then(|span| self.table.get(span.place(matched)));
        // Any protocol but ICMP.
        let outcome = entry.map(|entry| pfw_table::interpret(entry, Some(6))).ok_or(HandsUp::Judges)?;
        match outcome.verdict {
            Verdict::Drop => Ok(self.decision(&outcome)),
            verdict if verdict.forwards() => Err(HandsUp::LetsGo),
            _ => Err(HandsUp::Answers),
        }
    }

    fn repeated(&self, worker: &mut WorkerState, fid: Fid, decision: &Decision, packets: u64) {
        let Some(counts) = worker.downcast_mut::<PfwCounts>() else { return };
        let rule = decision.rule.map(|rule| rule.get() - 1);
        let entry = self.span(fid).and_then(|span| self.table.get(span.place(rule)));
        let Some(entry) = entry else { return };
        counts.count(&pfw_table::interpret(entry, None), packets);
    }

    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        let mut said = serde_json::Map::new();
        let Some(span) = self.span(context.notes.fid) else { return said };
        let Some(outcome) = self.outcome(span, context) else { return said };
        said.insert("rules".to_owned(), span.rules.into());
        let matched = if outcome.rule == 0 { "default".into() } else { outcome.rule.into() };
        said.insert("matched".to_owned(), matched);
        if let Some(name) = self.counters.get(outcome.counter as usize).filter(|_| outcome.rule != 0) {
            said.insert("counted_as".to_owned(), name.rule.as_str().into());
        }
        let action = match outcome.egress {
            Some(_) => "redirect",
            None if outcome.verdict.forwards() => "allow",
            None => outcome.verdict.name(),
        };
        said.insert("action".to_owned(), action.into());
        if let Some(name) = outcome.egress.and(self.ports.get(&outcome.counter)) {
            said.insert("egress".to_owned(), name.as_str().into());
        }
        said
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<PfwCounts>() else { return };
        each("allowed", counts.allowed);
        each("dropped", counts.dropped);
        each("rejected", counts.rejected);
        each("redirected", counts.redirected);
    }

    fn log_rules(&self, worker: &WorkerState, each: &mut dyn FnMut(RuleCount<'_>)) {
        let Some(counts) = worker.downcast_ref::<PfwCounts>() else { return };
        for span in &self.filters {
            let places = span.first as usize..;
            for (at, number) in places.zip(1..=span.rules + 1) {
                let (Some(name), Some(packets)) = (self.counters.get(at), counts.rules.get(at)) else {
                    return;
                };
                let place = if number > span.rules { 0 } else { number };
                each(RuleCount { name, place, packets: *packets });
            }
        }
    }
}

#[cfg(test)]
#[path = "pfw_tests.rs"]
mod tests;
