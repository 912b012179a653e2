// SPDX-License-Identifier: Apache-2.0
//! A policy applied to past traffic. Captures go through the engine; flow records are judged by their
//! headers, and remain undecided where payload or state matters.

use crate::captures::frames;
use crate::error::Failure;
use crate::generation::BuildOptions;
use crate::input;
use crate::offline::OfflineGeneration;
use bartizan_agent::replay::record::RECORD_BYTES;
use bartizan_agent::replay::{Case, FlowVerdicts, Headers, NotRead, Record, ReplayFlow, ReplayReport};
use bartizan_packet::capture::Decompressed;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Files with traffic, by kind.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Captures.
    pub captures: Vec<PathBuf>,
    /// Files of flow records.
    pub records: Vec<PathBuf>,
}

impl Traffic {
    /// Determines the kinds of files by their beginnings.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn of(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut traffic = Traffic::default();
        for path in paths {
            let kind = if is_events(path)? { &mut traffic.records } else { &mut traffic.captures };
            kind.push(path.clone());
        }
        Ok(traffic)
    }
}

/// Options of a replay.
#[derive(Clone, Default)]
pub struct ReplayOptions {
    /// Inputs of generations, besides their policies.
    pub build: BuildOptions,
    /// Tenant of all flow records; if absent, the policy's selectors decide.
    pub tenant: Option<String>,
    /// Link of traffic that does not name its own.
    pub link: Option<String>,
}

/// Result of a replay.
pub struct Replayed {
    /// Flows by their verdicts.
    pub report: ReplayReport,
    /// Number of captured flows that were not kept.
    pub left_out: u64,
}

/// Replays traffic under a policy, compared with another one if given.
///
/// # Errors
/// A generation cannot be built, or traffic cannot be read.
pub fn run(
    options: &ReplayOptions,
    traffic: &Traffic,
    policy: &Path,
    base: Option<&Path>,
) -> Result<Replayed, Failure> {
    let after = generation(options, policy)?;
    let before = base.map(|base| generation(options, base)).transpose()?;
    let mut replayed = Replayed { report: ReplayReport::default(), left_out: 0 };
    if !traffic.captures.is_empty() {
        if options.tenant.is_some() {
            return Err(Failure::usage(
                "--tenant applies to flow records only; packets of a capture determine their tenant; remove \
                 it",
            ));
        }
        let mut seen = |generation: &OfflineGeneration| -> Result<Vec<ReplayFlow>, Failure> {
            let verdicts = replay_captures(options, generation, &traffic.captures)?;
            replayed.left_out += verdicts.left_out;
            Ok(verdicts.seen)
        };
        let before = before.as_ref().map(&mut seen).transpose()?;
        let after = seen(&after)?;
        replayed.report.add_runs(before, after);
    }
    for path in &traffic.records {
        replay_records(options, path, &after, before.as_ref(), &mut replayed.report)?;
    }
    Ok(replayed)
}

/// Builds a generation in prevention: a replay shows the verdicts of prevention.
fn generation(options: &ReplayOptions, policy: &Path) -> Result<OfflineGeneration, Failure> {
    let options = BuildOptions { policy: Some(policy.to_owned()), ..options.build.clone() };
    OfflineGeneration::build(&options, true)
}

/// The flows of captures, with their verdicts.
fn replay_captures(
    options: &ReplayOptions,
    generation: &OfflineGeneration,
    captures: &[PathBuf],
) -> Result<FlowVerdicts, Failure> {
    let link = generation.link(options.link.as_deref())?;
    let mut worker = generation.worker()?;
    let mut verdicts = FlowVerdicts::new(&generation.policy()?.classes, &generation.built.function_names);
    for path in captures {
        frames(path, link, |frame| {
            worker.frame(frame, &mut verdicts);
            true
        })?;
    }
    worker.shutdown(&mut verdicts);
    Ok(verdicts)
}

/// Whether a file has events: these are lines of JSON, while captures begin with a number.
fn is_events(path: &Path) -> Result<bool, Failure> {
    let mut first = [0u8; 64];
    let mut reader = reader(path)?;
    let mut length = 0;
    while length < first.len() {
        match reader.read(first.get_mut(length..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) => return Err(Failure::input(format!("cannot read {}: {error}", path.display()))),
        }
    }
    let begin = first.iter().take(length).find(|byte| !byte.is_ascii_whitespace());
    Ok(begin == Some(&b'{'))
}

fn reader(path: &Path) -> Result<impl BufRead, Failure> {
    let file = input::open(path, "traffic")?;
    let opened = Decompressed::new(Box::new(file));
    let opened =
        opened.map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))?;
    Ok(BufReader::new(opened))
}

/// Judges each flow record of a file.
fn replay_records(
    options: &ReplayOptions,
    path: &Path,
    after: &OfflineGeneration,
    before: Option<&OfflineGeneration>,
    report: &mut ReplayReport,
) -> Result<(), Failure> {
    let (link, tenant) = (options.link.as_deref(), options.tenant.as_deref());
    let subject = after.subject()?;
    let now = Headers::new(&subject, after.link(link)?, after.tenant(tenant)?);
    let other = before.map(OfflineGeneration::subject).transpose()?;
    let then = match (before, &other) {
        (Some(before), Some(subject)) => {
            Some(Headers::new(subject, before.link(link)?, before.tenant(tenant)?))
        }
        _ => None,
    };
    let mut reader = reader(path)?;
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)
        .map_err(|error| Failure::input(format!("cannot read {} to its end: {error}", path.display())))?
    {
        let record = match Record::parse(&line) {
            Ok(record) => record,
            Err(NotRead::Other) => continue,
            Err(why) => {
                report.not_read(&why.to_string());
                continue;
            }
        };
        let before = match &then {
            Some(then) => then.judge(&record).map_err(Failure::stopped)?,
            None => record.was.clone(),
        };
        let outcome = now.judge(&record).map_err(Failure::stopped)?;
        report.add(Case { flow: record.flow, before: Some(before), after: outcome }, &record.amounts);
    }
    Ok(())
}

/// Reads the next line that is not empty; of a line that is too long for a record, slightly more than a
/// record may have.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        line.clear();
        let read = reader.by_ref().take(RECORD_BYTES as u64 + 1).read_until(b'\n', line)?;
        if read == 0 {
            return Ok(false);
        }
        if !line.ends_with(b"\n") && read > RECORD_BYTES {
            reader.skip_until(b'\n')?;
        }
        if !line.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
}
