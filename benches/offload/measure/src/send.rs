// SPDX-License-Identifier: Apache-2.0
//! Sends frames of many flows as fast as possible, and counts those that arrive.

use crate::flows::{Failed, SERVER, client};
use bartizan_generate::flood::{self, Flood, Flows};
use bartizan_generate::sys::{self, BATCH};
use bartizan_testkit::namespace::said;
use bartizan_testkit::packet::{sum_ipv4_header, udp};
use serde_json::{Value, json};
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Offsets in a frame: IPv4 header, its identification and source address, UDP source port and checksum.
const HEADER: std::ops::Range<usize> = 14..34;
const IDENTIFICATION: std::ops::Range<usize> = 18..20;
const ADDRESS: std::ops::Range<usize> = 26..30;
const PORT: std::ops::Range<usize> = 34..36;
const SUM: std::ops::Range<usize> = 40..42;
/// Payload of the shortest Ethernet frame without its check sequence, after 42 bytes of headers.
const LOAD: [u8; 18] = [b'x'; 18];
/// Frames per system call: starting and ending one takes some milliseconds, so each sends many.
const AT_ONCE: u32 = 1 << 19;

/// A frame of 60 bytes of flow 0, in the form that [`Flood`] requires.
fn frame() -> Vec<u8> {
    let end = |(address, port): (u32, u16)| (Ipv4Addr::from(address).into(), port);
    let mut frame = udp(end(client(0)), end(SERVER), &LOAD).frame();
    frame[SUM].fill(0);
    frame[IDENTIFICATION].fill(0xff);
    sum_ipv4_header(&mut frame[HEADER]);
    frame
}

/// Frames that an interface has received, including those that its driver's program drops.
fn received(interface: &str) -> Result<u64, Failed> {
    let text = said("ip", &format!("-j -s link show dev {interface}"));
    let value: Value = serde_json::from_str(&text)?;
    Ok(value[0]["stats64"]["rx"]["packets"].as_u64().ok_or("ip -s told no count of received frames")?)
}

/// Sends some frames and returns their number.
type Step = Box<dyn FnMut() -> io::Result<u64>>;

/// Sends through a packet socket, past the queueing discipline: each frame is copied into a socket buffer.
fn by_socket(interface: &str, Flows { flows, train }: Flows) -> io::Result<Step> {
    let socket = sys::sender(interface)?;
    let (mut frames, mut number) = (vec![frame(); BATCH], 0_u32);
    Ok(Box::new(move || {
        for frame in &mut frames {
            let (address, port) = client(flood::scattered(number / train, flows));
            number = number.wrapping_add(1);
            frame[ADDRESS].copy_from_slice(&address.to_be_bytes());
            frame[PORT].copy_from_slice(&port.to_be_bytes());
            sum_ipv4_header(&mut frame[HEADER]);
        }
        let parts: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        sys::send(&socket, &parts).map(|went| went as u64)
    }))
}

/// Sends as a driver would deliver the frames.
fn by_driver(interface: &str, flows: Flows) -> io::Result<Step> {
    let flood = Flood::new(interface, frame(), flows)?;
    Ok(Box::new(move || flood.send(AT_ONCE).map(|()| AT_ONCE.into())))
}

/// Sends for `seconds` and prints the rates.
pub fn run([from, to]: [&str; 2], flows: Flows, socket: bool, seconds: f64) -> Result<(), Failed> {
    let _sink = sys::drop_all(to)?;
    let mut step = if socket { by_socket(from, flows)? } else { by_driver(from, flows)? };
    let (before, begin, processor) = (received(to)?, Instant::now(), sys::thread_time());
    let mut sent = 0_u64;
    while begin.elapsed().as_secs_f64() < seconds {
        sent += step()?;
    }
    let (took, processor) = (begin.elapsed().as_secs_f64(), sys::thread_time() - processor);
    // Lets frames in flight arrive.
    std::thread::sleep(Duration::from_millis(200));
    let arrived = received(to)? - before;
    println!(
        "{}",
        json!({"sent": sent, "arrived": arrived, "seconds": took, "processor": processor.as_secs_f64()})
    );
    Ok(())
}
