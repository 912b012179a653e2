// SPDX-License-Identifier: Apache-2.0
//! What is left of files of rules once they are loaded.

use bartizan_base::Settings;
use bartizan_detect::ruleset::{LoadInput, load};
use bartizan_detect::shared::Shared;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::Variables;
use std::sync::Arc;

#[test]
fn files_hold_no_text_and_findings_show_their_lines() {
    let refused = "alert udp any any -> any any (nosuch; sid:2;)";
    let text = format!("alert udp any any -> any any (content:\"x\"; sid:1;)\n{refused}\nalret udp\n");
    let mut files = [bartizan_rules::parse_file(text, "some.rules")];
    let compiler = Compiler::new(Config::default()).unwrap();
    let input = LoadInput {
        settings: &Settings::new(),
        variables: &Variables::new(),
        classifications: None,
        references: None,
        shared: &Arc::<Shared>::default(),
        compiler: &compiler,
        tenants: &[],
        known: None,
    };
    let loaded = load(&mut files, &input).unwrap();
    let [file] = &files;
    assert_eq!((loaded.rules.report.loaded, file.rules.len(), file.source.original().len()), (1, 0, 0));
    assert_eq!(file.source.name().as_ref(), "some.rules");
    assert_eq!((file.counts.rules, file.counts.refused), (2, 1));
    let shown = |line: u32| -> String {
        let finding = loaded.diagnostics.iter().find(|d| d.line == line).expect("a finding");
        finding.render(false)
    };
    assert!(shown(2).contains(refused), "{}", shown(2));
    assert!(shown(3).contains("alret udp"), "{}", shown(3));
}
