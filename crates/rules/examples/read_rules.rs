// SPDX-License-Identifier: Apache-2.0
//! Reads rule files (plain or gzip) and prints their findings and the time of reading: `cargo run --release
//! -p bartizan-rules --example read_rules -- FILE...`

use std::io::Read as _;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for name in std::env::args().skip(1) {
        let mut bytes = std::fs::read(&name)?;
        if name.ends_with(".gz") {
            let mut plain = Vec::new();
            flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
            bytes = plain;
        }
        let size = bytes.len();
        for _ in 0..5 {
            let text = bytes.clone();
            let start = Instant::now();
            let file = bartizan_rules::parse_file(text, &name);
            let seconds = start.elapsed().as_secs_f64();
            eprintln!("{name}: {size} bytes, {:?}, {seconds:.3} s", file.counts);
            print!("{}", file.render(false));
        }
    }
    Ok(())
}
