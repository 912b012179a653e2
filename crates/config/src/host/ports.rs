// SPDX-License-Identifier: Apache-2.0
//! Named ports of a host file, for packets that policies redirect.

use super::HostFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A port through which redirected packets leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NamedPort {
    /// Name, in policies and events.
    pub name: String,
    /// The port's interface, which no link may use.
    pub interface: String,
}

/// Most ports of a host file.
pub const NAMED_PORTS: usize = 16;

/// Checks that named ports are distinct, and that no link uses their interfaces (`used`): redirected packets
/// would come back by it.
pub(super) fn check(file: &HostFile, used: &HashSet<&String>, problem: &mut impl FnMut(String, String)) {
    if file.ports.len() > NAMED_PORTS {
        let message = format!("{} ports; more than {NAMED_PORTS} are not supported", file.ports.len());
        problem("ports".to_owned(), message);
    }
    let (mut names, mut interfaces) = (HashSet::new(), HashSet::new());
    for (index, port) in file.ports.iter().enumerate() {
        if !names.insert(&port.name) {
            let message = format!("two ports are called `{}`; rename one", port.name);
            problem(format!("ports/{index}/name"), message);
        }
        let what = match (used.contains(&port.interface), interfaces.insert(&port.interface)) {
            (true, _) => "belongs to a link, so redirected packets would come in again",
            (_, false) => "is used by two ports",
            _ => continue,
        };
        let message =
            format!("interface `{}` {what}; give each port an interface of its own", port.interface);
        problem(format!("ports/{index}/interface"), message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn says_which_port_cannot_be() {
        for (ports, said) in [
            ("{name: p, interface: e1}", "2:30: interface `e1` belongs to a link"),
            ("{name: p, interface: e2}, {name: p, interface: e2}", "two ports are called `p`; rename one"),
        ] {
            let text = format!("links: [{{name: a, inline: {{a: e0, b: e1}}}}]\nports: [{ports}]");
            let error = parse("bartizan.yaml", &text).expect_err("it is wrong").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
