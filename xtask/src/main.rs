// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask tidy`: checks the rules of the house and prints what breaks them. `cargo xtask keywords`: writes the
//! reference of the rule language from the registry of keywords.

use std::process::ExitCode;
use xtask::tidy::{CHECKS, Tree};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy(),
        ["keywords"] => keywords(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

const USAGE: &str = "\
usage: cargo xtask tidy        check the rules of the house (CONTRIBUTING.md lists them)
       cargo xtask keywords    write docs/reference/keywords.md and its neighbours from the registry of keywords";

/// The test that compares the pages also writes them: the registry is in a crate that this one need not build.
fn keywords() -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = std::process::Command::new(cargo)
        .args(["test", "--quiet", "-p", "bartizan-detect", "--test", "reference_pages"])
        .env("UPDATE_REFERENCE", "1")
        .status();
    match done {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot run cargo: {error}; run this by `cargo xtask keywords`");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    let tree = match Tree::of_repository() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("xtask: cannot read the repository: {error}; run this inside a clone of it");
            return ExitCode::FAILURE;
        }
    };
    let mut found = 0usize;
    for (name, check) in CHECKS {
        let findings = check(&tree);
        println!(
            "{name}: {}",
            if findings.is_empty() { "ok".to_owned() } else { format!("{} findings", findings.len()) }
        );
        for finding in &findings {
            println!("  {finding}");
        }
        found += findings.len();
    }
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
