// SPDX-License-Identifier: Apache-2.0
//! Runs a program on many pairs at once.

use crate::answer::Answer;
use crate::pair::{MAX_RULES, Pair, owner};
use crate::record;
use bartizan_testkit::capture::{ETHERNET, pcap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings that pairs are run with; a pair names one by its index.
pub const SETTINGS: &[&[&str]] = &[
    &[],
    &["stream.midstream=true"],
    &["stream.reassembly.toserver-chunk-size=64", "stream.reassembly.toclient-chunk-size=64"],
    &["stream.async-oneside=true"],
];

/// Size in bytes of the stream window that a setting inspects inline.
#[must_use]
pub fn window(setting: usize) -> i32 {
    const DEFAULT: i32 = 2_560;
    let key = "stream.reassembly.toserver-chunk-size=";
    let given = SETTINGS.get(setting).into_iter().copied().flatten();
    given.filter_map(|one| one.strip_prefix(key)).find_map(|size| size.parse().ok()).unwrap_or(DEFAULT)
}

const CONFIG: &str = include_str!("../suricata.yaml");
/// Settings of pairs of application protocols.
const APPLICATIONS: &str = include_str!("../applications.yaml");

/// A program under comparison.
#[derive(Clone, Debug)]
pub enum Program {
    /// This project's program.
    Bartizan(PathBuf),
    /// Suricata, in the root directory of another system or in this system.
    Suricata(Option<PathBuf>),
}

/// A program's answers, by the pairs' numbers.
pub type Answers = BTreeMap<u32, Answer>;

impl Program {
    /// Runs pairs, `batch` of one setting per run; pairs whose answer depends on the end of the run get a run
    /// of their own.
    ///
    /// # Errors
    ///
    /// A message when a file cannot be written or the program fails.
    pub fn run(&self, pairs: &[Pair], ips: bool, batch: usize) -> Result<Answers, String> {
        let mut answers = Answers::new();
        for setting in 0..SETTINGS.len() {
            let (alone, together): (Vec<&Pair>, Vec<&Pair>) =
                pairs.iter().filter(|pair| pair.setting == setting).partition(|pair| pair.hangs_on_the_end());
            for some in together.chunks(batch.max(1)).chain(alone.chunks(1)) {
                answers.append(&mut self.batch(some, setting, ips)?);
            }
        }
        Ok(answers)
    }

    fn batch(&self, pairs: &[&Pair], setting: usize, ips: bool) -> Result<Answers, String> {
        let name = format!("differential-{}", std::process::id());
        let inside = Path::new("/tmp").join(&name);
        let outside = match self {
            Program::Suricata(Some(root)) => root.join("tmp").join(&name),
            _ => std::env::temp_dir().join(&name),
        };
        let inside = if matches!(self, Program::Suricata(Some(_))) { inside } else { outside.clone() };
        let _ = std::fs::remove_dir_all(&outside);
        let batch = Batch::write(pairs, &outside)?;
        let answers = self.command(&inside, setting, ips).and_then(|mut command| {
            let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
            let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
            if !output.status.success() {
                return Err(format!("{command:?} ended with {}:\n{text}", output.status));
            }
            if let Program::Bartizan(program) = self {
                // A run names only the first rejected rules.
                let checked = Command::new(program).arg("check").arg(inside.join("rules")).output();
                let checked = checked.map_err(|error| format!("{}: {error}", program.display()))?;
                text = [checked.stdout, checked.stderr]
                    .map(|said| String::from_utf8_lossy(&said).into_owned())
                    .concat();
            }
            batch.read(&outside, &text)
        });
        let _ = std::fs::remove_dir_all(&outside);
        answers
    }

    fn command(&self, dir: &Path, setting: usize, ips: bool) -> Result<Command, String> {
        let file = |name: &str| dir.join(name);
        let mut command;
        match self {
            Program::Bartizan(program) => {
                command = Command::new(program);
                command.args(["inspect", "--suricata-config"]).arg(file("suricata.yaml"));
                command
                    .arg("--rules")
                    .arg(file("rules"))
                    .arg("--out")
                    .arg(dir)
                    .arg("--set")
                    .arg("runmode=single");
                if ips {
                    command.arg("--ips");
                }
                command.arg(file("capture.pcap"));
            }
            Program::Suricata(root) => {
                command = match root {
                    Some(root) => {
                        let mut command = Command::new("chroot");
                        command.arg(root).arg("suricata");
                        command
                    }
                    None => Command::new("suricata"),
                };
                command.arg("-c").arg(file("suricata.yaml")).arg("-S").arg(file("rules")).arg("-l").arg(dir);
                command.args(["--runmode", "single", "--set", "classification-file=/dev/null"]);
                command.args(["--set", "reference-config-file=/dev/null", "-r"]).arg(file("capture.pcap"));
                if ips {
                    command.arg("--simulate-ips");
                }
            }
        }
        for setting in SETTINGS[setting] {
            command.args(["--set", setting]);
        }
        Ok(command)
    }
}

/// Writes the files of a single pair, for people.
///
/// # Errors
///
/// A message when a file cannot be written.
pub fn write(pair: &Pair, dir: &Path) -> Result<(), String> {
    Batch::write(&[pair], dir).map(|_| ())
}

/// Pairs that share one capture and rule file.
struct Batch {
    /// Number of each pair, number of its first frame (from 1), and whether it has several flows.
    begins: Vec<(u32, u64, bool)>,
    /// Pair and index of each rule, by line of the rule file.
    lines: Vec<(u32, usize)>,
    /// The pairs are of application protocols: the content of records counts.
    is_application: bool,
}

impl Batch {
    fn write(pairs: &[&Pair], dir: &Path) -> Result<Self, String> {
        let problem = |what: &Path, error| format!("{}: {error}", what.display());
        std::fs::create_dir_all(dir).map_err(|error| problem(dir, error))?;
        let (mut begins, mut lines, mut frames, mut rules) =
            (Vec::new(), Vec::new(), Vec::new(), String::new());
        for (slot, pair) in pairs.iter().enumerate() {
            begins.push((pair.number, frames.len() as u64 + 1, pair.has_several_flows()));
            frames.extend(pair.frames(slot));
            for (at, rule) in pair.rules().iter().enumerate() {
                lines.push((pair.number, at));
                rules.push_str(rule);
                rules.push('\n');
            }
        }
        let is_application = pairs.iter().any(|pair| pair.is_application);
        let config = if is_application { APPLICATIONS } else { CONFIG };
        for (name, bytes) in [
            ("rules", rules.as_bytes()),
            ("suricata.yaml", config.as_bytes()),
            ("capture.pcap", &pcap(ETHERNET, frames)),
        ] {
            let file = dir.join(name);
            std::fs::write(&file, bytes).map_err(|error| problem(&file, error))?;
        }
        Ok(Batch { begins, lines, is_application })
    }

    /// Reads the answers: events in `dir`, rejected rules in the messages.
    fn read(&self, dir: &Path, messages: &str) -> Result<Answers, String> {
        let mut answers: Answers =
            self.begins.iter().map(|(number, ..)| (*number, Answer::default())).collect();
        let mut code = "";
        let mut refused: Vec<usize> = Vec::new();
        for message in messages.lines() {
            if message.starts_with("error[") || message.starts_with("warning[") {
                code = message;
            }
            refused.extend(line_of(message, code));
        }
        refused.sort_unstable();
        refused.dedup();
        for line in refused {
            let Some((number, rule)) = line.checked_sub(1).and_then(|line| self.lines.get(line)) else {
                continue;
            };
            if let Some(answer) = answers.get_mut(number) {
                answer.add(format!("refused:{rule}"));
            }
        }
        let file = dir.join("eve.json");
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        for line in text.lines() {
            let event: Value =
                serde_json::from_str(line).map_err(|error| format!("eve.json: {error}: {line}"))?;
            self.event(&event, &mut answers);
        }
        Ok(answers)
    }

    fn event(&self, event: &Value, answers: &mut Answers) {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("-");
        let source = text("/src_ip").parse::<IpAddr>().ok().and_then(owner);
        let Some((number, host)) = source else { return };
        let Some(answer) = answers.get_mut(&number) else { return };
        let begin = self.begins.iter().find(|(of, ..)| *of == number);
        let (begin, several) = begin.map_or((1, false), |(_, begin, several)| (*begin, *several));
        let packet = match event.get("pcap_cnt").and_then(Value::as_u64) {
            Some(count) => (count + 1).saturating_sub(begin).to_string(),
            None => "-".into(),
        };
        let client = if host == 2 { text("/dest_ip") } else { text("/src_ip") };
        let client = client.parse().ok().and_then(owner).map_or(0, |(_, host)| host);
        let other = if host == 2 { "dest_port" } else { "src_port" };
        let port = event.get(other).and_then(Value::as_u64).unwrap_or(40_000).wrapping_sub(40_000);
        let of_flow = if several { format!("~{client}.{port}") } else { String::new() };
        match text("/event_type") {
            "alert" => {
                let sid = event.pointer("/alert/signature_id").and_then(Value::as_u64).unwrap_or(0);
                let rule = sid.wrapping_sub(1_000_000 + u64::from(number * MAX_RULES));
                let arrow = if host == 2 { '<' } else { '>' };
                answer.add(format!("{rule}@{packet}{arrow}{client}.{port}:{}", text("/alert/action")));
            }
            "drop" => answer.add(format!("drop@{packet}:{}", text("/drop/reason"))),
            "anomaly" => answer.add(format!("anomaly:{}{of_flow}", text("/anomaly/event"))),
            "flow" => answer.add(format!("flow:{}:{}{of_flow}", text("/proto"), text("/app_proto"))),
            "stats" => {}
            other if self.is_application => {
                let content = record::digest(event, other);
                answer.add(format!("{other}:{content:04x}{of_flow}"));
            }
            other => answer.add(format!("{other}{of_flow}")),
        }
    }
}

/// The line of the rule file that a message rejects, in Suricata's or this project's format. `code` is the
/// heading above the position; D100 to D119 are rejections.
fn line_of(message: &str, code: &str) -> Option<usize> {
    let digits =
        |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    if let Some((_, rest)) = message.split_once("/rules at line ") {
        return digits(rest);
    }
    let (_, rest) = message.trim_start().strip_prefix("--> ")?.rsplit_once("/rules:")?;
    if code.contains("[D10") || code.contains("[D11") { digits(rest) } else { None }
}
