// SPDX-License-Identifier: Apache-2.0
//! Shared code of the benchmark's parts: rule sets, headers, time and memory, rows.
#![allow(unsafe_code, reason = "thread CPU time is a system call")]

use bartizan_base::Fid;
use bartizan_classify::{Classifier, Flat, FlatV4, FlatV6, Header, HeaderRule, Live, RankedRule, classbench};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

/// The headers of a call.
pub const CALL: usize = 64;
/// The most bytes of tables.
pub const BUDGET: usize = 256 << 20;

pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Peak resident bytes since `reset`.
pub fn peak(reset: bool) -> u64 {
    if reset {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
}

pub fn load(folder: &Path, set: &str) -> Vec<HeaderRule> {
    let plain = folder.join(format!("rules/{set}.rules"));
    let text = std::fs::read_to_string(&plain).unwrap_or_else(|_| {
        let bytes = std::fs::read(plain.with_extension("rules.gz")).expect("a set of the folder");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("gzip");
        text
    });
    classbench::rules(&text).expect("rules")
}

pub fn v4(headers: &[Header]) -> Vec<FlatV4> {
    headers.iter().filter_map(|h| if let Some(Flat::V4(f)) = Flat::new(h) { Some(f) } else { None }).collect()
}

pub fn v6(headers: &[Header]) -> Vec<FlatV6> {
    headers.iter().filter_map(|h| if let Some(Flat::V6(f)) = Flat::new(h) { Some(f) } else { None }).collect()
}

pub fn entries(rules: &[HeaderRule]) -> Vec<RankedRule> {
    let entry =
        |(i, r): (usize, &HeaderRule)| RankedRule { fid: Fid(i as u32), priority: i as u32, rule: *r };
    rules.iter().enumerate().map(entry).collect()
}

/// One pass over all headers; nanoseconds a header.
pub fn pass_v4(live: &Live, headers: &[FlatV4], results: &mut [Fid], sets: usize) -> f64 {
    let start = cpu_ns();
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL * sets)) {
        live.fids_v4(headers, results);
    }
    (cpu_ns() - start) as f64 / headers.len() as f64
}

pub fn pass_v6(live: &Live, headers: &[FlatV6], results: &mut [Fid]) -> f64 {
    let start = cpu_ns();
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL)) {
        live.fids_v6(headers, results);
    }
    (cpu_ns() - start) as f64 / headers.len() as f64
}

pub fn best(times: usize, mut pass: impl FnMut() -> f64) -> f64 {
    (0..times).map(|_| pass()).fold(f64::MAX, f64::min)
}

/// The rows, as text and as JSON.
pub struct Rows(std::fs::File);

impl Rows {
    pub fn new(out: &str) -> Self {
        Rows(std::fs::File::create(out).expect("the output file"))
    }

    /// A row with the reason why it has no figure.
    pub fn refused(&mut self, name: &str, why: &str) {
        println!("{name:<36} {:>10} {why}", "-");
        writeln!(
            self.0,
            "{{\"name\":\"{name}\",\"value\":null,\"unit\":\"\",\"peer\":\"\",\"peer_value\":null,\"ratio\":null,\"why\":\"{why}\"}}"
        )
        .expect("the output file");
    }

    /// A row of a sweep: nanoseconds, MiB, seconds to build; with the peer's nanoseconds if there are any.
    pub fn swept(
        &mut self,
        name: [&str; 2],
        rules: usize,
        figures: [f64; 3],
        peer: Option<f64>,
        differ: usize,
    ) {
        let ([source, structure], [ns, mib, seconds]) = (name, figures);
        let more = format!(
            ",\"source\":\"{source}\",\"rules\":{rules},\"structure\":\"{structure}\",\"mib\":{mib:.4},\"build_seconds\":{seconds:.5},\"differ\":{differ}"
        );
        let ratio = peer.map_or(0.0, |peer| peer / ns);
        let name = format!("{source} {rules} {structure}");
        self.add(&name, ns, "ns/header", "librte_acl", peer.unwrap_or(0.0), ratio, &more);
    }

    #[allow(clippy::too_many_arguments, reason = "the columns of a table")]
    pub fn add(
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

/// A classifier in its fastest form, with the seconds to first results and to that form.
pub fn build(rules: &[HeaderRule]) -> (Live, f64, f64) {
    let start = Instant::now();
    let mut live = Live::new(1, BUDGET);
    live.insert(0, &entries(rules)).expect("set 0");
    let first = start.elapsed().as_secs_f64();
    let rebuild = live.begin(true);
    assert!(live.finish(rebuild.run()));
    (live, first, start.elapsed().as_secs_f64())
}
