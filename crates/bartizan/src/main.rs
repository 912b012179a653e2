// SPDX-License-Identifier: Apache-2.0
//! The program.

// Before all other modules: its macros replace the standard library's.
#[macro_use]
mod console;

mod arguments;
#[cfg(test)]
mod book;
mod commands;
#[cfg(test)]
mod limits;
mod log;
mod signals;

use bartizan_runtime::allocator::{self, Allocator};
use bartizan_runtime::{error, suricata_line};
use clap::{Parser, Subcommand};
use log::LogArgs;
use std::process::ExitCode;

/// Integrated network security: packet filter, stateful firewall and IDS/IPS in one chain per flow.
///
/// Start with `bartizan inspect --rules FILE CAPTURE` to see the detection engine's results for a capture.
#[derive(Parser)]
#[command(
    name = "bartizan",
    version,
    propagate_version = true,
    disable_version_flag = true,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<CliCommand>,
    #[command(flatten)]
    asked: commands::suricata_cli::Args,
    /// Print the version of this program.
    #[arg(long, global = true, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Inspect capture files and write EVE events.
    #[command(after_help = commands::inspect::EXAMPLES)]
    Inspect(commands::inspect::InspectArgs),
    /// Run on live traffic, inline between two interfaces or passive on one.
    Run(commands::run::RunCommandArgs),
    /// Check rule files and policies: every error with file, line, column and a suggestion.
    #[command(after_help = commands::check::EXAMPLES)]
    Check(commands::check::CheckArgs),
    /// Work with rule feeds: what is missing for one, its rules as drop rules, what an update changes.
    #[command(after_help = commands::rules::EXAMPLES)]
    Rules(commands::rules::RulesArgs),
    /// Explain why a flow is treated as it is, or what the engine made of a rule.
    #[command(
        after_help = "`bartizan explain flow --help` and `bartizan explain rule --help` have examples."
    )]
    Explain(commands::explain::ExplainArgs),
    /// Control and query a controller or a running program: policies, devices, roll-outs; reload, counters,
    /// live flows.
    #[command(after_help = commands::ctl::after_help(), disable_help_subcommand = true)]
    Ctl(commands::ctl::CtlArgs),
    /// Programs on the stream path: start one as a guest, show the guests of a running program.
    #[command(after_help = commands::guest::EXAMPLES)]
    Guest(commands::guest::GuestArgs),
    /// Load header rules or policies and classify headers, or measure the speed of that.
    #[command(after_help = commands::classify::EXAMPLES)]
    Classify(commands::classify::ClassifyArgs),
    /// Certificates of controllers and devices, and tokens for a device's first one.
    #[command(after_help = commands::ca::EXAMPLES)]
    Ca(commands::ca::CaArgs),
    /// Run the controller: tenants, policies, devices and roll-outs behind a REST API.
    #[command(after_help = commands::controller::EXAMPLES)]
    Controller(commands::controller::ControllerArgs),
    /// Print shell completions.
    Completions(commands::completions::CompletionsArgs),
    /// Write man pages into a folder.
    Man(commands::man::ManArgs),
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

impl CliCommand {
    /// The log options of the command.
    fn log(&self) -> LogArgs {
        match self {
            CliCommand::Run(args) => args.log,
            CliCommand::Inspect(args) => args.log,
            CliCommand::Controller(args) => args.log,
            _ => LogArgs::default(),
        }
    }
}

fn main() -> ExitCode {
    allocator::set_up();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are results; wrong usage is a diagnostic with exit code 2.
            if !error.use_stderr() {
                signals::end_with_the_pipe();
                let _ = error.print().inspect_err(console::note);
                return ended(Ok(error::Exit::Done));
            }
            match suricata_line::hint(&arguments()) {
                Some(hint) => eprintln!("bartizan: {hint}"),
                None => {
                    let _ = error.print();
                }
            }
            return error::Exit::Usage.into();
        }
    };
    match cli.command {
        Some(CliCommand::Run(_) | CliCommand::Inspect(_) | CliCommand::Controller(_)) => {}
        Some(CliCommand::Ctl(_) | CliCommand::Ca(_)) => signals::end_with_the_output(),
        _ => signals::end_with_the_pipe(),
    }
    log::install(cli.command.as_ref().map(CliCommand::log).unwrap_or_default());
    let Some(command) = cli.command else {
        return ended(commands::suricata_cli::run(&cli.asked, &arguments()));
    };
    ended(match command {
        CliCommand::Inspect(args) => commands::inspect::run(&args),
        CliCommand::Run(args) => commands::run::run(&args),
        CliCommand::Check(args) => commands::check::run(&args),
        CliCommand::Rules(args) => commands::rules::run(&args),
        CliCommand::Explain(args) => commands::explain::run(&args),
        CliCommand::Ctl(args) => commands::ctl::run(&args),
        CliCommand::Guest(args) => match commands::guest::run(&args) {
            // The exit code is that of the command that it started.
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        CliCommand::Classify(args) => commands::classify::run(&args),
        CliCommand::Ca(args) => commands::ca::run(&args),
        CliCommand::Controller(args) => commands::controller::run(&args),
        CliCommand::Completions(args) => commands::completions::run(&args),
        CliCommand::Man(args) => commands::man::run(&args),
    })
}

/// The arguments after the program's name.
fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn ended(result: Result<error::Exit, error::Failure>) -> ExitCode {
    let exit = match result {
        Ok(exit) => exit,
        Err(failure) => {
            log::last(&failure.to_string());
            failure.exit
        }
    };
    match console::failure() {
        None => exit.into(),
        Some(message) => {
            log::last(&message);
            error::Exit::Stopped.into()
        }
    }
}
