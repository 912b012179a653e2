// SPDX-License-Identifier: Apache-2.0
//! Places for connections. So many there are, so many one address gets, and when all are taken the oldest connection that has shown no
//! token yet makes room: nobody shuts others out by opening connections and saying nothing.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The places.
#[derive(Debug)]
pub struct Seats {
    all: usize,
    by_source: usize,
    held: Mutex<VecDeque<Seat>>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    source: IpAddr,
    /// Whether a token was shown that is known here.
    known: Arc<AtomicBool>,
    /// To end it; once its task runs.
    task: Option<AbortHandle>,
}

/// What a newcomer gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// A place.
    Free,
    /// The place of one that was let go.
    InPlaceOf(u64),
    /// None.
    Nothing,
}

impl Seats {
    /// So many places, and so many for one address; those of loopback are one machine's, and have no bound of their own.
    pub fn new(all: usize, by_source: usize) -> Self {
        Seats { all, by_source, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<Seat>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection of an address. Numbers are each given once.
    pub fn take(&self, number: u64, source: IpAddr, known: &Arc<AtomicBool>) -> Given {
        let mut held = self.held();
        let same = held.iter().filter(|seat| seat.source == source).count();
        if same >= self.by_source && !source.is_loopback() {
            return Given::Nothing;
        }
        let mut given = Given::Free;
        if held.len() >= self.all {
            let Some(oldest) = held.iter().position(|seat| !seat.known.load(Ordering::Acquire)) else {
                return Given::Nothing;
            };
            if let Some(seat) = held.remove(oldest) {
                given = Given::InPlaceOf(seat.number);
                seat.task.iter().for_each(AbortHandle::abort);
            }
        }
        held.push_back(Seat { number, source, known: Arc::clone(known), task: None });
        given
    }

    /// The task that serves a connection.
    pub fn serves(&self, number: u64, task: AbortHandle) {
        if let Some(seat) = self.held().iter_mut().find(|seat| seat.number == number) {
            seat.task = Some(task);
        }
    }

    /// Gives a place back.
    pub fn leave(&self, number: u64) {
        self.held().retain(|seat| seat.number != number);
    }
}

/// Gives a place back when it is dropped.
pub struct Leaves(pub Arc<Seats>, pub u64);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_showed_nothing_makes_room_and_one_address_gets_its_share() {
        let seats = Seats::new(4, 2);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (quiet, known) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let local = address("127.0.0.1");
        assert_eq!(seats.take(1, local, &known), Given::Free);
        assert_eq!(seats.take(2, local, &quiet), Given::Free);
        assert_eq!(seats.take(3, local, &quiet), Given::Free);
        assert_eq!(seats.take(4, address("192.0.2.1"), &known), Given::Free);
        assert_eq!(seats.take(5, address("192.0.2.1"), &known), Given::InPlaceOf(2));
        assert_eq!(seats.take(6, address("192.0.2.1"), &known), Given::Nothing, "its share");
        assert_eq!(seats.take(7, address("192.0.2.2"), &known), Given::InPlaceOf(3));
        assert_eq!(seats.take(8, address("192.0.2.2"), &known), Given::Nothing, "all have shown a token");
        seats.leave(1);
        assert_eq!(seats.take(9, address("192.0.2.2"), &quiet), Given::Free);
    }
}
