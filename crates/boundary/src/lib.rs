// SPDX-License-Identifier: Apache-2.0
//! The boundary of a guest of the stream path: programs that go round the socket library (static ones, their
//! own system calls) reach nothing but the engine (docs/stream.md).
//!
//! * `namespace`: a network namespace whose only interface is its loopback: what no hook sees has no route.
//! * `hooks`: programs of the guest's control group lead connects to the relay, refuse datagrams, and count.
//! * [`relay`]: listens on the guest's loopback, and makes a stream of each connection.
//! * `descriptors`: no socket of the outer namespace is inherited.
//! * `rights`: capabilities with which a program could leave the namespace.
//!
//! All fails closed: without hooks, relay or engine there is no route.
//!
//! Not done: datagrams; connections from outside to servers that do not use the library.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

// The system call that closes descriptors; the argument is beside it.
#[allow(unsafe_code)]
mod descriptors;
mod error;
mod hooks;
pub mod limits;
// The system call that makes a namespace; the argument is beside it.
#[allow(unsafe_code)]
mod namespace;
pub mod relay;
mod rights;

pub use error::BoundaryError;
pub use hooks::{BoundaryCounts, Destinations};

use hooks::Hooks;
use relay::Relay;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The boundary around this process and all that it starts.
#[derive(Debug)]
pub struct Boundary {
    hooks: Hooks,
    /// Relayed connections for which there was no room.
    reset: Arc<AtomicU64>,
    group: PathBuf,
    outside: PathBuf,
}

impl Boundary {
    /// Draws the boundary: from here on, this thread and the processes that it starts are in a namespace of
    /// their own and in a control group `bartizan/NAME-PID`, without the capabilities to leave them. Connects
    /// of plain sockets are relayed to streams of the guest whose descriptor is given.
    ///
    /// # Errors
    /// The kernel refuses a part; nothing was started by then.
    pub fn draw(guest: &OwnedFd, name: &str) -> Result<Boundary, BoundaryError> {
        descriptors::keep_only(guest)?;
        let (group, outside) = hooks::make_group(name)?;
        let made = Hooks::load(&group).and_then(|mut hooks| {
            namespace::enter_new()?;
            let relay = Relay::listen()?;
            hooks.lead_to(relay.ports())?;
            let reset = relay.start(guest.as_fd(), hooks.destinations()?)?;
            hooks::join(&group)?;
            rights::drop_those_that_leave()?;
            Ok((hooks, reset))
        });
        match made {
            Ok((hooks, reset)) => Ok(Boundary { hooks, reset, group, outside }),
            Err(error) => {
                let _ = std::fs::remove_dir(&group);
                Err(error)
            }
        }
    }

    /// Connects that were relayed, and attempts that were refused.
    #[must_use]
    pub fn counts(&self) -> BoundaryCounts {
        BoundaryCounts { reset_relays: self.reset.load(Ordering::Relaxed), ..self.hooks.counts() }
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
