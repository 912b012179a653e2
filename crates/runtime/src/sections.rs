// SPDX-License-Identifier: Apache-2.0
//! Checks of policy sections by this program's functions, before a device builds them: each function compiles
//! the rules of that policy alone, which are discarded.

use crate::load;
use bartizan_base::{FunctionId, Generation};
use bartizan_config::policy::{ConfigProblem, PolicyDefinition, PolicyFile, ResolvedMember, Target};
use bartizan_controller::sections::{SectionFindings, Sections};
use bartizan_flow::host::HostTable;
use bartizan_function::contain::contained;
use bartizan_function::{
    FunctionKind, HostTables, HostTablesConfig, PatternSets, RulePart, RuleSource, RulesError,
};
use bartizan_functions::registry::{self, Services};
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::sync::Arc;

/// Bytes of a function's state per host during a check, in which no state arises.
const HOST_BYTES: u64 = 64 << 10;

/// The checks for a controller in this process.
pub fn check() -> Sections {
    let kinds = registry::kinds(&Services { hosts: Arc::new(HostTable::new(&load::hosts(1))) });
    Sections::new(move |file| {
        // Most files have no section that needs a check.
        let common: OnceCell<Arc<RulePart>> = OnceCell::new();
        let kinds = kinds.clone();
        Box::new(move |policy, function| {
            let Some(kind) = kinds.iter().find(|kind| kind.spec().name == function) else {
                return SectionFindings::default();
            };
            let common = common.get_or_init(|| Arc::new(RulePart::new(common_of(file))));
            findings(kind.as_ref(), common, file, policy)
        })
    })
}

/// The remarks of a function on its section.
fn findings(
    kind: &dyn FunctionKind,
    common: &Arc<RulePart>,
    file: &PolicyFile,
    policy: &PolicyDefinition,
) -> SectionFindings {
    let section = policy.sections.iter().find(|section| section.function == kind.spec().name);
    let section = section.map(|section| Arc::clone(&section.content)).unwrap_or_default();
    let classes = [Arc::new(RulePart::with_section(class_of(file, policy), section))];
    let hosts = HostTables::new(HostTablesConfig { memory: HOST_BYTES, ..HostTablesConfig::default() });
    let source = RuleSource {
        common,
        classes: &classes,
        place: &file.name,
        generation: Generation(1),
        id: FunctionId(0),
        hosts: &hosts,
        patterns: &PatternSets::default(),
        names: &Arc::default(),
    };
    let problem = |place: &str, message: String| {
        let path =
            place.strip_prefix("classes/0/rules").unwrap_or_default().trim_start_matches('/').to_owned();
        ConfigProblem { position: Default::default(), path, message }
    };
    let problems = |errors: Vec<RulesError>| {
        errors.into_iter().map(|error| problem(&error.place, error.message)).collect::<Vec<_>>()
    };
    let (errors, warnings) = match contained(|| kind.rules(&source).map(|mut made| made.take_warnings())) {
        Ok(Ok(warnings)) => (Vec::new(), problems(warnings)),
        Ok(Err(errors)) => (problems(errors), Vec::new()),
        Err(panicked) => {
            let message = format!("this section cannot be used: {panicked}; please report this defect");
            (vec![problem("", message)], Vec::new())
        }
    };
    SectionFindings { problems: errors, warnings }
}

/// The common data of all policies that functions receive, as for a generation.
fn common_of(file: &PolicyFile) -> Value {
    let groups: Map<String, Value> =
        file.groups.iter().map(|(name, own)| (name.clone(), json!(members(own)))).collect();
    json!({
        "tenants": {},
        "ports": null,
        "vars": [],
        "groups": groups,
        "labels": file.labels,
        "rule-groups": file.rule_groups,
    })
}

/// The data of one policy that a function receives beside its section.
fn class_of(file: &PolicyFile, policy: &PolicyDefinition) -> Value {
    let texts = |targets: &[Target]| members(&file.resolve(targets));
    json!({
        "policy": policy.name,
        "fids": [1],
        "from": texts(&policy.from),
        "to": texts(&policy.to),
        "one-sided": policy.one_sided,
    })
}

/// Members in the form that functions receive; all DNS names have one number, since no packet is classified.
fn members(all: &[ResolvedMember]) -> Vec<String> {
    let text = |member: &ResolvedMember| match member {
        ResolvedMember::Prefix(prefix) => prefix.to_string(),
        ResolvedMember::Name(_) => "name/1".to_owned(),
    };
    all.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_config::policy::{self, read};

    fn found_by(function: &str, section: Value) -> SectionFindings {
        let scattered: Vec<String> = (0..300).map(|n| format!("10.{}.{}.1", n / 200, n % 200)).collect();
        let file = json!({
            "groups": {"lan": ["10.0.0.0/8"], "many": scattered},
            "policies": [{"name": "p", "from": "lan", "chain": [function], function: section}],
            "default": {"action": "drop"},
        });
        let file = policy::from_node("policy", read::from_json(&file), &[function]).unwrap();
        check().of(&file)(&file.policies[0], function)
    }

    fn said_by(function: &str, section: Value) -> Vec<(String, String)> {
        let problems = found_by(function, section).problems;
        problems.into_iter().map(|problem| (problem.path, problem.message)).collect()
    }

    fn said(section: Value) -> Vec<(String, String)> {
        said_by("portscan", section)
    }

    #[test]
    fn the_packet_filter_says_which_rule_is_wrong_and_which_was_one_too_many() {
        let filter = |rules: Value| said_by("pfw", json!({"default": "drop", "rules": rules}));
        let (few, many) =
            (json!({"allow": "tcp", "from": "many"}), json!({"allow": "tcp", "from": "many", "to": "many"}));
        assert!(filter(json!([few])).is_empty());
        let of = filter(json!([few, many]));
        assert_eq!((of.len(), of[0].0.as_str()), (1, "rules/1"), "{of:?}");
        assert!(of[0].1.starts_with("the rules up to this one have more than 65536 combinations"), "{of:?}");
        let of = filter(json!([{"allow": "icmp", "to-ports": 80}]));
        assert_eq!(
            of,
            [("rules/0/to-ports".to_owned(), "only tcp, udp and sctp have ports; split the rule".to_owned())]
        );
    }

    #[test]
    fn the_packet_filter_warns_of_a_rule_that_no_packet_reaches() {
        let rules = json!([{"allow": "any"}, {"drop": "tcp"}]);
        let found = found_by("pfw", json!({"default": "drop", "rules": rules}));
        assert!(found.problems.is_empty(), "{found:?}");
        let [warning] = found.warnings.as_slice() else { panic!("{found:?}") };
        assert_eq!(warning.path, "rules/1");
        assert!(warning.message.starts_with("this rule is never reached: rule 1"), "{warning:?}");
    }

    #[test]
    fn a_function_says_what_is_wrong_with_its_section() {
        assert!(said(json!({"ports": 20})).is_empty());
        let of = said(json!({"ports": 1}));
        assert_eq!((of.len(), of[0].0.as_str()), (1, "ports"), "{of:?}");
        assert!(of[0].1.starts_with("1 is out of range; use 2 to "), "{of:?}");
        let of = said(json!({"prots": 20}));
        assert!(of[0].1.contains("prots"), "{of:?}");
    }
}
