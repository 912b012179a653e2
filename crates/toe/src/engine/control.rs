// SPDX-License-Identifier: Apache-2.0
//! Orders to the engine from other threads.

use super::config::{EngineError, EngineReport, GuestSpec, StreamReport};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// An order.
#[derive(Debug)]
pub(crate) enum Command {
    AddGuest(GuestSpec, Sender<Result<OwnedFd, EngineError>>),
    Report(Sender<EngineReport>),
    Streams(Sender<Vec<StreamReport>>),
    Stop,
}

/// Orders on their way.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    /// `None`: the engine has ended.
    orders: Mutex<Option<Vec<Command>>>,
    bell: OwnedFd,
}

impl CommandQueue {
    pub(crate) fn new() -> Result<CommandQueue, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(CommandQueue { orders: Mutex::new(Some(Vec::new())), bell })
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes all orders.
    pub(crate) fn take(&self) -> Vec<Command> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The engine ends: further orders are refused.
    pub(crate) fn close(&self) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn put(&self, command: Command) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = orders.as_mut() {
            orders.push(command);
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// Gives orders to a running engine.
#[derive(Clone, Debug)]
pub struct EngineControl {
    commands: Arc<CommandQueue>,
}

impl EngineControl {
    pub(crate) fn new(commands: Arc<CommandQueue>) -> EngineControl {
        EngineControl { commands }
    }

    fn request<T>(&self, order: impl FnOnce(Sender<T>) -> Command) -> Result<T, EngineError> {
        let (reply, answer): (_, Receiver<T>) = channel();
        self.commands.put(order(reply));
        answer.recv().map_err(|_| EngineError::Ended)
    }

    /// Makes a guest. Its first process must be started with this descriptor
    /// ([`crate::guest::GUEST_DESCRIPTOR`]), which determines its tenant.
    ///
    /// # Errors
    /// Limits out of bounds, or no memory or descriptors; the engine has ended.
    pub fn add_guest(&self, spec: GuestSpec) -> Result<OwnedFd, EngineError> {
        self.request(|reply| Command::AddGuest(spec, reply))?
    }

    /// The state of all guests.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn report(&self) -> Result<EngineReport, EngineError> {
        self.request(Command::Report)
    }

    /// The streams of all guests, in the order of their numbers.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn streams(&self) -> Result<Vec<StreamReport>, EngineError> {
        self.request(Command::Streams)
    }

    /// Ends the engine; open streams are reset.
    pub fn stop(&self) {
        self.commands.put(Command::Stop);
    }
}
