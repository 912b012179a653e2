// SPDX-License-Identifier: Apache-2.0
//! `record FRAMES RATE > FILE.pcap`: writes the flows of the bench (70 % of the bytes bypassable, a quarter
//! IPv6, small, middle and large frames) as a capture, with the timestamps of this rate. Used to count
//! instructions of `inspect`, where nothing depends on the clock.

use bartizan_generate::flows::LARGEST;
use bartizan_generate::frames::Maker;
use bartizan_generate::list::Plan;
use bartizan_generate::play::Player;
use bartizan_testkit::capture;
use std::io::{Error, Write};

/// Seconds between packets of a flow, as in the bench.
const SPACING: f64 = 0.05;
const SIZES: [(u16, u32); 3] = [(64, 1), (594, 1), (1500, 2)];

fn main() -> Result<(), Error> {
    let usage = || Error::other("usage: record FRAMES RATE > FILE.pcap");
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().map_err(|_| usage()));
    let (frames, rate) = (words.next().ok_or_else(usage)??, words.next().ok_or_else(usage)??.max(1));
    let plan = Plan { flows: 1_000_000, bypassable: 0.7, v6: 0.25, sizes: SIZES.to_vec(), seed: 1 };
    let sizes = SIZES.map(|(size, _)| size);
    let at_once = ((rate as f64 * SPACING) as usize).max(256);
    let mut player = Player::new(plan.list(), Maker::new(&sizes), at_once, 0);
    let mut room = vec![0; usize::from(LARGEST)];
    let frames = (0..frames).map(|number| {
        let made = player.make(&mut room);
        (capture::BEGIN + number * 1_000_000 / rate, room[..made.length].to_vec())
    });
    std::io::stdout().lock().write_all(&capture::pcap(capture::ETHERNET, frames))
}
