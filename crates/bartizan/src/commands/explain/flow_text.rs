// SPDX-License-Identifier: Apache-2.0
//! Explanations of flows for people.

use bartizan_agent::explain::{FlowExplanation, FlowQuestion, FunctionAnswer};
use bartizan_dataplane::explain::history::{FlowHistory, Moment};
use bartizan_runtime::explain::flow::ExplainedFlow;
use bartizan_runtime::tuple::{end_text, protocol_name};
use bartizan_stages::chain::LookupExplained;
use serde_json::{Map, Value};
use std::net::IpAddr;

/// The most moments of a flow to print; `--json` has more.
const MOMENTS_SHOWN: usize = 60;

fn title(question: &FlowQuestion) -> String {
    let side =
        |e: Option<(IpAddr, u16)>| e.map(|(address, port)| end_text(address, port)).unwrap_or_default();
    format!(
        "{} {} -> {}",
        protocol_name(question.protocol),
        side(question.source),
        side(question.destination)
    )
}

/// Prints why a flow is treated as it is.
pub fn print_explanation(question: &FlowQuestion, told: &FlowExplanation) {
    println!("{}", title(question));
    explanation(told);
    let verdict = &told.verdict;
    let by = match (verdict.function, verdict.reason, verdict.meaning) {
        (Some(function), Some(reason), Some(meaning)) => format!(" by {function}: {reason}. {meaning}"),
        _ => ": no function drops the first packet".to_owned(),
    };
    println!("verdict   {}{by}", verdict.verdict);
    if told.staged {
        println!("          (the policy is staged: the verdict is only reported)");
    }
}

fn explanation(told: &FlowExplanation) {
    let tenant = &told.tenant;
    let place = tenant.place.as_ref().map(|p| format!(" at {p}")).unwrap_or_default();
    println!("tenant    {} ({}{place})", tenant.name, tenant.why);
    for passed in &told.passed_over {
        println!("  not     policy {} at {}: {}", passed.policy, passed.place, passed.why);
    }
    let policy = &told.policy;
    let fits = match (policy.opened_by, policy.prefixes.as_slice()) {
        (Some(side), [a, b]) => format!(", opened by its `{side}` side: {a} to {b}"),
        _ => ": no policy matches the flow".to_owned(),
    };
    println!("policy    {} at {}{fits}", policy.name, policy.place);
    if let Some(level) = &told.service_level {
        let counts = if level.counts { "" } else { "; it has no effect" };
        println!("service   level {} at {}{counts}", level.level, level.place);
    }
    let chain = if told.path.is_empty() {
        "none: packets are only forwarded".to_owned()
    } else {
        told.path.join(" > ")
    };
    println!("chain     {chain}");
    println!("fid       {}, generation {}, level {}", told.fid, told.generation, told.level);
    lookup(&told.lookup);
    for function in &told.functions {
        answer(function);
    }
    if let Some(disagreement) = &told.disagreement {
        println!("defect    {disagreement}");
    }
}

/// Prints the lookup: the values of the fields that some rule tests, and the matching rules of each set.
fn lookup(told: &LookupExplained) {
    let narrow = told.segments.iter().filter(|segment| segment.values != "any");
    let segments: Vec<String> =
        narrow.map(|segment| format!("{} {}", segment.field.replace('_', " "), segment.values)).collect();
    let all = if segments.is_empty() { "every header alike".to_owned() } else { segments.join(", ") };
    println!("lookup    {all}");
    for set in told.sets.iter().filter(|set| !set.matching.is_empty()) {
        let more = if set.omitted > 0 { format!(" and {} more", set.omitted) } else { String::new() };
        println!("  {:<7} {}{more}", set.set, set.matching.join(", "));
    }
}

fn answer(answer: &FunctionAnswer) {
    let word = if answer.reached { "says" } else { "would say" };
    let reason = answer.reason.map(|r| format!(", {r}")).unwrap_or_default();
    let done = if answer.done && answer.reason.is_none() { "; finished with the flow" } else { "" };
    println!("  {:<7} {word} {}{reason}: {}{done}", answer.function, answer.verdict, answer.why);
    if let Some(place) = &answer.place {
        let text = answer.text.as_ref().map(|t| format!(": {t}")).unwrap_or_default();
        println!("          at {place}{text}");
    }
    for finding in &answer.findings {
        println!("          reports {finding}");
    }
    for (name, value) in &answer.details {
        // Printed above already.
        let above = matches!(name.as_str(), "matched" | "action") || name == "rules" && answer.rule.is_some();
        if !above && !is_empty(value) {
            println!("          {}: {}", name.replace('_', " "), plain(value));
        }
    }
}

/// Whether the value has nothing to print.
fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// A value without JSON syntax.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(pairs) => {
            let filled = pairs.iter().filter(|(_, v)| !is_empty(v));
            let texts = filled.map(|(key, value)| match value {
                Value::Object(_) => format!("{} ({})", key.replace('_', " "), plain(value)),
                _ => format!("{} {}", key.replace('_', " "), plain(value)),
            });
            texts.collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}

fn flow_title(history: &FlowHistory) -> String {
    let ends = &history.ends;
    format!(
        "{} {} -> {}",
        protocol_name(ends.protocol),
        end_text(ends.src_ip, ends.src_port),
        end_text(ends.dest_ip, ends.dest_port)
    )
}

/// Prints the history of a flow.
pub fn print_history(told: &ExplainedFlow, prevention: bool) {
    let history = &told.history;
    println!("{}", flow_title(history));
    if let Some(policy) = &told.policy {
        explanation(policy);
    }
    let app = history.app_proto.map(|a| format!(", {a}")).unwrap_or_default();
    let tcp = history.tcp.map(|t| format!(", tcp {t}")).unwrap_or_default();
    println!(
        "state     {}{tcp}{app}; ended: {}; {:.6} s, packets {} to {} of the capture",
        history.state, history.end, history.seconds, history.frames.0, history.frames.1
    );
    println!(
        "traffic   {} packets, {} bytes to the server; {} packets, {} bytes to the client",
        history.pkts_toserver, history.bytes_toserver, history.pkts_toclient, history.bytes_toclient
    );
    let left = if history.path.is_empty() { "none".to_owned() } else { history.path.join(" > ") };
    println!("left      {left} on the path at the end");
    for part in &history.functions {
        let counts = |map: &std::collections::BTreeMap<&str, u64>| {
            map.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
        };
        let reasons =
            if part.reasons.is_empty() { String::new() } else { format!(" ({})", counts(&part.reasons)) };
        let done = part.done_at.map(|n| format!("; finished with packet {n}")).unwrap_or_default();
        println!(
            "  {:<7} called {} times: {}{reasons}, {} alerts{done}",
            part.function,
            part.header_calls + part.payload_calls,
            counts(&part.verdicts),
            part.alerts
        );
    }
    for alert in &history.alerts {
        println!("alert     {} x [{}] {} ({})", alert.count, alert.rule, alert.message, alert.action);
    }
    let word = if prevention { "dropped" } else { "would be dropped" };
    for refusal in &history.refused {
        let rule = refusal.rule.map(|r| format!(" {r}")).unwrap_or_default();
        println!(
            "{:<9} {} packets by {}: {}{rule}. {}",
            if prevention { "dropped" } else { "refused" },
            refusal.count,
            refusal.function,
            refusal.reason,
            refusal.meaning
        );
    }
    if let Some(allowed) = &history.allowed {
        let rule = allowed.rule.map_or_else(|| "its default".to_owned(), |rule| format!("rule {rule}"));
        match allowed.function {
            Some(function) => println!("allowed   by {function}: {rule}"),
            None => println!("allowed   by default: no function decided"),
        }
    }
    if history.refused.is_empty() {
        println!("none of its packets {}", if prevention { "was dropped" } else { "would be dropped" });
    } else if !prevention {
        println!("          ({word}: this was detection; --ips prevents)");
    }
    println!("history");
    for moment in history.moments.iter().take(MOMENTS_SHOWN) {
        print_moment(moment);
    }
    let more = history.moments.len().saturating_sub(MOMENTS_SHOWN) as u64 + history.omitted;
    if more > 0 {
        println!("  ... and {more} more; --json has up to {}", history.moments.len());
    }
    println!();
}

fn print_moment(moment: &Moment) {
    let packet = moment.packet.map(|n| format!("#{n}")).unwrap_or_default();
    let arrow = match moment.direction {
        Some("to_server") => "->",
        Some(_) => "<-",
        None => "  ",
    };
    let function = moment.function.map(|f| format!("{f} ")).unwrap_or_default();
    println!("  {packet:>7} {:>10.6} {arrow} {:<11} {function}{}", moment.seconds, moment.what, moment.text);
}

/// Prints the flows of a capture, one line each.
pub fn print_list(all: &[ExplainedFlow], prevention: bool) {
    println!("{} flows; --flow shows one in full (a 5-tuple, or the number of a packet)", all.len());
    for told in all {
        let history = &told.history;
        let policy = match &told.policy {
            Some(p) => format!("policy {}, fid {}, {}", p.policy.name, history.fid, p.path.join(" > ")),
            None => "ids".to_owned(),
        };
        let refused: u64 = history.refused.iter().map(|r| r.count).sum();
        let fate = match history.refused.first() {
            None => "passed".to_owned(),
            Some(r) if prevention => format!("{refused} dropped by {} ({})", r.function, r.reason),
            Some(r) => format!("{refused} would be dropped by {} ({})", r.function, r.reason),
        };
        let alerts: u64 = history.alerts.iter().map(|a| a.count).sum();
        println!("#{:<6} {}", history.frames.0, flow_title(history));
        println!(
            "        {policy}; level {}; {}; {} packets; {alerts} alerts; {fate}",
            history.level,
            history.state,
            history.pkts_toserver + history.pkts_toclient
        );
    }
}
