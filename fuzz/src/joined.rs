// SPDX-License-Identifier: Apache-2.0
//! Parts of a policy file, as a controller sends them.

use crate::planted::planted;
use bartizan_agent::joined::join;
use bartizan_agent::session::ControllerGeneration;
use bartizan_api::southbound::{GroupRules, Object, Policy, RuleGroup, RuleType};
use bartizan_config::policy::{self, PolicyError, read};
use std::sync::Arc;

/// A part a line: a digit for its tenant, its name, a space, its text. Group 1 is a rule file. Problems of
/// the join name existing objects; parts without such problems go to the reader of policy files, whose
/// problems name their objects as well.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines = text.lines().filter_map(|line| {
        let tenant = line.chars().next()?.to_digit(10)?;
        let (name, text) = line.get(1..)?.split_once(' ')?;
        Some(Object::Policy(Policy {
            name: name.to_owned(),
            tenant: u16::try_from(tenant).unwrap_or(0),
            text: text.to_owned(),
        }))
    });
    let rules = GroupRules::Raw(vec!["alert tcp any any -> any any (sid:1;)".to_owned()]);
    let file = Object::Group(RuleGroup { id: 1, tenant: 0, rule_type: RuleType::Ids, rules });
    let objects = lines.chain([file]).map(|object| (object.key(), Arc::new(object))).collect();
    let held = ControllerGeneration { generation: 1, objects };
    let joined = match join(&held) {
        Ok(joined) => joined,
        Err(wrong) => return assert!(wrong.iter().all(|d| held.objects.contains_key(&d.object))),
    };
    planted(joined.libraries.contains_key("x.rules"));
    joined.libraries.values().for_each(|library| drop(library.rules()));
    let read =
        policy::from_node("controller", read::from_json(&joined.parts.whole()), &["pfw", "sfw", "ids"]);
    if let Err(PolicyError::Wrong { problems, .. }) = read {
        problems.iter().for_each(|problem| drop(joined.diagnostic(problem)));
    }
}
