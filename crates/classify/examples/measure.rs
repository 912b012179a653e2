// SPDX-License-Identifier: Apache-2.0
//! Compiles a ClassBench file and measures lookups: `measure RULES [GOLDEN]`.

use bartizan_classify::{Compiled, Flat, FlatV4, Options, classbench, trace};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let rules = classbench::rules(&std::fs::read_to_string(args.next().unwrap()).unwrap()).unwrap();
    for fast in [false, true] {
        let start = Instant::now();
        let compiled = Compiled::new(&[rules.clone()], Options { budget: 64 << 20, fast });
        println!("build fast={fast} {:?} {:.2} MiB", start.elapsed(), compiled.memory() as f64 / 1048576.0);
        for line in compiled.summary() {
            println!("  {line}");
        }
        for how in [trace::Draw::Uniform, trace::Draw::Cross] {
            let trace = trace::draw(&rules, how, 400_000);
            let flat: Vec<FlatV4> = trace
                .iter()
                .map(|h| match Flat::new(h) {
                    Some(Flat::V4(h)) => h,
                    _ => panic!(),
                })
                .collect();
            let mut out = vec![0u32; flat.len()];
            let mut best = f64::MAX;
            for _ in 0..9 {
                let start = Instant::now();
                for (h, o) in flat.chunks(64).zip(out.chunks_mut(64)) {
                    compiled.lookup_v4(h, o);
                }
                best = best.min(start.elapsed().as_nanos() as f64 / flat.len() as f64);
            }
            println!("  {how:?} {best:.2} ns  check {}", out.iter().map(|x| u64::from(*x)).sum::<u64>());
        }
    }
}
