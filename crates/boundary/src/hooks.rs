// SPDX-License-Identifier: Apache-2.0
//! The programs of a guest's control group (`ebpf/guest.bpf.c`) and their tables.

use crate::error::{BoundaryError, system};
use crate::relay::RelayPorts;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::{CgroupAttachMode, CgroupSockAddr, SockOps};
use aya::{Ebpf, EbpfLoader};
use rustix::io::Errno;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The object, for the loader in whole words.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/guest.o"));

/// Programs at hooks of addresses.
const PROGRAMS: [&str; 6] = [
    "guest_connect4",
    "guest_connect6",
    "guest_getpeername4",
    "guest_getpeername6",
    "guest_sendmsg4",
    "guest_sendmsg6",
];

/// Folder of all guests' control groups.
const FOLDER: &str = "bartizan";

/// Attempts of programs that do not use the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundaryCounts {
    /// Connects that were led to the relay.
    pub relayed: u64,
    /// Connects that were refused: of datagram sockets, or without a relay.
    pub refused_connects: u64,
    /// Datagrams that were refused.
    pub refused_datagrams: u64,
    /// Relayed connections that were reset, since there were [`crate::relay::RELAYED_MOST`] at that time.
    pub reset_relays: u64,
}

/// Destinations of connects that were led to the relay.
#[derive(Debug)]
pub struct Destinations {
    by_port: HashMap<MapData, u32, [u8; 24]>,
}

impl Destinations {
    /// The destination of the connection from a local port of the guest's namespace; taken once.
    pub fn take(&mut self, client: SocketAddr) -> Option<SocketAddr> {
        let key = u32::from(client.port()) | u32::from(client.is_ipv6()) << 16;
        let found = self.by_port.get(&key, 0).ok()?;
        let _ = self.by_port.remove(&key);
        destination(&found)
    }
}

/// A destination as the programs write it: address and port in network order.
fn destination(words: &[u8; 24]) -> Option<SocketAddr> {
    let address = <[u8; 16]>::try_from(words.get(..16)?).ok()?;
    let port = u16::from_be_bytes(<[u8; 2]>::try_from(words.get(16..18)?).ok()?);
    Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(address)).to_canonical(), port))
}

/// The loaded and attached programs; they are detached when this is dropped.
#[derive(Debug)]
pub(crate) struct Hooks {
    bpf: Ebpf,
}

fn failed<E: std::error::Error>(step: &'static str) -> impl FnOnce(E) -> BoundaryError {
    move |error| {
        let mut problem = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            problem = format!("{problem}: {source}");
            next = source.source();
        }
        BoundaryError::Programs { step, problem }
    }
}

impl Hooks {
    /// Loads the programs, and attaches them to a control group.
    pub(crate) fn load(group: &Path) -> Result<Hooks, BoundaryError> {
        let mut bpf = EbpfLoader::new().load(OBJECT).map_err(failed("making tables"))?;
        let directory = fs::File::open(group)
            .map_err(|source| BoundaryError::System { what: "open its control group", source })?;
        for name in PROGRAMS {
            let program: &mut CgroupSockAddr = of(&mut bpf, name)?;
            program.load().map_err(failed(name))?;
            program.attach(&directory, CgroupAttachMode::Single).map_err(failed(name))?;
        }
        let program: &mut SockOps = of(&mut bpf, "guest_sockops")?;
        program.load().map_err(failed("guest_sockops"))?;
        program.attach(&directory, CgroupAttachMode::Single).map_err(failed("guest_sockops"))?;
        Ok(Hooks { bpf })
    }

    /// Leads connects to the relay's ports.
    pub(crate) fn lead_to(&mut self, ports: RelayPorts) -> Result<(), BoundaryError> {
        let map = self.bpf.map_mut("relay").ok_or_else(|| missing("relay"))?;
        let mut relay: Array<_, u32> = Array::try_from(map).map_err(failed("relay"))?;
        for (index, port) in [(0, ports.v4), (1, ports.v6)] {
            // In network order, in the lower half of the word.
            let word = u32::from(u16::from_ne_bytes(port.to_be_bytes()));
            relay.set(index, word, 0).map_err(failed("relay"))?;
        }
        Ok(())
    }

    /// The table of destinations, for the relay.
    pub(crate) fn destinations(&mut self) -> Result<Destinations, BoundaryError> {
        let map = self.bpf.take_map("by_port").ok_or_else(|| missing("by_port"))?;
        Ok(Destinations { by_port: HashMap::try_from(map).map_err(failed("by_port"))? })
    }

    /// The counters.
    pub(crate) fn counts(&self) -> BoundaryCounts {
        let counters = self.bpf.map("counters").and_then(|map| Array::<_, u64>::try_from(map).ok());
        let of = |index| counters.as_ref().and_then(|counters| counters.get(&index, 0).ok()).unwrap_or(0);
        BoundaryCounts { relayed: of(0), refused_connects: of(1), refused_datagrams: of(2), reset_relays: 0 }
    }
}

fn missing(step: &'static str) -> BoundaryError {
    BoundaryError::Programs { step, problem: "the object lacks it".to_owned() }
}

/// A program of the object.
fn of<'b, P>(bpf: &'b mut Ebpf, name: &'static str) -> Result<&'b mut P, BoundaryError>
where
    &'b mut P: TryFrom<&'b mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    bpf.program_mut(name).ok_or_else(|| missing(name))?.try_into().map_err(failed(name))
}

/// The mount of control groups of version 2, and this process's group in it.
fn mount() -> Result<(PathBuf, PathBuf), BoundaryError> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (at, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    });
    let root = root.ok_or(BoundaryError::NoControlGroups)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = root.join(own);
    Ok((root, own))
}

/// Makes the control group of a guest's programs. Returns it, and the group to return to.
pub(crate) fn make_group(name: &str) -> Result<(PathBuf, PathBuf), BoundaryError> {
    let (root, outside) = mount()?;
    let group = root.join(FOLDER).join(format!("{name}-{}", std::process::id()));
    let made = fs::create_dir_all(&group);
    made.map_err(|source| BoundaryError::System { what: "make its control group", source })?;
    Ok((group, outside))
}

/// Moves this process into a control group.
pub(crate) fn join(group: &Path) -> Result<(), BoundaryError> {
    fs::write(group.join("cgroup.procs"), "0").map_err(|error| {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        system("enter its control group")(errno)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_as_the_programs_write_them() {
        let mut words = [0; 24];
        words[10..18].copy_from_slice(&[255, 255, 192, 0, 2, 7, 0x1F, 0x90]);
        assert_eq!(destination(&words), Some("192.0.2.7:8080".parse().unwrap()));
        words[..12].copy_from_slice(&[0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
        words[12..16].copy_from_slice(&[0, 0, 0, 9]);
        assert_eq!(destination(&words), Some("[2001:db8::9]:8080".parse().unwrap()));
    }
}
