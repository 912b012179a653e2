// SPDX-License-Identifier: Apache-2.0
//! Events of type `stats`: made by the supervisor from the workers' counters, and written by the thread that
//! owns the outputs.
//!
//! The outputs belong to one thread. [`StatsWriter`] formats in another thread and posts finished lines; the
//! recorder takes them between two batches ([`bartizan_stages::record::Recorder::turn`]), so no worker waits
//! for a counter.

use super::EveRecorder;
use bartizan_base::Timestamp;
use bartizan_events::config::{HeaderOptions, StatsOptions};
use bartizan_events::record::{Counter, DetectEngine, StatsRecord, ThreadCounters};
use bartizan_events::sink::SinkWatch;
use bartizan_events::{Common, FileStoreCounters, JsonWriter, TlsStoreCounters};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Finished lines that wait for the outputs.
#[derive(Debug, Default)]
pub(super) struct Posted {
    waiting: AtomicBool,
    lines: Mutex<Vec<(u16, Vec<u8>)>>,
}

impl Posted {
    fn put(&self, output: u16, line: Vec<u8>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push((output, line));
        self.waiting.store(true, Ordering::Release);
    }

    /// Takes the waiting lines; mostly there are none, which costs one load.
    #[inline]
    pub(super) fn take(&self) -> Vec<(u16, Vec<u8>)> {
        if !self.waiting.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.waiting.store(false, Ordering::Relaxed);
        core::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The rules in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesInForce {
    /// Rules that run.
    pub loaded: u64,
    /// Rules that could not be used.
    pub failed: u64,
    /// Rules left out.
    pub skipped: u64,
    /// When they were loaded: control-plane time.
    pub since: Timestamp,
}

impl RulesInForce {
    /// Whether the run has rules, hence detection.
    const fn are_there(&self) -> bool {
        self.loaded + self.failed + self.skipped > 0
    }
}

/// Values of one event of type `stats`.
#[derive(Clone, Copy, Debug)]
pub struct StatsNow<'a> {
    /// Packet clock.
    pub clock: Timestamp,
    /// Seconds since the start.
    pub uptime: u64,
    /// Counters of all workers together.
    pub totals: &'a [(&'static str, u64)],
    /// Counters of each worker, with its name.
    pub threads: &'a [(String, Vec<(&'static str, u64)>)],
    /// Counters of each link, with its name, where there are several.
    pub links: &'a [(String, Vec<(&'static str, u64)>)],
    /// Counters of each port, with its name.
    pub ports: &'a [(String, Vec<(&'static str, u64)>)],
    /// Rules.
    pub rules: RulesInForce,
}

/// The writer; see the module.
#[derive(Debug)]
pub struct StatsWriter {
    outputs: Vec<(u16, HeaderOptions, StatsOptions)>,
    posted: Arc<Posted>,
    store: Option<Arc<FileStoreCounters>>,
    certificates: Option<Arc<TlsStoreCounters>>,
    /// The state of the event outputs.
    watches: Vec<Arc<SinkWatch>>,
    last: StatsBaseline,
    writer: JsonWriter,
}

impl EveRecorder {
    /// The writer of `stats` events for this recorder's outputs; it writes none unless `enabled`
    /// (`stats.enabled`).
    #[must_use]
    pub fn stats_writer(&self, enabled: bool) -> StatsWriter {
        let outputs = (0u16..).zip(&self.outputs).filter(|_| enabled).filter_map(|(number, output)| {
            Some((number, output.options.header.clone(), output.options.types.stats?))
        });
        StatsWriter {
            outputs: outputs.collect(),
            posted: Arc::clone(&self.posted),
            store: self.store.as_ref().map(bartizan_events::FileStoreHandle::shared_counters),
            certificates: self.certificates.as_ref().map(bartizan_events::TlsStoreHandle::shared_counters),
            watches: self.watches(),
            last: StatsBaseline::new(),
            writer: JsonWriter::new(),
        }
    }

    /// Writes lines that were formatted by other threads.
    pub(super) fn write_posted(&mut self) {
        for (output, line) in self.posted.take() {
            if let Some(sink) = self.outputs.get_mut(usize::from(output)).and_then(|o| o.sink.as_mut()) {
                sink.write_event(&line);
            }
        }
    }
}

/// Counters summed over all event outputs: events written, and events lost in an output or on the way to it.
fn events_of(watches: &[Arc<SinkWatch>]) -> [(&'static str, u64); 2] {
    let sum = |of: fn(&SinkWatch) -> u64| watches.iter().map(|watch| of(watch)).sum();
    [("events.written", sum(SinkWatch::written)), ("events.lost", sum(SinkWatch::lost))]
}

/// Counters with their values at the last event; the new values replace those.
fn with_last<'a>(
    counters: &'a [(&'static str, u64)],
    last: &mut BTreeMap<&'static str, u64>,
) -> Vec<Counter<'a>> {
    let with = |(name, value): &'a (&'static str, u64)| Counter {
        name,
        value: *value,
        last: last.insert(name, *value).unwrap_or(0),
    };
    counters.iter().map(with).collect()
}

/// Values of the last event: of all workers together, of each worker by its name, and of each link and port
/// by its name after the prefix `link ` or `port `.
type StatsBaseline = BTreeMap<String, BTreeMap<&'static str, u64>>;

/// Counters of a worker, link or port, with its name.
type StatsGroup<'a> = (&'a str, Vec<Counter<'a>>);

fn named<'a>(all: &'a [StatsGroup<'a>]) -> Vec<ThreadCounters<'a>> {
    all.iter().map(|(name, counters)| ThreadCounters { name, counters }).collect()
}

/// Adds the values at the last event; the prefix `of` tells links and ports from workers.
fn with_names<'a>(
    last: &mut StatsBaseline,
    all: &'a [(String, Vec<(&'static str, u64)>)],
    of: &str,
) -> Vec<StatsGroup<'a>> {
    let with = |(name, counters): &'a (String, Vec<(&'static str, u64)>)| {
        let last = last.entry(format!("{of}{name}")).or_default();
        (name.as_str(), with_last(counters, last))
    };
    all.iter().map(with).collect()
}

/// Builds the record of an event with these counters of all workers, and passes it to a closure.
fn with_record(
    now: &StatsNow<'_>,
    all: &[(&'static str, u64)],
    last: &mut StatsBaseline,
    write: impl FnOnce(&StatsRecord<'_>, &Common<'_>),
) {
    let rules = now.rules;
    let totals = with_last(all, last.entry(String::new()).or_default());
    let (threads, links) = (with_names(last, now.threads, ""), with_names(last, now.links, "link "));
    let ports = with_names(last, now.ports, "port ");
    let (threads, links, ports) = (named(&threads), named(&links), named(&ports));
    let since = bartizan_events::time_text(rules.since);
    let engines = [DetectEngine {
        id: 0,
        last_reload: &since,
        rules_loaded: rules.loaded,
        rules_failed: rules.failed,
        rules_skipped: rules.skipped,
    }];
    let engines = if rules.are_there() { engines.as_slice() } else { &[] };
    let (uptime, totals) = (now.uptime, &totals);
    let record = StatsRecord { uptime, totals, threads: &threads, links: &links, ports: &ports, engines };
    write(&record, &Common { timestamp: now.clock, ..Common::default() });
}

impl StatsWriter {
    /// Updates the counters of outputs: the last event itself was written, or lost, after they were read.
    pub fn refresh(&self, counters: &mut [(&'static str, u64)]) {
        for (name, value) in events_of(&self.watches) {
            counters.iter_mut().filter(|(known, _)| *known == name).for_each(|known| known.1 = value);
        }
    }

    /// Whether some output has these events.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Makes an event and posts it to the outputs. Returns all counters.
    pub fn write(&mut self, now: &StatsNow<'_>) -> Vec<(&'static str, u64)> {
        let all = self.all(now);
        let StatsWriter { outputs, posted, last, writer, .. } = self;
        with_record(now, &all, last, |record, common| {
            for (output, header, options) in outputs {
                record.write(writer, header, options, common);
                posted.put(*output, writer.bytes().to_vec());
            }
        });
        all
    }

    /// The present counters as the JSON of an event, with those of each worker, independent of the outputs'
    /// options. The differences in the next event still refer to the last event.
    pub fn show(&mut self, now: &StatsNow<'_>) -> Vec<u8> {
        let all = self.all(now);
        let options = StatsOptions { threads: true, ..StatsOptions::default() };
        with_record(now, &all, &mut StatsBaseline::new(), |record, common| {
            record.write(&mut self.writer, &HeaderOptions::default(), &options, common);
        });
        self.writer.bytes().to_vec()
    }

    /// All counters summed over all workers, with those of stores.
    fn all(&self, now: &StatsNow<'_>) -> Vec<(&'static str, u64)> {
        // Without rules there is no detection, so its counters are left out.
        let detects = now.rules.are_there();
        let is_there = |(name, _): &(&'static str, u64)| detects || !name.starts_with("detect.");
        let mut all: Vec<_> = now.totals.iter().copied().filter(is_there).collect();
        match &self.store {
            Some(store) => store.for_each(|name, value| all.push((name, value))),
            None => all.push(("file_store.open_files", 0)),
        }
        if let Some(store) = &self.certificates {
            store.for_each(|name, value| all.push((name, value)));
        }
        all.extend(events_of(&self.watches));
        let wrong = u64::from(bartizan_stages::stats::mostly_wrong_checksums(&all).is_some());
        all.push(("tcp.checksums_mostly_wrong", wrong));
        all
    }
}
