// SPDX-License-Identifier: Apache-2.0
//! The program under test, inline between `a1` and `b1`.

use crate::net::{Problem, problem};
use crate::receivers::RULES;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A way to run the program under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The chain's functions.
    pub chain: Vec<&'static str>,
    /// Number of workers.
    pub workers: usize,
    /// Prevention; `false` is the control, where violations pass.
    pub prevention: bool,
    /// A level below the program handles decided flows.
    pub level: bool,
}

impl Setup {
    /// Name for people and folders.
    #[must_use]
    pub fn name(&self) -> String {
        let mode = if self.prevention { "" } else { ",control" };
        let level = if self.level { ",xdp" } else { "" };
        format!("[{}]x{}{level}{mode}", self.chain.join(","), self.workers)
    }

    fn policy(&self) -> String {
        let mut text = format!("policies:\n  - name: all\n    chain: [{}]\n", self.chain.join(", "));
        if self.chain.contains(&"pfw") {
            text.push_str(
                "    pfw:\n      default: drop\n      rules:
        - {allow: tcp, to-ports: [21, 22, 25, 53, 80, 139, 443, 445, 8080, 9001, 9010-9013, 30000-40999]}
        - {allow: udp, to-ports: [53, 9000]}
        - {allow: icmp}
        - {allow: icmpv6}\n",
            );
        }
        text.push_str("default: {action: drop}\n");
        text
    }
}

/// Settings besides Suricata's shipped ones: a record of each dropped packet.
const SETTINGS: &[&str] = &[
    "outputs.1.eve-log.types.34=drop",
    "outputs.1.eve-log.types.34.drop.flows=all",
    "outputs.1.eve-log.types.34.drop.alerts=yes",
];

/// The running program, which ends when this is dropped.
pub struct Program {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    out: PathBuf,
}

/// Output and records of the program in one run.
#[derive(Debug, Default)]
pub struct Told {
    /// The program's summary.
    pub summary: String,
    /// Frames that the program did not receive or could not send because its rings were full.
    pub not_taken: u64,
    /// Frames that the level below the program has handled.
    pub below: u64,
    /// Dropped frames by reason.
    pub refused: BTreeMap<String, u64>,
    /// Dropped frames from and to honest hosts: reason and packet.
    pub good_refused: Vec<String>,
    /// Hosts and ports with an alert.
    pub alerted: std::collections::HashSet<(IpAddr, u16)>,
}

impl Program {
    /// Starts the program; its files are in `folder`.
    ///
    /// # Errors
    /// If the program does not start, with its output.
    pub fn start(program: &Path, setup: &Setup, folder: &Path) -> Result<Self, Problem> {
        std::fs::create_dir_all(folder).map_err(|error| problem(format!("{}: {error}", folder.display())))?;
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| problem(format!("{}: {error}", path.display())))?;
            Ok::<_, Problem>(path)
        };
        let policy = file("policy.yaml", &setup.policy())?;
        let rules = file("forbidden.rules", RULES)?;
        let out = folder.join("out");
        let _ = std::fs::remove_dir_all(&out);
        let mut command = Command::new(program);
        command.args(["run", "--inline", "a1", "b1", "--spin", "0", "--save-power", "--workers"]);
        command.arg(setup.workers.to_string()).arg("--policy").arg(policy).arg("--rules").arg(rules);
        command.args(SETTINGS.iter().flat_map(|setting| ["--set", setting])).arg("--out").arg(&out);
        if setup.level {
            command.args(["--offload", "xdp"]);
        }
        if !setup.prevention {
            command.arg("--detect");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| problem(format!("{}: {error}", program.display())))?;
        let said = Arc::new(Mutex::new(Vec::new()));
        if let Some(stderr) = child.stderr.take() {
            let lines = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            });
        }
        let mut this = Program { child, said, out };
        let begun = Instant::now();
        while !this.words().contains("running on") {
            let ended = this.child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > Duration::from_secs(30) {
                return Err(problem(format!("the program does not start: {}", this.words())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(this)
    }

    fn words(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Fails if the program has ended by itself.
    ///
    /// # Errors
    /// The program's output.
    pub fn is_alive(&mut self) -> Result<(), Problem> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(problem(format!("the program has ended by itself: {}", self.words()))),
        }
    }

    /// Stops the program and reads its records.
    ///
    /// # Errors
    /// An exit status that is not 0.
    pub fn stop(mut self, honest: &[IpAddr]) -> Result<Told, Problem> {
        self.is_alive()?;
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let mut told = Told::default();
        if let Some(mut stdout) = self.child.stdout.take() {
            let _ = stdout.read_to_string(&mut told.summary);
        }
        let status = self.child.wait().map_err(|error| problem(error.to_string()))?;
        if !status.success() {
            return Err(problem(format!("the program ended with {status}: {}", self.words())));
        }
        told.not_taken = not_taken(&told.summary);
        told.below = handled_below(&self.out.join("stats.json"))?;
        let eve = self.out.join("eve.json");
        let file =
            std::fs::File::open(&eve).map_err(|error| problem(format!("{}: {error}", eve.display())))?;
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            told.take(&line, honest);
        }
        Ok(told)
    }
}

/// Frames that the level below has forwarded and dropped, by the counters of a run.
fn handled_below(path: &Path) -> Result<u64, Problem> {
    let told = |why: String| problem(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
    let stats: serde_json::Value = serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
    let of = |name: &str| stats[name].as_u64().unwrap_or(0);
    Ok(of("offload.forwarded_pkts") + of("offload.dropped_pkts"))
}

impl Told {
    fn take(&mut self, line: &str, honest: &[IpAddr]) {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { return };
        let end = |side: &str| {
            let address = event[format!("{side}_ip")].as_str()?.parse::<IpAddr>().ok()?;
            Some((address, event[format!("{side}_port")].as_u64().unwrap_or(0) as u16))
        };
        let ends = [end("src"), end("dest")];
        match event["event_type"].as_str() {
            // Hosts that hold conversations have no port in the records.
            Some("alert") => {
                self.alerted
                    .extend(ends.into_iter().flatten().flat_map(|(host, port)| [(host, port), (host, 0)]));
            }
            Some("drop") => {
                let own = &event["bartizan"]["reason"];
                let reason =
                    own.as_str().or(event["drop"]["reason"].as_str()).unwrap_or("no reason").to_owned();
                if ends.iter().flatten().any(|(address, _)| honest.contains(address)) {
                    self.good_refused.push(format!("{reason}: {line}"));
                }
                let frames = event["bartizan"]["frames"].as_u64().unwrap_or(1);
                *self.refused.entry(reason).or_default() += frames;
            }
            _ => {}
        }
    }
}

/// Frames for which no ring had room, from the summary: `a1: 10 received, 2 dropped in the ring, 8 sent`, `3
/// not sent: ring full`.
fn not_taken(summary: &str) -> u64 {
    let before = |mark: &str| {
        let line = summary.lines().filter_map(|line| line.split_once(mark));
        line.filter_map(|(before, _)| before.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    before(" dropped in the ring") + before(" not sent: ")
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_rings_had_no_room_for_is_read_from_the_summary() {
        let summary = "9 frames, 5 forwarded\na1: 10 received, 2 dropped in the ring, 8 sent\n    3 not sent: ring full\n";
        assert_eq!(super::not_taken(summary), 5);
        assert_eq!(super::not_taken("a1: 10 received, 0 dropped in the ring, 8 sent"), 0);
    }
}
