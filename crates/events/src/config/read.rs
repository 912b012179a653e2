// SPDX-License-Identifier: Apache-2.0
//! Reads the outputs from the settings. Source and limits: see the parent module.

use super::{
    AlertOptions, AnomalyOptions, Destination, DropOptions, EveOutput, EveOutputs, EventTypes,
    FileDestination, FilesOptions, HeaderOptions, ProtocolOptions, RotateInterval, StatsOptions, XffOptions,
};
use crate::output::Rights;
use crate::record::declared;
use bartizan_base::{SettingError, SettingsMap};
use std::path::PathBuf;

impl EveOutputs {
    /// Reads every enabled `eve-log` output. An output of a kind that this program does not support (`redis`,
    /// `syslog`) is left out with a warning as long as another one takes events.
    ///
    /// # Errors
    /// A value has the wrong type for its key, or no output is left.
    pub fn from_settings(settings: &SettingsMap) -> Result<Self, SettingError> {
        let mut all = EveOutputs::default();
        let sensor_name = settings.get("sensor-name").map(str::to_owned);
        let mut elsewhere = Vec::new();
        for item in settings.children("outputs") {
            let prefix = format!("outputs.{item}.eve-log");
            if !settings.has(&prefix) || !settings.bool(&format!("{prefix}.enabled"), false)? {
                continue;
            }
            let reader = OutputConfigReader { settings, prefix };
            if let Some(refused) = reader.unsupported_kind() {
                settings.mark_read(&reader.prefix);
                elsewhere.push(refused);
                continue;
            }
            let destination = reader.destination(&mut all.warnings)?;
            let mut header = reader.header()?;
            if header.sensor_name.is_none() {
                header.sensor_name.clone_from(&sensor_name);
            }
            let mut types = reader.types(&mut all.warnings)?;
            if !reader.bool("twin", false)? {
                all.keep_single(item, &mut types);
            }
            all.outputs.push(EveOutput {
                index: item.parse().unwrap_or(0),
                destination,
                prefix: reader.get("prefix").unwrap_or_default().to_owned(),
                header,
                xff: reader.xff(&mut all.warnings)?,
                types,
            });
        }
        for refused in elsewhere {
            if all.outputs.is_empty() {
                return Err(refused);
            }
            all.warnings.push(format!(
                "{}: events cannot go to {} here; this output is left out, the others go on",
                refused.key, refused.value
            ));
        }
        Ok(all)
    }

    /// Removes `drop` and `anomaly` from an output if an earlier one has them: the events of a packet go to
    /// one output.
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
struct OutputConfigReader<'a> {
    settings: &'a SettingsMap,
    prefix: String,
}

impl OutputConfigReader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(&self.key(name))
    }

    fn bool(&self, name: &str, default: bool) -> Result<bool, SettingError> {
        // `key:` without a value counts as a missing key.
        match self.get(name) {
            None | Some("") => Ok(default),
            Some(_) => self.settings.bool(&self.key(name), default),
        }
    }

    /// The key that names the kind of output, and its value.
    fn kind(&self) -> (&'static str, &str) {
        let named = |key: &&str| self.get(key).is_some();
        let key = ["filetype", "type"].into_iter().find(named).unwrap_or("filetype");
        (key, self.get(key).unwrap_or("regular"))
    }

    fn unknown_kind(&self, key: &str, value: &str) -> SettingError {
        SettingError {
            key: self.key(key),
            value: value.to_owned(),
            expected: "one of regular, stdout, unix_stream and unix_dgram, where events can go here (syslog, redis and plug-ins cannot)",
        }
    }

    /// The error for an output that Suricata has and this program does not support.
    fn unsupported_kind(&self) -> Option<SettingError> {
        let (key, kind) = self.kind();
        matches!(kind, "redis" | "syslog").then(|| self.unknown_kind(key, kind))
    }

    fn destination(&self, warnings: &mut Vec<String>) -> Result<Destination, SettingError> {
        let (kind_key, kind) = self.kind();
        let path = PathBuf::from(self.get("filename").unwrap_or("eve.json"));
        if self.bool("threaded", false)? {
            warnings.push(format!(
                "{}: a file per thread is not done, all events go into {}",
                self.key("threaded"),
                path.display()
            ));
        }
        Ok(match kind {
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
                rotate_every: match self.settings.number(&self.key("rotate-every"), 0)? {
                    0 => None,
                    seconds => Some(seconds),
                },
                rotate_keep: self.settings.number(&self.key("rotate-keep"), 8)?,
                rotate_interval: self.rotate_interval()?,
                rights: Rights::from_settings(self.settings)?
                    .with_mode(self.settings, &self.key("filemode"))?,
            }),
            "stdout" => Destination::Stdout,
            "unix_stream" => Destination::UnixStream(path),
            "unix_dgram" => Destination::UnixDatagram(path),
            other => return Err(self.unknown_kind(kind_key, other)),
        })
    }

    /// Reads `rotate-interval` as Suricata does: the next of a unit, or seconds, or a number with a unit.
    fn rotate_interval(&self) -> Result<Option<RotateInterval>, SettingError> {
        let Some(text) = self.get("rotate-interval") else { return Ok(None) };
        let of_unit = |unit: &str| match unit {
            "" | "s" => Some(1),
            "m" => Some(60),
            "h" => Some(3600),
            "d" => Some(86_400),
            "w" => Some(604_800),
            "y" => Some(31_536_000),
            _ => None,
        };
        let interval = match text.trim() {
            "minute" => Some(RotateInterval::Next(60)),
            "hour" => Some(RotateInterval::Next(3600)),
            "day" => Some(RotateInterval::Next(86_400)),
            other => {
                let digits = other.bytes().take_while(u8::is_ascii_digit).count();
                let (number, unit) = other.split_at(digits);
                let span = number.parse::<u64>().ok().zip(of_unit(unit.trim()));
                span.and_then(|(number, unit)| number.checked_mul(unit))
                    .filter(|seconds| *seconds > 0)
                    .map(RotateInterval::Every)
            }
        };
        interval.map(Some).ok_or_else(|| SettingError {
            key: self.key("rotate-interval"),
            value: text.to_owned(),
            expected: "minute, hour, day, or a number of seconds (or of s, m, h, d, w, y) from 1 on",
        })
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

    fn xff(&self, warnings: &mut Vec<String>) -> Result<Option<XffOptions>, SettingError> {
        XffOptions::read(self.settings, &self.prefix, warnings)
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
            let options = OutputConfigReader { settings: self.settings, prefix: format!("{prefix}.{name}") };
            if options.bool("enabled", true)? {
                options.apply(name, &mut types, warnings)?;
            } else {
                self.settings.mark_read(&options.prefix);
            }
        }
        Ok(types)
    }

    /// Enables one type; `self` reads its options.
    fn apply(
        &self,
        name: &str,
        types: &mut EventTypes,
        warnings: &mut Vec<String>,
    ) -> Result<(), SettingError> {
        match name {
            "alert" => {
                types.alert = Some(self.alert(warnings)?);
                types.alert_xff = self.xff(warnings)?;
            }
            "anomaly" => types.anomaly = Some(self.anomaly(warnings)?),
            "drop" => {
                types.drop = Some(DropOptions {
                    alerts: self.bool("alerts", false)?,
                    all_packets: self.get("flows").is_some_and(|flows| flows.eq_ignore_ascii_case("all")),
                    verdict: self.bool("verdict", false)?,
                });
            }
            "files" => types.files = Some(self.files(warnings)?),
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
            "frame" => {
                types.frame = true;
                types.frame_payload = self.payload_buffer()?;
            }
            _ if let Some(spec) = declared(name) => types.declared.push(spec.name),
            _ => {
                let xff = self.xff(warnings)?;
                self.settings.mark_read(&self.prefix);
                let settings = self.settings.section(&self.prefix);
                types.protocols.insert(name.to_owned(), ProtocolOptions { settings, xff });
            }
        }
        Ok(())
    }

    /// `payload-buffer-size`.
    fn payload_buffer(&self) -> Result<u32, SettingError> {
        let key = self.key("payload-buffer-size");
        let size = self.settings.size(&key, u64::from(AlertOptions::NOTHING.payload_buffer_size))?;
        match u32::try_from(size) {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(SettingError { value: size.to_string(), key, expected: "a size of 1 byte to 4 GiB" }),
        }
    }

    fn alert(&self, warnings: &mut Vec<String>) -> Result<AlertOptions, SettingError> {
        let defaults = AlertOptions::default();
        // `metadata: no` disables all of it, a section single parts.
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
        options.payload_buffer_size = self.payload_buffer()?;
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

    fn files(&self, warnings: &mut Vec<String>) -> Result<FilesOptions, SettingError> {
        let hashes = list(self.settings, &self.key("force-hash"));
        let has = |name: &str| hashes.iter().any(|hash| hash.eq_ignore_ascii_case(name));
        Ok(FilesOptions {
            force_magic: self.bool("force-magic", false)?,
            md5: has("md5") || self.bool("force-md5", false)?,
            sha1: has("sha1"),
            sha256: has("sha256"),
            force_filestore: self.bool("force-filestore", false)?,
            xff: self.xff(warnings)?,
        })
    }
}

/// The values of a list.
pub(super) fn list(settings: &SettingsMap, key: &str) -> Vec<String> {
    let items = settings.children(key).filter_map(|item| settings.get(&format!("{key}.{item}")));
    items.map(str::to_owned).collect()
}
