// SPDX-License-Identifier: Apache-2.0
//! Sends short frames of many flows as a driver would deliver them: made in the kernel and handed to the far
//! end of an interface without a socket and its buffer, at a tenth of a packet socket's cost. The kernel runs
//! a program of bpf(2) on each frame (BPF_PROG_TEST_RUN with live frames, Linux
//! `Documentation/bpf/bpf_prog_run.rst`), which writes the flow into the frame and sends it through the
//! interface.
//!
//! Flows differ in the low 16 bits of the client's address and the low four of its port. The program
//! subtracts from the header's identification the value that it adds to the address, so the checksum stays
//! right.

use crate::code::{
    ADD, AND, CALL, COPY, EXIT, IF_ABOVE, IF_EQUAL, LOAD_LONG, LOAD_MAP, LOAD_WORD, LOOKUP, MULTIPLY,
    REDIRECT, SET, SHIFT_RIGHT, STORE_HALF, STORE_LONG, STORE_WORD, TO_BIG, XOR, word,
};
use crate::sys::{self, Kind};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The largest number of flows: 16 bits of the address and four of the port.
pub const MOST_FLOWS: u32 = 1 << 20;
/// Offsets in a frame: identification, low half of the source address, source port.
const IDENTIFICATION: i16 = 18;
const ADDRESS: i16 = 28;
const PORT: i16 = 34;
/// Source port of flow 0.
const FIRST_PORT: i32 = 1024;
/// Length of the headers that the program reads and writes, in bytes.
const HEADERS: i32 = 42;
/// An odd multiplier: its multiples run through all values of the low bits in an order without pattern.
const SCATTER: i32 = 0x1e37_79b1;

/// The flows that the sent frames belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Number of flows, a power of two up to [`MOST_FLOWS`]; flow *n* has the frame's address plus *n* / 16,
    /// and port 1024 + *n* mod 16.
    pub flows: u32,
    /// Consecutive frames of one flow, a power of two.
    pub train: u32,
}

/// The flow (of `flows`, a power of two) at a position of the order: each flow comes once before the first
/// one comes again.
#[must_use]
pub const fn scattered(place: u32, flows: u32) -> u32 {
    place.wrapping_mul(SCATTER as u32) & (flows - 1)
}

/// A loaded program that sends frames of many flows (see the module).
pub struct Flood {
    program: OwnedFd,
    frame: Vec<u8>,
    // The map that holds the program's frame number.
    _map: OwnedFd,
}

impl Flood {
    /// Prepares frames that leave through an interface. `frame` is UDP over IPv4 without options, of flow 0:
    /// the low half of its source address is zero, its identification is 0xffff, and it has no UDP checksum.
    ///
    /// # Errors
    /// `flows` or `train` is not a valid number; there is no such interface; the kernel rejects the program
    /// (root is needed).
    pub fn new(interface: &str, frame: Vec<u8>, flows: Flows) -> io::Result<Self> {
        if !flows.flows.is_power_of_two() || flows.flows > MOST_FLOWS || !flows.train.is_power_of_two() {
            let what = format!("{flows:?}: powers of two are needed, and {MOST_FLOWS} flows at most");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let map = sys::array_of_pairs(1)?;
        let program = sys::load(&program(map.as_raw_fd(), sys::index(interface)?, flows), Kind::Xdp)?;
        Ok(Flood { program, frame, _map: map })
    }

    /// Sends `count` frames of the flows in turn, from where the last call ended.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn send(&self, count: u32) -> io::Result<()> {
        sys::run_live(&self.program, &self.frame, count)
    }
}

/// Builds the program. Registers: 7 the frame, 1 the frame's number and then its flow, 2 and 3 the values to
/// write.
fn program(map: RawFd, interface: u32, Flows { flows, train }: Flows) -> Vec<u64> {
    let mut work = vec![word(LOAD_LONG, 1, 0, 0, 0), word(COPY, 2, 1, 0, 0)];
    work.extend([word(ADD, 2, 0, 0, 1), word(STORE_LONG, 0, 2, 0, 0)]);
    work.push(word(SHIFT_RIGHT, 1, 0, 0, train.trailing_zeros() as i32));
    work.extend([word(MULTIPLY, 1, 0, 0, SCATTER), word(AND, 1, 0, 0, flows as i32 - 1)]);
    work.extend([word(COPY, 2, 1, 0, 0), word(SHIFT_RIGHT, 2, 0, 0, 4)]);
    work.extend([word(COPY, 3, 2, 0, 0), word(XOR, 3, 0, 0, 0xffff)]);
    work.extend([word(TO_BIG, 2, 0, 0, 16), word(STORE_HALF, 7, 2, ADDRESS, 0)]);
    work.extend([word(TO_BIG, 3, 0, 0, 16), word(STORE_HALF, 7, 3, IDENTIFICATION, 0)]);
    work.extend([word(AND, 1, 0, 0, 15), word(ADD, 1, 0, 0, FIRST_PORT)]);
    work.extend([word(TO_BIG, 1, 0, 0, 16), word(STORE_HALF, 7, 1, PORT, 0)]);
    work.extend([word(SET, 1, 0, 0, interface as i32), word(SET, 2, 0, 0, 0)]);
    work.extend([word(CALL, 0, 0, 0, REDIRECT), word(EXIT, 0, 0, 0, 0)]);
    let mut count = vec![word(COPY, 2, 10, 0, 0), word(ADD, 2, 0, 0, -4)];
    count.extend([word(LOAD_MAP, 1, 1, 0, map), 0, word(CALL, 0, 0, 0, LOOKUP)]);
    count.push(word(IF_EQUAL, 0, 0, work.len() as i16, 0));
    let mut code = vec![word(LOAD_WORD, 7, 1, 0, 0), word(LOAD_WORD, 3, 1, 4, 0)];
    code.extend([word(SET, 0, 0, 0, 0), word(STORE_WORD, 10, 0, -4, 0)]);
    code.extend([word(COPY, 2, 7, 0, 0), word(ADD, 2, 0, 0, HEADERS)]);
    code.push(word(IF_ABOVE, 2, 3, (count.len() + work.len()) as i16, 0));
    // A frame without headers jumps past all instructions and is dropped (XDP_ABORTED).
    code.into_iter().chain(count).chain(work).chain([word(SET, 0, 0, 0, 0), word(EXIT, 0, 0, 0, 0)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::namespace::{inside, run};
    use bartizan_testkit::packet::{sum_ipv4_header, udp};
    use std::collections::BTreeSet;

    #[test]
    fn every_flow_comes_once_before_the_first_comes_again() {
        let order: BTreeSet<u32> = (0..1024).map(|place| scattered(place, 1024)).collect();
        assert_eq!(order.len(), 1024);
    }

    /// Needs root. Frames are counted by a class's port, which requires the header to be intact.
    #[test]
    fn frames_arrive_and_their_checksums_are_right() {
        if !inside("flood::tests::frames_arrive_and_their_checksums_are_right") {
            return;
        }
        run("ip", "link add near type veth peer name far");
        for name in ["near", "far"] {
            run("ip", &format!("link set dev {name} up"));
        }
        run("ethtool", "-K far gro on");
        // The polling thread counts the frames that the network stack drops for their header, and UDP without
        // a listener.
        run("ip", "addr add 192.0.2.1/24 dev far");
        run("sysctl", "-qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.far.rp_filter=0");
        let end = |address: [u8; 4], port| (std::net::IpAddr::from(address), port);
        let mut frame = udp(end([10, 0, 0, 0], 1024), end([192, 0, 2, 1], 9001), &[b'x'; 18]).frame();
        frame[..6].copy_from_slice(&address_of("far"));
        frame[40..42].fill(0);
        frame[18..20].fill(0xff);
        sum_ipv4_header(&mut frame[14..34]);
        let flood = Flood::new("near", frame, Flows { flows: 1 << 10, train: 2 }).unwrap();
        let before = counted();
        flood.send(3_000).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while counted().0 < before.0 + 3_000 && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let after = counted();
        assert_eq!((after.0 - before.0, after.1 - before.1), (3_000, 0), "received by IP, wrong headers");
    }

    fn address_of(interface: &str) -> [u8; 6] {
        let line = bartizan_testkit::namespace::said("ip", &format!("-o link show dev {interface}"));
        let text = line.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
        let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
        std::array::from_fn(|_| bytes.next().unwrap())
    }

    /// IPv4 packets received in this namespace, and those with a wrong header (RFC 1213).
    fn counted() -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:")).map(str::split_whitespace);
        let values: std::collections::BTreeMap<&str, &str> =
            lines.next().unwrap().zip(lines.next().unwrap()).collect();
        (values["InReceives"].parse().unwrap(), values["InHdrErrors"].parse().unwrap())
    }
}
