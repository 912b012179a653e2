// SPDX-License-Identifier: Apache-2.0
//! `pfw`, the packet filter: ordered rules on the 5-tuple, first match decides (UniSec's model 1).
//!
//! A flow is decided once, by the tuple of the side that opened it; what is refused stays refused, what is allowed
//! leaves the function's bit of the path. ICMP is decided packet by packet where rules ask for codes, which a flow
//! may change. A rule counts the packets that were decided by it: of an allowed flow the first.
//!
//! Not done: TCP flags, DSCP, time of day.

use crate::classes::{self, ByFid, Class, Names};
use bartizan_base::{Decision, Direction, Fid, FunctionId, Generation, LinkId, Reason, TenantId, Verdict};
use bartizan_classify::{
    Auto, BitVector, Classifier, Entry, Header, HeaderRule, InsertError, Linear, Net, Range,
};
use bartizan_config::policy::sections::{FilterAction, PfwRule, PfwSection};
use bartizan_config::policy::{List, Ports, Prefix};
use bartizan_function::{
    Counter, FlowView, Function, FunctionKind, FunctionSpec, HeaderField, HeaderHalf, Model, PacketContext,
    RuleSource, RulesError, WorkerState,
};
use bartizan_packet::{Decoded, Transport, icmpv4_counterpart, icmpv6_counterpart};
use core::num::NonZeroU32;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// What it is.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "pfw",
    summary: "Packet filter: ordered rules on addresses, ports, protocol and ICMP type; the first that matches decides.",
    model: Model::StatelessHeaders,
    runs_after: &[],
    runs_before: &["sfw", "ids"],
    buffers: &[],
    header_half: Some(HeaderHalf {
        fields: &[
            HeaderField { name: "tenant", width: 16 },
            HeaderField { name: "source", width: 128 },
            HeaderField { name: "destination", width: 128 },
            HeaderField { name: "protocol", width: 8 },
            HeaderField { name: "source_port", width: 16 },
            HeaderField { name: "destination_port", width: 16 },
        ],
        entry_bytes: 64,
        lookups: 1,
    }),
    counters: &[
        Counter { name: "allowed", help: "Packets that were decided and allowed: the first of each flow." },
        Counter { name: "dropped", help: "Packets dropped." },
        Counter { name: "rejected", help: "Packets dropped whose sender was told." },
    ],
};

/// Header rules that the rules of one policy may become at most.
const ENTRIES_MAX: usize = 1 << 16;
/// Up to so many header rules are searched one by one.
const LINEAR_MAX: usize = 32;
/// Up to so many are found by bit vectors. Compiled tables are faster, but take a megabyte at least, and there may be thousands of
/// policies with a filter each.
const BIT_VECTOR_MAX: usize = 1024;
/// Bytes that the classifier of one policy may take.
const CLASSIFIER_BYTES: usize = 64 << 20;
/// Names of rule counters that are kept for the life of the program.
const NAMES_MAX: usize = 1 << 16;

/// Makes packet filters.
#[derive(Debug, Default)]
pub struct PfwKind {
    /// Names of rule counters. The log callback wants names that live for ever; each is made once.
    names: Mutex<HashSet<&'static str>>,
}

impl PfwKind {
    fn name(&self, name: String) -> Option<&'static str> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name.as_str()) {
            return Some(known);
        }
        if names.len() >= NAMES_MAX {
            return None;
        }
        let name: &'static str = Box::leak(name.into_boxed_str());
        names.insert(name);
        Some(name)
    }
}

impl FunctionKind for PfwKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (names, classes) = classes::read::<PfwSection>(SPEC.name, source)?;
        let mut errors = Vec::new();
        let mut filters = Vec::new();
        let mut counters = Vec::new();
        for class in &classes {
            match Filter::compile(class, &names, counters.len()) {
                Ok(filter) => filters.push(filter),
                Err(found) => errors.extend(found),
            }
            for rule in 1..=class.rules.rules.len() {
                counters.push(self.name(format!("rule.{}.{rule}", class.policy)));
            }
            counters.push(self.name(format!("default.{}", class.policy)));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let by_fid = ByFid::new(&classes);
        Ok(Box::new(Pfw { id: source.id, generation: source.generation, filters, by_fid, counters }))
    }
}

/// The packet filter with the rules of one generation.
#[derive(Debug)]
pub struct Pfw {
    id: FunctionId,
    generation: Generation,
    filters: Vec<Filter>,
    by_fid: ByFid,
    /// Names of the counters of all filters' rules, the default last in each.
    counters: Vec<Option<&'static str>>,
}

/// The rules of one policy.
#[derive(Debug)]
struct Filter {
    classifier: Box<dyn Classifier>,
    actions: Vec<FilterAction>,
    default: FilterAction,
    /// Rules ask for ICMP codes: a flow's packets may be decided differently.
    by_code: bool,
    /// Place of its first counter.
    counter: usize,
}

/// What was decided for a flow: the rule's index, or that of the default behind them.
#[derive(Clone, Copy, Debug)]
struct Cached {
    generation: Generation,
    fid: Fid,
    rule: usize,
}

#[derive(Debug, Default)]
struct Counts {
    allowed: u64,
    dropped: u64,
    rejected: u64,
    rules: Vec<u64>,
}

impl Filter {
    fn compile(class: &Class<PfwSection>, names: &Names, counter: usize) -> Result<Self, Vec<RulesError>> {
        let mut entries = Vec::new();
        let mut actions = Vec::new();
        let mut errors = Vec::new();
        for (index, rule) in class.rules.rules.iter().enumerate() {
            match Expansion::of(rule, class, names) {
                Ok((action, expansion)) => {
                    actions.push(action);
                    expansion.entries(index as u32, &mut entries);
                }
                Err((key, message)) => {
                    errors.push(classes::error(
                        SPEC.name,
                        format!("{}/rules/{index}{key}", class.path),
                        message,
                    ));
                }
            }
            if entries.len() > ENTRIES_MAX {
                let message = format!(
                    "the rules up to here are more than {ENTRIES_MAX} combinations of addresses and ports; use fewer or coarser ones"
                );
                errors.push(classes::error(SPEC.name, format!("{}/rules/{index}", class.path), message));
                break;
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let classifier = classifier(entries)
            .map_err(|error| vec![classes::error(SPEC.name, class.path.clone(), error.to_string())])?;
        let by_code = class.rules.rules.iter().any(|r| r.code.is_some());
        let default = class.rules.default;
        Ok(Filter { classifier, actions, default, by_code, counter })
    }

    /// Index of the rule that decides; that of the default is the number of rules.
    fn decide(&self, header: &Header) -> usize {
        let mut result = [None];
        self.classifier.lookup(header, &mut result);
        let [found] = result;
        found.map_or(self.actions.len(), |m| m.fid.0 as usize)
    }

    fn action(&self, rule: usize) -> FilterAction {
        self.actions.get(rule).copied().unwrap_or(self.default)
    }
}

/// What finds the first of a filter's rules.
fn classifier(entries: Vec<Entry>) -> Result<Box<dyn Classifier>, InsertError> {
    if entries.len() > BIT_VECTOR_MAX {
        return Ok(Auto::new(&[entries], CLASSIFIER_BYTES)?.classifier);
    }
    let mut small: Box<dyn Classifier> = if entries.len() <= LINEAR_MAX {
        Box::new(Linear::new(1))
    } else {
        Box::new(BitVector::new(1, CLASSIFIER_BYTES))
    };
    small.insert(0, &entries)?;
    Ok(small)
}

/// The alternatives of a rule, field by field.
struct Expansion {
    protocols: Vec<Option<u8>>,
    tenants: Vec<Option<TenantId>>,
    from: Vec<Option<Net>>,
    to: Vec<Option<Net>>,
    first_ports: Vec<Range>,
    second_ports: Vec<Range>,
}

/// Where within a rule something is wrong (`/to-ports`), and what.
type Wrong = (&'static str, String);

const WITH_PORTS: [u8; 3] = [6, 17, 132];
const ICMP: [u8; 2] = [1, 58];

impl Expansion {
    fn of(rule: &PfwRule, class: &Class<PfwSection>, names: &Names) -> Result<(FilterAction, Self), Wrong> {
        let (action, protocols) = match (&rule.allow, &rule.drop, &rule.reject) {
            (Some(protocols), None, None) => (FilterAction::Allow, protocols),
            (None, Some(protocols), None) => (FilterAction::Drop, protocols),
            (None, None, Some(protocols)) => (FilterAction::Reject, protocols),
            _ => {
                let message =
                    "a rule needs exactly one of `allow`, `drop` and `reject`, with protocols: `allow: tcp`";
                return Err(("", message.to_owned()));
            }
        };
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
        let side = |targets: &Option<List<_>>, own: &[Prefix], key| match targets {
            Some(targets) => names.prefixes(targets).map(|p| nets(&p)).map_err(|message| (key, message)),
            None => Ok(nets(own)),
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
        Ok((action, expansion))
    }

    fn entries(&self, index: u32, entries: &mut Vec<Entry>) {
        for (source, destination) in self.from.iter().flat_map(|f| self.to.iter().map(move |t| (f, t))) {
            let mixed = |a: &Net, b: &Net| a.address.is_ipv4() != b.address.is_ipv4();
            if matches!((source, destination), (Some(a), Some(b)) if mixed(a, b)) {
                continue;
            }
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
                        source: *source,
                        destination: *destination,
                        protocol: *protocol,
                        source_ports: *source_ports,
                        destination_ports: *destination_ports,
                    };
                    entries.push(Entry { fid: Fid(index), priority: index, rule });
                }
            }
        }
    }
}

fn ranges(ports: &Option<List<Ports>>) -> Vec<Range> {
    match ports {
        None => vec![Range::ANY],
        Some(list) => list.iter().map(|p| Range { first: p.first, last: p.last }).collect(),
    }
}

/// Both versions' whole space is no condition at all.
fn nets(prefixes: &[Prefix]) -> Vec<Option<Net>> {
    let everything = |v4: bool| prefixes.iter().any(|p| p.length == 0 && p.address.is_ipv4() == v4);
    if everything(true) && everything(false) {
        return vec![None];
    }
    prefixes.iter().map(|p| Some(Net { address: p.address, length: p.length })).collect()
}

/// Type and code of an ICMP packet of a flow, as its opener would have sent them.
fn icmp_numbers(packet: &Decoded, direction: Direction) -> (u16, u16) {
    let (icmp, counterpart) = match &packet.transport {
        Transport::Icmp(icmp) => (icmp, icmpv4_counterpart(icmp.kind)),
        Transport::Icmpv6(icmp) => (icmp, icmpv6_counterpart(icmp.kind)),
        _ => return (0, 0),
    };
    match (direction, counterpart) {
        // The answer is decided as the question.
        (Direction::ToClient, Some(question)) => (u16::from(question), 0),
        _ => (u16::from(icmp.kind), u16::from(icmp.code)),
    }
}

fn header_of_flow(flow: &FlowView<'_>, packet: Option<&Decoded>, direction: Direction) -> Header {
    let (source_port, destination_port) = match packet {
        Some(packet) if ICMP.contains(&flow.protocol) => icmp_numbers(packet, direction),
        _ => (flow.client.1, flow.server.1),
    };
    Header {
        tenant: flow.tenant,
        link: LinkId(0),
        source: flow.client.0,
        destination: flow.server.0,
        protocol: flow.protocol,
        source_port,
        destination_port,
    }
}

/// The header of a packet without a flow; tenants are told apart by the fid.
fn header_of_packet(packet: &Decoded) -> Option<Header> {
    let (source_port, destination_port) = match packet.transport.icmp() {
        Some(icmp) => (u16::from(icmp.kind), u16::from(icmp.code)),
        None => packet.ports().unwrap_or((0, 0)),
    };
    Some(Header {
        tenant: TenantId(0),
        link: LinkId(0),
        source: packet.src()?,
        destination: packet.dst()?,
        protocol: packet.proto()?,
        source_port,
        destination_port,
    })
}

impl Pfw {
    fn conclude(&self, filter: &Filter, rule: usize, counts: &mut Counts) -> Decision {
        if let Some(count) = counts.rules.get_mut(filter.counter + rule) {
            *count += 1;
        }
        let is_rule = rule < filter.actions.len();
        let reason = if is_rule { Reason::PfwRule } else { Reason::PfwDefault };
        let number = if is_rule { u32::try_from(rule + 1).ok().and_then(NonZeroU32::new) } else { None };
        let verdict = match filter.action(rule) {
            FilterAction::Allow => {
                counts.allowed += 1;
                return Decision { function: self.id, rule: number, ..Decision::CONTINUE };
            }
            FilterAction::Drop => {
                counts.dropped += 1;
                Verdict::Drop
            }
            FilterAction::Reject => {
                counts.rejected += 1;
                Verdict::Reject
            }
        };
        Decision { rule: number, ..Decision::refuse(verdict, reason, self.id) }
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
        Box::new(Counts { rules: vec![0; self.counters.len()], ..Counts::default() })
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let fid = context.notes.fid;
        let (Some(counts), Some(filter)) =
            (context.worker.downcast_mut::<Counts>(), self.by_fid.get(fid).and_then(|i| self.filters.get(i)))
        else {
            return Decision::CONTINUE;
        };
        let packet = context.packet.map(|p| p.decoded());
        let Some(flow) = context.flow else {
            return match packet.and_then(header_of_packet) {
                Some(header) => self.conclude(filter, filter.decide(&header), counts),
                None => Decision::CONTINUE,
            };
        };
        let by_packet = filter.by_code && ICMP.contains(&flow.protocol);
        let cached = context.slot.as_ref().and_then(|s| s.downcast_ref::<Cached>());
        let known = cached.filter(|c| c.generation == self.generation && c.fid == fid && !by_packet);
        if let Some(Cached { rule, .. }) = known {
            return self.conclude(filter, *rule, counts);
        }
        let rule = filter.decide(&header_of_flow(flow, packet, context.direction));
        let decision = self.conclude(filter, rule, counts);
        if decision.verdict.forwards() {
            return Decision { done: !by_packet, ..decision };
        }
        if !by_packet {
            *context.slot = Some(Box::new(Cached { generation: self.generation, fid, rule }));
        }
        decision
    }

    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        let mut said = serde_json::Map::new();
        let filter = self.by_fid.get(context.notes.fid).and_then(|i| self.filters.get(i));
        let packet = context.packet.map(|p| p.decoded());
        let header = match context.flow {
            Some(flow) => Some(header_of_flow(flow, packet, context.direction)),
            None => packet.and_then(header_of_packet),
        };
        let (Some(filter), Some(header)) = (filter, header) else { return said };
        let rule = filter.decide(&header);
        said.insert("rules".to_owned(), filter.actions.len().into());
        let matched = if rule < filter.actions.len() { (rule + 1).into() } else { "default".into() };
        said.insert("matched".to_owned(), matched);
        let action = match filter.action(rule) {
            FilterAction::Allow => "allow",
            FilterAction::Drop => "drop",
            FilterAction::Reject => "reject",
        };
        said.insert("action".to_owned(), action.into());
        said
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<Counts>() else { return };
        each("allowed", counts.allowed);
        each("dropped", counts.dropped);
        each("rejected", counts.rejected);
        for (name, count) in self.counters.iter().zip(&counts.rules) {
            if let Some(name) = name {
                each(name, *count);
            }
        }
    }
}
