// SPDX-License-Identifier: Apache-2.0
//! What functions find wrong with their rules, said of the policy file.

use super::{Build, Group, Owner};
use bartizan_function::RulesError;

impl Build<'_> {
    /// A function's error, with the place in the file that its path means.
    pub(super) fn rules_error(&mut self, owners: &[Owner<'_>], groups: &[&Group<'_>], error: RulesError) {
        let RulesError { function, place, message } = error;
        if place.starts_with("tenants/") {
            self.problem(&place, message);
            return;
        }
        if place.starts_with("rule-groups/") {
            self.problem(&place, format!("{function}: {message}"));
            return;
        }
        let mut parts = place.splitn(4, '/');
        let group = match (parts.next(), parts.next().and_then(|n| n.parse::<usize>().ok()), parts.next()) {
            (Some("classes"), Some(index), _) => groups.get(index),
            _ => None,
        };
        let owner = group.and_then(|g| owners.get(g.owner));
        let path = match owner {
            Some(owner) if owner.sections.iter().any(|s| s.function == function) => {
                format!("{}/{function}/{}", owner.path, parts.next().unwrap_or_default())
            }
            Some(owner) => format!("{}/chain", owner.path),
            None => String::new(),
        };
        self.problem(&path, format!("{function}: {message}"));
    }
}
