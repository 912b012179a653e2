// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain rule SID`: the compiled form of a rule, and with captures the reason why it matched or
//! did not.

use super::flow::print_json;
use super::trace_text;
use crate::console;
use bartizan_detect::explain::rule::{Condition, RuleExplanation};
use bartizan_detect::explain::trace::{ATTEMPTS, ATTEMPTS_MAX};
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::explain::rule::{self, RuleOptions};
use bartizan_runtime::log::Report;
use bartizan_runtime::traces::parse_sid;
use std::path::PathBuf;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan explain rule 2019284 --rules emerging.rules.gz
  bartizan explain rule 1000001 --rules my.rules --set vars.address-groups.HOME_NET=10.0.0.0/8
  bartizan explain rule 1000001 --rules my.rules capture.pcap           # why it matched, or did not
  bartizan explain rule 1000001 --rules my.rules --json";

/// Arguments.
#[derive(clap::Args)]
pub struct ExplainRuleArgs {
    /// The rule: its sid, or gid:sid.
    #[arg(value_name = "SID", value_parser = parse_sid)]
    sid: (Option<u32>, u32),
    /// Rule file (may be repeated); plain, gzip or zstd.
    #[arg(long, value_name = "FILE", required = true)]
    rules: Vec<PathBuf>,
    /// A suricata.yaml with the variables that the rules use.
    #[arg(long, value_name = "FILE")]
    suricata_config: Option<PathBuf>,
    /// Override one setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// With captures: the number of attempts to show, those that got furthest first.
    #[arg(long, value_name = "N", default_value_t = ATTEMPTS, value_parser = attempts)]
    attempts: usize,
    /// Captures: evaluates each condition on every packet, stream and transaction, and shows the first that
    /// did not hold.
    #[arg(value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
}

/// Parses the number of attempts to show.
pub fn attempts(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= ATTEMPTS_MAX);
    number.ok_or_else(|| format!("`{text}` is not a number from 0 to {ATTEMPTS_MAX}"))
}

/// Explains a rule. Exit code 1 when the engine refuses it.
pub fn run(args: &ExplainRuleArgs) -> Result<Exit, Failure> {
    let options = RuleOptions {
        sid: args.sid,
        rules: args.rules.clone(),
        suricata_config: args.suricata_config.clone(),
        overrides: args.overrides.clone(),
        captures: args.captures.clone(),
        attempts: args.attempts,
        report: Report::to(console::notes),
    };
    let explained = rule::explained(&options)?;
    if args.json {
        let mut json = serde_json::to_value(&explained.explanation).map_err(Failure::stopped)?;
        if let (Some(json), Some(trace)) = (json.as_object_mut(), &explained.trace) {
            json.insert("trace".to_owned(), serde_json::to_value(trace).map_err(Failure::stopped)?);
        }
        print_json(&json)?;
    } else {
        print(&explained.explanation, &explained.text);
        if let Some(trace) = &explained.trace {
            let mut text = String::new();
            let nothing =
                "the captures have nothing that the rule is evaluated on (see `about` and `on` above)";
            trace_text::write(trace, nothing, &mut text);
            print!("\n{text}");
        }
    }
    Ok(Exit::Done)
}

fn print(told: &RuleExplanation, text: &str) {
    println!("[{}] {}", told.rule, told.message);
    println!("  {text}");
    println!("place      {}", told.place);
    println!("action     {}, priority {}; a match acts on the {}", told.action, told.priority, told.acts_on);
    println!("about      {}", told.about);
    for on in &told.evaluated_on {
        println!("  on       {on}");
    }
    let head = &told.head;
    let way = if head.bidirectional { "<>" } else { "->" };
    println!(
        "head       {} {} {} {way} {} {}",
        head.protocol, head.source, head.source_ports, head.destination, head.destination_ports
    );
    let mut needs = vec![head.directions.join(" and ")];
    needs.extend(head.state.map(str::to_owned));
    if !head.app_protocols.is_empty() {
        needs.push(format!("application protocol {}", head.app_protocols.join(" or ")));
    }
    if let Some(version) = head.ip_version {
        needs.push(format!("IPv{version}"));
    }
    println!("  needs    {}", needs.join("; "));
    let prefilter = &told.prefilter;
    match (&prefilter.pattern, prefilter.buffer) {
        (Some(pattern), Some(buffer)) => {
            let nocase = if prefilter.nocase == Some(true) { ", in any letter case" } else { "" };
            println!("prefilter  {pattern} in {buffer}{nocase}: {}", prefilter.why);
        }
        _ => println!("prefilter  {}: {}", prefilter.engine, prefilter.why),
    }
    for other in &prefilter.others {
        println!("  not      {other}");
    }
    println!("  group    {}", prefilter.groups.join("; "));
    println!("conditions, in the order of evaluation");
    for (number, condition) in told.conditions.iter().enumerate() {
        print_condition(number + 1, condition);
    }
    if !told.effects.is_empty() {
        println!("when all hold");
        for (number, effect) in told.effects.iter().enumerate() {
            print_condition(number + 1, effect);
        }
    }
    for warning in &told.warnings {
        println!("warning    {warning}");
    }
}

fn print_condition(number: usize, condition: &Condition) {
    let transforms = if condition.transforms.is_empty() {
        String::new()
    } else {
        format!(" after {}", condition.transforms.join(", "))
    };
    println!("  {number:>2} {:<11} {}{transforms}: {}", condition.kind, condition.name, condition.text);
}
