// SPDX-License-Identifier: Apache-2.0
//! Frames that leave by a named port and not by the one across their link, since a policy redirects their
//! flow.
//!
//! Each worker sends by ports of its own, so nothing is handed to another one. What a port does not take (its
//! interface is away or down, its ring is full, the frame is too long and cannot be cut) is counted at that
//! port and told as other frames are that cannot leave: it does not go across the link instead.

use super::unsent::UnsentFrames;
use super::{LiveCounters, Rejecter, is_to_be_cut, send_as_segments};
use bartizan_base::{PortIndex, Timestamp};
use bartizan_ports::{Batch, Port, Segmentation};

/// The named ports of a worker, and who tells of what they do not take.
pub(super) struct Exits<'p> {
    pub(super) ports: &'p mut [Box<dyn Port>],
    pub(super) unsent: &'p mut UnsentFrames,
}

impl Exits<'_> {
    /// Sends a frame, in pieces if it is larger than the port carries.
    pub(super) fn send(
        &mut self,
        to: PortIndex,
        (bytes, told, at): (&[u8], Segmentation, Timestamp),
        rejecter: &mut Rejecter,
        counters: &mut LiveCounters,
    ) {
        let Some(port) = self.ports.get_mut(usize::from(to.0)) else {
            counters.gone += 1;
            return;
        };
        let cut = is_to_be_cut(bytes, told.size, &**port);
        if cut && send_as_segments(&mut **port, bytes, told, rejecter, counters) {
            return;
        }
        // The port counts it as well.
        if let Err(refusal) = port.transmit_frame(bytes) {
            self.unsent.note_exit(to, refusal, bytes, at);
        }
    }

    /// Sends a frame of a batch.
    pub(super) fn send_of(
        &mut self,
        to: PortIndex,
        (batch, index): (&Batch, usize),
        rejecter: &mut Rejecter,
        counters: &mut LiveCounters,
    ) {
        let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index)) else { return };
        if info.refusal().is_err() {
            counters.incomplete += 1;
            return;
        }
        self.send(to, (bytes, info.segmentation, info.timestamp), rejecter, counters);
    }
}

/// Sends what waits at named ports. One that is gone is no end of the link: it counts what it is given from
/// then on.
pub(super) fn flush(ports: &mut [Box<dyn Port>]) {
    for port in ports {
        let _ = port.flush();
    }
}
