// SPDX-License-Identifier: Apache-2.0
//! The rule language and the files beside it.

use crate::planted::planted;
use bartizan_rules as rules;

/// Reads the text as each kind of file.
pub fn run(data: &[u8]) {
    let file = rules::parse_file(data, "fuzz.rules");
    let _ = file.render(false);
    for rule in &file.rules {
        let _ = (rule.protocol().len(), rule.msg().len(), rule.id());
        if let Some(content) = rule.option("content").and_then(|option| option.value())
            && let Ok(pattern) = rules::parse_content(content)
        {
            planted(pattern.bytes.first().is_some_and(|byte| *byte >= 0x80));
            let again = rules::parse_pattern(rules::format_pattern(&pattern.bytes).as_bytes());
            assert_eq!(again.ok(), Some(pattern.bytes.to_vec()), "a pattern is what its printed form says");
        }
    }
    let _ = rules::parse_thresholds(data, "threshold.config");
    let _ = rules::parse_classifications(data, "classification.config");
    let _ = rules::parse_references(data, "reference.config");
    let _ = rules::parse_expr::<rules::AddressRange>(data);
    let _ = rules::parse_expr::<rules::PortRange>(data);
}
