// SPDX-License-Identifier: Apache-2.0
//! Metrics: the table that declares them, and the text for Prometheus.
//!
//! Source: Prometheus, "Exposition formats", text format 0.0.4. The counting components hold the values; a
//! scrape collects them into an [`Exposition`]. The number of series of a metric is limited: further series
//! are summed up in one whose labels are all `other`, so that sums stay exact. A series with a place of its
//! own keeps it as long as it exists, and one in `other` stays there ([`SeriesPlaces`]), so that `other` is a
//! counter as well.
//!
//! Not supported: histograms, OpenMetrics, time stamps.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// The behaviour of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// The value only grows.
    Counter,
    /// The value grows and decreases.
    Gauge,
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Flows.
    Flows,
    /// Events.
    Events,
    /// Rules.
    Rules,
    /// Seconds.
    Seconds,
    /// A plain number.
    Count,
}

impl Unit {
    /// Name of the unit on the reference page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::Bytes => "bytes",
            Unit::Flows => "flows",
            Unit::Events => "events",
            Unit::Rules => "rules",
            Unit::Seconds => "seconds",
            Unit::Count => "",
        }
    }
}

/// A metric's declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in Prometheus.
    pub name: &'static str,
    /// Behaviour of the values.
    pub kind: MetricKind,
    /// Unit of the values.
    pub unit: Unit,
    /// Description, one sentence.
    pub help: &'static str,
    /// Names of the labels, in the order of the values.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($const:ident $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $const: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                unit: Unit::$unit,
                help: $help,
                labels: &[$($label),*],
            };
        )+

        /// Every metric, in the order in which they are shown.
        pub const METRICS: &[Metric] = &[$($const,)+];
    };
}

metrics! {
    PACKETS Counter Packets "bartizan_packets_total" ["policy", "verdict", "worker", "link"]
        "Packets by the verdict that won; those inside of tunnels and those put together from fragments count too.";
    BYTES Counter Bytes "bartizan_bytes_total" ["policy", "verdict", "worker", "link"]
        "Bytes of these packets, from the link layer on.";
    DECISIONS Counter Packets "bartizan_decisions_total" ["function", "policy", "reason", "verdict", "worker", "link"]
        "Packets that a function decided on, by its reason.";
    STAGED Counter Packets "bartizan_staged_decisions_total" ["function", "policy", "reason", "verdict", "worker", "link"]
        "Would-be decisions, of staged policies and where nothing is refused (detection): nothing was dropped.";
    FILTER_RULES Counter Packets "bartizan_filter_rule_packets_total" ["policy", "rule"]
        "Packets that a packet-filter rule decided on since it exists; rules by their name, without one by their content (`drop:HASH`), or `default`.";
    SKIPPED Counter Packets "bartizan_inspection_skipped_total" ["function", "reason", "worker", "link"]
        "Packets that a function on their path did not inspect.";
    OVERLOAD_PRIORITY Gauge Count "bartizan_overload_priority" ["worker", "link"]
        "Priority below which flows give way now, since more comes than the worker takes; 0 while none does.";
    NORMALISED Counter Packets "bartizan_normalised_total" ["reason", "worker", "link"]
        "Packets that the normaliser changed or made.";
    FUNCTION_COUNTERS Counter Count "bartizan_function_total" ["function", "counter", "worker", "link"]
        "Functions' own counters.";
    FUNCTION_STATE Gauge Count "bartizan_function_state" ["function", "state", "worker", "link"]
        "A function's state: 1 at the present one (running, stopped, failed), 0 at the others.";
    FUNCTION_FAILURES Counter Count "bartizan_function_failures_total" ["function", "worker", "link"]
        "How often a function has panicked.";
    FUNCTION_RESTARTS Counter Count "bartizan_function_restarts_total" ["function", "worker", "link"]
        "How often a function was started again, by itself or by an order.";
    ALERTS Counter Events "bartizan_alerts_total" ["policy", "action", "worker", "link"]
        "Alerts of detection rules.";
    DECODE_EVENTS Counter Events "bartizan_decode_events_total" ["event", "worker", "link"]
        "Malformed packets by the decoder's event.";
    FLOWS Counter Flows "bartizan_flows_total" ["proto", "worker", "link"]
        "Flows that were opened.";
    FLOWS_ENDED Counter Flows "bartizan_flows_ended_total" ["reason", "worker", "link"]
        "Flows that ended, by why.";
    FLOWS_ACTIVE Gauge Flows "bartizan_flows_active" ["level", "worker", "link"]
        "Flows in the table, by the level that handles their packets.";
    HANDED_OVER Counter Packets "bartizan_handed_over_total" ["worker", "link"]
        "Packets that arrived at another worker than their flow's owner.";
    RING_FULL Counter Packets "bartizan_ring_full_total" ["ring", "worker", "link"]
        "Packets or records that a ring had no room for.";
    PORT_PACKETS Counter Packets "bartizan_port_packets_total" ["port", "direction", "link"]
        "Packets that a port took in or sent out.";
    PORT_OCTETS Counter Bytes "bartizan_port_octets_total" ["port", "direction", "link"]
        "Bytes of the frames that came by a port or were given to it to be sent, at whatever level they were handled, as on the wire without the frame's checksum (RFC 2863, ifHCInOctets and ifHCOutOctets less 4 a frame).";
    PORT_CASTS Counter Packets "bartizan_port_casts_total" ["port", "direction", "cast", "link"]
        "These frames by the kind of their destination address: unicast, multicast, broadcast (RFC 2863, ifHCInUcastPkts and the like). Interfaces without a link layer have unicast alone.";
    PORT_FRAMES Counter Packets "bartizan_port_frames_total" ["port", "size", "link"]
        "Frames that came by a port, at whatever level they were handled, by their size in bytes with the frame's checksum (RFC 2819; two classes more for jumbo frames).";
    PORT_LEVEL Counter Packets "bartizan_port_level_total" ["port", "what", "link", "level"]
        "Frames that entered by a port with a level below the host, by its action: up, forwarded, dropped (for their flow), early (dropped without one), and open or closed while no worker served them.";
    PORT_LEVEL_BYTES Counter Bytes "bartizan_port_level_bytes_total" ["port", "what", "link", "level"]
        "Their bytes, without the frame's checksum.";
    PORT_DROPPED Counter Packets "bartizan_port_dropped_total" ["port", "reason", "link"]
        "Packets that a port or its kernel ring lost.";
    PORT_CUT Counter Packets "bartizan_port_cut_total" ["port", "link"]
        "Frames of which a port took in only the first bytes: longer than the snap length of a tap.";
    PORT_MERGED Counter Packets "bartizan_port_merged_total" ["port", "what", "link"]
        "Packets of one of several interfaces of a tap that waited for older ones of another, came late, or did not wait since a ring was half full (pressed).";
    MEMORY Gauge Bytes "bartizan_memory_bytes" ["part", "worker", "link"]
        "Memory that traffic can grow, in use.";
    MEMORY_LIMIT Gauge Bytes "bartizan_memory_limit_bytes" ["part"]
        "Bound of that memory.";
    HOST_ENTRIES Gauge Count "bartizan_host_entries" ["function"]
        "Hosts of which a function keeps something beyond their flows.";
    HOST_EVENTS Counter Count "bartizan_host_entries_total" ["function", "event"]
        "Such hosts: created, ended (expired, or nothing was left to be kept), evicted for hosts of their own tenant, evicted_for_others (for those of another tenant, since their own held most), refused; things that did not fit into one.";
    TENANT_FLOWS Gauge Flows "bartizan_tenant_flows" ["tenant"]
        "Flows of a tenant with a quota, of all workers.";
    TENANT_STATE Gauge Bytes "bartizan_tenant_state_bytes" ["tenant"]
        "Bytes that streams, application layers and functions keep of flows of a tenant with a quota, of all workers.";
    TENANT_QUOTA Counter Count "bartizan_tenant_quota_total" ["tenant", "what"]
        "Effects of a tenant's quota: flows that were evicted for its new ones, packets that opened no flow (flows_refused), flows whose state was released (closed), alerts that were not written (alerts_left_out).";
    GUEST_NOW Gauge Count "bartizan_guest_now" ["guest", "what"]
        "What a guest of the stream path has now: streams, processes, and bytes in this program's memory.";
    GUEST_CONNECTIONS Counter Count "bartizan_guest_connections_total" ["guest", "way"]
        "Connections that a guest opened or accepted: by TCP, or without it (local: the other end is a guest).";
    GUEST_BYTES Counter Bytes "bartizan_guest_bytes_total" ["guest", "direction"]
        "Payload that left a guest (out), and that it got (in).";
    GUEST_REFUSED Counter Count "bartizan_guest_refused_total" ["guest", "reason"]
        "Refusals of the stream path, by reason: verdicts (function, admission), limits, and what a guest broke.";
    STATS Gauge Count "bartizan_stats" ["name", "worker", "link"]
        "Counters of EVE's `stats` event, by their names there.";
    RULES Gauge Rules "bartizan_rules" ["state", "reason"]
        "Detection rules: loaded, refused or skipped.";
    GENERATION Gauge Count "bartizan_generation" ["worker", "link"]
        "Generation of policies and rules in force.";
    RELOADS Counter Events "bartizan_reloads_total" ["result"]
        "Requested reloads of rules and policies: done or refused.";
    WORKER_LATE Gauge Count "bartizan_worker_late" ["worker", "link"]
        "1 when a worker did not answer in time: its values are those of its last answer.";
    PATTERN_CACHE Counter Events "bartizan_pattern_cache_total" ["result"]
        "Compiled patterns on disk: found, missing, damaged or foreign, stored, removed, not written.";
    EVENTS_WRITTEN Counter Events "bartizan_events_written_total" ["output"]
        "Event records that an output took.";
    EVENTS_LOST Counter Events "bartizan_events_lost_total" ["output"]
        "Event records that an output could not take.";
    CONTROLLER_REQUESTS Counter Count "bartizan_controller_requests_total" ["what"]
        "Requests to the controller by result; connections and alerts for which it had no room.";
    CONTROLLER_GENERATION Gauge Count "bartizan_controller_generation" []
        "Newest generation of the controller.";
    SOUTHBOUND_CONNECTED Gauge Count "bartizan_southbound_connected" []
        "1 when the controller that the device belongs to has taken its session.";
    SOUTHBOUND_GENERATION Gauge Count "bartizan_southbound_generation" []
        "The controller's number of the generation that the device runs; 0 for none.";
    SOUTHBOUND_EVENTS Counter Events "bartizan_southbound_events_total" ["what"]
        "Events of the connection to the controller: connections, refusals, lost and invalid messages.";
    UPTIME Gauge Seconds "bartizan_uptime_seconds" []
        "Seconds since the start.";
}

/// Default limit of series of one metric.
pub const DEFAULT_SERIES: usize = 10_000;

/// Label value of the series that sums up series beyond the limit.
pub const OVERFLOW: &str = "other";

/// The values of one scrape.
#[derive(Debug)]
pub struct Exposition {
    families: Vec<(Metric, Family)>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Family {
    /// Labels as text and value, in the order of arrival.
    series: Vec<(String, u64)>,
    index: HashMap<String, usize>,
}

impl Default for Exposition {
    fn default() -> Self {
        Exposition::new(DEFAULT_SERIES)
    }
}

impl Exposition {
    /// An empty exposition with at most `limit` series of each metric and one for the rest.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Exposition { families: Vec::new(), limit }
    }

    /// Adds a value. Values with equal labels add up. Missing label values are empty; surplus ones are left
    /// out.
    pub fn add(&mut self, metric: &Metric, labels: &[&str], value: u64) {
        let at = self.families.iter().position(|(known, _)| known.name == metric.name);
        let at = at.unwrap_or_else(|| {
            self.families.push((*metric, Family::default()));
            self.families.len().saturating_sub(1)
        });
        let Some((_, family)) = self.families.get_mut(at) else { return };
        let text = label_text(metric.labels, |position| labels.get(position).copied().unwrap_or(""));
        let next = family.series.len();
        let position = *family.index.entry(text.clone()).or_insert(next);
        match family.series.get_mut(position) {
            Some((_, sum)) => *sum = sum.saturating_add(value),
            None => family.series.push((text, value)),
        }
    }

    /// The text of a single page: see [`Exposition::text_in`].
    #[must_use]
    pub fn text(&self) -> String {
        self.text_in(&mut SeriesPlaces::default())
    }

    /// The text for Prometheus: declared metrics in the order of the table. `places`: places of the previous
    /// page, updated for the next one.
    #[must_use]
    pub fn text_in(&self, places: &mut SeriesPlaces) -> String {
        let mut out = String::new();
        let mut families: Vec<_> = self.families.iter().collect();
        families.sort_by_key(|(metric, _)| METRICS.iter().position(|known| known.name == metric.name));
        for (metric, family) in families {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {} {}", metric.name, metric.help);
            let _ = writeln!(out, "# TYPE {} {kind}", metric.name);
            let (own, other) = places.assign(metric, family, self.limit);
            for (labels, value) in own {
                let _ = writeln!(out, "{}{labels} {value}", metric.name);
            }
            if let Some(value) = other {
                let labels = label_text(metric.labels, |_| OVERFLOW);
                let _ = writeln!(out, "{}{labels} {value}", metric.name);
            }
        }
        out
    }
}

/// Series that keep a place of their own from page to page, for metrics with more series than the limit.
#[derive(Debug, Default)]
pub struct SeriesPlaces(HashMap<&'static str, FamilyPlaces>);

/// The places of one metric that has, or had, more series than the limit.
#[derive(Debug, Default)]
struct FamilyPlaces {
    /// Labels of series with a place of their own.
    own: HashSet<String>,
    /// Labels and last values of the series in `other`.
    others: HashMap<String, u64>,
    /// The sum of all series in `other`, including series that no longer exist.
    total: u64,
}

impl SeriesPlaces {
    /// The series of a metric with places of their own, and the value of `other`.
    fn assign<'f>(
        &mut self,
        metric: &Metric,
        family: &'f Family,
        limit: usize,
    ) -> (Vec<&'f (String, u64)>, Option<u64>) {
        if family.series.len() <= limit && !self.0.contains_key(metric.name) {
            return (family.series.iter().collect(), None);
        }
        let places = self.0.entry(metric.name).or_default();
        places.own.retain(|labels| family.index.contains_key(labels));
        let (mut own, mut others, mut sum) = (Vec::new(), HashMap::new(), 0u64);
        // Series with a place come first; a new series gets one of the remaining places.
        let mut left = limit.saturating_sub(places.own.len());
        for series in &family.series {
            let (labels, value) = series;
            let had = places.own.contains(labels);
            if had || (left > 0 && !places.others.contains_key(labels)) {
                if !had {
                    left -= 1;
                    places.own.insert(labels.clone());
                }
                own.push(series);
                continue;
            }
            let before = places.others.get(labels).copied().unwrap_or(0);
            // A counter below its previous value has begun again.
            let rose = value.checked_sub(before).unwrap_or(*value);
            places.total = places.total.saturating_add(rose);
            sum = sum.saturating_add(*value);
            others.insert(labels.clone(), *value);
        }
        places.others = others;
        let total = match metric.kind {
            MetricKind::Counter => places.total,
            MetricKind::Gauge => sum,
        };
        let shows = !places.others.is_empty() || (metric.kind == MetricKind::Counter && total > 0);
        (own, shows.then_some(total))
    }
}

/// `{worker="0",reason="ids_rule"}`, or nothing without labels.
fn label_text<'v>(names: &[&str], value: impl Fn(usize) -> &'v str) -> String {
    let mut text = String::new();
    for (position, name) in names.iter().enumerate() {
        text.push(if position == 0 { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        for character in value(position).chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !names.is_empty() {
        text.push('}');
    }
    text
}

/// The reference page of metrics.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from the table of metrics in crate events; do not edit. -->\n\n\
         The metrics of the Prometheus endpoint. A metric has at most 10,000 series; further ones are added up in one\n\
         whose labels are all `other`. A series with a place of its own keeps it as long as it exists, and one in `other`\n\
         stays there: `other` only grows, where the metric does.\n\n\
         | metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n",
    );
    for metric in METRICS {
        let kind = if metric.kind == MetricKind::Counter { "counter" } else { "gauge" };
        let labels = metric.labels.join(", ");
        let _ = writeln!(
            page,
            "| `{}` | {kind} | {} | {labels} | {} |",
            metric.name,
            metric.unit.name(),
            metric.help
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_the_conventions() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(metric.name.starts_with("bartizan_"));
            assert_eq!(
                metric.name.ends_with("_total"),
                metric.kind == MetricKind::Counter,
                "{}",
                metric.name
            );
            assert!(metric.help.ends_with('.'));
            assert!(!METRICS[index + 1..].iter().any(|other| other.name == metric.name));
        }
    }

    #[test]
    fn text_of_a_scrape() {
        let mut scrape = Exposition::default();
        scrape.add(&UPTIME, &[], 12);
        scrape.add(&DECISIONS, &["pfw", "a\"b\\c\nd", "pfw_rule", "drop", "0", "wan"], 3);
        scrape.add(&DECISIONS, &["ids", "p", "ids_rule", "drop", "1", "lan"], 4);
        scrape.add(&DECISIONS, &["ids", "p", "ids_rule", "drop", "1", "lan"], 5);
        assert_eq!(
            scrape.text(),
            "# HELP bartizan_decisions_total Packets that a function decided on, by its reason.\n\
             # TYPE bartizan_decisions_total counter\n\
             bartizan_decisions_total{function=\"pfw\",policy=\"a\\\"b\\\\c\\nd\",reason=\"pfw_rule\",verdict=\"drop\",worker=\"0\",link=\"wan\"} 3\n\
             bartizan_decisions_total{function=\"ids\",policy=\"p\",reason=\"ids_rule\",verdict=\"drop\",worker=\"1\",link=\"lan\"} 9\n\
             # HELP bartizan_uptime_seconds Seconds since the start.\n\
             # TYPE bartizan_uptime_seconds gauge\n\
             bartizan_uptime_seconds 12\n"
        );
    }

    #[test]
    fn series_are_bounded_and_sums_exact() {
        let mut scrape = Exposition::new(3);
        for rule in 0..100u64 {
            scrape.add(&FILTER_RULES, &["p", &rule.to_string()], rule);
        }
        let text = scrape.text();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 4);
        assert!(samples[3].starts_with(r#"bartizan_filter_rule_packets_total{policy="other",rule="other"}"#));
        let sum: u64 =
            samples.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, (0..100u64).sum::<u64>());
    }

    #[test]
    fn who_is_in_other_stays_there_and_other_only_grows() {
        let mut places = SeriesPlaces::default();
        let mut page = |rules: &[(&str, u64)]| {
            let mut scrape = Exposition::new(2);
            rules.iter().for_each(|(rule, value)| scrape.add(&FILTER_RULES, &["p", rule], *value));
            let text = scrape.text_in(&mut places);
            let value = |rule: &str| {
                let of = text.lines().find(|line| line.contains(&format!("rule=\"{rule}\"")))?;
                of.rsplit(' ').next()?.parse::<u64>().ok()
            };
            (["a", "b", "c", "d", "e", "other"].map(value), scrape.add(&UPTIME, &[], 1)).0
        };
        assert_eq!(page(&[("a", 1), ("b", 2)]), [Some(1), Some(2), None, None, None, None]);
        assert_eq!(
            page(&[("a", 1), ("b", 2), ("c", 5), ("d", 7)]),
            [Some(1), Some(2), None, None, None, Some(12)]
        );
        // In another order the places are the same.
        assert_eq!(
            page(&[("d", 8), ("c", 5), ("b", 3), ("a", 1)]),
            [Some(1), Some(3), None, None, None, Some(13)]
        );
        // A series with a place ends: a new series gets the place, one in `other` does not. A series in
        // `other` ends: its count stays.
        assert_eq!(page(&[("d", 9), ("e", 1), ("b", 3)]), [None, Some(3), None, None, Some(1), Some(14)]);
        // A series in `other` begins again.
        assert_eq!(page(&[("d", 2), ("e", 1), ("b", 3)]), [None, Some(3), None, None, Some(1), Some(16)]);
        assert_eq!(page(&[("e", 1), ("b", 4)]), [None, Some(4), None, None, Some(1), Some(16)]);
    }

    #[test]
    fn levels_of_other_are_those_of_now() {
        let mut places = SeriesPlaces::default();
        let mut page = |values: &[(&str, u64)]| {
            let mut scrape = Exposition::new(1);
            values.iter().for_each(|(tenant, value)| scrape.add(&TENANT_FLOWS, &[tenant], *value));
            let text = scrape.text_in(&mut places);
            let last = text.lines().last().unwrap_or_default().to_owned();
            last.rsplit_once('{').map(|(_, labels)| labels.to_owned()).unwrap_or_default()
        };
        assert_eq!(page(&[("a", 1), ("b", 2), ("c", 3)]), "tenant=\"other\"} 5");
        assert_eq!(page(&[("a", 1), ("b", 2), ("c", 1)]), "tenant=\"other\"} 3");
        assert_eq!(page(&[("a", 1)]), "tenant=\"a\"} 1");
    }
}
