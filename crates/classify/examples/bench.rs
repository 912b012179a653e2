// SPDX-License-Identifier: Apache-2.0
//! The classification bench, run by `benches/classify/run`: `bench lookups|updates FOLDER ACL OUT`.
//!
//! FOLDER holds ClassBench sets (`rules/SET.rules[.gz]`); ACL is the program of the peer (`benches/classify/acl.c`).
//! Both sides look the same headers up in strict alternation on one core, by thread CPU time; the answers are compared
//! header by header. Writes OUT: a JSON object a line.
#![allow(unsafe_code, reason = "thread CPU time is a system call")]

use bartizan_base::Fid;
use bartizan_classify::trace::{Draw, Random, draw};
use bartizan_classify::{
    Classifier, Entry, Flat, FlatV4, FlatV6, Header, HeaderRule, Level, Live, NO_FID, Net, Rebuild,
    classbench,
};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sets with the ratio aimed at.
const SETS: [(&str, f64); 7] = [
    ("acl1_1k", 1.5),
    ("fw1_1k", 2.0),
    ("ipc1_1k", 1.5),
    ("acl1_10k", 1.5),
    ("ipc1_10k", 2.0),
    ("fw1_10k", 3.2),
    ("acl1_100k", 2.0),
];
const CALL: usize = 64;
const PROCESSES: usize = 5;
const ROUNDS: usize = 3;
const BUDGET: usize = 256 << 20;

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Peak resident bytes since `reset`.
fn peak(reset: bool) -> u64 {
    if reset {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn load(folder: &Path, set: &str) -> Vec<HeaderRule> {
    let plain = folder.join(format!("rules/{set}.rules"));
    let text = std::fs::read_to_string(&plain).unwrap_or_else(|_| {
        let bytes = std::fs::read(plain.with_extension("rules.gz")).expect("a set of the folder");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("gzip");
        text
    });
    classbench::rules(&text).expect("rules")
}

fn v4(headers: &[Header]) -> Vec<FlatV4> {
    headers.iter().filter_map(|h| if let Some(Flat::V4(f)) = Flat::new(h) { Some(f) } else { None }).collect()
}

fn v6(headers: &[Header]) -> Vec<FlatV6> {
    headers.iter().filter_map(|h| if let Some(Flat::V6(f)) = Flat::new(h) { Some(f) } else { None }).collect()
}

fn entries(rules: &[HeaderRule]) -> Vec<Entry> {
    let entry = |(i, r): (usize, &HeaderRule)| Entry { fid: Fid(i as u32), priority: i as u32, rule: *r };
    rules.iter().enumerate().map(entry).collect()
}

/// One pass over all headers; nanoseconds a header.
fn pass_v4(live: &Live, headers: &[FlatV4], results: &mut [Fid], sets: usize) -> f64 {
    let start = cpu_ns();
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL * sets)) {
        live.fids_v4(headers, results);
    }
    (cpu_ns() - start) as f64 / headers.len() as f64
}

fn pass_v6(live: &Live, headers: &[FlatV6], results: &mut [Fid]) -> f64 {
    let start = cpu_ns();
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL)) {
        live.fids_v6(headers, results);
    }
    (cpu_ns() - start) as f64 / headers.len() as f64
}

fn best(times: usize, mut pass: impl FnMut() -> f64) -> f64 {
    (0..times).map(|_| pass()).fold(f64::MAX, f64::min)
}

/// The peer's process.
struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    build: f64,
    memory: f64,
}

impl Peer {
    fn start(acl: &Path, files: &Path) -> Self {
        let mut child = Command::new(acl)
            .args([files.join("rules"), files.join("headers")])
            .arg("1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the peer's program");
        let stdin = child.stdin.take().expect("its stdin");
        let mut stdout = BufReader::new(child.stdout.take().expect("its stdout"));
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            assert!(
                stdout.read_line(&mut line).expect("its answer") > 0,
                "the peer ended: run it by hand to see why"
            );
        }
        let words: Vec<f64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        Peer { child, stdin, stdout, build: words[0], memory: words[1] }
    }

    fn ask(&mut self, what: &str) -> Option<f64> {
        writeln!(self.stdin, "{what}").expect("the peer takes commands");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("its answer");
        line.trim().parse().ok()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes rules and headers as the peer reads them.
fn write_files(files: &Path, rules: &[HeaderRule], headers: &[FlatV4]) {
    let mut text = String::new();
    let net = |net: Option<Net>| match net {
        Some(Net { address: std::net::IpAddr::V4(address), length }) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (u32::from(address) & mask, length)
        }
        _ => (0, 0),
    };
    for rule in rules {
        let ((s, sl), (d, dl)) = (net(rule.source), net(rule.destination));
        let (sp, dp) = (rule.source_ports, rule.destination_ports);
        let (protocol, mask) = rule.protocol.map_or((0, 0), |p| (p, 255));
        let ports = format!("{} {} {} {}", sp.first, sp.last, dp.first, dp.last);
        let _ = writeln!(text, "{s} {sl} {d} {dl} {ports} {protocol} {mask}");
    }
    std::fs::write(files.join("rules"), text).expect("a scratch file");
    let mut bytes = Vec::with_capacity(headers.len() * 16);
    for h in headers {
        bytes.extend([h.protocol, 0, 0, 0]);
        bytes.extend(h.source.to_be_bytes());
        bytes.extend(h.destination.to_be_bytes());
        bytes.extend(h.source_port.to_be_bytes());
        bytes.extend(h.destination_port.to_be_bytes());
    }
    std::fs::write(files.join("headers"), bytes).expect("a scratch file");
}

/// The rows, for people and as JSON.
struct Rows(std::fs::File);

impl Rows {
    #[allow(clippy::too_many_arguments, reason = "the columns of a table")]
    fn add(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        peer: &str,
        peer_value: f64,
        ratio: f64,
        more: &str,
    ) {
        println!(
            "{name:<36} {value:>10.3} {unit:<10} {peer:<28} {peer_value:>10.3}  ratio {ratio:.2} {more}"
        );
        writeln!(
            self.0,
            "{{\"name\":\"{name}\",\"value\":{value:.4},\"unit\":\"{unit}\",\"peer\":\"{peer}\",\"peer_value\":{peer_value:.4},\"ratio\":{ratio:.4}{more}}}"
        )
        .expect("the output file");
    }
}

/// A classifier in its fastest form, with the seconds to first answers and to that form.
fn build(rules: &[HeaderRule]) -> (Live, f64, f64) {
    let start = Instant::now();
    let mut live = Live::new(1, BUDGET);
    live.insert(0, &entries(rules)).expect("set 0");
    let first = start.elapsed().as_secs_f64();
    let rebuild = live.begin(true);
    assert!(live.finish(rebuild.run()));
    (live, first, start.elapsed().as_secs_f64())
}

fn one_set(rows: &mut Rows, folder: &Path, acl: &Path, files: &Path, set: &str, aim: f64) {
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
                for name in ["scalar", "sse", "avx2", "avx512x16", "avx512x32"] {
                    let ns =
                        (0..2).filter_map(|_| peer.ask(&format!("{name} {CALL}"))).fold(f64::MAX, f64::min);
                    if ns < fastest {
                        (fastest, method) = (ns, name);
                    }
                }
                let out = files.join("answers");
                peer.ask(&format!("answers {method} {}", out.display()));
                pass_v4(&live, &headers, &mut results, 1);
                let bytes = std::fs::read(out).expect("the peer's answers");
                let right = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_ne_bytes(*b));
                let got = results.iter().map(|r| r.0 as i32);
                differ = right.zip(got).filter(|(a, b)| a != b).count();
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

fn versions_and_levels(rows: &mut Rows, folder: &Path) {
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
        for level in [Level::Avx2, Level::Portable] {
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

/// Lookups, then lookups under updates, then lookups again.
fn updates(rows: &mut Rows, folder: &Path, set: &str, rate: Option<u64>) {
    let rules = load(folder, set);
    let all = entries(&rules);
    let (mut live, ..) = build(&rules);
    let headers = v4(&draw(&rules, Draw::Uniform, 100_000));
    let reader = live.reader();
    let (stop, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let spent = AtomicU64::new(0);
    let label = rate.map_or("as fast as they go".to_owned(), |r| format!("{r}/s"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut results = vec![NO_FID; CALL];
            while !stop.load(Ordering::Relaxed) {
                for part in headers.chunks(6_400) {
                    let start = cpu_ns();
                    for headers in part.chunks(CALL) {
                        reader.version().fids_v4(headers, &mut results);
                    }
                    spent.fetch_add(cpu_ns() - start, Ordering::Relaxed);
                    passes.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
            }
        });
        let measure = |time: Duration, mut work: Box<dyn FnMut(&mut Live) -> u64 + '_>, live: &mut Live| {
            let (p, s, start) =
                (passes.load(Ordering::Relaxed), spent.load(Ordering::Relaxed), Instant::now());
            let mut done = 0;
            while start.elapsed() < time {
                done += work(live);
            }
            let headers = passes.load(Ordering::Relaxed) - p;
            let ns = (spent.load(Ordering::Relaxed) - s) as f64 / headers.max(1) as f64;
            (ns, done as f64 / start.elapsed().as_secs_f64())
        };
        let sleep = |time: Duration| -> Box<dyn FnMut(&mut Live) -> u64> {
            Box::new(move |_| {
                std::thread::sleep(time);
                0
            })
        };
        let (idle, _) = measure(Duration::from_secs(2), sleep(Duration::from_millis(50)), &mut live);
        // 64 entries are out at any time: one leaves, the one that left longest ago comes back.
        let mut random = Random(1);
        let mut out = std::collections::VecDeque::new();
        let mut absent = vec![false; all.len()];
        let begin = Instant::now();
        let mut total = 0u64;
        let mut one = |live: &mut Live| {
            let batch = if rate.is_some() { 1 } else { 256 };
            for _ in 0..batch {
                let i = random.below(all.len());
                if !std::mem::replace(&mut absent[i], true) {
                    live.delete(Fid(i as u32));
                    out.push_back(i);
                    total += 1;
                }
                if out.len() > 64 {
                    let i = out.pop_front().expect("one of 65");
                    live.insert(0, &all[i..=i]).expect("set 0");
                    absent[i] = false;
                    total += 1;
                }
            }
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(total as f64 / rate as f64);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            total
        };
        let mut last = 0;
        let work = Box::new(|live: &mut Live| {
            let total = one(live);
            let new = total - last;
            last = total;
            new
        });
        let (busy, done) = measure(Duration::from_secs(10), work, &mut live);
        for i in out {
            live.insert(0, &all[i..=i]).expect("set 0");
        }
        let rebuild = live.begin(true);
        live.finish(rebuild.run());
        std::thread::sleep(Duration::from_millis(500));
        let (again, _) = measure(Duration::from_secs(1), sleep(Duration::from_millis(50)), &mut live);
        stop.store(true, Ordering::Relaxed);
        rows.add(
            &format!("{set} updates, {label}"),
            done,
            "/s",
            "TupleMerge (paper's host)",
            2.3e6,
            done / 2.3e6,
            "",
        );
        rows.add(&format!("{set} lookups, {label}"), busy, "ns/header", "idle", idle, idle / busy, "");
        rows.add(&format!("{set} after, {label}"), again, "ns/header", "idle before", idle, idle / again, "");
    });
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder, acl, out] = args.as_slice() else {
        eprintln!("usage: bench lookups|updates FOLDER ACL OUT");
        std::process::exit(2);
    };
    let (folder, acl) = (Path::new(folder), Path::new(acl));
    let mut rows = Rows(std::fs::File::create(out).expect("the output file"));
    if what == "updates" {
        for rate in [Some(1_000), None] {
            updates(&mut rows, folder, "acl1_10k", rate);
        }
        return;
    }
    let files = std::env::temp_dir().join(format!("bartizan-classify-{}", std::process::id()));
    std::fs::create_dir_all(&files).expect("a scratch folder");
    for (set, aim) in SETS {
        if std::env::var("SETS").map_or(true, |only| only.split(',').any(|s| s == set)) {
            one_set(&mut rows, folder, acl, &files, set, aim);
        }
    }
    versions_and_levels(&mut rows, folder);
    let _ = std::fs::remove_dir_all(&files);
}
