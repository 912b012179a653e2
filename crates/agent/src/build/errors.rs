// SPDX-License-Identifier: Apache-2.0
//! Maps errors of functions in their rules to places in the policy file.

use super::{Build, Owner};
use bartizan_config::policy::ConfigProblem;
use bartizan_function::RulesError;

impl Build<'_> {
    /// Adds a function's error, with the place in the file that its path means. `classes`: to which policy
    /// each of its classes belongs, by place in the file; behind them is the default.
    pub(super) fn rules_error(&mut self, classes: &[usize], error: RulesError) {
        let (path, message) = self.placed(classes, error);
        self.problem(&path, message);
    }

    /// Adds a function's warning, as [`Build::rules_error`] an error.
    pub(super) fn rules_warning(&mut self, classes: &[usize], warning: RulesError) {
        let (path, message) = self.placed(classes, warning);
        self.warnings.push(ConfigProblem { position: self.file.locate(&path), path, message });
    }

    /// The path in the file of what a function says, and its message.
    fn placed(&self, classes: &[usize], error: RulesError) -> (String, String) {
        let RulesError { function, place, message } = error;
        if place.starts_with("tenants/") {
            return (place, message);
        }
        if place.starts_with("rule-groups/") {
            return (place, format!("{function}: {message}"));
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
        (path, format!("{function}: {message}"))
    }
}
