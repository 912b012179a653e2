// SPDX-License-Identifier: Apache-2.0
//! The page against a reader of the text format, written from its specification.

use super::*;
use bartizan_base::{Reason, Verdict};
use bartizan_dataplane::board::Amount;
use bartizan_function::RuleName;
use bartizan_ports::PortStats;
use bartizan_stages::chain::PolicyMap;
use bartizan_stages::counts::WorkerCounters;
use bartizan_stages::shedding::ShedCounters;
use std::collections::{BTreeSet, HashMap};

/// A sample: name, labels in order, value.
type Sample = (String, Vec<(String, String)>, u64);

/// Reads the text format 0.0.4 strictly: HELP and TYPE before the samples of their family, families in one
/// piece, names and escapes as the specification has them, no series twice.
fn read(page: &str) -> Result<Vec<Sample>, String> {
    assert!(page.ends_with('\n'));
    let (mut helped, mut typed) = (BTreeSet::new(), HashMap::new());
    let mut family = String::new();
    let mut closed = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut samples = Vec::new();
    for line in page.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').ok_or("no help")?;
            if text.is_empty() || !helped.insert(name.to_owned()) || !closed.insert(name.to_owned()) {
                return wrong("help twice or empty");
            }
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("no type")?;
            if name != family
                || !matches!(kind, "counter" | "gauge")
                || typed.insert(name.to_owned(), kind).is_some()
            {
                return wrong("type");
            }
        } else {
            let sample = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
            if sample.0 != family || !typed.contains_key(&family) {
                return wrong("sample outside of its family");
            }
            if !seen.insert((sample.0.clone(), sample.1.clone())) {
                return wrong("series twice");
            }
            samples.push(sample);
        }
    }
    Ok(samples)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next()?.1 {
                        'n' => '\n',
                        other @ ('\\' | '"') => other,
                        _ => return None,
                    }),
                    (_, other) => value.push(other),
                }
            };
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
            labels.push((is_name(label).then(|| label.to_owned())?, value));
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name).then(|| (name.to_owned(), labels, value))
}

fn find(samples: &[Sample], name: &str, wanted: &[(&str, &str)]) -> Vec<u64> {
    let fits = |labels: &[(String, String)]| {
        wanted.iter().all(|(k, v)| labels.iter().any(|(l, w)| l == k && w == v))
    };
    samples.iter().filter(|(n, l, _)| n == name && fits(l)).map(|(.., v)| *v).collect()
}

fn snapshot() -> Snapshot {
    let key = |policy, reason, verdict| DecisionKey { policy, function: FunctionId(1), verdict, reason };
    let amount = |packets, bytes| Amount { packets, bytes };
    Snapshot {
        generation: bartizan_base::Generation(3),
        sheds_below: 200,
        counters: WorkerCounters {
            shed: ShedCounters { uninspected: 11, ..ShedCounters::default() },
            ..WorkerCounters::default()
        },
        stats: vec![
            ("flow.total", 9),
            ("flow.tcp", 5),
            ("flow.udp", 2),
            ("flow.active", 4),
            ("flow.end.reason.timeout", 5),
            ("decoder.event.ipv4.pkt_too_small", 1),
            ("decoder.event.ipv4.hlen_too_small", 0),
        ],
        policies: Arc::new(PolicyMap::new(vec!["we\"b\\shop\n".to_owned()], &[])),
        functions: vec![(FunctionId(1), "pfw"), (FunctionId(3), "ids")],
        passed: vec![amount(1, 60), amount(10, 1000)],
        alerts: vec![[0, 0], [2, 1]],
        refused: vec![
            (key(1, Reason::PfwRule, Verdict::Drop), amount(4, 240)),
            (key(1, Reason::PfwDefault, Verdict::Drop), amount(2, 120)),
            (key(0, Reason::PfwRule, Verdict::Reject), amount(1, 60)),
        ],
        would: vec![(key(1, Reason::IdsRule, Verdict::Drop), amount(8, 80))],
        staged: vec![("sfw", key(1, Reason::SfwState, Verdict::Drop), 7)],
        own: vec![("pfw", "dropped", 6), ("ids", "alerts", 3)],
        rules: [("no-telnet", 4), ("default", 2)]
            .map(|(rule, packets)| {
                let (policy, rule) = ("we\"b\\shop\n".to_owned(), rule.to_owned());
                ("pfw", Arc::new(RuleName { policy, rule }), packets)
            })
            .to_vec(),
        memory: vec![("reassembly", 5, 100)],
        ports: vec![(
            "eth0".to_owned(),
            PortStats {
                received_sizes: [3, 0, 0, 0, 0, 0, 2, 1],
                received_bytes: 20_000,
                received_casts: [3, 2, 1],
                sent_bytes: 70,
                sent_casts: [0, 0, 1],
                ..PortStats::default()
            },
        )],
        ..Snapshot::default()
    }
}

#[test]
fn a_page_is_read_back_and_says_what_was_counted() {
    let mut page = Exposition::default();
    for (name, link) in [("0", "wan"), ("1", "lan")] {
        WorkerMetrics {
            name,
            link,
            snapshot: &snapshot(),
            functions: &["gate", "pfw", "sfw", "ids"],
            has_level: link == "lan",
        }
        .add(&mut page);
    }
    let samples = read(&page.text()).expect("the format");
    let web = ("policy", "we\"b\\shop\n");
    assert_eq!(find(&samples, "bartizan_packets_total", &[web, ("verdict", "pass"), ("worker", "1")]), [10]);
    assert_eq!(find(&samples, "bartizan_packets_total", &[web, ("verdict", "drop"), ("worker", "0")]), [6]);
    let lan = [web, ("verdict", "pass"), ("link", "lan")];
    assert_eq!(find(&samples, "bartizan_packets_total", &lan), [10]);
    assert_eq!(
        find(&samples, "bartizan_bytes_total", &[("policy", "default"), ("verdict", "reject")]),
        [60, 60]
    );
    let decision =
        [web, ("function", "pfw"), ("reason", "pfw_default"), ("verdict", "drop"), ("worker", "0")];
    assert_eq!(find(&samples, "bartizan_decisions_total", &decision), [2]);
    assert_eq!(
        find(&samples, "bartizan_staged_decisions_total", &[("function", "sfw"), web, ("worker", "0")]),
        [7]
    );
    let would = [web, ("reason", "ids_rule"), ("worker", "0")];
    assert_eq!(find(&samples, "bartizan_staged_decisions_total", &would), [8]);
    assert_eq!(find(&samples, "bartizan_overload_priority", &[("worker", "0")]), [200]);
    let skipped = [("reason", "overload"), ("worker", "1")];
    assert_eq!(find(&samples, "bartizan_inspection_skipped_total", &skipped), [11]);
    // Rules are counted over all workers.
    assert_eq!(find(&samples, "bartizan_filter_rule_packets_total", &[web, ("rule", "no-telnet")]), [8]);
    assert_eq!(find(&samples, "bartizan_filter_rule_packets_total", &[web, ("rule", "default")]), [4]);
    assert_eq!(find(&samples, "bartizan_function_total", &[("counter", "dropped"), ("worker", "0")]), [6]);
    assert_eq!(find(&samples, "bartizan_alerts_total", &[web, ("action", "blocked"), ("worker", "0")]), [1]);
    assert_eq!(find(&samples, "bartizan_flows_total", &[("proto", "other"), ("worker", "0")]), [2]);
    assert_eq!(find(&samples, "bartizan_flows_ended_total", &[("reason", "timeout")]), [5, 5]);
    assert_eq!(find(&samples, "bartizan_decode_events_total", &[]), [1, 1]);
    assert_eq!(find(&samples, "bartizan_generation", &[]), [3, 3]);
    // Where a level below counts the frames, the host's counters are not shown.
    assert_eq!(find(&samples, "bartizan_port_frames_total", &[("size", "64"), ("link", "wan")]), [3]);
    assert_eq!(find(&samples, "bartizan_port_frames_total", &[("size", "1519-9216")]), [2]);
    assert_eq!(find(&samples, "bartizan_port_frames_total", &[("size", "9217-"), ("port", "eth0")]), [1]);
    assert_eq!(find(&samples, "bartizan_port_frames_total", &[("link", "lan")]), [0u64; 0]);
    let casts = |link, direction| {
        let labels = [("direction", direction), ("link", link), ("port", "eth0")];
        (
            find(&samples, "bartizan_port_octets_total", &labels),
            find(&samples, "bartizan_port_casts_total", &labels),
        )
    };
    assert_eq!(casts("wan", "in"), (vec![20_000], vec![3, 2, 1]));
    assert_eq!(casts("wan", "out"), (vec![70], vec![0, 0, 1]));
    // The sum of frames sent at the host and below.
    assert_eq!((casts("lan", "in").0, casts("lan", "out")), (vec![], (vec![70], vec![0, 0, 1])));
    assert_eq!(find(&samples, "bartizan_stats", &[("name", "flow.tcp"), ("worker", "1")]), [5]);
}

#[test]
fn a_run_without_answers_has_a_page_of_its_own_values() {
    let source =
        MetricsSource::new(Board::new(1), vec!["wan".to_owned()], Vec::new(), vec!["ids"], Vec::new());
    let mut rules = RuleSetReport::new();
    rules.loaded = 2;
    rules.refused.insert("keyword `x` is not there".to_owned(), 1);
    source.loaded(&rules, Some(CacheCounters { hits: 4, ..CacheCounters::default() }));
    source.reloaded(true);
    source.reloaded(false);
    source.reloaded(false);
    let begun = Instant::now();
    let samples = read(&source.page()).expect("the format");
    assert!(begun.elapsed() < ANSWER + Duration::from_secs(2));
    assert_eq!(find(&samples, "bartizan_worker_late", &[("worker", "0")]), [1]);
    assert_eq!(find(&samples, "bartizan_rules", &[("state", "loaded")]), [2]);
    assert_eq!(
        find(&samples, "bartizan_rules", &[("state", "refused"), ("reason", "keyword `x` is not there")]),
        [1]
    );
    assert_eq!(find(&samples, "bartizan_pattern_cache_total", &[("result", "found")]), [4]);
    assert_eq!(find(&samples, "bartizan_reloads_total", &[("result", "refused")]), [2]);
    assert_eq!(find(&samples, "bartizan_uptime_seconds", &[]).len(), 1);
}

#[test]
fn the_reader_refuses_what_is_wrong() {
    for text in [
        "bartizan_x 1\n",
        "# HELP a A.\n# TYPE a counter\nb 1\n",
        "# HELP a A.\n# TYPE a counter\na 1\na 2\n",
        "# HELP a A.\n# TYPE a counter\na{x=\"\\y\"} 1\n",
        "# HELP a A.\n# TYPE a counter\na{x=\"y} 1\n",
        "# HELP a A.\n# TYPE a curve\na 1\n",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}
