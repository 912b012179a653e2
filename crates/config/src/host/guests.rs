// SPDX-License-Identifier: Apache-2.0
//! Guests of a host file: links whose programs use the stream path (docs/stream.md).

use crate::policy::values::Size;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A guest: programs that hand their payloads to this program over shared memory (the stream path). All
/// guests are served by one worker, so that their connections to each other need no TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Guest")]
pub struct GuestSection {
    /// The guest's addresses, which interfaces of this host have: its programs listen on these and connect
    /// from these. All addresses of the host unless given.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The Unix socket at which programs are started (`bartizan guest run`), beside this file or absolute:
    /// whoever may connect to it is the guest. Unless given: `guest-NAME.socket` in /run/bartizan, or for
    /// other users in their own folder.
    pub socket: Option<PathBuf>,
    /// The guest's loopback addresses are those of the host; else they are the guest's own.
    #[serde(default)]
    pub shares_loopback: bool,
    /// Most streams, listeners included, from 1 to 65,536; 1,024 unless given. Each takes 128 KiB of address
    /// space, and memory as it is used.
    pub streams: Option<u32>,
    /// Most processes, from 1 to 4,096; 64 unless given.
    pub processes: Option<u32>,
    /// Most bytes in this program's memory, from 1MiB; 64MiB unless given.
    pub memory: Option<Size>,
    /// Most connections that the guest opens in a second, from 1 to 1,000,000; 10,000 unless given.
    pub connects: Option<u32>,
}

/// Fewest and most streams of a guest.
pub const GUEST_STREAMS: RangeInclusive<u32> = 1..=1 << 16;
/// Fewest and most processes of a guest.
pub const GUEST_PROCESSES: RangeInclusive<u32> = 1..=4_096;
/// Least memory of a guest, in bytes.
pub const GUEST_MEMORY_MIN: u64 = 1 << 20;
/// Fewest and most connections that a guest opens in a second.
pub const GUEST_CONNECTS: RangeInclusive<u32> = 1..=1_000_000;

/// A guest to be checked, as its link has it.
pub(super) struct LinkedGuest<'f> {
    /// Number of the link.
    pub(super) index: usize,
    pub(super) name: &'f str,
    /// The link names a number of workers.
    pub(super) has_workers: bool,
    pub(super) guest: &'f GuestSection,
}

/// Checks guests: bounds, distinct addresses and sockets.
pub(super) fn check(guests: &[LinkedGuest<'_>], problem: &mut impl FnMut(String, String)) {
    let mut sockets = Vec::new();
    for (number, LinkedGuest { index, name, has_workers, guest }) in guests.iter().enumerate() {
        let at = |key: &str| format!("links/{index}/{key}");
        if *has_workers {
            let message =
                format!("link `{name}` is a guest, and all guests share one worker; remove the key");
            problem(at("workers"), message);
        }
        // The name is part of the path of its socket.
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if guest.socket.is_none() && (!name.chars().all(fits) || name.starts_with('.') || name.len() > 64) {
            let message = format!(
                "guest `{name}` has a name that cannot be part of its socket's path; use letters, digits, `-`, `_` and `.`, or give it a `socket`"
            );
            problem(at("name"), message);
        }
        let numbers = [
            ("streams", guest.streams, GUEST_STREAMS),
            ("processes", guest.processes, GUEST_PROCESSES),
            ("connects", guest.connects, GUEST_CONNECTS),
        ];
        for (key, value, range) in numbers {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                let (least, most) = (range.start(), range.end());
                let message =
                    format!("guest `{name}`: {value} {key} are out of range; give {least} to {most}");
                problem(at(&format!("guest/{key}")), message);
            }
        }
        if let Some(Size(bytes)) = guest.memory.filter(|size| size.0 < GUEST_MEMORY_MIN) {
            let least = Size(GUEST_MEMORY_MIN);
            let message = format!("guest `{name}`: {bytes} bytes are too few; give {least} or more");
            problem(at("guest/memory"), message);
        }
        if let Some(socket) = &guest.socket {
            if sockets.contains(&socket) {
                let message = format!(
                    "guest `{name}` has the same socket as another guest, {}; give each guest its own",
                    socket.display()
                );
                problem(at("guest/socket"), message);
            }
            sockets.push(socket);
        }
        addresses(guests, number, problem);
    }
}

/// Checks that a guest's addresses are addresses of a host, and of no other guest.
fn addresses(guests: &[LinkedGuest<'_>], number: usize, problem: &mut impl FnMut(String, String)) {
    let (earlier, rest) = guests.split_at(number.min(guests.len()));
    let Some(LinkedGuest { index, guest, .. }) = rest.first() else { return };
    for (place, address) in guest.addresses.iter().enumerate() {
        let has_it = |other: &&LinkedGuest<'_>| other.guest.addresses.contains(address);
        let why = if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            "cannot be an address of a guest; give one that an interface of this host has".to_owned()
        } else if let Some(other) = earlier.iter().find(has_it) {
            format!("already belongs to guest `{}`; give each guest its own addresses", other.name)
        } else {
            continue;
        };
        problem(format!("links/{index}/guest/addresses/{place}"), format!("address {address} {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn reads_guests() {
        let text = "links: [{name: a, guest: {}}, {name: b, guest: {addresses: [192.0.2.1, '2001:db8::1'], socket: b.socket, shares-loopback: true, streams: 9, processes: 3, memory: 2MiB, connects: 5}}]";
        let mut file = parse("bartizan.yaml", text).unwrap();
        file.relative_to(std::path::Path::new("/etc"));
        let b = file.links[1].guest.as_ref().unwrap();
        assert_eq!((b.addresses.len(), b.streams, b.processes, b.connects), (2, Some(9), Some(3), Some(5)));
        assert_eq!(b.socket.as_deref(), Some(std::path::Path::new("/etc/b.socket")));
        assert!(b.shares_loopback && file.links[0].guest.as_ref().unwrap().addresses.is_empty());
    }

    #[test]
    fn says_which_guest_cannot_be() {
        for (links, said) in [
            ("{name: a, guest: {}, workers: 2}", "all guests share one worker; remove the key"),
            ("{name: a, guest: {}, filter: ip}", "is a guest, whose bytes have no packets"),
            (
                "{name: a, guest: {}, tap: {interface: e0}}",
                "needs exactly one of `inline`, `tap`, `capture` and `guest`",
            ),
            ("{name: a/b, guest: {}}", "has a name that cannot be part of its socket's path"),
            ("{name: a, guest: {streams: 0}}", "guest `a`: 0 streams are out of range; give 1 to 65536"),
            ("{name: a, guest: {memory: 5}}", "5 bytes are too few; give 1MiB or more"),
            ("{name: a, guest: {addresses: ['::']}}", "address :: cannot be an address of a guest"),
            (
                "{name: a, guest: {addresses: [127.0.0.1]}}",
                "address 127.0.0.1 cannot be an address of a guest",
            ),
            (
                "{name: a, guest: {addresses: [192.0.2.1]}}, {name: b, guest: {addresses: [192.0.2.1]}}",
                "address 192.0.2.1 already belongs to guest `a`",
            ),
            ("{name: a, guest: {socket: s}}, {name: b, guest: {socket: s}}", "same socket"),
        ] {
            let error = parse("bartizan.yaml", &format!("links: [{links}]")).expect_err(links).to_string();
            assert!(error.contains(said), "{links}: {error}");
        }
    }
}
