// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain rule SID`: what the engine made of a rule.

use super::flow::print_json;
use crate::error::{Exit, Failure};
use crate::load;
use bartizan_base::Generation;
use bartizan_detect::explain::rule::{Condition, RuleExplanation, explain};
use bartizan_rules::{Rule, RuleFile, Severity};
use std::path::PathBuf;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan explain rule 2019284 --rules emerging.rules.gz
  bartizan explain rule 1000001 --rules my.rules --set vars.address-groups.HOME_NET=10.0.0.0/8
  bartizan explain rule 1000001 --rules my.rules --json";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
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
}

fn parse_sid(text: &str) -> Result<(Option<u32>, u32), String> {
    let number = |text: &str| {
        text.parse::<u32>().map_err(|_| format!("`{text}` is no number; write the sid, for example 2019284"))
    };
    match text.split_once(':') {
        Some((gid, sid)) => Ok((Some(number(gid)?), number(sid)?)),
        None => Ok((None, number(text)?)),
    }
}

/// Explains a rule. Exit code 1 when the engine refuses it.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = load::settings(args.suricata_config.as_deref(), &args.overrides)?;
    let mut warnings = Vec::new();
    let base = load::Base::new(&settings, &mut warnings)?;
    let files = load::rule_files(&args.rules)?;
    let (gid, sid) = args.sid;
    let is_it = |rule: &&Rule| rule.id().sid == sid && gid.is_none_or(|gid| rule.id().gid == gid);
    let mut found: Vec<(&RuleFile, &Rule)> =
        files.iter().flat_map(|f| f.rules.iter().map(move |r| (f, r))).filter(|(_, r)| is_it(r)).collect();
    found.sort_by_key(|(_, rule)| rule.id().rev);
    let Some((file, rule)) = found.pop() else { return Err(missing(args, &files)) };
    for (_, other) in &found {
        let (this, place) = (rule.id().rev, format!("{}:{}", other.source.name(), other.line));
        warnings.push(format!(
            "sid {sid} stands at {place} as well, with rev {}; the one with the highest rev, {this}, is shown",
            other.id().rev
        ));
    }
    // Only this rule is compiled: the others change nothing of it but its place in the order.
    let alone = RuleFile {
        rules: vec![rule.clone()],
        refused: Vec::new(),
        diagnostics: Vec::new(),
        diagnostics_dropped: 0,
        ..file.clone()
    };
    let loaded = base.rules(std::slice::from_ref(&alone), &settings, Generation(1))?;
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let Some(signature) = loaded.rules.signatures.first() else {
        let error = loaded.diagnostics.iter().find(|d| d.severity == Severity::Error);
        let text = match error {
            Some(error) => error.render(&alone.source, false),
            None => "what it `requires` is not there, so it is skipped".to_owned(),
        };
        return Err(Failure::input(format!(
            "{}:{}: the engine does not load sid {sid}:\n{text}",
            rule.source.name(),
            rule.line
        )));
    };
    let mut told = explain(&loaded.rules, signature, rule);
    told.warnings.extend(unset_bits(rule, &files));
    for diagnostic in &loaded.diagnostics {
        told.warnings.push(diagnostic.message.clone());
    }
    if args.json {
        print_json(&told)?
    } else {
        print(&told, &String::from_utf8_lossy(rule.raw()))
    }
    Ok(Exit::Done)
}

/// No rule has the sid: say what there is.
fn missing(args: &Args, files: &[RuleFile]) -> Failure {
    let (_, sid) = args.sid;
    for file in files {
        if let Some(refused) = file.refused.iter().find(|r| r.sid == Some(sid)) {
            let name = file.source.name();
            return Failure::input(format!(
                "{name}:{}: sid {sid} cannot be read ({}); `bartizan check {name}` says why",
                refused.line, refused.code
            ));
        }
    }
    let rules: usize = files.iter().map(|f| f.rules.len()).sum();
    let names: Vec<String> = args.rules.iter().map(|p| p.display().to_string()).collect();
    let near = files.iter().flat_map(|f| &f.rules).map(|r| r.id().sid).min_by_key(|s| s.abs_diff(sid));
    let near = near.map(|s| format!("; the nearest is {s}")).unwrap_or_default();
    Failure::input(format!(
        "no rule with sid {sid} among the {rules} of {}{near}. Check the number, or name the file that has it with --rules",
        names.join(", ")
    ))
}

/// Flow bits that the rule asks for and no rule of the files sets.
fn unset_bits(rule: &Rule, files: &[RuleFile]) -> Vec<String> {
    let bits = |rule: &Rule, wanted: &[&str]| -> Vec<String> {
        let mut names = Vec::new();
        for option in rule.iter().filter(|o| o.keyword().eq_ignore_ascii_case("flowbits")) {
            let value = String::from_utf8_lossy(option.value().unwrap_or_default()).into_owned();
            if let Some((command, name)) = value.split_once(',')
                && wanted.contains(&command.trim())
            {
                names.extend(name.split('|').map(|n| n.trim().to_owned()));
            }
        }
        names
    };
    let mut asked = bits(rule, &["isset"]);
    asked.retain(|name| {
        let sets = |other: &Rule| bits(other, &["set", "toggle"]).contains(name);
        !files.iter().flat_map(|f| &f.rules).any(sets)
    });
    let text = |name: &String| {
        format!(
            "flowbit `{name}` is set by no rule of these files: the rule cannot match; add the file that sets it"
        )
    };
    asked.iter().map(text).collect()
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
