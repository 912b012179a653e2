// SPDX-License-Identifier: Apache-2.0
//! Measures the speed of the engines for sets of growing size: time to compile, memory, MB/s over packets of
//! generated text, hits.
//!
//! `cargo run --release -p bartizan-pattern --example scan [-- MEGABYTES]`. The literals have the shape of
//! those in rules: 3 to 30 bytes, four of ten caseless; the data is words of the same alphabet with some
//! literals planted, in packets of 64 to 1460 bytes. Every engine must find the same; otherwise the program
//! reports it.
//!
//! Not supported: pinning, repetition over several processes, real traffic. Compare columns of one run only.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use bartizan_pattern::{Compiler, Config, Finder, Matches, Pattern, PatternEngine, Scratch};

/// xorshift64*: the same data in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }
}

const ALPHABET: &[u8] = b"eeeeeetttttaaaaoooiiinnnsssrrrhhllddccuummffppggwwyybbvvkkxjqz0123456789   //..--__=&?%:;ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn text(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| ALPHABET[random.below(ALPHABET.len())]).collect()
}

fn main() -> ExitCode {
    let megabytes: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(20);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let literals: Vec<(Vec<u8>, bool)> = (0..10_000)
        .map(|_| {
            let length = 3 + random.below(10) + random.below(10) + random.below(10);
            (text(&mut random, length), random.below(10) < 4)
        })
        .collect();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    while bytes < megabytes * 1_000_000 {
        let length = if random.below(3) == 0 { 1460 } else { 64 + random.below(600) };
        let mut packet = text(&mut random, length);
        if random.below(4) == 0 {
            let (literal, _) = &literals[random.below(literals.len())];
            let at = random.below(packet.len() - literal.len());
            packet[at..at + literal.len()].copy_from_slice(literal);
        }
        bytes += packet.len();
        packets.push(packet);
    }
    println!("{} packets, {:.1} MB", packets.len(), bytes as f64 / 1e6);
    println!("literals  matches  engine                        compile ms  memory KB     MB/s       hits");
    let mut agree = true;
    for count in [1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 1000, 3000, 10_000] {
        // The shortest literals of a large set would match all the time; small sets use literals that are
        // long enough to be rare.
        let chosen = literals.iter().filter(|(bytes, _)| count > 256 || bytes.len() >= 5).take(count);
        let patterns: Vec<Pattern<'_>> =
            (0..).zip(chosen).map(|(id, (bytes, nocase))| Pattern { id, bytes, nocase: *nocase }).collect();
        for matches in [Matches::First, Matches::All] {
            let mut found = Vec::new();
            for engine in [PatternEngine::Finders, PatternEngine::AhoCorasick, PatternEngine::Hyperscan] {
                if engine == PatternEngine::Finders && count > 16 {
                    continue;
                }
                found.extend(measure(engine, matches, &patterns, &packets, bytes));
            }
            agree &= found.windows(2).all(|pair| pair[0] == pair[1]);
        }
    }
    finders(&packets, bytes);
    if !agree {
        eprintln!("the engines do not agree: a defect, please report it");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measure(
    engine: PatternEngine,
    matches: Matches,
    patterns: &[Pattern<'_>],
    packets: &[Vec<u8>],
    bytes: usize,
) -> Option<u64> {
    let compiler = match Compiler::new(Config { engine, ..Config::default() }) {
        Ok(compiler) => compiler,
        Err(error) => {
            eprintln!("{error}");
            return None;
        }
    };
    let start = Instant::now();
    let set = match compiler.pattern_set(patterns, matches) {
        Ok(set) => set,
        Err(error) => {
            eprintln!("{error}");
            return None;
        }
    };
    let compile = start.elapsed();
    let mut scratch = Scratch::new();
    scratch.prepare_patterns(&set).ok()?;
    let (mut best, mut hits) = (f64::INFINITY, 0u64);
    for _ in 0..3 {
        hits = 0;
        let start = Instant::now();
        for packet in packets {
            let result = set.scan(&mut scratch, packet, |id, end| {
                hits += 1;
                black_box((id, end));
                true
            });
            if let Err(error) = result {
                eprintln!("{error}");
                return None;
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:8}  {:7}  {:28}  {:10.2}  {:9}  {:7.0}  {:9}",
        patterns.len(),
        format!("{matches:?}"),
        format!("{} ({})", set.engine().name(), set.form()),
        compile.as_secs_f64() * 1e3,
        set.memory_usage() / 1024,
        bytes as f64 / 1e6 / best,
        hits
    );
    Some(hits)
}

/// One literal: the search of content inspection.
fn finders(packets: &[Vec<u8>], bytes: usize) {
    for (needle, nocase) in
        [(&b"User-Agent: x"[..], false), (b"User-Agent: x", true), (b"eta", false), (b"eta", true)]
    {
        let finder = Finder::new(needle, nocase);
        let start = Instant::now();
        let hits = packets.iter().filter(|packet| black_box(finder.find(packet)).is_some()).count();
        let speed = bytes as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!(
            "finder {:?}{}: {speed:.0} MB/s, in {hits} packets",
            String::from_utf8_lossy(needle),
            if nocase { " nocase" } else { "" }
        );
    }
}
