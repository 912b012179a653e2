// SPDX-License-Identifier: Apache-2.0
//! The examples in the README are valid input of the program.

use bartizan_config::policy;

#[test]
fn the_chain_in_ten_lines_is_a_policy() {
    let readme = include_str!("../../README.md");
    let yaml =
        readme.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a YAML block");
    assert!(yaml.lines().count() <= 10, "ten lines");
    let file = policy::parse("README.md", yaml, &["pfw", "sfw", "ids"]).expect("a policy");
    assert_eq!(file.policies.len(), 1);
    assert_eq!(file.policies[0].chain.0, ["pfw", "sfw", "ids"]);
}
