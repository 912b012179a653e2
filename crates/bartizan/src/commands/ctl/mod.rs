// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl`: the operator's side of the program. Commands to a controller use its REST API and are
//! made of the controller's own table of routes ([`actions`]); commands to a running program use its socket
//! ([`running`]).

mod access;
mod act;
mod actions;
mod apply;
mod replay;
pub mod running;
mod running_text;
mod show;
mod trace;

use bartizan_api::control::COMMANDS;
use bartizan_config::policy::did_you_mean;
use bartizan_runtime::client::actions::{ResourceAction, resources};
use bartizan_runtime::error::{Exit, Failure};
use clap::{ArgMatches, Args as _, Command, FromArgMatches, Subcommand};

/// Shown below `--help`.
pub fn after_help() -> String {
    running::commands_help() + EXAMPLES
}

const EXAMPLES: &str = "
Examples:
  bartizan ctl policies list acme
  bartizan ctl policies put acme web web.yaml --dry-run
  bartizan ctl apply -f site/                          # a folder of documents; the difference is shown first
  bartizan ctl replay --device edge --with web.yaml eve.json.gz
  bartizan ctl rollouts start --percent 10,50,100
  bartizan ctl alerts acme --follow
  bartizan ctl reload-rules
  bartizan ctl explain-flow tcp 10.0.0.1:40000 192.0.2.7:80
  bartizan ctl trace 2019284 --packets 1000              # why does this rule fire, or not, on live traffic
  bartizan ctl function list
  bartizan ctl function configure portscan ports=10 window=30s
  bartizan ctl --socket /run/bartizan/lan.socket shutdown
Which controller, and the token, can stand in a file: see the manual, page `ctl`.";

/// Arguments.
#[derive(clap::Args)]
pub struct CtlArgs {
    #[command(flatten)]
    to: running::To,
    #[command(flatten)]
    whom: access::Whom,
    /// Print answers unchanged, as JSON.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    #[command(subcommand)]
    what: What,
}

/// A parsed command, by its addressee.
enum What {
    /// A command to a running program, with its arguments.
    Running(String, Vec<String>),
    /// A command to a running program with options of its own.
    Trace(trace::TraceArgs),
    /// An operation of the controller's API, with its arguments.
    Controller(&'static ResourceAction, ArgMatches),
    /// Putting the documents of files.
    Apply(apply::ApplyArgs),
    /// A replay of recorded traffic against a policy.
    Replay(Box<replay::ReplayArgs>),
}

impl FromArgMatches for What {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((name, below)) = matches.subcommand() else {
            return Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand));
        };
        if name == apply::NAME {
            return apply::ApplyArgs::from_arg_matches(below).map(What::Apply);
        }
        if name == replay::NAME {
            return replay::ReplayArgs::from_arg_matches(below).map(|args| What::Replay(Box::new(args)));
        }
        if name == trace::NAME {
            return trace::TraceArgs::from_arg_matches(below).map(What::Trace);
        }
        if let Some((action, matches)) = actions::chosen(name, below) {
            return Ok(What::Controller(action, matches.clone()));
        }
        let arguments = below.try_get_many::<String>(ARGUMENTS).ok().flatten().unwrap_or_default();
        let (name, arguments) = running::whole_name(name, arguments.cloned().collect());
        Ok(What::Running(name, arguments))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = What::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The id of the positional arguments of commands to a running program.
const ARGUMENTS: &str = "ARGUMENT";

impl Subcommand for What {
    fn augment_subcommands(command: Command) -> Command {
        // `ctl --help` lists these commands in a text of its own, with their arguments.
        let listed = |name, about| {
            Command::new(name).about(about).hide(true).arg(clap::Arg::new(ARGUMENTS).num_args(0..))
        };
        let plain = COMMANDS.iter().filter(|spec| spec.name != trace::NAME);
        let running = plain.map(|spec| listed(spec.name, spec.about));
        let function = listed(running::FUNCTION, "functions of a running program: list, health, stop, ...");
        command
            .allow_external_subcommands(true)
            .subcommand_help_heading("Commands to a controller")
            .subcommand(apply::ApplyArgs::augment_args(Command::new(apply::NAME)))
            .subcommand(replay::ReplayArgs::augment_args(Command::new(replay::NAME)))
            .subcommands(actions::commands())
            .subcommands(running)
            .subcommand(trace::TraceArgs::augment_args(Command::new(trace::NAME).hide(true)))
            .subcommand(function)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        What::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        [apply::NAME, replay::NAME].contains(&name)
            || resources().contains(&name)
            || COMMANDS.iter().any(|spec| spec.name == name)
    }
}

/// Runs the command.
pub fn run(args: &CtlArgs) -> Result<Exit, Failure> {
    match &args.what {
        What::Running(name, _) if !What::has_subcommand(name) => {
            let running = COMMANDS.iter().map(|spec| spec.name);
            let known: Vec<&str> = running.chain([apply::NAME, replay::NAME]).chain(resources()).collect();
            let hint = did_you_mean(name, known);
            Err(Failure::usage(format!("there is no command `{name}`; {hint}")))
        }
        What::Running(name, arguments) => running::run(&args.to, name, arguments, args.json),
        What::Trace(wanted) => trace::run(wanted, &args.to, args.json),
        What::Controller(action, matches) => act::run(action, matches, &args.whom, args.json),
        What::Replay(replay) => replay::run(replay, &args.whom, args.json),
        What::Apply(apply) => apply::run(apply, &args.whom, args.json),
    }
}
