// SPDX-License-Identifier: Apache-2.0
//! The program between two interfaces with a controller: the far ends of its link, and the datagrams that
//! pass.

use crate::command_socket::ready;
use crate::common::{Folder, PROGRAM, Running, udp};
use crate::namespace::{ip, veth};
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time without a datagram after which none is on its way.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// The far ends, a0 and b0; the program's are a1 and b1.
pub fn network() -> [InlinePort; 2] {
    ip("link set dev lo up");
    ["a", "b"].map(|name| {
        veth(&format!("{name}0"), &format!("{name}1"), 1500);
        let options = InlineOptions { frames: 1024, ..InlineOptions::default() };
        InlinePort::open(&format!("{name}0"), &options).unwrap()
    })
}

/// Starts the program by the folder's `bartizan.yaml`; returns once it accepts commands.
pub fn start(folder: &Folder) -> Running {
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    ready(folder, &running);
    running
}

/// Sends `a secret` in a datagram of each flow (source and destination port); returns the flows of those that
/// come out at the other end.
pub fn passed(net: &mut [InlinePort; 2], flows: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let frames: Vec<_> = flows.iter().map(|(source, port)| udp(false, *source, *port, b"a secret")).collect();
    passed_frames(net, &frames)
}

/// Sends frames with a datagram each; returns the ports (source and destination) of those that come out at
/// the other end.
pub fn passed_frames([from, to]: &mut [InlinePort; 2], frames: &[Vec<u8>]) -> Vec<(u16, u16)> {
    for frame in frames {
        from.transmit_frame(frame).unwrap();
    }
    from.flush().unwrap();
    let mut batch = Batch::with_capacity(256);
    let (mut came, mut end) = (Vec::new(), Instant::now() + PATIENCE);
    while Instant::now() < end && came.len() < frames.len() {
        to.receive(&mut batch).unwrap();
        for bytes in batch.indices().filter_map(|at| batch.bytes(at)) {
            let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            // IPv4 and UDP: the kernel sends frames of its own here.
            if bytes.len() > 38 && bytes[12..14] == [8, 0] && bytes[23] == 17 {
                came.push((word(34), word(36)));
                end = Instant::now() + PATIENCE;
            }
        }
        if batch.is_empty() {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    came
}
