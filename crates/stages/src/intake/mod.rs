// SPDX-License-Identifier: Apache-2.0
//! The first stage: frames become packets, fragments become datagrams.

pub mod fragment;
pub mod joined;

use crate::frame::Frame;
use crate::settings::EngineSettings;
use bartizan_base::Timestamp;
use bartizan_packet::defrag::Defragmenter;
use bartizan_packet::{Checksums, DecodeOutput, Decoded, Decoder};
use joined::Joined;

/// Fragments that are given up at once, at most, while nothing comes.
const EXPIRED_AT_ONCE: usize = 64;

/// See the module.
pub struct Intake {
    decoder: Decoder,
    defrag: Defragmenter,
    /// Of the frame in hand.
    joined: Joined,
    /// The caller's number of the way by which frames come now.
    arrived_by: u32,
    /// What its port knows of the checksums of the frame in hand.
    checksums: Checksums,
    outputs: Vec<DecodeOutput>,
    datagrams: Vec<Vec<u8>>,
}

impl Intake {
    /// Without a fragment in hand.
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

    /// A frame has come: what was kept of the one before goes.
    pub fn begin(&mut self) {
        self.joined = Joined::default();
    }

    /// Decodes a frame. The output goes back by [`Intake::done`].
    pub fn decode(&mut self, frame: &Frame<'_>) -> DecodeOutput {
        let mut output = self.outputs.pop().unwrap_or_default();
        self.decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        output.vouch(self.checksums);
        output
    }

    /// Decodes a datagram that has been put together.
    pub fn decode_datagram(&mut self, fragment: &Decoded, datagram: &[u8], output: &mut DecodeOutput) {
        self.decoder.decode_reassembled(fragment, datagram, output);
    }

    /// Room for what is decoded.
    pub fn output(&mut self) -> DecodeOutput {
        self.outputs.pop().unwrap_or_default()
    }

    /// Gives the memory of what was decoded back.
    pub fn done(&mut self, output: DecodeOutput) {
        self.outputs.push(output);
    }

    /// Room for a datagram.
    pub fn room(&mut self) -> Vec<u8> {
        self.datagrams.pop().unwrap_or_default()
    }

    /// Gives room for a datagram back.
    pub fn done_with(&mut self, datagram: Vec<u8>) {
        self.datagrams.push(datagram);
    }

    /// What the port knows of the checksums of the frame that is handed in next, and of those after it.
    pub const fn arrives_with(&mut self, checksums: Checksums) {
        self.checksums = checksums;
    }

    /// By which way the frames come that are handed in from now on.
    pub const fn arrives_by(&mut self, number: u32) {
        self.arrived_by = number;
    }

    /// By which way the frame in hand came.
    pub const fn arrived_by(&self) -> u32 {
        self.arrived_by
    }

    /// The datagrams that fragments of the frame in hand were put to, which others know from here on; and
    /// those that others knew.
    pub const fn exchange_joined(&mut self, joined: &mut Joined) {
        core::mem::swap(&mut self.joined, joined);
    }

    /// Gives up fragments whose time is over, where no frame waits with them.
    pub fn forget_fragments(&mut self, now: Timestamp) {
        self.defrag.expire_some(now, EXPIRED_AT_ONCE);
    }

    /// Whether fragments' frames may leave.
    pub const fn has_released(&self) -> bool {
        self.defrag.outgoing() > 0
    }

    /// The defragmenter, for statistics.
    pub const fn defrag(&self) -> &Defragmenter {
        &self.defrag
    }

    /// The decoder, for statistics and for who decodes alike.
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// A flow ended that had so many Ethernet addresses on its sides.
    pub fn note_macs(&mut self, sources: u64, destinations: u64) {
        let counters = self.decoder.counters_mut();
        counters.max_mac_addrs_src = counters.max_mac_addrs_src.max(sources);
        counters.max_mac_addrs_dst = counters.max_mac_addrs_dst.max(destinations);
    }
}
