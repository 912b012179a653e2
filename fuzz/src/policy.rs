// SPDX-License-Identifier: Apache-2.0
//! Policy files.

use crate::planted::planted;

/// Parses the text, and reads everything that the agent reads.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match bartizan_config::policy::parse("fuzz.yaml", &text, &["pfw", "sfw", "ids"]) {
        Ok(file) => {
            for policy in &file.policies {
                let _ = (file.resolve(&policy.from), file.resolve(&policy.to));
                planted(policy.name != "web" && !policy.sections.is_empty());
            }
            let _ = file.place("policies/0/pfw/rules/0");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
