// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl apply`: puts the documents of files in an order that works. It shows the differences
//! first; documents that do not differ are left alone.

use super::access::Whom;
use bartizan_runtime::client::apply::{self, Plan, PlannedDocument};
use bartizan_runtime::client::diff;
use bartizan_runtime::error::{Exit, Failure};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The name of the command.
pub const NAME: &str = "apply";

/// Put a file, or a folder of files, with documents of kind, name and spec; shows the differences first.
#[derive(clap::Args)]
#[command(after_help = FORM)]
pub struct ApplyArgs {
    /// File or folder with documents (*.yaml, *.yml, *.json); may be repeated.
    #[arg(short, long = "file", value_name = "PATH", required = true)]
    file: Vec<PathBuf>,
    /// Only show the differences.
    #[arg(long)]
    dry_run: bool,
}

const FORM: &str = "\
A document:
  kind: policy            # tenant, library, group, policy, device, setting
  tenant: acme            # of groups and policies
  name: web
  spec:                   # as `bartizan ctl policies get acme web` prints it
    order: 10
    policy: {from: lan, chain: [pfw], pfw: {default: drop}}
Files of a library may be named by their paths, seen from the document; they are put first.";

/// Shows the differences, and puts the documents.
pub fn run(args: &ApplyArgs, whom: &Whom, json: bool) -> Result<Exit, Failure> {
    let documents = apply::read(&args.file)?;
    if documents.is_empty() {
        return Err(Failure::input(
            "there are no documents; from a folder, files named *.yaml, *.yml and *.json are read",
        ));
    }
    let mut client = whom.client()?;
    let plan = Plan::of(&mut client, documents)?;
    let (changes, same) = (plan.changes(), plan.same());
    if !json {
        changes.iter().for_each(|one| print(one));
    }
    let generation = plan.put(&mut client, args.dry_run)?;
    if json {
        let changes: Vec<Value> = changes
            .iter()
            .map(|one| json!({ "kind": one.wanted.kind, "tenant": one.wanted.tenant, "name": one.wanted.name, "before": one.before, "after": one.wanted.spec }))
            .collect();
        println!(
            "{:#}",
            json!({ "changes": changes, "same": same, "generation": generation, "dry-run": args.dry_run })
        );
        return Ok(Exit::Done);
    }
    match (changes.len(), args.dry_run, generation) {
        (0, ..) => println!("nothing to change: {same} documents are unchanged"),
        (count, true, _) => println!("{count} would change, {same} are unchanged; nothing was changed"),
        (count, false, generation) => {
            let generation = generation.map(|number| format!("; generation {number}")).unwrap_or_default();
            println!("{count} changed, {same} unchanged{generation}");
        }
    }
    Ok(Exit::Done)
}

/// Prints a document, and its difference from the one in force.
fn print(one: &PlannedDocument) {
    let what = match &one.before {
        None => "new",
        Some(before) if *before == one.wanted.spec => "as it is",
        Some(_) => "changed",
    };
    println!("{}: {what}", one.wanted.title());
    for (hash, path) in &one.missing_files {
        println!("    + rule file {} ({hash})", path.display());
    }
    let lines = diff::documents(one.before.as_ref(), Some(&one.wanted.spec));
    lines.iter().for_each(|line| println!("    {line}"));
}
