// SPDX-License-Identifier: Apache-2.0
//! The tables of the IPP paper ("Towards System-level Optimization for High Performance Unified Threat
//! Management", tables 1 to 3) with sets of today: a firewall's rules and the headers of an intrusion
//! detection's rules, looked up one after the other (separate segmentation, "FW+IDS") and at once
//! (integrated, "IPP").
//!
//!     ipp CLASSBENCH RULES CONFIGURATION OUT
//!
//! A second table shows the cost that a second rule set adds to a lookup in the compiled tables: a
//! firewall's 10,000 rules alone, with these headers, and with the signature groups that detection makes of
//! the rules.
//!
//! CLASSBENCH holds `rules/FAMILY_10k.rules.gz`. RULES is a rule file; its commented-out rules are used,
//! too. CONFIGURATION defines the variables of its headers, one `vars.address-groups.NAME = VALUE` a line.
//! A table goes to standard output, JSON to OUT.

use bartizan_base::{Fid, SettingsMap};
use bartizan_classify::trace::{Draw, Random, draw};
use bartizan_classify::{
    Auto, Classifier, Flat, FlatV4, Header, HeaderRule, Linear, Match, NO_FID, Net, Range, RankedRule,
    classbench,
};
use bartizan_detect::groups::{Groups, RULES_MAX};
use bartizan_detect::ruleset::{LoadInput, load};
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::{Rule, RuleDirection, RuleVariables, parse_file};
use bartizan_testkit_golden::{Hsm, Segmentation};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Rules of the paper's firewalls, and its measurements: words FW+IDS and IPP, bytes FW+IDS and IPP, Gbit/s
/// FW+IDS and IPP.
const PAPER: [(usize, [f64; 6]); 7] = [
    (68, [30.0, 20.0, 563_350.0, 563_484.0, 3.72, 4.64]),
    (136, [31.0, 22.0, 584_680.0, 584_944.0, 3.55, 4.48]),
    (340, [34.0, 24.0, 672_922.0, 673_492.0, 3.37, 4.46]),
    (500, [34.0, 24.0, 609_880.0, 610_664.0, 3.28, 4.37]),
    (1000, [36.0, 26.0, 1_002_096.0, 1_003_690.0, 3.10, 4.03]),
    (1530, [36.0, 26.0, 898_422.0, 899_902.0, 3.19, 4.04]),
    (1945, [36.0, 26.0, 937_998.0, 939_586.0, 3.16, 3.97]),
];
const FAMILIES: [&str; 3] = ["acl1", "fw1", "ipc1"];
/// Bytes that one structure may take.
const LIMIT: usize = 1 << 30;
/// Bytes that the compiled tables may take.
const BUDGET: usize = 256 << 20;
/// Headers looked up per measurement, half drawn from each set, and repetitions, the best of which counts.
const HEADERS: usize = 100_000;
const REPETITIONS: usize = 5;
/// Headers whose answers are compared with a linear search.
const CHECKED: usize = 1_000;

type Failure = Box<dyn Error>;

/// The variables of a configuration, with those that the rules' authors expect and it lacks.
fn variables(text: &str) -> Result<RuleVariables, Failure> {
    let mut variables = RuleVariables::new();
    let mut set = |name: &str, value: &str| -> Result<(), Failure> {
        match name.split_once('.') {
            Some(("address-groups", name)) => variables.set_address(name, value).map_err(|e| e.message)?,
            Some(("port-groups", name)) => variables.set_port(name, value).map_err(|e| e.message)?,
            _ => {}
        }
        Ok(())
    };
    set("address-groups.SIP_SERVERS", "$HOME_NET")?;
    for line in text.lines() {
        if let Some((name, value)) = line.strip_prefix("vars.").and_then(|rest| rest.split_once(" = ")) {
            set(name, value)?;
        }
    }
    Ok(variables)
}

/// The prefixes that make up a range of addresses.
fn prefixes(first: u32, last: u32, out: &mut Vec<Option<Net>>) {
    if (first, last) == (0, u32::MAX) {
        out.push(None);
        return;
    }
    let (mut at, end) = (u64::from(first), u64::from(last) + 1);
    while at < end {
        let mut size = if at == 0 { 1 << 32 } else { at & at.wrapping_neg() };
        while at + size > end {
            size /= 2;
        }
        let address = IpAddr::V4(Ipv4Addr::from(u32::try_from(at).unwrap_or(u32::MAX)));
        out.push(Some(Net { address, length: 32 - size.trailing_zeros() as u8 }));
        at += size;
    }
}

/// A side of a header, as HeaderRules have it.
type Side = (Vec<Option<Net>>, Vec<Range>);

fn protocol(rule: &Rule) -> Option<u8> {
    match rule.protocol() {
        "ip" => None,
        "icmp" => Some(1),
        "udp" => Some(17),
        // The protocols of applications in these rules are TCP's.
        _ => Some(6),
    }
}

/// Rules, distinct headers, and these as entries of a rule set.
struct Headers {
    rules: usize,
    distinct: usize,
    entries: Vec<RankedRule>,
}

fn headers(text: &str, variables: &RuleVariables) -> Result<Headers, Failure> {
    let all: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches(['#', ' ']))
        .filter(|line| line.starts_with("alert ") || line.starts_with("drop "))
        .collect();
    let file = parse_file(all.join("\n").into_bytes(), "headers");
    let mut seen: HashSet<(Option<u8>, String, String)> = HashSet::new();
    let mut entries = Vec::new();
    let mut distinct = 0;
    for rule in &file.rules {
        let side = |address: &bartizan_rules::AddressExpr,
                    ports: &bartizan_rules::PortExpr|
         -> Result<Side, Failure> {
            let set = variables.address_set(address).map_err(|e| e.to_string())?;
            let mut nets = Vec::new();
            set.v4.as_slice().iter().for_each(|(first, last)| prefixes(*first, *last, &mut nets));
            let ports = variables.port_set(ports).map_err(|e| e.to_string())?;
            Ok((
                nets,
                ports.as_slice().iter().map(|(first, last)| Range { first: *first, last: *last }).collect(),
            ))
        };
        let source = side(&rule.src.expr, &rule.src_port.expr)?;
        let destination = side(&rule.dst.expr, &rule.dst_port.expr)?;
        let both = rule.direction != RuleDirection::Forward;
        let ways = [(&source, &destination), (&destination, &source)];
        for (from, to) in ways.into_iter().take(1 + usize::from(both)) {
            if !seen.insert((protocol(rule), format!("{from:?}"), format!("{to:?}"))) {
                continue;
            }
            let fid = Fid(distinct as u32);
            for (net, other) in from.0.iter().flat_map(|a| to.0.iter().map(move |b| (*a, *b))) {
                for (ports, others) in from.1.iter().flat_map(|a| to.1.iter().map(move |b| (*a, *b))) {
                    let rule = HeaderRule {
                        source: net,
                        destination: other,
                        protocol: protocol(rule),
                        source_ports: ports,
                        destination_ports: others,
                        ..HeaderRule::default()
                    };
                    entries.push(RankedRule { fid, priority: fid.0, rule });
                }
            }
            distinct += 1;
        }
    }
    Ok(Headers { rules: file.rules.len(), distinct, entries })
}

/// So many rules of a set, drawn without repetition, in their order.
fn sample(rules: &[HeaderRule], count: usize) -> Vec<RankedRule> {
    let mut random = Random(0x1bb + count as u64);
    let mut left: Vec<usize> = (0..rules.len()).collect();
    let mut drawn: Vec<usize> =
        (0..count.min(rules.len())).map(|_| left.swap_remove(random.below(left.len()))).collect();
    drawn.sort_unstable();
    let entry = |(number, at): (usize, &usize)| {
        rules.get(*at).map(|rule| RankedRule {
            fid: Fid(number as u32),
            priority: number as u32,
            rule: *rule,
        })
    };
    drawn.iter().enumerate().filter_map(entry).collect()
}

/// Millions of lookups a second of both, in strict alternation: the best of some repetitions of each.
fn rates(both: [&dyn Classifier; 2], trace: &[Header]) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..REPETITIONS {
        for (classifier, best) in both.into_iter().zip(&mut best) {
            let begin = Instant::now();
            let mut results = [None; 2];
            for header in trace {
                classifier.lookup(header, &mut results);
                core::hint::black_box(&results);
            }
            *best = best.min(begin.elapsed().as_secs_f64());
        }
    }
    best.map(|seconds| trace.len() as f64 / seconds / 1e6)
}

fn differing(a: &dyn Classifier, b: &dyn Classifier, trace: &[Header]) -> usize {
    let ask = |c: &dyn Classifier, header| {
        let mut results: [Option<Match>; 2] = [None; 2];
        c.lookup(header, &mut results);
        results
    };
    trace.iter().filter(|header| ask(a, header) != ask(b, header)).count()
}

fn built(segmentation: Segmentation, sets: [&[RankedRule]; 2]) -> Result<Hsm, String> {
    let mut hsm = Hsm::new(2, segmentation, LIMIT);
    for (number, set) in sets.into_iter().enumerate() {
        hsm.insert(number as u8, set).map_err(|e| e.to_string())?;
    }
    Ok(hsm)
}

/// The header rules of the signature groups of rules.
fn signature_groups(text: &str, variables: &RuleVariables) -> Result<Vec<RankedRule>, Failure> {
    let input = LoadInput {
        settings: &SettingsMap::new(),
        variables,
        classifications: None,
        references: None,
        shared: &Arc::default(),
        compiler: &Compiler::new(Config::default())?,
        tenants: &[],
        known: None,
    };
    let text: Vec<&str> = text.lines().map(|line| line.trim_start_matches(['#', ' '])).collect();
    let loaded = load(&mut [parse_file(text.join("\n").into_bytes(), "rules")], &input)?;
    let groups = Groups::new(&[&loaded.rules.heads], RULES_MAX);
    let entry =
        |(number, rule): &(u32, HeaderRule)| RankedRule { fid: Fid(*number), priority: *number, rule: *rule };
    Ok(groups.header_rules().iter().map(entry).collect())
}

/// Nanoseconds per header in a batch of 64, in the rules alone and beside those of another set: the best of
/// nine alternations. And the number of headers with different results: for the first set compared with it
/// alone, for some headers for both sets compared with a linear search.
fn with_a_second_set(rules: &[RankedRule], other: &[RankedRule]) -> Result<([f64; 2], usize), Failure> {
    const BATCH: usize = 64;
    let alone = Auto::live(&[rules.to_vec()], BUDGET)?;
    let both = Auto::live(&[rules.to_vec(), other.to_vec()], BUDGET)?;
    let drawn = draw(&rules.iter().map(|e| e.rule).collect::<Vec<_>>(), Draw::Uniform, 4 * HEADERS);
    let flat = |header: &Header| match Flat::new(header) {
        Some(Flat::V4(flat)) => Some(flat),
        _ => None,
    };
    let trace: Vec<FlatV4> = drawn.iter().filter_map(flat).collect();
    let mut best = [f64::INFINITY; 2];
    let mut fids = [NO_FID; 2 * BATCH];
    for _ in 0..9 {
        for (sets, (classifier, best)) in (1..).zip([&alone, &both].into_iter().zip(&mut best)) {
            let begin = Instant::now();
            for batch in trace.chunks(BATCH) {
                classifier.fids_v4(batch, &mut fids[..sets * batch.len()]);
                core::hint::black_box(&fids);
            }
            *best = best.min(begin.elapsed().as_secs_f64() / trace.len() as f64 * 1e9);
        }
    }
    let mut wrong = 0;
    for batch in trace.chunks(BATCH) {
        let (mut one, mut two) = ([NO_FID; BATCH], [NO_FID; 2 * BATCH]);
        alone.fids_v4(batch, &mut one[..batch.len()]);
        both.fids_v4(batch, &mut two[..2 * batch.len()]);
        wrong += (0..batch.len()).filter(|i| one[*i] != two[*i]).count();
    }
    let mut linear = Linear::new(2);
    linear.insert(0, rules)?;
    linear.insert(1, other)?;
    let others = draw(&other.iter().map(|e| e.rule).collect::<Vec<_>>(), Draw::Uniform, CHECKED);
    wrong += differing(&linear, &both, &drawn[..CHECKED]) + differing(&linear, &both, &others);
    Ok((best, wrong))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?)
}

fn read_rules(path: &Path) -> Result<Vec<HeaderRule>, Failure> {
    let bytes = read(path)?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    Ok(classbench::rules(&text)?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder, text, configuration, out] = arguments.as_slice() else {
        return Err("usage: ipp CLASSBENCH RULES CONFIGURATION OUT".into());
    };
    let variables = variables(&String::from_utf8_lossy(&read(configuration)?))?;
    let ids = headers(&String::from_utf8_lossy(&read(text)?), &variables)?;
    println!("headers of {} rules: {} distinct, {} entries", ids.rules, ids.distinct, ids.entries.len());
    println!(
        "{:<12} {:>19} {:>27} {:>23}   paper: words, memory, throughput",
        "", "32-bit words", "bytes", "Mlookup/s"
    );
    let mut rows = Vec::new();
    let mut missing: HashMap<&str, String> = HashMap::new();
    for family in FAMILIES {
        let all = read_rules(&folder.join(format!("rules/{family}_10k.rules.gz")))?;
        for (count, paper) in PAPER {
            let acl = sample(&all, count);
            let sets = [acl.as_slice(), ids.entries.as_slice()];
            let (separate, integrated) =
                match (built(Segmentation::Separate, sets), built(Segmentation::Integrated, sets)) {
                    (Ok(separate), Ok(integrated)) => (separate, integrated),
                    (Err(error), _) | (_, Err(error)) => {
                        println!("{family:<5} {count:>6} {error}");
                        missing.insert(family, error);
                        continue;
                    }
                };
            let of = |set: &[RankedRule]| {
                draw(&set.iter().map(|e| e.rule).collect::<Vec<_>>(), Draw::Uniform, HEADERS / 2)
            };
            let (mine, theirs) = (of(&acl), of(&ids.entries));
            let trace: Vec<Header> = mine.into_iter().zip(theirs).flat_map(|(a, b)| [a, b]).collect();
            let mut linear = Linear::new(2);
            linear.insert(0, &acl)?;
            linear.insert(1, &ids.entries)?;
            let checked = &trace[..CHECKED];
            let wrong = differing(&linear, &separate, checked) + differing(&linear, &integrated, checked);
            let words = [separate.words() as f64, integrated.words() as f64];
            let bytes = [separate.bytes_v4() as f64, integrated.bytes_v4() as f64];
            let rates = rates([&separate, &integrated], &trace);
            let change = |[before, after]: [f64; 2]| (after / before - 1.0) * 100.0;
            println!(
                "{family:<5} {count:>6} {:>5} {:>5} {:>+6.1}% {:>10} {:>10} {:>+5.2}% {:>6.2} {:>6.2} {:>6.2}x   {:+.0}%, {:+.2}%, {:.2}x   {wrong} wrong",
                words[0],
                words[1],
                change(words),
                bytes[0],
                bytes[1],
                change(bytes),
                rates[0],
                rates[1],
                rates[1] / rates[0],
                change([paper[0], paper[1]]),
                change([paper[2], paper[3]]),
                paper[5] / paper[4],
            );
            // A ratio above 1 is better: fewer words and bytes, more lookups.
            let less = |[peer, value]: [f64; 2]| peer / value;
            for (what, unit, [peer, value], ratio) in [
                ("words", "words", words, less(words)),
                ("bytes", "bytes", bytes, less(bytes)),
                ("rate", "Mlookup/s", rates, rates[1] / rates[0]),
            ] {
                rows.push(serde_json::json!({
                    "name": format!("ipp/{family}_{count}/{what}"), "value": value, "unit": unit,
                    "peer": "separate segmentation", "peer_value": peer, "ratio": ratio, "differing": wrong,
                }));
            }
        }
    }
    let rules = sample(&read_rules(&folder.join("rules/acl1_10k.rules.gz"))?, usize::MAX);
    let groups = signature_groups(&String::from_utf8_lossy(&read(text)?), &variables)?;
    for (name, set) in [("ids_headers", &ids.entries), ("signature_groups", &groups)] {
        let ([alone, both], wrong) = with_a_second_set(&rules, set)?;
        println!(
            "acl1_10k alone {alone:.2} ns a header, with {name} ({} entries) {both:.2} ns: {:.2} times, {wrong} wrong",
            set.len(),
            both / alone
        );
        rows.push(serde_json::json!({
            "name": format!("two_sets/acl1_10k_and_{name}"), "value": both, "unit": "ns/header",
            "peer": "acl1_10k alone", "peer_value": alone, "ratio": alone / both, "differing": wrong,
        }));
    }
    std::fs::write(out, serde_json::to_string_pretty(&rows)?)?;
    if rows.is_empty() {
        return Err(format!("no set could be built: {missing:?}").into());
    }
    Ok(())
}
