// SPDX-License-Identifier: Apache-2.0
//! Checks the types of settings' values.
//!
//! Each crate parses its own section and reports values that it cannot understand; but some values are parsed
//! late (by a rule, by a record), and some not at all (`host.memcap` has no counterpart here). An invalid
//! value is a mistake in either case, and should be reported at the start. So numbers, sizes and switches are
//! checked by key for the whole tree. Source of the types: Suricata 8's user guide, "Suricata.yaml", and its
//! shipped file. Keys that are not listed are not checked; keyword values are checked by their parsers.

use bartizan_base::{SettingError, SettingsMap, parse_bool, parse_size};

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingType {
    /// yes or no.
    Switch,
    /// yes, no or auto.
    SwitchOrAuto,
    /// An integer that is not negative.
    Number,
    /// An integer, where -1 and other negative ones mean none.
    Signed,
    /// A number, or yes or no.
    NumberOrSwitch,
    /// A number of bytes with a unit.
    Size,
    /// One of these words.
    Word(&'static [&'static str], &'static str),
}

impl SettingType {
    fn fits(self, text: &str) -> bool {
        let number = || text.parse::<u64>().is_ok();
        match self {
            SettingType::Switch => parse_bool(text).is_some(),
            SettingType::SwitchOrAuto => parse_bool(text).is_some() || text.eq_ignore_ascii_case("auto"),
            SettingType::Number => number(),
            SettingType::Signed => text.parse::<i64>().is_ok(),
            SettingType::NumberOrSwitch => number() || parse_bool(text).is_some(),
            SettingType::Size => parse_size(text).is_some(),
            SettingType::Word(words, _) => words.iter().any(|word| word.eq_ignore_ascii_case(text)),
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            SettingType::Switch => "yes or no",
            SettingType::SwitchOrAuto => "yes, no or auto",
            SettingType::Number => "a whole number from 0 on",
            SettingType::Signed => "a whole number",
            SettingType::NumberOrSwitch => "a whole number, yes or no",
            SettingType::Size => "a size such as 64 KiB or 32mb",
            SettingType::Word(_, expected) => expected,
        }
    }
}

use SettingType::{Number, NumberOrSwitch, Signed, Size, Switch, SwitchOrAuto, Word};

const ACTION: SettingType = Word(&["pass", "drop", "reject", "alert"], "pass, drop, reject or alert");
const SIDES: SettingType =
    Word(&["both", "request", "response", "none", "no", "false"], "both, request, response or none");

/// Keys with their types; `*` matches one part of a key, a leading `**` any number of parts.
const KINDS: &[(&str, SettingType)] = &[
    // Memory bounds have the same name everywhere.
    ("**.memcap", Size),
    ("**.global-memcap", Size),
    ("**.state-memcap", Size),
    ("**.hash-size", Number),
    ("**.hashsize", Number),
    ("flow-timeouts.*.*", Number),
    ("flow.prealloc", Number),
    ("flow.emergency-recovery", Number),
    ("flow.managers", Number),
    ("flow.recyclers", Number),
    ("flow.end-flags", Switch),
    ("defrag.trackers", Number),
    ("defrag.max-frags", Number),
    ("defrag.prealloc", NumberOrSwitch),
    ("defrag.timeout", Number),
    ("host.prealloc", Number),
    ("ippair.prealloc", Number),
    ("stream.checksum-validation", Switch),
    ("stream.midstream", Switch),
    ("stream.async-oneside", Switch),
    ("stream.bypass", Switch),
    ("stream.drop-invalid", Switch),
    ("stream.liberal-timestamps", Switch),
    ("stream.inline", SwitchOrAuto),
    ("stream.prealloc-sessions", Number),
    ("stream.max-syn-queued", Number),
    ("stream.max-synack-queued", Number),
    ("stream.reassembly.depth", Size),
    ("stream.reassembly.toserver-chunk-size", Size),
    ("stream.reassembly.toclient-chunk-size", Size),
    ("stream.reassembly.randomize-chunk-size", Switch),
    ("stream.reassembly.randomize-chunk-range", Number),
    ("stream.reassembly.raw", Switch),
    ("stream.reassembly.segment-prealloc", Number),
    ("stream.reassembly.max-regions", Number),
    ("stream.reassembly.check-overlap-different-data", Switch),
    ("vlan.use-for-tracking", Switch),
    ("livedev.use-for-tracking", Switch),
    ("decoder.*.enabled", Switch),
    ("decoder.max-layers", Number),
    ("decoder.recursion-level.use-for-tracking", Switch),
    ("decoder.vxlan.reserved-bits-check", Word(&["strict", "permissive"], "strict or permissive")),
    ("pcre.match-limit", Number),
    ("pcre.match-limit-recursion", Number),
    ("packet-alert-max", Number),
    ("max-pending-packets", Number),
    ("default-packet-size", Size),
    ("inspection-recursion-limit", Number),
    ("detect.inspection-recursion-limit", Number),
    ("detect.guess-applayer-tx", Switch),
    ("detect.stream-tx-log-limit", Number),
    ("detect.custom-values.*", Number),
    ("detect.delayed-detect", Switch),
    ("detect.profiling.*.enabled", Switch),
    ("action-order.*", ACTION),
    ("asn1-max-frames", Number),
    ("stats.enabled", Switch),
    ("stats.interval", Number),
    ("stats.decoder-events", Switch),
    ("stats.stream-events", Switch),
    ("app-layer.protocols.*.stream-depth", Size),
    ("app-layer.protocols.*.max-tx", Number),
    ("app-layer.protocols.*.max-streams", Number),
    ("app-layer.protocols.*.max-table-size", Number),
    ("app-layer.protocols.*.max-msg-length", Size),
    ("app-layer.protocols.*.request-flood", Number),
    ("app-layer.protocols.smtp.raw-extraction", Switch),
    ("app-layer.protocols.smtp.mime.decode-mime", Switch),
    ("app-layer.protocols.smtp.mime.decode-base64", Switch),
    ("app-layer.protocols.smtp.mime.decode-quoted-printable", Switch),
    ("app-layer.protocols.smtp.mime.extract-urls", Switch),
    ("app-layer.protocols.smtp.mime.header-value-depth", Size),
    ("app-layer.protocols.smtp.inspected-tracker.*", Size),
    ("app-layer.protocols.http.libhtp.**.request-body-limit", Size),
    ("app-layer.protocols.http.libhtp.**.response-body-limit", Size),
    ("app-layer.protocols.http.libhtp.**.request-body-minimal-inspect-size", Size),
    ("app-layer.protocols.http.libhtp.**.response-body-minimal-inspect-size", Size),
    ("app-layer.protocols.http.libhtp.**.request-body-inspect-window", Size),
    ("app-layer.protocols.http.libhtp.**.response-body-inspect-window", Size),
    ("app-layer.protocols.http.libhtp.**.response-body-decompress-layer-limit", Signed),
    ("app-layer.protocols.http.libhtp.**.lzma-enabled", NumberOrSwitch),
    ("app-layer.protocols.http.libhtp.**.http-body-inline", SwitchOrAuto),
    ("app-layer.protocols.http.libhtp.**.double-decode-path", Switch),
    ("app-layer.protocols.http.libhtp.**.double-decode-query", Switch),
    ("outputs.*.*.enabled", Switch),
    ("outputs.*.eve-log.community-id", Switch),
    ("outputs.*.eve-log.community-id-seed", Number),
    ("outputs.*.eve-log.types.*.*.enabled", Switch),
    ("outputs.*.eve-log.types.*.*.extended", Switch),
    ("outputs.*.eve-log.types.*.*.requests", Switch),
    ("outputs.*.eve-log.types.*.*.responses", Switch),
    ("outputs.*.eve-log.types.*.*.session-resumption", Switch),
    ("outputs.*.eve-log.types.*.*.dump-all-headers", SIDES),
];

/// All values of the wrong type, in the order of the keys. A key without a value counts as absent.
#[must_use]
pub fn check(settings: &SettingsMap) -> Vec<SettingError> {
    let mut found = Vec::new();
    for (key, value) in settings.iter() {
        let Some((_, kind)) = KINDS.iter().find(|(pattern, _)| is_like(key, pattern)) else { continue };
        let text = value.trim();
        if !text.is_empty() && !kind.fits(text) {
            found.push(SettingError {
                key: key.to_owned(),
                value: value.to_owned(),
                expected: kind.expected(),
            });
        }
    }
    found
}

/// Whether a key matches a pattern.
pub(super) fn is_like(key: &str, pattern: &str) -> bool {
    if pattern == "**" {
        return true;
    }
    let (head, rest) = pattern.split_once('.').map_or((pattern, None), |(head, rest)| (head, Some(rest)));
    let Some(rest) = rest else { return head == key || (head == "*" && !key.contains('.')) };
    if head == "**" {
        // One part or more.
        return key
            .match_indices('.')
            .any(|(at, _)| key.get(at + 1..).is_some_and(|tail| is_like(tail, rest)));
    }
    key.split_once('.').is_some_and(|(first, tail)| (head == "*" || head == first) && is_like(tail, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suricata::shipped;

    #[test]
    fn patterns_are_of_parts() {
        for (key, pattern, like) in [
            ("host.memcap", "**.memcap", true),
            ("app-layer.protocols.http.memcap", "**.memcap", true),
            ("memcap", "**.memcap", false),
            ("host.memcap-policy", "**.memcap", false),
            ("flow-timeouts.tcp.new", "flow-timeouts.*.*", true),
            ("flow-timeouts.tcp", "flow-timeouts.*.*", false),
            ("flow-timeouts.tcp.new.x", "flow-timeouts.*.*", false),
            ("pcre.match-limit", "pcre.match-limit", true),
            ("pcap.0.interface", "pcap.**", true),
            ("pcap", "pcap.**", false),
            ("a.libhtp.server-config.0.iis.lzma-enabled", "a.libhtp.**.lzma-enabled", true),
        ] {
            assert_eq!(is_like(key, pattern), like, "{key} {pattern}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_found() {
        for (key, value) in [
            ("pcre.match-limit", "abc"),
            ("pcre.match-limit-recursion", "-1"),
            ("host.memcap", "abc"),
            ("inspection-recursion-limit", "-1"),
            ("detect.inspection-recursion-limit", "many"),
            ("flow-timeouts.udp.new", "1h"),
            ("stream.memcap", "64 bananas"),
            ("stream.midstream", "perhaps"),
            ("defrag.trackers", "65k"),
            ("flow.memcap", "-5"),
            ("app-layer.protocols.ftp.memcap", "x"),
            ("app-layer.protocols.dns.global-memcap", "x"),
            ("app-layer.protocols.http.libhtp.server-config.0.apache.request-body-limit", "lots"),
            ("datasets.defaults.memcap", "big"),
            ("outputs.1.eve-log.community-id", "0.0"),
            ("outputs.1.eve-log.types.3.dns.requests", "2"),
            ("action-order.0", "pas"),
            ("detect.guess-applayer-tx", "auto"),
        ] {
            let mut settings = shipped();
            settings.set(key, value);
            let found = check(&settings);
            let [error] = found.as_slice() else { panic!("{key}={value}: {found:?}") };
            assert_eq!((error.key.as_str(), error.value.as_str()), (key, value));
            assert!(!error.expected.is_empty());
            settings.set(key, " ");
            assert!(check(&settings).is_empty());
        }
    }

    #[test]
    fn what_ships_is_right() {
        assert_eq!(check(&shipped()), []);
        let mut other = shipped();
        for (key, value) in [
            ("stream.inline", "auto"),
            ("app-layer.protocols.http.libhtp.default-config.response-body-decompress-layer-limit", "-1"),
            ("defrag.prealloc", "yes"),
            ("host.prealloc", "1000"),
            ("flow.memcap", "128mb"),
            ("stream.reassembly.depth", "0"),
            ("nothing.we-know", "anything"),
        ] {
            other.set(key, value);
        }
        assert_eq!(check(&other), []);
    }
}
