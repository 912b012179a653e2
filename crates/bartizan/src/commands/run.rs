// SPDX-License-Identifier: Apache-2.0
//! `bartizan run`: runs the stack on live traffic, on links inline between two interfaces or passive on one.

use crate::arguments::RunArgs;
use crate::log::LogArgs;
use crate::{console, signals};
use bartizan_events::harmless;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::run;
use std::io::Write as _;

/// Arguments.
#[derive(clap::Args)]
pub struct RunCommandArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Log lines.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Runs until a signal.
pub fn run(args: &RunCommandArgs) -> Result<Exit, Failure> {
    let outcome = run::run(&args.run.options(), signals::install()?)?;
    let text = harmless(&outcome.summary);
    // `say` notes a failed write to standard output, and the program reports it at its end; a failure of
    // standard error cannot be reported.
    let _ = match outcome.stdout_taken {
        true => std::io::stderr().write_all(text.as_bytes()),
        false => console::out().write_all(text.as_bytes()),
    };
    match outcome.failure {
        Some(failure) => Err(failure),
        None if outcome.is_complete => Ok(Exit::Done),
        None => Ok(Exit::Stopped),
    }
}
