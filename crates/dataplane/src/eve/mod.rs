// SPDX-License-Identifier: Apache-2.0
//! The recorder that writes EVE: turns what workers find into the records of crate `events`.

mod flow;
mod head;
mod packet;

use crate::record::{Anomaly, Entry, Fate, Occasion, Recorder, TxRecord};
use crate::worker::Worker;
use bartizan_applayer::transaction::LogOptions;
use bartizan_base::{Direction, Generation, PerDirection, SettingError, Settings, Timestamp};
use bartizan_detect::shared::Shared;
use bartizan_events::config::{EventTypes, ProtocolOptions};
use bartizan_events::record::{Counter, StatsRecord};
use bartizan_events::sink::{OpenError, SinkProblem};
use bartizan_events::{Common, EveOutput, EveOutputs, JsonWriter, Sink};
use bartizan_flow::EndReason;
use bartizan_function::Finding;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// One EVE output.
struct Output {
    options: EveOutput,
    sink: Sink,
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
    Open(#[from] OpenError),
}

/// What the run adds to events beyond the traffic itself.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// Write own fields (`bartizan` object): runs with a policy.
    pub own_fields: bool,
    /// Names of the functions by their bit in paths.
    pub functions: Vec<&'static str>,
    /// Name of the interface, live.
    pub interface: Option<String>,
}

/// See the module.
pub struct EveRecorder {
    outputs: Vec<Output>,
    writer: JsonWriter,
    shared: Arc<Shared>,
    run: Arc<RunInfo>,
    capture: Option<Arc<str>>,
    prevention: bool,
    alerts: BTreeMap<u32, u64>,
    files: u32,
    generation: Generation,
    app_counters: AppCounters,
}

/// Flows and transactions by protocol, for `stats.app_layer`.
#[derive(Debug, Default)]
struct AppCounters {
    flows: BTreeMap<String, u64>,
    transactions: BTreeMap<String, u64>,
}

impl EveRecorder {
    /// Opens the outputs that the settings name; relative files lie below `folder`. Warnings are added to `warnings`.
    ///
    /// # Errors
    /// A setting cannot be understood or an output not opened.
    pub fn new(
        settings: &Settings,
        folder: &Path,
        shared: &Arc<Shared>,
        prevention: bool,
        run: RunInfo,
        warnings: &mut Vec<String>,
    ) -> Result<Self, EveError> {
        let all = EveOutputs::from_settings(settings)?;
        warnings.extend(all.warnings);
        let mut outputs = Vec::new();
        for options in all.outputs {
            let sink = Sink::open(&options.destination, folder)?;
            let protocols = options
                .types
                .protocols
                .iter()
                .map(|(name, o)| Ok((name.clone(), log_options(o)?)))
                .collect::<Result<_, SettingError>>()?;
            outputs.push(Output { options, sink, protocols });
        }
        Ok(EveRecorder {
            outputs,
            writer: JsonWriter::new(),
            shared: Arc::clone(shared),
            run: Arc::new(run),
            capture: None,
            prevention,
            alerts: BTreeMap::new(),
            files: 0,
            generation: Generation(1),
            app_counters: AppCounters::default(),
        })
    }

    /// From here on packets come from this capture.
    pub fn enter_capture(&mut self, name: &str) {
        self.capture = Some(name.into());
    }

    /// Alerts by sid.
    #[must_use]
    pub const fn alerts(&self) -> &BTreeMap<u32, u64> {
        &self.alerts
    }

    /// Whether some output wants an event type.
    fn wants(&self, wanted: impl Fn(&EventTypes) -> bool) -> bool {
        self.outputs.iter().any(|o| wanted(&o.options.types))
    }

    /// Hands a record to each output that wants it. `write` gets the output's options.
    fn each(
        &mut self,
        wanted: impl Fn(&EventTypes) -> bool,
        mut write: impl FnMut(&mut JsonWriter, &EveOutput, &BTreeMap<String, LogOptions>),
    ) {
        for output in self.outputs.iter_mut().filter(|o| wanted(&o.options.types)) {
            self.writer.clear();
            write(&mut self.writer, &output.options, &output.protocols);
            if !self.writer.bytes().is_empty() {
                output.sink.write_event(self.writer.bytes());
            }
        }
    }

    /// Writes the `stats` event of the end and gives the counters, (dotted name, value).
    pub fn stats(&mut self, worker: &Worker, now: Timestamp, rules: (u64, u64, u64)) -> Vec<(String, u64)> {
        let mut counters: Vec<(String, u64)> = Vec::new();
        worker.visit_stats(|name, value| counters.push((name.to_owned(), value)));
        for (name, value) in &self.app_counters.flows {
            counters.push((format!("app_layer.flow.{name}"), *value));
        }
        for (name, value) in &self.app_counters.transactions {
            counters.push((format!("app_layer.tx.{name}"), *value));
        }
        let totals: Vec<Counter<'_>> =
            counters.iter().map(|(name, value)| Counter { name, value: *value, last: 0 }).collect();
        let (loaded, failed, skipped) = rules;
        let engines = [bartizan_events::record::DetectEngine {
            id: 0,
            last_reload: "",
            rules_loaded: loaded,
            rules_failed: failed,
            rules_skipped: skipped,
        }];
        let record = StatsRecord { uptime: 0, totals: &totals, threads: &[], engines: &engines };
        let common = Common { timestamp: now, ..Common::default() };
        self.each(
            |types| types.stats.is_some(),
            |writer, options, _| {
                if let Some(stats) = &options.types.stats {
                    record.write(writer, &options.header, stats, &common);
                }
            },
        );
        counters
    }

    /// Writes out what is buffered and gives the problems that the outputs had.
    pub fn finish(&mut self) -> Vec<SinkProblem> {
        self.outputs
            .iter_mut()
            .filter_map(|output| {
                output.sink.flush();
                output.sink.take_problem()
            })
            .collect()
    }
}

fn log_options(options: &ProtocolOptions) -> Result<LogOptions, SettingError> {
    let (request, response) = options.dump_all_headers();
    let version = std::env::var("SURICATA_EVE_DNS_VERSION").ok().and_then(|v| v.parse().ok());
    Ok(LogOptions {
        extended: options.extended(false)?,
        custom: options.list("custom"),
        dump_all_headers: PerDirection::new(request, response),
        dns_version: options.settings.number("version", version.unwrap_or(3))?,
        formats: options.list("formats"),
        settings: options.settings.clone(),
    })
}

impl Recorder for EveRecorder {
    fn alert(
        &mut self,
        occasion: &Occasion<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        fate: &Fate,
        tx: Option<TxRecord<'_>>,
    ) {
        *self.alerts.entry(finding.rule.id.sid).or_default() += 1;
        self.write_alert(occasion, flow, finding, fate, tx);
    }

    fn anomaly(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, anomaly: Anomaly<'_>) {
        self.write_anomaly(occasion, flow, anomaly);
    }

    fn refused(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, fate: &Fate, findings: &[Finding]) {
        self.write_drop(occasion, flow, fate, findings);
    }

    fn transaction(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>) {
        *self.app_counters.transactions.entry(counter_name(flow, tx.spec.name)).or_default() += 1;
        self.write_transaction(occasion, flow, tx);
    }

    fn file(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        self.write_file(occasion, flow, tx, direction, index);
    }

    fn flow(&mut self, flow: &Entry, reason: EndReason, now: Timestamp) {
        self.count_flow(flow);
        self.write_flow(flow, reason, now);
    }
}

/// Name of a protocol in counters: with its transport where it has two.
fn counter_name(flow: &Entry, name: &str) -> String {
    match (name, flow.key().protocol()) {
        ("dns" | "krb5" | "nfs" | "dcerpc" | "ldap", 6) => format!("{name}_tcp"),
        ("dns" | "krb5" | "nfs" | "dcerpc" | "ldap", 17) => format!("{name}_udp"),
        _ => name.to_owned(),
    }
}

impl EveRecorder {
    fn count_flow(&mut self, flow: &Entry) {
        use bartizan_applayer::flow::Known;
        let Some(app) = flow.ext.app.as_deref() else { return };
        let name = match app.protocol() {
            Known::Protocol(id) => {
                bartizan_applayer::protocols::spec(id).map(|s| counter_name(flow, s.name)).unwrap_or_default()
            }
            Known::Failed if flow.key().protocol() == 17 => "failed_udp".to_owned(),
            Known::Failed => "failed_tcp".to_owned(),
            Known::Pending => return,
        };
        *self.app_counters.flows.entry(name).or_default() += 1;
    }
}
