// SPDX-License-Identifier: Apache-2.0
//! Socket options that a guest may set and read. What is on no list is refused: options that need rights of
//! the engine, or that let packets go round it, are not the guest's.

use super::stream::EngineStream;
use crate::descriptor::OptionName;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Options that are set and read.
const SETTABLE: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// Options that are read only.
const READABLE: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    (libc::SOL_SOCKET, libc::SO_COOKIE),
    (libc::IPPROTO_TCP, libc::TCP_INFO),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_IP, libc::IP_MTU),
];

/// Level and name as the kernel takes them, if they are on one of the lists.
fn permitted(option: OptionName, lists: &[&[(i32, i32)]]) -> Result<(i32, i32), Errno> {
    let level = i32::try_from(option.level).map_err(|_| Errno::NOPROTOOPT)?;
    let name = i32::try_from(option.name).map_err(|_| Errno::NOPROTOOPT)?;
    let is_listed = lists.iter().any(|list| list.contains(&(level, name)));
    if is_listed { Ok((level, name)) } else { Err(Errno::NOPROTOOPT) }
}

impl EngineStream {
    /// Sets an option of the kernel's socket.
    pub(super) fn set_option(&self, option: OptionName) -> Result<(), Errno> {
        let (level, name) = permitted(option, &[SETTABLE])?;
        let socket = self.socket.as_ref().ok_or(Errno::INVAL)?;
        let mut value = [0; 256];
        let value = value.get_mut(..usize::from(option.length)).ok_or(Errno::INVAL)?;
        self.slot().ok_or(Errno::IO)?.scratch(value);
        crate::sys::set_option(socket.as_fd(), level, name, value)?;
        match &self.twin {
            Some(twin) if level != libc::IPPROTO_IPV6 => {
                crate::sys::set_option(twin.as_fd(), level, name, value)
            }
            _ => Ok(()),
        }
    }

    /// Reads an option of the kernel's socket into the slot's scratch area; returns its bytes.
    pub(super) fn option(&self, option: OptionName) -> Result<usize, Errno> {
        let (level, name) = permitted(option, &[SETTABLE, READABLE])?;
        let socket = self.socket.as_ref().ok_or(Errno::INVAL)?;
        let mut value = [0; 256];
        let room = value.get_mut(..usize::from(option.length)).ok_or(Errno::INVAL)?;
        let length = crate::sys::option(socket.as_fd(), level, name, room)?;
        self.slot().ok_or(Errno::IO)?.set_scratch(value.get(..length).unwrap_or_default());
        Ok(length)
    }
}
