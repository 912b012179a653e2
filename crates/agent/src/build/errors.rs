// SPDX-License-Identifier: Apache-2.0
//! What functions find wrong with their rules, said of the policy file.

use super::{Build, Owner};
use bartizan_function::RulesError;

impl Build<'_> {
    /// A function's error, with the place in the file that its path means. `classes`: to which policy each of
    /// its classes belongs, by place in the file; behind them is the default.
    pub(super) fn rules_error(&mut self, classes: &[usize], error: RulesError) {
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
        let index = match (parts.next(), parts.next().and_then(|n| n.parse::<usize>().ok()), parts.next()) {
            (Some("classes"), Some(index), _) => classes.get(index).copied(),
            _ => None,
        };
        let file = self.file;
        let owner = index.map(|index| match file.policies.get(index) {
            Some(policy) => Owner::policy(index, policy),
            None => Owner::default(&file.default),
        });
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
