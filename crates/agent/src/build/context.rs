// SPDX-License-Identifier: Apache-2.0
//! The input that all policies of a generation share. While it is unchanged, compiled policies stay valid.

use super::{Agent, Build, CompiledOwner, Overrides};
use crate::tenants::{Selector, TenantSelector};
use bartizan_base::{LinkId, TenantId};
use bartizan_classify::names::Lease;
use bartizan_config::policy::{DEFAULT_TENANT, PolicyDefinition, PolicyFile, SharedPolicyParts, Vars};
use bartizan_function::RulePart;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// See the module.
pub(super) struct PolicyBuildContext {
    /// The parts of the file other than policies, compared by address.
    shared: Arc<SharedPolicyParts>,
    links: Vec<(String, LinkId)>,
    overrides: Overrides,
    ports: Option<Vec<String>>,
    /// Assigns packets to tenants.
    pub tenants: TenantSelector,
    /// The tenants of the file in its order, the default last; and the place of each name.
    pub known: Arc<[(String, TenantId)]>,
    known_places: HashMap<String, usize>,
    /// The part of the functions' input that all policies share.
    pub rules: Arc<RulePart>,
    /// A lease on the DNS names of groups: compiled policies contain their numbers.
    names: Option<Arc<Lease>>,
}

/// The parts of a generation that are kept for the next one.
#[derive(Clone)]
pub(super) struct LastBuild {
    pub context: Arc<PolicyBuildContext>,
    /// The compiled policies in order, and the default.
    pub owners: Vec<Arc<CompiledOwner>>,
}

impl PolicyBuildContext {
    /// Whether the context was made for this file and these settings of the agent.
    fn is_of(&self, agent: &Agent, file: &PolicyFile, links: &[(&str, LinkId)]) -> bool {
        let same = |((a, x), (b, y)): (&(String, LinkId), &(&str, LinkId))| a == b && x == y;
        Arc::ptr_eq(&self.shared, &file.common)
            && self.ports == agent.ports
            && self.overrides == agent.overrides
            && self.links.len() == links.len()
            && self.links.iter().zip(links).all(same)
    }

    /// The tenants that a policy, or the default, applies to, in the order of the file.
    pub(super) fn tenants_of(&self, policy: Option<&PolicyDefinition>) -> Vec<&(String, TenantId)> {
        match policy {
            Some(policy) if !policy.tenant.iter().any(|t| t == "any") => {
                let places: BTreeSet<usize> =
                    policy.tenant.iter().filter_map(|name| self.known_places.get(name).copied()).collect();
                places.into_iter().filter_map(|at| self.known.get(at)).collect()
            }
            _ => self.known.iter().collect(),
        }
    }
}

impl Build<'_> {
    /// The context: that of the previous generation if nothing in it has changed.
    pub(super) fn context(&mut self) -> Option<Arc<PolicyBuildContext>> {
        let (agent, file) = (self.agent, self.file);
        let kept = agent.kept.as_ref().map(|kept| &kept.context);
        if let Some(kept) = kept.filter(|kept| kept.is_of(agent, file, self.links)) {
            self.names.clone_from(&kept.names);
            return Some(Arc::clone(kept));
        }
        self.hold_names()?;
        let tenants = self.tenants()?;
        let names = file.tenants.iter().map(|t| t.name.as_str()).chain([DEFAULT_TENANT]);
        let known: Arc<[(String, TenantId)]> =
            names.filter_map(|n| Some((n.to_owned(), *self.state.tenants.get(n)?))).collect();
        Some(Arc::new(PolicyBuildContext {
            shared: Arc::clone(&file.common),
            links: self.links.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect(),
            overrides: agent.overrides.clone(),
            ports: agent.ports.clone(),
            tenants,
            known_places: known.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect(),
            rules: Arc::new(RulePart::new(self.common(&known))),
            names: self.names.clone(),
            known,
        }))
    }

    /// Assigns numbers to all tenants, and builds the selector of their traffic.
    fn tenants(&mut self) -> Option<TenantSelector> {
        let mut selectors = Vec::new();
        for (index, tenant) in self.file.tenants.iter().enumerate() {
            let Some(id) = self.state.tenant(&tenant.name) else {
                self.problem(
                    &format!("tenants/{index}"),
                    "all tenant numbers are in use; restart the program to free those of removed tenants"
                        .to_owned(),
                );
                return None;
            };
            let select = &tenant.select;
            let links = select.link.as_ref().map(|names| {
                let path = format!("tenants/{index}/select/link");
                self.links_of(&path, Some(names)).into_iter().flatten().collect()
            });
            selectors.push(Selector {
                tenant: id,
                vnis: select.vni.as_deref().map(<[_]>::to_vec),
                vlans: select.vlan.as_deref().map(<[_]>::to_vec),
                links,
                prefixes: select.prefixes.as_ref().map(|prefixes| self.file.prefixes(prefixes)),
            });
        }
        Some(TenantSelector { selectors: selectors.into() })
    }

    /// The part of the functions' input that all policies share.
    fn common(&self, known: &[(String, TenantId)]) -> Value {
        let groups: Map<String, Value> = (self.file.groups.iter())
            .map(|(name, members)| (name.clone(), json!(self.texts(members))))
            .collect();
        let tenants: Map<String, Value> =
            known.iter().map(|(name, id)| (name.clone(), json!(id.0))).collect();
        let own_vars = self.file.tenants.iter().enumerate().filter_map(|(index, tenant)| {
            let number = self.state.tenants.get(&tenant.name)?;
            Some(variables(&format!("tenants/{index}/vars"), *number, tenant.vars.as_ref()?))
        });
        let vars: Vec<Value> = own_vars.collect();
        let mut common = Map::new();
        common.insert("tenants".to_owned(), Value::Object(tenants));
        let ports =
            self.agent.ports.as_deref().map(|names| names.iter().zip(0u8..).collect::<BTreeMap<_, _>>());
        common.insert("ports".to_owned(), json!(ports));
        common.insert("vars".to_owned(), Value::Array(vars));
        common.insert("groups".to_owned(), Value::Object(groups));
        common.insert("labels".to_owned(), json!(self.file.labels));
        common.insert("rule-groups".to_owned(), json!(self.file.rule_groups));
        Value::Object(common)
    }
}

/// A tenant's variables as functions get them: names, expressions, and their place in the file.
fn variables(place: &str, tenant: TenantId, vars: &Vars) -> Value {
    let addresses: BTreeMap<_, _> = vars.address_groups.iter().map(|(n, v)| (n, v.expression())).collect();
    let ports: BTreeMap<_, _> = vars.port_groups.iter().map(|(n, v)| (n, v.expression())).collect();
    json!({"place": place, "tenant": tenant.0, "address-groups": addresses, "port-groups": ports})
}
