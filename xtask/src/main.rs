// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask tidy`: checks the rules of the house and prints what breaks them.

use std::process::ExitCode;
use xtask::tidy::{CHECKS, Tree};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy(),
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

const USAGE: &str = "usage: cargo xtask tidy    check the rules of the house (CONTRIBUTING.md lists them)";

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
