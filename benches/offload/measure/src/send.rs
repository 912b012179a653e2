// SPDX-License-Identifier: Apache-2.0
//! Frames of many flows, as fast as they go, and how many of them arrive.

use crate::flows::{Failed, SERVER, client};
use bartizan_generate::sys::{self, BATCH};
use bartizan_testkit::namespace::said;
use bartizan_testkit::packet::{sum_ipv4_header, udp};
use bartizan_testkit::random::Random;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Where source address and source port of IPv4 stand in a frame.
const ADDRESS: std::ops::Range<usize> = 26..30;
const HEADER: std::ops::Range<usize> = 14..34;
const PORT: std::ops::Range<usize> = 34..36;
const SUM: std::ops::Range<usize> = 40..42;
/// The shortest frame of Ethernet without its check sequence: 42 bytes of headers and these.
const LOAD: [u8; 18] = [b'x'; 18];

/// A frame of 60 bytes, of a flow that is written into it later.
fn frame() -> Vec<u8> {
    let end = |(address, port): (u32, u16)| (Ipv4Addr::from(address).into(), port);
    let mut frame = udp(end(client(0)), end(SERVER), &LOAD).frame();
    // There is no sum: it would have to be made anew for each.
    frame[SUM].fill(0);
    frame
}

fn write(frame: &mut [u8], flow: u32) {
    let (address, port) = client(flow);
    frame[ADDRESS].copy_from_slice(&address.to_be_bytes());
    frame[PORT].copy_from_slice(&port.to_be_bytes());
    sum_ipv4_header(&mut frame[HEADER]);
}

/// Frames that an interface has received, those included that its driver's program drops.
fn received(interface: &str) -> Result<u64, Failed> {
    let text = said("ip", &format!("-j -s link show dev {interface}"));
    let value: Value = serde_json::from_str(&text)?;
    Ok(value[0]["stats64"]["rx"]["packets"].as_u64().ok_or("ip -s told no count of received frames")?)
}

/// Sends for so long: of so many flows, so many frames of one flow behind each other.
pub fn run([from, to]: [&str; 2], (flows, train): (u32, usize), seconds: f64) -> Result<(), Failed> {
    let _sink = sys::drop_all(to)?;
    let socket = sys::sender(from)?;
    let mut order: Vec<u32> = (0..flows).collect();
    Random::new(1).shuffle(&mut order);
    let mut frames = vec![frame(); BATCH];
    let mut next = order.iter().cycle().flat_map(|flow| std::iter::repeat_n(flow, train));
    let (before, begin, processor) = (received(to)?, Instant::now(), sys::thread_time());
    let (mut sent, mut refused) = (0_u64, 0_u64);
    while begin.elapsed().as_secs_f64() < seconds {
        for (frame, flow) in frames.iter_mut().zip(&mut next) {
            write(frame, *flow);
        }
        let parts: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let went = sys::send(&socket, &parts)? as u64;
        (sent, refused) = (sent + went, refused + BATCH as u64 - went);
    }
    let (took, processor) = (begin.elapsed().as_secs_f64(), sys::thread_time() - processor);
    // What is on its way arrives.
    std::thread::sleep(Duration::from_millis(200));
    let arrived = received(to)? - before;
    println!(
        "{}",
        json!({
            "sent": sent,
            "refused": refused,
            "arrived": arrived,
            "seconds": took,
            "processor": processor.as_secs_f64(),
        })
    );
    Ok(())
}
