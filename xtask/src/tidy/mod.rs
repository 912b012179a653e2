// SPDX-License-Identifier: Apache-2.0
//! The rules of the house as checks over the files of the repository.
//!
//! A check is a plain function from a [`Tree`] to findings, so that each is tested on a small tree with a
//! planted fault, and then run over the real one (`tests/tidy.rs`, `cargo xtask tidy`). Checks read text, not
//! syntax trees: the compiler and clippy check what needs understanding; these checks know the rules that
//! those cannot.

pub mod arrows;
pub mod circles;
pub mod clocks;
pub mod comments;
pub mod counts;
pub mod dependencies;
pub mod files;
pub mod floor;
pub mod folders;
pub mod frames;
pub mod functions;
pub mod invariants;
pub mod licences;
pub mod links;
pub mod manifests;
pub mod names;
pub mod pages;
pub mod parameters;
pub mod programs;
mod rust;
pub mod specs;
pub mod tables;
mod tree;
pub mod unsafety;
pub mod uses;

pub use tree::{File, Finding, Tree};

/// A check: returns the violations of its rule in the tree.
pub type Check = fn(&Tree) -> Vec<Finding>;

/// All checks, by the name to print.
pub const CHECKS: &[(&str, Check)] = &[
    ("arrows", arrows::check),
    ("layer table", arrows::check_table),
    ("lints", manifests::check_lints),
    ("no-panic header", manifests::check_no_panic),
    ("empty crates", manifests::check_empty),
    ("clocks", clocks::check),
    ("unsafe", unsafety::check),
    ("headers", files::check_headers),
    ("length", files::check_length),
    ("functions", files::check_functions),
    ("machine paths", files::check_paths),
    ("licences", licences::check),
    ("deny.toml", licences::check_deny),
    ("tables", tables::check),
    ("specs", specs::check),
    ("links", links::check),
    ("book", links::check_summary),
    ("invariants", invariants::check),
    ("floor", floor::check),
    ("frames", frames::check),
    ("test helpers", arrows::check_helpers),
    ("circles", circles::check),
    ("folders", folders::check),
    ("test programs", programs::check),
    ("dependencies", dependencies::check),
    ("comment width", comments::check_width),
    ("doc lines", comments::check_openings),
    ("type names", names::check),
    ("function names", functions::check),
    ("parameters", parameters::check),
    ("pages", pages::check),
];
