// SPDX-License-Identifier: Apache-2.0
//! The boundary of a guest of the stream path: programs that go round the socket library (static ones, their
//! own system calls) reach nothing but the engine (docs/stream.md).
//!
//! * `namespace`: a network namespace whose only interface is its loopback: what no hook sees has no route.
//! * `hooks`: programs of the guest's control group lead connects and datagrams to the relay, and count.
//! * [`relay`]: listens on the guest's loopback, and makes a stream of each connection.
//! * `datagrams`: the relay of datagrams, by sockets that tell their destination (`packet_info`).
//! * `descriptors`: no socket of the outer namespace is inherited.
//! * `rights`: capabilities with which a program could leave the namespace.
//!
//! All fails closed: without hooks, relay or engine there is no route.
//!
//! Not done: connections from outside to servers that do not use the library.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod clock;
pub mod datagrams;
// The system call that closes descriptors; the argument is beside it.
#[allow(unsafe_code)]
mod descriptors;
mod error;
mod hooks;
pub mod limits;
// The system call that makes a namespace; the argument is beside it.
#[allow(unsafe_code)]
mod namespace;
// Control messages with the address of a datagram; the argument is beside each call.
#[allow(unsafe_code)]
mod packet_info;
pub mod relay;
mod rights;

pub use error::BoundaryError;
pub use hooks::{BoundaryCounts, DatagramDestinations, Destination, Destinations};

use hooks::Hooks;
use relay::{Relay, RelayCounts, RelayTables};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// The boundary around this process and all that it starts.
#[derive(Debug)]
pub struct Boundary {
    hooks: Hooks,
    relayed: RelayCounts,
    group: PathBuf,
    outside: PathBuf,
}

impl Boundary {
    /// Draws the boundary: from here on, this thread and the processes that it starts are in a namespace of
    /// their own and in a control group `bartizan/NAME-PID`, without the capabilities to leave them. Connects
    /// and datagrams of plain sockets are relayed to streams of the guest whose descriptor is given.
    ///
    /// # Errors
    /// The kernel refuses a part; nothing was started by then.
    pub fn draw(guest: &OwnedFd, name: &str) -> Result<Boundary, BoundaryError> {
        descriptors::keep_only(guest)?;
        let (group, outside) = hooks::make_group(name)?;
        let made = Hooks::load(&group).and_then(|mut hooks| {
            let has_v6 = namespace::enter_new()?;
            let relay = Relay::listen(has_v6)?;
            hooks.redirect_to(relay.ports())?;
            let tables =
                RelayTables { streams: hooks.destinations()?, datagrams: hooks.datagram_destinations()? };
            let relayed = relay.start(guest.as_fd(), tables)?;
            hooks::join(&group)?;
            rights::drop_those_that_leave()?;
            Ok((hooks, relayed))
        });
        match made {
            Ok((hooks, relayed)) => Ok(Boundary { hooks, relayed, group, outside }),
            Err(error) => {
                let _ = std::fs::remove_dir(&group);
                Err(error)
            }
        }
    }

    /// Connects that were relayed, and attempts that were refused.
    #[must_use]
    pub fn counts(&self) -> BoundaryCounts {
        let (counts, datagrams) = (self.hooks.counts(), &self.relayed.datagrams);
        BoundaryCounts {
            relayed_datagrams: datagrams.relayed.load(Relaxed),
            refused_datagrams: counts.refused_datagrams + datagrams.refused.load(Relaxed),
            reset_relays: self.relayed.reset.load(Relaxed),
            ..counts
        }
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        // A group that still has processes stays, and with it a namespace without routes.
        let _ = hooks::join(&self.outside);
        let _ = std::fs::remove_dir(&self.group);
        // The folder of all guests goes with the last of them.
        let _ = self.group.parent().map(std::fs::remove_dir);
    }
}
