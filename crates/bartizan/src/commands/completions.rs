// SPDX-License-Identifier: Apache-2.0
//! `bartizan completions SHELL`.

use crate::say;
use bartizan_runtime::error::{Exit, Failure};
use clap::CommandFactory;
use std::io::Write as _;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

/// Prints them.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // The generator panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "bartizan", &mut text);
    // `say::out` notes a failure, and the program reports it at its end.
    let _ = say::out().write_all(&text);
    Ok(Exit::Done)
}
