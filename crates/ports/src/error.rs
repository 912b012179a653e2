// SPDX-License-Identifier: Apache-2.0
//! Errors of ports, in messages that say what to do.

use crate::timestamps::NoStamps;
use std::io;

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No interface of that name.
    #[error("interface `{name}` does not exist in this network namespace{}; `ip link` lists all", near_text(.near))]
    NoSuchInterface {
        /// The interface name given.
        name: String,
        /// Similar names that exist, nearest first.
        near: Vec<String>,
    },
    /// Packet sockets need a right that this process does not have.
    #[error(
        "no permission to open a packet socket on `{name}` ({what}): the right {} is missing; run as root, or give the program \
         the rights with `setcap cap_net_raw,cap_net_admin=ep PROGRAM`; in a container they have to be given to it",
        if *.what == OPENING { "CAP_NET_RAW" } else { "CAP_NET_ADMIN" }
    )]
    NoPermission {
        /// The interface.
        name: String,
        /// The step that is forbidden.
        what: &'static str,
    },
    /// The interface is down.
    #[error("interface `{name}` is down: nothing can arrive; `ip link set dev {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// The link type of the interface is not supported.
    #[error(
        "interface `{name}` has link type {hardware} (ARPHRD), which is not supported; Ethernet, loopback and TUN interfaces are"
    )]
    LinkType {
        /// The interface.
        name: String,
        /// Its `ARPHRD_*` number.
        hardware: u16,
    },
    /// The MTU is above the supported maximum.
    #[error(
        "interface `{name}` has MTU {mtu}, supported inline is up to {max} (frames of 65,535 bytes with tags); `ip link set dev {name} mtu {max}`"
    )]
    MtuTooLarge {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The largest supported one.
        max: u32,
    },
    /// The MTUs of the two sides of a pair differ.
    #[error(
        "`{a}` has MTU {mtu_a} and `{b}` has {mtu_b}: packets over {} bytes would be lost between them; \
         `ip link set dev {} mtu {}` (or allow it in the port options)",
        .mtu_a.min(.mtu_b), if mtu_a < mtu_b { .b } else { .a }, .mtu_a.min(.mtu_b)
    )]
    MtuMismatch {
        /// One interface.
        a: String,
        /// Its MTU.
        mtu_a: u32,
        /// The other interface.
        b: String,
        /// Its MTU.
        mtu_b: u32,
    },
    /// Both sides of a pair are the same interface.
    #[error("`{name}` cannot be both sides of an inline pair: name two interfaces")]
    SameInterface {
        /// The interface.
        name: String,
    },
    /// The kernel forwards the interface's packets too.
    #[error(
        "interface `{name}` is a port of a kernel bridge, so its packets would pass twice, once uninspected; \
         `ip link set dev {name} nomaster`"
    )]
    BridgePort {
        /// The interface.
        name: String,
    },
    /// The kernel refused the ring's memory.
    #[error(
        "no memory for the rings of `{name}` ({mebibytes} MiB): {source}; make the ring smaller (option `frames` or `blocks`)"
    )]
    RingMemory {
        /// The interface.
        name: String,
        /// The requested size.
        mebibytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused the memory of a socket's filter.
    #[error(
        "no memory for the packet filter and snap length of `{name}` ({steps} steps): {source}; raise its bound with `sysctl -w net.core.optmem_max=131072`, or \
         make the filter shorter"
    )]
    FilterMemory {
        /// The interface.
        name: String,
        /// Steps of the program.
        steps: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An option has an invalid value.
    #[error("option `{option}` of port `{name}`: {problem}")]
    Option {
        /// The interface.
        name: String,
        /// The option.
        option: &'static str,
        /// The fault and its correction.
        problem: String,
    },
    /// Timestamps of the device were required, and the device gives none.
    #[error(
        "interface `{name}` gives no hardware timestamps: {why}; `ethtool -T {name}` lists its capabilities; give `timestamps: auto` (hardware where available) or `software`, or watch another interface"
    )]
    NoHardwareTimestamps {
        /// The interface.
        name: String,
        /// The reason.
        why: NoStamps,
    },
    /// Any other refusal of the kernel.
    #[error("cannot open `{name}`: {what} failed: {source}")]
    System {
        /// The interface.
        name: String,
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    format!(" (did you mean {}?)", quoted.join(" or "))
}

/// The step that takes `CAP_NET_RAW`.
pub(crate) const OPENING: &str = "opening a packet socket";

impl OpenError {
    /// The error of a failed step: lacking permission and vanished interfaces have their own.
    pub(crate) fn system(name: &str, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::NoPermission { name: name.to_owned(), what },
            _ => OpenError::System { name: name.to_owned(), what, source },
        }
    }
}

/// A running port failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface was removed or moved to another network namespace.
    #[error(
        "interface `{name}` is gone (removed or moved to another namespace): the port must be opened again"
    )]
    Gone {
        /// The interface.
        name: String,
    },
    /// A batch was not returned.
    #[error("frames of port `{name}` are still held by another batch: clear it before the next call")]
    BatchHeld {
        /// The port.
        name: String,
    },
    /// Any other refusal of the kernel.
    #[error("port `{name}`: {what} failed: {source}")]
    System {
        /// The port.
        name: String,
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_remedy() {
        let mismatch =
            OpenError::MtuMismatch { a: "lan".into(), mtu_a: 1500, b: "wan".into(), mtu_b: 9000 }.to_string();
        assert!(mismatch.contains("ip link set dev wan mtu 1500"), "{mismatch}");
        let missing =
            OpenError::NoSuchInterface { name: "eht0".into(), near: vec!["eth0".into()] }.to_string();
        assert!(missing.contains("did you mean `eth0`?"), "{missing}");
        let refused = OpenError::system("eth0", "x", io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(refused.contains("setcap cap_net_raw"), "{refused}");
    }
}
