// SPDX-License-Identifier: Apache-2.0
//! A port that only sends: a named port, by which redirected packets leave.
//!
//! Its interface may go and come back while its owner runs on: frames passed to it meanwhile are refused and
//! counted, and it looks for the interface once a second. It follows a change of its MTU as the other ports
//! do.

use crate::batch::Batch;
use crate::error::{OpenError, PortError};
use crate::frame::FrameInfo;
use crate::inline::{InlineOptions, MAX_MTU, Sender, check_interface, sender};
use crate::interface::Interface;
use crate::mtu::MtuWatch;
use crate::port::{Port, PortStats};
use crate::refusal::SendRefusal;
use crate::sys;
use crate::wait::packet_clock;
use bartizan_base::{PacketDuration, Timestamp};

/// The interval at which the port looks for an interface that is gone.
const EVERY: PacketDuration = PacketDuration::from_secs(1);

/// A named port by which redirected packets leave; it only sends.
pub struct ExitPort {
    /// The interface as last seen.
    interface: Interface,
    options: InlineOptions,
    /// `None` while the interface is gone.
    sender: Option<Sender>,
    /// The time of the next look for it.
    next: Timestamp,
    mtu: MtuWatch,
    stats: PortStats,
}

impl ExitPort {
    /// Opens one on interface `name`; only the options of sending count.
    ///
    /// # Errors
    /// The fault of interface, rights or memory, with what to do.
    pub fn open(name: &str, options: &InlineOptions) -> Result<Self, OpenError> {
        let (interface, sender) = open(name, options)?;
        let (sender, next, stats) = (Some(sender), Timestamp::ZERO, PortStats::default());
        Ok(Self { interface, options: *options, sender, next, mtu: MtuWatch::default(), stats })
    }

    /// Reopens the interface, if it exists and a look is due, and follows its MTU.
    fn poll_interface(&mut self) {
        let now = packet_clock();
        if let Some(sender) = &mut self.sender {
            let changed = self.mtu.refresh(now, sender.descriptor(), &self.interface, MAX_MTU);
            if let Some(interface) = changed
                && sender.follow(&interface, &self.options, &mut self.stats)
            {
                self.interface = interface;
            }
            return;
        }
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        if let Ok((interface, sender)) = open(&self.interface.name, &self.options) {
            (self.interface, self.sender) = (interface, Some(sender));
        }
    }

    fn refuse(&mut self, refusal: SendRefusal) -> Result<(), SendRefusal> {
        self.stats.send_failures.add(refusal, 1);
        Err(refusal)
    }
}

fn open(name: &str, options: &InlineOptions) -> Result<(Interface, Sender), OpenError> {
    let interface = Interface::lookup(name)?;
    check_interface(&interface)?;
    let sender = sender(&interface, options)?;
    Ok((interface, sender))
}

impl Port for ExitPort {
    fn name(&self) -> &str {
        &self.interface.name
    }

    fn mtu(&self) -> u32 {
        self.interface.mtu
    }

    fn mac(&self) -> [u8; 6] {
        self.interface.mac
    }

    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        batch.clear();
        Ok(0)
    }

    fn transmit(&mut self, batch: &mut Batch) -> usize {
        batch.send_each(|info, frame| match info.refusal() {
            Ok(()) => self.transmit_frame(frame),
            Err(refusal) => self.refuse(refusal),
        })
    }

    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        self.poll_interface();
        match &mut self.sender {
            Some(sender) => sender.queue(&FrameInfo::default(), frame, &mut self.stats),
            None => self.refuse(SendRefusal::DeviceDown),
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        let failed = sender.flush(&mut self.stats);
        if failed && !sys::interface_exists(self.interface.index) {
            self.sender = None;
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.sender.as_ref().map_or(0, Sender::waiting)
    }

    fn ready(&self) -> bool {
        false
    }

    fn stats(&mut self) -> PortStats {
        self.stats
    }

    fn now(&mut self) -> Timestamp {
        packet_clock()
    }
}
