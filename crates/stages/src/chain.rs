// SPDX-License-Identifier: Apache-2.0
//! The functions of a generation and the chains that policies make of them.

use crate::early::Early;
use crate::enough::Enough;
use crate::overload::Overload;
use crate::quotas::Quotas;
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId, Timestamp};
use bartizan_classify::Header;
use bartizan_flow::EspFlows;
use bartizan_function::{Function, HostKeeper, Model, Together, VariableNames, WorkerState};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One consistent set of functions, rules and chains. A packet sees one of them from beginning to end.
pub struct Chains {
    /// Its number.
    pub generation: Generation,
    /// The functions, by their bit in paths.
    pub functions: Vec<Arc<dyn Function>>,
    /// Which class and path a flow gets.
    pub classifier: Box<dyn FlowClassifier>,
    /// The functions once more, each at the place of its bit.
    by_bit: Vec<Option<Arc<dyn Function>>>,
    /// The functions that look at payloads.
    payload: Path,
    /// The others, which judge by headers.
    header: Path,
    /// Those of them that have nothing to look for.
    idle: Path,
    /// Those that want each segment by itself, and those that want each packet.
    apart: Path,
    each: Path,
    /// The policies of the classes.
    policies: Arc<PolicyMap>,
    /// How much tenants may use.
    pub quotas: Quotas,
    /// Those that must be asked about the protocol before bytes reach their receiver.
    waits: Path,
    /// What a level below may refuse of packets without a flow; `None`: nothing.
    pub early: Option<Arc<Early>>,
    /// Names of the host's ports that packets may be redirected to, by their numbers.
    pub ports: Arc<[String]>,
    /// Tables of what functions keep per host, with the function's name.
    pub host_tables: Vec<(&'static str, Arc<dyn HostKeeper>)>,
}

/// What a fid stands for, as events and summaries name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// The policy; `default` for traffic that no policy names.
    pub policy: Arc<str>,
    /// Its verdicts are only reported.
    pub staged: bool,
}

/// What becomes of refusals, whoever refuses: a function of the chain, or the engine by itself. The strictest
/// comes last.
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

/// What is known of a class beside its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTraits {
    /// Number of its policy.
    pub policy: u32,
    /// Its verdicts are only reported.
    pub staged: bool,
    /// Its chain has no function.
    pub is_empty: bool,
    /// Its policy lets flows go on of which one direction does not come by.
    pub one_sided: bool,
    /// The rank of its flows when memory for application layers is used up, or more comes than a worker
    /// takes.
    pub overload: Overload,
    /// When payload functions are done with its flows.
    pub enough: Enough,
    /// Functions without which its packets go on where they have failed or are stopped; for want of others
    /// they are refused.
    pub goes_on_without: Path,
}

/// What the lookup for a flow found among functions' rules on headers: the function, and the number of its
/// rule.
pub type Matches = SmallVec<[(FunctionId, u32); 2]>;

/// What the lookup of a header meets, for people.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LookupExplained {
    /// The segment of each field: how far it could differ without a rule of any set noticing.
    pub segments: Vec<SegmentExplained>,
    /// The rule sets.
    pub sets: Vec<SetExplained>,
    /// Which of its addresses have names of policies now, and why.
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
    /// The name that was asked for when the address was answered.
    pub asked: String,
    /// Until when, in seconds of the packet clock since 1970.
    pub until: u64,
}

/// The segment of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SegmentExplained {
    /// Name of the field.
    pub field: &'static str,
    /// First and last value: `10.0.0.0 to 10.0.255.255`, `80`; `any` if no rule asks.
    pub values: String,
}

/// What the lookup meets in one rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SetExplained {
    /// `policies`, `service-levels` or a function.
    pub set: &'static str,
    /// The rules that match, in their order: the first is the set's answer.
    pub matching: Vec<String>,
    /// Matching rules that are left out.
    pub omitted: usize,
}

/// Gives a new flow its class.
pub trait FlowClassifier: Send + Sync {
    /// The class and the chain of a flow by the header of its first packet at a time of the packet clock, and
    /// into `matches` what functions' rules on headers say of it; what was there before goes, except for
    /// names of its addresses, which it keeps.
    fn classify(&self, header: &Header, now: Timestamp, matches: &mut Matches) -> Class;

    /// Whose traffic a packet is, the same for both directions of a flow. Without tenants there is one.
    fn tenant_of(&self, packet: &bartizan_packet::Decoded, link: LinkId) -> TenantId {
        let _ = (packet, link);
        TenantId(0)
    }

    /// Whether VLAN ids tell tenants apart.
    fn tells_tenants_by_vlan(&self) -> bool {
        false
    }

    /// Whether numbers of tunnels tell tenants apart.
    fn tells_tenants_by_tunnel(&self) -> bool {
        false
    }

    /// For `explain`: what the lookup of a header meets. Never called for traffic.
    fn explain(&self, header: &Header, now: Timestamp) -> Option<LookupExplained> {
        let _ = (header, now);
        None
    }

    /// For people: which names of policies the addresses of a header have now, and why.
    fn names(&self, header: &Header, now: Timestamp) -> Vec<NameExplained> {
        let _ = (header, now);
        Vec::new()
    }

    /// How much tenants may use.
    fn quotas(&self) -> Quotas {
        Quotas::default()
    }

    /// Which policy a class belongs to. Without policies all are of none.
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::default()
    }
}

/// The policies of classes: by number for counters, by name for events. A policy keeps its number over
/// generations; 0 is for what belongs to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMap {
    /// By number, the first that of none.
    names: Arc<[Arc<str>]>,
    by_fid: Vec<Option<ClassTraits>>,
    /// Some class has an [`Enough`].
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
    /// Name of what belongs to no policy.
    pub const NONE: &'static str = "default";

    /// From the names of the policies 1, 2, ... and what is known of each class.
    #[must_use]
    pub fn new(names: Vec<String>, classes: &[(Fid, ClassTraits)]) -> Self {
        let names = [Arc::from(Self::NONE)].into_iter().chain(names.into_iter().map(Arc::from));
        PolicyMap::with(names.collect(), classes)
    }

    /// As [`PolicyMap::new`], from names that may be shared, by number: the first is [`PolicyMap::NONE`].
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

    /// The same, where traffic can have only classes with these traits: a policy that selects
    /// everything leaves nothing to those after it.
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

    /// What becomes of refusals of a class's packets. A packet whose class nobody knows is judged as by the
    /// strictest policy.
    #[must_use]
    pub fn enforcement(&self, fid: Fid) -> Enforcement {
        self.traits(fid).map_or(self.enforcement.1, |traits| traits.enforcement())
    }

    /// The enforcement of refusals of packets whose policy cannot be known.
    #[inline]
    #[must_use]
    pub const fn strictest(&self) -> Enforcement {
        self.enforcement.1
    }

    /// Whether what becomes of a refusal depends on the class.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.enforcement.0 != self.enforcement.1
    }

    /// How a class stands under overload.
    #[must_use]
    pub fn overload(&self, fid: Fid) -> Overload {
        self.traits(fid).map(|traits| traits.overload).unwrap_or_default()
    }

    /// When payload functions are done with flows of a class. `None`: when they say so.
    #[inline]
    #[must_use]
    pub fn enough(&self, fid: Fid) -> Option<Enough> {
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

    /// Whether the policy of a class lets one-sided flows go on.
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

    /// Functions without which packets of a class go on.
    #[must_use]
    pub fn goes_on_without(&self, fid: Fid) -> Path {
        self.traits(fid).map(|traits| traits.goes_on_without).unwrap_or_default()
    }

    /// Name of a policy.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or(Self::NONE, |name| name)
    }

    /// What a class is called; without policies no class has a name.
    #[must_use]
    pub fn class_name(&self, fid: Fid) -> Option<ClassName> {
        let ClassTraits { policy, staged, .. } = self.traits(fid)?;
        Some(ClassName { policy: Arc::clone(self.names.get(policy as usize)?), staged })
    }

    /// Numbers given so far, 0 included.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.names.is_empty() { 1 } else { self.names.len() }
    }

    /// Never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// The least and the greatest; where there is none, refusals are enforced.
fn range_of(all: impl Iterator<Item = Enforcement>) -> (Enforcement, Enforcement) {
    let range = all.fold(None, |range: Option<(Enforcement, Enforcement)>, one| {
        Some(range.map_or((one, one), |(least, most)| (least.min(one), most.max(one))))
    });
    range.unwrap_or_default()
}

/// What a flow is given at its first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Class.
    pub fid: Fid,
    /// Chain.
    pub path: Path,
}

/// Every flow gets the same class, and nothing is looked up: what `inspect` does without a policy.
#[derive(Clone, Copy, Debug)]
pub struct OneClass(pub Class);

impl FlowClassifier for OneClass {
    fn classify(&self, _header: &Header, _: Timestamp, matches: &mut Matches) -> Class {
        matches.clear();
        self.0
    }
}

impl Chains {
    /// A generation.
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
            if function.spec().model != Model::Payload {
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

    /// How a class of flows stands under overload.
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

    /// Whether the engine refuses nothing of a class by itself, as no function judges its packets.
    #[must_use]
    pub fn forwards_all(&self, fid: Fid) -> bool {
        self.policies.enforcement(fid) == Enforcement::ForwardsAll
    }

    /// Whether some policy enforces what it refuses: else nothing is held back either.
    #[inline]
    #[must_use]
    pub fn enforces_something(&self) -> bool {
        matches!(self.policies.strictest(), Enforcement::Enforced)
    }

    /// Functions without which packets of a class go on where they have failed or are stopped.
    #[must_use]
    pub fn goes_on_without(&self, fid: Fid) -> Path {
        self.policies.goes_on_without(fid)
    }

    /// How much tenants may use.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Whether functions judge flows by their headers. Then every IP packet has a flow, by addresses and
    /// protocol where its protocol has no ports: who
    /// may open, and what answers, is asked of all of them. Detection alone knows flows of the protocols that
    /// Suricata has flows of.
    #[inline]
    #[must_use]
    pub const fn judges_headers(&self) -> bool {
        !self.header.is_empty()
    }

    /// What tells flows of ESP apart: addresses, where functions judge flows by their headers; else the SPI,
    /// as in Suricata.
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

    /// A generation with all functions in one chain for every flow; none of them has rules on headers to be
    /// looked up.
    #[must_use]
    pub fn one(generation: Generation, functions: Vec<Arc<dyn Function>>) -> Self {
        let path = functions.iter().fold(Path::EMPTY, |path, f| path.with(f.id()));
        Chains::new(generation, functions, Box::new(OneClass(Class { fid: Fid(0), path })))
    }

    /// When payload functions are done with flows of a class. `None`: when they say so.
    #[inline]
    #[must_use]
    pub fn enough(&self, fid: Fid) -> Option<Enough> {
        self.policies.enough(fid)
    }

    /// The function of a bit.
    #[inline]
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&Arc<dyn Function>> {
        self.by_bit.get(usize::from(id.0))?.as_ref()
    }

    /// Whether the policy of a class lets one-sided flows go on.
    #[inline]
    #[must_use]
    pub fn allows_one_sided(&self, fid: Fid) -> bool {
        self.policies.allows_one_sided(fid)
    }

    /// The part of a path that looks at payloads.
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

    /// The part of a path that looks at headers.
    #[inline]
    #[must_use]
    pub const fn header_part(&self, path: Path) -> Path {
        path.and_not(self.payload)
    }

    /// Whether a function takes segments together that came together.
    #[inline]
    #[must_use]
    pub const fn takes_together(&self) -> bool {
        !self.payload.and_not(self.apart).is_empty()
    }

    /// The part of a path that wants to be shown each packet of segments that came together.
    #[inline]
    #[must_use]
    pub const fn each_part(&self, path: Path) -> Path {
        path.and(self.each)
    }

    /// How the payload functions of a path take segments that came together.
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

    /// Whether a function of a path must be asked about the protocol before its bytes reach their receiver.
    #[inline]
    #[must_use]
    pub const fn waits_for_protocol(&self, path: Path) -> bool {
        !path.and(self.waits).is_empty()
    }

    /// What functions call the variables of flows, by bit.
    #[must_use]
    pub fn variable_names(&self) -> Vec<Option<Arc<dyn VariableNames>>> {
        self.by_bit.iter().map(|function| function.as_ref()?.variable_names()).collect()
    }

    /// What a worker keeps for each function, by bit.
    #[must_use]
    pub fn worker_states(&self) -> Vec<WorkerState> {
        let state = |f: &Option<Arc<dyn Function>>| {
            f.as_ref().map_or_else(|| Box::new(()) as WorkerState, |f| f.worker())
        };
        self.by_bit.iter().map(state).collect()
    }

    /// Whether a path has a function that looks at payloads.
    #[must_use]
    pub const fn wants_payload(&self, path: Path) -> bool {
        !self.payload_part(path).is_empty()
    }
}
