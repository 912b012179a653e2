// SPDX-License-Identifier: Apache-2.0
//! Recognizes the kind of a configuration file by its top-level keys, for messages when one kind is given in
//! place of another.

use crate::yaml::{self, Node, Value};

/// A configuration file of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The host file: it has links.
    Host,
    /// A policy file.
    Policy,
    /// Settings of Suricata.
    Suricata,
}

/// Top-level keys that only a suricata.yaml has.
const OF_SURICATA: [&str; 13] = [
    "vars",
    "suricata-version",
    "default-log-dir",
    "default-rule-path",
    "rule-files",
    "classification-file",
    "af-packet",
    "app-layer",
    "stream",
    "detect",
    "flow-timeouts",
    "defrag",
    "host-os-policy",
];
/// Top-level keys that only a policy file has.
const OF_POLICY: [&str; 4] = ["policies", "rule-groups", "service-levels", "tenants"];

impl FileKind {
    /// The kind of a text; `None` if its keys do not tell.
    #[must_use]
    pub fn of(text: &str) -> Option<FileKind> {
        let root = yaml::parse(text).ok()?;
        let has = |key: &str| root.get(key).is_some();
        if has("links") {
            Some(FileKind::Host)
        } else if OF_POLICY.iter().any(|key| has(key)) {
            Some(FileKind::Policy)
        } else if OF_SURICATA.iter().any(|key| has(key)) || root.get("outputs").is_some_and(is_list) {
            Some(FileKind::Suricata)
        } else {
            None
        }
    }
}

fn is_list(node: &Node) -> bool {
    matches!(node.value, Value::Sequence(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_their_keys() {
        for (text, kind) in [
            ("links: [{name: a, tap: {interface: lo}}]\noutputs: {stdout: true}\n", Some(FileKind::Host)),
            ("policies: []\ndefault: {action: drop}\n", Some(FileKind::Policy)),
            ("rule-groups: {web: [a.rules]}\n", Some(FileKind::Policy)),
            ("%YAML 1.1\n---\nvars: {address-groups: {HOME_NET: any}}\n", Some(FileKind::Suricata)),
            ("outputs:\n  - fast: {enabled: yes}\n", Some(FileKind::Suricata)),
            ("outputs: {stdout: true}\nworkers: 2\n", None),
            ("default: {action: drop}\n", None),
            ("a: [1\n", None),
            ("", None),
        ] {
            assert_eq!(FileKind::of(text), kind, "{text}");
        }
    }
}
