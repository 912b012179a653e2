// SPDX-License-Identifier: Apache-2.0
//! No rule is loaded that names something which this build cannot detect, anywhere in the rule, negated or
//! not: it is left out, with the reason. `published.rs` tests this on the published rule sets.

use crate::common;

use bartizan_applayer::protocols;
use bartizan_base::SettingsMap;
use bartizan_detect::keywords;
use bartizan_detect::ruleset::Loaded;
use bartizan_rules::{Rule, parse_file};
use common::load_text;
use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Application protocols that Suricata 8.0.8 knows by these names when all are enabled.
const KNOWN: [&str; 37] = [
    "http",
    "http1",
    "http2",
    "ftp",
    "ftp-data",
    "smtp",
    "tls",
    "ssh",
    "imap",
    "smb",
    "dcerpc",
    "dns",
    "modbus",
    "enip",
    "dnp3",
    "nfs",
    "ntp",
    "ike",
    "ikev2",
    "krb5",
    "quic",
    "dhcp",
    "snmp",
    "sip",
    "rfb",
    "mqtt",
    "pgsql",
    "telnet",
    "websocket",
    "ldap",
    "doh2",
    "template",
    "rdp",
    "tftp",
    "bittorrent-dht",
    "pop3",
    "mdns",
];

/// Every place where a rule can name a protocol.
const PLACES: [&str; 12] = [
    "alert NAME any any -> any any (sid:1;)",
    "drop NAME any any -> any any (flow:established; content:\"x\"; sid:1;)",
    "alert tcp any any -> any any (app-layer-protocol:NAME; sid:1;)",
    "drop tcp any any -> any any (flow:established; app-layer-protocol:!NAME; sid:1;)",
    "alert ip any any -> any any (app-layer-protocol:!NAME,final; sid:1;)",
    "alert ip any any -> any any (app-layer-protocol:NAME,original; sid:1;)",
    "alert tcp any any -> any any (app-layer-protocol:failed|NAME; sid:1;)",
    "alert tcp any any -> any any (app-layer-protocol:!failed|NAME,either; sid:1;)",
    "pass tcp any any -> any any (app-layer-protocol:!failed; app-layer-protocol:!NAME; sid:1;)",
    "alert udp any any -> any any (app-layer-protocol:NAME,to_server,exact; sid:1;)",
    "alert ip any any -> any any (app-layer-event:NAME.some_event; sid:1;)",
    "alert tcp any any -> any any (frame:NAME.pdu; content:\"x\"; sid:1;)",
];

fn loaded(text: &str) -> Loaded {
    load_text(text, &SettingsMap::new(), &Arc::default())
}

#[test]
fn rules_that_name_a_protocol_without_a_parser_are_left_out() {
    for name in KNOWN.into_iter().filter(|name| protocols::by_name(name).is_none()) {
        for place in PLACES {
            let rule = place.replace("NAME", name);
            let loaded = loaded(&rule);
            assert!(loaded.rules.signatures.is_empty(), "{rule}");
            let found: Vec<_> = loaded.diagnostics.iter().map(|d| d.code).collect();
            assert_eq!(found, ["D114"], "{rule}");
            let message = &loaded.diagnostics[0].message;
            assert!(message.contains(&format!("`{name}`")), "{rule}: {message}");
            let report = &loaded.rules.report;
            assert_eq!(report.unsupported_protocols.get(name), Some(&1), "{rule}");
            assert!(loaded.refused.iter().all(|rule| !rule.malformed), "{rule}");
        }
    }
}

#[test]
fn names_that_nobody_knows_are_errors() {
    for name in ["nonsense", "jabber", "irc", "msn", "nbss", "sdp", "!nfs", "tcp,udp", "http3"] {
        for place in PLACES {
            let rule = place.replace("NAME", name);
            // A list whose first name is negated, and a mode that is none, are malformed in another way.
            let loaded = loaded(&rule);
            assert!(loaded.rules.signatures.is_empty(), "{rule}");
            let unsupported = loaded.rules.report.unsupported_total();
            let names_nfs = name == "!nfs" && rule.contains("app-layer-protocol:!nfs");
            assert_eq!(unsupported, u64::from(names_nfs), "{rule}: {:?}", loaded.diagnostics);
        }
    }
}

/// Names in a rule's text that this build cannot detect.
fn unknown_of(rule: &Rule) -> Option<String> {
    let is_known = |name: &str| protocols::by_name(name).is_some();
    let plain = [
        "ip",
        "tcp",
        "udp",
        "icmp",
        "icmpv4",
        "icmpv6",
        "ipv4",
        "ip4",
        "ipv6",
        "ip6",
        "sctp",
        "tcp-pkt",
        "tcp-stream",
        "pkthdr",
    ];
    let head = rule.protocol().to_ascii_lowercase();
    if !plain.contains(&head.as_str()) && !is_known(&head) {
        return Some(format!("protocol {head}"));
    }
    for option in rule.iter() {
        let (keyword, value) = (option.keyword().to_ascii_lowercase(), option.value().unwrap_or_default());
        let value = String::from_utf8_lossy(value);
        if keywords::refusal(&keyword).is_some() {
            return Some(format!("keyword {keyword}"));
        }
        let names: Vec<&str> = match keyword.as_str() {
            "app-layer-protocol" => {
                let list = value.trim_start_matches('!').split(',').next().unwrap_or_default();
                list.split('|').map(str::trim).filter(|name| !["failed", "unknown"].contains(name)).collect()
            }
            "app-layer-event" => value.split_once('.').map(|(name, _)| name).into_iter().collect(),
            "frame" => value
                .split_once('.')
                .map(|(name, _)| name)
                .filter(|name| KNOWN.contains(name))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        if let Some(name) = names.into_iter().find(|name| !is_known(name)) {
            return Some(format!("{keyword}:{name}"));
        }
    }
    None
}

/// Flowbits that a rule sets, or that it tests not to be set.
fn flowbits(rule: &Rule, commands: &[&str]) -> Vec<String> {
    let of = rule.iter().filter(|option| option.keyword().eq_ignore_ascii_case("flowbits"));
    let mut bits = Vec::new();
    for option in of {
        let value = String::from_utf8_lossy(option.value().unwrap_or_default()).into_owned();
        if let Some((command, names)) = value.split_once(',')
            && commands.contains(&command.trim())
        {
            bits.extend(names.split('|').map(|name| name.trim().to_owned()));
        }
    }
    bits
}

/// Folders of shared files: beside the repository or, for a worktree one level deeper, one up.
pub fn shared_rules() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["../../../shared", "../../../../shared"].map(|path| here.join(path).join("data/rules"));
    let Some(folder) = folders.into_iter().find(|path| path.is_dir()) else {
        println!("shared rule files are not here: not tested");
        return Vec::new();
    };
    let files = [
        "etopen.rules.gz",
        "etopen-2026-04-partial.rules.gz",
        "napatech.rules",
        "snort2-gpl/community.rules",
    ];
    files.map(|name| folder.join(name)).into_iter().filter(|path| path.is_file()).collect()
}

/// The text of a rule file, which may be compressed.
pub fn rule_text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let mut text = bytes.clone();
    if path.extension().is_some_and(|end| end == "gz") {
        text.clear();
        flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut text).unwrap();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Asserts that no loaded rule of a text names something that this build lacks, and that none tests a flowbit
/// for not being set whose writers are left out.
pub fn assert_names_are_there(text: &str, loaded: &Loaded) {
    let parsed = parse_file(text.as_bytes(), "r");
    let running: HashSet<(u32, u32)> = loaded.rules.signatures.iter().map(|s| (s.id.gid, s.id.sid)).collect();
    let left_out = |rule: &&Rule| !running.contains(&(rule.id().gid, rule.id().sid));
    let missing: HashSet<String> =
        parsed.rules.iter().filter(left_out).flat_map(|rule| flowbits(rule, &["set", "toggle"])).collect();
    for rule in parsed.rules.iter().filter(|rule| !left_out(rule)) {
        assert_eq!(unknown_of(rule), None, "{}", String::from_utf8_lossy(rule.raw()));
        let asked = flowbits(rule, &["isnotset"]);
        let wrong = asked.iter().find(|bit| missing.contains(*bit));
        assert_eq!(wrong, None, "{}", String::from_utf8_lossy(rule.raw()));
    }
}

/// Prints how many rules of a file are loaded, and the ones left out by reason.
pub fn print_left_out(path: &Path, loaded: &Loaded) {
    let report = &loaded.rules.report;
    println!("{}: {} loaded of {}", path.display(), report.loaded, report.seen());
    let lists: [(&str, &BTreeMap<String, u64>); 4] = [
        ("refused", &report.refused),
        ("skipped", &report.skipped_reasons),
        ("protocol without a parser", &report.unsupported_protocols),
        ("keyword that is not evaluated", &report.unsupported_keywords),
    ];
    for (what, list) in lists {
        for (name, rules) in list {
            println!("  {rules:>6} {what}: {name}");
        }
    }
    assert!(report.loaded > 0);
}
