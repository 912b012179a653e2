// SPDX-License-Identifier: Apache-2.0
//! Settings of Suricata whose absence here makes the program inspect, drop or protect less than its operator
//! intended.
//!
//! Most settings without an effect here tune mechanisms that work differently (hash sizes, thread counts):
//! one message sums them up. The settings in this table are different: a filter that is not applied, tenants
//! whose rules are not loaded, privileges that are not dropped. Each has a message of its own, and is an
//! error with `--strict`. Values that equal Suricata's default are not reported.
//!
//! Source: Suricata 8's shipped suricata.yaml and its user guide, key by key. docs/suricata.md has the same
//! table.

use super::check::is_like;
use bartizan_base::{SettingsMap, parse_bool, parse_size};
use core::fmt;

/// Values with which a key demands more than Suricata's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingCondition {
    /// Any value.
    Always,
    /// A switch that is on.
    On,
    /// A switch that is off.
    Off,
    /// Any word except these.
    NotOneOf(&'static [&'static str]),
    /// The number zero.
    Zero,
    /// A size above this one, in bytes.
    Above(u64),
}

impl SettingCondition {
    fn holds(self, value: &str) -> bool {
        let value = value.trim();
        match self {
            SettingCondition::Always => !value.is_empty(),
            SettingCondition::On => parse_bool(value) == Some(true),
            SettingCondition::Off => parse_bool(value) == Some(false),
            SettingCondition::NotOneOf(words) => {
                !value.is_empty() && !words.iter().any(|word| word.eq_ignore_ascii_case(value))
            }
            SettingCondition::Zero => value == "0",
            SettingCondition::Above(size) => parse_size(value).is_some_and(|value| value > size),
        }
    }

    /// The condition in words, for the page.
    fn words(self) -> String {
        match self {
            SettingCondition::Always => "any value".to_owned(),
            SettingCondition::On => "`yes`".to_owned(),
            SettingCondition::Off => "`no`".to_owned(),
            SettingCondition::NotOneOf(words) => format!("not `{}`", words.join("`, `")),
            SettingCondition::Zero => "`0`".to_owned(),
            SettingCondition::Above(size) => format!("above {} MiB", size >> 20),
        }
    }
}

/// A row of the table.
struct UnsupportedEntry {
    /// Key pattern: `*` is one part of a key, `**` one part or more.
    key: &'static str,
    /// Leading parts of the key that name the section of a common message; 0: the key has a message of its
    /// own.
    section: usize,
    condition: SettingCondition,
    /// The missing effect.
    loss: &'static str,
    /// The advice to the operator.
    remedy: &'static str,
}

const fn row(
    key: &'static str,
    section: usize,
    condition: SettingCondition,
    loss: &'static str,
    remedy: &'static str,
) -> UnsupportedEntry {
    UnsupportedEntry { key, section, condition, loss, remedy }
}

const NOT_FILTERED: &str = "packets that the filter would leave out are also inspected and recorded";
const FILTER: &str = "give the tap a `filter` in the host file, or `bartizan inspect` a `--filter`";
const NOT_FORWARDED: &str = "nothing is forwarded between the two interfaces, and nothing is dropped there";
const INLINE: &str = "use `bartizan run --inline A B`, or an `inline` link of the host file";
const NOT_QUEUED: &str = "no packet is read from a queue of the host's firewall, and none is dropped there";
const NOT_PARSED: &str =
    "the protocol has no parser here: its rules are left out, its records are not written";
const NO_PARSER: &str = "inspect its traffic with another sensor, or switch the setting off";
const FEWER_HOSTS: &str = "the host file bounds the memory of thresholds, bits and tags of hosts";
const HOSTS: &str = "set `memory: {hosts: NUMBER}` in the host file";

/// The table; the first row that matches a key counts.
const TABLE: &[UnsupportedEntry] = &[
    row("*.*.bpf-filter", 0, SettingCondition::Always, NOT_FILTERED, FILTER),
    row("*.*.ebpf-filter-file", 0, SettingCondition::Always, NOT_FILTERED, FILTER),
    row("*.*.xdp-filter-file", 0, SettingCondition::Always, NOT_FILTERED, FILTER),
    row("*.*.copy-mode", 0, SettingCondition::NotOneOf(&["none"]), NOT_FORWARDED, INLINE),
    row("*.interfaces.*.copy-mode", 0, SettingCondition::NotOneOf(&["none"]), NOT_FORWARDED, INLINE),
    row("napatech.inline", 0, SettingCondition::On, NOT_FORWARDED, INLINE),
    row("nfq.**", 1, SettingCondition::Always, NOT_QUEUED, INLINE),
    row("ipfw.**", 1, SettingCondition::Always, NOT_QUEUED, INLINE),
    row(
        "*.*.checksum-checks",
        0,
        SettingCondition::NotOneOf(&["kernel", "auto"]),
        "the check of checksums does not differ by interface",
        "set `capture.checksum-validation` to `all` or `none`",
    ),
    row(
        "livedev.use-for-tracking",
        0,
        SettingCondition::Off,
        "the two directions of a flow that arrive on two links stay two flows",
        "name all interfaces of one network in one tap",
    ),
    row(
        "multi-detect.enabled",
        1,
        SettingCondition::On,
        "tenants and the rules of their files are not loaded",
        "write the tenants and their rules into a policy file (docs/tenants.md)",
    ),
    row(
        "pcap-file.tenant-id",
        0,
        SettingCondition::NotOneOf(&["none"]),
        "packets of captures belong to no tenant",
        "select the tenant in a policy file, and give it with `--policy`",
    ),
    row(
        "security.landlock.directories.read.*",
        4,
        SettingCondition::Always,
        "a confined run can read every file that its user can read",
        "let the user read no more than it needs (`run-as`)",
    ),
    row(
        "security.limit-noproc",
        0,
        SettingCondition::On,
        "the program may start other processes",
        "set `run-as` or `security.landlock`: a confined run starts no process",
    ),
    row(
        "umask",
        0,
        SettingCondition::Always,
        "files are created with the umask of the process",
        "set `output-rights.mode`, or the umask of the service (systemd: `UMask=`)",
    ),
    row(
        "coredump.max-dump",
        0,
        SettingCondition::Zero,
        "a crash may write traffic and keys into a core dump",
        "forbid core dumps of the service (systemd: `LimitCORE=0`)",
    ),
    row(
        "plugins.*",
        0,
        SettingCondition::Always,
        "plug-ins are not loaded: their captures, detections and outputs are missing",
        "remove the key once nothing depends on the plug-in",
    ),
    row(
        "defrag.memcap-policy",
        0,
        SettingCondition::NotOneOf(&["auto", "ignore", "none"]),
        "a fragment beyond the memory bound is dropped in prevention, and not reassembled in detection",
        "raise `defrag.memcap`",
    ),
    row(
        "defrag.host-config.**",
        2,
        SettingCondition::Always,
        "fragments of these hosts have the same timeout as those of other hosts",
        "set `defrag.timeout`",
    ),
    row(
        "app-layer.protocols.http.libhtp.server-config.*.*.**",
        7,
        SettingCondition::Always,
        "requests to these servers are parsed by `default-config`: rules do not see what only these options decode",
        "set the options that matter in `libhtp.default-config`",
    ),
    row(
        "app-layer.protocols.http.libhtp.default-config.swf-decompression.enabled",
        6,
        SettingCondition::On,
        "Flash files are inspected without decompression",
        "switch the setting off if the compressed file is enough",
    ),
    row("app-layer.protocols.dnp3.enabled", 3, SettingCondition::On, NOT_PARSED, NO_PARSER),
    row("app-layer.protocols.enip.enabled", 3, SettingCondition::On, NOT_PARSED, NO_PARSER),
    row("app-layer.protocols.modbus.enabled", 3, SettingCondition::On, NOT_PARSED, NO_PARSER),
    row("app-layer.protocols.pgsql.enabled", 3, SettingCondition::On, NOT_PARSED, NO_PARSER),
    row("host.memcap", 0, SettingCondition::Above(32 << 20), FEWER_HOSTS, HOSTS),
    row("ippair.memcap", 0, SettingCondition::Above(32 << 20), FEWER_HOSTS, HOSTS),
    row("detect.thresholds.memcap", 0, SettingCondition::Above(16 << 20), FEWER_HOSTS, HOSTS),
];

/// A reported setting, as in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedSetting {
    /// The key, or the section of a common message.
    pub key: String,
    /// The value, for a key with a message of its own.
    value: Option<String>,
    /// File, line and column, or `--set`.
    pub origin: String,
    loss: &'static str,
    remedy: &'static str,
}

impl UnsupportedSetting {
    /// Whether a key belongs to this report.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        key.strip_prefix(self.key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for UnsupportedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnsupportedSetting { key, value, origin, loss, remedy } = self;
        let value = value.as_ref().map_or_else(String::new, |value| format!(": {value}"));
        write!(f, "{origin}: `{key}{value}` has no effect: {loss}; {remedy}")
    }
}

/// The leading parts of a key.
fn leading(key: &str, parts: usize) -> &str {
    let end = key.match_indices('.').nth(parts.saturating_sub(1)).map_or(key.len(), |(at, _)| at);
    key.get(..end).unwrap_or(key)
}

/// Reported settings among those that nothing has read, one for each section. Values without an origin are
/// not the operator's.
#[must_use]
pub fn unsupported_settings(settings: &SettingsMap, unread: &[String]) -> Vec<UnsupportedSetting> {
    let mut found: Vec<UnsupportedSetting> = Vec::new();
    for key in unread {
        let Some(row) = TABLE.iter().find(|row| is_like(key, row.key)) else { continue };
        let Some(origin) = settings.origin(key) else { continue };
        let value = settings.get(key).unwrap_or_default();
        if !row.condition.holds(value) || is_off(settings, key) {
            continue;
        }
        let (section, value) = match row.section {
            0 => (key.as_str(), Some(value.to_owned())),
            parts => (leading(key, parts), None),
        };
        if found.iter().any(|known| known.key == section) {
            continue;
        }
        let (loss, remedy) = (row.loss, row.remedy);
        found.push(UnsupportedSetting {
            key: section.to_owned(),
            value,
            origin: origin.to_owned(),
            loss,
            remedy,
        });
    }
    found
}

/// Whether a section around a key is disabled.
#[must_use]
pub fn is_off(settings: &SettingsMap, key: &str) -> bool {
    key.match_indices('.').any(|(at, _)| {
        let section = key.get(..at).unwrap_or_default();
        let enabled = settings.get(&format!("{section}.enabled"));
        enabled.and_then(parse_bool) == Some(false)
    })
}

/// The table as rows of Markdown, for the page.
#[must_use]
pub fn unsupported_rows() -> String {
    let cells = |row: &UnsupportedEntry| {
        format!("| `{}` | {} | {} | {} |\n", row.key, row.condition.words(), row.loss, row.remedy)
    };
    TABLE.iter().map(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suricata::is_known;

    fn of(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut settings = SettingsMap::new();
        for (line, (key, value)) in pairs.iter().enumerate() {
            settings.set_from(*key, *value, format!("s.yaml:{}:1", line + 1));
        }
        let unread = settings.unread();
        unsupported_settings(&settings, &unread).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_row_is_of_a_setting_that_there_is() {
        for row in TABLE {
            let key = row.key.replacen("*.", "af-packet.", usize::from(row.key.starts_with("*.*.")));
            let key = key.replacen("*.interfaces", "dpdk.interfaces", 1).replace("**", "x").replace('*', "0");
            assert!(is_known(&key), "{} as {key}", row.key);
        }
    }

    #[test]
    fn each_setting_has_a_message_and_what_is_off_or_asks_for_nothing_has_none() {
        const HTTP: &str = "app-layer.protocols.http.libhtp.server-config.0.iis7";
        for (pairs, says) in [
            (&[("af-packet.0.bpf-filter", "not port 22")][..], "`af-packet.0.bpf-filter: not port 22`"),
            (&[("pcap.1.bpf-filter", "tcp")], "the filter would leave out"),
            (&[("af-packet.0.copy-mode", "ips")], "--inline A B"),
            (&[("dpdk.interfaces.1.copy-mode", "tap")], "nothing is forwarded"),
            (&[("nfq.fail-open", "yes"), ("nfq.mode", "repeat")], "`nfq` has no effect: no packet is read"),
            (&[("af-packet.0.checksum-checks", "no")], "capture.checksum-validation"),
            (&[("security.landlock.directories.read.0", "/")], "a confined run can read"),
            (&[("security.limit-noproc", "true")], "set `run-as`"),
            (&[("multi-detect.enabled", "yes"), ("multi-detect.loaders", "2")], "tenants"),
            (
                &[(&format!("{HTTP}.address.0"), "::1"), (&format!("{HTTP}.personality"), "IIS_7_0")],
                "server-config.0.iis7`",
            ),
            (&[("defrag.memcap-policy", "drop-packet")], "raise `defrag.memcap`"),
            (&[("defrag.host-config.0.dmz.timeout", "30")], "`defrag.host-config`"),
            (&[("livedev.use-for-tracking", "false")], "in one tap"),
            (&[("plugins.0", "/x.so")], "plug-ins"),
            (&[("coredump.max-dump", "0")], "LimitCORE=0"),
            (&[("umask", "022")], "UMask="),
            (&[("host.memcap", "64mb")], "memory: {hosts: NUMBER}"),
            (&[("app-layer.protocols.modbus.enabled", "yes")], "no parser"),
        ] {
            let found = of(pairs);
            assert_eq!(found.len(), 1, "{pairs:?}: {found:?}");
            assert!(found[0].starts_with("s.yaml:1:1: `") && found[0].contains(says), "{found:?}");
        }
        for (key, value) in [
            ("multi-detect.enabled", "no"),
            ("security.landlock.enabled", "no"),
            ("security.limit-noproc", "false"),
            ("af-packet.0.copy-mode", "none"),
            ("af-packet.0.checksum-checks", "kernel"),
            ("pcap.0.checksum-checks", "auto"),
            ("defrag.memcap-policy", "ignore"),
            ("livedev.use-for-tracking", "true"),
            ("coredump.max-dump", "unlimited"),
            ("datasets.defaults.memcap", "50mb"),
            ("host.memcap", "32mb"),
            ("detect.thresholds.memcap", "16 MiB"),
            ("outputs.0.pcap-log.bpf-filter", ""),
            ("app-layer.protocols.modbus.enabled", "no"),
        ] {
            assert_eq!(of(&[(key, value)]), Vec::<String>::new(), "{key}: {value}");
        }
        // In a section that is disabled.
        assert!(of(&[("security.enabled", "no"), ("security.limit-noproc", "yes")]).is_empty());
        // Shipped settings have no origin.
        let shipped = crate::suricata::shipped();
        assert_eq!(unsupported_settings(&shipped, &shipped.unread()), []);
    }

    #[test]
    fn two_servers_are_two_messages_and_read_keys_are_none() {
        let key = |n: u8| format!("app-layer.protocols.http.libhtp.server-config.{n}.web.double-decode-path");
        assert_eq!(of(&[(&key(0), "yes"), (&key(1), "yes")]).len(), 2);
        let mut settings = SettingsMap::new();
        settings.set_from("defrag.memcap-policy", "drop-packet", "--set");
        let _ = settings.get("defrag.memcap-policy");
        assert_eq!(unsupported_settings(&settings, &settings.unread()), []);
    }
}
