// SPDX-License-Identifier: Apache-2.0
//! `stats`: all counters as one nested object, made from dotted names. Suricata's counters are in `stats`,
//! and only those, since its schema has no others. Further counters of this program ([`is_own`]) are in
//! `bartizan.stats`.

use super::common::Common;
use crate::JsonWriter;
use crate::config::{HeaderOptions, StatsOptions};

/// Counters that Suricata does not have: names, or with a dot at the end, prefixes of names.
const OWN: &[&str] = &[
    "app_layer.expectations_displaced",
    "app_layer_memory.",
    "capture.checksum_pending",
    "capture.cut",
    "capture.cut_unparsed",
    "capture.duplicates",
    "capture.merge.",
    "capture.not_ip",
    "capture.unstamped",
    "defrag.dropped.",
    "events.",
    "file_store.lost",
    "file_store.stored",
    "file_store.too_late",
    "flow.end.reason.",
    "flow.hand_over_refused",
    "flow.hand_over_taken",
    "flow.handed_over",
    "flow.moved",
    "flow.moves_refused",
    "flow.room",
    "function.",
    "host.active",
    "host.created",
    "host.ended",
    "host.evicted",
    "host.evicted_for_others",
    "host.refused",
    "host.slot_refused",
    "hand_over.",
    "normaliser.",
    "offload.",
    "overload.",
    "tcp.checksums_checked",
    "tcp.checksums_mostly_wrong",
    "tcp.ends_inspected",
    "tcp.memuse_peak",
    "tcp.reassembly_memory_closed",
    "tcp.rewritten",
    "tls_store.",
];

/// Whether a counter does not exist in Suricata, so that it belongs to `bartizan.stats`.
#[must_use]
pub fn is_own(name: &str) -> bool {
    is_among(name, OWN)
}

/// Suricata's thread for counters that belong to no thread. Readers take its values for those of the whole
/// program: Telegraf's `inputs.suricata` makes its points without a tag of it.
const GLOBAL: &str = "Global";
/// Counters of that thread: names, or with a dot at the end, prefixes of names.
const OF_GLOBAL: &[&str] = &[
    "app_layer.expectations",
    "app_layer.expectations_displaced",
    "defrag.memuse",
    "file_store.",
    "flow.memuse",
    "ftp.memcap",
    "ftp.memuse",
    "host.",
    "http.memcap",
    "http.memuse",
    "memcap.",
    "tcp.memuse",
    "tcp.reassembly_memuse",
];

/// Whether a name is in a list of names and prefixes.
fn is_among(name: &str, list: &[&str]) -> bool {
    list.iter().any(|known| if known.ends_with('.') { name.starts_with(known) } else { name == *known })
}

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter<'a> {
    /// Dotted name: `decoder.event.ipv4.opt_invalid`.
    pub name: &'a str,
    /// Value now.
    pub value: u64,
    /// Value at the last stats event, for `deltas: yes`.
    pub last: u64,
}

/// The counters of one worker.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCounters<'a> {
    /// Name of the thread.
    pub name: &'a str,
    /// The worker's counters.
    pub counters: &'a [Counter<'a>],
}

/// The rule set in force.
#[derive(Clone, Copy, Debug)]
pub struct DetectEngine<'a> {
    /// Number of the engine, 0 without tenants.
    pub id: u32,
    /// Time of the last load of rules, as EVE's text (control-plane time).
    pub last_reload: &'a str,
    /// Rules in force.
    pub rules_loaded: u64,
    /// Rules that could not be loaded.
    pub rules_failed: u64,
    /// Rules left out.
    pub rules_skipped: u64,
}

/// All counters at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsRecord<'a> {
    /// Seconds since the start.
    pub uptime: u64,
    /// Sums over all threads.
    pub totals: &'a [Counter<'a>],
    /// Per thread, for `threads: yes`.
    pub threads: &'a [ThreadCounters<'a>],
    /// Counters of each link if there are several, by name, summed over its threads: in
    /// `bartizan.stats.links`.
    pub links: &'a [ThreadCounters<'a>],
    /// Counters of each port, by name: in `bartizan.stats.ports`.
    pub ports: &'a [ThreadCounters<'a>],
    /// Rule sets in force: in `stats.detect.engines`.
    pub engines: &'a [DetectEngine<'a>],
}

/// A node of the nested object. Children keep the order of their first appearance.
struct StatsNode<'a> {
    key: &'a str,
    counter: Option<Counter<'a>>,
    children: Vec<StatsNode<'a>>,
}

impl<'a> StatsNode<'a> {
    fn new(key: &'a str) -> Self {
        StatsNode { key, counter: None, children: Vec::new() }
    }

    /// Suricata's counters, or own ones.
    fn tree(counters: &[Counter<'a>], own: bool, with_zeros: bool) -> Self {
        StatsNode::with(counters, |counter| is_own(counter.name) == own, with_zeros)
    }

    /// The tree of the `wanted` counters.
    fn with(counters: &[Counter<'a>], wanted: impl Fn(&Counter<'a>) -> bool, with_zeros: bool) -> Self {
        let mut root = StatsNode::new("");
        for counter in counters.iter().filter(|counter| with_zeros || counter.value > 0) {
            if wanted(counter) {
                root.insert(counter.name, *counter);
            }
        }
        root
    }

    fn insert(&mut self, name: &'a str, counter: Counter<'a>) {
        let (first, rest) = match name.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (name, None),
        };
        let known = self.children.iter().position(|child| child.key == first);
        if known.is_none() {
            self.children.push(StatsNode::new(first));
        }
        let index = known.unwrap_or(self.children.len().saturating_sub(1));
        let Some(child) = self.children.get_mut(index) else { return };
        match rest {
            Some(rest) => child.insert(rest, counter),
            None => child.counter = Some(counter),
        }
    }

    fn write(&self, w: &mut JsonWriter, deltas: bool, engines: &[DetectEngine<'_>]) {
        for child in &self.children {
            // A name that is both a counter and a group stays a group: an object cannot have a key twice.
            if child.children.is_empty() {
                if let Some(counter) = child.counter {
                    w.num(child.key, counter.value);
                    if deltas {
                        let delta = counter.value.saturating_sub(counter.last);
                        w.num(&format!("{}_delta", child.key), delta);
                    }
                }
                continue;
            }
            w.object(child.key);
            if child.key == "detect" {
                write_engines(w, engines);
            }
            child.write(w, deltas, &[]);
            w.end_object();
        }
    }
}

impl StatsNode<'_> {
    /// Writes the counters, with the rule sets among those of detection.
    fn write_with_engines(&self, w: &mut JsonWriter, deltas: bool, engines: &[DetectEngine<'_>]) {
        self.write(w, deltas, engines);
        if !engines.is_empty() && !self.children.iter().any(|child| child.key == "detect") {
            w.object("detect");
            write_engines(w, engines);
            w.end_object();
        }
    }
}

fn write_engines(w: &mut JsonWriter, engines: &[DetectEngine<'_>]) {
    if engines.is_empty() {
        return;
    }
    w.array("engines");
    for engine in engines {
        w.begin_object();
        w.num("id", engine.id);
        w.str("last_reload", engine.last_reload);
        w.num("rules_loaded", engine.rules_loaded);
        w.num("rules_failed", engine.rules_failed);
        w.num("rules_skipped", engine.rules_skipped);
        w.end_object();
    }
    w.end_array();
}

impl StatsRecord<'_> {
    /// Writes the event. Only the time and own fields of `common` are used.
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        stats: &StatsOptions,
        common: &Common<'_>,
    ) {
        w.clear();
        w.begin_object();
        w.time("timestamp", common.timestamp);
        w.str("event_type", "stats");
        w.object("stats");
        w.num("uptime", self.uptime);
        if stats.totals {
            let root = StatsNode::tree(self.totals, false, stats.null_values);
            root.write_with_engines(w, stats.deltas, self.engines);
        }
        if stats.threads {
            self.write_threads(w, stats, false);
        }
        w.end_object();
        common.finish_and(w, options, |w| self.write_own(w, stats));
    }

    fn write_threads(&self, w: &mut JsonWriter, stats: &StatsOptions, own: bool) {
        w.object("threads");
        for thread in self.threads {
            w.object(thread.name);
            StatsNode::tree(thread.counters, own, stats.null_values).write(w, stats.deltas, &[]);
            w.end_object();
        }
        if !own {
            w.object(GLOBAL);
            let is_global =
                |counter: &Counter<'_>| is_among(counter.name, OF_GLOBAL) && !is_own(counter.name);
            let root = StatsNode::with(self.totals, is_global, stats.null_values);
            root.write_with_engines(w, stats.deltas, self.engines);
            w.end_object();
        }
        w.end_object();
    }

    /// Writes the counters that Suricata does not have.
    fn write_own(&self, w: &mut JsonWriter, stats: &StatsOptions) {
        let before = w.mark();
        w.object("stats");
        let empty = w.mark();
        if stats.totals {
            StatsNode::tree(self.totals, true, stats.null_values).write(w, stats.deltas, &[]);
        }
        if stats.threads && self.threads.iter().any(|t| t.counters.iter().any(|c| is_own(c.name))) {
            self.write_threads(w, stats, true);
        }
        for (key, all) in [("links", self.links), ("ports", self.ports)] {
            if all.is_empty() {
                continue;
            }
            w.object(key);
            for one in all {
                w.object(one.name);
                StatsNode::with(one.counters, |_| true, stats.null_values).write(w, stats.deltas, &[]);
                w.end_object();
            }
            w.end_object();
        }
        if w.mark() == empty {
            w.rewind(before);
        } else {
            w.end_object();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &[Counter<'static>] = &[
        Counter { name: "decoder.pkts", value: 10, last: 4 },
        Counter { name: "decoder.event.ipv4.trunc_pkt", value: 0, last: 0 },
        Counter { name: "tcp.syn", value: 1, last: 1 },
        Counter { name: "decoder.too_many_layers", value: 0, last: 0 },
        Counter { name: "detect.alert", value: 2, last: 0 },
    ];

    fn text(stats: StatsOptions) -> String {
        let engines = [DetectEngine {
            id: 0,
            last_reload: "2026-11-21T21:22:42.312689+0000",
            rules_loaded: 1,
            rules_failed: 0,
            rules_skipped: 0,
        }];
        let threads = [ThreadCounters { name: "W#01", counters: COUNTERS.get(..1).unwrap() }];
        let (totals, threads, engines) = (COUNTERS, &threads[..], &engines[..]);
        let record = StatsRecord { uptime: 3, totals, threads, engines, ..StatsRecord::default() };
        let mut w = JsonWriter::new();
        record.write(&mut w, &HeaderOptions::default(), &stats, &Common::default());
        String::from_utf8(w.bytes().to_vec()).unwrap()
    }

    #[test]
    fn dotted_names_become_one_object_each() {
        let all = text(StatsOptions::default());
        assert_eq!(
            all,
            concat!(
                r#"{"timestamp":"1970-01-01T00:00:00.000000+0000","event_type":"stats","stats":{"uptime":3,"#,
                r#""decoder":{"pkts":10,"event":{"ipv4":{"trunc_pkt":0}},"too_many_layers":0},"tcp":{"syn":1},"#,
                r#""detect":{"engines":[{"id":0,"last_reload":"2026-11-21T21:22:42.312689+0000","#,
                r#""rules_loaded":1,"rules_failed":0,"rules_skipped":0}],"alert":2}}}"#
            )
        );
    }

    #[test]
    fn what_suricata_does_not_count_stands_apart() {
        let counters = [
            Counter { name: "tcp.syn", value: 1, last: 0 },
            Counter { name: "tcp.rewritten", value: 2, last: 0 },
            Counter { name: "flow.end.reason.timeout", value: 3, last: 1 },
        ];
        let threads = [ThreadCounters { name: "W#01", counters: &counters[1..2] }];
        let record = StatsRecord { totals: &counters, threads: &threads, ..StatsRecord::default() };
        let mut w = JsonWriter::new();
        let options = StatsOptions { threads: true, ..StatsOptions::default() };
        record.write(&mut w, &HeaderOptions::default(), &options, &Common::default());
        let text = String::from_utf8(w.bytes().to_vec()).unwrap();
        assert!(
            text.ends_with(concat!(
                r#""stats":{"uptime":0,"tcp":{"syn":1},"threads":{"W#01":{},"Global":{}}},"#,
                r#""bartizan":{"version":1,"stats":{"tcp":{"rewritten":2},"flow":{"end":{"reason":{"timeout":3}}},"#,
                r#""threads":{"W#01":{"tcp":{"rewritten":2}}}}}}"#
            )),
            "{text}"
        );
        crate::schema::check(&serde_json::from_str(&text).unwrap()).unwrap();
    }

    #[test]
    fn links_and_ports_have_all_of_their_counters_apart() {
        let counters = [
            Counter { name: "tcp.syn", value: 1, last: 0 },
            Counter { name: "tcp.rewritten", value: 2, last: 1 },
        ];
        let links = [ThreadCounters { name: "wan", counters: &counters }];
        let of_port = [Counter { name: "in.octets", value: 9, last: 0 }];
        let ports = [ThreadCounters { name: "eth0.7", counters: &of_port }];
        let totals = &counters[..1];
        let record = StatsRecord { totals, links: &links, ports: &ports, ..StatsRecord::default() };
        let mut w = JsonWriter::new();
        record.write(&mut w, &HeaderOptions::default(), &StatsOptions::default(), &Common::default());
        let text = String::from_utf8(w.bytes().to_vec()).unwrap();
        assert!(
            text.ends_with(concat!(
                r#""stats":{"uptime":0,"tcp":{"syn":1}},"#,
                r#""bartizan":{"version":1,"stats":{"links":{"wan":{"tcp":{"syn":1,"rewritten":2}}},"#,
                r#""ports":{"eth0.7":{"in":{"octets":9}}}}}}"#
            )),
            "{text}"
        );
        crate::schema::check(&serde_json::from_str(&text).unwrap()).unwrap();
    }

    #[test]
    fn what_belongs_to_no_thread_stands_under_one_of_its_own() {
        let names = ["tcp.syn", "tcp.memuse", "flow.memuse", "host.memcap", "host.active", "memcap.pressure"];
        let counters = names.map(|name| Counter { name, value: 7, last: 0 });
        let threads = [ThreadCounters { name: "W#01", counters: &counters[..2] }];
        let record = StatsRecord { totals: &counters, threads: &threads, ..StatsRecord::default() };
        let mut w = JsonWriter::new();
        let options = StatsOptions { totals: false, threads: true, ..StatsOptions::default() };
        record.write(&mut w, &HeaderOptions::default(), &options, &Common::default());
        let value: serde_json::Value = serde_json::from_slice(w.bytes()).unwrap();
        crate::schema::check(&value).unwrap();
        let expected = serde_json::json!({
            "tcp": {"memuse": 7}, "flow": {"memuse": 7}, "host": {"memcap": 7}, "memcap": {"pressure": 7}
        });
        assert_eq!(value["stats"]["threads"]["Global"], expected);
        assert_eq!(value["stats"]["threads"]["W#01"], serde_json::json!({"tcp": {"syn": 7, "memuse": 7}}));
    }

    #[test]
    fn options_choose_the_form() {
        let lean = text(StatsOptions { null_values: false, deltas: true, ..StatsOptions::default() });
        assert!(
            lean.contains(r#""decoder":{"pkts":10,"pkts_delta":6},"tcp":{"syn":1,"syn_delta":0}"#),
            "{lean}"
        );
        let threads = text(StatsOptions { totals: false, threads: true, ..StatsOptions::default() });
        assert!(
            threads.contains(concat!(
                r#""stats":{"uptime":3,"threads":{"W#01":{"decoder":{"pkts":10}},"Global":{"detect":{"engines":[{"id":0,"#,
                r#""last_reload":"2026-11-21T21:22:42.312689+0000","rules_loaded":1,"rules_failed":0,"rules_skipped":0}]}}}}"#
            )),
            "{threads}"
        );
    }
}
