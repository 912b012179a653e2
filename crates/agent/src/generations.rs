// SPDX-License-Identifier: Apache-2.0
//! Builds the generations of a device: from a policy file, from what a controller has sent, or from the
//! default that holds until it has sent something.
//!
//! The device gives each generation its number. The policy of a generation shares the unchanged parts with
//! that of the generation before ([`GenerationBuilder::keep`]). Diagnostics are values, with their places.
//!
//! Not here: settings and rule files, which the kind of function `ids` brings with it.

use crate::build::{AGENTS_OWN, Agent, ClassInfo, PolicyEntries, Prepared};
use crate::joined::JoinedPolicy;
use crate::tenants::TenantSelector;
use bartizan_api::content::{ContentKind, Contents};
use bartizan_base::{Generation, LinkId, TenantId};
use bartizan_classify::RankedRule;
use bartizan_config::policy::{self, ConfigProblem, PolicyError, PolicyFile, read};
use bartizan_stages::chain::Chains;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Most functions of a path.
const FUNCTIONS_MAX: usize = 32;

/// Name in messages of a policy that is in no file.
const CONTROLLER: &str = "controller";

/// The source of a generation's policies.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// A policy file that was read.
    File {
        /// Its path.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// A controller's generation.
    Controller(Arc<JoinedPolicy>),
    /// A controller that has not sent anything yet.
    Awaited {
        /// Whether the host has rules of its own: they inspect all traffic. Else all traffic is dropped.
        has_rules: bool,
    },
}

impl PolicySource {
    /// Name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            PolicySource::File { path, .. } => path.display().to_string(),
            PolicySource::Controller(_) | PolicySource::Awaited { .. } => CONTROLLER.to_owned(),
        }
    }

    /// Adds the hash of its content.
    pub fn add_to(&self, contents: &mut Contents) {
        match self {
            PolicySource::File { path, text } => {
                contents.add_file(ContentKind::Policy, path, text.as_bytes())
            }
            PolicySource::Controller(joined) => {
                contents.add_hash(ContentKind::Policy, CONTROLLER, joined.manifest);
            }
            PolicySource::Awaited { .. } => {}
        }
    }

    /// Reads the policies. `before`: the previous ones, read for the same functions.
    fn read(&self, functions: &[&str], before: Option<&PolicyFile>) -> Result<PolicyFile, PolicyError> {
        match self {
            PolicySource::File { text, .. } => policy::parse(&self.name(), text, functions),
            PolicySource::Controller(joined) => {
                policy::from_parts(CONTROLLER, &joined.parts, functions, before)
            }
            PolicySource::Awaited { has_rules } => {
                let default = match has_rules {
                    true => json!({"action": "allow", "chain": ["ids"]}),
                    false => json!({"action": "drop"}),
                };
                policy::from_node(CONTROLLER, read::from_json(&json!({"default": default})), functions)
            }
        }
    }
}

/// A policy in force.
#[derive(Debug)]
pub struct BuiltPolicy {
    /// The file.
    pub file: Arc<PolicyFile>,
    /// The policy's classes, by fid.
    pub classes: Vec<Arc<ClassInfo>>,
    /// Assigns packets to tenants.
    pub tenants: TenantSelector,
    /// Numbers of the tenants, by name.
    pub tenant_ids: Vec<(String, TenantId)>,
    /// Numbers of the links, by name.
    pub links: Vec<(String, LinkId)>,
}

/// A generation of policies that is ready to run.
pub struct PolicyGeneration {
    /// The chains.
    pub chains: Chains,
    /// The policy file that the generation is built from.
    pub policy: BuiltPolicy,
    /// Names of the functions by their bit.
    pub function_names: Vec<&'static str>,
    /// Policies and rules that an earlier one hides from all packets; those of the previous generation are
    /// left out.
    pub hidden: Vec<ConfigProblem>,
    /// Whether all policies were compiled again, since what they share has changed.
    pub is_remade: bool,
}

impl core::fmt::Debug for PolicyGeneration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PolicyGeneration")
            .field("generation", &self.chains.generation)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Classifier entries of a file's policies.
#[derive(Debug)]
pub struct PolicySelectors {
    /// Number of policies.
    pub count: usize,
    /// Entries of a classifier; fid and priority are the policy's index in the file, from 0.
    pub entries: Vec<RankedRule>,
    /// Numbers of the tenants, by name.
    pub tenants: Vec<(String, TenantId)>,
    /// Numbers of the links that the file names, by name.
    pub links: Vec<(String, LinkId)>,
}

/// Builds generations; see the module.
#[derive(Debug)]
pub struct GenerationBuilder {
    agent: Agent,
    /// The links by name; `None`: whatever links the policy names.
    links: Option<Vec<(String, LinkId)>>,
    /// The policy of the last generation that was kept.
    before: Option<Arc<PolicyFile>>,
}

impl GenerationBuilder {
    /// A builder with an agent, which outlives generations: fids, tenants and bits stay. `links`: those of
    /// the host file; `None`: all links that a policy names exist.
    #[must_use]
    pub const fn new(agent: Agent, links: Option<Vec<(String, LinkId)>>) -> Self {
        GenerationBuilder { agent, links, before: None }
    }

    /// The agent.
    #[must_use]
    pub const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The agent, to change its settings or functions.
    pub const fn agent_mut(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// Builds a generation of this number.
    ///
    /// # Errors
    /// All faults of the policy, with their places; the builder is unchanged then.
    pub fn build(
        &mut self,
        source: &PolicySource,
        number: Generation,
    ) -> Result<PolicyGeneration, PolicyError> {
        let before = self.before.as_deref();
        let file = Arc::new(source.read(&self.agent.function_names(), before)?);
        let is_remade = before.is_some_and(|before| !Arc::ptr_eq(&before.common, &file.common));
        let mut hidden = file.hidden_policies(before);
        let links = self.links_for(&file);
        let Prepared { chains, tenants, classes, warnings } =
            self.agent.prepare_as(number, &file, &by_name(&links))?;
        hidden.extend(warnings);
        let tenant_ids = self.agent.tenants();
        let policy = BuiltPolicy { file, classes, tenants, tenant_ids, links };
        let function_names = self.names_by_bit();
        Ok(PolicyGeneration { chains, policy, function_names, hidden, is_remade })
    }

    /// Keeps the policy of a generation: the next one shares its unchanged parts.
    pub fn keep(&mut self, policy: &BuiltPolicy) {
        self.before = Some(Arc::clone(&policy.file));
    }

    /// The policies as classifier entries, for lookups of headers alone: no function is built.
    ///
    /// # Errors
    /// As [`GenerationBuilder::build`].
    pub fn selectors(&self, source: &PolicySource) -> Result<PolicySelectors, PolicyError> {
        let file = source.read(&self.agent.function_names(), None)?;
        let links = self.links_for(&file);
        let PolicyEntries { entries, tenants } = self.agent.policy_entries(&file, &by_name(&links))?;
        Ok(PolicySelectors { count: file.policies.len(), entries, tenants, links })
    }

    fn links_for(&self, file: &PolicyFile) -> Vec<(String, LinkId)> {
        self.links.clone().unwrap_or_else(|| links_of(file))
    }

    /// Names of the functions by their bit.
    fn names_by_bit(&self) -> Vec<&'static str> {
        let mut names = vec!["?"; FUNCTIONS_MAX];
        for name in self.agent.function_names().into_iter().chain(AGENTS_OWN) {
            let bit = self.agent.function_id(name);
            if let Some(slot) = bit.and_then(|id| names.get_mut(usize::from(id.0))) {
                *slot = name;
            }
        }
        names
    }
}

fn by_name(links: &[(String, LinkId)]) -> Vec<(&str, LinkId)> {
    links.iter().map(|(name, id)| (name.as_str(), *id)).collect()
}

/// Numbers for the links that a policy names, in the order of their first place in the file.
fn links_of(file: &PolicyFile) -> Vec<(String, LinkId)> {
    let of_tenants = file.tenants.iter().flat_map(|t| t.select.link.iter());
    let of_policies = file.policies.iter().flat_map(|p| p.link.iter());
    let mut names: Vec<(String, LinkId)> = Vec::new();
    for name in of_tenants.chain(of_policies).flat_map(|list| list.iter()) {
        if !names.iter().any(|(known, _)| known == name) {
            let id = LinkId(u16::try_from(names.len()).unwrap_or(u16::MAX));
            names.push((name.clone(), id));
        }
    }
    names
}
