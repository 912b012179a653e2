// SPDX-License-Identifier: Apache-2.0
//! The first stage: decodes frames to packets and reassembles fragments to datagrams.

pub mod fragment;
pub mod joined;

use crate::frame::Frame;
use crate::settings::EngineSettings;
use bartizan_base::Timestamp;
use bartizan_packet::defrag::Defragmenter;
use bartizan_packet::{Checksums, DecodeOutput, Decoded, Decoder};
use joined::Joined;

/// Most fragments that one step gives up while no packet arrives.
const EXPIRED_AT_ONCE: usize = 64;

/// The first stage of a worker: decoder, defragmenter and the datagrams of the current frame.
pub struct Intake {
    decoder: Decoder,
    defrag: Defragmenter,
    /// Datagrams of the current frame.
    joined: Joined,
    /// The caller's number of the port on which frames arrive now.
    arrived_by: u32,
    /// The port's knowledge of the checksums of the current frame.
    checksums: Checksums,
    outputs: Vec<DecodeOutput>,
    datagrams: Vec<Vec<u8>>,
}

impl Intake {
    /// An intake without fragments.
    pub fn new(settings: &EngineSettings) -> Self {
        Intake {
            decoder: Decoder::new(settings.decoder),
            defrag: Defragmenter::new(settings.defrag),
            joined: Joined::default(),
            arrived_by: 0,
            checksums: Checksums::Unknown,
            outputs: Vec::new(),
            datagrams: Vec::new(),
        }
    }

    /// Begins a frame: drops the state of the previous one.
    pub fn begin(&mut self) {
        self.joined = Joined::default();
    }

    /// Decodes a frame. [`Intake::done`] takes the output back.
    pub fn decode(&mut self, frame: &Frame<'_>) -> DecodeOutput {
        let mut output = self.outputs.pop().unwrap_or_default();
        self.decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        output.trust_checksums(self.checksums);
        output
    }

    /// Decodes a reassembled datagram.
    pub fn decode_datagram(&mut self, fragment: &Decoded, datagram: &[u8], output: &mut DecodeOutput) {
        self.decoder.decode_reassembled(fragment, datagram, output);
    }

    /// A buffer for the output of the decoder.
    pub fn output(&mut self) -> DecodeOutput {
        self.outputs.pop().unwrap_or_default()
    }

    /// Takes such a buffer back.
    pub fn done(&mut self, output: DecodeOutput) {
        self.outputs.push(output);
    }

    /// A buffer for a datagram.
    pub fn room(&mut self) -> Vec<u8> {
        self.datagrams.pop().unwrap_or_default()
    }

    /// Returns a buffer for reuse.
    pub fn done_with(&mut self, datagram: Vec<u8>) {
        self.datagrams.push(datagram);
    }

    /// Sets the port's knowledge of the checksums of the frames that follow.
    pub const fn arrives_with(&mut self, checksums: Checksums) {
        self.checksums = checksums;
    }

    /// Sets the port's number for the frames that follow.
    pub const fn arrives_by(&mut self, number: u32) {
        self.arrived_by = number;
    }

    /// The port's number for the current frame.
    pub const fn arrived_by(&self) -> u32 {
        self.arrived_by
    }

    /// Exchanges the datagrams of the current frame with `joined`, to pass them to another worker or back.
    pub const fn exchange_joined(&mut self, joined: &mut Joined) {
        core::mem::swap(&mut self.joined, joined);
    }

    /// Gives up fragments that have timed out, where no frames are held.
    pub fn forget_fragments(&mut self, now: Timestamp) {
        self.defrag.expire_some(now, EXPIRED_AT_ONCE);
    }

    /// Whether held frames of fragments may leave.
    pub const fn has_released(&self) -> bool {
        self.defrag.outgoing() > 0
    }

    /// The defragmenter, for statistics.
    pub const fn defrag(&self) -> &Defragmenter {
        &self.defrag
    }

    /// The decoder, for statistics and for a second decoder with the same settings.
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Counts the Ethernet addresses of a flow that ended.
    pub fn note_macs(&mut self, sources: u64, destinations: u64) {
        let counters = self.decoder.counters_mut();
        counters.max_mac_addrs_src = counters.max_mac_addrs_src.max(sources);
        counters.max_mac_addrs_dst = counters.max_mac_addrs_dst.max(destinations);
    }
}
