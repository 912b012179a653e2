// SPDX-License-Identifier: Apache-2.0
//! The functions of a generation and the chains that policies make of them.

use crate::early::Early;
use crate::enough::InspectionLimit;
use crate::overload::Overload;
use crate::quotas::Quotas;
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId, Timestamp};
use bartizan_classify::Header;
use bartizan_flow::EspFlows;
use bartizan_function::{Function, FunctionModel, HostKeeper, Together, VariableNames, WorkerState};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One consistent set of functions, rules and chains. A packet sees one generation from beginning to end.
pub struct Chains {
    /// The number of the generation.
    pub generation: Generation,
    /// The functions, by their bit in paths.
    pub functions: Vec<Arc<dyn Function>>,
    /// Gives each flow its class and path.
    pub classifier: Box<dyn FlowClassifier>,
    /// The functions, each at the index of its path bit.
    by_bit: Vec<Option<Arc<dyn Function>>>,
    /// Functions that look at payloads.
    payload: Path,
    /// Functions that judge by headers.
    header: Path,
    /// Payload functions that have nothing to look for.
    idle: Path,
    /// Payload functions that want each segment by itself; `each`: functions that want each packet.
    apart: Path,
    each: Path,
    /// The policies of the classes.
    policies: Arc<PolicyMap>,
    /// The quotas of tenants.
    pub quotas: Quotas,
    /// Functions that must decide on the protocol before bytes reach their receiver.
    waits: Path,
    /// The packets without a flow that a level below may refuse; `None`: none.
    pub early: Option<Arc<Early>>,
    /// Names of the host's ports that packets may be redirected to, by their numbers.
    pub ports: Arc<[String]>,
    /// Tables of the state that functions keep per host, with the function's name.
    pub host_tables: Vec<(&'static str, Arc<dyn HostKeeper>)>,
}

/// The policy of a fid, as events and summaries name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// The policy; `default` for traffic that no policy names.
    pub policy: Arc<str>,
    /// The verdicts of the policy are only reported.
    pub staged: bool,
}

/// The enforcement of refusals, by a function of the chain or by the engine itself, in ascending order of
/// strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enforcement {
    /// The chain is empty: packets are forwarded and counted, and the engine has nothing to protect.
    ForwardsAll,
    /// The policy is staged: refusals are reported, and the packet leaves as it came.
    Staged,
    /// Refusals are enforced.
    #[default]
    Enforced,
}

/// The properties of a class beside its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTraits {
    /// Number of its policy.
    pub policy: u32,
    /// The verdicts of the class are only reported.
    pub staged: bool,
    /// The chain of the class has no function.
    pub is_empty: bool,
    /// The class's policy allows flows of which only one direction passes this host.
    pub one_sided: bool,
    /// The rank of its flows when memory for application layers is used up or the load exceeds a worker's
    /// capacity.
    pub overload: Overload,
    /// The limits after which payload functions are done with its flows.
    pub enough: InspectionLimit,
    /// Functions without which its packets are forwarded while the function has failed or is stopped; for
    /// want of any other function packets are refused.
    pub fail_open_functions: Path,
}

/// Results of a flow's lookup in the header rules of functions: each function with the number of its rule.
pub type HeaderRuleMatches = SmallVec<[(FunctionId, u32); 2]>;

/// The result of a header lookup, for people.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LookupExplained {
    /// The segment of each field: the range in which its value could vary without changing the result of any
    /// set.
    pub segments: Vec<SegmentExplained>,
    /// The rule sets.
    pub sets: Vec<SetExplained>,
    /// The names of policies that its addresses have now, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameExplained>,
}

/// Why an address is a member of a DNS name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NameExplained {
    /// The address.
    pub address: core::net::IpAddr,
    /// The name of the policy.
    pub name: String,
    /// The queried name whose answer contained the address.
    pub asked: String,
    /// Expiry, in seconds of the packet clock since 1970.
    pub until: u64,
}

/// The segment of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SegmentExplained {
    /// Name of the field.
    pub field: &'static str,
    /// First and last value: `10.0.0.0 to 10.0.255.255`, `80`; `any` if no rule tests the field.
    pub values: String,
}

/// The result of the lookup in one rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SetExplained {
    /// `policies`, `service-levels` or a function.
    pub set: &'static str,
    /// The rules that match, in their order: the first is the set's answer.
    pub matching: Vec<String>,
    /// Number of matching rules that are left out.
    pub omitted: usize,
}

/// Gives a new flow its class.
pub trait FlowClassifier: Send + Sync {
    /// The class and the chain of a flow by the header of its first packet at a time of the packet clock.
    /// Writes the results of functions' header rules to `matches`; earlier results are removed, except for
    /// the names of the flow's addresses.
    fn classify(&self, header: &Header, now: Timestamp, matches: &mut HeaderRuleMatches) -> Class;

    /// The tenant of a packet, equal for both directions of a flow; 0 without tenants.
    fn tenant_of(&self, packet: &bartizan_packet::Decoded, link: LinkId) -> TenantId {
        let _ = (packet, link);
        TenantId(0)
    }

    /// Whether tenants are selected by VLAN ids.
    fn selects_tenants_by_vlan(&self) -> bool {
        false
    }

    /// Whether tenants are selected by tunnel ids.
    fn selects_tenants_by_tunnel(&self) -> bool {
        false
    }

    /// The result of a header lookup, for `explain`. Never called for traffic.
    fn explain(&self, header: &Header, now: Timestamp) -> Option<LookupExplained> {
        let _ = (header, now);
        None
    }

    /// The names of policies that the addresses of a header have now, and why; for people.
    fn names(&self, header: &Header, now: Timestamp) -> Vec<NameExplained> {
        let _ = (header, now);
        Vec::new()
    }

    /// The quotas of tenants.
    fn quotas(&self) -> Quotas {
        Quotas::default()
    }

    /// The map from classes to policies; empty without policies.
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::default()
    }
}

/// The policies of classes: by number for counters, by name for events. A policy keeps its number over
/// generations; 0 is for classes without a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMap {
    /// Names by number; the first is for classes without a policy.
    names: Arc<[Arc<str>]>,
    by_fid: Vec<Option<ClassTraits>>,
    /// Some class has an [`InspectionLimit`].
    ends_early: bool,
    /// The least and the greatest enforcement of the classes that traffic can have.
    enforcement: (Enforcement, Enforcement),
    /// The priorities of these classes, in ascending order.
    priorities: Box<[u8]>,
}

impl ClassTraits {
    /// The enforcement of refusals.
    #[must_use]
    pub const fn enforcement(&self) -> Enforcement {
        match (self.is_empty, self.staged) {
            (true, _) => Enforcement::ForwardsAll,
            (false, true) => Enforcement::Staged,
            (false, false) => Enforcement::Enforced,
        }
    }
}

impl PolicyMap {
    /// Name for classes without a policy.
    pub const NONE: &'static str = "default";

    /// A map of the policies 1, 2, ... with the traits of each class.
    #[must_use]
    pub fn new(names: Vec<String>, classes: &[(Fid, ClassTraits)]) -> Self {
        let names = [Arc::from(Self::NONE)].into_iter().chain(names.into_iter().map(Arc::from));
        PolicyMap::with(names.collect(), classes)
    }

    /// As [`PolicyMap::new`], with shared names by number; the first is [`PolicyMap::NONE`].
    #[must_use]
    pub fn with(names: Arc<[Arc<str>]>, classes: &[(Fid, ClassTraits)]) -> Self {
        let end = classes.iter().map(|(fid, _)| fid.0 as usize + 1).max().unwrap_or(0);
        let mut by_fid = vec![None; end];
        for (fid, traits) in classes {
            if let Some(place) = by_fid.get_mut(fid.0 as usize) {
                *place = Some(*traits);
            }
        }
        let ends_early = classes.iter().any(|(_, traits)| !traits.enough.is_never());
        let map = PolicyMap { names, by_fid, ends_early, ..PolicyMap::default() };
        map.of_reachable(classes.iter().map(|(_, traits)| *traits))
    }

    /// This map with the enforcement and priorities of those classes only that traffic can have: a policy
    /// that selects everything leaves no traffic to later policies.
    #[must_use]
    pub fn of_reachable(self, reachable: impl Iterator<Item = ClassTraits> + Clone) -> Self {
        let enforcement = range_of(reachable.clone().map(|traits| traits.enforcement()));
        let priorities = reachable.map(|traits| traits.overload.priority).collect::<BTreeSet<_>>();
        PolicyMap { enforcement, priorities: priorities.into_iter().collect(), ..self }
    }

    /// The priorities that traffic can have under overload, in ascending order.
    #[inline]
    #[must_use]
    pub fn priorities(&self) -> &[u8] {
        &self.priorities
    }

    /// The enforcement of refusals for a class. A packet whose class cannot be known gets the strictest.
    #[must_use]
    pub fn enforcement(&self, fid: Fid) -> Enforcement {
        self.traits(fid).map_or(self.enforcement.1, |traits| traits.enforcement())
    }

    /// The enforcement for packets whose policy cannot be known.
    #[inline]
    #[must_use]
    pub const fn strictest(&self) -> Enforcement {
        self.enforcement.1
    }

    /// Whether enforcement differs between classes.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.enforcement.0 != self.enforcement.1
    }

    /// The rank of a class under overload.
    #[must_use]
    pub fn overload(&self, fid: Fid) -> Overload {
        self.traits(fid).map(|traits| traits.overload).unwrap_or_default()
    }

    /// The limits after which payload functions are done with flows of a class. `None`: the functions decide.
    #[inline]
    #[must_use]
    pub fn enough(&self, fid: Fid) -> Option<InspectionLimit> {
        if !self.ends_early {
            return None;
        }
        self.traits(fid).map(|traits| traits.enough).filter(|enough| !enough.is_never())
    }

    /// The policy of a class.
    #[inline]
    #[must_use]
    pub fn number(&self, fid: Fid) -> u32 {
        self.traits(fid).map_or(0, |traits| traits.policy)
    }

    fn traits(&self, fid: Fid) -> Option<ClassTraits> {
        self.by_fid.get(fid.0 as usize).copied().flatten()
    }

    /// Whether the policy of a class allows one-sided flows.
    #[inline]
    #[must_use]
    pub fn allows_one_sided(&self, fid: Fid) -> bool {
        self.traits(fid).is_some_and(|traits| traits.one_sided)
    }

    /// Whether verdicts on a class are only reported.
    #[inline]
    #[must_use]
    pub fn is_staged(&self, fid: Fid) -> bool {
        self.traits(fid).is_some_and(|traits| traits.staged)
    }

    /// Functions without which packets of a class are forwarded.
    #[must_use]
    pub fn fail_open_functions(&self, fid: Fid) -> Path {
        self.traits(fid).map(|traits| traits.fail_open_functions).unwrap_or_default()
    }

    /// Name of a policy.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or(Self::NONE, |name| name)
    }

    /// The policy of a class by name; `None` without policies.
    #[must_use]
    pub fn class_name(&self, fid: Fid) -> Option<ClassName> {
        let ClassTraits { policy, staged, .. } = self.traits(fid)?;
        Some(ClassName { policy: Arc::clone(self.names.get(policy as usize)?), staged })
    }

    /// Number of policy numbers given so far, 0 included.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.names.is_empty() { 1 } else { self.names.len() }
    }

    /// Always false: number 0 exists.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// The least and the greatest enforcement; `Enforced` if there is none.
fn range_of(all: impl Iterator<Item = Enforcement>) -> (Enforcement, Enforcement) {
    let range = all.fold(None, |range: Option<(Enforcement, Enforcement)>, one| {
        Some(range.map_or((one, one), |(least, most)| (least.min(one), most.max(one))))
    });
    range.unwrap_or_default()
}

/// The class and the chain of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Class.
    pub fid: Fid,
    /// Chain.
    pub path: Path,
}

/// A classifier that gives every flow the same class without a lookup, as in `inspect` without a policy.
#[derive(Clone, Copy, Debug)]
pub struct OneClass(pub Class);

impl FlowClassifier for OneClass {
    fn classify(&self, _header: &Header, _: Timestamp, matches: &mut HeaderRuleMatches) -> Class {
        matches.clear();
        self.0
    }
}

impl Chains {
    /// Creates the chains of a generation.
    #[must_use]
    pub fn new(
        generation: Generation,
        functions: Vec<Arc<dyn Function>>,
        classifier: Box<dyn FlowClassifier>,
    ) -> Self {
        let mut by_bit: Vec<Option<Arc<dyn Function>>> = Vec::new();
        let [mut payload, mut header, mut idle, mut apart, mut each, mut waits] = [Path::EMPTY; 6];
        let mut host_tables: Vec<(&'static str, Arc<dyn HostKeeper>)> = Vec::new();
        for function in &functions {
            host_tables.extend(function.hosts().map(|table| (function.spec().name, table)));
            let bit = usize::from(function.id().0);
            by_bit.resize(by_bit.len().max(bit + 1), None);
            if let Some(place) = by_bit.get_mut(bit) {
                *place = Some(Arc::clone(function));
            }
            if function.spec().model != FunctionModel::Payload {
                header = header.with(function.id());
            } else {
                payload = payload.with(function.id());
                if function.is_idle() {
                    idle = idle.with(function.id());
                }
                if function.waits_for_protocol() {
                    waits = waits.with(function.id());
                }
                match function.together() {
                    Together::Apart => apart = apart.with(function.id()),
                    Together::StreamJoined => each = each.with(function.id()),
                    Together::Joined => {}
                }
            }
        }
        let (policies, quotas) = (classifier.policies(), classifier.quotas());
        Chains {
            generation,
            functions,
            classifier,
            by_bit,
            payload,
            header,
            idle,
            apart,
            each,
            policies,
            quotas,
            waits,
            early: None,
            ports: Arc::default(),
            host_tables,
        }
    }

    /// The rank of a class under overload.
    #[must_use]
    pub fn overload(&self, fid: Fid) -> Overload {
        self.policies.overload(fid)
    }

    /// Whether verdicts on a class are only reported.
    #[must_use]
    pub fn is_staged(&self, fid: Fid) -> bool {
        self.policies.is_staged(fid)
    }

    /// The policies of the classes.
    #[must_use]
    pub fn policies(&self) -> &PolicyMap {
        &self.policies
    }

    /// The enforcement of refusals of a class's packets.
    #[must_use]
    pub fn enforcement(&self, fid: Fid) -> Enforcement {
        self.policies.enforcement(fid)
    }

    /// Whether the engine itself refuses nothing of a class, since no function judges its packets.
    #[must_use]
    pub fn forwards_all(&self, fid: Fid) -> bool {
        self.policies.enforcement(fid) == Enforcement::ForwardsAll
    }

    /// Whether some policy enforces refusals; otherwise nothing is held back.
    #[inline]
    #[must_use]
    pub fn enforces_something(&self) -> bool {
        matches!(self.policies.strictest(), Enforcement::Enforced)
    }

    /// Functions without which packets of a class are forwarded while the function has failed or is stopped.
    #[must_use]
    pub fn fail_open_functions(&self, fid: Fid) -> Path {
        self.policies.fail_open_functions(fid)
    }

    /// The quotas of tenants.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Whether functions judge flows by their headers. Then every IP packet has a flow, by addresses and
    /// protocol where its protocol has no ports, since these functions decide who may open flows and which
    /// packets are replies. Detection alone makes flows only for the protocols for which Suricata does.
    #[inline]
    #[must_use]
    pub const fn judges_headers(&self) -> bool {
        !self.header.is_empty()
    }

    /// The key of ESP flows: addresses, where functions judge flows by their headers; else the SPI, as in
    /// Suricata.
    #[inline]
    #[must_use]
    pub const fn esp_flows(&self) -> EspFlows {
        if self.judges_headers() { EspFlows::ByAddresses } else { EspFlows::BySpi }
    }

    /// Whether a function judges by headers.
    #[inline]
    #[must_use]
    pub const fn is_of_headers(&self, function: FunctionId) -> bool {
        self.header.contains(function)
    }

    /// A generation with all functions in one chain for every flow; no function has header rules.
    #[must_use]
    pub fn one(generation: Generation, functions: Vec<Arc<dyn Function>>) -> Self {
        let path = functions.iter().fold(Path::EMPTY, |path, f| path.with(f.id()));
        Chains::new(generation, functions, Box::new(OneClass(Class { fid: Fid(0), path })))
    }

    /// The limits after which payload functions are done with flows of a class. `None`: the functions decide.
    #[inline]
    #[must_use]
    pub fn enough(&self, fid: Fid) -> Option<InspectionLimit> {
        self.policies.enough(fid)
    }

    /// The function of a bit.
    #[inline]
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&Arc<dyn Function>> {
        self.by_bit.get(usize::from(id.0))?.as_ref()
    }

    /// Whether the policy of a class allows one-sided flows.
    #[inline]
    #[must_use]
    pub fn allows_one_sided(&self, fid: Fid) -> bool {
        self.policies.allows_one_sided(fid)
    }

    /// The part of a path that inspects payloads.
    #[inline]
    #[must_use]
    pub const fn payload_part(&self, path: Path) -> Path {
        path.and(self.payload)
    }

    /// The part of a path that has nothing to look for in payloads ([`Function::is_idle`]).
    #[inline]
    #[must_use]
    pub const fn idle_part(&self, path: Path) -> Path {
        path.and(self.idle)
    }

    /// The part of a path that inspects headers.
    #[inline]
    #[must_use]
    pub const fn header_part(&self, path: Path) -> Path {
        path.and_not(self.payload)
    }

    /// Whether a payload function takes segments that arrived together as one.
    #[inline]
    #[must_use]
    pub const fn takes_together(&self) -> bool {
        !self.payload.and_not(self.apart).is_empty()
    }

    /// The part of a path that wants each packet of segments that arrived together.
    #[inline]
    #[must_use]
    pub const fn each_part(&self, path: Path) -> Path {
        path.and(self.each)
    }

    /// The way in which the payload functions of a path take segments that arrived together.
    #[inline]
    #[must_use]
    pub const fn together(&self, path: Path) -> Together {
        if !path.and(self.apart).is_empty() {
            Together::Apart
        } else if !path.and(self.each).is_empty() {
            Together::StreamJoined
        } else {
            Together::Joined
        }
    }

    /// Whether a function of a path must decide on the protocol before the flow's bytes reach their receiver.
    #[inline]
    #[must_use]
    pub const fn waits_for_protocol(&self, path: Path) -> bool {
        !path.and(self.waits).is_empty()
    }

    /// Names of the flow variables of functions, by path bit.
    #[must_use]
    pub fn variable_names(&self) -> Vec<Option<Arc<dyn VariableNames>>> {
        self.by_bit.iter().map(|function| function.as_ref()?.variable_names()).collect()
    }

    /// A new worker state for each function, by path bit.
    #[must_use]
    pub fn worker_states(&self) -> Vec<WorkerState> {
        let state = |f: &Option<Arc<dyn Function>>| {
            f.as_ref().map_or_else(|| Box::new(()) as WorkerState, |f| f.worker())
        };
        self.by_bit.iter().map(state).collect()
    }

    /// Whether a path has a function that inspects payloads.
    #[must_use]
    pub const fn wants_payload(&self, path: Path) -> bool {
        !self.payload_part(path).is_empty()
    }
}
