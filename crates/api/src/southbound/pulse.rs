// SPDX-License-Identifier: Apache-2.0
//! When a side has to say something, and when it takes the other one for dead. Both sides of a session use
//! it.

/// The time, as whoever drives a session says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back.
    pub ms: u64,
    /// Seconds since 1970: what certificates are valid by.
    pub unix: u64,
}

/// So many times the keep-alive without a byte ends a session.
pub const DEAD_AFTER: u64 = 3;

/// Signs of life of one session.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    keep_alive: u64,
    heard: u64,
    said: u64,
    /// Since when there is something to send that nobody takes.
    waiting: Option<u64>,
}

impl Pulse {
    /// Begins with a connection. `keep_alive` in milliseconds.
    #[must_use]
    pub fn new(now: Now, keep_alive: u64) -> Self {
        Pulse { keep_alive: keep_alive.max(1), heard: now.ms, said: now.ms, waiting: None }
    }

    /// Another keep-alive was agreed on.
    pub fn agree(&mut self, keep_alive: u64) {
        self.keep_alive = keep_alive.max(1);
    }

    /// Bytes came.
    pub fn heard(&mut self, now: Now) {
        self.heard = now.ms;
    }

    /// The transport took a message.
    pub fn said(&mut self, now: Now) {
        self.said = now.ms;
        self.waiting = None;
    }

    /// Whether a sign of life is due.
    #[must_use]
    pub fn due(&self, now: Now) -> bool {
        now.ms >= self.said.saturating_add(self.keep_alive)
    }

    /// Whether the peer is silent, or takes nothing of what there is to say. Ask at least as often as
    /// [`Pulse::wake`] says.
    pub fn is_dead(&mut self, now: Now, to_say: bool) -> bool {
        let dead = self.keep_alive.saturating_mul(DEAD_AFTER);
        let since = if to_say { *self.waiting.get_or_insert(now.ms) } else { now.ms };
        if !to_say {
            self.waiting = None;
        }
        now.ms >= self.heard.saturating_add(dead) || now.ms >= since.saturating_add(dead)
    }

    /// When to look again at the latest.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let dead = self.keep_alive.saturating_mul(DEAD_AFTER);
        let silent = self.heard.saturating_add(dead);
        let due = self.said.saturating_add(self.keep_alive);
        // A sign of life that is due and that nobody takes: the time that the peer has left.
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
        pulse.said(at(100));
        assert!(!pulse.due(at(150)));
        assert!(!pulse.is_dead(at(299), false) && pulse.is_dead(at(300), false));
        pulse.heard(at(300));
        assert!(!pulse.is_dead(at(350), true));
        pulse.heard(at(640));
        assert!(!pulse.is_dead(at(649), true));
        assert_eq!(pulse.wake(), 650);
        assert!(pulse.is_dead(at(650), true));
        // What was taken begins anew.
        pulse.said(at(650));
        assert!(!pulse.is_dead(at(700), true));
    }
}
