// SPDX-License-Identifier: Apache-2.0
//! The interface that the host's default route leaves by: the name `default-route` of a tap.
//!
//! Source: `/proc/net/route` and `/proc/net/ipv6_route` of this network namespace, Linux
//! `include/uapi/linux/route.h`. Read once, at the start: a run follows no change of routes.

use crate::error::Failure;

/// The name that means the interface of the default route.
pub const DEFAULT_ROUTE: &str = "default-route";

/// A route is in use (`RTF_UP`).
const UP: u32 = 0x1;
/// A route rejects its packets (`RTF_REJECT`).
const REJECT: u32 = 0x200;

/// The interface of a tap: the name itself, or the interface of the default route.
///
/// # Errors
/// There is no default route.
pub fn interface(name: &str) -> Result<String, Failure> {
    if name != DEFAULT_ROUTE {
        return Ok(name.to_owned());
    }
    // Without IPv4 or IPv6 in the kernel its file does not exist.
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    of_tables(&read("/proc/net/route"), &read("/proc/net/ipv6_route")).ok_or_else(|| {
        Failure::input(format!(
            "interface `{DEFAULT_ROUTE}`: this host has no default route; name the interface of the tap (`ip link` lists them)"
        ))
    })
}

/// The interface of the best default route, of IPv4 if there is one.
fn of_tables(ipv4: &str, ipv6: &str) -> Option<String> {
    let v4 = ipv4.lines().filter_map(route_v4).min();
    v4.or_else(|| ipv6.lines().filter_map(route_v6).min()).map(|(_, interface)| interface)
}

/// Metric and interface of a line, if its route is a default one.
fn route_v4(line: &str) -> Option<(u32, String)> {
    let mut words = line.split_whitespace();
    let interface = words.next()?;
    let destination = words.next()?;
    let flags = u32::from_str_radix(words.nth(1)?, 16).ok()?;
    let metric = words.nth(2)?.parse().ok()?;
    let mask = words.next()?;
    let is_default = destination == "00000000" && mask == "00000000";
    (is_default && is_usable(flags)).then(|| (metric, interface.to_owned()))
}

/// As [`route_v4`].
fn route_v6(line: &str) -> Option<(u32, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [destination, length, _, _, _, metric, _, _, flags, interface] = words.as_slice() else {
        return None;
    };
    let is_default = destination.bytes().all(|digit| digit == b'0') && *length == "00";
    let usable = is_usable(u32::from_str_radix(flags, 16).ok()?) && *interface != "lo";
    (is_default && usable)
        .then_some(u32::from_str_radix(metric, 16).ok()?)
        .map(|metric| (metric, (*interface).to_owned()))
}

const fn is_usable(flags: u32) -> bool {
    flags & UP != 0 && flags & REJECT == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
        eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth1\t00000000\t0101A8C0\t0203\t0\t0\t1\t00000000\t0\t0\t0\n\
        eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const V6: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth2\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n\
        fe800000000000000000000000000000 40 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth3\n";

    #[test]
    fn the_best_usable_default_route_names_the_interface() {
        assert_eq!(of_tables(V4, V6).as_deref(), Some("eth0"), "the least metric, and no rejecting route");
        assert_eq!(of_tables("", V6).as_deref(), Some("eth2"), "IPv6 alone");
        assert_eq!(of_tables("", ""), None);
        let without =
            V4.lines().filter(|line| !line.contains("\t00000000\t0101")).collect::<Vec<_>>().join("\n");
        assert_eq!(of_tables(&without, ""), None, "a network is no default route");
        assert_eq!(of_tables("broken\nx 00000000 y\n", "0 00 short\n"), None);
    }

    #[test]
    fn other_names_stay() {
        assert_eq!(interface("eth7").unwrap(), "eth7");
    }
}
