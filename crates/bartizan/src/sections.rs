// SPDX-License-Identifier: Apache-2.0
//! What this program's functions say of a section before a device builds it: each is asked for the rules of that policy alone, which
//! are thrown away.

use crate::load;
use bartizan_base::{FunctionId, Generation};
use bartizan_config::policy::{Member, Policy, PolicyFile, Problem, Target, read};
use bartizan_controller::sections::Sections;
use bartizan_flow::host::HostTable;
use bartizan_function::contain::contained;
use bartizan_function::{FunctionKind, HostTables, HostTablesConfig, RulePart, RuleSource};
use bartizan_functions::registry::{self, Services};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Bytes of what a function keeps per host while it is asked: nothing comes to be kept.
const HOST_BYTES: u64 = 64 << 10;

/// For a controller in this process.
pub fn check() -> Sections {
    let kinds = registry::kinds(&Services { hosts: Arc::new(HostTable::new(&load::hosts(1))) });
    Sections::new(move |file, policy, function| {
        let kind = kinds.iter().find(|kind| kind.spec().name == function);
        kind.map(|kind| wrong(kind.as_ref(), file, policy)).unwrap_or_default()
    })
}

/// What a function finds wrong with its section.
fn wrong(kind: &dyn FunctionKind, file: &PolicyFile, policy: &Policy) -> Vec<Problem> {
    let (common, classes) = RulePart::split(asked(kind.spec().name, file, policy));
    let hosts = HostTables::new(HostTablesConfig { memory: HOST_BYTES, ..HostTablesConfig::default() });
    let source = RuleSource {
        common: &Arc::new(common),
        classes: &classes,
        place: &file.name,
        generation: Generation(1),
        id: FunctionId(0),
        hosts: &hosts,
        names: &Arc::default(),
    };
    let problem = |place: &str, message: String| {
        let path =
            place.strip_prefix("classes/0/rules").unwrap_or_default().trim_start_matches('/').to_owned();
        Problem { position: Default::default(), path, message }
    };
    match contained(|| kind.rules(&source).map(drop)) {
        Ok(Ok(())) => Vec::new(),
        Ok(Err(errors)) => errors.into_iter().map(|error| problem(&error.place, error.message)).collect(),
        Err(panicked) => {
            vec![problem("", format!("this section cannot be used: {panicked}; please report it"))]
        }
    }
}

/// What a function is given of one policy: as for a generation, with one class.
fn asked(function: &str, file: &PolicyFile, policy: &Policy) -> Value {
    let texts = |targets: &[Target]| members(&file.resolve(targets));
    let section = policy.sections.iter().find(|section| section.function == function);
    let groups: Map<String, Value> =
        file.groups.iter().map(|(name, own)| (name.clone(), json!(members(own)))).collect();
    json!({
        "tenants": {},
        "ports": null,
        "vars": [],
        "groups": groups,
        "labels": file.labels,
        "rule-groups": file.rule_groups,
        "classes": [{
            "policy": policy.name,
            "fids": [1],
            "from": texts(&policy.from),
            "to": texts(&policy.to),
            "one-sided": policy.one_sided,
            "rules": section.map_or(Value::Null, |section| read::to_json(&section.node)),
        }],
    })
}

/// Members as functions get them; all DNS names have one number, since no packet is looked at.
fn members(all: &[Member]) -> Vec<String> {
    let text = |member: &Member| match member {
        Member::Prefix(prefix) => prefix.to_string(),
        Member::Name(_) => "name/1".to_owned(),
    };
    all.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_config::policy;

    fn said(section: Value) -> Vec<(String, String)> {
        let file = json!({
            "groups": {"lan": ["10.0.0.0/8"]},
            "policies": [{"name": "scan", "from": "lan", "chain": ["portscan"], "portscan": section}],
            "default": {"action": "drop"},
        });
        let file = policy::from_node("policy", read::from_json(&file), &["portscan"]).unwrap();
        let problems = check().check(&file, &file.policies[0], "portscan");
        problems.into_iter().map(|problem| (problem.path, problem.message)).collect()
    }

    #[test]
    fn a_function_says_what_is_wrong_with_its_section() {
        assert!(said(json!({"ports": 20})).is_empty());
        let of = said(json!({"ports": 1}));
        assert_eq!((of.len(), of[0].0.as_str()), (1, "ports"), "{of:?}");
        assert!(of[0].1.starts_with("1 is out of range; give 2 to "), "{of:?}");
        let of = said(json!({"prots": 20}));
        assert!(of[0].1.contains("prots"), "{of:?}");
    }
}
