// SPDX-License-Identifier: Apache-2.0
//! The kernel's description of an interface: name, state, MTU, and the attached XDP program.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/rtnetlink.h` and `if_link.h`. Numbers are in the machine's
//! own order. Not done: lists of interfaces, messages without a question.

use crate::netlink::{self, attributes, cut_off, find, u32_at};
use crate::sys::Netlink;
use std::io;

const GET_LINK: u16 = 18;
/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;

/// The value of `IFLA_XDP_ATTACHED` for a program that the driver runs.
const ATTACHED_NATIVE: u8 = 1;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpInterface {
    pub name: String,
    /// `IFF_*`.
    pub flags: u32,
    pub mtu: u32,
    /// Kind of a virtual interface (`veth`), empty for others.
    pub kind: String,
    /// Number of the XDP program that is attached, and whether the driver runs it.
    pub program: Option<(u32, bool)>,
}

impl XdpInterface {
    /// Reads an interface of this network namespace. `ENODEV`: there is none.
    pub(crate) fn query(index: u32) -> io::Result<Self> {
        let mut question = [0; HEADER];
        if let Some(place) = question.get_mut(4..).and_then(<[u8]>::first_chunk_mut) {
            *place = index.to_ne_bytes();
        }
        read(&netlink::query(Netlink::Route, GET_LINK, &question)?)
    }

    /// Whether it is switched on.
    pub(crate) fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn program(value: &[u8]) -> Option<(u32, bool)> {
    let attached = find(value, IFLA_XDP_ATTACHED)?.first()?;
    // The kernel reports one program by its number alone, several by their modes.
    let ids = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID];
    let id = ids.iter().find_map(|kind| u32_at(find(value, *kind)?, 0))?;
    (id != 0).then_some((id, *attached == ATTACHED_NATIVE))
}

fn read(answer: &[u8]) -> io::Result<XdpInterface> {
    let mut link = XdpInterface { flags: u32_at(answer, 8).ok_or_else(cut_off)?, ..XdpInterface::default() };
    for (kind, value) in attributes(answer.get(HEADER..).ok_or_else(cut_off)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0).ok_or_else(cut_off)?,
            IFLA_LINKINFO => link.kind = find(value, IFLA_INFO_KIND).map(text).unwrap_or_default(),
            IFLA_XDP => link.program = program(value),
            _ => {}
        }
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute;

    fn answer() -> Vec<u8> {
        let mut bytes = [0; HEADER].to_vec();
        bytes[8..12].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
        bytes.extend(attribute(IFLA_IFNAME, b"lan\0"));
        bytes.extend(attribute(IFLA_MTU, &9000_u32.to_ne_bytes()));
        bytes.extend(attribute(IFLA_LINKINFO | 0x8000, &attribute(IFLA_INFO_KIND, b"veth\0")));
        let xdp = [attribute(IFLA_XDP_ATTACHED, &[1]), attribute(IFLA_XDP_PROG_ID, &7_u32.to_ne_bytes())];
        bytes.extend(attribute(IFLA_XDP, &xdp.concat()));
        bytes
    }

    #[test]
    fn an_answer_is_read_and_one_that_is_cut_off_is_no_harm() {
        let link = read(&answer()).unwrap();
        assert_eq!((link.name.as_str(), link.mtu, link.kind.as_str()), ("lan", 9000, "veth"));
        assert!(link.is_up());
        assert_eq!(link.program, Some((7, true)));
        for length in 0..answer().len() {
            let _ = read(&answer()[..length]);
        }
    }

    #[test]
    fn two_programs_and_none() {
        let drv = attribute(IFLA_XDP_DRV_PROG_ID, &5_u32.to_ne_bytes());
        assert_eq!(program(&[attribute(IFLA_XDP_ATTACHED, &[4]), drv].concat()), Some((5, false)));
        assert_eq!(program(&attribute(IFLA_XDP_ATTACHED, &[0])), None);
    }

    #[test]
    fn loopback_is_known_and_a_number_without_interface_is_not() {
        let link = XdpInterface::query(1).unwrap();
        assert_eq!((link.name.as_str(), link.program), ("lo", None));
        assert_eq!(XdpInterface::query(0x7fff_fff0).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
