// SPDX-License-Identifier: Apache-2.0
//! `record FRAMES RATE > FILE.pcap`: the flows of the bench (70 % of the bytes bypassable, a quarter IPv6, small, middle and large frames) as a
//! capture, with the times that they have at this rate. For counting instructions of `inspect`, where nothing depends on the clock.

use bartizan_generate::flows::LARGEST;
use bartizan_generate::frames::Maker;
use bartizan_generate::list::Plan;
use bartizan_generate::play::Player;
use std::io::{BufWriter, Error, Write};

/// Of a packet in a flow, in seconds, as in the bench.
const SPACING: f64 = 0.05;
const SIZES: [(u16, u32); 3] = [(64, 1), (594, 1), (1500, 2)];
/// A second in the past, so that nothing is taken for a clock that goes wrong.
const BEGIN: u64 = 1_700_000_000;

fn main() -> Result<(), Error> {
    let usage = || Error::other("usage: record FRAMES RATE > FILE.pcap");
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().map_err(|_| usage()));
    let (frames, rate) = (words.next().ok_or_else(usage)??, words.next().ok_or_else(usage)??.max(1));
    let plan = Plan { flows: 1_000_000, bypassable: 0.7, v6: 0.25, sizes: SIZES.to_vec(), seed: 1 };
    let sizes = SIZES.map(|(size, _)| size);
    let at_once = ((rate as f64 * SPACING) as usize).max(256);
    let mut player = Player::new(plan.list(), Maker::new(&sizes), at_once, 0);
    let mut out = BufWriter::new(std::io::stdout().lock());
    // Little-endian, microseconds, version 2.4, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        out.write_all(&word.to_le_bytes())?;
    }
    let mut frame = vec![0; usize::from(LARGEST)];
    for number in 0..frames {
        let made = player.make(&mut frame);
        let micros = number * 1_000_000 / rate;
        let length = made.length as u32;
        for word in [(BEGIN + micros / 1_000_000) as u32, (micros % 1_000_000) as u32, length, length] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&frame[..made.length])?;
    }
    out.flush()
}
