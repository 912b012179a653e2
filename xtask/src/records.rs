// SPDX-License-Identifier: Apache-2.0
//! The page of figures, made from the records of measurements in `benches/records`.
//!
//! A file there is one section of the page. It has a `title`, `introduction` (lines of Markdown, optional)
//! and `records`. A record has `what` was measured, the `command` that prints it, `date`, `commit`
//! (`unrecorded` if nobody wrote it down), `machine`, `unit`, `values`, and where it applies a `bar` for all
//! values, the name of the `peer` and a `note`. A value has `of`, `value`, and where it applies `least` and
//! `most` (its spread), `peer` (the peer's value) and a `bar` that replaces the record's. A bar is
//! `{"at_least": number}` or `{"at_most": number}`.

use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::Path;

const INTRODUCTION: &str = "\
Each row is one measurement: the last one of its kind, with the command that prints it, its date, the commit of the program and the machine. Commands run
from the project's root with `shared` beside it. A spread is the least and the most of the rounds. Machines differ by a factor of two and share their cores:
compare rows of one run, and ratios before times. After a new measurement, change its record in `benches/records` and run `cargo xtask generate`.
";

/// A file of `benches/records`.
pub struct File {
    /// Name without its folder.
    pub name: String,
    /// Content: JSON.
    pub text: String,
}

/// The files of a folder, by name.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(File { name, text: std::fs::read_to_string(entry.path())? });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// The text of the page.
///
/// # Errors
/// A file is no JSON or does not follow the schema: the message names file, record and key.
pub fn render(files: &[File]) -> Result<String, String> {
    let mut bars = Bars::default();
    let mut sections = String::new();
    for file in files {
        section(file, &mut bars, &mut sections).map_err(|error| format!("{}: {error}", file.name))?;
    }
    Ok(format!(
        "# Figures\n\n<!-- Generated from benches/records by `cargo xtask generate`: do not edit. -->\n\n\
         {INTRODUCTION}\n{}{sections}",
        bars.text()
    ))
}

/// How many values keep their bars, and the rows of those that miss them.
#[derive(Default)]
struct Bars {
    kept: usize,
    missed: Vec<String>,
}

impl Bars {
    fn text(&self) -> String {
        let mut out = format!(
            "## What is promised\n\nA bar is a promise, or an aim that is not reached yet: {} values keep \
             their bar, {} miss it.\n",
            self.kept,
            self.missed.len()
        );
        if !self.missed.is_empty() {
            out.push_str("\n| missed | value | bar |\n|---|---|---|\n");
            out.extend(self.missed.iter().map(String::as_str));
        }
        out
    }
}

const SECTION: Keys = Keys { required: &["title", "records"], optional: &["introduction"] };
const RECORD: Keys = Keys {
    required: &["what", "command", "date", "commit", "machine", "unit", "values"],
    optional: &["bar", "peer", "note"],
};
const VALUE: Keys = Keys { required: &["of", "value"], optional: &["least", "most", "peer", "bar"] };

/// The keys of an object of the schema.
struct Keys {
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

impl Keys {
    fn check<'v>(&self, value: &'v Value) -> Result<&'v Map<String, Value>, String> {
        let object = value.as_object().ok_or("no object")?;
        if let Some(key) = self.required.iter().find(|key| !object.contains_key(**key)) {
            return Err(format!("the key `{key}` is missing"));
        }
        let known = |key: &str| self.required.contains(&key) || self.optional.contains(&key);
        match object.keys().find(|key| !known(key)) {
            Some(key) => Err(format!("the key `{key}` is not known")),
            None => Ok(object),
        }
    }
}

fn section(file: &File, bars: &mut Bars, out: &mut String) -> Result<(), String> {
    let json: Value = serde_json::from_str(&file.text).map_err(|error| error.to_string())?;
    let section = SECTION.check(&json)?;
    let _ = write!(out, "\n## {}\n", text(section, "title")?);
    if let Some(lines) = section.get("introduction") {
        let lines = lines.as_array().ok_or("`introduction` is no list of lines")?;
        out.push('\n');
        for line in lines {
            let _ = writeln!(out, "{}", line.as_str().ok_or("a line of `introduction` is no text")?);
        }
    }
    out.push_str("\n| what | values | bar | command | measured |\n|---|---|---|---|---|\n");
    for record in section.get("records").and_then(Value::as_array).ok_or("`records` is no list")? {
        let what = record.get("what").and_then(Value::as_str).unwrap_or("a record without `what`");
        let row = self::record(record, bars).map_err(|error| format!("{what}: {error}"))?;
        out.push_str(&row);
    }
    Ok(())
}

/// The row of a record.
fn record(json: &Value, bars: &mut Bars) -> Result<String, String> {
    let record = RECORD.check(json)?;
    let [what, unit] = [text(record, "what")?, text(record, "unit")?];
    let date = text(record, "date")?;
    if !is_date(date) {
        return Err(format!("`date` is {date}, which is no YYYY-MM-DD"));
    }
    let all = record.get("bar").map(Bar::read).transpose()?;
    let values = record.get("values").and_then(Value::as_array).ok_or("`values` is no list")?;
    if values.is_empty() {
        return Err("`values` is empty".to_owned());
    }
    let mut cells = Vec::new();
    for json in values {
        let value = VALUE.check(json)?;
        let own = value.get("bar").map(Bar::read).transpose()?;
        let cell = cell(value, record.get("peer").and_then(Value::as_str), own.as_ref())?;
        let measured = number(value, "value")?;
        match own.as_ref().or(all.as_ref()) {
            Some(bar) if bar.is_kept(measured) => bars.kept += 1,
            Some(bar) => {
                let of = text(value, "of")?;
                let of = if of.is_empty() { String::new() } else { format!(" ({of})") };
                bars.missed.push(format!("| {what}{of} | {measured} {unit} | {} |\n", bar.text()));
            }
            None => {}
        }
        cells.push(cell);
    }
    let note = match record.get("note") {
        Some(note) => format!(". {}", note.as_str().ok_or("`note` is no text")?),
        None => String::new(),
    };
    Ok(format!(
        "| {what} | {} {unit}{note} | {} | `{}` | {date}, {}; {} |\n",
        cells.join("; "),
        all.map(|bar| bar.text()).unwrap_or_default(),
        text(record, "command")?,
        text(record, "commit")?,
        text(record, "machine")?
    ))
}

/// The text of a value, with its spread, the peer's value and a bar of its own.
fn cell(value: &Map<String, Value>, peer: Option<&str>, bar: Option<&Bar>) -> Result<String, String> {
    let mut details = Vec::new();
    if let (Some(least), Some(most)) = (value.get("least"), value.get("most")) {
        details.push(format!("{least} to {most}"));
    }
    if value.contains_key("peer") {
        let peer = peer.ok_or("a value has a `peer`, the record does not name it")?;
        details.push(format!("{peer} {}", number(value, "peer")?));
    }
    details.extend(bar.map(Bar::text));
    let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
    let of = text(value, "of")?;
    let space = if of.is_empty() { "" } else { " " };
    Ok(format!("{of}{space}{}{details}", number(value, "value")?))
}

/// A bound that a value keeps or misses.
enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn read(json: &Value) -> Result<Self, String> {
        let object = json.as_object().filter(|object| object.len() == 1).ok_or("`bar` is not one bound")?;
        match object.iter().next() {
            Some((key, bound)) if key == "at_least" => bound.as_f64().map(Self::AtLeast),
            Some((key, bound)) if key == "at_most" => bound.as_f64().map(Self::AtMost),
            _ => None,
        }
        .ok_or_else(|| "`bar` is neither `at_least` nor `at_most` a number".to_owned())
    }

    fn is_kept(&self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= *bound,
            Self::AtMost(bound) => value <= *bound,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::AtLeast(bound) => format!("at least {bound}"),
            Self::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.char_indices().all(|(at, digit)| match at {
            4 | 7 => digit == '-',
            _ => digit.is_ascii_digit(),
        })
}

/// A text of an object, safe in a cell of a table.
fn text<'v>(object: &'v Map<String, Value>, key: &str) -> Result<&'v str, String> {
    let text = object.get(key).and_then(Value::as_str).ok_or_else(|| format!("`{key}` is no text"))?;
    if text.contains(['|', '\n']) { Err(format!("`{key}` contains | or a line end")) } else { Ok(text) }
}

fn number(object: &Map<String, Value>, key: &str) -> Result<f64, String> {
    object.get(key).and_then(Value::as_f64).ok_or_else(|| format!("`{key}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(records: &str) -> Result<String, String> {
        let text = format!(r#"{{"title": "Speed", "records": [{records}]}}"#);
        render(&[File { name: "speed.json".to_owned(), text }])
    }

    fn record_of(values: &str, rest: &str) -> String {
        format!(
            r#"{{"what": "Time", "command": "make bench", "date": "2026-11-30", "commit": "a1", "machine": "m",
            "unit": "s"{rest}, "values": [{values}]}}"#
        )
    }

    #[test]
    fn a_value_that_misses_its_bar_is_listed() {
        let values = r#"{"of": "cold", "value": 3.5}, {"of": "cached", "value": 3},
            {"of": "warm", "value": 9, "bar": {"at_least": 9}}"#;
        let page = page(&record_of(values, r#", "bar": {"at_most": 3}"#)).unwrap();
        assert!(page.contains("2 values keep their bar, 1 miss it"), "{page}");
        assert!(page.contains("| Time (cold) | 3.5 s | at most 3 |\n"), "{page}");
        assert!(page.contains("| Time | cold 3.5; cached 3; warm 9 (at least 9) s | at most 3 |"), "{page}");
    }

    #[test]
    fn spread_and_peer_stand_beside_the_value() {
        let values = r#"{"of": "", "value": 2, "least": 1, "most": 3, "peer": 4}"#;
        let page = page(&record_of(values, r#", "peer": "Suricata", "note": "Why.""#)).unwrap();
        assert!(page.contains("| 2 (1 to 3; Suricata 4) s. Why. |  | `make bench` |"), "{page}");
    }

    #[test]
    fn errors_name_file_record_and_key() {
        let value = r#"{"of": "", "value": 1}"#;
        let wrong = [
            (record_of(value, r#", "colour": 1"#), "speed.json: Time: the key `colour` is not known"),
            (record_of("", ""), "speed.json: Time: `values` is empty"),
            (record_of(r#"{"of": ""}"#, ""), "speed.json: Time: the key `value` is missing"),
            (
                record_of(value, r#", "bar": {"above": 1}"#),
                "speed.json: Time: `bar` is neither `at_least` nor",
            ),
            (record_of(r#"{"of": "", "value": 1, "peer": 2}"#, ""), "the record does not name it"),
            (record_of(value, "").replace("2026-11-30", "30 November"), "which is no YYYY-MM-DD"),
        ];
        for (record, message) in wrong {
            let error = page(&record).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
