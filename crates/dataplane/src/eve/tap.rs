// SPDX-License-Identifier: Apache-2.0
//! The alert tap: alerts for a receiver that is no output, the controller's client. A tap takes alerts where
//! events are made, independently of the outputs, and merges alerts of one rule between the same two hosts
//! into one with a count before they leave the worker.
//!
//! A worker never waits: alerts that the receiver does not take, and more different alerts than fit into the
//! holding time, are counted as lost.

use bartizan_base::{RuleId, TenantId, Timestamp};
use bartizan_events::config::HeaderOptions;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Most different alerts that a worker holds.
pub const ALERTS_HELD: usize = 1_024;
/// Most different alerts of all workers that wait for the receiver.
pub const ALERTS_WAITING: usize = 8_192;
/// Holding time in batches of packets, for a busy worker; an idle one holds none.
pub const HELD_TURNS: u32 = 256;

/// Key by which alerts are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AlertKey {
    /// Tenant of the traffic.
    pub tenant: TenantId,
    /// The rule.
    pub rule: RuleId,
    /// Source address of the packet; `None` if it is not IP.
    pub source: Option<IpAddr>,
    /// Destination address of the packet.
    pub destination: Option<IpAddr>,
}

/// Alerts with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    /// The key that they share.
    pub key: AlertKey,
    /// The rule's message.
    pub message: String,
    /// Number of alerts.
    pub count: u64,
    /// Packet-clock time of the first alert.
    pub first: Timestamp,
    /// Packet-clock time of the last alert.
    pub last: Timestamp,
    /// The first alert as an event of EVE, without payload, packet and metadata.
    pub event: Vec<u8>,
}

/// A worker's end of the tap.
#[derive(Debug)]
pub struct AlertTap {
    to: SyncSender<Tapped>,
    lost: Arc<AtomicU64>,
    held: HashMap<AlertKey, Tapped>,
    /// Batches since the oldest held alert arrived.
    turns: u32,
    header: HeaderOptions,
}

/// The receiver's end of the tap.
#[derive(Debug)]
pub struct TappedAlerts {
    from: Receiver<Tapped>,
    lost: Arc<AtomicU64>,
}

impl AlertTap {
    /// Opens a tap; returns both ends.
    #[must_use]
    pub fn open() -> (AlertTap, TappedAlerts) {
        let (to, from) = sync_channel(ALERTS_WAITING);
        let lost = Arc::<AtomicU64>::default();
        (AlertTap::with(to, Arc::clone(&lost)), TappedAlerts { from, lost })
    }

    fn with(to: SyncSender<Tapped>, lost: Arc<AtomicU64>) -> Self {
        let header = HeaderOptions { metadata: false, ..HeaderOptions::default() };
        AlertTap { to, lost, held: HashMap::new(), turns: 0, header }
    }

    /// A further worker's end.
    #[must_use]
    pub fn another(&self) -> Self {
        AlertTap::with(self.to.clone(), Arc::clone(&self.lost))
    }

    /// Takes an alert. `first` makes the event, and is called if the alert is the first with its key.
    pub(super) fn take(
        &mut self,
        key: AlertKey,
        now: Timestamp,
        first: impl FnOnce(&HeaderOptions) -> (String, Vec<u8>),
    ) {
        if let Some(known) = self.held.get_mut(&key) {
            known.count += 1;
            known.first = known.first.min(now);
            known.last = known.last.max(now);
            return;
        }
        if self.held.len() >= ALERTS_HELD {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (message, event) = first(&self.header);
        self.held.insert(key, Tapped { key, message, count: 1, first: now, last: now, event });
    }

    /// Called between two batches: sends the alerts once they were held long enough.
    pub(super) fn turn(&mut self) {
        if !self.held.is_empty() {
            self.turns += 1;
            if self.turns >= HELD_TURNS {
                self.flush();
            }
        }
    }

    /// Sends all held alerts.
    pub(super) fn flush(&mut self) {
        self.turns = 0;
        for (_, tapped) in self.held.drain() {
            let count = tapped.count;
            if self.to.try_send(tapped).is_err() {
                self.lost.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for AlertTap {
    fn drop(&mut self) {
        self.flush();
    }
}

impl TappedAlerts {
    /// The next alert; waits for at most `wait`.
    ///
    /// # Errors
    /// All workers have ended, and their alerts were taken.
    pub fn next(&self, wait: Duration) -> Result<Option<Tapped>, RecvTimeoutError> {
        match self.from.recv_timeout(wait) {
            Ok(tapped) => Ok(Some(tapped)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(gone) => Err(gone),
        }
    }

    /// Alerts lost since the last call.
    #[must_use]
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(sid: u32) -> AlertKey {
        let rule = RuleId { gid: 1, sid, rev: 1 };
        AlertKey { tenant: TenantId(0), rule, source: None, destination: None }
    }

    fn event(_: &HeaderOptions) -> (String, Vec<u8>) {
        ("m".to_owned(), b"{}".to_vec())
    }

    #[test]
    fn equal_alerts_are_one_and_what_does_not_fit_is_counted() {
        let (mut tap, alerts) = AlertTap::open();
        tap.take(key(1), Timestamp::from_nanos(5), event);
        tap.take(key(1), Timestamp::from_nanos(3), |_| panic!("the event is there"));
        tap.take(key(1), Timestamp::from_nanos(9), |_| panic!("the event is there"));
        // The alert is not held long enough.
        (1..HELD_TURNS).for_each(|_| tap.turn());
        assert_eq!(alerts.next(Duration::ZERO).unwrap(), None);
        tap.turn();
        let tapped = alerts.next(Duration::ZERO).unwrap().unwrap();
        let times = (tapped.first.as_nanos(), tapped.last.as_nanos());
        assert_eq!((tapped.key, tapped.count, times), (key(1), 3, (3, 9)));
        for sid in 0..=ALERTS_HELD as u32 {
            tap.take(key(sid), Timestamp::ZERO, event);
        }
        assert_eq!((alerts.take_lost(), alerts.take_lost()), (1, 0));
        tap.flush();
        let mut other = tap.another();
        for _ in 1..ALERTS_WAITING / ALERTS_HELD {
            (0..ALERTS_HELD as u32).for_each(|sid| other.take(key(sid), Timestamp::ZERO, event));
            other.flush();
        }
        tap.take(key(1), Timestamp::ZERO, event);
        tap.take(key(1), Timestamp::ZERO, event);
        tap.flush();
        assert_eq!(alerts.take_lost(), 2);
        let taken = std::iter::from_fn(|| alerts.next(Duration::ZERO).unwrap()).count();
        assert_eq!(taken, ALERTS_WAITING);
        drop((tap, other));
        assert!(alerts.next(Duration::ZERO).is_err());
    }
}
