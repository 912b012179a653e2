// SPDX-License-Identifier: Apache-2.0
//! Log lines as text and as JSON, by level.

use crate::common::{Folder, PROGRAM};
use crate::sample::sample;
use serde_json::Value;
use std::process::{Command, Output};

const RULES: &str = "\
alert tcp any any -> any any (msg:\"fine\"; sid:1;)
alert tcp any any -> any any (msg:\"wrong\"; nokeyword:1; sid:2;)
";

fn inspect(folder: &Folder, more: &[&str]) -> Output {
    folder.write("c.pcap", sample());
    folder.write("r.rules", RULES);
    let mut command = Command::new(PROGRAM);
    command.args(["inspect", "--rules", "r.rules", "--cache", "none", "--out", "out", "c.pcap"]).args(more);
    command.current_dir(&folder.0).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn json_is_one_object_a_line_whatever_is_said() {
    let folder = Folder::new();
    let output = inspect(&folder, &["--log-format", "json"]);
    assert!(output.status.success(), "{output:?}");
    let said = lines(&output);
    let objects: Vec<Value> = said.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(!objects.is_empty(), "the rule that is left out is told");
    for object in &objects {
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["timestamp", "level", "target", "message"], "{object}");
    }
    let about = objects
        .iter()
        .find(|object| object["message"].as_str().is_some_and(|text| text.contains("nokeyword")));
    let about = about.unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(about["level"], "warning");
    assert!(about["target"].as_str().is_some_and(|target| target.starts_with("bartizan")), "{about}");
}

#[test]
fn why_a_run_ends_is_a_line_of_its_form() {
    let folder = Folder::new();
    let output = inspect(&folder, &["--log-format", "json", "missing.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let said = lines(&output);
    let last: Value = serde_json::from_str(said.last().unwrap()).unwrap();
    assert_eq!(last["level"], "error");
    assert!(
        last["message"].as_str().is_some_and(|text| text.contains("missing.pcap: no such file")),
        "{last}"
    );
    let output = inspect(&folder, &["missing.pcap"]);
    let said = lines(&output);
    assert!(
        said.last().is_some_and(|line| line.starts_with("bartizan: cannot open capture missing.pcap")),
        "{said:?}"
    );
}

#[test]
fn lines_below_the_level_are_not_written() {
    let folder = Folder::new();
    let said = lines(&inspect(&folder, &["--log-format", "json", "--log-level", "error"]));
    assert!(said.is_empty(), "{said:?}");
}
