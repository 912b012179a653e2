// SPDX-License-Identifier: Apache-2.0
//! The supplied sets compared with the peer; IP versions, instruction sets, two sets.

use crate::common::{BUDGET, CALL, Rows, best, build, entries, load, pass_v4, pass_v6, peak, v4, v6};
use crate::peer::{METHODS, Peer, write_files};
use bartizan_classify::trace::{Draw, draw};
use bartizan_classify::{Classifier, HeaderRule, InstructionSet, Live, NO_FID, Net, Rebuild};
use std::path::Path;

const PROCESSES: usize = 5;
const ROUNDS: usize = 3;

pub fn one_set(rows: &mut Rows, folder: &Path, acl: &Path, files: &Path, set: &str, aim: f64) {
    let rules = load(folder, set);
    let before = peak(true);
    let (live, first, fastest) = build(&rules);
    let peak_bytes = peak(false).saturating_sub(before) as f64;
    let mib = |bytes: f64| bytes / 1_048_576.0;
    let mut peer_memory = 0.0;
    let mut peer_build = 0.0;
    for how in [Draw::Uniform, Draw::Cross] {
        let count = if rules.len() > 50_000 { 1_000_000 } else { 400_000 };
        let headers = v4(&draw(&rules, how, count));
        write_files(files, &rules, &headers);
        let mut results = vec![NO_FID; headers.len()];
        let (mut ours, mut theirs, mut method) = (Vec::new(), Vec::new(), "");
        let mut differ = 0;
        for process in 0..PROCESSES {
            let mut peer = Peer::start(acl, files);
            (peer_build, peer_memory) = (peer.build, peer.memory);
            if process == 0 {
                let mut fastest = f64::MAX;
                for name in METHODS {
                    let ns =
                        (0..2).filter_map(|_| peer.ask(&format!("{name} {CALL}"))).fold(f64::MAX, f64::min);
                    if ns < fastest {
                        (fastest, method) = (ns, name);
                    }
                }
                pass_v4(&live, &headers, &mut results, 1);
                differ = peer.differ(method, files, &results);
            }
            for _ in 0..ROUNDS {
                theirs.push(peer.ask(&format!("{method} {CALL}")).expect("a time") / headers.len() as f64);
                ours.push(pass_v4(&live, &headers, &mut results, 1));
            }
        }
        let least = |v: &[f64]| v.iter().copied().fold(f64::MAX, f64::min);
        let median = |v: &mut Vec<f64>| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        };
        let (a, b) = (least(&ours), least(&theirs));
        let (am, bm) = (median(&mut ours), median(&mut theirs));
        let more = format!(
            ",\"method\":\"{method}\",\"differ\":{differ},\"median\":{am:.4},\"peer_median\":{bm:.4},\"aim\":{aim}"
        );
        let name = format!("{set} {}", how.letter());
        rows.add(&name, a, "ns/header", &format!("librte_acl {method}"), b, b / a, &more);
    }
    let memory = live.memory() as f64;
    rows.add(
        &format!("{set} memory"),
        mib(memory),
        "MiB",
        "librte_acl",
        mib(peer_memory),
        peer_memory / memory,
        "",
    );
    rows.add(
        &format!("{set} build peak"),
        mib(peak_bytes),
        "MiB",
        "own memory x 2",
        mib(memory * 2.0),
        0.0,
        "",
    );
    rows.add(
        &format!("{set} first answers"),
        first,
        "s",
        "librte_acl build",
        peer_build,
        peer_build / first,
        "",
    );
    rows.add(
        &format!("{set} fastest form"),
        fastest,
        "s",
        "librte_acl build",
        peer_build,
        peer_build / fastest,
        "",
    );
}

/// The rule with each IPv4 address below 2001:db8::/32.
fn as_v6(rule: &HeaderRule) -> HeaderRule {
    let net = |net: Net| match net.address {
        std::net::IpAddr::V4(v4) => {
            let number = 0x2001_0db8_u128 << 96 | u128::from(u32::from(v4)) << 64;
            Net { address: std::net::Ipv6Addr::from(number).into(), length: 32 + net.length }
        }
        std::net::IpAddr::V6(_) => net,
    };
    HeaderRule { source: rule.source.map(net), destination: rule.destination.map(net), ..*rule }
}

pub fn versions_and_levels(rows: &mut Rows, folder: &Path) {
    for set in ["acl1_10k", "fw1_10k", "ipc1_10k"] {
        let rules = load(folder, set);
        let (mut live, ..) = build(&rules);
        let headers = v4(&draw(&rules, Draw::Uniform, 400_000));
        let mut results = vec![NO_FID; headers.len()];
        let ns = best(9, || pass_v4(&live, &headers, &mut results, 1));
        let rules6: Vec<HeaderRule> = rules.iter().map(as_v6).collect();
        let (live6, ..) = build(&rules6);
        let headers6 = v6(&draw(&rules6, Draw::Uniform, 400_000));
        let mut results6 = vec![NO_FID; headers6.len()];
        let ns6 = best(9, || pass_v6(&live6, &headers6, &mut results6));
        rows.add(&format!("{set} IPv6"), ns6, "ns/header", "IPv4", ns, ns / ns6, "");
        for level in [InstructionSet::Avx2, InstructionSet::Portable] {
            let rebuild: Rebuild = live.begin(true);
            assert!(live.finish(rebuild.run_at(level)));
            let mut same = vec![NO_FID; headers.len()];
            let slow = best(5, || pass_v4(&live, &headers, &mut same, 1));
            let differ = same.iter().zip(&results).filter(|(a, b)| a != b).count();
            let name = format!("{set} {level:?}").to_lowercase();
            rows.add(&name, slow, "ns/header", "best level", ns, ns / slow, &format!(",\"differ\":{differ}"));
        }
    }
    // The IDS headers of a second function beside a firewall's: any source, servers, ports.
    let rules = load(folder, "acl1_10k");
    let ids: Vec<HeaderRule> = load(folder, "fw1_1k");
    let (one, ..) = build(&rules);
    let mut two = Live::new(2, BUDGET);
    two.insert(0, &entries(&rules)).expect("set 0");
    two.insert(1, &entries(&ids)).expect("set 1");
    let rebuild = two.begin(true);
    assert!(two.finish(rebuild.run()));
    let headers = v4(&draw(&rules, Draw::Uniform, 400_000));
    let (mut a, mut b) = (vec![NO_FID; headers.len()], vec![NO_FID; headers.len() * 2]);
    let (mut alone, mut both) = (f64::MAX, f64::MAX);
    for _ in 0..9 {
        alone = alone.min(pass_v4(&one, &headers, &mut a, 1));
        both = both.min(pass_v4(&two, &headers, &mut b, 2));
    }
    rows.add("acl1_10k and fw1_1k as two sets", both, "ns/header", "acl1_10k alone", alone, alone / both, "");
}
