// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask tidy`: checks the rules of the house and prints violations, or the counts of some. `cargo
//! xtask generate`: writes the committed files that are made from tables in the code. `cargo xtask keywords`:
//! only the reference of the rule language. `cargo xtask new`: writes the skeleton of an extension.

use std::process::ExitCode;
use xtask::scaffold;
use xtask::tidy::{CHECKS, Tree, circles, counts, uses};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy(),
        ["tidy", "--counts"] => language_counts(),
        ["circles"] => circles(""),
        ["circles", sources] => circles(sources),
        ["keywords"] => generated(&GENERATED[..1], true),
        ["generate"] => generated(GENERATED, true),
        ["generate", "--check"] => generated(GENERATED, false),
        ["new", "--check"] => checked(scaffold::check::run()),
        ["new", kind, name] => checked(scaffold::check::write(kind, name)),
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
       cargo xtask tidy --counts    print what the rules of language count, each with its limit, and the names that two crates share
       cargo xtask circles [FOLDER]    print the circles of files of all crates, or of those below a folder with all their uses
       cargo xtask generate    write all that is committed and made from tables in the code; with --check say what differs
       cargo xtask new KIND NAME    write the skeleton of a protocol, keyword, function, level, source, resource or event, with tests
       cargo xtask new --check    write one of each kind into a copy of the repository, compile and test them
       cargo xtask keywords    of that, write docs/reference/keywords.md and its neighbours from the registry of keywords";

/// The tests that compare committed files with the tables that they are made from: package, file of `tests/`
/// (by default the unit tests of its program), test (by default all).
const GENERATED: &[(&str, &str, &str)] = &[
    ("bartizan-detect", "reference_pages", ""),
    ("bartizan-events", "reference_pages", ""),
    ("bartizan-packet", "metadata_headers", "the_committed_headers_are_those_of_the_description"),
    ("bartizan-packet", "table_headers", "the_committed_headers_are_those_of_the_description"),
    ("bartizan-packet", "slot_headers", "the_committed_header_is_that_of_the_description"),
    ("bartizan-rtl", "package", "the_committed_package_is_that_of_the_declarations"),
    ("bartizan-functions", "reference_page", "the_committed_page_is_that_of_the_specifications"),
    (
        "bartizan-functions",
        "reference_page",
        "the_committed_schema_of_policies_has_the_sections_of_all_functions",
    ),
    ("bartizan-functions", "transition_headers", "the_committed_headers_are_those_of_the_tables"),
    ("bartizan-controller", "openapi", "the_committed_document_is_that_of_the_routes"),
    ("bartizan", "protocol_flows", "the_committed_page_of_protocols_is_what_a_worker_does"),
    ("bartizan", "nftables", "the_tables_of_the_page_are_those_of_the_rows"),
    ("bartizan", "flow_counts", "the_table_of_the_page_of_flow_records_is_that_of_the_rows"),
    ("bartizan", "identifiers", "the_tables_of_the_page_are_those_of_the_tests"),
    ("bartizan-config", "docs", "the_committed_schema_of_host_files_is_that_of_the_types"),
    ("bartizan-config", "docs", "the_table_of_effects_is_that_of_the_code"),
    ("bartizan-config", "docs", "the_table_of_settings_whose_loss_weakens_is_that_of_the_code"),
    ("bartizan", "", "the_tables_of_the_page_are_those_of_the_declarations"),
    // Behind the schemas that they are made from.
    ("xtask", "reference", "the_committed_pages_are_those_of_the_schemas"),
    ("xtask", "reference", "the_committed_table_of_layers_is_that_of_the_manifests"),
    ("xtask", "reference", "the_committed_page_of_figures_is_that_of_the_records"),
];

/// Runs the tests that compare generated files, and also write them on request: the tables are in crates that
/// this one need not build.
fn generated(generated: &[(&str, &str, &str)], write: bool) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for (package, file, test) in generated {
        let mut command = std::process::Command::new(&cargo);
        // From the workspace: a package by itself has other features of its libraries, and all would be built
        // again.
        command.args(["test", "--quiet", "--workspace", "--locked"]);
        // One program has all files of a crate's `tests/`, as its modules.
        match *file {
            "" => command.args(["--bin", package, "--", test]),
            file => {
                let program = package.strip_prefix("bartizan-").unwrap_or(package);
                command.args(["--test", program, "--", &format!("{file}::{test}")])
            }
        };
        if write {
            command.env("UPDATE_REFERENCE", "1");
        } else {
            command.env_remove("UPDATE_REFERENCE");
        }
        let done = command.stderr(std::process::Stdio::inherit()).output();
        match done {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout);
                print!("{said}");
                // A run that finds no test of the name succeeds, too.
                let ran = said.lines().any(|line| {
                    line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 passed")
                });
                if !output.status.success() {
                    return ExitCode::FAILURE;
                }
                if !ran {
                    eprintln!(
                        "xtask: {package} has no test `{file}::{test}`; correct GENERATED in xtask/src/main.rs"
                    );
                    return ExitCode::FAILURE;
                }
            }
            Err(error) => {
                eprintln!("xtask: cannot run cargo: {error}; run this by `cargo xtask generate`");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The exit code of a chore that says its own errors: 2 if it was refused.
fn checked(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn tree() -> Option<Tree> {
    Tree::of_repository()
        .inspect_err(|error| {
            eprintln!("xtask: cannot read the repository: {error}; run this inside a clone of it");
        })
        .ok()
}

/// Prints circles of files, a line each; those of one folder with the uses that make them.
fn circles(below: &str) -> ExitCode {
    let Some(tree) = tree() else { return ExitCode::FAILURE };
    for sources in uses::packages(&tree).iter().filter(|sources| sources.starts_with(below)) {
        for circle in circles::circles(&tree, sources) {
            println!("{sources}: {} files: {}", circle.files.len(), circle.files.join(" "));
            for (user, line, used, path) in circle.uses.iter().filter(|_| !below.is_empty()) {
                println!("  {user}:{line} uses {used} ({path})");
            }
        }
    }
    ExitCode::SUCCESS
}

/// Prints the counts of the language rules; fails where a limit is passed.
fn language_counts() -> ExitCode {
    let Some(tree) = tree() else { return ExitCode::FAILURE };
    let counts = counts::counts(&tree);
    print!("{}", counts::table(&counts));
    if counts.iter().all(counts::Count::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tidy() -> ExitCode {
    let Some(tree) = tree() else { return ExitCode::FAILURE };
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
