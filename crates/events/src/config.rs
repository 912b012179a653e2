// SPDX-License-Identifier: Apache-2.0
//! Configuration of event outputs: the types, fields and destinations of the `eve-log` outputs in the
//! settings.
//!
//! Source: Suricata's user guide, "Eve JSON Output" and "EVE Log" of suricata.yaml, and its behaviour: an
//! output without `enabled: yes` is off, a type in the list is on unless it has `enabled: no`, a type that is
//! not in the list is off, and only one output may log `drop` and one `anomaly`.
//!
//! Not supported: `syslog` and `redis` (a warning beside another output that works; without one an error,
//! since events in another place than the configured one are missed), plug-in file types (an error), files
//! per thread (`threaded`: all events go into one file). Own settings: `rotate-size`, `rotate-every`
//! (seconds), `rotate-keep`, `output-rights` (see [`crate::output`]), and `twin: yes` for an output that gets
//! the same events as another one, `drop` and `anomaly` included.

mod read;

use crate::output::Rights;
use crate::xff::XffOptions;
use bartizan_base::{SettingError, SettingsMap};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All outputs of the settings.
#[derive(Debug, Default)]
pub struct EveOutputs {
    /// Enabled outputs, in the order of the settings.
    pub outputs: Vec<EveOutput>,
    /// Warnings about settings that were not followed.
    pub warnings: Vec<String>,
}

/// One `eve-log` output.
#[derive(Debug)]
pub struct EveOutput {
    /// Position in the list `outputs`.
    pub index: u32,
    /// Destination of the events.
    pub destination: Destination,
    /// Text before each event (`prefix`).
    pub prefix: String,
    /// Optional fields in the head of each event.
    pub header: HeaderOptions,
    /// Addresses for which proxies forward.
    pub xff: Option<XffOptions>,
    /// Event types with their options.
    pub types: EventTypes,
}

/// The destination of an output's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file.
    File(FileDestination),
    /// Standard output.
    Stdout,
    /// A Unix stream socket on which another program listens.
    UnixStream(PathBuf),
    /// A Unix datagram socket on which another program listens.
    UnixDatagram(PathBuf),
}

/// The times at which a file gets a new name (`rotate-interval`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotateInterval {
    /// Each time that a minute, hour or day (UTC) of this many seconds begins.
    Next(u64),
    /// Each time that this many seconds have passed.
    Every(u64),
}

/// A file output. Relative names are below the output folder of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDestination {
    /// File name; conversions of strftime(3) in it are replaced by the time at which the file is opened.
    pub path: PathBuf,
    /// Whether existing content stays (`append`, default yes).
    pub append: bool,
    /// Size in bytes at which the file is rotated; `None`: never.
    pub rotate_size: Option<u64>,
    /// Seconds between the first event of a file and the first event of the next; `None`: no limit.
    pub rotate_every: Option<u64>,
    /// Number of rotated files that are kept.
    pub rotate_keep: u32,
    /// Times of a new name; `None`: only when the file is opened again for another reason.
    pub rotate_interval: Option<RotateInterval>,
    /// Access rights of the file.
    pub rights: Rights,
}

impl FileDestination {
    /// A file that is appended to and never rotated.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FileDestination {
            path: path.into(),
            append: true,
            rotate_size: None,
            rotate_every: None,
            rotate_keep: 8,
            rotate_interval: None,
            rights: Rights::default(),
        }
    }
}

/// Fields that the output's own settings add to every event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// Variables that rules set (`metadata`).
    pub metadata: bool,
    /// Ethernet addresses (`ethernet`).
    pub ethernet: bool,
    /// Community ID with its seed (`community-id`, `community-id-seed`).
    pub community_id: Option<u16>,
    /// `suricata_version`.
    pub suricata_version: bool,
    /// Name of the capture file (`pcap-file`).
    pub pcap_file: bool,
    /// Name of the sensor (`sensor-name`), written as `host`.
    pub sensor_name: Option<String>,
    /// Number of the sensor (`sensor-id`).
    pub sensor_id: Option<u64>,
}

impl Default for HeaderOptions {
    fn default() -> Self {
        HeaderOptions {
            metadata: true,
            ethernet: false,
            community_id: None,
            suricata_version: false,
            pcap_file: false,
            sensor_name: None,
            sensor_id: None,
        }
    }
}

/// Event types of an output. `None` or `false` means off.
#[derive(Debug, Default)]
pub struct EventTypes {
    /// `alert` and tagged `packet` events.
    pub alert: Option<AlertOptions>,
    /// `xff` of the alerts; `None`: the setting of the output.
    pub alert_xff: Option<XffOptions>,
    /// `anomaly`.
    pub anomaly: Option<AnomalyOptions>,
    /// `drop`.
    pub drop: Option<DropOptions>,
    /// `files`: `fileinfo` events.
    pub files: Option<FilesOptions>,
    /// `flow`.
    pub flow: bool,
    /// `netflow`.
    pub netflow: bool,
    /// `stats`.
    pub stats: Option<StatsOptions>,
    /// `metadata` events.
    pub metadata: bool,
    /// `frame`.
    pub frame: bool,
    /// `payload-buffer-size` of `frame`: limit of a stream frame's bytes in a record, plus one.
    pub frame_payload: u32,
    /// Names of declared events ([`crate::record::DECLARED`]).
    pub declared: Vec<&'static str>,
    /// Application protocols by the type's name in the settings (`http`, `dns`, `bittorrent-dht`, ...), each
    /// with its own settings, which its parser interprets.
    pub protocols: BTreeMap<String, ProtocolOptions>,
}

/// Options of an application protocol's events.
#[derive(Clone, Debug, Default)]
pub struct ProtocolOptions {
    /// The settings below the type, keys without prefix.
    pub settings: SettingsMap,
    /// `xff`, for protocols with a proxy's header; `None`: the setting of the output.
    pub xff: Option<XffOptions>,
}

impl ProtocolOptions {
    /// `extended`, which most protocols have.
    ///
    /// # Errors
    /// The value is no switch.
    pub fn extended(&self, default: bool) -> Result<bool, SettingError> {
        self.settings.bool("extended", default)
    }

    /// A list of names, such as `custom`, `types` or `formats`.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<String> {
        read::list(&self.settings, key)
    }

    /// `dump-all-headers`: the sides whose headers are logged in full (`request`, `response`, `both`).
    #[must_use]
    pub fn dump_all_headers(&self) -> (bool, bool) {
        match self.settings.get("dump-all-headers").map(str::to_ascii_lowercase).as_deref() {
            Some("both") => (true, true),
            Some("request") => (true, false),
            Some("response") => (false, true),
            _ => (false, false),
        }
    }
}

/// Options of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertOptions {
    /// `payload`: bytes in base64.
    pub payload: bool,
    /// `payload-printable`: bytes as text.
    pub payload_printable: bool,
    /// `payload-length`.
    pub payload_length: bool,
    /// `payload-buffer-size`: limit of stream bytes in an alert.
    pub payload_buffer_size: u32,
    /// `packet`: the packet in base64.
    pub packet: bool,
    /// `tagged-packets`: an event `packet` for each packet that a rule tagged.
    pub tagged_packets: bool,
    /// `http-body`: the body in base64, among the HTTP fields.
    pub http_body: bool,
    /// `http-body-printable`: the body as text.
    pub http_body_printable: bool,
    /// `websocket-payload`: the payload in base64, among the WebSocket fields.
    pub websocket_payload: bool,
    /// `websocket-payload-printable`: the payload as text.
    pub websocket_payload_printable: bool,
    /// `verdict`: the verdict on the packet.
    pub verdict: bool,
    /// `metadata.app-layer`: the transaction.
    pub app_layer: bool,
    /// `metadata.flow`: the flow so far.
    pub flow: bool,
    /// `metadata.rule.metadata`: the rule's metadata, and the transaction's files.
    pub rule_metadata: bool,
    /// `metadata.rule.raw`: the rule's text.
    pub rule_raw: bool,
    /// `metadata.rule.reference`: the rule's references.
    pub rule_reference: bool,
}

impl AlertOptions {
    /// Options for alerts without optional fields.
    pub const NOTHING: AlertOptions = AlertOptions {
        payload: false,
        payload_printable: false,
        payload_length: false,
        payload_buffer_size: 4096,
        packet: false,
        tagged_packets: false,
        http_body: false,
        http_body_printable: false,
        websocket_payload: false,
        websocket_payload_printable: false,
        verdict: false,
        app_layer: false,
        flow: false,
        rule_metadata: false,
        rule_raw: false,
        rule_reference: false,
    };
}

impl Default for AlertOptions {
    fn default() -> Self {
        AlertOptions { app_layer: true, flow: true, rule_metadata: true, ..AlertOptions::NOTHING }
    }
}

/// Options of anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnomalyOptions {
    /// `types.decode`.
    pub decode: bool,
    /// `types.stream`.
    pub stream: bool,
    /// `types.applayer`.
    pub applayer: bool,
    /// `packethdr`: the packet's first bytes; only together with `types.decode`.
    pub packethdr: bool,
}

impl Default for AnomalyOptions {
    fn default() -> Self {
        AnomalyOptions { decode: false, stream: false, applayer: true, packethdr: false }
    }
}

/// Options of drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropOptions {
    /// `alerts`: the rule that caused the drop.
    pub alerts: bool,
    /// `flows: all`: every packet of a flow that is dropped as a whole, not only the first per direction.
    pub all_packets: bool,
    /// `verdict`.
    pub verdict: bool,
}

/// Options of `files`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesOptions {
    /// `force-magic`: determine the content type of every file.
    pub force_magic: bool,
    /// `force-hash` has `md5`.
    pub md5: bool,
    /// `force-hash` has `sha1`.
    pub sha1: bool,
    /// `force-hash` has `sha256`.
    pub sha256: bool,
    /// `force-filestore`: store every file.
    pub force_filestore: bool,
    /// `xff` of files; `None`: the setting of the output.
    pub xff: Option<XffOptions>,
}

/// Options of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsOptions {
    /// `totals`: sums over all threads.
    pub totals: bool,
    /// `threads`: each thread's counters.
    pub threads: bool,
    /// `deltas`: the change since the last event, too.
    pub deltas: bool,
    /// `null-values`: counters that are 0, too.
    pub null_values: bool,
}

impl Default for StatsOptions {
    fn default() -> Self {
        StatsOptions { totals: true, threads: false, deltas: false, null_values: true }
    }
}

#[cfg(test)]
mod tests;
