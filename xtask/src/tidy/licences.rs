// SPDX-License-Identifier: Apache-2.0
//! The licences of all dependencies are on the list: linked code can be distributed under Apache-2.0.
//!
//! `cargo metadata` lists the dependencies, without the network if all are fetched already. deny.toml has the
//! same list for cargo-deny. Not done: advisories (cargo-deny checks them).

use super::{Finding, Tree};
use std::process::Command;

/// The licences that are allowed.
pub const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Compares the licence of every dependency with the list.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(root) = &tree.root else { return Vec::new() };
    // First offline; a clone that has not fetched everything yet may need the network.
    let mut failed = String::new();
    for network in [&["--offline"][..], &[]] {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(root)
            .args([
                "metadata",
                "--format-version",
                "1",
                "--locked",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ])
            .args(network)
            .output();
        match output {
            Ok(output) if output.status.success() => return judge(&output.stdout),
            Ok(output) => failed = String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => failed = error.to_string(),
        }
    }
    vec![Finding::new(
        "Cargo.lock",
        0,
        format!("cannot be read by `cargo metadata --locked`: {}", failed.trim()),
    )]
}

fn judge(metadata: &[u8]) -> Vec<Finding> {
    let metadata: serde_json::Value = match serde_json::from_slice(metadata) {
        Ok(metadata) => metadata,
        Err(error) => {
            return vec![Finding::new("Cargo.lock", 0, format!("`cargo metadata` gave no JSON: {error}"))];
        }
    };
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let foreign = packages.iter().filter(|package| !package["source"].is_null());
    foreign
        .filter_map(|package| {
            let name = package["name"].as_str().unwrap_or("?");
            let message = match package["license"].as_str() {
                Some(licence) if allowed(licence) => return None,
                Some(licence) => {
                    format!("`{name}` is under `{licence}`, which is not on the list of licences")
                }
                None => format!("`{name}` names no licence; look at its licence file"),
            };
            Some(Finding::new("Cargo.lock", 0, message))
        })
        .collect()
}

/// Does an SPDX expression leave a choice that is on the list?
#[must_use]
pub fn allowed(expression: &str) -> bool {
    // In the old form a slash means OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at) && at == words.len()
}

fn any(words: &[&str], at: &mut usize) -> bool {
    let mut holds = all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= all(words, at);
    }
    holds
}

fn all(words: &[&str], at: &mut usize) -> bool {
    let mut holds = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one(words, at);
    }
    holds
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let holds = any(words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return holds && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return ALLOWED.contains(&format!("{word} WITH {exception}").as_str());
    }
    ALLOWED.contains(word)
}

/// deny.toml lists the same licences.
#[must_use]
pub fn check_deny(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get("deny.toml") else { return vec![Finding::new("deny.toml", 0, "is missing")] };
    let list = file
        .text
        .split_once("[licenses]")
        .and_then(|(_, rest)| rest.split_once("allow = ["))
        .map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split_once(']')).map_or("", |(list, _)| list);
    let mut named: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    named.sort_unstable();
    if named == ALLOWED {
        return Vec::new();
    }
    vec![Finding::new(
        "deny.toml",
        0,
        format!("`licenses.allow` must be {ALLOWED:?} as in xtask/src/tidy/licences.rs"),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for yes in ["MIT", "MIT/Apache-2.0", "GPL-2.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(allowed(yes), "{yes}");
        }
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"));
        for no in [
            "GPL-2.0-only",
            "MIT AND GPL-3.0-or-later",
            "(MIT",
            "",
            "MPL-2.0",
            "MIT Apache-2.0",
            "GPL-2.0 WITH x",
        ] {
            assert!(!allowed(no), "{no}");
        }
    }

    #[test]
    fn a_package_that_does_not_fit_is_found() {
        let metadata = br#"{"packages": [
            {"name": "own", "source": null, "license": null},
            {"name": "good", "source": "registry", "license": "MIT"},
            {"name": "suricata", "source": "registry", "license": "GPL-2.0-only"},
            {"name": "silent", "source": "registry", "license": null}]}"#;
        let said: Vec<String> = judge(metadata).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("suricata") && said[1].contains("silent"));
    }
}
