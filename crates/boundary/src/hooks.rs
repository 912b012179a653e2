// SPDX-License-Identifier: Apache-2.0
//! The programs of a guest's control group (`ebpf/guest.bpf.c`) and their tables.

use crate::error::{BoundaryError, system};
use crate::relay::RelayPorts;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, CgroupSockAddr, SockOps};
use aya::{Ebpf, EbpfLoader};
use rustix::io::Errno;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The object, for the loader in whole words.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/guest.o"));

/// Programs at hooks of addresses.
const PROGRAMS: [&str; 8] = [
    "guest_connect4",
    "guest_connect6",
    "guest_getpeername4",
    "guest_getpeername6",
    "guest_sendmsg4",
    "guest_sendmsg6",
    "guest_recvmsg4",
    "guest_recvmsg6",
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
    /// Datagrams that were relayed to their destination.
    pub relayed_datagrams: u64,
    /// Relayed connections that were reset, since there were [`crate::relay::RELAYED_MOST`] at that time.
    pub reset_relays: u64,
}

/// Bytes of a destination in the programs' tables.
const DESTINATION_BYTES: usize = 32;

/// Destinations of connects that were led to the relay.
#[derive(Debug)]
pub struct Destinations {
    by_port: HashMap<MapData, u32, [u8; DESTINATION_BYTES]>,
}

/// A destination, and the process that wants to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where to.
    pub to: SocketAddr,
    /// The process; 0: the kernel does not tell the programs (before 6.10).
    pub process: u32,
}

/// The key of a local port of the guest's namespace.
fn port_key(client: SocketAddr) -> u32 {
    u32::from(client.port()) | u32::from(client.is_ipv6()) << 16
}

impl Destinations {
    /// The destination of the connection from a local port of the guest's namespace; taken once.
    pub fn take(&mut self, client: SocketAddr) -> Option<Destination> {
        let key = port_key(client);
        let found = self.by_port.get(&key, 0).ok()?;
        let _ = self.by_port.remove(&key);
        destination(&found)
    }
}

/// Destinations of datagrams that were led to the relay, and the processes that sent them.
pub struct DatagramDestinations {
    by_number: Array<MapData, [u8; DESTINATION_BYTES]>,
    process_by_port: HashMap<MapData, u32, u32>,
}

impl DatagramDestinations {
    /// The destination behind the loopback address that a datagram came to; `None`: it is none of the
    /// relay's, or its number is free.
    pub fn behind(&self, address: IpAddr) -> Option<SocketAddr> {
        let found = self.by_number.get(&number(address)?, 0).ok()?;
        destination(&found).map(|found| found.to).filter(|to| to.port() != 0)
    }

    /// The process that sends from a local port of the guest's namespace; 0: not known.
    pub fn process(&self, client: SocketAddr) -> u32 {
        self.process_by_port.get(&port_key(client), 0).unwrap_or(0)
    }
}

/// The number in a loopback address of datagrams.
fn number(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [127, 64, high, low] => Some(u32::from(u16::from_be_bytes([high, low]))),
            _ => None,
        },
        IpAddr::V6(address) => {
            let [.., low] = address.segments();
            (u128::from(address) == u128::from(DATAGRAMS_V6) | u128::from(low)).then_some(low.into())
        }
    }
}

/// The loopback addresses of IPv6 that stand for destinations of datagrams: this prefix of 112 bits.
pub(crate) const DATAGRAMS_V6: Ipv6Addr = Ipv6Addr::new(0xFD62, 0x6172, 0x7469, 0x7A61, 0x6E00, 0, 0, 0);

/// A destination as the programs write it: address and port in network order, then family and process.
fn destination(words: &[u8; DESTINATION_BYTES]) -> Option<Destination> {
    let address = <[u8; 16]>::try_from(words.get(..16)?).ok()?;
    let port = u16::from_be_bytes(<[u8; 2]>::try_from(words.get(16..18)?).ok()?);
    let process = u32::from_ne_bytes(<[u8; 4]>::try_from(words.get(24..28)?).ok()?);
    Some(Destination {
        to: SocketAddr::new(IpAddr::V6(Ipv6Addr::from(address)).to_canonical(), port),
        process,
    })
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
        // Kernels before 6.10 do not tell these programs which process calls.
        Hooks::load_with(group, true).or_else(|_| Hooks::load_with(group, false))
    }

    fn load_with(group: &Path, knows_processes: bool) -> Result<Hooks, BoundaryError> {
        let told = u32::from(knows_processes);
        let loaded = EbpfLoader::new().override_global("knows_processes", &told, true).load(OBJECT);
        let mut bpf = loaded.map_err(failed("making tables"))?;
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
        let program: &mut CgroupSkb = of(&mut bpf, "guest_egress")?;
        program.load().map_err(failed("guest_egress"))?;
        let egress = CgroupSkbAttachType::Egress;
        program.attach(&directory, egress, CgroupAttachMode::Single).map_err(failed("guest_egress"))?;
        Ok(Hooks { bpf })
    }

    /// Leads connects to the relay's ports.
    pub(crate) fn redirect_to(&mut self, ports: RelayPorts) -> Result<(), BoundaryError> {
        let map = self.bpf.map_mut("relay").ok_or_else(|| missing("relay"))?;
        let mut relay: Array<_, u32> = Array::try_from(map).map_err(failed("relay"))?;
        for (index, port) in (0..).zip([ports.v4, ports.v6, ports.datagrams_v4, ports.datagrams_v6]) {
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

    /// The tables of destinations of datagrams, for the relay.
    pub(crate) fn datagram_destinations(&mut self) -> Result<DatagramDestinations, BoundaryError> {
        let map = self.bpf.take_map("by_number").ok_or_else(|| missing("by_number"))?;
        let by_number = Array::try_from(map).map_err(failed("by_number"))?;
        let map = self.bpf.take_map("process_by_port").ok_or_else(|| missing("process_by_port"))?;
        let process_by_port = HashMap::try_from(map).map_err(failed("process_by_port"))?;
        Ok(DatagramDestinations { by_number, process_by_port })
    }

    /// The counters.
    pub(crate) fn counts(&self) -> BoundaryCounts {
        let counters = self.bpf.map("counters").and_then(|map| Array::<_, u64>::try_from(map).ok());
        let of = |index| counters.as_ref().and_then(|counters| counters.get(&index, 0).ok()).unwrap_or(0);
        let (relayed, refused_connects, refused_datagrams) = (of(0), of(1), of(2));
        BoundaryCounts { relayed, refused_connects, refused_datagrams, ..BoundaryCounts::default() }
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
        let mut words = [0; DESTINATION_BYTES];
        words[10..18].copy_from_slice(&[255, 255, 192, 0, 2, 7, 0x1F, 0x90]);
        words[24..28].copy_from_slice(&7_u32.to_ne_bytes());
        let expected = Destination { to: "192.0.2.7:8080".parse().unwrap(), process: 7 };
        assert_eq!(destination(&words), Some(expected));
        words[..12].copy_from_slice(&[0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
        words[12..16].copy_from_slice(&[0, 0, 0, 9]);
        assert_eq!(destination(&words).map(|found| found.to), Some("[2001:db8::9]:8080".parse().unwrap()));
    }

    #[test]
    fn addresses_of_datagrams_have_a_number() {
        for (address, expected) in [
            ("127.64.0.0", Some(0)),
            ("127.64.1.2", Some(258)),
            ("127.65.1.2", None),
            ("127.0.0.1", None),
            ("fd62:6172:7469:7a61:6e00::", Some(0)),
            ("fd62:6172:7469:7a61:6e00::102", Some(258)),
            ("fd62:6172:7469:7a61:6e00::1:102", None),
            ("::1", None),
        ] {
            assert_eq!(number(address.parse().unwrap()), expected, "{address}");
        }
    }
}
