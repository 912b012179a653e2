// SPDX-License-Identifier: Apache-2.0
//! Rule files through the loader: keywords, conditions, prefilters.

use crate::planted::planted;
use bartizan_base::SettingsMap;
use bartizan_detect::ruleset::{self, LoadInput, RuleSet};
use bartizan_detect::shared::Shared;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::RuleVariables;
use std::sync::{Arc, LazyLock};

/// The settings of all targets: the shipped ones.
pub static SETTINGS: LazyLock<SettingsMap> = LazyLock::new(bartizan_config::suricata::shipped);

static COMPILER: LazyLock<Compiler> =
    LazyLock::new(|| Compiler::new(Config::default()).expect("a compiler without a cache"));

static VARIABLES: LazyLock<RuleVariables> = LazyLock::new(|| {
    let mut variables = RuleVariables::new();
    for name in SETTINGS.children("vars.address-groups") {
        let _ = variables
            .set_address(name, SETTINGS.get(&format!("vars.address-groups.{name}")).unwrap_or("any"));
    }
    for name in SETTINGS.children("vars.port-groups") {
        let _ = variables.set_port(name, SETTINGS.get(&format!("vars.port-groups.{name}")).unwrap_or("any"));
    }
    variables
});

/// Compiles the rules of a text. Large ones are left out: compiling patterns is not under test.
pub fn compile(text: &[u8]) -> Option<RuleSet> {
    if text.len() > 16 << 10 {
        return None;
    }
    let file = bartizan_rules::parse_file(text, "fuzz.rules");
    let rules = file.rules.len() as u64;
    let input = LoadInput {
        settings: &SETTINGS,
        variables: &VARIABLES,
        classifications: None,
        references: None,
        shared: &Arc::new(Shared::default()),
        compiler: &COMPILER,
        tenants: &[],
        known: None,
    };
    let loaded = ruleset::load(&mut [file], &input).ok()?;
    assert!(loaded.rules.report.loaded <= rules);
    Some(loaded.rules)
}

/// Compiles the rules of the text.
pub fn run(data: &[u8]) {
    if let Some(rules) = compile(data) {
        planted(rules.signatures.len() == 2 && rules.report.refused_total() == 1);
    }
}
