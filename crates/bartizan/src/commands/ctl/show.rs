// SPDX-License-Identifier: Apache-2.0
//! Answers of a controller for people: lists as tables, documents as YAML that can be put again, changes as
//! differences.

use bartizan_base::Timestamp;
use bartizan_events::harmless_line;
use bartizan_events::time_text;
use bartizan_runtime::client::{diff, yaml};
use serde_json::Value;
use std::fmt::Write as _;

/// A column: its head, and its JSON pointer in an item.
type Column = (&'static str, &'static str);

/// The columns of each resource's list.
const COLUMNS: &[(&str, &[Column])] = &[
    (
        "tenants",
        &[
            ("NAME", "/name"),
            ("GENERATION", "/generation"),
            ("ORDER", "/spec/order"),
            ("SELECT", "/spec/select"),
            ABOUT,
        ],
    ),
    (
        "policies",
        &[
            ("NAME", "/name"),
            ("GENERATION", "/generation"),
            ("ORDER", "/spec/order"),
            ("FROM", "/spec/policy/from"),
            ("TO", "/spec/policy/to"),
            ("CHAIN", "/spec/policy/chain"),
            ("STAGED", "/spec/policy/staged"),
            ABOUT,
        ],
    ),
    ("groups", &[("NAME", "/name"), ("GENERATION", "/generation"), ("MEMBERS", "/spec/members"), ABOUT]),
    (
        "devices",
        &[
            ("NAME", "/name"),
            ("TENANTS", "/spec/tenants"),
            ("LABELS", "/spec/labels"),
            ("FOLLOW", "/spec/follow"),
            ("STATE", "/status/state"),
            ("WANTED", "/status/wanted"),
            ("RUNNING", "/status/running"),
            ("HEALTH", "/status/health"),
            ("HELD-BACK", "/status/held-back"),
            ("SEEN", "/status/seen"),
        ],
    ),
    ("libraries", &[("NAME", "/name"), ("GENERATION", "/generation"), ("FILES", "/spec/files"), ABOUT]),
    (
        "rule-files",
        &[
            ("NAME", "/name"),
            ("FILE", "/file-name"),
            ("BYTES", "/bytes"),
            ("RULES", "/rules"),
            ("REFUSED", "/refused"),
        ],
    ),
    ("settings", &[("NAME", "/name"), ("GENERATION", "/generation"), ("SAYS", "/spec")]),
    (
        "rollouts",
        &[
            ("NAME", "/name"),
            ("GENERATION", "/spec/generation"),
            ("STATE", "/spec/state"),
            ("STEP", "/spec/step"),
            ("DEVICES", "/spec/plan"),
            ("REFUSED", "/spec/refusals"),
        ],
    ),
    (
        "tokens",
        &[
            ("ID", "/id"),
            ("NAME", "/name"),
            ("SCOPE", "/scope"),
            ("TENANT", "/tenant"),
            ("DEVICE", "/device"),
            ("CREATED", "/created"),
            ("EXPIRES", "/expires"),
        ],
    ),
    (
        "alerts",
        &[
            ("NUMBER", "/number"),
            ("LAST", "/last"),
            ("TENANT", "/tenant"),
            ("COUNT", "/count"),
            ("RULE", "/event/alert/signature_id"),
            ("FROM", "/event/src_ip"),
            ("TO", "/event/dest_ip"),
            ("PORT", "/event/dest_port"),
            ("ACTION", "/event/alert/action"),
            ("MESSAGE", "/event/alert/signature"),
        ],
    ),
    (
        "audit",
        &[
            ("ROW", "/row"),
            ("GENERATION", "/generation"),
            ("AT", "/at"),
            ("WHO", "/name"),
            ("TOKEN", "/who"),
            ("ACTION", "/action"),
            ("KIND", "/kind"),
            ("NAME", "/id"),
        ],
    ),
];
const ABOUT: Column = ("DESCRIPTION", "/spec/description");
/// Columns that are times, in microseconds since 1970.
const TIMES: &[&str] = &["AT", "CREATED", "EXPIRES", "FIRST", "LAST", "SEEN"];
/// Keys of answers that are times.
const TIME_KEYS: &[&str] =
    &["answered", "asked", "at", "created", "expires", "first", "last", "newest", "seen", "since"];
/// The most characters of a cell.
const CELL: usize = 60;

/// A list as a table; `head`: with the names of the columns.
pub fn table(resource: &str, items: &[Value], head: bool) -> String {
    let found = COLUMNS.iter().find(|(name, _)| *name == resource).map(|(_, columns)| *columns);
    let columns: Vec<(String, String)> = match found {
        Some(columns) => columns.iter().map(|(head, at)| ((*head).to_owned(), (*at).to_owned())).collect(),
        None => own_columns(items),
    };
    let cells = |item: &Value| -> Vec<String> {
        columns.iter().map(|(head, at)| cell(head, item.pointer(at))).collect()
    };
    let heads = head.then(|| columns.iter().map(|(head, _)| head.clone()).collect());
    let rows: Vec<Vec<String>> = heads.into_iter().chain(items.iter().map(cells)).collect();
    aligned(&rows)
}

/// The columns of a resource without columns of its own: the scalar keys of its first item.
fn own_columns(items: &[Value]) -> Vec<(String, String)> {
    let keys = items.first().and_then(Value::as_object).into_iter().flatten();
    let plain = keys.filter(|(_, value)| !value.is_object());
    plain.map(|(key, _)| (key.to_ascii_uppercase(), format!("/{key}"))).collect()
}

/// Rows with their columns below one another.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn cell(head: &str, value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Number(number)) if TIMES.contains(&head) => {
            number.as_u64().filter(|at| *at > 0).map_or_else(|| "-".to_owned(), time)
        }
        Some(value) => brief(value),
    };
    let text = if text.is_empty() { "-".to_owned() } else { text };
    let short = match text.char_indices().nth(CELL) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    };
    harmless_line(&short).into_owned()
}

/// The value with each time as RFC 3339, by the names of keys that hold times.
fn with_times(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(with_times).collect(),
        Value::Object(pairs) => {
            let of = |(key, value): (&String, &Value)| {
                let is_time = TIME_KEYS.contains(&key.as_str());
                let micros = value.as_u64().filter(|_| is_time).and_then(micros_of);
                (key.clone(), micros.map_or_else(|| with_times(value), |micros| Value::from(time(micros))))
            };
            Value::Object(pairs.iter().map(of).collect())
        }
        other => other.clone(),
    }
}

/// Converts a time in seconds or microseconds to microseconds since 1970; `None` if the number is no time: 0
/// means not yet.
fn micros_of(number: u64) -> Option<u64> {
    match number {
        SECONDS_FROM..SECONDS_TO => number.checked_mul(1_000_000),
        MICROS_FROM.. => Some(number),
        _ => None,
    }
}

/// The numbers that are times: in seconds from 2001 to 5138, in microseconds from 2001 on.
const SECONDS_FROM: u64 = 1_000_000_000;
const SECONDS_TO: u64 = 100_000_000_000;
const MICROS_FROM: u64 = 1_000_000_000_000_000;

fn time(micros: u64) -> String {
    let text = time_text(Timestamp::from_nanos(micros.saturating_mul(1_000)));
    // Cut to seconds, for readability.
    text.get(..19).map_or_else(|| text.clone(), |text| format!("{text}Z"))
}

fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(brief).collect::<Vec<_>>().join(","),
        Value::Object(pairs) => {
            pairs.iter().map(|(key, value)| format!("{key}={}", brief(value))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// A document: its specification as YAML, its status as comments.
pub fn document(answer: &Value) -> String {
    let Some(spec) = answer.get("spec") else { return yaml::text(&with_times(answer)) };
    let mut text = String::new();
    let name = answer.get("name").map(brief).unwrap_or_default();
    let generation = answer.get("generation").map(brief).unwrap_or_default();
    let _ = writeln!(text, "# {name}, written by generation {generation}");
    text += &yaml::text(spec);
    if let Some(status) = answer.get("status") {
        let _ = writeln!(text, "# status:");
        yaml::text(&with_times(status)).lines().for_each(|line| _ = writeln!(text, "#   {line}"));
    }
    text
}

/// The effects of a change, or of a dry run.
pub fn outcome(outcome: &Value, dry: bool) -> String {
    let mut text = String::new();
    let changes = outcome.get("changes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let generation = outcome.get("generation").map(brief).unwrap_or_default();
    for change in changes {
        let of = |key: &str| change.get(key).filter(|value| !value.is_null());
        let what = match (of("before"), of("after")) {
            (None, Some(_)) => "new",
            (Some(_), None) => "gone",
            _ => "changed",
        };
        let name = |key: &str| change.get(key).map(brief).unwrap_or_default();
        let _ = writeln!(text, "{} {}: {what}", name("kind"), name("id"));
        diff::documents(of("before"), of("after")).iter().for_each(|line| _ = writeln!(text, "    {line}"));
    }
    let devices = outcome.get("devices").map(brief).unwrap_or_default();
    match (changes.is_empty() && devices.is_empty(), dry) {
        (true, _) => _ = writeln!(text, "nothing to change; generation {generation} is current"),
        (_, true) => _ = writeln!(text, "would be generation {generation}; nothing was changed"),
        (_, false) => _ = writeln!(text, "generation {generation}"),
    }
    if !devices.is_empty() {
        let word = if dry { "would run" } else { "are to run" };
        let _ = writeln!(text, "devices that {word} it at once: {}", devices.replace(',', ", "));
    }
    for note in outcome.get("notes").and_then(Value::as_array).into_iter().flatten() {
        let _ = writeln!(text, "note: {}", harmless_line(&brief(note)));
    }
    for (device, answer) in outcome.get("answers").and_then(Value::as_object).into_iter().flatten() {
        let of = |key: &str| answer.get(key).map(brief).unwrap_or_default();
        let content =
            answer.pointer("/content/manifest").and_then(Value::as_str).and_then(|hash| hash.get(..12));
        let content = content.map_or(String::new(), |hash| format!(", content {hash}"));
        let _ = writeln!(text, "  {device}: {}, runs generation {}{content}", of("state"), of("running"));
        diagnostics(&mut text, answer);
        for (tenant, held) in answer.get("held-back").and_then(Value::as_object).into_iter().flatten() {
            let runs = held.get("runs").map(brief).unwrap_or_default();
            let _ = writeln!(text, "    held back of {tenant}, which runs as in generation {runs}:");
            diagnostics(&mut text, held);
        }
    }
    text
}

/// Appends the diagnostics that say why an object is not as wanted.
fn diagnostics(text: &mut String, of: &Value) {
    let why = of.get("diagnostics").and_then(Value::as_array).into_iter().flatten();
    why.for_each(|line| text.push_str(&format!("    {}\n", harmless_line(&brief(line)))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_tables_with_what_matters() {
        let items = [
            json!({"name": "web", "generation": 4, "spec": {"order": 10, "policy": {"from": "lan", "chain": ["pfw", "ids"]}}}),
            json!({"name": "longer", "generation": 12, "spec": {"policy": {"chain": []}, "description": "a\u{1b}b"}}),
        ];
        assert_eq!(
            table("policies", &items, true),
            "NAME    GENERATION  ORDER  FROM  TO  CHAIN    STAGED  DESCRIPTION\n\
             web     4           10     lan   -   pfw,ids  -       -\n\
             longer  12          -      -     -   -        -       a\\u001bb\n"
        );
        let status = json!({"seen": 1_700_000_000_000_000_u64, "running": 3, "took": {"swap": 1_700_000_000_000_000_u64},
            "session": {"since": 0, "x": [{"expires": 1_700_000_000_u64}]}});
        let spec = json!({"since": 1_700_000_000_000_000_u64});
        let told = document(&json!({"name": "edge", "generation": 3, "spec": spec, "status": status}));
        assert!(told.contains("\nsince: 1700000000000000\n"), "what can be put again is as it is: {told}");
        for part in [
            "seen: \"2023-11-14T22:13:20Z\"",
            "swap: 1700000000000000",
            "since: 0",
            "expires: \"2023-11-14T22:13:20Z\"",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        let others = [json!({"sid": 7, "msg": "x", "more": {"a": 1}})];
        assert_eq!(table("none-such", &others, true), "SID  MSG\n7    x\n");
        let alert = [
            json!({"number": 3, "last": 1_700_000_000_000_000_u64, "tenant": "acme", "count": 2, "event": {}}),
        ];
        assert!(table("alerts", &alert, false).starts_with("3  2023-11-14T22:13:20Z  acme  2  -"));
    }

    #[test]
    fn changes_say_what_differs() {
        let change = json!({"kind": "tenants", "id": "acme", "before": {"order": 1, "x": "y"}, "after": {"order": 2, "x": "y"}});
        let told = json!({"generation": 9, "changes": [change.clone()], "devices": ["a", "b"]});
        assert_eq!(
            outcome(&told, true),
            "tenants acme: changed\n    - order: 1\n    + order: 2\n      x: \"y\"\nwould be generation 9; nothing was changed\n\
             devices that would run it at once: a, b\n"
        );
        let refused = json!({"state": "refused", "running": 8, "diagnostics": ["acme/web /policy/chain/0: no function"]});
        let answered = json!({"generation": 9, "changes": [], "devices": ["a"], "answers": {"a": refused}});
        assert!(
            outcome(&answered, false)
                .ends_with("  a: refused, runs generation 8\n    acme/web /policy/chain/0: no function\n")
        );
        let held = json!({"acme": {"runs": 7, "diagnostics": ["acme/web /policy/link/0: no link"]}});
        let partial = json!({"state": "partial", "running": 9, "diagnostics": [], "held-back": held});
        let answered = json!({"generation": 9, "changes": [], "devices": ["a"], "answers": {"a": partial}});
        assert!(outcome(&answered, false).ends_with(
            "  a: partial, runs generation 9\n    held back of acme, which runs as in generation 7:\n    acme/web /policy/link/0: no link\n"
        ));
        let noted = json!({"generation": 9, "changes": [change], "devices": ["a"], "notes": ["port `x` was not\u{1b} checked"]});
        assert!(outcome(&noted, false).ends_with("at once: a\nnote: port `x` was not\\u001b checked\n"));
        let nothing = json!({"generation": 9, "changes": [], "devices": []});
        assert_eq!(outcome(&nothing, false), "nothing to change; generation 9 is current\n");
    }
}
