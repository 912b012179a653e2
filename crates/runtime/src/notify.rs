// SPDX-License-Identifier: Apache-2.0
//! Notifications to the service manager: ready, reloading, stopping, and signs of life.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3) of systemd. Without `NOTIFY_SOCKET` nothing is sent. Not
//! done: descriptors that a manager keeps (`FDSTORE=1`).

use rustix::time::{ClockId, clock_gettime};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tracing::warn;

/// The service manager's socket, if it started this process.
#[derive(Debug, Default)]
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    /// Interval of signs of life, with the time of the next one.
    watchdog: Option<(Duration, Mutex<Instant>)>,
}

impl Notifier {
    /// The manager that the environment names.
    pub fn from_environment() -> Self {
        let text = |name| std::env::var(name).ok();
        let manager = std::env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let address = match path.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::unbound().and_then(|socket| Ok((socket, address?)));
            // A manager that is told nothing ends the run after its start limit.
            socket
                .inspect_err(|error| {
                    warn!("cannot notify the service manager: {error}; NOTIFY_SOCKET has to name its socket");
                })
                .ok()
        });
        let own = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let limit = text("WATCHDOG_USEC").filter(|_| own).and_then(|limit| limit.parse().ok());
        let every = limit.map(|limit| Duration::from_micros(limit) / 3).filter(|every| !every.is_zero());
        let watchdog = every.filter(|_| manager.is_some()).map(|every| (every, Mutex::new(Instant::now())));
        Notifier { manager, watchdog }
    }

    /// Sends one or several lines `NAME=VALUE`. A failure is ignored: the manager then acts by its limits.
    fn send(&self, lines: &str) {
        if let Some((socket, address)) = &self.manager {
            let _ = socket.send_to_addr(lines.as_bytes(), address);
        }
    }

    /// The run has begun, or a reload has ended.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload begins.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=loads rules and policy"));
    }

    /// The run ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ends");
    }

    /// Sends a sign of life when one is due and `lives` finds all workers alive. Returns whether it did.
    pub fn sign_of_life(&self, lives: impl FnOnce() -> bool) -> bool {
        let Some((every, next)) = &self.watchdog else { return false };
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now < *next || !lives() {
            return false;
        }
        *next = now + *every;
        self.send("WATCHDOG=1");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(every: Option<Duration>) -> (UnixDatagram, Notifier) {
        let name = format!("bartizan-notify-{}-{every:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let watchdog = every.map(|every| (every, Mutex::new(Instant::now())));
        (manager, Notifier { manager: Some((UnixDatagram::unbound().unwrap(), address)), watchdog })
    }

    fn received(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_told_each_state() {
        let (manager, notifier) = notifier(None);
        notifier.ready("runs on eth0");
        assert_eq!(received(&manager), "READY=1\nSTATUS=runs on eth0");
        notifier.reloading();
        let text = received(&manager);
        let micros = text.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(text.starts_with("RELOADING=1\n") && micros.parse::<u64>().unwrap() > 0, "{text}");
        notifier.stopping();
        assert!(received(&manager).starts_with("STOPPING=1\n"));
        assert!(!notifier.sign_of_life(|| true), "no watchdog is wanted");
    }

    #[test]
    fn a_sign_of_life_needs_living_workers_and_its_time() {
        let (manager, notifier) = notifier(Some(Duration::from_secs(60)));
        assert!(!notifier.sign_of_life(|| false));
        assert!(notifier.sign_of_life(|| true));
        assert_eq!(received(&manager), "WATCHDOG=1");
        assert!(!notifier.sign_of_life(|| panic!("asked before it is due")));
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        let none = Notifier::default();
        none.ready("x");
        assert!(!none.sign_of_life(|| panic!("nobody wants it")));
    }
}
