// SPDX-License-Identifier: Apache-2.0
//! Counts arriving frames by class, in the kernel: a program of bpf(2) on a packet socket sees each incoming
//! frame of an interface and queues none of them at the socket. Nothing is copied, no frame can be missed,
//! and no process is needed; the thread that delivers the frame pays the few nanoseconds.

use crate::code::{
    ADD, ADD_ATOMICALLY, CALL, COPY, EXIT, IF_EQUAL, JUMP, LOAD_HALF, LOAD_MAP, LOAD_WORD, LOOKUP, SET,
    STORE_WORD, word,
};
use crate::flows::CLASSES;
use crate::play::Count;
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Number of counters: one for each class, and one for all other frames.
pub const COUNTERS: usize = CLASSES.len() + 1;

/// Counters of the frames that an interface receives.
pub struct Counter {
    map: OwnedFd,
    // Map, program and socket count as long as they are open.
    _program: OwnedFd,
    _socket: OwnedFd,
}

impl Counter {
    /// Starts to count.
    ///
    /// # Errors
    /// The kernel refuses the program (root is needed) or the socket.
    pub fn new(interface: &str) -> io::Result<Self> {
        let map = sys::array_of_pairs(COUNTERS as u32)?;
        let program = sys::load(&program(map.as_raw_fd()), sys::Kind::Socket)?;
        let socket = sys::listener(interface, &program)?;
        Ok(Counter { map, _program: program, _socket: socket })
    }

    /// Reads the counts since the start: the classes in their order, then all other frames.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn read(&self) -> io::Result<[Count; COUNTERS]> {
        let mut counts = [Count::default(); COUNTERS];
        for (index, count) in counts.iter_mut().enumerate() {
            let [packets, bytes] = sys::pair(&self.map, index as u32)?;
            *count = Count { packets, bytes };
        }
        Ok(counts)
    }
}

/// Builds the program that finds the class by the ports, either of which can be the server's, and counts
/// frame and bytes. Registers: 6 the frame, 7 one port, 0 the other, 8 the class.
fn program(map: RawFd) -> Vec<u64> {
    let ports =
        |at: i32| [word(LOAD_HALF, 0, 0, 0, at), word(COPY, 7, 0, 0, 0), word(LOAD_HALF, 0, 0, 0, at + 2)];
    // Length of the comparisons with all classes, in instructions.
    let compare = 3 * CLASSES.len() as i16;
    let mut code = vec![word(COPY, 6, 1, 0, 0), word(LOAD_HALF, 0, 0, 0, 12)];
    // Jumps to the ports of IPv4, to those of IPv6, or past the comparisons.
    code.extend([word(IF_EQUAL, 0, 0, 6, 0x0800), word(IF_EQUAL, 0, 0, 1, 0x86dd)]);
    code.push(word(JUMP, 0, 0, 7 + compare, 0));
    code.extend(ports(54));
    // Skips the three instructions of IPv4.
    code.push(word(JUMP, 0, 0, 3, 0));
    code.extend(ports(34));
    for (index, class) in CLASSES.iter().enumerate() {
        let to_count = compare - 3 * index as i16 - 1;
        code.push(word(SET, 8, 0, 0, index as i32));
        code.push(word(IF_EQUAL, 7, 0, to_count, class.port.into()));
        code.push(word(IF_EQUAL, 0, 0, to_count - 1, class.port.into()));
    }
    code.push(word(SET, 8, 0, 0, CLASSES.len() as i32));
    code.push(word(STORE_WORD, 10, 8, -4, 0));
    code.extend([word(COPY, 2, 10, 0, 0), word(ADD, 2, 0, 0, -4)]);
    code.extend([word(LOAD_MAP, 1, 1, 0, map), 0]);
    code.extend([word(CALL, 0, 0, 0, LOOKUP), word(IF_EQUAL, 0, 0, 4, 0)]);
    code.extend([word(SET, 1, 0, 0, 1), word(ADD_ATOMICALLY, 0, 1, 0, 0)]);
    // The frame's length is the first field of `__sk_buff`.
    code.extend([word(LOAD_WORD, 1, 6, 0, 0), word(ADD_ATOMICALLY, 0, 1, 8, 0)]);
    code.extend([word(SET, 0, 0, 0, 0), word(EXIT, 0, 0, 0, 0)]);
    code
}

#[cfg(test)]
impl Counter {
    /// Waits until `frames` frames have arrived, five seconds at most because a busy machine may deliver them
    /// late, and returns the counts.
    pub fn wait_for(&self, frames: u64) -> [Count; COUNTERS] {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        loop {
            let counts = self.read().unwrap();
            let came: u64 = counts.iter().map(|count| count.packets).sum();
            if came >= frames || std::time::Instant::now() > end {
                return counts;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::{Flow, LARGEST};
    use crate::frames::Maker;
    use crate::talk;

    /// Needs root, as packet sockets do. Uses the loopback interface of its own namespace, which carries no
    /// other traffic.
    #[test]
    fn what_comes_in_is_counted_by_class_in_both_directions() {
        match sys::own_namespace() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("left out: not root");
                return;
            }
            done => done.unwrap(),
        }
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success(), "ip (iproute2) sets the interface up");
        let counter = Counter::new("lo").unwrap();
        let (maker, socket) = (Maker::new(&[300]), sys::sender("lo").unwrap());
        let mut frame = vec![0; usize::from(LARGEST)];
        let mut wanted = [Count::default(); CLASSES.len()];
        for (number, v6) in [(1, false), (2, true)] {
            for (class, wanted) in wanted.iter_mut().enumerate() {
                let flow = Flow { packets: 11 + class as u16, size: 300, class: class as u8, v6 };
                let mut talk = maker.begin(number, flow);
                for at in 0..flow.packets {
                    let length = maker.write(&mut talk, &talk::step(&flow, at), &mut frame);
                    assert_eq!(sys::send(&socket, &[&frame[..length]]).unwrap(), 1);
                    wanted.packets += 1;
                    wanted.bytes += length as u64;
                }
            }
        }
        let mut other = vec![0; 60];
        other[12] = 0x88;
        other[13] = 0xb5;
        assert_eq!(sys::send(&socket, &[&other, &other]).unwrap(), 2);
        let sent: u64 = wanted.iter().map(|count| count.packets).sum();
        let came = counter.wait_for(sent + 2);
        assert_eq!(came[..CLASSES.len()], wanted);
        assert_eq!(came[CLASSES.len()].packets, 2, "what is no flow's");
    }
}
