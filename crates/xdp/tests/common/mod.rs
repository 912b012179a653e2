// SPDX-License-Identifier: Apache-2.0
//! A network namespace of its own for a test, a link with two ends in it, and sockets at the ends.
//!
//! The namespace belongs to the test's thread alone: it has no name, and it ends with the thread and its
//! sockets, however the test ends. So no state is left.
#![allow(dead_code)]

use bartizan_base::LinkId;
use bartizan_packet::tables::FlowEntry;
use bartizan_packet::{DecoderConfig, TunnelPorts};
use bartizan_testkit::packet::{ACK, Datagram, End, Ip, PSH, Packet, Segment, TCP, UDP, tcp, udp};
use bartizan_xdp::{Key, ModeChoice, PortSetup, PortSide, Tables, XdpOptions, XdpProgram};
use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Longest time that one test may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The return value of a program.
pub const DROP: u32 = 1;
/// The frame goes up.
pub const PASS: u32 = 2;
/// The frame leaves by another port.
pub const REDIRECT: u32 = 4;

#[allow(unsafe_code)]
fn is_root() -> bool {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[allow(unsafe_code)]
fn enter_new_namespace() -> bool {
    // SAFETY: no pointers; changes the network namespace of the calling thread only.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Runs `test` in a thread without root's rights.
#[allow(unsafe_code)]
pub fn without_rights(test: impl FnOnce() + Send + 'static) {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let thread = std::thread::spawn(move || {
        let (header, none) = ([VERSION, 0], [0_u32; 6]);
        // SAFETY: the header is two and the rights are six numbers of 32 bits, which live through the call;
        // the kernel only reads the latter, and the former's version is one that it knows. The rights are
        // those of this thread alone.
        let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `test` in a thread with an empty network namespace. Prints a line and returns if that is impossible.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !is_root() {
        eprintln!("needs root: not run (network namespaces and BPF programs)");
        return;
    }
    for program in ["ip", "ethtool"] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("needs `{program}`: not run (scripts/needs.sh test)");
            return;
        }
    }
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        if enter_new_namespace() {
            // No router solicitations among the frames that are counted.
            for which in ["all", "default"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
            ip("link set dev lo up");
            test();
        } else {
            eprintln!("needs network namespaces: not run");
        }
        let _ = done.send(());
    });
    match wait.recv_timeout(LIMIT) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test took more than {LIMIT:?}"),
    }
}

/// Gives this thread mounts of its own, which end with it and its children.
#[allow(unsafe_code)]
fn enter_own_mounts() {
    // SAFETY: no pointers; changes what the calling thread sees only.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE);
}

#[allow(unsafe_code)]
fn mount(what: &CStr, at: &CStr, kind: &CStr, flags: libc::c_ulong) {
    // SAFETY: three texts that end with a zero and live through the call, and no data.
    let done = unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    assert_eq!(done, 0, "{at:?}: {}", std::io::Error::last_os_error());
}

/// [`in_namespace`], with a bpf file system of its own: its pins end with the thread, however the test
/// ends.
pub fn with_bpf_file_system(test: impl FnOnce() + Send + 'static) {
    in_namespace(|| {
        enter_own_mounts();
        mount(c"bpf", c"/sys/fs/bpf", c"bpf", 0);
        test();
    });
}

/// Hides the bpf file system from this thread.
pub fn without_bpf_file_system() {
    enter_own_mounts();
    mount(c"none", c"/sys/fs/bpf", c"tmpfs", 0);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("it can be run");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `ip ARGUMENTS`, which must succeed.
pub fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs `ethtool ARGUMENTS`, which must succeed.
pub fn ethtool(arguments: &str) {
    run("ethtool", arguments);
}

/// A TAP device with one queue, which lives as long as the file is open. Its driver sends no frames in
/// several buffers.
#[allow(unsafe_code)]
pub fn tap(name: &str) -> std::fs::File {
    /// `TUNSETIFF`.
    const SET_INTERFACE: libc::Ioctl = 0x4004_54ca;
    let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: integers, bytes and a pointer; zeros are a value.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    ask.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    ask.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request reads and writes one `ifreq`, which lives through the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SET_INTERFACE, &raw mut ask) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Runs `test` while a process is being started that has a copy of all open descriptors, as another thread of
/// a program may do at any time.
#[allow(unsafe_code)]
pub fn while_a_process_starts(test: impl FnOnce()) {
    use std::io::{Read as _, Write as _};
    use std::os::unix::process::CommandExt as _;
    let (mut started, mut begin) = std::io::pipe().unwrap();
    let (mut wait, mut end) = std::io::pipe().unwrap();
    let mut command = Command::new("true");
    let pause = move || {
        begin.write_all(b"!")?;
        wait.read_exact(&mut [0])
    };
    // SAFETY: between fork and exec it writes and reads pipes, which any process may do then.
    unsafe { command.pre_exec(pause) };
    let child = std::thread::spawn(move || command.status());
    started.read_exact(&mut [0]).unwrap();
    test();
    end.write_all(b"!").unwrap();
    assert!(child.join().unwrap().unwrap().success());
}

/// Number of an interface.
#[allow(unsafe_code)]
pub fn number(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the name is NUL-terminated and lives through the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Two pairs: `lan` and `wan` are the ports of a link, `a` and `b` the connected hosts.
pub fn wires(mtu: u32) {
    for (port, end) in [("lan", "a"), ("wan", "b")] {
        plain_wire(port, end, mtu);
        ethtool(&format!("-K {port} tx off tso off gso off gro off rxvlan off"));
        // An end that polls: else it takes no redirected frames.
        ethtool(&format!("-K {end} tx off tso off gso off gro on txvlan off"));
    }
}

/// A pair with the kernel's default settings.
pub fn plain_wire(port: &str, end: &str, mtu: u32) {
    ip(&format!("link add {port} mtu {mtu} type veth peer name {end} mtu {mtu}"));
    for name in [port, end] {
        ip(&format!("link set dev {name} arp off up"));
    }
}

/// The link of the tests: its ports, in the order of their sides.
pub const LINK: LinkId = LinkId(0x0b1c);

/// A port of that link.
pub fn port(name: &str, side: PortSide, index: u8, pair: u8) -> PortSetup {
    PortSetup {
        ifindex: number(name),
        link: LINK,
        side,
        index,
        pair,
        vlans_in_key: true,
        drop_samples: None,
        early: None,
        watch: None,
    }
}

/// The setup of both ports, `lan` on the first side.
pub fn ports() -> [PortSetup; 2] {
    [port("lan", PortSide::First, 4, 9), port("wan", PortSide::Second, 9, 4)]
}

/// A program for so many flows.
pub fn program(flows: u32) -> XdpProgram {
    program_for(flows, 2)
}

/// A program for so many flows and workers.
pub fn program_for(flows: u32, workers: u32) -> XdpProgram {
    // All kinds of tunnels, also those that are not decoded as shipped.
    let shipped = DecoderConfig::default();
    let gtp = TunnelPorts { enabled: true, ..shipped.gtp };
    XdpProgram::load(&XdpOptions {
        flows,
        mode: ModeChoice::Auto,
        tunnels: DecoderConfig { gtp, ..shipped },
        workers,
        early: None,
        seed: 77,
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// A program on both ports of a new link.
pub fn level(flows: u32, mtu: u32) -> (XdpProgram, Arc<Tables>) {
    wires(mtu);
    let mut program = program(flows);
    let [lan, wan] = ports().map(|port| program.attach(&port).unwrap_or_else(|error| panic!("{error}")));
    assert!(!lan.enabled && wan.enabled);
    let tables = program.tables();
    (program, tables)
}

fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The key of a packet that arrives by the first port, from the description of a flow's entry.
pub fn key(protocol: u8, from: End, to: End, vlans: [u16; 3]) -> Key {
    let reversed = (number_of(from.0), from.1) > (number_of(to.0), to.1);
    let (low, high) = if reversed { (to, from) } else { (from, to) };
    let vlans = u64::from(vlans[0]) | u64::from(vlans[1]) << 12 | u64::from(vlans[2]) << 24;
    let entry = FlowEntry {
        low_address_high: (number_of(low.0) >> 64) as u64,
        low_address_low: number_of(low.0) as u64,
        high_address_high: (number_of(high.0) >> 64) as u64,
        high_address_low: number_of(high.0) as u64,
        low_port: low.1,
        high_port: high.1,
        link: LINK.0,
        protocol,
        key_flags: u8::from(from.0.is_ipv6()) | if reversed { 16 } else { 8 },
        vlans_low: vlans as u8,
        vlans: (vlans >> 8) as u32,
        // What the program cannot know; the tables leave it out.
        tenant: 0x7e57,
        ..FlowEntry::default()
    };
    let bytes = entry.write();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    std::array::from_fn(|_| words.next().unwrap())
}

/// Two endpoints, the first one the lower.
pub fn ends(v6: bool) -> [End; 2] {
    if v6 {
        [("fd00::1".parse().unwrap(), 4000), ("fd00::2".parse().unwrap(), 443)]
    } else {
        [("10.0.0.1".parse().unwrap(), 4000), ("10.0.0.2".parse().unwrap(), 443)]
    }
}

/// A plain packet from the first to the second endpoint.
pub fn plain(v6: bool, protocol: u8) -> Packet {
    let [low, high] = ends(v6);
    if protocol == TCP {
        tcp(low, high, (7, 8), (ACK | PSH) as u8, b"load of it")
    } else {
        udp(low, high, b"load of it")
    }
}

/// The segment of a packet, mutable.
pub fn segment(packet: &mut Packet) -> &mut Segment {
    match &mut packet.layer {
        bartizan_testkit::packet::Layer::Tcp(segment) => segment,
        _ => panic!("no segment"),
    }
}

/// The datagram of a packet, mutable.
pub fn datagram(packet: &mut Packet) -> &mut Datagram {
    match &mut packet.layer {
        bartizan_testkit::packet::Layer::Udp(datagram) => datagram,
        _ => panic!("no datagram"),
    }
}

/// Both versions of IP with both protocols.
pub const KINDS: [(bool, u8); 4] = [(false, TCP), (false, UDP), (true, TCP), (true, UDP)];

/// An IP header between the endpoints.
pub fn header(v6: bool, protocol: u8) -> Ip {
    let [low, high] = ends(v6);
    Ip::new(low.0, high.0, protocol)
}

/// A socket that sends and receives frames at an interface.
pub struct Wire(OwnedFd);

#[allow(unsafe_code)]
impl Wire {
    /// Opens a socket that does not receive its own frames.
    pub fn open(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made and nobody else holds it.
        let wire = Wire(unsafe { OwnedFd::from_raw_fd(fd) });
        let ignore: libc::c_int = 1;
        // SAFETY: pointer and length describe `ignore`, which lives through the call.
        let set = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const ignore).cast(),
                size_of_val(&ignore) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        // SAFETY: integers and bytes only; zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = number(interface) as i32;
        // SAFETY: pointer and length describe `address`, which lives through the call.
        let bound =
            unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) };
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        wire
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: pointer and length describe `frame`, which the kernel only reads.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// The next frame, if one comes within so many milliseconds. Frames that test ports are left out.
    pub fn next(&self, milliseconds: i32) -> Option<Vec<u8>> {
        loop {
            let frame = self.any(milliseconds)?;
            if frame.get(12..14) != Some(&[0x88, 0xb5]) {
                return Some(frame);
            }
        }
    }

    fn any(&self, milliseconds: i32) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives through the call.
        if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } <= 0 {
            return None;
        }
        let mut frame = vec![0; 70_000];
        // SAFETY: pointer and length describe `frame`; the kernel writes at most its length.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(length).expect("a frame"));
        Some(frame)
    }
}

/// Keeps the calling thread on one processor.
#[allow(unsafe_code)]
pub fn stay_on(processor: usize) {
    // SAFETY: a set of processors is numbers, of which zeros are a value; the calls read and write it, and it
    // lives through them.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The bytes that the bpf system call reads, and the rest of its structure.
#[repr(C)]
struct Words([u64; 16]);

#[allow(unsafe_code)]
fn bpf(command: libc::c_long, words: &Words) -> i32 {
    // SAFETY: the kernel reads as much as there is; what the words point to lives through the call, as
    // callers see to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, words.0.as_ptr(), size_of::<Words>()) };
    assert!(result >= 0, "{command}: {}", std::io::Error::last_os_error());
    result as i32
}

#[allow(unsafe_code)]
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it, and nobody else holds it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Attaches another user's program, `somebody`, which passes all up.
pub fn attach_other(ifindex: u32) -> OwnedFd {
    const LINK_CREATE: libc::c_long = 28;
    let program = other_program();
    let mut words = Words([0; 16]);
    words.0[0] = program.as_raw_fd() as u64 | u64::from(ifindex) << 32;
    // BPF_XDP
    words.0[1] = 37;
    owned(bpf(LINK_CREATE, &words))
}

/// Pins another user's program and attaches it without a link.
pub fn attach_by_name(interface: &str, path: &Path) {
    pin(&other_program(), path);
    let name = path.to_str().unwrap();
    let attach = ["link", "set", "dev", interface, "xdpdrv", "pinned", name];
    let output = Command::new("ip").args(attach).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Loads another user's program, `somebody`, which passes all up.
fn other_program() -> OwnedFd {
    const PROG_LOAD: libc::c_long = 5;
    /// `BPF_PROG_TYPE_XDP`.
    const XDP: u64 = 6;
    // r0 = XDP_PASS; exit
    let code: [u64; 2] = [0x2_0000_00b7, 0x95];
    let mut words = Words([0; 16]);
    words.0[0] = XDP | (code.len() as u64) << 32;
    words.0[1] = code.as_ptr() as u64;
    words.0[2] = c"GPL".as_ptr() as u64;
    words.0[6..8].copy_from_slice(&[u64::from_ne_bytes(*b"somebody"), 0]);
    owned(bpf(PROG_LOAD, &words))
}

/// Pins an attachment.
pub fn pin(attachment: &OwnedFd, path: &Path) {
    const OBJ_PIN: libc::c_long = 6;
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut words = Words([0; 16]);
    words.0[..2].copy_from_slice(&[path.as_ptr() as u64, attachment.as_raw_fd() as u64]);
    bpf(OBJ_PIN, &words);
}

/// Removes a pinned program, as `bpftool link detach` does.
pub fn detach_pinned(path: &Path) {
    const OBJ_GET: libc::c_long = 7;
    const LINK_DETACH: libc::c_long = 34;
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut words = Words([0; 16]);
    words.0[0] = path.as_ptr() as u64;
    let attachment = owned(bpf(OBJ_GET, &words));
    let mut words = Words([0; 16]);
    words.0[0] = attachment.as_raw_fd() as u64;
    bpf(LINK_DETACH, &words);
}
