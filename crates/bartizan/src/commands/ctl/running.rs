// SPDX-License-Identifier: Apache-2.0
//! Commands to a running program: sent by its socket; prints their results.

use super::running_text;
use bartizan_api::control::{COMMANDS, ControlReply, ControlRequest, command};
use bartizan_runtime::control::{self, client};
use bartizan_runtime::error::{Exit, Failure};
use std::path::PathBuf;
use std::time::Duration;

/// The commands, for the help.
pub fn commands_help() -> String {
    let widest =
        COMMANDS.iter().map(|spec| spec.usage().len()).filter(|width| *width < 34).max().unwrap_or(0);
    let mut text = "Commands to a running program:\n".to_owned();
    for spec in COMMANDS {
        let usage = spec.usage();
        if usage.len() > widest {
            text += &format!("  {usage}\n  {:widest$}  {}\n", "", spec.about);
        } else {
            text += &format!("  {usage:widest$}  {}\n", spec.about);
        }
    }
    text
}

/// The running program, and the time limit of its answer.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Which running program")]
pub struct To {
    /// The program's socket [default: control.socket in /run/bartizan, of other users in their own]; a run
    /// logs its path when it starts.
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// Name of the run: its socket is NAME.socket in the runtime folder, as the unit `bartizan@NAME` has it.
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "socket")]
    pub run: Option<String>,
    /// The longest wait for the answer, in seconds; a reload takes as long as loading rules.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, global = true)]
    pub timeout: u64,
}

/// The first word of commands about functions.
pub const FUNCTION: &str = "function";

/// Joins the words of a command: `function stop NAME` is `function-stop NAME`.
pub fn whole_name(command: &str, mut arguments: Vec<String>) -> (String, Vec<String>) {
    if command != FUNCTION {
        return (command.to_owned(), arguments);
    }
    let rest = arguments.split_off(arguments.len().min(1));
    let verb = arguments.pop().unwrap_or_else(|| "list".to_owned());
    (format!("{FUNCTION}-{verb}"), rest)
}

/// Sends a command by its name.
pub fn run(to: &To, name: &str, arguments: &[String], json: bool) -> Result<Exit, Failure> {
    let spec = command(name).ok_or_else(|| Failure::usage(format!("there is no command `{name}`")))?;
    let request = spec.request(arguments).map_err(Failure::usage)?;
    run_command(to, &request, json)
}

/// Sends a command, and prints its result.
pub fn run_command(to: &To, request: &ControlRequest, json: bool) -> Result<Exit, Failure> {
    let (reply, text) = send_request(to, request)?;
    if json {
        println!("{}", text.trim_end());
        return Ok(if reply.ok { Exit::Done } else { Exit::Input });
    }
    if !reply.ok {
        return Err(Failure::input(running_text::plain(&reply.message)));
    }
    let shown = running_text::answer(&request.command, &reply.message);
    println!("{}", shown.text);
    if !reply.own.is_empty() {
        println!("{}", running_text::own(&reply.own));
    }
    Ok(if shown.found { Exit::Done } else { Exit::Input })
}

/// The answer to a command, and its text.
pub fn send_request(to: &To, request: &ControlRequest) -> Result<(ControlReply, String), Failure> {
    let socket = to.socket.clone().or_else(|| to.run.as_deref().map(control::of_run));
    client::send_request(socket.as_deref(), Duration::from_secs(to.timeout), request)
}
