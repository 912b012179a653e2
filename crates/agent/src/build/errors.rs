// SPDX-License-Identifier: Apache-2.0
//! Maps errors of functions in their rules to places in the policy file.

use super::{Build, Owner};
use bartizan_function::RulesError;

impl Build<'_> {
    /// Reports a function's error, with the place in the file that its path means. `classes`: the policy of
    /// each of the function's classes, by place in the file; the number after the last policy is the default.
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
