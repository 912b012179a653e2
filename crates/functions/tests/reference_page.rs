// SPDX-License-Identifier: Apache-2.0
//! The committed page of the functions matches their specifications, and their counters are declared. `cargo
//! xtask generate` writes the page.

use crate::common;

use bartizan_config::policy;
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostTable, HostTableConfig, WhenHostsFull};
use bartizan_function::FunctionKind;
use bartizan_functions::reference::{page, specs};
use bartizan_functions::registry::{Services, kinds};
use bartizan_functions::sfw::{Hosts, SfwKind};
use bartizan_functions::{gate, pfw, portscan, sfw};
use bartizan_testkit::generated;
use common::Bench;
use std::sync::Arc;

fn hosts() -> Hosts {
    Arc::new(HostTable::new(&HostTableConfig {
        capacity: 64,
        shards: 2,
        hasher: FlowHasher::new([1, 2]),
        when_full: WhenHostsFull::Refuse,
    }))
}

#[test]
fn the_committed_page_is_that_of_the_specifications() {
    generated::check("docs/reference/functions.md", &page(&specs(&hosts())));
}

#[test]
fn the_committed_schema_of_policies_has_the_sections_of_all_functions() {
    let kinds = kinds(&Services { hosts: hosts() });
    let sections = kinds.iter().filter_map(|kind| {
        let schema = schemars::Schema::try_from(kind.section_schema()?).expect("a schema");
        Some((kind.spec().name, schema))
    });
    let expected = policy::schema(&sections.collect::<Vec<_>>());
    let ports = &expected["$defs"]["Policy"]["properties"]["portscan"]["properties"]["ports"];
    assert_eq!(ports["type"], "integer");
    let expected = serde_json::to_string_pretty(&expected).unwrap() + "\n";
    generated::check("docs/reference/policy-schema.json", &expected);
}

#[test]
fn every_function_counts_what_it_declares() {
    let kinds: [(&dyn FunctionKind, &str); 4] = [
        (&gate::GateKind, "{}"),
        (&portscan::PortscanKind, "{}"),
        (&pfw::PfwKind, r#"{"default": "drop"}"#),
        (&SfwKind::new(hosts()), "{}"),
    ];
    assert_eq!(
        kinds.map(|(kind, _)| kind.spec().name),
        [gate::SPEC.name, portscan::SPEC.name, pfw::SPEC.name, sfw::SPEC.name]
    );
    for (kind, rules) in kinds {
        let function = Bench::make(kind, rules).unwrap_or_else(|_| panic!("rules"));
        let mut counted = Vec::new();
        function.log(&function.worker(), &mut |name, _| counted.push(name));
        let declared: Vec<&str> = kind.spec().counters.iter().map(|counter| counter.name).collect();
        assert_eq!(counted, declared, "{}", kind.spec().name);
    }
}
