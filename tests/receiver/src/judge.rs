// SPDX-License-Identifier: Apache-2.0
//! What was read is held against what may be read; what is wrong is kept so that it can be played again.

use crate::honest;
use crate::kinds::{Case, KINDS};
use crate::net::{Problem, problem};
use crate::receivers::{Key, Read};
use bartizan_testkit::capture::{BEGIN, ETHERNET, pcap};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Family, or sort of good traffic.
    pub family: String,
    /// Number of the case.
    pub number: u64,
    /// How the program ran.
    pub setup: String,
    /// Forbidden bytes were read, or good ones lost.
    pub what: String,
    /// What the case was like.
    pub story: String,
    /// Seconds after the program's start.
    pub after: f64,
    /// Its packets.
    pub capture: Option<PathBuf>,
}

/// Numbers of a family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cases.
    pub played: u64,
    /// Whose application answered.
    pub answered: u64,
    /// Whose receiver read something forbidden.
    pub forbidden: u64,
    /// Of these, without an alert.
    pub untold: u64,
    /// That have to arrive.
    pub good: u64,
    /// That did not.
    pub lost: u64,
    /// Frames sent.
    pub frames: u64,
    /// Datagrams that were sent in fragments.
    pub fragmented: u64,
    /// Dirty connections, and tries to make one.
    pub connections: u64,
}

/// What is known of a run of the program.
pub struct Judge {
    /// How the program runs.
    pub setup: String,
    /// Forbidden reads are findings.
    pub prevention: bool,
    /// Where captures go.
    pub folder: PathBuf,
    /// By family.
    pub tally: BTreeMap<&'static str, Tally>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// By strategy of the list: whether it lived, whether something forbidden was read.
    pub strategies: BTreeMap<u64, (bool, bool)>,
    /// Those whose receiver read something forbidden.
    pub readers: Vec<(IpAddr, u16, &'static str)>,
    /// Good datagrams that did not arrive: to be played again.
    pub doubts: Vec<Doubt>,
    /// Those of them that arrived then.
    pub arrived_later: Vec<Doubt>,
}

/// A good datagram that did not arrive. A fault of the program does that again; a machine that was busy for a
/// moment does not.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Place of the family in [`KINDS`].
    pub kind: usize,
    /// Number of the case.
    pub number: u64,
    what: String,
    story: String,
    after: f64,
}

/// Captures of a family that are kept.
const CAPTURES: usize = 5;

impl Judge {
    /// One for a run.
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

    /// Looks at cases that have been played.
    ///
    /// # Errors
    /// A capture that cannot be written.
    pub fn cases(&mut self, cases: &[Case], read: &HashMap<Key, Read>, after: f64) -> Result<(), Problem> {
        self.look(cases, read, after, false)
    }

    /// Looks at cases of [`Judge::doubts`] that were played again: what is lost again is a finding.
    ///
    /// # Errors
    /// A capture that cannot be written.
    pub fn again(&mut self, cases: &[Case], read: &HashMap<Key, Read>, after: f64) -> Result<(), Problem> {
        self.look(cases, read, after, true)?;
        let lost = |doubt: &Doubt| {
            let is_it = |case: &&Case| case.kind == Some(doubt.kind) && case.number == doubt.number;
            cases.iter().filter(is_it).any(|case| copies(case, read) == Some(0))
        };
        self.arrived_later.extend(self.doubts.drain(..).filter(|doubt| !lost(doubt)));
        Ok(())
    }

    /// The run is over, and so many packets were lost by a busy machine, by its own counters. Good datagrams
    /// that were lost once are findings if they are more.
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
            // Without prevention the dirt may fill the receiver's own memory for fragments.
            if there != 1 && self.prevention {
                let length = case.good.as_ref().map_or(0, Vec::len);
                let what = format!("a good datagram of {length} bytes arrived {there} times");
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
        let capture = if before < CAPTURES {
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

    /// Looks at good traffic.
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

    /// Something wrong with good traffic.
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

    /// Marks those whose forbidden bytes no alert told.
    pub fn told(&mut self, alerted: &std::collections::HashSet<(IpAddr, u16)>) {
        for (address, port, family) in &self.readers {
            if !alerted.contains(&(*address, *port)) {
                self.tally.entry(family).or_default().untold += 1;
            }
        }
    }

    /// The numbers by family.
    pub fn table(&self) {
        println!("   family                  played answered   frames forbidden untold   good   lost");
        for (name, t) in &self.tally {
            println!(
                "   {name:22} {:7} {:8} {:8} {:9} {:6} {:6} {:6}",
                t.played, t.answered, t.frames, t.forbidden, t.untold, t.good, t.lost
            );
        }
    }

    /// Datagrams in fragments, and dirty connections, of all families.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let sum = |(a, b): (u64, u64), tally: &Tally| (a + tally.fragmented, b + tally.connections);
        self.tally.values().fold((0, 0), sum)
    }

    /// The same for programs.
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

/// How often a case's good datagram arrived; none if it has none.
fn copies(case: &Case, read: &HashMap<Key, Read>) -> Option<usize> {
    let good = case.good.as_ref()?;
    let record = read.get(&(case.peer.0, case.peer.1, case.service.port()));
    Some(record.map_or(0, |read| read.datagrams.iter().filter(|d| *d == good).count()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Does this family find nothing because it cannot? Its forbidden bytes have to be read in the control.
#[must_use]
pub fn toothless(control: &Judge) -> Vec<&'static str> {
    KINDS
        .iter()
        .map(|kind| kind.name)
        .filter(|name| control.tally.get(name).is_some_and(|t| t.played >= 50 && t.forbidden == 0))
        .collect()
}

/// A capture file of a case's frames.
fn write_capture(path: &Path, case: &Case) -> Result<(), Problem> {
    let frames = case.frames.iter().map(|(time, _, frame)| (BEGIN + time * 1000, frame));
    let file = pcap(ETHERNET, frames);
    std::fs::write(path, file).map_err(|error| problem(format!("{}: {error}", path.display())))
}
