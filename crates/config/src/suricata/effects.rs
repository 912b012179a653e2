// SPDX-License-Identifier: Apache-2.0
//! The effect of Suricata's settings that nothing reads while settings are loaded: those that a run or a rule
//! reads later, those that work otherwise here, and those that have no effect. Settings whose absence weakens
//! are in [`super::unsupported`]; all others work as in Suricata.
//!
//! One declaration for messages, `check -v` and docs/reference/settings.md. Source: Suricata 8's shipped
//! suricata.yaml and its user guide.

use super::check::is_like;

/// The effect of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingEffect {
    /// It works where a rule needs it.
    WithRules,
    /// It works in `bartizan run`: how.
    InRun(&'static str),
    /// Its purpose is reached in another way, which this says.
    Otherwise(&'static str),
    /// It has no effect: why it is not needed.
    None(&'static str),
}

use SettingEffect::{InRun, None as NoEffect, Otherwise, WithRules};

const LINKS: &str = "a link, where neither `--inline`, `--tap` nor a host file names one";
const OTHER_CAPTURE: &str = "this capture method is not supported: `--inline`, `--tap`, the links of a host file, or `af-packet` name the source of packets";
const TABLES: &str = "tables are sized by their memory bounds (`memcap`)";
const THREADS: &str = "workers do all processing: `workers` of the host file";
const RING: &str = "there is one kind of ring: `ring` and `frames` of the host file set its size";
const GROUPS: &str = "rules are not grouped by ports: one classification finds the rules of a flow";
const PROFILES: &str = "costs of rules are not measured: `perf` shows the costs of the program";
const NO_PARSER: &str = "the protocol, or this option of it, is not implemented: `--list-app-layer-protos` lists those with a parser";
const LOG: &str = "the log goes to standard error, and from there where the service manager sends it: `--log-level`, `--log-format`";

/// The table; the first row that matches a key counts.
const TABLE: &[(&str, SettingEffect)] = &[
    ("pcre.match-limit", WithRules),
    ("pcre.match-limit-recursion", WithRules),
    ("datasets.**", WithRules),
    ("default-reputation-path", WithRules),
    ("reputation-categories-file", WithRules),
    ("reputation-files.**", WithRules),
    ("reputation-files", WithRules),
    ("pid-file", InRun("the file of the process number, unless `--pidfile` or the host file names one")),
    ("run-as.*", InRun("the user that the run becomes, unless the host file names one")),
    ("security.landlock.enabled", InRun("the run writes below its own folders only")),
    ("security.landlock.directories.write.*", InRun("further folders that it may write")),
    ("stats.interval", InRun("the interval of `stats` events")),
    ("af-packet.*.interface", InRun(LINKS)),
    ("af-packet.*.copy-iface", InRun(LINKS)),
    ("af-packet.*.copy-mode", InRun(LINKS)),
    ("af-packet.*.threads", InRun("the workers of a link that `af-packet` names")),
    ("af-packet.*.bpf-filter", InRun("the filter of a tap that `af-packet` or `--tap` names")),
    ("af-packet.*.cluster-id", Otherwise("workers share the packets of a link without a number")),
    (
        "af-packet.*.cluster-type",
        Otherwise("a flow belongs to one worker, whichever interface its packets come from"),
    ),
    ("af-packet.*.defrag", Otherwise("workers reassemble fragments: `defrag`")),
    ("af-packet.*.use-mmap", Otherwise(RING)),
    ("af-packet.*.mmap-locked", Otherwise(RING)),
    ("af-packet.*.tpacket-v3", Otherwise(RING)),
    ("af-packet.*.ring-size", Otherwise(RING)),
    ("af-packet.*.block-size", Otherwise(RING)),
    ("af-packet.*.block-timeout", Otherwise(RING)),
    ("af-packet.*.buffer-size", Otherwise(RING)),
    ("af-packet.*.use-emergency-flush", Otherwise(RING)),
    ("af-packet.*.disable-promisc", Otherwise("ports are in promiscuous mode as long as the run lasts")),
    ("af-packet.*.rollover", Otherwise("packets beyond a worker's capacity are counted as lost")),
    ("af-packet.*.bypass", Otherwise("a level below the host: `offload` of an inline link")),
    ("af-packet.*.checksum-checks", Otherwise("`capture.checksum-validation` decides for all interfaces")),
    ("af-xdp.**", NoEffect(OTHER_CAPTURE)),
    ("dpdk.**", NoEffect(OTHER_CAPTURE)),
    ("napatech.**", NoEffect(OTHER_CAPTURE)),
    ("netmap.**", NoEffect(OTHER_CAPTURE)),
    ("nflog.**", NoEffect(OTHER_CAPTURE)),
    ("pcap.**", NoEffect(OTHER_CAPTURE)),
    ("pfring.**", NoEffect(OTHER_CAPTURE)),
    ("app-layer.protocols.*.**", NoEffect(NO_PARSER)),
    ("asn1-max-frames", NoEffect("rules with `asn1` are left out")),
    ("capture.disable-offloading", Otherwise("`--fix-offloads`, or `fix-offloads` of a link")),
    ("coredump.max-dump", Otherwise("`LimitCORE=` of the unit")),
    ("default-packet-size", NoEffect("packets of any size are read without a copy")),
    ("max-pending-packets", NoEffect("workers take packets in batches from the ring")),
    ("defrag.hash-size", NoEffect(TABLES)),
    ("defrag.prealloc", NoEffect(TABLES)),
    (
        "defrag.memcap-policy",
        Otherwise(
            "a fragment beyond the memory bound is dropped in prevention, and not reassembled in detection",
        ),
    ),
    ("flow.hash-size", NoEffect(TABLES)),
    ("flow.prealloc", NoEffect(TABLES)),
    (
        "flow.emergency-recovery",
        Otherwise("a full table evicts closed and half-open flows first, then those idle longest"),
    ),
    ("flow.managers", NoEffect(THREADS)),
    ("flow.recyclers", NoEffect(THREADS)),
    ("host.hash-size", NoEffect(TABLES)),
    ("host.prealloc", NoEffect(TABLES)),
    ("host.memcap", Otherwise("`memory: {hosts: NUMBER}` of the host file")),
    ("ippair.hash-size", NoEffect(TABLES)),
    ("ippair.prealloc", NoEffect(TABLES)),
    ("ippair.memcap", Otherwise("`memory: {hosts: NUMBER}` of the host file")),
    ("detect.thresholds.hash-size", NoEffect(TABLES)),
    ("detect.thresholds.memcap", Otherwise("`memory: {hosts: NUMBER}` of the host file")),
    ("stream.prealloc-sessions", NoEffect(TABLES)),
    ("stream.reassembly.segment-prealloc", NoEffect(TABLES)),
    (
        "stream.reassembly.randomize-chunk-size",
        Otherwise("rules see the stream with each packet, not in chunks"),
    ),
    (
        "stream.reassembly.randomize-chunk-range",
        Otherwise("rules see the stream with each packet, not in chunks"),
    ),
    ("detect.profile", NoEffect(GROUPS)),
    ("detect.custom-values.*", NoEffect(GROUPS)),
    ("detect.grouping.*", NoEffect(GROUPS)),
    ("detect.sgh-mpm-context", NoEffect(GROUPS)),
    ("detect.prefilter.default", NoEffect("each rule has the cheapest prefilter that it allows")),
    (
        "detect.delayed-detect",
        NoEffect("rules are loaded before the first packet, and beside the running ones at a reload"),
    ),
    (
        "detect.inspection-recursion-limit",
        Otherwise("a rule takes 3,000 steps on a value at most, as with Suricata's default"),
    ),
    ("detect.sgh-mpm-caching", Otherwise("compiled patterns are cached: `--cache`")),
    ("detect.sgh-mpm-caching-path", Otherwise("`--cache`, or `cache` of the host file")),
    ("detect.profiling.**", NoEffect(PROFILES)),
    ("profiling.**", NoEffect(PROFILES)),
    ("engine-analysis.**", Otherwise("`bartizan explain rule`")),
    ("legacy.uricontent", Otherwise("rules with `uricontent` are always read")),
    ("mpm-algo", Otherwise("libhs where it is installed, else Aho-Corasick")),
    ("spm-algo", Otherwise("libhs where it is installed, else Aho-Corasick")),
    ("security.lua.*", NoEffect("rules with scripts are left out")),
    ("luajit.**", NoEffect("rules with scripts are left out")),
    (
        "heartbeat.output-flush-interval",
        Otherwise("events are written in batches, without waiting for a full one"),
    ),
    ("host-mode", Otherwise("a link is inline, and forwards, or a tap")),
    ("livedev.use-for-tracking", Otherwise("a link is part of each flow's key")),
    ("logging.**", Otherwise(LOG)),
    ("outputs.*.eve-log.buffer-size", Otherwise("events are written in batches")),
    ("outputs.*.eve-log.threaded", Otherwise("one writer writes the events of all workers, in their order")),
    ("runmode", NoEffect(THREADS)),
    ("stats.decoder-events", NoEffect("decode events are always counted")),
    ("suricata-version", NoEffect("settings of all versions of Suricata 8 are read")),
    ("threading.set-cpu-affinity", InRun("workers are pinned to the processors of `worker-cpu-set`")),
    ("threading.cpu-affinity.worker-cpu-set.cpu.*", InRun("processors of workers, if the mode is exclusive")),
    ("threading.cpu-affinity.worker-cpu-set.mode", InRun("`exclusive` pins workers")),
    (
        "threading.**",
        Otherwise("workers are pinned to processors where one more is left for everything else"),
    ),
];

/// The declared effect of a setting that nothing has read.
#[must_use]
pub fn effect_of(key: &str) -> Option<SettingEffect> {
    TABLE.iter().find(|(pattern, _)| is_like(key, pattern)).map(|(_, effect)| *effect)
}

/// The rows of the table.
pub fn declared_effects() -> impl Iterator<Item = (&'static str, SettingEffect)> {
    TABLE.iter().copied()
}

impl SettingEffect {
    /// The effect in words: `has no effect: ...`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            WithRules => "works where a rule needs it".to_owned(),
            InRun(how) => format!("works in `bartizan run`: {how}"),
            Otherwise(how) => format!("works in another way: {how}"),
            NoEffect(why) => format!("has no effect: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suricata::is_known;

    fn sample(pattern: &str) -> String {
        pattern.replace("protocols.*", "protocols.dhcp").replace("**", "x").replace('*', "0")
    }

    #[test]
    fn each_row_is_of_a_setting_that_there_is_and_is_found() {
        for (pattern, effect) in declared_effects() {
            let key = sample(pattern);
            assert!(is_known(&key), "{pattern} as {key}");
            assert_eq!(effect_of(&key), Some(effect), "{pattern}: an earlier row matches");
        }
        assert_eq!(effect_of("stream.midstream"), None, "it works");
    }

    #[test]
    fn an_effect_is_told_with_its_reason() {
        assert!(effect_of("runmode").unwrap().words().starts_with("has no effect: "));
        assert!(effect_of("mpm-algo").unwrap().words().starts_with("works in another way: libhs"));
        assert!(effect_of("af-packet.3.threads").unwrap().words().starts_with("works in `bartizan run`"));
    }
}
