// SPDX-License-Identifier: Apache-2.0
//! What the kernel tells of an interface: name, state, MTU, and which XDP program is attached.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/rtnetlink.h` and `if_link.h`. Numbers are in the machine's own order. Not done:
//! lists of interfaces, messages without a question.

use crate::sys;
use std::io;

const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const ERROR: u16 = 2;
/// A request.
const REQUEST: u16 = 1;

const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;

/// What `IFLA_XDP_ATTACHED` says of a program that the driver runs.
const ATTACHED_NATIVE: u8 = 1;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub name: String,
    /// `IFF_*`.
    pub flags: u32,
    pub mtu: u32,
    /// Kind of a virtual interface (`veth`), empty of others.
    pub kind: String,
    /// Number of the XDP program that is attached, and whether the driver runs it.
    pub program: Option<(u32, bool)>,
}

impl Link {
    /// Asks for an interface of this network namespace. `ENODEV`: there is none.
    pub(crate) fn ask(index: u32) -> io::Result<Self> {
        let mut request = Vec::with_capacity(MESSAGE_HEADER + LINK_HEADER);
        request.extend(((MESSAGE_HEADER + LINK_HEADER) as u32).to_ne_bytes());
        request.extend(GET_LINK.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend([0; 8]); // sequence, port: nobody else asks by this socket
        request.extend([0; 4]); // family, type
        request.extend(index.to_ne_bytes());
        request.extend([0; 8]); // flags, change
        read(&sys::ask_netlink(&request)?)
    }

    /// Whether it is switched on.
    pub(crate) fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_ne_bytes)
}

/// Attributes one after the other: type and value. What is cut off ends them.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The highest two bits say how it is written, not what it is.
        Some((kind & 0x3fff, value))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn program(value: &[u8]) -> Option<(u32, bool)> {
    let find = |wanted: &[u16]| {
        attributes(value).find(|(kind, _)| wanted.contains(kind)).and_then(|(_, value)| u32_at(value, 0))
    };
    let attached = attributes(value).find(|(kind, _)| *kind == IFLA_XDP_ATTACHED)?.1.first()?;
    // Several are told of by their modes, one by its number alone.
    let id = find(&[IFLA_XDP_PROG_ID]).or_else(|| find(&[IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID]))?;
    (id != 0).then_some((id, *attached == ATTACHED_NATIVE))
}

fn read(answer: &[u8]) -> io::Result<Link> {
    let odd =
        || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about an interface is cut off");
    match u16_at(answer, 4).ok_or_else(odd)? {
        ERROR => {
            let code = u32_at(answer, MESSAGE_HEADER).ok_or_else(odd)? as i32;
            return Err(io::Error::from_raw_os_error(code.saturating_neg()));
        }
        NEW_LINK => {}
        _ => return Err(odd()),
    }
    let mut link = Link { flags: u32_at(answer, MESSAGE_HEADER + 8).ok_or_else(odd)?, ..Link::default() };
    for (kind, value) in attributes(answer.get(MESSAGE_HEADER + LINK_HEADER..).ok_or_else(odd)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0).ok_or_else(odd)?,
            IFLA_LINKINFO => {
                if let Some((_, kind)) = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND) {
                    link.kind = text(kind);
                }
            }
            IFLA_XDP => link.program = program(value),
            _ => {}
        }
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer() -> Vec<u8> {
        let mut bytes = [0; MESSAGE_HEADER + LINK_HEADER].to_vec();
        bytes[4..6].copy_from_slice(&NEW_LINK.to_ne_bytes());
        bytes[MESSAGE_HEADER + 8..][..4].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
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
        let link = Link::ask(1).unwrap();
        assert_eq!((link.name.as_str(), link.program), ("lo", None));
        assert_eq!(Link::ask(0x7fff_fff0).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
