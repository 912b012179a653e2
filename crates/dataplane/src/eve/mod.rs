// SPDX-License-Identifier: Apache-2.0
//! The recorder that writes EVE: turns the workers' events into the records of crate `events`.

mod certificates;
mod files;
mod flow;
mod head;
mod notice;
pub(crate) mod packet;
mod stats;
mod tap;

use crate::event_ring::{EventSender, LineSink, RingCounters};
use bartizan_applayer::protocol::RecordSpec;
use bartizan_applayer::transaction::LogOptions;
use bartizan_base::{Direction, FunctionId, Generation, PerDirection, Reason, SettingError, SettingsMap};
use bartizan_events::config::{Destination, EventTypes, ProtocolOptions};
use bartizan_events::sink::{OutputOpenError, Patience, SinkProblem, SinkWatch};
use bartizan_events::{EveOutput, EveOutputs, FileStoreHandle, JsonWriter, Sink, TlsStoreHandle};
use bartizan_function::VariableNames;
use bartizan_stages::chain::{Chains, ClassName, PolicyMap};
use bartizan_stages::record::{
    Entry, EventContext, PacketVerdict, Recorder, RecorderEvent, StoreOutcome, TxRecord,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use stats::Posted;
pub use stats::{RulesInForce, StatsNow, StatsWriter};
pub use tap::{ALERTS_HELD, ALERTS_WAITING, AlertKey, AlertTap, HELD_TURNS, Tapped, TappedAlerts};

/// One EVE output.
struct Output {
    options: EveOutput,
    /// `None`: lines go through the recorder's ring to the writer.
    sink: Option<Sink>,
    /// Options of protocol records, by event type.
    protocols: BTreeMap<String, LogOptions>,
}

/// Why a recorder cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EveError {
    /// A setting of an output cannot be understood.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// An output cannot be opened.
    #[error(transparent)]
    Open(#[from] OutputOpenError),
}

/// Facts about the run that events contain.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// Write own fields (`bartizan` object): runs with a policy.
    pub own_fields: bool,
    /// Names of the functions by their bit in paths.
    pub functions: Vec<&'static str>,
    /// Name of the interface, live.
    pub interface: Option<String>,
    /// Name of the link, if the host file gives one.
    pub link: Option<String>,
}

impl RunInfo {
    /// Name of a function in events.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&'static str> {
        match id {
            FunctionId::ENGINE => Some("engine"),
            id => self.functions.get(usize::from(id.0)).copied(),
        }
    }
}

/// Generations whose class names are kept: flows of older ones are recorded without the name of their policy.
pub(crate) const NAMES_KEPT: usize = 4;

/// Key of the refusal counters: the policy of the flow, the function's name, the reason.
pub type RefusalKey = (Option<Arc<str>>, &'static str, Reason);

/// The recorder; see the module.
pub struct EveRecorder {
    outputs: Vec<Output>,
    writer: JsonWriter,
    /// Names of functions' flow variables, by the functions' bits.
    variables: Vec<Option<Arc<dyn VariableNames>>>,
    /// Names of ports that flows may be redirected to.
    ports: Arc<[String]>,
    run: Arc<RunInfo>,
    capture: Option<Arc<str>>,
    prevention: bool,
    /// Firewall mode is on: alerts name the engine of their rule (`fw` or `td`).
    firewall: bool,
    alerts: BTreeMap<u32, u64>,
    files: u32,
    /// Names of the classes of the latest generations.
    names: VecDeque<(Generation, Arc<PolicyMap>)>,
    /// Packets that were refused, or would have been in prevention.
    refusals: BTreeMap<RefusalKey, u64>,
    /// Events made by other threads.
    posted: Arc<Posted>,
    /// The store of extracted files.
    store: Option<FileStoreHandle>,
    /// The store of certificates.
    certificates: Option<TlsStoreHandle>,
    /// With several workers: the worker formats events and the writer writes them.
    ring: Option<EventSender>,
    /// Receives alerts in addition to the outputs.
    tap: Option<AlertTap>,
    /// The run is ending.
    ends: bool,
}

impl EveRecorder {
    /// Opens the outputs that the settings name; relative paths are below `folder`. Adds warnings to
    /// `warnings`.
    ///
    /// # Errors
    /// A setting cannot be understood or an output not opened.
    pub fn new(
        settings: &SettingsMap,
        folder: &Path,
        prevention: bool,
        run: RunInfo,
        warnings: &mut Vec<String>,
    ) -> Result<Self, EveError> {
        Self::with_sinks(settings, prevention, run, warnings, |destination| {
            Ok(Some(Sink::open(destination, folder)?))
        })
    }

    /// The recorder of one of several workers: events go into `ring` as finished lines, which the recorder of
    /// [`EveRecorder::new`] writes (see [`crate::event_ring::write_all`]).
    ///
    /// # Errors
    /// A setting cannot be understood.
    pub fn for_worker(
        settings: &SettingsMap,
        prevention: bool,
        run: RunInfo,
        ring: EventSender,
    ) -> Result<Self, EveError> {
        let mut said = Vec::new();
        let mut recorder = Self::with_sinks(settings, prevention, run, &mut said, |_| Ok(None))?;
        recorder.ring = Some(ring);
        Ok(recorder)
    }

    fn with_sinks(
        settings: &SettingsMap,
        prevention: bool,
        run: RunInfo,
        warnings: &mut Vec<String>,
        open: impl Fn(&Destination) -> Result<Option<Sink>, EveError>,
    ) -> Result<Self, EveError> {
        let all = EveOutputs::from_settings(settings)?;
        warnings.extend(all.warnings);
        let mut outputs = Vec::new();
        for options in all.outputs {
            let sink = open(&options.destination)?.map(|sink| sink.with_prefix(&options.prefix));
            let protocols = options
                .types
                .protocols
                .iter()
                .map(|(name, o)| Ok((name.clone(), log_options(name, o)?)))
                .collect::<Result<_, SettingError>>()?;
            outputs.push(Output { options, sink, protocols });
        }
        Ok(EveRecorder {
            outputs,
            writer: JsonWriter::new(),
            variables: Vec::new(),
            ports: Arc::default(),
            run: Arc::new(run),
            capture: None,
            prevention,
            firewall: settings.bool("firewall.enabled", false)?,
            alerts: BTreeMap::new(),
            files: 0,
            names: VecDeque::new(),
            refusals: BTreeMap::new(),
            posted: Arc::default(),
            store: None,
            certificates: None,
            ring: None,
            tap: None,
            ends: false,
        })
    }

    /// Sets the store of files that rules or the settings extract.
    pub fn keep_files(&mut self, store: Option<FileStoreHandle>) {
        self.store = store;
    }

    /// Sets the store of certificates that rules extract.
    pub fn store_certificates_in(&mut self, store: Option<TlsStoreHandle>) {
        self.certificates = store;
    }

    /// Closes the ring of a worker's recorder, after its last losses are reported to the writer.
    pub fn close_ring(&mut self) -> RingCounters {
        self.ring.take().map(EventSender::finish).unwrap_or_default()
    }

    /// Adds the counters of a worker's recorder.
    pub fn absorb(&mut self, worker: &EveRecorder) {
        for (sid, count) in &worker.alerts {
            *self.alerts.entry(*sid).or_default() += count;
        }
        for (key, count) in &worker.refusals {
            *self.refusals.entry(key.clone()).or_default() += count;
        }
        self.files = self.files.wrapping_add(worker.files);
    }

    /// Alerts by sid.
    #[must_use]
    pub const fn alerts(&self) -> &BTreeMap<u32, u64> {
        &self.alerts
    }

    /// State of each output, for other threads.
    #[must_use]
    pub fn watches(&self) -> Vec<Arc<SinkWatch>> {
        self.outputs.iter().filter_map(|o| o.sink.as_ref()).map(Sink::watch).collect()
    }

    /// Packets that were refused (in detection: would have been), by policy, function and reason.
    #[must_use]
    pub const fn refusals(&self) -> &BTreeMap<RefusalKey, u64> {
        &self.refusals
    }

    /// The name that a function gives to a variable of flows.
    fn variable(&self, function: FunctionId, number: u32) -> String {
        let names = self.variables.get(usize::from(function.0)).and_then(Option::as_ref);
        names.and_then(|names| names.name(number)).unwrap_or_default()
    }

    /// The name of a flow's class.
    fn class_name(&self, flow: &Entry) -> Option<ClassName> {
        let (_, names) = self.names.iter().find(|(generation, _)| *generation == flow.generation)?;
        names.class_name(flow.fid)
    }

    /// Whether a flow's policy is staged.
    fn is_staged(&self, flow: &Entry) -> bool {
        self.class_name(flow).is_some_and(|name| name.staged)
    }

    fn count_refusal(&mut self, flow: Option<&Entry>, verdict: &PacketVerdict) {
        let Some(reason) = verdict.decision.reason else { return };
        let policy = flow.and_then(|f| self.class_name(f)).map(|name| name.policy);
        let function = self.run.function(verdict.decision.function).unwrap_or("?");
        *self.refusals.entry((policy, function, reason)).or_default() += 1;
    }

    /// Whether some output writes an event type.
    fn wants(&self, wanted: impl Fn(&EventTypes) -> bool) -> bool {
        self.outputs.iter().any(|o| wanted(&o.options.types))
    }

    /// Writes a record to each output that takes it. `write` receives the output's options.
    fn each(
        &mut self,
        wanted: impl Fn(&EventTypes) -> bool,
        mut write: impl FnMut(&mut JsonWriter, &EveOutput, &BTreeMap<String, LogOptions>),
    ) {
        self.each_numbered(wanted, |number, writer, options, protocols| {
            if number == 0 {
                write(writer, options, protocols);
            }
        });
    }

    /// Writes the records with the numbers 0, 1, ... to each output that takes them, until `write` writes
    /// none.
    fn each_numbered(
        &mut self,
        wanted: impl Fn(&EventTypes) -> bool,
        mut write: impl FnMut(usize, &mut JsonWriter, &EveOutput, &BTreeMap<String, LogOptions>),
    ) {
        for (index, output) in (0u16..).zip(&mut self.outputs) {
            if !wanted(&output.options.types) {
                continue;
            }
            for number in 0.. {
                self.writer.clear();
                write(number, &mut self.writer, &output.options, &output.protocols);
                if self.writer.bytes().is_empty() {
                    break;
                }
                match (&mut output.sink, &mut self.ring) {
                    (Some(sink), _) => sink.write_event(self.writer.bytes()),
                    // The ring counts a loss.
                    (None, Some(ring)) => _ = ring.send(index, self.writer.bytes()),
                    (None, None) => {}
                }
            }
        }
    }

    /// Makes all outputs wait for their readers from now on, as long as `patience` lasts.
    pub fn wait_for_readers(&mut self, patience: Patience) {
        self.sinks().for_each(|sink| sink.wait_for_reader(patience));
    }

    /// Flushes the outputs, and counts as lost whatever they do not take.
    pub fn finish_outputs(&mut self) {
        self.write_posted();
        // All outputs first: their readers can read while this thread waits for another one.
        self.sinks().for_each(Sink::flush);
        self.sinks().for_each(Sink::finish);
    }

    /// Flushes, and returns the problems of outputs that are not reported yet.
    pub fn finish(&mut self) -> Vec<SinkProblem> {
        self.finish_outputs();
        self.sinks().flat_map(|sink| std::iter::from_fn(|| sink.take_problem()).collect::<Vec<_>>()).collect()
    }

    fn sinks(&mut self) -> impl Iterator<Item = &mut Sink> {
        self.outputs.iter_mut().filter_map(|output| output.sink.as_mut())
    }
}

impl LineSink for EveRecorder {
    fn lost(&mut self, output: u16, events: u64) -> bool {
        if let Some(sink) = self.outputs.get_mut(usize::from(output)).and_then(|o| o.sink.as_mut()) {
            sink.missed(events);
        }
        true
    }

    fn ending(&mut self) {
        Recorder::ending(self);
    }

    fn line(&mut self, output: u16, line: &[u8]) {
        if let Some(sink) = self.outputs.get_mut(usize::from(output)).and_then(|o| o.sink.as_mut()) {
            sink.write_event(line);
        }
    }

    fn idle(&mut self) {
        Recorder::idle(self);
    }

    fn turn(&mut self) {
        self.write_posted();
    }

    fn name(&self, output: u16) -> String {
        match self.outputs.get(usize::from(output)).map(|o| &o.options.destination) {
            Some(Destination::File(file)) => file.path.display().to_string(),
            Some(Destination::Stdout) => "standard output".to_owned(),
            Some(Destination::UnixStream(path) | Destination::UnixDatagram(path)) => {
                path.display().to_string()
            }
            None => String::new(),
        }
    }
}

/// The options of an event type. A type without a parser in this program ignores them.
fn log_options(kind: &str, options: &ProtocolOptions) -> Result<LogOptions, SettingError> {
    let (request, response) = options.dump_all_headers();
    let mut specs = bartizan_applayer::protocols::TABLE.iter();
    let spec = specs.find(|spec| spec.eve_type == Some(kind));
    Ok(LogOptions {
        extended: options.extended(false)?,
        custom: options.list("custom"),
        dump_all_headers: PerDirection::new(request, response),
        version: spec.map_or(Ok(0), |spec| record_version(spec.records, options))?,
        formats: options.list("formats"),
        bodies: bartizan_applayer::transaction::Bodies::default(),
        settings: options.settings.clone(),
    })
}

/// The version of records that an output is configured to write.
fn record_version(records: RecordSpec, options: &ProtocolOptions) -> Result<u8, SettingError> {
    if records.version == 0 {
        return Ok(0);
    }
    let of_process = records.version_variable.and_then(|name| std::env::var(name).ok());
    let usual = of_process.and_then(|version| version.parse().ok()).unwrap_or(records.version);
    options.settings.number("version", usual)
}

impl Recorder for EveRecorder {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { occasion, flow, finding, verdict: fate, tx } => {
                *self.alerts.entry(finding.rule.id.sid).or_default() += 1;
                self.tap_alert(occasion, flow, finding, fate);
                self.write_alert(occasion, flow, finding, fate, tx);
            }
            RecorderEvent::Tagged { occasion, flow } => self.write_tagged(occasion, flow),
            RecorderEvent::Variables { occasion, flow, variables } => {
                self.write_metadata(occasion, flow, variables);
            }
            RecorderEvent::Frame { occasion, flow, spec, frames, frame } => {
                self.write_frame(occasion, flow, spec, frames, frame);
            }
            RecorderEvent::Declared { occasion, flow, record } => self.write_declared(occasion, flow, record),
            RecorderEvent::Anomaly { occasion, flow, anomaly } => self.write_anomaly(occasion, flow, anomaly),
            RecorderEvent::Refused { occasion, flow, verdict: fate, findings } => {
                self.count_refusal(flow, fate);
                self.write_drop(occasion, flow, fate, findings);
            }
            RecorderEvent::Notice { now, generation, notice } => self.write_notice(now, generation, notice),
            RecorderEvent::Unsent { occasion, unsent } => self.write_unsent(occasion, unsent),
            RecorderEvent::Transaction { occasion, flow, tx } => self.write_transaction(occasion, flow, tx),
            RecorderEvent::File { occasion, flow, tx, direction, index } => {
                self.write_file(occasion, flow, tx, direction, index);
            }
            RecorderEvent::Certificates { occasion, flow, tx, side } => {
                self.store_certificates(occasion, flow, tx, side);
            }
            RecorderEvent::Flow { flow, ended } => self.write_flow(flow, ended),
        }
    }

    fn enter_generation(&mut self, chains: &Chains) {
        if self.names.iter().any(|(generation, _)| *generation == chains.generation) {
            return;
        }
        self.names.truncate(NAMES_KEPT - 1);
        self.names.push_front((chains.generation, chains.classifier.policies()));
        self.variables = chains.variable_names();
        self.ports = Arc::clone(&chains.ports);
    }

    fn store(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) -> StoreOutcome {
        self.store_file(occasion, flow, tx, direction, index)
    }

    fn enter_capture(&mut self, name: &str) {
        self.capture = Some(name.into());
    }

    fn turn(&mut self) {
        self.write_posted();
        self.tap.iter_mut().for_each(AlertTap::turn);
    }

    fn idle(&mut self) {
        self.write_posted();
        self.tap.iter_mut().for_each(AlertTap::flush);
        self.sinks().for_each(Sink::flush);
    }

    fn ending(&mut self) {
        self.tap.iter_mut().for_each(AlertTap::flush);
        self.ring.iter_mut().for_each(EventSender::ending);
        self.store.iter_mut().for_each(FileStoreHandle::wait_for_writer);
        self.certificates.iter_mut().for_each(TlsStoreHandle::wait_for_writer);
        // The first worker that ends begins the end of the run.
        if !core::mem::replace(&mut self.ends, true) {
            self.wait_for_readers(Patience::at_the_end());
        }
    }
}
