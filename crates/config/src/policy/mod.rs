// SPDX-License-Identifier: Apache-2.0
//! The policy file: who may talk to whom, and what to protect against.
//!
//! A policy is about the conversations between `from` and `to`, whoever opens them; the first policy in the
//! file that a flow fits is the flow's. Its `chain` names the functions that look at the flow, each with a
//! section of its name; what a section may say is the function's business ([`sections`] for those that come
//! with the program). [`parse`] finds every problem of a file with its position.
//!
//! Not done here: in which order the functions of a chain run (the agent knows them), and whether they exist,
//! unless [`parse`] is told their names.

mod combinations;
mod names;
mod parts;
pub mod read;
pub(crate) mod resolve;
mod schema;
pub mod sections;
pub mod shadow;
pub mod shares;
pub mod values;

pub use names::{ADDRESSES_MAX, DnsName, DnsSection, GroupMember, Member};
pub use parts::{Parts, PolicyText, from_parts};
pub use read::{Problem, did_you_mean, locate, nearest};
pub use resolve::{Hidden, hidden};
pub use schema::schema;
pub use values::{
    AddressGroup, IpVersions, Labels, List, PortGroup, Ports, Prefix, Protocol, Seconds, Size, Target,
    carries,
};

use crate::yaml::{self, Node, Position, Value};
use core::num::NonZeroU64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name of the tenant of traffic that no selector names.
pub const DEFAULT_TENANT: &str = "default";
/// Policies and tenants of one file at most.
pub const ITEMS_MAX: usize = 65_000;

/// A policy file, checked: every name in it that it defines itself is known, every value is in its range.
/// What it says beside its policies is its [`Common`], which stands here as if it were its own.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    /// Name for messages.
    pub name: String,
    /// What policies have in common: the same by address as in the file before if nothing of it has changed
    /// ([`from_parts`]).
    pub common: Arc<Common>,
    /// The policies, first match first: each the same by address as in the file before if its text is.
    pub policies: Vec<Arc<Policy>>,
    /// What its policies take of what there is a bound of.
    taken: Arc<shares::Taken>,
    /// What `common` was made of, if the file came in parts.
    common_text: Option<Arc<Json>>,
    root: Arc<Node>,
}

impl core::ops::Deref for PolicyFile {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// What a policy file says beside its policies.
#[derive(Clone, Debug)]
pub struct Common {
    /// The tenants, in the order in which their selectors are tried.
    pub tenants: Vec<Tenant>,
    /// Groups, their members down to prefixes and DNS names.
    pub groups: BTreeMap<String, Vec<Member>>,
    /// What groups carry, by the group's name.
    pub labels: BTreeMap<String, Labels>,
    /// Whose answers say which addresses names have.
    pub dns: DnsSection,
    /// Rule files by the name of their group.
    pub rule_groups: BTreeMap<String, Vec<String>>,
    /// How much detection hosts get, first match first.
    pub service_levels: Vec<ServiceLevel>,
    /// What traffic gets that no policy names.
    pub default: DefaultPolicy,
}

/// Whose traffic: a tenant and how its traffic is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tenant {
    /// Name.
    pub name: String,
    /// What its traffic has in common; where several keys are given, all have to hold.
    pub select: Select,
    /// Variables of detection rules that the tenant has for itself; others are those of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars: Option<Vars>,
    /// How much it may use; without bounds of its own unless given.
    #[serde(default, skip_serializing_if = "Quotas::is_none")]
    pub quotas: Quotas,
    /// Resolvers whose answers say which addresses DNS names have for this tenant's traffic, beside those of
    /// `dns`.
    #[serde(default, skip_serializing_if = "List::is_none")]
    pub resolvers: List<Target>,
}

/// How much a tenant may use. What is left out has no bound but those of the whole program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Quotas {
    /// Flows at a time, of all workers. At the bound its own half-open and idle flows give way to new ones;
    /// others get no flow.
    pub flows: Option<NonZeroU64>,
    /// Rules of the policies that name it: those of `pfw`, and those of each different set of `ids`. A file
    /// with more is refused.
    pub rules: Option<u64>,
    /// Alerts that are written of one second of the packet clock, of all workers; those beyond are counted.
    pub alerts_per_second: Option<u32>,
    /// Bytes that streams, application layers and functions keep of its flows, of all workers. Beyond, its
    /// own flows give way.
    pub state_bytes: Option<Size>,
}

impl Quotas {
    /// Whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Quotas::default()
    }
}

/// Variables of rules, named as in Suricata's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Vars {
    /// Addresses, by the variable's name: `HOME_NET`.
    #[serde(default)]
    pub address_groups: BTreeMap<String, List<AddressGroup>>,
    /// Ports, by the variable's name: `HTTP_PORTS`.
    #[serde(default)]
    pub port_groups: BTreeMap<String, List<PortGroup>>,
}

/// What the traffic of a tenant has in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Select {
    /// Tunnel ids: VXLAN or GENEVE VNI, NVGRE virtual subnet, GRE key.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub vni: Option<List<u32>>,
    /// VLAN ids, of any tag of a frame.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub vlan: Option<List<u16>>,
    /// Links of the host file.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub link: Option<List<String>>,
    /// Addresses: of either side of a packet, so that both directions get the same tenant.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub prefixes: Option<List<Target>>,
}

/// How much detection hosts get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServiceLevel {
    /// The hosts: flows from or to them.
    #[serde(deserialize_with = "values::filled")]
    pub hosts: List<Target>,
    /// A name of `rule-groups`, or `none`.
    pub level: String,
    /// Tenants, by name; every one unless given.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub tenant: Option<List<String>>,
}

/// What is done with flows of which one direction does not come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OneSided {
    /// As the settings of the stream engine say (`stream.async-oneside`): unless that is on, prevention
    /// refuses them.
    #[default]
    Auto,
    /// The chain runs, as far as it can. To `sfw` a TCP connection whose SYN does not come by is one whose
    /// beginning was not seen: its section's `midstream` decides. Whose answers are not seen can go on with a
    /// connection that was opened before the engine looked, so say this only of networks whose packets really
    /// take two ways.
    Allow,
    /// Only payload functions look at them.
    IdsOnly,
    /// They are dropped.
    Drop,
}

/// The action for a flow that gives way when memory for application layers is used up, or more comes than
/// a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadAction {
    /// It goes on; packets and streams are inspected, its protocol is not parsed any more. Where more comes
    /// than a worker takes, as for `drop`.
    Inspect,
    /// It goes on uninspected.
    Pass,
    /// It is dropped; where more comes than a worker takes, its packets are dropped while that is so (on a
    /// watched link they are not inspected).
    Drop,
}

/// The priority of a policy's flows when memory for application layers is used up, or more comes than a
/// worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Overload {
    /// Flows of lower priority give way first: 0 to 255, 100 unless given.
    pub priority: u8,
    /// The action for a flow that gives way; unless given as the setting `app-layer.memcap-policy` says,
    /// and as for `drop` where more comes than a worker takes.
    pub action: Option<OverloadAction>,
}

impl Bypass {
    /// Whether all of its flows is inspected.
    #[must_use]
    pub fn is_never(&self) -> bool {
        *self == Bypass::default()
    }
}

impl Default for Overload {
    fn default() -> Self {
        Overload { priority: 100, action: None }
    }
}

/// How much of its flows a policy has inspected, at most, whatever comes first. Header functions go on; a
/// flow without any is bypassed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Bypass {
    /// Once what follows is encrypted (TLS behind its handshake).
    pub encrypted: bool,
    /// After so many packets of both directions.
    pub packets: Option<NonZeroU64>,
    /// After so many bytes of their frames.
    pub bytes: Option<Size>,
}

/// What becomes of packets for want of a function that should have looked at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForWant {
    /// They go on without it; the others of the chain decide.
    Pass,
    /// Where packets can be refused they are dropped.
    #[default]
    Drop,
}

/// What becomes of packets while a function of the chain has failed or is stopped: the same for all
/// functions, or for some of them each by its name (for the others they are dropped).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write `on-failure: pass` or `drop`, or name functions: `on-failure: {ids: pass}`"
)]
pub enum OnFailure {
    /// For each function.
    Each(ForWant),
    /// By function.
    By(BTreeMap<String, ForWant>),
}

impl Default for OnFailure {
    fn default() -> Self {
        OnFailure::Each(ForWant::default())
    }
}

impl OnFailure {
    /// What becomes of packets for want of a function.
    #[must_use]
    pub fn of(&self, function: &str) -> ForWant {
        match self {
            OnFailure::Each(each) => *each,
            OnFailure::By(by) => by.get(function).copied().unwrap_or_default(),
        }
    }
}

/// What traffic gets that no policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAction {
    /// The chain decides; what it does not refuse goes on.
    Allow,
    /// It is dropped.
    Drop,
}

/// A section of a policy for one function, as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The function.
    pub function: String,
    /// Where its name stands.
    pub position: Position,
    /// What it says.
    pub node: Node,
}

/// Who talks to whom, and which functions look at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Policy {
    /// Name, in events and messages.
    pub name: String,
    /// One side of the conversations; any address unless given.
    #[serde(default = "any", deserialize_with = "values::filled")]
    pub from: List<Target>,
    /// The other side; any address unless given.
    #[serde(default = "any", deserialize_with = "values::filled")]
    pub to: List<Target>,
    /// Tenants, by name, or `any`; `default` unless given.
    #[serde(default = "default_tenant", deserialize_with = "values::filled")]
    pub tenant: List<String>,
    /// Links of the host file; every one unless given.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub link: Option<List<String>>,
    /// The functions, in the order in which they run. Empty: packets are only forwarded and counted.
    pub chain: List<String>,
    /// Verdicts are computed and reported as would-be; nothing is dropped.
    #[serde(default)]
    pub staged: bool,
    /// Flows of which one direction is not seen.
    #[serde(default)]
    pub one_sided: OneSided,
    /// How its flows stand when memory for application layers is used up.
    #[serde(default)]
    pub overload: Overload,
    /// How much of its flows is inspected, at most.
    #[serde(default)]
    pub bypass: Bypass,
    /// What becomes of its packets while a function of the chain has failed or is stopped.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The sections of the chain's functions.
    #[serde(skip)]
    #[schemars(skip)]
    pub sections: Vec<Section>,
}

/// What traffic gets that no policy names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DefaultPolicy {
    /// What happens to it.
    pub action: DefaultAction,
    /// The functions that look at it.
    #[serde(default)]
    pub chain: List<String>,
    /// Verdicts are computed and reported as would-be; nothing is dropped.
    #[serde(default)]
    pub staged: bool,
    /// Flows of which one direction is not seen.
    #[serde(default)]
    pub one_sided: OneSided,
    /// How its flows stand when memory for application layers is used up.
    #[serde(default)]
    pub overload: Overload,
    /// How much of its flows is inspected, at most.
    #[serde(default)]
    pub bypass: Bypass,
    /// What becomes of its packets while a function of the chain has failed or is stopped.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The sections of the chain's functions.
    #[serde(skip)]
    #[schemars(skip)]
    pub sections: Vec<Section>,
}

fn any() -> List<Target> {
    List(vec![Target::Any])
}

fn default_tenant() -> List<String> {
    List(vec![DEFAULT_TENANT.to_owned()])
}

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("cannot read the policy file {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It says something wrong.
    #[error("{}", lines(file, problems))]
    Wrong {
        /// The file.
        file: String,
        /// What is wrong, in the order of the file.
        problems: Vec<Problem>,
    },
}

fn lines(file: &str, problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("{file}:{p}")).collect::<Vec<_>>().join("\n")
}

/// The keys of a policy that are no sections.
const POLICY_KEYS: &[&str] = &[
    "name",
    "from",
    "to",
    "tenant",
    "link",
    "chain",
    "staged",
    "one-sided",
    "overload",
    "bypass",
    "on-failure",
];
const DEFAULT_KEYS: &[&str] = &["action", "chain", "staged", "one-sided", "overload", "bypass", "on-failure"];
const FILE_KEYS: &[&str] =
    &["groups", "labels", "dns", "rule-groups", "tenants", "service-levels", "policies", "default"];

/// Reads and checks a policy file. `functions`: the names that chains and sections may have; with an empty
/// list, any.
///
/// # Errors
/// [`PolicyError::Wrong`] with every problem.
pub fn parse(name: &str, text: &str, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    let root = yaml::parse(text).map_err(|e| PolicyError::Wrong {
        file: name.to_owned(),
        problems: vec![Problem {
            position: e.position,
            path: String::new(),
            message: format!("not YAML: {}", e.message),
        }],
    })?;
    from_node(name, root, functions)
}

/// As [`parse`], from nodes: of JSON ([`read::from_json`]), problems have paths only.
///
/// # Errors
/// [`PolicyError::Wrong`] with every problem.
pub fn from_node(name: &str, root: Node, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    // In sections of functions as well, which are read later. JSON has none of it, but for `null`, which is a
    // key that
    // is left out.
    let unfit = if root.position == Position::default() { None } else { read::unfit(&root) };
    let mut builder = Builder { problems: Vec::new(), unread: Vec::new(), functions, before: None };
    let file = builder.file(name, root);
    let mut problems = builder.problems;
    if let Some(unfit) = unfit {
        // What else is said of the same place follows from it.
        problems.retain(|problem| problem.position != unfit.position);
        problems.push(unfit);
    }
    finished(name, file, problems)
}

/// What was read, if nothing is wrong.
fn finished(
    name: &str,
    file: Option<PolicyFile>,
    mut problems: Vec<Problem>,
) -> Result<PolicyFile, PolicyError> {
    problems.sort_by_key(|p| (p.position.line, p.position.column));
    problems.truncate(read::PROBLEMS_MAX);
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(PolicyError::Wrong { file: name.to_owned(), problems }),
    }
}

/// What is said of a name in a chain that no function has. `known`: the names that it could be.
#[must_use]
pub fn unknown_function(name: &str, known: &[&str]) -> String {
    format!("there is no function `{name}`; {}", did_you_mean(name, known.iter().copied()))
}

/// Reads and checks a policy file from disk; see [`parse`].
///
/// # Errors
/// It cannot be read, or see [`parse`].
pub fn load(path: &std::path::Path, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
    parse(&path.display().to_string(), &text, functions)
}

impl PolicyFile {
    /// Where the file says what a path (`policies/0/pfw/rules/2`) names.
    #[must_use]
    pub fn locate(&self, path: &str) -> Position {
        locate(&self.root, path)
    }

    /// `file:line:column` of a path.
    #[must_use]
    pub fn place(&self, path: &str) -> String {
        let at = self.locate(path);
        format!("{}:{}:{}", self.name, at.line, at.column)
    }

    /// A problem in one line with its place: `file:line:column`, or where the file came without lines the
    /// policy's name and the path within it.
    #[must_use]
    pub fn line_of(&self, problem: &Problem) -> String {
        let Problem { position, path, message } = problem;
        if position.line > 0 {
            return format!("{}:{problem}", self.name);
        }
        let mut parts = path.splitn(3, '/');
        let policy = match (parts.next(), parts.next().and_then(|at| at.parse::<usize>().ok())) {
            (Some("policies"), Some(at)) => self.policies.get(at),
            _ => None,
        };
        match (policy, parts.next()) {
            // The message says which.
            (Some(_), Some("name")) => format!("{}: {message}", self.name),
            (Some(policy), within) => {
                format!("{}: policy `{}` /{}: {message}", self.name, policy.name, within.unwrap_or_default())
            }
            (None, _) => format!("{}: /{path}: {message}", self.name),
        }
    }

    /// The members of a list of targets; `any` is both versions' whole space. The groups are known to exist.
    #[must_use]
    pub fn resolve(&self, targets: &[Target]) -> Vec<Member> {
        resolve::targets((&self.groups, &self.labels), targets)
    }

    /// The prefixes of a list of targets, without names.
    #[must_use]
    pub fn prefixes(&self, targets: &[Target]) -> Vec<Prefix> {
        let prefix = |member| match member {
            Member::Prefix(prefix) => Some(prefix),
            Member::Name(_) => None,
        };
        self.resolve(targets).into_iter().filter_map(prefix).collect()
    }

    /// The DNS names of all groups, each once.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&DnsName> {
        let members = self.groups.values().flatten();
        members.filter_map(|member| if let Member::Name(name) = member { Some(name) } else { None }).collect()
    }

    /// Whether something is dropped because no policy, or no rule of a packet filter, lets it go on.
    #[must_use]
    pub fn drops_by_default(&self) -> bool {
        let filters = |policy: &Arc<Policy>| {
            let section = policy.sections.iter().find(|section| section.function == "pfw");
            let default = section.and_then(|section| section.node.get("default")?.as_str());
            !policy.staged && default.is_some_and(|default| default != "allow")
        };
        let default = self.default.action == DefaultAction::Drop && !self.default.staged;
        default || self.policies.iter().any(filters)
    }

    /// What is right and does nothing: groups by names, and nobody whose answers count; lists whose groups
    /// have no members.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let without = |(group, members): (&String, &Vec<Member>)| {
            let name =
                members.iter().find_map(|m| if let Member::Name(name) = m { Some(name) } else { None })?;
            let nobody = self.dns.resolvers.is_empty() && self.tenants.iter().all(|t| t.resolvers.is_empty());
            nobody.then(|| {
                format!(
                    "{}: group `{group}` has the DNS name `{name}`, and the file names no resolver whose answers count, so no address is \
                     ever a member of it; add `dns: {{resolvers: [ADDRESS]}}`",
                    self.place(&format!("groups/{group}"))
                )
            })
        };
        let of_names = self.groups.iter().filter_map(without);
        of_names.chain(resolve::nothing_selected(self)).collect()
    }
}

struct Builder<'f> {
    problems: Vec<Problem>,
    /// Keys of the file whose values cannot be read: what they define is not known.
    unread: Vec<&'static str>,
    functions: &'f [&'f str],
    /// The file before, whatever of it is the same.
    before: Option<&'f PolicyFile>,
}

impl Builder<'_> {
    fn problem(&mut self, position: Position, path: &str, message: String) {
        self.problems.push(Problem { position, path: path.to_owned(), message });
    }

    fn file(&mut self, name: &str, root: Node) -> Option<PolicyFile> {
        let read = |b: &mut Self, root: &Node| {
            Some(b.list(root, "policies", Self::policy)?.into_iter().map(Arc::new).collect())
        };
        self.file_with(name, root, read)
    }

    /// A file whose policies are read by `policies`.
    fn file_with(
        &mut self,
        name: &str,
        root: Node,
        policies: impl FnOnce(&mut Self, &Node) -> Option<Vec<Arc<Policy>>>,
    ) -> Option<PolicyFile> {
        let Value::Mapping(pairs) = &root.value else {
            self.problem(
                root.position,
                "",
                "expected `policies:` and `default:` at the top level".to_owned(),
            );
            return None;
        };
        self.known_keys(pairs, FILE_KEYS);
        let targets: Option<BTreeMap<String, List<GroupMember>>> = self.value(&root, "groups");
        let labels: Option<BTreeMap<String, Labels>> = self.value(&root, "labels");
        let dns: Option<DnsSection> = self.value(&root, "dns");
        let rule_groups: Option<BTreeMap<String, List<String>>> = self.value(&root, "rule-groups");
        let tenants = self.list(&root, "tenants", |b, node, path| b.read::<Tenant>(node, path));
        let service_levels =
            self.list(&root, "service-levels", |b, node, path| b.read::<ServiceLevel>(node, path));
        let policies = policies(self, &root);
        let default = match root.get("default") {
            Some(node) => self.default(node),
            None => {
                let message = "say what traffic gets that no policy names; add `default: {action: drop}`";
                self.problem(root.position, "default", message.to_owned());
                None
            }
        };
        let groups = resolve::groups(self, &root, &targets.unwrap_or_default());
        let rule_groups = rule_groups.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect();
        let (tenants, service_levels, policies) = (tenants?, service_levels?, policies?);
        let common = Arc::new(Common {
            tenants,
            groups,
            labels: labels.unwrap_or_default(),
            dns: dns.unwrap_or_default(),
            rule_groups,
            service_levels,
            default: default?,
        });
        let (taken, root) = (Arc::default(), Arc::new(root));
        let mut file = PolicyFile { name: name.to_owned(), common, policies, taken, common_text: None, root };
        resolve::check(self, &file);
        file.taken = shares::taken(self, &file);
        Some(file)
    }

    fn known_keys(&mut self, pairs: &[(Node, Node)], known: &[&str]) {
        for (key, _) in pairs {
            let name = key.as_str().unwrap_or("?");
            if !known.contains(&name) {
                let hint = did_you_mean(name, known.iter().copied());
                self.problem(key.position, name, format!("the key `{name}` is not known; {hint}"));
            }
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self, node: &Node, path: &str) -> Option<T> {
        match read::read_at(node, path) {
            Ok(value) => Some(value),
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    fn value<T: serde::de::DeserializeOwned>(&mut self, root: &Node, key: &'static str) -> Option<T> {
        let node = root.get(key)?;
        let value = self.read(node, key);
        if value.is_none() {
            self.unread.push(key);
        }
        value
    }

    /// Whether a key of the file could not be read, so that names which it may define are no fault.
    fn is_unread(&self, key: &str) -> bool {
        self.unread.contains(&key)
    }

    /// Every item of a list by itself, so that the problems of all are found.
    fn list<T>(
        &mut self,
        root: &Node,
        key: &str,
        mut item: impl FnMut(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(node) = root.get(key).filter(|n| !n.is_null()) else { return Some(Vec::new()) };
        let Value::Sequence(items) = &node.value else {
            self.problem(node.position, key, format!("`{key}` has to be a list: lines that begin with `- `"));
            return None;
        };
        if items.len() > ITEMS_MAX {
            self.problem(
                node.position,
                key,
                format!("more than {ITEMS_MAX} items; split the file among instances"),
            );
            return None;
        }
        let read: Vec<_> =
            items.iter().enumerate().map(|(i, node)| item(self, node, &format!("{key}/{i}"))).collect();
        read.into_iter().collect()
    }

    /// Takes the sections out of a policy's mapping.
    fn sections(&mut self, node: &Node, path: &str, keys: &[&str]) -> (Node, Vec<Section>) {
        let Value::Mapping(pairs) = &node.value else { return (node.clone(), Vec::new()) };
        let mut own = Vec::new();
        let mut sections: Vec<Section> = Vec::new();
        for (key, value) in pairs {
            let name = key.as_str().unwrap_or("?");
            if keys.contains(&name) {
                own.push((key.clone(), value.clone()));
            } else if !self.functions.is_empty() && !self.functions.contains(&name) {
                let hint = did_you_mean(name, keys.iter().chain(self.functions).copied());
                self.problem(
                    key.position,
                    &format!("{path}/{name}"),
                    format!("the key `{name}` is not known; {hint}"),
                );
            } else if sections.iter().any(|s| s.function == name) {
                let message = format!("the section `{name}` stands here twice; remove one");
                self.problem(key.position, &format!("{path}/{name}"), message);
            } else {
                sections.push(Section {
                    function: name.to_owned(),
                    position: key.position,
                    node: value.clone(),
                });
            }
        }
        (Node { value: Value::Mapping(own), ..node.clone() }, sections)
    }

    /// Said here and not by the agent alone, which sees no file that has other problems: a section of the
    /// function that was meant is one.
    fn known_functions(&mut self, node: &Node, path: &str, chain: &[String]) {
        let known = self.functions;
        for (index, name) in chain.iter().enumerate() {
            if !known.is_empty() && !known.contains(&name.as_str()) {
                let place = format!("chain/{index}");
                let message = unknown_function(name, known);
                self.problem(locate(node, &place), &format!("{path}/{place}"), message);
            }
        }
    }

    fn unused_sections(&mut self, path: &str, chain: &[String], sections: &[Section]) {
        for section in sections.iter().filter(|s| !chain.contains(&s.function)) {
            let name = &section.function;
            let message = format!(
                "the section `{name}` has no effect: `{name}` is not in the chain; add it there, or remove the section"
            );
            self.problem(section.position, &format!("{path}/{name}"), message);
        }
    }

    /// What is said for want of functions is said of functions of the chain.
    fn on_failure(&mut self, node: &Node, path: &str, chain: &[String], said: &OnFailure) {
        let OnFailure::By(by) = said else { return };
        for name in by.keys().filter(|name| !chain.contains(name)) {
            let place = format!("on-failure/{name}");
            let message = format!(
                "`{name}` is not in the chain; {}",
                did_you_mean(name, chain.iter().map(String::as_str))
            );
            self.problem(locate(node, &place), &format!("{path}/{place}"), message);
        }
    }

    fn policy(&mut self, node: &Node, path: &str) -> Option<Policy> {
        let (own, sections) = self.sections(node, path, POLICY_KEYS);
        let policy: Policy = self.read(&own, path)?;
        self.known_functions(node, path, &policy.chain);
        self.unused_sections(path, &policy.chain, &sections);
        self.on_failure(node, path, &policy.chain, &policy.on_failure);
        Some(Policy { sections, ..policy })
    }

    fn default(&mut self, node: &Node) -> Option<DefaultPolicy> {
        let (own, sections) = self.sections(node, "default", DEFAULT_KEYS);
        let policy: DefaultPolicy = self.read(&own, "default")?;
        self.known_functions(node, "default", &policy.chain);
        self.unused_sections("default", &policy.chain, &sections);
        self.on_failure(node, "default", &policy.chain, &policy.on_failure);
        if policy.action == DefaultAction::Drop && !policy.chain.is_empty() {
            let message = "traffic that is dropped needs no chain; remove `chain`, or write `action: allow`";
            self.problem(locate(node, "chain"), "default/chain", message.to_owned());
        }
        Some(DefaultPolicy { sections, ..policy })
    }
}

#[cfg(test)]
mod tests;
