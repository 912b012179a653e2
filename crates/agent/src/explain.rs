// SPDX-License-Identifier: Apache-2.0
//! Explains the handling of a flow: tenant, policy, service level, class, chain, and each function's decision
//! on its first packet. For `bartizan explain flow`.
//!
//! The decisions come from the generation itself: its classifier gives the class, and its functions run on a
//! packet made for the flow ([`bartizan_dataplane::explain::first`]). The reasons, with places in the file,
//! come from a walk through the policies in order. If the two differ, which is a defect,
//! [`FlowExplanation::disagreement`] describes it.
//!
//! The structure grows by adding fields.

use crate::build::{ClassInfo, DEFAULT_POLICY};
use crate::tenants::{TenantQuestion, TenantSelector};
use bartizan_applayer::flow::Engine;
use bartizan_base::{LinkId, TenantId};
use bartizan_config::policy::{
    Bypass, FunctionSection, OneSided, PolicyDefinition, PolicyFile, Prefix, Target,
};
use bartizan_dataplane::explain::first::{FirstPacket, FlowProbe, first_packet};
use bartizan_dataplane::explain::observe::{FunctionCall, Half};
use bartizan_flow::TableError;
use bartizan_packet::{TunnelKind, TunnelTag};
use bartizan_stages::chain::{Chains, LookupExplained};
use bartizan_stages::settings::EngineSettings;
use core::net::IpAddr;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A flow to explain.
#[derive(Clone, Debug, Default)]
pub struct FlowQuestion {
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the initiator.
    pub source: Option<(IpAddr, u16)>,
    /// Address and port of the responder.
    pub destination: Option<(IpAddr, u16)>,
    /// Type and code, for ICMP.
    pub icmp: Option<(u8, u8)>,
    /// The tenant, if given; otherwise the selectors determine it.
    pub tenant: Option<TenantId>,
    /// The link that the flow enters by.
    pub link: LinkId,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// VXLAN network identifier.
    pub vni: Option<u32>,
    /// The source of `tenant`; `as asked` unless given.
    pub tenant_from: Option<&'static str>,
}

/// The generation to explain by.
pub struct Subject<'s> {
    /// The policy file.
    pub file: &'s PolicyFile,
    /// The classes, by fid.
    pub classes: &'s [Arc<ClassInfo>],
    /// Assigns packets to tenants.
    pub tenants: &'s TenantSelector,
    /// Numbers of the tenants.
    pub tenant_ids: &'s [(String, TenantId)],
    /// Numbers of the links.
    pub links: &'s [(String, LinkId)],
    /// The chains of the generation.
    pub chains: &'s Arc<Chains>,
    /// Names of the functions by their bit.
    pub functions: &'s [&'static str],
    /// Settings of the engine.
    pub settings: &'s EngineSettings,
    /// The application layer.
    pub engine: &'s Arc<Engine>,
}

/// Why a flow cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The flow does not have two addresses of one IP version.
    #[error(
        "a flow needs two addresses of one IP version: found {found}; write `tcp 10.0.0.1:40000 192.0.2.7:80`"
    )]
    Ends {
        /// The addresses given.
        found: String,
    },
    /// The flow table cannot be made.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The explanation of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowExplanation {
    /// The policy file.
    pub file: String,
    /// The tenant of its traffic.
    pub tenant: TenantAnswer,
    /// The policy; the default for traffic that no policy matches has the name `default`.
    pub policy: PolicyAnswer,
    /// Earlier policies of the file, and why they do not match.
    pub passed_over: Vec<PassedOver>,
    /// The service level of one of its hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_level: Option<ServiceLevelAnswer>,
    /// The fid of its class.
    pub fid: u32,
    /// Generation of policies and rules.
    pub generation: u64,
    /// The level that handles its packets.
    pub level: &'static str,
    /// The functions of its chain, in the order in which they run.
    pub path: Vec<&'static str>,
    /// Whether verdicts are only reported.
    pub staged: bool,
    /// The handling of the flow if one direction is not seen.
    pub one_sided: OneSided,
    /// Bounds on how much of the flow is inspected.
    #[serde(skip_serializing_if = "Bypass::is_never")]
    pub bypass: Bypass,
    /// The rules that the lookup of its first packet matches.
    pub lookup: LookupExplained,
    /// The decision of each function on the first packet.
    pub functions: Vec<FunctionAnswer>,
    /// The verdict on the first packet (in prevention).
    pub verdict: VerdictAnswer,
    /// A difference between classifier and file, which is a defect of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
}

/// The tenant of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct TenantAnswer {
    /// Name.
    pub name: String,
    /// Number.
    pub id: u16,
    /// The reason.
    pub why: String,
    /// The place in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// The flow's policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyAnswer {
    /// Name.
    pub name: String,
    /// The place in the file.
    pub place: String,
    /// The side of the policy that opens the flow: `from` or `to`; null for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<&'static str>,
    /// The prefixes that contain the two addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
}

/// An earlier policy that does not match the flow.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOver {
    /// Name.
    pub policy: String,
    /// The place in the file.
    pub place: String,
    /// The reason.
    pub why: String,
}

/// A service level that applies to a host of the flow.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceLevelAnswer {
    /// Rule group, or `none`.
    pub level: String,
    /// The place in the file.
    pub place: String,
    /// Whether the service level changes the flow's class.
    pub counts: bool,
}

/// The decision of a function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionAnswer {
    /// The function.
    pub function: &'static str,
    /// The half of the function that decided.
    pub half: Half,
    /// Whether the packet reaches the function: no earlier one drops it.
    pub reached: bool,
    /// Verdict.
    pub verdict: &'static str,
    /// Reason of a drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The decision in words.
    pub why: String,
    /// Number of the deciding rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// The place in the policy that led to the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The text at that place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Value>,
    /// Whether the function needs no further packet of the flow.
    pub done: bool,
    /// Findings: rule and message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Further details from the function.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// The verdict on a packet.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictAnswer {
    /// Verdict.
    pub verdict: &'static str,
    /// The function that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'static str>,
    /// Reason of a drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The meaning of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<&'static str>,
}

/// Explains a flow.
///
/// # Errors
/// The question does not describe a flow, or memory is exhausted.
pub fn explain(subject: &Subject<'_>, question: &FlowQuestion) -> Result<FlowExplanation, ExplainError> {
    let (source, destination) = ends(question)?;
    let asking = Asking { subject, question, source, destination };
    let tenant = asking.tenant();
    let probe = FlowProbe {
        tenant: TenantId(tenant.id),
        link: question.link,
        protocol: question.protocol,
        source,
        destination,
        icmp: question.icmp,
    };
    let first = first_packet(subject.chains, subject.settings, subject.engine, &probe)?;
    let info = subject.classes.iter().find(|c| c.fid == first.class.fid).map(Arc::as_ref);
    let (walked, passed_over) = asking.walk(&tenant.name);
    let name = info.and_then(|i| i.policy.clone());
    let disagreement = match (walked, &name) {
        (Some(policy), Some(name)) if policy.name == *name => None,
        (None, None) => None,
        (walked, name) => Some(format!(
            "the classifier says {}, the file says {}: please report this with the policy",
            name.as_deref().unwrap_or(DEFAULT_POLICY),
            walked.map_or(DEFAULT_POLICY, |p| p.name.as_str())
        )),
    };
    let index = name.as_ref().and_then(|n| subject.file.policies.iter().position(|p| p.name == *n));
    let path = first.class.path.functions();
    Ok(FlowExplanation {
        file: subject.file.name.clone(),
        policy: asking.policy(index),
        passed_over,
        service_level: asking.service_level(&tenant.name, info),
        tenant,
        fid: first.class.fid.0,
        generation: subject.chains.generation.0,
        level: bartizan_base::Level::Host.name(),
        path: path.filter_map(|id| subject.functions.get(usize::from(id.0)).copied()).collect(),
        staged: info.is_some_and(|i| i.staged),
        one_sided: info.map(|i| i.one_sided).unwrap_or_default(),
        bypass: info.map(|i| i.bypass).unwrap_or_default(),
        lookup: first.lookup.clone().unwrap_or_default(),
        functions: asking.functions(index, &first),
        verdict: verdict(&first),
        disagreement,
    })
}

/// An address and a port.
type AddressPort = (IpAddr, u16);

fn ends(question: &FlowQuestion) -> Result<(AddressPort, AddressPort), ExplainError> {
    match (question.source, question.destination) {
        (Some(source), Some(destination)) if source.0.is_ipv4() == destination.0.is_ipv4() => {
            Ok((source, destination))
        }
        (source, destination) => {
            let text = |end: Option<AddressPort>| end.map_or("none".to_owned(), |e| e.0.to_string());
            Err(ExplainError::Ends { found: format!("{} and {}", text(source), text(destination)) })
        }
    }
}

fn verdict(first: &FirstPacket) -> VerdictAnswer {
    let decision = &first.decision;
    let decider =
        first.calls.iter().find(|call| call.decision == *decision && call.decision.reason.is_some());
    VerdictAnswer {
        verdict: decision.verdict.name(),
        function: decider.map(|call| call.name),
        reason: decision.reason.map(bartizan_base::Reason::name),
        meaning: decision.reason.map(bartizan_base::Reason::meaning),
    }
}

struct Asking<'a> {
    subject: &'a Subject<'a>,
    question: &'a FlowQuestion,
    source: AddressPort,
    destination: AddressPort,
}

impl Asking<'_> {
    fn file(&self) -> &PolicyFile {
        self.subject.file
    }

    fn tenant(&self) -> TenantAnswer {
        let name_of = |id: TenantId| {
            let known = self.subject.tenant_ids.iter().find(|(_, t)| *t == id);
            known.map_or_else(|| id.to_string(), |(name, _)| name.clone())
        };
        if let Some(id) = self.question.tenant {
            let why = self.question.tenant_from.unwrap_or("as asked").to_owned();
            return TenantAnswer { name: name_of(id), id: id.0, why, place: None };
        }
        let tunnel = self.question.vni.map_or(TunnelTag::NONE, |vni| TunnelTag::new(TunnelKind::Vxlan, vni));
        let id = self.subject.tenants.select(&TenantQuestion {
            tunnel,
            vlans: &self.question.vlans,
            link: self.question.link,
            addresses: Some((self.source.0, self.destination.0)),
        });
        let name = name_of(id);
        let index = self.file().tenants.iter().position(|t| t.name == name);
        match index {
            Some(index) => TenantAnswer {
                name,
                id: id.0,
                why: "the first whose `select` fits".to_owned(),
                place: Some(self.file().place(&format!("tenants/{index}/select"))),
            },
            None => TenantAnswer { name, id: id.0, why: "no `select` fits".to_owned(), place: None },
        }
    }

    /// The first policy of the file that matches the flow, and the earlier ones.
    fn walk(&self, tenant: &str) -> (Option<&PolicyDefinition>, Vec<PassedOver>) {
        let mut passed_over = Vec::new();
        for (index, policy) in self.file().policies.iter().enumerate() {
            match self.misfit(policy, tenant) {
                None => return (Some(policy), passed_over),
                Some(why) => passed_over.push(PassedOver {
                    policy: policy.name.clone(),
                    place: self.file().place(&format!("policies/{index}")),
                    why,
                }),
            }
        }
        (None, passed_over)
    }

    /// Why a policy does not match the flow; `None` if it does.
    fn misfit(&self, policy: &PolicyDefinition, tenant: &str) -> Option<String> {
        if !policy.tenant.iter().any(|t| t == "any" || t == tenant) {
            return Some(format!("it is for tenant {}", policy.tenant.join(", ")));
        }
        if let Some(links) = &policy.link {
            let id = |name: &String| self.subject.links.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
            if !links.iter().any(|name| id(name) == Some(self.question.link)) {
                return Some(format!("it is for link {}", links.join(", ")));
            }
        }
        if self.turn(policy).is_some() {
            return None;
        }
        let (source, destination) = (self.source.0, self.destination.0);
        let (from, to) = (&policy.from, &policy.to);
        let lies = |targets: &[Target], address| self.prefix(targets, address).is_some();
        Some(
            match (lies(from, source) || lies(to, source), lies(from, destination) || lies(to, destination)) {
                (false, false) => format!("neither {source} nor {destination} lies in its `from` or `to`"),
                (false, true) => format!("{source} lies neither in its `from` nor in its `to`"),
                (true, false) => format!("{destination} lies neither in its `from` nor in its `to`"),
                (true, true) if lies(from, source) => {
                    format!("both lie in its `from`, and {destination} not in `to`")
                }
                (true, true) => "both lie in its `to`, and none in `from`".to_owned(),
            },
        )
    }

    /// The prefix of a list that contains an address.
    fn prefix(&self, targets: &[Target], address: IpAddr) -> Option<Prefix> {
        self.file().prefixes(targets).into_iter().find(|p| p.contains(address))
    }

    /// The side of a policy that opens the flow, and the prefixes of source and destination.
    fn turn(&self, policy: &PolicyDefinition) -> Option<(&'static str, Prefix, Prefix)> {
        let pair = |a: &[Target], b: &[Target]| {
            self.prefix(a, self.source.0).zip(self.prefix(b, self.destination.0))
        };
        let straight = pair(&policy.from, &policy.to).map(|(a, b)| ("from", a, b));
        straight.or_else(|| pair(&policy.to, &policy.from).map(|(a, b)| ("to", a, b)))
    }

    fn policy(&self, index: Option<usize>) -> PolicyAnswer {
        let found = index.and_then(|i| Some((i, self.file().policies.get(i)?)));
        let Some((index, policy)) = found else {
            return PolicyAnswer {
                name: DEFAULT_POLICY.to_owned(),
                place: self.file().place("default"),
                opened_by: None,
                prefixes: Vec::new(),
            };
        };
        let turn = self.turn(policy);
        PolicyAnswer {
            name: policy.name.clone(),
            place: self.file().place(&format!("policies/{index}")),
            opened_by: turn.map(|(side, _, _)| side),
            prefixes: turn.map(|(_, a, b)| vec![a.to_string(), b.to_string()]).unwrap_or_default(),
        }
    }

    fn service_level(&self, tenant: &str, info: Option<&ClassInfo>) -> Option<ServiceLevelAnswer> {
        let fits = |targets: &[Target]| {
            self.prefix(targets, self.source.0).or_else(|| self.prefix(targets, self.destination.0)).is_some()
        };
        let found = self.file().service_levels.iter().enumerate().find(|(_, level)| {
            let for_tenant =
                level.tenant.as_ref().is_none_or(|names| names.iter().any(|n| n == "any" || n == tenant));
            for_tenant && fits(&level.hosts)
        });
        found.map(|(index, level)| ServiceLevelAnswer {
            level: level.level.clone(),
            place: self.file().place(&format!("service-levels/{index}")),
            counts: info.is_some_and(|i| i.level.as_deref() == Some(level.level.as_str())),
        })
    }

    fn functions(&self, index: Option<usize>, first: &FirstPacket) -> Vec<FunctionAnswer> {
        let path = index.map_or("default".to_owned(), |i| format!("policies/{i}"));
        let policy = index.and_then(|i| self.file().policies.get(i));
        let sections = policy.map_or(&self.file().default.sections, |p| &p.sections);
        let mut reached = true;
        let mut answers = Vec::new();
        for call in &first.calls {
            let section = sections.iter().find(|s| s.function == call.name);
            let (place, text) = self.place(&path, call, section);
            answers.push(FunctionAnswer {
                function: call.name,
                half: call.half,
                reached,
                verdict: call.decision.verdict.name(),
                reason: call.decision.reason.map(bartizan_base::Reason::name),
                why: describe_decision(call),
                rule: call.decision.rule.map(core::num::NonZeroU32::get),
                place,
                text,
                done: call.decision.done,
                findings: call.findings.iter().map(|(rule, text)| format!("[{rule}] {text}")).collect(),
                details: call.details.clone(),
            });
            reached &= call.decision.verdict.forwards();
        }
        answers
    }

    /// The place of a function's decision in the policy: its rule, its default, or its section.
    fn place(
        &self,
        path: &str,
        call: &FunctionCall,
        section: Option<&FunctionSection>,
    ) -> (Option<String>, Option<Value>) {
        let Some(section) = section else {
            let key = if call.name == "gate" { path.to_owned() } else { format!("{path}/chain") };
            return (Some(self.file().place(&key)), None);
        };
        let own = format!("{path}/{}", call.name);
        let json = section.content.json();
        let rule = call.decision.rule.map(|n| n.get() as usize - 1).filter(|_| call.half == Half::Header);
        let rules = json.get("rules").and_then(Value::as_array);
        let text = rule.and_then(|rule| rules?.get(rule).cloned());
        match (rule, text) {
            (Some(rule), Some(text)) => (Some(self.file().place(&format!("{own}/rules/{rule}"))), Some(text)),
            _ if call.details.get("matched").and_then(Value::as_str) == Some("default") => {
                (Some(self.file().place(&format!("{own}/default"))), json.get("default").cloned())
            }
            _ => (Some(self.file().place(&own)), None),
        }
    }
}

/// A decision in words.
fn describe_decision(call: &FunctionCall) -> String {
    let decision = &call.decision;
    let rules = call.details.get("rules").and_then(Value::as_u64).unwrap_or(0);
    // Drops of a staged policy come as findings.
    if let Some((_, message)) = call.findings.first().filter(|_| call.half == Half::Header) {
        return message.clone();
    }
    match (decision.reason, decision.rule, call.half) {
        (Some(reason), Some(rule), Half::Header) => format!("rule {rule} of {rules}: {}", reason.meaning()),
        (Some(reason), _, _) => reason.meaning().to_owned(),
        (None, Some(rule), Half::Header) => format!("rule {rule} of {rules} passes it"),
        (None, None, Half::Header)
            if call.details.get("matched").and_then(Value::as_str) == Some("default") =>
        {
            format!("none of {rules} rules matches; the default passes it")
        }
        (None, None, Half::Header) => "no rule of this function drops it".to_owned(),
        (None, Some(rule), Half::Payload) => format!("rule {rule} passes it"),
        (None, None, Half::Payload) if call.findings.is_empty() => {
            "no rule matches the first packet".to_owned()
        }
        (None, None, Half::Payload) => "rules match and only report".to_owned(),
    }
}
