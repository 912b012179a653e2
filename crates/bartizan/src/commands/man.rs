// SPDX-License-Identifier: Apache-2.0
//! `bartizan man DIR`: writes man pages.

use bartizan_runtime::error::{Exit, Failure};
use clap::CommandFactory;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder to write the pages into; it must exist.
    dir: PathBuf,
}

/// Writes one page per command.
pub fn run(args: &ManArgs) -> Result<Exit, Failure> {
    clap_mangen::generate_to(crate::Cli::command(), &args.dir).map_err(|error| {
        Failure::stopped(format!(
            "cannot write man pages to {}: {error}; the folder must exist and be writable",
            args.dir.display()
        ))
    })?;
    Ok(Exit::Done)
}
