// SPDX-License-Identifier: Apache-2.0
//! Looks an interface up before a port is opened on it: its existence, state and kind.

use crate::error::OpenError;
use crate::port::LinkLayer;
use crate::sys;
use std::os::fd::AsFd;

/// A network interface at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The interface's index.
    pub index: u32,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// The interface's link-layer address.
    pub mac: [u8; 6],
    /// The first header of its frames.
    pub link_layer: LinkLayer,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

/// Whether an interface can carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It can carry packets.
    Up,
    /// It was switched off.
    Down,
    /// It is on, but its other end is missing.
    NoCarrier,
    /// It no longer exists in this network namespace; one of the same name is another one.
    Gone,
}

impl Interface {
    /// Whether it can carry packets now.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn state(&self) -> std::io::Result<LinkState> {
        let Some(name) = sys::interface_name(self.index) else { return Ok(LinkState::Gone) };
        let flags = sys::interface_flags(sys::request_socket()?.as_fd(), &name)?;
        Ok(match (flags & libc::IFF_UP, flags & libc::IFF_RUNNING) {
            (0, _) => LinkState::Down,
            (_, 0) => LinkState::NoCarrier,
            _ => LinkState::Up,
        })
    }

    /// The present MTU.
    ///
    /// # Errors
    /// It is gone, or the system does not report it.
    pub fn mtu_now(&self) -> std::io::Result<u32> {
        let gone = || std::io::Error::from_raw_os_error(libc::ENODEV);
        let name = sys::interface_name(self.index).ok_or_else(gone)?;
        sys::interface_mtu(sys::request_socket()?.as_fd(), &name)
    }

    /// Looks `name` up in this process's network namespace.
    ///
    /// # Errors
    /// No such interface (with names that look like it), it is down, or its frames are of an unsupported
    /// kind.
    pub fn lookup(name: &str) -> Result<Self, OpenError> {
        let index = sys::interface_index(name).map_err(|_| OpenError::NoSuchInterface {
            name: name.to_owned(),
            near: near(name, sys::interface_names()),
        })?;
        let ask = |what| move |source| OpenError::system(name, what, source);
        let socket = sys::request_socket().map_err(ask("making a socket"))?;
        let fd = socket.as_fd();
        let (hardware, mac) = sys::interface_hardware(fd, name).map_err(ask("reading the link type"))?;
        let link_layer = match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkLayer::Ethernet,
            libc::ARPHRD_NONE => LinkLayer::RawIp,
            _ => return Err(OpenError::LinkType { name: name.to_owned(), hardware }),
        };
        if sys::interface_flags(fd, name).map_err(ask("reading the flags"))? & libc::IFF_UP == 0 {
            return Err(OpenError::Down { name: name.to_owned() });
        }
        let mtu = sys::interface_mtu(fd, name).map_err(ask("reading the MTU"))?;
        let loopback = hardware == libc::ARPHRD_LOOPBACK;
        Ok(Self { name: name.to_owned(), index, mtu, mac, link_layer, loopback })
    }

    /// Whether the interface is a port of a kernel bridge, if sysfs shows this network namespace.
    #[must_use]
    pub fn is_bridge_port(&self) -> bool {
        let folder = std::path::Path::new("/sys/class/net").join(&self.name);
        let same = std::fs::read_to_string(folder.join("ifindex"))
            .is_ok_and(|text| text.trim().parse() == Ok(self.index));
        same && folder.join("brport").exists()
    }
}

/// Names that may have been meant, nearest first, at most three.
fn near(name: &str, names: Vec<String>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let mut scored: Vec<(usize, String)> = names
        .into_iter()
        .map(|n| (strsim::damerau_levenshtein(&wanted, &n.to_lowercase()), n))
        .filter(|(distance, n)| *distance <= 1 + n.len().min(name.len()) / 3)
        .collect();
    scored.sort();
    scored.into_iter().take(3).map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_nearest_first() {
        let names = ["lo", "eth0", "eth1", "wlp3s0"].map(String::from).to_vec();
        assert_eq!(near("eht0", names.clone()), ["eth0", "eth1"]);
        assert_eq!(near("ETH1", names.clone()), ["eth1", "eth0"]);
        assert!(near("bond7", names).is_empty());
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = Interface::lookup("no-such-if0").unwrap_err();
        assert!(matches!(error, OpenError::NoSuchInterface { .. }), "{error}");
        assert!(matches!(
            Interface::lookup("a-name-longer-than-the-kernel-knows"),
            Err(OpenError::NoSuchInterface { .. })
        ));
        assert!(matches!(Interface::lookup("nul\0byte"), Err(OpenError::NoSuchInterface { .. })));
    }
}
