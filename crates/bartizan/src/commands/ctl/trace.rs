// SPDX-License-Identifier: Apache-2.0
//! `bartizan ctl trace SID`: evaluates the conditions of a rule on the next packets of a running program.

use super::running::{To, send_request};
use super::running_text::plain;
use crate::commands::explain::rule::attempts;
use crate::commands::explain::trace_text;
use bartizan_api::control::ControlRequest;
use bartizan_detect::explain::trace::ATTEMPTS;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::traces::parse_sid;
use bartizan_runtime::traces::{PACKETS, PACKETS_MAX, SECONDS, SECONDS_MAX, TraceAnswer};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Name of the command.
pub const NAME: &str = "trace";

/// Seconds that the answer may take in addition to the time of the trace.
const ANSWER: u64 = 10;

/// Shown below `--help`.
const EXAMPLES: &str = "\
Examples:
  bartizan ctl trace 2019284
  bartizan ctl trace 1:1000001 --packets 1000 --seconds 300
  bartizan ctl trace 1000001 --flow 'tcp 10.0.0.1 192.0.2.7:80'
  bartizan ctl trace 1000001 --tenant acme --json
Over a capture: `bartizan explain rule SID --rules FILE CAPTURE`.";

/// Arguments.
#[derive(clap::Args)]
#[command(about = "Which conditions of a rule hold on the next packets of a running program, and which do not", after_help = EXAMPLES)]
pub struct TraceArgs {
    /// The rule: its sid, or gid:sid.
    #[arg(value_name = "SID", value_parser = parse_sid)]
    rule: (Option<u32>, u32),
    /// End when the rule's head (protocol, direction and state, addresses and ports) has held for so many
    /// packets.
    #[arg(long, value_name = "N", default_value_t = PACKETS, value_parser = clap::value_parser!(u64).range(1..=PACKETS_MAX))]
    packets: u64,
    /// End after so much time as well.
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// The number of attempts to show, those that got furthest first.
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS, value_parser = attempts)]
    attempts: usize,
    /// Only packets of flows that match: a 5-tuple, a part of one, or the `flow_id` of an event.
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,
    /// Only packets of a tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl TraceArgs {
    fn request(&self) -> ControlRequest {
        let (gid, sid) = self.rule;
        let rule = gid.map_or_else(|| sid.to_string(), |gid| format!("{gid}:{sid}"));
        let mut arguments = Map::new();
        arguments.insert("rule".to_owned(), rule.into());
        arguments.insert("packets".to_owned(), self.packets.into());
        arguments.insert("seconds".to_owned(), self.seconds.into());
        arguments.insert("attempts".to_owned(), self.attempts.into());
        for (name, value) in [("flow", &self.flow), ("tenant", &self.tenant)] {
            value.iter().for_each(|value| _ = arguments.insert(name.to_owned(), value.as_str().into()));
        }
        ControlRequest { command: NAME.to_owned(), arguments }
    }
}

/// Traces a rule, and prints the result.
pub fn run(args: &TraceArgs, to: &To, json: bool) -> Result<Exit, Failure> {
    let to = To { timeout: to.timeout.max(args.seconds + ANSWER), ..to.clone() };
    let (reply, text) = send_request(&to, &args.request())?;
    if json {
        println!("{}", text.trim_end());
        return Ok(if reply.ok { Exit::Done } else { Exit::Input });
    }
    if !reply.ok {
        return Err(Failure::input(plain(&reply.message)));
    }
    print!("{}", format_trace(reply.message)?);
    Ok(Exit::Done)
}

/// A trace for people.
fn format_trace(message: Value) -> Result<String, Failure> {
    let answer: TraceAnswer = serde_json::from_value(message).map_err(|error| {
        Failure::stopped(format!(
            "the answer is none of a trace ({error}); is the program of another version?"
        ))
    })?;
    let mut text = String::new();
    for rule in &answer.rules {
        let _ = writeln!(text, "[{}] {}", rule.rule, rule.message);
    }
    let _ = writeln!(
        text,
        "{} packets inspected, {} of them match the rule's header; ended: {}",
        answer.packets, answer.fitting, answer.reason
    );
    if answer.generations.len() > 1 {
        let all: Vec<String> = answer.generations.iter().map(u64::to_string).collect();
        let _ = writeln!(
            text,
            "note: rules were reloaded meanwhile; traced in the generations {}",
            all.join(", ")
        );
    }
    if answer.lost > 0 {
        let _ = writeln!(
            text,
            "note: {} attempts or alerts were lost and are missing below; `--flow` reduces their number",
            answer.lost
        );
    }
    for worker in &answer.late_workers {
        let _ = writeln!(text, "note: worker {worker} has not begun the trace and may hang; see the log");
    }
    let nothing = "the rule was evaluated on no packet: flows whose policy does not have the rule, decided \
         flows and flows at a level below are not inspected (`bartizan ctl explain-flow` shows the state of a \
         flow)";
    trace_text::write(&answer.trace, nothing, &mut text);
    Ok(text)
}
