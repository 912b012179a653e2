// SPDX-License-Identifier: Apache-2.0
//! Groups by DNS name: the reader of resolvers' answers, and the form of names in rules.

use super::{Build, NAMES};
use crate::classes::ByName;
use bartizan_classify::NameId;
use bartizan_config::policy::{DnsName, ResolvedMember, Target};
use bartizan_function::classes::{AddressMember as SideMember, SideCondition, sides};
use bartizan_function::{Function, RulePart, RuleSource};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl Build<'_> {
    /// Adds the reader of resolvers' answers if a group has a DNS name; returns the data for lookups by name.
    pub(super) fn by_name(&mut self, functions: &mut Vec<Arc<dyn Function>>) -> Option<ByName> {
        let (agent, file) = (self.agent, self.file);
        let lease = self.names.clone()?;
        let kind = agent.kinds.iter().zip(&agent.ids).find(|(kind, _)| kind.spec().name == NAMES);
        let Some((kind, reader)) = kind else {
            self.problem(
                "groups",
                "groups by DNS name need the function `names`, which this program does not have; write addresses".to_owned(),
            );
            return None;
        };
        let numbers: Map<String, Value> =
            lease.iter().map(|(name, id)| (name.to_owned(), json!(id.0.get()))).collect();
        let rules = json!({"names": numbers, "ttl-min": file.dns.ttl_min.0, "ttl-max": file.dns.ttl_max.0});
        let source = RuleSource {
            common: &Arc::new(RulePart::new(rules)),
            classes: &[],
            place: &file.name,
            generation: self.state.generation,
            id: *reader,
            hosts: &agent.hosts,
            patterns: &agent.patterns,
            names: &agent.names,
        };
        match kind.rules(&source) {
            Ok(function) => {
                let at = functions.partition_point(|f| f.id() < *reader);
                functions.insert(at, Arc::from(function));
            }
            Err(errors) => errors.into_iter().for_each(|e| self.problem("dns", e.message)),
        }
        let everybodys = file.prefixes(&file.dns.resolvers).into_iter().map(|prefix| (None, prefix));
        let mut resolvers: Vec<_> = everybodys.collect();
        for tenant in &file.tenants {
            let Some(id) = self.state.tenants.get(&tenant.name).copied() else { continue };
            resolvers.extend(file.prefixes(&tenant.resolvers).into_iter().map(|prefix| (Some(id), prefix)));
        }
        Some(ByName { names: Arc::clone(&agent.names), reader: *reader, resolvers, _lease: lease })
    }

    /// Takes a lease on the names of all groups, if there are some: for this generation and for parts that
    /// the next one reuses.
    pub(super) fn hold_names(&mut self) -> Option<()> {
        let (agent, file) = (self.agent, self.file);
        let names = file.names();
        if names.is_empty() {
            return Some(());
        }
        let Some(lease) = agent.names.lease(names.into_iter().map(DnsName::as_str)) else {
            let message =
                "the DNS name gets no number: all are in use by generations that still run; try again";
            self.problem("groups", message.to_owned());
            return None;
        };
        self.names = Some(Arc::new(lease));
        Some(())
    }

    /// The number of a DNS name.
    pub(super) fn name_id(&self, name: &DnsName) -> Option<NameId> {
        self.names.as_ref()?.id(name.as_str())
    }

    /// The conditions on an address that lies in these targets.
    pub(super) fn sides(&self, targets: &[Target]) -> Vec<SideCondition> {
        let member = |member| match member {
            ResolvedMember::Prefix(prefix) => Some(SideMember::Prefix(prefix)),
            ResolvedMember::Name(name) => self.name_id(&name).map(SideMember::Name),
        };
        let members: Vec<_> = self.file.resolve(targets).into_iter().filter_map(member).collect();
        sides(&members)
    }

    /// Members in the form that functions get.
    pub(super) fn texts(&self, members: &[ResolvedMember]) -> Vec<String> {
        let text = |member: &ResolvedMember| match member {
            ResolvedMember::Prefix(prefix) => Some(prefix.to_string()),
            ResolvedMember::Name(name) => self.name_id(name).map(|id| format!("name/{}", id.0)),
        };
        members.iter().filter_map(text).collect()
    }
}
