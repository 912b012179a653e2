// SPDX-License-Identifier: Apache-2.0
//! Holds two interfaces joined by the XDP level, with a worker whose flows are all offloaded.

use crate::flows::{Failed, LINK, Share, TURN, program};
use bartizan_testkit::namespace::number;
use bartizan_xdp::{PortSetup, PortSide};
use serde_json::json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Interval between two reports of the ports' counters.
const SAY_EVERY: Duration = Duration::from_millis(100);

/// Holds the flows until the process ends.
pub fn run(names: [&str; 2], flows: u32) -> Result<(), Failed> {
    let mut program = program(flows)?;
    for (index, name) in (0u8..).zip(names) {
        // Frames enter by one side only, so the sides need no distinction.
        let side = PortSide::Unknown;
        let setup = PortSetup {
            ifindex: number(name),
            link: LINK,
            side,
            index,
            pair: 1 - index,
            vlans_in_key: false,
            drop_samples: None,
            early: None,
            watch: None,
        };
        program.attach(&setup)?;
    }
    let tables = program.tables();
    let mut share = Share::new(program.tables(), 0, flows)?;
    share.sink()?;
    let (mut out, mut said) = (std::io::stdout(), Instant::now());
    writeln!(out, "ready")?;
    loop {
        std::thread::sleep(Duration::from_nanos(TURN.as_nanos()));
        share.turn(TURN);
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            let counters = tables.port_counters(0).ok_or("there is no first port")?;
            let entries = share.manager.counters().entries;
            writeln!(
                out,
                "{}",
                json!({"entries": entries, "forwarded": counters.forwarded, "up": counters.up})
            )?;
            out.flush()?;
        }
    }
}
