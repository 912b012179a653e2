// SPDX-License-Identifier: Apache-2.0
//! The two directions of a flow.

use core::ops::{Index, IndexMut};

/// The direction of a packet within its flow. The initiator of a flow is its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// From the side that opened the flow.
    ToServer = 0,
    /// To the side that opened the flow.
    ToClient = 1,
}

impl Direction {
    /// Both, client's side first.
    pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    /// The opposite direction.
    #[must_use]
    pub const fn flip(self) -> Self {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }

    /// EVE's spelling: `to_server` or `to_client`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            Direction::ToServer => "to_server",
            Direction::ToClient => "to_client",
        }
    }
}

/// One value for each direction, indexed by [`Direction`] (so the index cannot be out of range).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerDirection<T> {
    /// Value of the client's side.
    pub to_server: T,
    /// Value of the server's side.
    pub to_client: T,
}

impl<T> PerDirection<T> {
    /// Makes one from both values.
    pub const fn new(to_server: T, to_client: T) -> Self {
        Self { to_server, to_client }
    }

    /// Mutable access to (this direction's, the other direction's) value.
    pub fn pair_mut(&mut self, direction: Direction) -> (&mut T, &mut T) {
        match direction {
            Direction::ToServer => (&mut self.to_server, &mut self.to_client),
            Direction::ToClient => (&mut self.to_client, &mut self.to_server),
        }
    }

    /// Swaps both values: used when a flow turns out to have been picked up in the wrong direction.
    pub fn swap(&mut self) {
        core::mem::swap(&mut self.to_server, &mut self.to_client);
    }
}

impl<T> Index<Direction> for PerDirection<T> {
    type Output = T;
    fn index(&self, direction: Direction) -> &T {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl<T> IndexMut<Direction> for PerDirection<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}
