// SPDX-License-Identifier: Apache-2.0
//! Which events go where, and with which fields: the `eve-log` outputs of the settings.
//!
//! Source: Suricata's user guide, "Eve JSON Output" and "EVE Log" of suricata.yaml, and its behaviour:
//! an output without `enabled: yes` is off, a type in the list is on unless it says `enabled: no`, a type
//! that is not in the list is off, and only one output may log `drop` and one `anomaly`.
//!
//! Not done: `syslog`, `redis` and plug-in file types (a warning, and the output is left out), files per
//! thread (`threaded`: all events go into one file), rotation by time. Own settings: `rotate-size` and
//! `rotate-keep`.

use bartizan_base::{SettingError, Settings};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All outputs of the settings.
#[derive(Debug, Default)]
pub struct EveOutputs {
    /// Outputs that are on, in the order of the settings.
    pub outputs: Vec<EveOutput>,
    /// What a user should know about settings that were not followed.
    pub warnings: Vec<String>,
}

/// One `eve-log` output.
#[derive(Debug)]
pub struct EveOutput {
    /// Position in the list `outputs`.
    pub index: u32,
    /// Where events go.
    pub destination: Destination,
    /// What each event's head has.
    pub header: HeaderOptions,
    /// Addresses that proxies forward for.
    pub xff: Option<XffOptions>,
    /// Which events, with which fields.
    pub types: EventTypes,
}

/// Where the events of an output go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file.
    File(FileDestination),
    /// Standard output.
    Stdout,
    /// A Unix stream socket that somebody listens on.
    UnixStream(PathBuf),
    /// A Unix datagram socket that somebody listens on.
    UnixDatagram(PathBuf),
}

/// A file output. Relative names are below the output folder, which the program knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDestination {
    /// File name.
    pub path: PathBuf,
    /// Whether what is in the file stays (`append`, yes unless said otherwise).
    pub append: bool,
    /// Size in bytes at which the file is put aside and a new one begun; `None` for never.
    pub rotate_size: Option<u64>,
    /// How many files that were put aside are kept.
    pub rotate_keep: u32,
}

impl FileDestination {
    /// A file that is appended to and never rotated by size.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FileDestination { path: path.into(), append: true, rotate_size: None, rotate_keep: 8 }
    }
}

/// What the output's own settings add to every event.
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

/// Which events an output takes. What is `None` or `false` is off.
#[derive(Debug, Default)]
pub struct EventTypes {
    /// `alert` and tagged `packet` events.
    pub alert: Option<AlertOptions>,
    /// Own `xff` of the alerts; `None`: as the output says.
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
    /// `arp`.
    pub arp: bool,
    /// Application protocols by the type's name in the settings (`http`, `dns`, `bittorrent-dht`, ...), each
    /// with its own settings; their parsers know what these mean.
    pub protocols: BTreeMap<String, ProtocolOptions>,
}

/// Options of an application protocol's events.
#[derive(Clone, Debug, Default)]
pub struct ProtocolOptions {
    /// The settings below the type, keys without prefix.
    pub settings: Settings,
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
        list(&self.settings, key)
    }

    /// `dump-all-headers`: which sides' headers are logged in full (`request`, `response`, `both`).
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
    /// `payload-buffer-size`: most bytes of a stream that an alert shows.
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
    /// `verdict`: what became of the packet.
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
    /// Only what every alert has.
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
    /// `alerts`: the rule that dropped.
    pub alerts: bool,
    /// `flows: all`: every packet of a flow that is dropped as a whole, not only the first per direction.
    pub all_packets: bool,
    /// `verdict`.
    pub verdict: bool,
}

/// Options of `files`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesOptions {
    /// `force-magic`: name the kind of content of every file.
    pub force_magic: bool,
    /// `force-hash` has `md5`.
    pub md5: bool,
    /// `force-hash` has `sha1`.
    pub sha1: bool,
    /// `force-hash` has `sha256`.
    pub sha256: bool,
    /// `force-filestore`: store every file.
    pub force_filestore: bool,
    /// Own `xff`; `None`: as the output says.
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

/// What to do with the address that a proxy says it forwards for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XffOptions {
    /// `enabled`; a section that says no stops an outer one.
    pub enabled: bool,
    /// `mode: overwrite`: it takes the place of the source address; else it is the field `xff`.
    pub overwrite: bool,
    /// `deployment: forward`: the first address of the list counts; else the last.
    pub forward: bool,
    /// `header`: name of the HTTP header.
    pub header: String,
}

impl EveOutputs {
    /// Reads every enabled `eve-log` output.
    ///
    /// # Errors
    /// A value is not of the kind that its key wants.
    pub fn from_settings(settings: &Settings) -> Result<Self, SettingError> {
        let mut all = EveOutputs::default();
        let sensor_name = settings.get("sensor-name").map(str::to_owned);
        for item in settings.children("outputs") {
            let prefix = format!("outputs.{item}.eve-log");
            if !settings.has(&prefix) || !settings.bool(&format!("{prefix}.enabled"), false)? {
                continue;
            }
            let reader = Reader { settings, prefix };
            let Some(destination) = reader.destination(&mut all.warnings)? else { continue };
            let mut header = reader.header()?;
            if header.sensor_name.is_none() {
                header.sensor_name.clone_from(&sensor_name);
            }
            let mut types = reader.types(&mut all.warnings)?;
            all.keep_single(item, &mut types);
            all.outputs.push(EveOutput {
                index: item.parse().unwrap_or(0),
                destination,
                header,
                xff: reader.xff("xff")?,
                types,
            });
        }
        Ok(all)
    }

    /// Takes `drop` and `anomaly` from an output when an earlier one has them: a packet's events are
    /// handed out once.
    fn keep_single(&mut self, item: &str, types: &mut EventTypes) {
        let mut doubled = Vec::new();
        if types.drop.is_some() && self.outputs.iter().any(|output| output.types.drop.is_some()) {
            types.drop = None;
            doubled.push("drop");
        }
        if types.anomaly.is_some() && self.outputs.iter().any(|output| output.types.anomaly.is_some()) {
            types.anomaly = None;
            doubled.push("anomaly");
        }
        for name in doubled {
            self.warnings.push(format!(
                "outputs.{item}.eve-log: `{name}` is left out, an earlier output logs it; remove one of the two"
            ));
        }
    }
}

/// Reads the settings of one output.
struct Reader<'a> {
    settings: &'a Settings,
    prefix: String,
}

impl Reader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(&self.key(name))
    }

    fn bool(&self, name: &str, default: bool) -> Result<bool, SettingError> {
        // `key:` without a value is as if the key were not there.
        match self.get(name) {
            None | Some("") => Ok(default),
            Some(_) => self.settings.bool(&self.key(name), default),
        }
    }

    fn destination(&self, warnings: &mut Vec<String>) -> Result<Option<Destination>, SettingError> {
        let kind = self.get("filetype").or_else(|| self.get("type")).unwrap_or("regular");
        let path = PathBuf::from(self.get("filename").unwrap_or("eve.json"));
        if self.bool("threaded", false)? {
            warnings.push(format!(
                "{}: a file per thread is not done, all events go into {}",
                self.key("threaded"),
                path.display()
            ));
        }
        Ok(Some(match kind {
            "regular" | "file" if path.as_os_str() == "-" || path.as_os_str() == "/dev/stdout" => {
                Destination::Stdout
            }
            "regular" | "file" => Destination::File(FileDestination {
                path,
                append: self.bool("append", true)?,
                rotate_size: match self.settings.size(&self.key("rotate-size"), 0)? {
                    0 => None,
                    size => Some(size),
                },
                rotate_keep: self.settings.number(&self.key("rotate-keep"), 8)?,
            }),
            "stdout" => Destination::Stdout,
            "unix_stream" => Destination::UnixStream(path),
            "unix_dgram" => Destination::UnixDatagram(path),
            other => {
                warnings.push(format!(
                    "{}: `{other}` is not supported, the output is left out; use regular, stdout, unix_stream or unix_dgram",
                    self.key("filetype")
                ));
                self.settings.mark_read(&self.prefix);
                return Ok(None);
            }
        }))
    }

    fn header(&self) -> Result<HeaderOptions, SettingError> {
        let seed = self.settings.number(&self.key("community-id-seed"), 0)?;
        Ok(HeaderOptions {
            metadata: self.bool("metadata", true)?,
            ethernet: self.bool("ethernet", false)?,
            community_id: self.bool("community-id", false)?.then_some(seed),
            suricata_version: self.bool("suricata-version", false)?,
            pcap_file: self.bool("pcap-file", false)?,
            sensor_name: self.get("sensor-name").map(str::to_owned),
            sensor_id: match self.get("sensor-id") {
                Some(_) => Some(self.settings.number(&self.key("sensor-id"), 0)?),
                None => None,
            },
        })
    }

    fn xff(&self, name: &str) -> Result<Option<XffOptions>, SettingError> {
        let section = Reader { settings: self.settings, prefix: self.key(name) };
        if !self.settings.has(&section.prefix) {
            return Ok(None);
        }
        Ok(Some(XffOptions {
            enabled: section.bool("enabled", false)?,
            overwrite: section.get("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("overwrite")),
            forward: section.get("deployment").is_some_and(|how| how.eq_ignore_ascii_case("forward")),
            header: section.get("header").unwrap_or("X-Forwarded-For").to_owned(),
        }))
    }

    fn types(&self, warnings: &mut Vec<String>) -> Result<EventTypes, SettingError> {
        let mut types = EventTypes::default();
        let list = self.key("types");
        for item in self.settings.children(&list) {
            let prefix = format!("{list}.{item}");
            // `- alert` and `- alert: {...}` both leave the name as the item's value; a `--set` of a new
            // item may leave only the keys below it.
            let name = match self.settings.get(&prefix) {
                Some(name) => name,
                None => match self.settings.children(&prefix).next() {
                    Some(name) => name,
                    None => continue,
                },
            };
            let options = Reader { settings: self.settings, prefix: format!("{prefix}.{name}") };
            if options.bool("enabled", true)? {
                options.apply(name, &mut types, warnings)?;
            } else {
                self.settings.mark_read(&options.prefix);
            }
        }
        Ok(types)
    }

    /// Turns on one type; `self` reads its options.
    fn apply(
        &self,
        name: &str,
        types: &mut EventTypes,
        warnings: &mut Vec<String>,
    ) -> Result<(), SettingError> {
        match name {
            "alert" => {
                types.alert = Some(self.alert(warnings)?);
                types.alert_xff = self.xff("xff")?;
            }
            "anomaly" => types.anomaly = Some(self.anomaly(warnings)?),
            "drop" => {
                types.drop = Some(DropOptions {
                    alerts: self.bool("alerts", false)?,
                    all_packets: self.get("flows").is_some_and(|flows| flows.eq_ignore_ascii_case("all")),
                    verdict: self.bool("verdict", false)?,
                });
            }
            "files" => types.files = Some(self.files()?),
            "stats" => {
                types.stats = Some(StatsOptions {
                    totals: self.bool("totals", true)?,
                    threads: self.bool("threads", false)?,
                    deltas: self.bool("deltas", false)?,
                    null_values: self.bool("null-values", true)?,
                });
            }
            "flow" => types.flow = true,
            "netflow" => types.netflow = true,
            "metadata" => types.metadata = true,
            "frame" => types.frame = true,
            "arp" => types.arp = true,
            _ => {
                self.settings.mark_read(&self.prefix);
                let settings = self.settings.section(&self.prefix);
                types.protocols.insert(name.to_owned(), ProtocolOptions { settings });
            }
        }
        Ok(())
    }

    fn alert(&self, warnings: &mut Vec<String>) -> Result<AlertOptions, SettingError> {
        let defaults = AlertOptions::default();
        // `metadata: no` turns all of it off, a section single parts.
        let metadata = self.bool("metadata", true)?;
        let mut options = AlertOptions {
            payload: self.bool("payload", false)?,
            payload_printable: self.bool("payload-printable", false)?,
            payload_length: self.bool("payload-length", false)?,
            payload_buffer_size: defaults.payload_buffer_size,
            packet: self.bool("packet", false)?,
            tagged_packets: self.bool("tagged-packets", false)?,
            http_body: self.bool("http-body", false)?,
            http_body_printable: self.bool("http-body-printable", false)?,
            websocket_payload: self.bool("websocket-payload", false)?,
            websocket_payload_printable: self.bool("websocket-payload-printable", false)?,
            verdict: self.bool("verdict", false)?,
            app_layer: metadata && self.bool("metadata.app-layer", true)?,
            flow: metadata && self.bool("metadata.flow", true)?,
            rule_metadata: metadata && self.bool("metadata.rule.metadata", true)?,
            rule_raw: metadata && self.bool("metadata.rule.raw", false)?,
            rule_reference: metadata && self.bool("metadata.rule.reference", false)?,
        };
        let key = self.key("payload-buffer-size");
        let size = self.settings.size(&key, u64::from(defaults.payload_buffer_size))?;
        options.payload_buffer_size = match u32::try_from(size) {
            Ok(size) if size > 0 => size,
            _ => {
                return Err(SettingError {
                    value: size.to_string(),
                    key,
                    expected: "a size of 1 byte to 4 GiB",
                });
            }
        };
        if (options.http_body || options.http_body_printable) && !options.app_layer {
            warnings.push(format!(
                "{}: HTTP bodies are logged among the metadata, which is off; turn on metadata.app-layer",
                self.prefix
            ));
            options.http_body = false;
            options.http_body_printable = false;
        }
        Ok(options)
    }

    fn anomaly(&self, warnings: &mut Vec<String>) -> Result<AnomalyOptions, SettingError> {
        let mut options = AnomalyOptions {
            decode: self.bool("types.decode", false)?,
            stream: self.bool("types.stream", false)?,
            applayer: self.bool("types.applayer", true)?,
            packethdr: self.bool("packethdr", false)?,
        };
        if options.packethdr && !options.decode {
            warnings.push(format!(
                "{}: packet headers go with decode anomalies, which are off; turn on types.decode",
                self.key("packethdr")
            ));
            options.packethdr = false;
        }
        Ok(options)
    }

    fn files(&self) -> Result<FilesOptions, SettingError> {
        let hashes = list(self.settings, &self.key("force-hash"));
        let has = |name: &str| hashes.iter().any(|hash| hash.eq_ignore_ascii_case(name));
        Ok(FilesOptions {
            force_magic: self.bool("force-magic", false)?,
            md5: has("md5") || self.bool("force-md5", false)?,
            sha1: has("sha1"),
            sha256: has("sha256"),
            force_filestore: self.bool("force-filestore", false)?,
            xff: self.xff("xff")?,
        })
    }
}

/// The values of a list.
fn list(settings: &Settings, key: &str) -> Vec<String> {
    let items = settings.children(key).filter_map(|item| settings.get(&format!("{key}.{item}")));
    items.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
