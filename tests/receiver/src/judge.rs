// SPDX-License-Identifier: Apache-2.0
//! Compares the receivers' records with the rules; violations are kept so that they can be played again.

use crate::honest;
use crate::kinds::{Case, KINDS};
use crate::net::{Problem, problem};
use crate::receivers::{Key, Read};
use bartizan_testkit::capture::{BEGIN, ETHERNET, pcap};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A violation found in a run.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Family, or sort of good traffic.
    pub family: String,
    /// Number of the case.
    pub number: u64,
    /// Name of the program's setup.
    pub setup: String,
    /// The violation: forbidden bytes were read, or good ones lost.
    pub what: String,
    /// Description of the case.
    pub story: String,
    /// Seconds after the program's start.
    pub after: f64,
    /// Capture of its packets.
    pub capture: Option<PathBuf>,
}

/// Counters of a family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cases played.
    pub played: u64,
    /// Cases whose receiving application answered.
    pub answered: u64,
    /// Cases whose receiver read forbidden bytes.
    pub forbidden: u64,
    /// Cases among `forbidden` without an alert.
    pub untold: u64,
    /// Cases that must arrive.
    pub good: u64,
    /// Cases among `good` that did not arrive.
    pub lost: u64,
    /// Frames sent.
    pub frames: u64,
    /// Datagrams that were sent in fragments.
    pub fragmented: u64,
    /// Dirty connections, and attempts to open one.
    pub connections: u64,
}

/// Results of one run of the program.
pub struct Judge {
    /// Name of the program's setup.
    pub setup: String,
    /// Forbidden reads are findings.
    pub prevention: bool,
    /// Folder for captures.
    pub folder: PathBuf,
    /// Counters by family.
    pub tally: BTreeMap<&'static str, Tally>,
    /// Violations found so far.
    pub findings: Vec<Finding>,
    /// By strategy of the list: whether its application answered, whether forbidden bytes were read.
    pub strategies: BTreeMap<u64, (bool, bool)>,
    /// Hosts and ports whose receiver read forbidden bytes, with the family.
    pub readers: Vec<(IpAddr, u16, &'static str)>,
    /// Good datagrams that did not arrive and are to be played again.
    pub doubts: Vec<Doubt>,
    /// Doubts that arrived when they were played again.
    pub arrived_later: Vec<Doubt>,
}

/// A good datagram that did not arrive. A fault of the program repeats the loss; a busy machine does not.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Index of the family in [`KINDS`].
    pub kind: usize,
    /// Number of the case.
    pub number: u64,
    what: String,
    story: String,
    after: f64,
}

/// The largest number of captures kept per family.
const CAPTURES: usize = 5;

impl Judge {
    /// Creates the judge of a run.
    #[must_use]
    pub fn new(setup: String, prevention: bool, folder: PathBuf) -> Self {
        Judge {
            setup,
            prevention,
            folder,
            tally: BTreeMap::new(),
            findings: Vec::new(),
            strategies: BTreeMap::new(),
            readers: Vec::new(),
            doubts: Vec::new(),
            arrived_later: Vec::new(),
        }
    }

    /// Judges cases that have been played.
    ///
    /// # Errors
    /// If a capture cannot be written.
    pub fn cases(&mut self, cases: &[Case], read: &HashMap<Key, Read>, after: f64) -> Result<(), Problem> {
        self.look(cases, read, after, false)
    }

    /// Judges cases of [`Judge::doubts`] that were played again: a repeated loss is a finding.
    ///
    /// # Errors
    /// If a capture cannot be written.
    pub fn again(&mut self, cases: &[Case], read: &HashMap<Key, Read>, after: f64) -> Result<(), Problem> {
        self.look(cases, read, after, true)?;
        let lost = |doubt: &Doubt| {
            let is_it = |case: &&Case| case.kind == Some(doubt.kind) && case.number == doubt.number;
            cases.iter().filter(is_it).any(|case| copies(case, read) == Some(0))
        };
        self.arrived_later.extend(self.doubts.drain(..).filter(|doubt| !lost(doubt)));
        Ok(())
    }

    /// Accounts for losses at the end of a run: `dropped` packets were lost by a busy machine, by its own
    /// counters. Good datagrams that were lost once are findings if they are more.
    pub fn account(&mut self, dropped: u64) {
        let once = std::mem::take(&mut self.arrived_later);
        if once.is_empty() {
            return;
        }
        println!(
            "   {} good datagrams came only when they were played again; {dropped} packets were dropped by sockets, rings and processors",
            once.len()
        );
        if once.len() as u64 <= dropped {
            return;
        }
        for doubt in once {
            let name = KINDS.get(doubt.kind).map_or("", |kind| kind.name);
            self.tally.entry(name).or_default().lost += 1;
            self.findings.push(Finding {
                family: name.to_owned(),
                number: doubt.number,
                setup: self.setup.clone(),
                what: format!(
                    "{}; it did when played again, but the machine did not lose so many",
                    doubt.what
                ),
                story: doubt.story,
                after: doubt.after,
                capture: None,
            });
        }
    }

    fn look(
        &mut self,
        cases: &[Case],
        read: &HashMap<Key, Read>,
        after: f64,
        again: bool,
    ) -> Result<(), Problem> {
        for case in cases {
            let key = (case.peer.0, case.peer.1, case.service.port());
            let record = read.get(&key);
            let forbidden = record.is_some_and(|read| read.holds(case.service, case.service.forbidden()))
                || case.holds(case.service.forbidden());
            let tally = self.tally.entry(case.family()).or_default();
            tally.played += 1;
            tally.answered += u64::from(case.answered());
            tally.frames += case.frames.iter().filter(|(_, ours, _)| *ours).count() as u64;
            tally.forbidden += u64::from(forbidden);
            tally.fragmented += case.fragmented;
            tally.connections += u64::from(case.is_connection());
            if case.kind.is_none() {
                let known = self.strategies.entry(case.number).or_default();
                *known = (known.0 | case.answered(), known.1 | forbidden);
            }
            if forbidden {
                self.readers.push((case.peer.0, case.peer.1, case.family()));
                if self.prevention {
                    let what = format!("{:?} read {:?}", case.service, text(case.service.forbidden()));
                    self.finding(case, what, after)?;
                }
            }
            let Some(there) = copies(case, read) else { continue };
            let tally = self.tally.entry(case.family()).or_default();
            tally.good += 1;
            // Without prevention the dirty traffic may fill the receiver's own memory for fragments.
            if there != 1 && self.prevention {
                let length = case.good.as_ref().map_or(0, Vec::len);
                let what = match case.talked() {
                    None => format!("a good datagram of {length} bytes arrived {there} times"),
                    Some(true) => format!("the server recorded a good conversation {there} times"),
                    Some(false) => "a good conversation was broken off".to_owned(),
                };
                if let (Some(kind), 0, false) = (case.kind, there, again) {
                    let (number, story) = (case.number, case.story());
                    self.doubts.push(Doubt { kind, number, what, story, after });
                } else {
                    tally.lost += 1;
                    self.finding(case, what, after)?;
                }
            }
        }
        Ok(())
    }

    fn finding(&mut self, case: &Case, what: String, after: f64) -> Result<(), Problem> {
        let before = self.findings.iter().filter(|finding| finding.family == case.family()).count();
        let capture = if before < CAPTURES && case.talked().is_none() {
            let name =
                format!("{}-{}-{}.pcap", case.family(), case.number, self.setup.replace(['[', ']'], ""));
            let path = self.folder.join(name);
            write_capture(&path, case)?;
            Some(path)
        } else {
            None
        };
        self.findings.push(Finding {
            family: case.family().to_owned(),
            number: case.number,
            setup: self.setup.clone(),
            what,
            story: case.story(),
            after,
            capture,
        });
        Ok(())
    }

    /// Judges good traffic.
    pub fn good(&mut self, report: &honest::Report, read: &HashMap<Key, Read>, after: f64) {
        for (at, played) in report.played.iter().enumerate() {
            let tally = self.tally.entry(honest::GOODS[at].name).or_default();
            (tally.played, tally.good) = (tally.played + played, tally.good + played);
        }
        let differing = report.sent.iter().filter_map(|(sort, (key, data))| {
            let stream = read.get(key).map_or(&[][..], |read| &read.stream);
            (stream != data).then(|| (*sort, format!("{} of {} bytes were read", stream.len(), data.len())))
        });
        for (sort, why) in report.lost.iter().cloned().chain(differing).collect::<Vec<_>>() {
            self.tally.entry(sort).or_default().lost += 1;
            self.good_finding(sort, why, after);
        }
    }

    /// Adds a finding about good traffic.
    pub fn good_finding(&mut self, sort: &str, what: String, after: f64) {
        self.findings.push(Finding {
            family: sort.to_owned(),
            number: 0,
            setup: self.setup.clone(),
            what,
            story: "good traffic".to_owned(),
            after,
            capture: None,
        });
    }

    /// Counts the forbidden reads that have no alert.
    pub fn told(&mut self, alerted: &std::collections::HashSet<(IpAddr, u16)>) {
        for (address, port, family) in &self.readers {
            if !alerted.contains(&(*address, *port)) {
                self.tally.entry(family).or_default().untold += 1;
            }
        }
    }

    /// Prints the counters by family.
    pub fn table(&self) {
        println!("   family                  played answered   frames forbidden untold   good   lost");
        for (name, t) in &self.tally {
            println!(
                "   {name:22} {:7} {:8} {:8} {:9} {:6} {:6} {:6}",
                t.played, t.answered, t.frames, t.forbidden, t.untold, t.good, t.lost
            );
        }
    }

    /// Sums of fragmented datagrams and of dirty connections over all families.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let sum = |(a, b): (u64, u64), tally: &Tally| (a + tally.fragmented, b + tally.connections);
        self.tally.values().fold((0, 0), sum)
    }

    /// The result as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let families: serde_json::Map<String, Value> = self
            .tally
            .iter()
            .map(|(name, t)| {
                let value = json!({"played": t.played, "answered": t.answered, "frames": t.frames, "forbidden": t.forbidden,
                    "untold": t.untold, "good": t.good, "lost": t.lost});
                ((*name).to_owned(), value)
            })
            .collect();
        let (fragmented, connections) = self.totals();
        json!({"setup": self.setup, "families": families, "fragmented": fragmented, "connections": connections})
    }
}

/// Number of copies of a case's good datagram, or of a good conversation's mark, that arrived; `None` if the
/// case has neither.
fn copies(case: &Case, read: &HashMap<Key, Read>) -> Option<usize> {
    let good = case.good.as_ref()?;
    let record = read.get(&(case.peer.0, case.peer.1, case.service.port()));
    if let Some(is_finished) = case.talked() {
        let marks = record.map_or(0, |read| memmem(&read.stream, good));
        return Some(if is_finished { marks } else { 0 });
    }
    Some(record.map_or(0, |read| read.datagrams.iter().filter(|d| *d == good).count()))
}

/// Number of places at which a text lies.
fn memmem(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| *window == part).count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Families that cannot find anything: their forbidden bytes were not even read in the control run.
#[must_use]
pub fn toothless(control: &Judge) -> Vec<&'static str> {
    KINDS
        .iter()
        .map(|kind| kind.name)
        .filter(|name| control.tally.get(name).is_some_and(|t| t.played >= 50 && t.forbidden == 0))
        .collect()
}

/// Writes a case's frames to a capture file.
fn write_capture(path: &Path, case: &Case) -> Result<(), Problem> {
    let frames = case.frames.iter().map(|(time, _, frame)| (BEGIN + time * 1000, frame));
    let file = pcap(ETHERNET, frames);
    std::fs::write(path, file).map_err(|error| problem(format!("{}: {error}", path.display())))
}
