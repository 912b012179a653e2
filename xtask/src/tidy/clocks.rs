// SPDX-License-Identifier: Apache-2.0
//! No wall clock in the data plane and below: time comes from packets.

use super::arrows::{layer, layer_in};
use super::rust::{code, tests_begin};
use super::{Finding, Tree};

/// Calls that read a clock.
const CLOCKS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "clock_gettime",
    "gettimeofday",
    "UNIX_EPOCH.elapsed",
    "libc::time(",
];

/// Files that may read a clock, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/events/src/sink/file.rs", "the time in names of files, as Suricata has it; no event gets it"),
    (
        "crates/events/src/sink/patience.rs",
        "how long a reader is waited for, over captures and at the end; no event gets this time",
    ),
    ("crates/events/src/sink/patience/tests.rs", "the same, measured"),
    ("crates/ports/src/sys.rs", "a live port is where the packet clock comes from"),
    ("crates/boundary/src/clock.rs", "the relay is a port: silent sockets of datagrams"),
    ("crates/toe/src/clock.rs", "the stream path is a port: time-outs of calls, of holding and of lingering"),
    ("crates/ports/src/wait.rs", "how long to look before sleeping; no packet gets this time"),
    (
        "crates/xdp/src/sys.rs",
        "how two of the kernel's clocks differ: times of the XDP level become those of packets",
    ),
];

/// Finds clocks in the sources of a crate of the data plane or below, tests aside.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let top = layer(tree, "dataplane").unwrap_or(0);
    let mut findings = Vec::new();
    let is_below = |manifest: &str| layer_in(manifest).is_some_and(|layer| layer >= top);
    for (name, _) in tree.crates().filter(|(_, manifest)| is_below(&manifest.text)) {
        let folder = format!("crates/{name}/src/");
        for file in tree.rust().filter(|file| file.path.starts_with(&folder)) {
            if EXCEPTIONS.iter().any(|(path, _)| *path == file.path) {
                continue;
            }
            let tests = tests_begin(&file.text);
            for (index, line) in code(&file.text).lines().enumerate().filter(|(index, _)| index + 1 < tests) {
                for clock in CLOCKS.iter().filter(|clock| line.contains(**clock)) {
                    let message = format!("`{clock}`: take the time from the packet or as an argument");
                    findings.push(Finding::new(&file.path, index + 1, message));
                }
            }
        }
    }
    for (path, _) in EXCEPTIONS.iter().filter(|(path, _)| tree.root.is_some() && !tree.exists(path)) {
        findings.push(Finding::new(
            path,
            0,
            "is gone; take it out of EXCEPTIONS in xtask/src/tidy/clocks.rs",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_found_below_the_data_plane_only() {
        let text = "// Instant::now\nlet a = \"Instant::now\";\nlet b = std::time::Instant::now();\n#[cfg(test)]\nfn t() { Instant::now(); }\n";
        let tree = Tree::of(&[
            ("crates/flow/Cargo.toml", "[package.metadata.bartizan]\nlayer = \"1\"\n"),
            ("crates/flow/src/lib.rs", text),
            ("crates/flow/examples/x.rs", text),
            ("crates/ports/Cargo.toml", "[package.metadata.bartizan]\nlayer = \"2\"\n"),
            (
                "crates/toe/src/clock.rs",
                "the stream path is a port: time-outs of calls, of holding and of lingering",
            ),
            ("crates/ports/src/wait.rs", text),
            ("crates/agent/Cargo.toml", "[package.metadata.bartizan]\nlayer = \"6\"\n"),
            ("crates/dataplane/Cargo.toml", "[package.metadata.bartizan]\nlayer = \"5\"\n"),
            ("crates/agent/src/lib.rs", text),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/flow/src/lib.rs", 3));
    }
}
