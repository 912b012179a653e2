// SPDX-License-Identifier: Apache-2.0
//! The policy file: the permitted traffic, and the protection against attacks.
//!
//! A policy applies to the conversations between `from` and `to`, in either direction; a flow belongs to the
//! first policy in the file that it matches. `chain` names the functions for the flow, each with a section of
//! its name, whose format the function defines ([`sections`] for the built-in functions). [`parse`] finds
//! every problem of a file with its position.
//!
//! Not done here: the order in which the functions of a chain run (the agent knows it), and whether they
//! exist, unless [`parse`] gets their names.

mod combinations;
mod names;
mod parts;
pub mod read;
pub(crate) mod resolve;
mod schema;
mod section;
pub mod sections;
pub mod shadow;
pub mod shares;
pub mod values;

pub use names::{ADDRESSES_MAX, DnsName, DnsSection, GroupMember, ResolvedMember};
pub use parts::{Parts, PolicyText, from_parts};
pub use read::{ConfigProblem, did_you_mean, locate, nearest};
pub use resolve::{Hidden, hidden};
pub use schema::schema;
pub use section::{FunctionSection, SectionContent, SectionType, SectionValue, section_of};
pub use values::{
    AddressGroup, IpProtocol, IpVersions, Labels, OneOrMany, PortGroup, Ports, Prefix, Seconds, Size, Target,
    carries,
};

use crate::yaml::{self, Node, Position, Value};
use core::num::NonZeroU64;
use schemars::JsonSchema;
use sections::{FilterAction, PfwSection};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name of the tenant of traffic that no selector matches.
pub const DEFAULT_TENANT: &str = "default";
/// Most policies, and most tenants, of one file.
pub const ITEMS_MAX: usize = 65_000;

/// A checked policy file: every name that refers to a definition in the file is defined, every value is in
/// its range. Dereferences to its [`SharedPolicyParts`], the parts other than policies.
#[derive(Clone, Debug)]
pub struct PolicyFile {
    /// Name of the file in messages.
    pub name: String,
    /// The parts other than policies: the same by address as in the previous file if unchanged
    /// ([`from_parts`]).
    pub common: Arc<SharedPolicyParts>,
    /// The policies, first match first: each the same by address as in the previous file if its text is
    /// unchanged.
    pub policies: Vec<Arc<PolicyDefinition>>,
    /// Usage of the bounded quantities by the policies.
    taken: Arc<shares::PolicyUsage>,
    /// The text of `common`, if the file came in parts.
    common_text: Option<Arc<Json>>,
    root: Arc<Node>,
}

impl core::ops::Deref for PolicyFile {
    type Target = SharedPolicyParts;

    fn deref(&self) -> &SharedPolicyParts {
        &self.common
    }
}

/// The parts of a policy file other than policies.
#[derive(Clone, Debug)]
pub struct SharedPolicyParts {
    /// The tenants, in the order in which their selectors are tried.
    pub tenants: Vec<Tenant>,
    /// Groups, with their members resolved to prefixes and DNS names.
    pub groups: BTreeMap<String, Vec<ResolvedMember>>,
    /// Labels of groups, by the group's name.
    pub labels: BTreeMap<String, Labels>,
    /// Resolvers that are trusted for DNS names.
    pub dns: DnsSection,
    /// Rule files by the name of their rule group.
    pub rule_groups: BTreeMap<String, Vec<String>>,
    /// Service levels of hosts, first match first.
    pub service_levels: Vec<ServiceLevel>,
    /// The default for traffic that no policy matches.
    pub default: DefaultPolicy,
}

/// A tenant and the selector of its traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tenant {
    /// Name.
    pub name: String,
    /// The selector of its traffic; a packet must match all given keys.
    pub select: Select,
    /// The tenant's own variables of detection rules; others are those of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars: Option<Vars>,
    /// Quotas of the tenant; none of its own unless given.
    #[serde(default, skip_serializing_if = "QuotaSection::is_none")]
    pub quotas: QuotaSection,
    /// Resolvers that are trusted for DNS names in this tenant's traffic, in addition to those of `dns`.
    #[serde(default, skip_serializing_if = "OneOrMany::is_none")]
    pub resolvers: OneOrMany<Target>,
}

/// Quotas of a tenant. An absent quota leaves only the bounds of the whole program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[schemars(rename = "Quotas")]
pub struct QuotaSection {
    /// Most concurrent flows, over all workers. At the bound, the tenant's own half-open and idle flows are
    /// evicted for new ones; otherwise new packets get no flow.
    pub flows: Option<NonZeroU64>,
    /// Most rules of the policies that name the tenant: those of `pfw`, and those of each different set of
    /// `ids`. A file with more is refused.
    pub rules: Option<u64>,
    /// Most alerts written per second of the packet clock, over all workers; those beyond are only counted.
    pub alerts_per_second: Option<u32>,
    /// Most bytes of streams, application layers and functions for the tenant's flows, over all workers.
    /// Beyond it, the tenant's own flows are closed.
    pub state_bytes: Option<Size>,
}

impl QuotaSection {
    /// Whether no quota is given.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == QuotaSection::default()
    }
}

/// Variables of rules, with the names of Suricata's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Vars {
    /// Address variables, by name: `HOME_NET`.
    #[serde(default)]
    pub address_groups: BTreeMap<String, OneOrMany<AddressGroup>>,
    /// Port variables, by name: `HTTP_PORTS`.
    #[serde(default)]
    pub port_groups: BTreeMap<String, OneOrMany<PortGroup>>,
}

/// The selector of a tenant's traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Select {
    /// Tunnel ids: VXLAN or GENEVE VNI, NVGRE virtual subnet, GRE key.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub vni: Option<OneOrMany<u32>>,
    /// VLAN ids, of any tag of a frame.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub vlan: Option<OneOrMany<u16>>,
    /// Links of the host file.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub link: Option<OneOrMany<String>>,
    /// Addresses of either side of a packet, so that both directions belong to the same tenant.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub prefixes: Option<OneOrMany<Target>>,
}

/// A service level: the amount of detection that hosts get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServiceLevel {
    /// The hosts: flows from or to them.
    #[serde(deserialize_with = "values::filled")]
    pub hosts: OneOrMany<Target>,
    /// A name of `rule-groups`, or `none`.
    pub level: String,
    /// Tenants, by name; all unless given.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub tenant: Option<OneOrMany<String>>,
}

/// Handling of flows of which only one direction is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OneSided {
    /// By the setting of the stream engine (`stream.async-oneside`): unless that is on, prevention drops such
    /// flows.
    #[default]
    Auto,
    /// The chain runs as far as possible. For `sfw`, a TCP connection whose SYN is not seen is a midstream
    /// connection: its section's `midstream` decides. A connection whose answers are not seen may have been
    /// opened before the engine could check it, so use this only for networks whose packets really take two
    /// ways.
    Allow,
    /// Only payload functions inspect them.
    IdsOnly,
    /// They are dropped.
    Drop,
}

/// The action for a flow that is closed because memory for application layers is exhausted, or shed because
/// more traffic arrives than a worker can process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadAction {
    /// The flow is forwarded; packets and streams are inspected, its protocol is no longer parsed. Under too
    /// much traffic, as for `drop`.
    Inspect,
    /// The flow is forwarded uninspected.
    Pass,
    /// The flow is dropped; under too much traffic, its packets are dropped meanwhile (on a monitored link
    /// they are not inspected).
    Drop,
}

/// Handling of a policy's flows when memory for application layers is used up, or when more traffic comes
/// than a worker can process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[schemars(rename = "Overload")]
pub struct OverloadPolicy {
    /// Priority from 0 to 255; flows of lower priority are closed or shed first; 100 unless given.
    pub priority: u8,
    /// The action for a flow that is closed or shed. Unless given: the setting `app-layer.memcap-policy`
    /// for memory, and `drop` under too much traffic.
    pub action: Option<OverloadAction>,
}

impl Bypass {
    /// Whether no bound is given, so that flows are inspected to their end.
    #[must_use]
    pub fn is_never(&self) -> bool {
        *self == Bypass::default()
    }
}

impl Default for OverloadPolicy {
    fn default() -> Self {
        OverloadPolicy { priority: 100, action: None }
    }
}

/// Bounds on how much of a policy's flows is inspected; the first one reached counts. Header functions
/// continue; a flow without any is bypassed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Bypass {
    /// Stop when the rest is encrypted (TLS after its handshake).
    pub encrypted: bool,
    /// Stop after this many packets of both directions.
    pub packets: Option<NonZeroU64>,
    /// Stop after this many bytes of frames.
    pub bytes: Option<Size>,
}

/// Handling of packets if a function that should inspect them is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForWant {
    /// Packets are handled without the function; the others of the chain decide.
    Pass,
    /// Packets are dropped, if the link can drop.
    #[default]
    Drop,
}

/// Handling of packets while a function of the chain has failed or is stopped: one value for all functions,
/// or values by function name (packets of the others are dropped).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write `on-failure: pass` or `drop`, or name functions: `on-failure: {ids: pass}`"
)]
pub enum OnFailure {
    /// One value for all functions.
    Each(ForWant),
    /// By function; `drop` for those without an entry.
    By(BTreeMap<String, ForWant>),
}

impl Default for OnFailure {
    fn default() -> Self {
        OnFailure::Each(ForWant::default())
    }
}

impl OnFailure {
    /// The handling of packets if a function is unavailable.
    #[must_use]
    pub fn of(&self, function: &str) -> ForWant {
        match self {
            OnFailure::Each(each) => *each,
            OnFailure::By(by) => by.get(function).copied().unwrap_or_default(),
        }
    }
}

/// The default action for traffic that no policy matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAction {
    /// The chain decides; packets that it does not drop are forwarded.
    Allow,
    /// The traffic is dropped.
    Drop,
}

/// A policy: the conversations it applies to, and the functions that inspect them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Policy")]
pub struct PolicyDefinition {
    /// Name, in events and messages.
    pub name: String,
    /// One side of the conversations; any address unless given.
    #[serde(default = "any", deserialize_with = "values::filled")]
    pub from: OneOrMany<Target>,
    /// The other side of the conversations; any address unless given.
    #[serde(default = "any", deserialize_with = "values::filled")]
    pub to: OneOrMany<Target>,
    /// Tenants, by name, or `any`; `default` unless given.
    #[serde(default = "default_tenant", deserialize_with = "values::filled")]
    pub tenant: OneOrMany<String>,
    /// Links of the host file; all unless given.
    #[serde(default, deserialize_with = "values::filled_if_any")]
    pub link: Option<OneOrMany<String>>,
    /// The functions, in the order in which they run. Empty: packets are only forwarded and counted.
    pub chain: OneOrMany<String>,
    /// Verdicts are computed and only reported; nothing is dropped.
    #[serde(default)]
    pub staged: bool,
    /// Handling of flows of which only one direction is seen.
    #[serde(default)]
    pub one_sided: OneSided,
    /// Handling of its flows when memory for application layers is used up.
    #[serde(default)]
    pub overload: OverloadPolicy,
    /// Bounds on how much of its flows is inspected.
    #[serde(default)]
    pub bypass: Bypass,
    /// Handling of its packets while a function of the chain has failed or is stopped.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The sections of the chain's functions.
    #[serde(skip)]
    #[schemars(skip)]
    pub sections: Vec<FunctionSection>,
}

/// The default for traffic that no policy matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DefaultPolicy {
    /// The action.
    pub action: DefaultAction,
    /// The functions that inspect the traffic.
    #[serde(default)]
    pub chain: OneOrMany<String>,
    /// Verdicts are computed and only reported; nothing is dropped.
    #[serde(default)]
    pub staged: bool,
    /// Handling of flows of which only one direction is seen.
    #[serde(default)]
    pub one_sided: OneSided,
    /// Handling of its flows when memory for application layers is used up.
    #[serde(default)]
    pub overload: OverloadPolicy,
    /// Bounds on how much of its flows is inspected.
    #[serde(default)]
    pub bypass: Bypass,
    /// Handling of its packets while a function of the chain has failed or is stopped.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The sections of the chain's functions.
    #[serde(skip)]
    #[schemars(skip)]
    pub sections: Vec<FunctionSection>,
}

fn any() -> OneOrMany<Target> {
    OneOrMany(vec![Target::Any])
}

fn default_tenant() -> OneOrMany<String> {
    OneOrMany(vec![DEFAULT_TENANT.to_owned()])
}

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot read the policy file {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has problems.
    #[error("{}", lines(file, problems))]
    Wrong {
        /// The file.
        file: String,
        /// The problems, in the order of the file.
        problems: Vec<ConfigProblem>,
    },
}

fn lines(file: &str, problems: &[ConfigProblem]) -> String {
    problems.iter().map(|p| format!("{file}:{p}")).collect::<Vec<_>>().join("\n")
}

/// The keys of a policy other than sections.
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

/// Parses and checks a policy file. `functions`: the valid names in chains and of sections; an empty list
/// allows any.
///
/// # Errors
/// [`PolicyError::Wrong`] with every problem.
pub fn parse(name: &str, text: &str, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    let root = yaml::parse(text).map_err(|e| PolicyError::Wrong {
        file: name.to_owned(),
        problems: vec![ConfigProblem {
            position: e.position,
            path: String::new(),
            message: format!("not YAML: {}", e.message),
        }],
    })?;
    from_node(name, root, functions)
}

/// As [`parse`], from nodes; problems in JSON ([`read::from_json`]) have paths only.
///
/// # Errors
/// [`PolicyError::Wrong`] with every problem.
pub fn from_node(name: &str, root: Node, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    // Also in sections of functions, which are read later. Of these faults JSON can only have `null`, which
    // counts as an absent key.
    let unfit = if root.position == Position::default() { None } else { read::unfit(&root) };
    let mut builder = PolicyFileBuilder { problems: Vec::new(), unread: Vec::new(), functions, before: None };
    let file = builder.file(name, root);
    let mut problems = builder.problems;
    if let Some(unfit) = unfit {
        // Other problems at the same place are consequences.
        problems.retain(|problem| problem.position != unfit.position);
        problems.push(unfit);
    }
    finished(name, file, problems)
}

/// The file, if there are no problems.
fn finished(
    name: &str,
    file: Option<PolicyFile>,
    mut problems: Vec<ConfigProblem>,
) -> Result<PolicyFile, PolicyError> {
    problems.sort_by_key(|p| (p.position.line, p.position.column));
    problems.truncate(read::PROBLEMS_MAX);
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(PolicyError::Wrong { file: name.to_owned(), problems }),
    }
}

/// Message about a name in a chain that is not a function. `known`: the valid names.
#[must_use]
pub fn unknown_function(name: &str, known: &[&str]) -> String {
    format!("there is no function `{name}`; {}", did_you_mean(name, known.iter().copied()))
}

/// Reads, parses and checks a policy file; see [`parse`].
///
/// # Errors
/// The file cannot be read, or see [`parse`].
pub fn load(path: &std::path::Path, functions: &[&str]) -> Result<PolicyFile, PolicyError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
    parse(&path.display().to_string(), &text, functions)
}

impl PolicyFile {
    /// Position in the file of a path (`policies/0/pfw/rules/2`).
    #[must_use]
    pub fn locate(&self, path: &str) -> Position {
        locate(&self.root, path)
    }

    /// A path's position as `file:line:column`.
    #[must_use]
    pub fn place(&self, path: &str) -> String {
        let at = self.locate(path);
        format!("{}:{}:{}", self.name, at.line, at.column)
    }

    /// A problem in one line with its place: `file:line:column`, or where the file came without lines the
    /// policy's name and the path within it.
    #[must_use]
    pub fn line_of(&self, problem: &ConfigProblem) -> String {
        let ConfigProblem { position, path, message } = problem;
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

    /// The members of a list of targets; `any` is the whole space of both IP versions. The groups exist.
    #[must_use]
    pub fn resolve(&self, targets: &[Target]) -> Vec<ResolvedMember> {
        resolve::targets(&self.groups, &self.labels, targets)
    }

    /// The prefixes in a list of targets, without DNS names.
    #[must_use]
    pub fn prefixes(&self, targets: &[Target]) -> Vec<Prefix> {
        let prefix = |member| match member {
            ResolvedMember::Prefix(prefix) => Some(prefix),
            ResolvedMember::Name(_) => None,
        };
        self.resolve(targets).into_iter().filter_map(prefix).collect()
    }

    /// The DNS names of all groups, each once.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&DnsName> {
        let members = self.groups.values().flatten();
        members
            .filter_map(|member| if let ResolvedMember::Name(name) = member { Some(name) } else { None })
            .collect()
    }

    /// Whether some traffic is dropped because no policy, or no rule of a packet filter, allows it.
    #[must_use]
    pub fn drops_by_default(&self) -> bool {
        let filters = |policy: &Arc<PolicyDefinition>| {
            let filter = section_of::<PfwSection>(&policy.sections).and_then(Result::ok);
            !policy.staged && filter.is_some_and(|filter| filter.default != FilterAction::Allow)
        };
        let default = self.default.action == DefaultAction::Drop && !self.default.staged;
        default || self.policies.iter().any(filters)
    }

    /// Warnings about valid parts without effect: groups with DNS names but no trusted resolver; lists whose
    /// groups have no members.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let without = |(group, members): (&String, &Vec<ResolvedMember>)| {
            let name = members
                .iter()
                .find_map(|m| if let ResolvedMember::Name(name) = m { Some(name) } else { None })?;
            let nobody = self.dns.resolvers.is_empty() && self.tenants.iter().all(|t| t.resolvers.is_empty());
            nobody.then(|| {
                format!(
                    "{}: group `{group}` has the DNS name `{name}`, and the file names no trusted resolver, so the group never has an address; add `dns: {{resolvers: [ADDRESS]}}`",
                    self.place(&format!("groups/{group}"))
                )
            })
        };
        let of_names = self.groups.iter().filter_map(without);
        of_names.chain(resolve::empty_selections(self)).collect()
    }
}

struct PolicyFileBuilder<'f> {
    problems: Vec<ConfigProblem>,
    /// Keys of the file whose values cannot be read: what they define is not known.
    unread: Vec<&'static str>,
    functions: &'f [&'f str],
    /// The previous file, whose unchanged parts are reused.
    before: Option<&'f PolicyFile>,
}

impl PolicyFileBuilder<'_> {
    fn problem(&mut self, position: Position, path: &str, message: String) {
        self.problems.push(ConfigProblem { position, path: path.to_owned(), message });
    }

    fn file(&mut self, name: &str, root: Node) -> Option<PolicyFile> {
        let read = |b: &mut Self, root: &Node| {
            Some(b.list(root, "policies", Self::policy)?.into_iter().map(Arc::new).collect())
        };
        self.file_with(name, root, read)
    }

    /// Reads a file; `policies` reads its policies.
    fn file_with(
        &mut self,
        name: &str,
        root: Node,
        policies: impl FnOnce(&mut Self, &Node) -> Option<Vec<Arc<PolicyDefinition>>>,
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
        let targets: Option<BTreeMap<String, OneOrMany<GroupMember>>> = self.value(&root, "groups");
        let labels: Option<BTreeMap<String, Labels>> = self.value(&root, "labels");
        let dns: Option<DnsSection> = self.value(&root, "dns");
        let rule_groups: Option<BTreeMap<String, OneOrMany<String>>> = self.value(&root, "rule-groups");
        let tenants = self.list(&root, "tenants", |b, node, path| b.read::<Tenant>(node, path));
        let service_levels =
            self.list(&root, "service-levels", |b, node, path| b.read::<ServiceLevel>(node, path));
        let policies = policies(self, &root);
        let default = match root.get("default") {
            Some(node) => self.default(node),
            None => {
                let message = "the file has no action for traffic without a matching policy; add `default: {action: drop}`";
                self.problem(root.position, "default", message.to_owned());
                None
            }
        };
        let groups = resolve::groups(self, &root, &targets.unwrap_or_default());
        let rule_groups = rule_groups.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect();
        let (tenants, service_levels, policies) = (tenants?, service_levels?, policies?);
        let common = Arc::new(SharedPolicyParts {
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

    /// Reads each item of a list by itself, so that the problems of all are found.
    fn list<T>(
        &mut self,
        root: &Node,
        key: &str,
        mut item: impl FnMut(&mut Self, &Node, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(node) = root.get(key).filter(|n| !n.is_null()) else { return Some(Vec::new()) };
        let Value::Sequence(items) = &node.value else {
            self.problem(node.position, key, format!("`{key}` must be a list: lines that begin with `- `"));
            return None;
        };
        if items.len() > ITEMS_MAX {
            self.problem(
                node.position,
                key,
                format!("more than {ITEMS_MAX} items are not supported; split the file among instances"),
            );
            return None;
        }
        let read: Vec<_> =
            items.iter().enumerate().map(|(i, node)| item(self, node, &format!("{key}/{i}"))).collect();
        read.into_iter().collect()
    }

    /// Separates the sections from a policy's other keys.
    fn sections(&mut self, node: &Node, path: &str, keys: &[&str]) -> (Node, Vec<FunctionSection>) {
        let Value::Mapping(pairs) = &node.value else { return (node.clone(), Vec::new()) };
        let mut own = Vec::new();
        let mut sections: Vec<FunctionSection> = Vec::new();
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
                let message = format!("the section `{name}` occurs twice; remove one");
                self.problem(key.position, &format!("{path}/{name}"), message);
            } else {
                sections.push(FunctionSection {
                    function: name.to_owned(),
                    position: key.position,
                    content: Arc::new(SectionContent::new(read::to_json(value))),
                });
            }
        }
        (Node { value: Value::Mapping(own), ..node.clone() }, sections)
    }

    /// Checked here as well as in the agent, which sees no file with problems: a section for a misspelt
    /// function is one.
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

    fn unused_sections(&mut self, path: &str, chain: &[String], sections: &[FunctionSection]) {
        for section in sections.iter().filter(|s| !chain.contains(&s.function)) {
            let name = &section.function;
            let message = format!(
                "the section `{name}` has no effect: `{name}` is not in the chain; add it there, or remove the section"
            );
            self.problem(section.position, &format!("{path}/{name}"), message);
        }
    }

    /// Checks that `on-failure` names functions of the chain only.
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

    fn policy(&mut self, node: &Node, path: &str) -> Option<PolicyDefinition> {
        let (own, sections) = self.sections(node, path, POLICY_KEYS);
        let policy: PolicyDefinition = self.read(&own, path)?;
        self.known_functions(node, path, &policy.chain);
        self.unused_sections(path, &policy.chain, &sections);
        self.on_failure(node, path, &policy.chain, &policy.on_failure);
        Some(PolicyDefinition { sections, ..policy })
    }

    fn default(&mut self, node: &Node) -> Option<DefaultPolicy> {
        let (own, sections) = self.sections(node, "default", DEFAULT_KEYS);
        let policy: DefaultPolicy = self.read(&own, "default")?;
        self.known_functions(node, "default", &policy.chain);
        self.unused_sections("default", &policy.chain, &sections);
        self.on_failure(node, "default", &policy.chain, &policy.on_failure);
        if policy.action == DefaultAction::Drop && !policy.chain.is_empty() {
            let message = "`chain` has no effect with `action: drop`; remove it, or write `action: allow`";
            self.problem(locate(node, "chain"), "default/chain", message.to_owned());
        }
        Some(DefaultPolicy { sections, ..policy })
    }
}

#[cfg(test)]
mod tests;
