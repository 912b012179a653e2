// SPDX-License-Identifier: Apache-2.0
//! Answers of a running program for people.

use bartizan_runtime::tuple::{end_text, protocol_name};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::net::IpAddr;

/// An answer as text.
pub struct AnswerText {
    /// The text, without a final line end.
    pub text: String,
    /// Whether the answer has anything to show.
    pub found: bool,
}

/// A value as text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text of an answer to a command.
pub fn answer(command: &str, message: &Value) -> AnswerText {
    let mut text = String::new();
    let mut found = true;
    match (command, message) {
        ("explain-flow", _) => {
            found = !array(message, "flows").is_empty();
            flows(message, &mut text);
        }
        ("function-list", _) => functions(message, &mut text),
        ("levels", _) => levels(message, &mut text),
        ("command-list" | "help", _) => names(message, "commands", &mut text),
        ("iface-list", _) => names(message, "ifaces", &mut text),
        ("ruleset-failed-rules", _) => failed(message, &mut text),
        (_, Value::Array(all)) => all.iter().for_each(|one| lines("", one, &mut text)),
        (_, Value::Object(_)) => lines("", message, &mut text),
        (_, other) => text = plain(other),
    }
    text.truncate(text.trim_end().len());
    AnswerText { text, found }
}

/// The members of an answer that Suricata does not have, each as a line of dotted name and value.
pub fn own(own: &Map<String, Value>) -> String {
    let mut text = String::new();
    lines("", &Value::Object(own.clone()), &mut text);
    text.truncate(text.trim_end().len());
    text
}

fn array<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

fn names(message: &Value, key: &str, text: &mut String) {
    for name in array(message, key) {
        let _ = writeln!(text, "{}", plain(name));
    }
}

/// Writes each value after its dotted name.
fn lines(before: &str, value: &Value, text: &mut String) {
    let Value::Object(object) = value else {
        let _ = writeln!(text, "{before} {}", plain(value));
        return;
    };
    for (name, value) in object {
        let name = if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
        match value {
            Value::Array(all) => all.iter().for_each(|one| lines(&name, one, text)),
            other => lines(&name, other, text),
        }
    }
}

fn functions(message: &Value, text: &mut String) {
    for function in array(message, "functions") {
        let (name, state, reason) =
            (word(function, "function"), word(function, "state"), word(function, "reason"));
        let (failures, restarts) = (number(function, "failures"), number(function, "restarts"));
        let _ = write!(text, "{name:<12} {state:<8} failures {failures}, restarts {restarts}");
        let _ = if reason.is_empty() { writeln!(text) } else { writeln!(text, "  ({reason})") };
    }
    for worker in array(message, "late_workers") {
        let _ = writeln!(text, "worker {} has not answered", plain(worker));
    }
}

fn failed(message: &Value, text: &mut String) {
    for rule in message.as_array().into_iter().flatten() {
        let _ = match rule.get("omitted") {
            Some(more) => writeln!(text, "... and {more} more"),
            None => {
                writeln!(text, "{}:{}: {}", word(rule, "filename"), number(rule, "line"), word(rule, "error"))
            }
        };
    }
    if text.is_empty() {
        text.push_str("no rule failed");
    }
}

fn levels(message: &Value, text: &mut String) {
    let _ = writeln!(text, "{} flows", number(message, "flows"));
    for (level, flows) in message.get("levels").and_then(Value::as_object).into_iter().flatten() {
        let _ = writeln!(text, "  {level:<6} {flows}");
    }
    if number(message, "moving") > 0 {
        let _ = writeln!(text, "  {} of them are on their way to a level or back", number(message, "moving"));
    }
    let stays = message.get("stays").and_then(Value::as_object);
    if stays.is_some_and(|stays| !stays.is_empty()) {
        text.push_str("why those of the host are not lower:\n");
    }
    for (code, why) in stays.into_iter().flatten() {
        let _ = writeln!(text, "  {:>10} {code}: {}", number(why, "flows"), word(why, "meaning"));
    }
    for (level, device) in message.get("devices").and_then(Value::as_object).into_iter().flatten() {
        level_device(level, device, text);
    }
    late(message, text);
}

/// Writes the capabilities of a level's devices, and the entries that they hold.
fn level_device(level: &str, device: &Value, text: &mut String) {
    let (entries, room) = (number(device, "entries"), number(device, "room"));
    let _ =
        writeln!(text, "{level}: {entries} of {room} entries; asked for {} flows", number(device, "offered"));
    for (why, flows) in device.get("refused").and_then(Value::as_object).into_iter().flatten() {
        let _ = writeln!(text, "  {:>10} refused: {why}", plain(flows));
    }
    for (name, key) in [
        ("holds", "families"),
        ("key", "key"),
        ("tunnels", "tunnels"),
        ("does", "actions"),
        ("counts", "counts"),
    ] {
        let all: Vec<String> = array(device, key).iter().map(plain).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let _ = writeln!(text, "  {name:<9} {all}");
    }
    let rate = device.get("insert_rate").and_then(Value::as_u64);
    let rate = rate.map_or("not known yet".to_owned(), |rate| format!("{rate} entries a second"));
    let _ = writeln!(text, "  {:<9} {rate}", "inserts");
    let can = |key: &str| device.get(key).and_then(Value::as_bool).unwrap_or(false);
    let aged = device.get("ageing_ms").and_then(Value::as_u64);
    let aged = aged.map_or("does not tell".to_owned(), |after| format!("tells after {after} ms"));
    let does = |does: bool| if does { "yes" } else { "no" };
    let _ = writeln!(text, "  {:<9} {aged}", "silence");
    let _ = writeln!(text, "  {:<9} {}", "windows", does(can("windows")));
    let _ = writeln!(text, "  {:<9} {}", "updates", does(can("updates")));
}

/// Appends the workers that have not answered.
fn late(message: &Value, text: &mut String) {
    let late: Vec<String> = array(message, "late_workers").iter().map(plain).collect();
    if !late.is_empty() {
        let _ = writeln!(text, "workers that have not answered: {}", late.join(", "));
    }
}

fn flows(message: &Value, text: &mut String) {
    let all = array(message, "flows");
    if all.is_empty() {
        text.push_str("no open flow matches; ended flows are in the events of type `flow`\n");
    }
    for (at, flow) in all.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        self::flow(flow, text);
    }
    if number(message, "omitted") > 0 {
        let _ = writeln!(
            text,
            "\n... and {} more flows; describe the flow more precisely",
            number(message, "omitted")
        );
    }
    late(message, text);
}

fn flow(flow: &Value, text: &mut String) {
    let ends = flow.get("ends").unwrap_or(&Value::Null);
    let end = |address: &str, port: &str| {
        let port = u16::try_from(number(ends, port)).unwrap_or(0);
        match word(ends, address).parse::<IpAddr>() {
            Ok(parsed) => end_text(parsed, port),
            Err(_) => word(ends, address).to_owned(),
        }
    };
    let protocol = protocol_name(u8::try_from(number(ends, "protocol")).unwrap_or(0));
    let _ = writeln!(text, "{protocol} {} -> {}", end("src_ip", "src_port"), end("dest_ip", "dest_port"));
    let mut line = |name: &str, what: String| _ = writeln!(text, "{name:<9} {what}");
    line(
        "flow",
        format!(
            "{}, link {}, worker {}, tenant {}",
            number(flow, "flow_id"),
            flow.get("link").map(plain).unwrap_or_default(),
            number(flow, "worker"),
            number(flow, "tenant")
        ),
    );
    let (of, running) = (number(flow, "generation"), number(flow, "running"));
    let generation = if of == running {
        format!("generation {of}")
    } else {
        format!(
            "classified by generation {of}; generation {running} is running and evaluates its next \
             packet"
        )
    };
    let staged = if flow.get("staged").is_some() { ", staged: its verdicts are only reported" } else { "" };
    line("policy", format!("{} (fid {}){staged}, {generation}", word(flow, "policy"), number(flow, "fid")));
    line("chain", chain(flow));
    let more = ["tcp", "app_proto"].map(|key| word(flow, key)).into_iter().filter(|word| !word.is_empty());
    line("state", std::iter::once(word(flow, "state")).chain(more).collect::<Vec<_>>().join(", "));
    standing(flow).into_iter().for_each(|(name, what)| line(name, what));
    levels_of(flow).into_iter().for_each(|(name, what)| line(name, what));
}

fn chain(flow: &Value) -> String {
    let names = |key| array(flow, key).iter().map(plain).collect::<Vec<_>>();
    let (chain, path) = (names("chain"), names("path"));
    if chain.is_empty() {
        return "none: packets are only forwarded".to_owned();
    }
    let left = if path.is_empty() {
        "no function inspects it any more".to_owned()
    } else {
        format!("inspecting: {}", path.join(", "))
    };
    format!("{}; {left}", chain.join(" > "))
}

/// The flow's disposition, and the functions that decided it.
fn standing(flow: &Value) -> Vec<(&'static str, String)> {
    let with_rule = |by: &Value| match by.get("rule").filter(|rule| !rule.is_null()) {
        Some(rule) => format!("{}, rule {rule}", word(by, "function")),
        None => word(by, "function").to_owned(),
    };
    let mut told = vec![match (word(flow, "course"), flow.get("refused")) {
        (_, Some(by)) => (
            "standing",
            format!(
                "{} by {}: {}. {}",
                word(by, "verdict"),
                with_rule(by),
                word(by, "reason"),
                word(by, "meaning")
            ),
        ),
        ("bypassed", _) => ("standing", "bypassed: its packets are forwarded without inspection".to_owned()),
        ("uninspected", _) => {
            ("standing", "uninspected: an exception policy forwards its packets".to_owned())
        }
        _ if array(flow, "path").is_empty() => {
            ("standing", "forwarded: no function is left on its path".to_owned())
        }
        _ => ("standing", "inspected: the functions on its path evaluate each packet".to_owned()),
    }];
    if let Some(by) = flow.get("allowed") {
        let by = match by.get("function").and_then(Value::as_str) {
            Some(_) => with_rule(by),
            None => "default: no function decides".to_owned(),
        };
        told.push(("", format!("allowed by {by}")));
    }
    for name in array(flow, "names") {
        let left = number(name, "until") as f64 - flow.get("now").and_then(Value::as_f64).unwrap_or_default();
        let (address, of, asked) = (word(name, "address"), word(name, "name"), word(name, "asked"));
        told.push((
            "name",
            format!("{address} is a member of `{of}` for {left:.0} s more, by an answer for {asked}"),
        ));
    }
    told
}

/// The flow's level, since when, the reasons against a lower one, and the counters of each level.
fn levels_of(flow: &Value) -> Vec<(&'static str, String)> {
    let time = |key: &str| flow.get(key).and_then(Value::as_f64);
    let ago = |then: f64| format!("{:.1} s", (time("now").unwrap_or(then) - then).max(0.0));
    let since = time("since").map(|since| format!(" for {}", ago(since))).unwrap_or_default();
    let step = match word(flow, "step") {
        "host" | "active" => String::new(),
        "back" => ", back from a level below".to_owned(),
        step => format!(", on its way ({step})"),
    };
    let mut told = vec![("level", format!("{}{since}{step}", word(flow, "level")))];
    if let Some(why) = flow.get("stays") {
        told.push(("", format!("not lower: {}: {}", word(why, "code"), word(why, "meaning"))));
    }
    for (level, counted) in flow.get("levels").and_then(Value::as_object).into_iter().flatten() {
        let of = |key| number(counted, key);
        told.push((
            "counted",
            format!(
                "{level}: {} packets, {} bytes to the server; {} packets, {} bytes to the client",
                of("pkts_toserver"),
                of("bytes_toserver"),
                of("pkts_toclient"),
                of("bytes_toclient")
            ),
        ));
    }
    let (start, last) = (time("start").unwrap_or(0.0), time("last").unwrap_or(0.0));
    told.push(("seen", format!("first {} ago, last {} ago", ago(start), ago(last))));
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_texts_for_people() {
        let text = |command: &str, message: Value| answer(command, &message).text;
        assert_eq!(text("reload-rules", json!("done")), "done");
        assert_eq!(text("uptime", json!(12)), "12");
        assert_eq!(text("iface-list", json!({"count": 2, "ifaces": ["a", "b"]})), "a\nb");
        assert_eq!(text("dump-counters", json!({"uptime": 1, "tcp": {"syn": 2}})), "uptime 1\ntcp.syn 2");
        assert_eq!(text("ruleset-stats", json!([{"id": 0, "rules_loaded": 3}])), "id 0\nrules_loaded 3");
        let rule = json!({"filename": "a.rules", "line": 3, "error": "no"});
        assert_eq!(
            text("ruleset-failed-rules", json!([rule, {"omitted": 2}])),
            "a.rules:3: no\n... and 2 more"
        );
        assert_eq!(text("ruleset-failed-rules", json!([])), "no rule failed");
        let none = answer("explain-flow", &json!({"count": 0, "flows": [], "late_workers": [1]}));
        assert!(!none.found && none.text.ends_with("workers that have not answered: 1"), "{}", none.text);
    }

    #[test]
    fn a_level_is_told_with_what_its_devices_can_do() {
        let device = json!({
            "workers": 2, "room": 100, "entries": 7, "offered": 9, "refused": {"full": 2}, "insert_rate": 900_000,
            "families": ["ipv4"], "protocols": [6, 17], "tunnels": [], "key": ["addresses", "ports"], "windows": true,
            "actions": ["forward"], "counts": ["packets", "bytes"], "updates": false, "ageing_ms": null,
        });
        let shown = answer(
            "levels",
            &json!({"flows": 9, "levels": {"host": 2, "rtl": 7}, "devices": {"rtl": device}}),
        );
        for line in [
            "rtl: 7 of 100 entries; asked for 9 flows",
            "           2 refused: full",
            "  holds     ipv4",
            "  key       addresses, ports",
            "  tunnels   none",
            "  does      forward",
            "  counts    packets, bytes",
            "  inserts   900000 entries a second",
            "  silence   does not tell",
            "  windows   yes",
            "  updates   no",
        ] {
            assert!(shown.text.lines().any(|found| found == line), "{line}\n{}", shown.text);
        }
    }

    #[test]
    fn a_flow_is_told_with_what_is_decided_and_where_it_is() {
        let flow = json!({
            "flow_id": 7, "worker": 1, "link": "wan", "tenant": 0, "fid": 3, "policy": "all", "generation": 1, "running": 2,
            "ends": {"protocol": 17, "src_ip": "2001:db8::1", "src_port": 5, "dest_ip": "2001:db8::2", "dest_port": 53},
            "chain": ["pfw", "ids"], "path": [], "state": "bypassed", "course": "bypassed", "level": "xdp", "step": "active",
            "names": [{"address": "2001:db8::2", "name": "*.example.com", "asked": "api.example.com", "until": 42}],
            "allowed": {"function": "ids", "rule": 2}, "since": 10.0, "start": 5.0, "last": 11.5, "now": 12.0,
            "levels": {"host": {"pkts_toserver": 2, "bytes_toserver": 99}, "xdp": {"pkts_toserver": 50}},
        });
        let shown =
            answer("explain-flow", &json!({"count": 1, "flows": [flow], "omitted": 0, "late_workers": []}));
        for line in [
            "udp [2001:db8::1]:5 -> [2001:db8::2]:53",
            "flow      7, link wan, worker 1, tenant 0",
            "policy    all (fid 3), classified by generation 1; generation 2 is running and evaluates its next packet",
            "chain     pfw > ids; no function inspects it any more",
            "standing  bypassed: its packets are forwarded without inspection",
            "          allowed by ids, rule 2",
            "name      2001:db8::2 is a member of `*.example.com` for 30 s more, by an answer for api.example.com",
            "level     xdp for 2.0 s",
            "counted   host: 2 packets, 99 bytes to the server; 0 packets, 0 bytes to the client",
            "seen      first 7.0 s ago, last 0.5 s ago",
        ] {
            assert!(shown.text.lines().any(|found| found == line), "{line}\n{}", shown.text);
        }
        let by_default = json!({"path": [], "course": "judged", "allowed": {"function": null, "rule": null}});
        let shown = answer("explain-flow", &json!({"count": 1, "flows": [by_default]}));
        assert!(shown.text.contains("allowed by default: no function decides\n"), "{}", shown.text);
    }
}
