// SPDX-License-Identifier: Apache-2.0
//! Places for connections. Their number is bounded. Connections count against the share of their address
//! until they show a token, then against the share of the token; some places are reserved for administrators.
//! When all are taken, the oldest connection without a token makes room, then an idle one of the token with
//! the most. So nobody shuts others out, neither with silent connections nor with one valid token.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The number of places, and the share of each kind of client.
#[derive(Clone, Copy, Debug)]
pub struct SeatBounds {
    /// Limit for all connections.
    pub all: usize,
    /// Most places of one address, for connections that have shown no token; loopback has no such bound.
    pub by_source: usize,
    /// Most places of one token.
    pub by_token: usize,
    /// Places reserved for administrators, and for connections that have shown no token yet.
    pub reserved: usize,
}

/// The places.
#[derive(Debug)]
pub struct Seats {
    bounds: SeatBounds,
    held: Mutex<VecDeque<ConnectionSlot>>,
}

#[derive(Debug)]
struct ConnectionSlot {
    number: u64,
    source: IpAddr,
    /// The holder of the token shown last; `None` before a valid token.
    holder: Option<Holder>,
    /// Whether a request is running.
    busy: Arc<AtomicBool>,
    /// Aborts the connection's task; set once the task runs.
    task: Option<AbortHandle>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    token: String,
    administers: bool,
}

/// The result of a request for a place.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// There was a free place.
    Free,
    /// The place of another connection, which was closed.
    InPlaceOf(u64),
    /// There is no place.
    Nothing,
}

impl Seats {
    /// Places with these bounds.
    pub fn new(bounds: SeatBounds) -> Self {
        Seats { bounds, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<ConnectionSlot>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection from an address. `number` is unique. `busy` is set while a request
    /// runs.
    pub fn take(&self, number: u64, source: IpAddr, busy: &Arc<AtomicBool>) -> Given {
        let mut held = self.held();
        let same = held.iter().filter(|seat| seat.holder.is_none() && seat.source == source).count();
        if same >= self.bounds.by_source && !source.is_loopback() {
            return Given::Nothing;
        }
        let mut given = Given::Free;
        if held.len() >= self.bounds.all {
            let unproven = held.iter().position(|seat| seat.holder.is_none());
            let Some(at) = unproven.or_else(|| idle_of_largest(&held, number, |_| true)) else {
                return Given::Nothing;
            };
            given = evict(&mut held, at);
        }
        held.push_back(ConnectionSlot { number, source, holder: None, busy: Arc::clone(busy), task: None });
        given
    }

    /// Charges a connection to a valid token. [`Given::Nothing`]: the share of the token, or of all tokens
    /// that are not administrators', is used up, and requests run on all those connections.
    pub fn shows(&self, number: u64, token: &str, administers: bool) -> Given {
        let holder = Holder { token: token.to_owned(), administers };
        let mut held = self.held();
        let Some(own) = held.iter().position(|seat| seat.number == number) else { return Given::Nothing };
        let others =
            || held.iter().filter(|seat| seat.number != number).filter_map(|seat| seat.holder.as_ref());
        let same = others().filter(|other| other.token == token).count();
        let plain = others().filter(|other| !other.administers).count();
        let makes_room = if same >= self.bounds.by_token {
            Some(idle_of_largest(&held, number, |other| other.token == token))
        } else if !administers && plain >= self.bounds.all.saturating_sub(self.bounds.reserved) {
            Some(idle_of_largest(&held, number, |other| !other.administers))
        } else {
            None
        };
        if makes_room == Some(None) {
            return Given::Nothing;
        }
        if let Some(seat) = held.get_mut(own) {
            seat.holder = Some(holder);
        }
        makes_room.flatten().map_or(Given::Free, |at| evict(&mut held, at))
    }

    /// Sets the task that serves a connection.
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

fn evict(held: &mut VecDeque<ConnectionSlot>, at: usize) -> Given {
    let Some(seat) = held.remove(at) else { return Given::Nothing };
    seat.task.iter().for_each(AbortHandle::abort);
    Given::InPlaceOf(seat.number)
}

/// The oldest connection without a running request, of the token with the most connections among those that
/// `fits` selects. `but`: a connection to leave out.
fn idle_of_largest(
    held: &VecDeque<ConnectionSlot>,
    but: u64,
    fits: impl Fn(&Holder) -> bool,
) -> Option<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for holder in held.iter().filter_map(|seat| seat.holder.as_ref()) {
        *counts.entry(&holder.token).or_default() += 1;
    }
    let idle = held.iter().enumerate().filter_map(|(at, seat)| {
        let holder = seat.holder.as_ref().filter(|holder| fits(holder))?;
        let is_idle = seat.number != but && !seat.busy.load(Ordering::Acquire);
        is_idle.then(|| (counts.get(holder.token.as_str()).copied().unwrap_or(0), Reverse(at)))
    });
    idle.max().map(|(_, Reverse(at))| at)
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

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn flag(busy: bool) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(busy))
    }

    #[test]
    fn the_oldest_that_showed_nothing_makes_room_and_one_address_gets_its_share() {
        let seats = Seats::new(SeatBounds { all: 4, by_source: 2, by_token: 4, reserved: 0 });
        let (idle, local) = (flag(false), address("127.0.0.1"));
        for number in 1..=3 {
            assert_eq!(seats.take(number, local, &idle), Given::Free);
        }
        assert_eq!(seats.shows(1, "a", false), Given::Free);
        assert_eq!(seats.take(4, address("192.0.2.1"), &idle), Given::Free);
        assert_eq!(seats.take(5, address("192.0.2.1"), &idle), Given::InPlaceOf(2));
        assert_eq!(seats.take(6, address("192.0.2.1"), &idle), Given::Nothing, "its share");
        assert_eq!(seats.shows(5, "b", false), Given::Free);
        assert_eq!(
            seats.take(7, address("192.0.2.1"), &idle),
            Given::InPlaceOf(3),
            "a token counts by itself"
        );
        assert_eq!(seats.shows(2, "c", false), Given::Nothing, "it was let go");
        seats.leave(1);
        assert_eq!(seats.take(8, address("192.0.2.2"), &idle), Given::Free);
    }

    #[test]
    fn one_token_takes_its_share_only_and_places_are_kept_for_administrators() {
        let seats = Seats::new(SeatBounds { all: 8, by_source: 8, by_token: 3, reserved: 4 });
        let (idle, busy) = (flag(false), flag(true));
        // From different addresses.
        for number in 1..=3u8 {
            assert_eq!(seats.take(number.into(), IpAddr::from([192, 0, 2, number]), &busy), Given::Free);
            assert_eq!(seats.shows(number.into(), "reader", false), Given::Free);
        }
        assert_eq!(seats.take(4, address("192.0.2.4"), &idle), Given::Free);
        assert_eq!(seats.shows(4, "reader", false), Given::Nothing, "all of its own are busy");
        assert_eq!(seats.shows(4, "other", false), Given::Free);
        assert_eq!(seats.take(5, address("192.0.2.4"), &idle), Given::Free);
        assert_eq!(seats.shows(5, "third", false), Given::InPlaceOf(4), "the rest is kept");
        for number in 6..=10 {
            assert_eq!(seats.take(number, address("192.0.2.9"), &busy), Given::Free);
            let expected = if number < 9 { Given::Free } else { Given::Nothing };
            assert_eq!(
                seats.shows(number, "admin", true),
                expected,
                "an administrator's token has a share, too"
            );
            if number >= 9 {
                seats.leave(number);
            }
        }
        assert_eq!(seats.take(11, address("192.0.2.9"), &idle), Given::Free);
        assert_eq!(seats.shows(11, "another", true), Given::Free);
        // All places are taken: of the idle connections, one of the token with the most makes room.
        assert_eq!(seats.take(12, address("192.0.2.9"), &idle), Given::InPlaceOf(5));
    }
}
