// SPDX-License-Identifier: Apache-2.0
//! `bartizan completions SHELL`: prints shell completions.

use crate::console;
use bartizan_runtime::error::{Exit, Failure};
use clap::CommandFactory;
use std::io::Write as _;

/// Arguments.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    // Written to memory first, because the generator panics on a write error.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "bartizan", &mut text);
    // `console::out` notes a failure, and the program reports it at its end.
    let _ = console::out().write_all(&text);
    Ok(Exit::Done)
}
