// SPDX-License-Identifier: Apache-2.0
//! Bounded queues for the controller: when full, the oldest item is discarded and counted. A sent item stays
//! until the controller confirms it, so that a lost connection loses nothing; sequences let the controller
//! ignore duplicates.

use bartizan_api::southbound::AlertAggregate;
use std::collections::{HashMap, VecDeque};

/// Items with consecutive sequences.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    queue: VecDeque<T>,
    /// Sequence of the first item in the queue; sequences begin with 1.
    front: u64,
    /// The last sequence sent on this connection.
    sent: u64,
    most: usize,
    lost: u64,
}

impl<T> Outbox<T> {
    pub(super) fn new(most: usize) -> Self {
        Outbox { queue: VecDeque::new(), front: 1, sent: 0, most: most.max(1), lost: 0 }
    }

    /// Appends an item. Returns the item discarded for it, if the queue is full.
    pub(super) fn push(&mut self, item: T) -> Option<T> {
        let gone = if self.queue.len() >= self.most { self.queue.pop_front() } else { None };
        self.front += u64::from(gone.is_some());
        self.queue.push_back(item);
        gone
    }

    pub(super) fn count_lost(&mut self, number: u64) {
        self.lost = self.lost.saturating_add(number);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Removes items up to a confirmed sequence; ignores sequences that were never given.
    pub(super) fn received(&mut self, sequence: u64) {
        while self.front <= sequence && self.queue.pop_front().is_some() {
            self.front += 1;
        }
    }

    /// Begins a connection, whose peer has all items up to a sequence.
    pub(super) fn begin(&mut self, received: u64) {
        self.received(received);
        self.sent = self.front - 1;
    }

    /// Sequence of the next item to send.
    pub(super) fn next_sequence(&self) -> Option<u64> {
        let next = self.front.max(self.sent + 1);
        (next < self.front + self.queue.len() as u64).then_some(next)
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&T> {
        self.queue.get(usize::try_from(sequence.checked_sub(self.front)?).ok()?)
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut T> {
        self.queue.get_mut(usize::try_from(sequence.checked_sub(self.front)?).ok()?)
    }

    /// Marks items up to a sequence as sent.
    pub(super) fn sent(&mut self, sequence: u64) {
        self.sent = self.sent.max(sequence);
    }

    fn last_sequence(&self) -> u64 {
        self.front + self.queue.len() as u64 - 1
    }
}

/// A queue of alerts; an alert with the key of an unsent one increments its count.
#[derive(Debug)]
pub(super) struct Alerts {
    pub(super) outbox: Outbox<AlertAggregate>,
    /// Sequences of unsent alerts, by key.
    unsent: HashMap<String, u64>,
}

impl Alerts {
    pub(super) fn new(most: usize) -> Self {
        Alerts { outbox: Outbox::new(most), unsent: HashMap::new() }
    }

    pub(super) fn push(&mut self, alert: AlertAggregate) {
        let known = self.unsent.get(&alert.key).copied();
        if let Some(held) = known.and_then(|sequence| self.outbox.get_mut(sequence)) {
            held.count = held.count.saturating_add(alert.count);
            held.first = held.first.min(alert.first);
            held.last = held.last.max(alert.last);
            return;
        }
        let key = alert.key.clone();
        if let Some(gone) = self.outbox.push(alert) {
            self.unsent.remove(&gone.key);
            self.outbox.count_lost(gone.count);
        }
        self.unsent.insert(key, self.outbox.last_sequence());
    }

    /// The next alerts to send, and the sequence of the last of them.
    pub(super) fn take(&mut self, most: usize) -> Option<(u64, Vec<AlertAggregate>)> {
        let first = self.outbox.next_sequence()?;
        let mut alerts = Vec::new();
        let mut sequence = first;
        while let Some(alert) = self.outbox.get(sequence).filter(|_| alerts.len() < most) {
            self.unsent.remove(&alert.key);
            alerts.push(alert.clone());
            sequence += 1;
        }
        self.outbox.sent(sequence - 1);
        Some((sequence - 1, alerts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(key: &str, time: u64) -> AlertAggregate {
        AlertAggregate {
            key: key.into(),
            tenant: 1,
            rule: "1:1:1".into(),
            message: "m".into(),
            count: 1,
            first: time,
            last: time,
            event: serde_json::Map::new(),
        }
    }

    #[test]
    fn the_oldest_goes_and_what_was_not_received_is_sent_again() {
        let mut outbox = Outbox::new(3);
        assert_eq!((1..=4).filter_map(|n| outbox.push(n)).collect::<Vec<_>>(), [1]);
        assert_eq!(outbox.next_sequence(), Some(2));
        outbox.sent(3);
        assert_eq!(outbox.next_sequence(), Some(4));
        // The connection is lost; the controller has item 2.
        outbox.begin(2);
        assert_eq!((outbox.next_sequence(), outbox.get(3)), (Some(3), Some(&3)));
        outbox.received(u64::MAX);
        assert_eq!(outbox.next_sequence(), None);
        outbox.push(5);
        assert_eq!((outbox.next_sequence(), outbox.get(5)), (Some(5), Some(&5)));
    }

    #[test]
    fn equal_alerts_are_one_until_they_are_sent() {
        let mut alerts = Alerts::new(2);
        for (key, time) in [("a", 5), ("b", 6), ("a", 3), ("a", 9)] {
            alerts.push(alert(key, time));
        }
        let (sequence, sent) = alerts.take(10).unwrap();
        assert_eq!((sequence, sent.len()), (2, 2));
        assert_eq!((sent[0].count, sent[0].first, sent[0].last), (3, 3, 9));
        assert_eq!(alerts.take(10), None);
        // A sent alert counts no further: a new one is another item, and the oldest is discarded.
        alerts.push(alert("a", 10));
        assert_eq!(alerts.outbox.lost(), 3);
        assert_eq!(alerts.take(10).unwrap().1[0].count, 1);
    }
}
