// SPDX-License-Identifier: Apache-2.0
//! Frames and register accesses over a [`LogicModel`]: queues of frames in, frames out, with gaps and
//! back-pressure as asked. Register accesses take cycles, in which traffic goes on.

use crate::driver::{BusError, RegisterBus};
use crate::model::{Configuration, LogicModel, Wires};
use crate::registers as map;
use bartizan_packet::metadata::LEN as METADATA_LEN;
use std::collections::VecDeque;

/// Cycles within which the device answers an access; reads of counters wait for a cycle without an event.
const ANSWER_CYCLES: u32 = 10_000;

/// A frame that goes in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameIn {
    /// The ingress port.
    pub ingress: u8,
    /// The frame's bytes.
    pub bytes: Vec<u8>,
}

/// A frame that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameOut {
    /// To the host.
    ToCpu {
        /// The metadata block before it.
        metadata: [u8; METADATA_LEN],
        /// Its bytes.
        bytes: Vec<u8>,
        /// The cycle of its last beat.
        cycle: u64,
    },
    /// To a port.
    ToPort {
        /// The port.
        egress: u8,
        /// Its bytes.
        bytes: Vec<u8>,
        /// The cycle of its last beat.
        cycle: u64,
    },
}

/// Cycles of 256 in which the surroundings of the device are not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPace {
    /// No beat is offered.
    pub idle: u8,
    /// The host takes no beat.
    pub cpu_busy: u8,
    /// The ports take no beat.
    pub port_busy: u8,
}

/// A fault of a stream, seen at the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// Valid was taken back, or data changed, before ready (AMBA AXI4-Stream, section 2.2).
    #[error("cycle {0}: an output changed before it was taken")]
    Changed(u64),
    /// A beat that is not the last one is not full, or the bytes of one are not at its low end.
    #[error("cycle {0}: a beat has gaps")]
    Gap(u64),
    /// A frame to the host ended within its metadata.
    #[error("cycle {0}: a frame to the host is shorter than its metadata")]
    Short(u64),
}

/// A beat at an output that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfferedBeat {
    last: u8,
    keep: u64,
    data: [u8; 64],
}

/// One output: the frame that is on its way.
#[derive(Debug, Default)]
struct OutputStream {
    bytes: Vec<u8>,
    waiting: Option<OfferedBeat>,
}

impl OutputStream {
    /// Looks at an output in a cycle; a frame that ends with it.
    fn beat(
        &mut self,
        offered: Option<OfferedBeat>,
        is_ready: bool,
        width: usize,
        cycle: u64,
    ) -> Result<Option<Vec<u8>>, StreamFault> {
        if self.waiting.is_some() && self.waiting != offered {
            return Err(StreamFault::Changed(cycle));
        }
        self.waiting = offered.filter(|_| !is_ready);
        let Some(beat) = offered.filter(|_| is_ready) else { return Ok(None) };
        let count = beat.keep.trailing_ones() as usize;
        let has_gap = beat.keep.count_ones() as usize != count;
        if has_gap || count == 0 || (beat.last == 0 && count != width) {
            return Err(StreamFault::Gap(cycle));
        }
        self.bytes.extend(beat.data.iter().take(count));
        Ok((beat.last != 0).then(|| core::mem::take(&mut self.bytes)))
    }
}

/// A model with its traffic.
#[derive(Debug)]
pub struct Simulation {
    model: LogicModel,
    wires: Wires,
    width: usize,
    pace: StreamPace,
    random: u64,
    waiting: VecDeque<FrameIn>,
    offset: usize,
    offers: bool,
    cpu: OutputStream,
    port: OutputStream,
    out: Vec<FrameOut>,
    fault: Option<StreamFault>,
    cycle: u64,
    taken: u64,
    beats_in: u64,
    stalls: u64,
    /// The time of frames, in nanoseconds. `None`: cycles of 8 nanoseconds.
    clock: Option<u64>,
}

impl Simulation {
    /// Makes a model, and holds it in reset for some cycles.
    #[must_use]
    pub fn new(configuration: Configuration, seed: u32) -> Self {
        let mut simulation = Simulation {
            model: LogicModel::new(configuration, seed),
            wires: Wires::default(),
            width: configuration.width() / 8,
            pace: StreamPace::default(),
            random: u64::from(seed) << 1 | 1,
            waiting: VecDeque::new(),
            offset: 0,
            offers: false,
            cpu: OutputStream::default(),
            port: OutputStream::default(),
            out: Vec::new(),
            fault: None,
            cycle: 0,
            taken: 0,
            beats_in: 0,
            stalls: 0,
            clock: None,
        };
        for _ in 0..8 {
            simulation.step();
        }
        simulation.wires.reset_n = 1;
        simulation
    }

    /// Sets how often the simulated surroundings of the device are not ready.
    pub const fn set_pace(&mut self, pace: StreamPace) {
        self.pace = pace;
    }

    /// Sets the time of the device's port, in nanoseconds, until it is set again.
    pub const fn set_clock(&mut self, nanos: u64) {
        self.clock = Some(nanos);
    }

    /// Sends a frame through the device, in which no other one is, and waits for its end. `None`: it is
    /// dropped.
    ///
    /// # Errors
    /// The device does not end the frame, or breaks the rules of a stream.
    pub fn pass(&mut self, ingress: u8, bytes: &[u8]) -> Result<Option<FrameOut>, BusError> {
        self.send(ingress, bytes.to_vec());
        if bytes.is_empty() {
            return Ok(None);
        }
        // Beats go in, and after the parser's and the tables' way come out again.
        let most = 4 * (bytes.len() / self.width + 16) as u64 + ANSWER_CYCLES as u64;
        if !self.drain(most, 4) {
            return Err(BusError::Silent(map::STATUS));
        }
        for _ in 0..ANSWER_CYCLES {
            if self.read(map::STATUS)? & 0xffff == 0 {
                // The last beat may be in the register behind egress.
                self.run(4);
                return match (self.fault, self.out.pop()) {
                    (None, out) if self.out.is_empty() => Ok(out),
                    _ => Err(BusError::Silent(map::STATUS)),
                };
            }
        }
        Err(BusError::Silent(map::STATUS))
    }

    /// Appends a frame to those that go in.
    ///
    /// An empty frame has no beat, and is left out.
    pub fn send(&mut self, ingress: u8, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.waiting.push_back(FrameIn { ingress, bytes });
        }
    }

    /// Frames that have not gone in as a whole.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The frames that came out since the last call, in the order of their last beats.
    pub fn take(&mut self) -> Vec<FrameOut> {
        core::mem::take(&mut self.out)
    }

    /// Cycles since the model was made.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Frames that the model has received completely.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Beats that went in.
    #[must_use]
    pub const fn beats_in(&self) -> u64 {
        self.beats_in
    }

    /// Cycles in which a beat was offered and not taken.
    #[must_use]
    pub const fn stalls(&self) -> u64 {
        self.stalls
    }

    /// The first fault of an output stream.
    #[must_use]
    pub const fn fault(&self) -> Option<StreamFault> {
        self.fault
    }

    /// Runs for this number of cycles.
    pub fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.step();
        }
    }

    /// Runs until the model has received all frames, and for `rest` further cycles. `false`: that did not
    /// happen within `most`.
    pub fn drain(&mut self, most: u64, rest: u64) -> bool {
        for _ in 0..most {
            if self.waiting.is_empty() {
                self.run(rest);
                return true;
            }
            self.step();
        }
        false
    }

    /// A number below 256 (xorshift64*; Marsaglia, "Xorshift RNGs", 2003).
    fn draw(&mut self) -> u8 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }

    /// Whether something that happens so many times of 256 happens not.
    fn passes(&mut self, chance: u8) -> bool {
        chance == 0 || self.draw() >= chance
    }

    /// One cycle.
    pub fn step(&mut self) {
        // A beat that was offered stays until it is taken.
        if !self.offers && self.wires.reset_n == 1 && !self.waiting.is_empty() && self.passes(self.pace.idle)
        {
            self.offers = true;
            self.offer();
        }
        self.wires.in_valid = self.offers.into();
        self.wires.cpu_ready = self.passes(self.pace.cpu_busy).into();
        self.wires.port_ready = self.passes(self.pace.port_busy).into();
        let nanos = self.clock.unwrap_or(self.cycle << 3);
        self.wires.timestamp_us = self.clock.map_or(self.cycle, |clock| clock / 1_000) as u32;
        self.wires.timestamp_ns = nanos;
        self.model.cycle(&mut self.wires);
        self.cycle += 1;
        if self.wires.reset_n == 0 {
            return;
        }
        if self.offers && self.wires.in_ready != 0 {
            self.beat_taken();
        } else if self.offers {
            self.stalls += 1;
        }
        if self.wires.cpu_valid != 0 || self.wires.port_valid != 0 {
            self.outputs();
        }
    }

    /// Puts the next beat on the wires.
    fn offer(&mut self) {
        let Some(frame) = self.waiting.front() else { return };
        let rest = frame.bytes.get(self.offset..).unwrap_or(&[]);
        let count = rest.len().min(self.width);
        if let (Some(place), Some(bytes)) = (self.wires.in_data.get_mut(..count), rest.get(..count)) {
            place.copy_from_slice(bytes);
        }
        self.wires.in_keep = u64::MAX >> (64 - count);
        self.wires.in_last = (rest.len() <= self.width).into();
        self.wires.in_user = frame.ingress;
    }

    fn beat_taken(&mut self) {
        self.offers = false;
        self.beats_in += 1;
        self.offset += self.width;
        if self.wires.in_last != 0 {
            self.offset = 0;
            self.taken += 1;
            self.waiting.pop_front();
        }
    }

    fn outputs(&mut self) {
        let wires = &self.wires;
        let cpu = OfferedBeat { last: wires.cpu_last, keep: wires.cpu_keep, data: wires.cpu_data };
        let port = OfferedBeat { last: wires.port_last, keep: wires.port_keep, data: wires.port_data };
        let (cpu_ready, port_ready, egress) = (wires.cpu_ready != 0, wires.port_ready != 0, wires.port_user);
        let cpu = Some(cpu).filter(|_| wires.cpu_valid != 0);
        let port = Some(port).filter(|_| wires.port_valid != 0);
        match self.cpu.beat(cpu, cpu_ready, self.width, self.cycle) {
            Ok(Some(bytes)) => match bytes.split_first_chunk() {
                Some((metadata, bytes)) => {
                    let (metadata, bytes) = (*metadata, bytes.to_vec());
                    self.out.push(FrameOut::ToCpu { metadata, bytes, cycle: self.cycle });
                }
                None => self.fault = self.fault.or(Some(StreamFault::Short(self.cycle))),
            },
            Ok(None) => {}
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
        match self.port.beat(port, port_ready, self.width, self.cycle) {
            Ok(Some(bytes)) => self.out.push(FrameOut::ToPort { egress, bytes, cycle: self.cycle }),
            Ok(None) => {}
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
    }
}

impl RegisterBus for Simulation {
    fn write(&mut self, address: u32, word: u32) -> Result<(), BusError> {
        self.wires.write_valid = 1;
        self.wires.write_address = address;
        self.wires.write_data = word;
        for _ in 0..ANSWER_CYCLES {
            self.step();
            if self.wires.write_valid != 0 && self.wires.write_taken != 0 {
                self.wires.write_valid = 0;
            }
            if self.wires.write_done != 0 {
                let is_okay = self.wires.write_response == 0;
                return if is_okay { Ok(()) } else { Err(BusError::Refused(address)) };
            }
        }
        self.wires.write_valid = 0;
        Err(BusError::Silent(address))
    }

    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        self.wires.read_valid = 1;
        self.wires.read_address = address;
        for _ in 0..ANSWER_CYCLES {
            self.step();
            if self.wires.read_valid != 0 && self.wires.read_taken != 0 {
                self.wires.read_valid = 0;
            }
            if self.wires.read_done != 0 {
                let is_okay = self.wires.read_response == 0;
                return if is_okay { Ok(self.wires.read_data) } else { Err(BusError::Refused(address)) };
            }
        }
        self.wires.read_valid = 0;
        Err(BusError::Silent(address))
    }
}
