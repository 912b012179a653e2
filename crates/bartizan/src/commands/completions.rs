// SPDX-License-Identifier: Apache-2.0
//! `bartizan completions SHELL`.

use crate::error::{Exit, Failure};
use clap::CommandFactory;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

/// Prints them.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "bartizan", &mut std::io::stdout());
    Ok(Exit::Done)
}
