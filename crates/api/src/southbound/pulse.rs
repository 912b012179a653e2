// SPDX-License-Identifier: Apache-2.0
//! Keep-alive of a session, for both sides: when to send a message, and when the peer counts as dead.

/// The time, as the driver of a session passes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock.
    pub ms: u64,
    /// Seconds since 1970, for the validity of certificates.
    pub unix: u64,
}

/// Silence that ends a session, as a multiple of the keep-alive.
pub const DEAD_AFTER: u64 = 3;

/// The keep-alive state of one session.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    keep_alive: u64,
    last_received: u64,
    last_sent: u64,
    /// Since when the transport accepts no message although one is pending.
    waiting: Option<u64>,
}

impl Pulse {
    /// The state at the begin of a connection; `keep_alive` in milliseconds.
    #[must_use]
    pub fn new(now: Now, keep_alive: u64) -> Self {
        Pulse { keep_alive: keep_alive.max(1), last_received: now.ms, last_sent: now.ms, waiting: None }
    }

    /// Sets the negotiated keep-alive.
    pub fn agree(&mut self, keep_alive: u64) {
        self.keep_alive = keep_alive.max(1);
    }

    /// Notes that bytes arrived.
    pub fn note_received(&mut self, now: Now) {
        self.last_received = now.ms;
    }

    /// Notes that the transport accepted a message.
    pub fn note_sent(&mut self, now: Now) {
        self.last_sent = now.ms;
        self.waiting = None;
    }

    /// Whether a keep-alive message is due.
    #[must_use]
    pub fn due(&self, now: Now) -> bool {
        now.ms >= self.last_sent.saturating_add(self.keep_alive)
    }

    /// Whether the peer is silent, or accepts none of the pending messages. Call at least as often as
    /// [`Pulse::wake`] requires.
    pub fn is_dead(&mut self, now: Now, to_say: bool) -> bool {
        let dead = self.keep_alive.saturating_mul(DEAD_AFTER);
        let since = if to_say { *self.waiting.get_or_insert(now.ms) } else { now.ms };
        if !to_say {
            self.waiting = None;
        }
        now.ms >= self.last_received.saturating_add(dead) || now.ms >= since.saturating_add(dead)
    }

    /// Time of the next check at the latest.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let dead = self.keep_alive.saturating_mul(DEAD_AFTER);
        let silent = self.last_received.saturating_add(dead);
        let due = self.last_sent.saturating_add(self.keep_alive);
        // A due keep-alive message that is not accepted: the peer's remaining time.
        let stuck = self.waiting.map_or(due, |since| since.saturating_add(dead));
        silent.min(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms, unix: 0 }
    }

    #[test]
    fn who_says_nothing_or_takes_nothing_is_dead() {
        let mut pulse = Pulse::new(at(0), 100);
        assert!(!pulse.due(at(99)) && pulse.due(at(100)));
        pulse.note_sent(at(100));
        assert!(!pulse.due(at(150)));
        assert!(!pulse.is_dead(at(299), false) && pulse.is_dead(at(300), false));
        pulse.note_received(at(300));
        assert!(!pulse.is_dead(at(350), true));
        pulse.note_received(at(640));
        assert!(!pulse.is_dead(at(649), true));
        assert_eq!(pulse.wake(), 650);
        assert!(pulse.is_dead(at(650), true));
        // An accepted message restarts the time.
        pulse.note_sent(at(650));
        assert!(!pulse.is_dead(at(700), true));
    }
}
