// SPDX-License-Identifier: Apache-2.0
//! The program's cost per packet, and the speed of adding and removing flows: `cargo run -p bartizan-xdp
//! --example measure [FLOWS]`, as root.
//!
//! The kernel runs the program on a frame and reports the time (BPF_PROG_TEST_RUN); no frame is sent. The
//! program is attached to two dummy ends in a network namespace of its own: run this under `unshare -n`.
//! Not measured: drivers, redirects, cold instruction caches.

use bartizan_base::{LinkId, Spread};
use bartizan_packet::DecoderConfig;
use bartizan_packet::windows::{WindowSide as WindowsOf, Windows};
use bartizan_testkit::packet::{End, tcp, udp};
use bartizan_testkit::random::Random;
use bartizan_testkit::tunnels::Tunnel;
use bartizan_xdp::{
    Fail, FlowSlotControl, Key, ModeChoice, PortSetup, PortSide, Watch, XdpFlowAction, XdpOptions,
    XdpProgram, monotonic_time,
};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

type Failed = Box<dyn std::error::Error>;

const REPEAT: u32 = 1_000_000;
const ROUNDS: usize = 5;

fn ends(flow: u32) -> (End, End) {
    let client = Ipv4Addr::from(0x0a00_0000 | flow >> 4);
    ((client.into(), 1024 + (flow & 15) as u16), (Ipv4Addr::new(192, 0, 2, 1).into(), 443))
}

/// The key of such a flow from the first side: the lower endpoint is the client.
fn key(flow: u32) -> Key {
    let (client, server) = ends(flow);
    let low = u64::from(0x0a00_0000_u32 | flow >> 4);
    let ports = u64::from(client.1) | u64::from(server.1) << 16;
    [0, low, 0, u64::from(u32::from(Ipv4Addr::new(192, 0, 2, 1))), 0, ports | 1 << 48, 17 | 1 << 19]
}

fn run(program: &str, arguments: &str) -> Result<u32, Failed> {
    let output = Command::new(program).args(arguments.split_whitespace()).output()?;
    if output.status.success() { Ok(0) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn index(name: &str) -> Result<u32, Failed> {
    let output = Command::new("ip").args(["-o", "link", "show", "dev", name]).output()?;
    Ok(String::from_utf8(output.stdout)?.split(':').next().unwrap_or_default().trim().parse()?)
}

/// Memory of the maps that this process holds, according to the kernel, in MiB.
fn memory() -> Result<f64, Failed> {
    let mut bytes = 0;
    let mut seen = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let (Some(id), Some(size)) = (value("map_id:"), value("memlock:"))
            && !seen.contains(&id.to_owned())
        {
            seen.push(id.to_owned());
            bytes += size.parse::<u64>()?;
        }
    }
    Ok(bytes as f64 / 1048576.0)
}

/// Instructions that the kernel's verifier has checked to load the program; 0 if the kernel does not report
/// it.
fn verified() -> Result<u64, Failed> {
    let mut most = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let own = text.lines().filter_map(|line| line.strip_prefix("verified_insns:"));
        most = own.filter_map(|number| number.trim().parse().ok()).fold(most, u64::max);
    }
    Ok(most)
}

/// A datagram in VXLAN, and the keys of its flow and of the outer one.
fn in_vxlan() -> (Vec<u8>, [Key; 2]) {
    const VXLAN: u64 = 7;
    let (client, server) = ends(0);
    let inner = udp(client, server, b"").bytes();
    let around = Tunnel::Vxlan(5).around((client, server), false, &inner).frame();
    let own = key(0);
    let ports = u64::from(client.1) | 4789 << 16 | 1 << 48;
    let outer = [own[0], own[1], own[2], own[3], 0, ports, own[6]];
    (around, [outer, [own[0], own[1], own[2], own[3], VXLAN << 32 | 5, own[5], own[6] | 1 << 8]])
}

fn median(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    format!("{:.1} ({:.1} to {:.1})", values[values.len() / 2], values[0], values[values.len() - 1])
}

fn rate(count: usize, begin: Instant) -> f64 {
    count as f64 / begin.elapsed().as_secs_f64() / 1e6
}

/// Nanoseconds of a run on one frame again and again.
fn warm(program: &mut XdpProgram, frame: &[u8], lan: u32) -> Result<String, Failed> {
    let runs = (0..ROUNDS).map(|_| program.run_on(frame, lan, REPEAT).map(|run| f64::from(run.nanoseconds)));
    Ok(median(runs.collect::<Result<_, _>>()?))
}

/// A segment that its connection's numbers pass, and the same without comparing. (It is repeated, so no
/// number moves.)
fn compared(program: &mut XdpProgram, lan: u32) -> Result<(), Failed> {
    let (tables, (client, server)) = (program.tables(), ends(0));
    let segment = tcp(client, server, (1_000, 5_000), 16, b"").frame();
    let mut key = key(0);
    key[6] = 6 | 1 << 19;
    let side = |at| WindowsOf { sent: at, acknowledged: at, edge: at + 60_000, ..WindowsOf::default() };
    tables.set_windows(0, &Windows { sides: [side(1_000), side(5_000)], timestamps: false });
    tables.insert(&key, 0)?;
    for (what, action) in
        [("forward", XdpFlowAction::Forward), ("compare and forward", XdpFlowAction::Compare)]
    {
        tables.set_control(0, FlowSlotControl { action, generation: 0 });
        println!("{what}, a segment, ns a packet: {}", warm(program, &segment, lan)?);
    }
    tables.remove(&key);
    Ok(())
}

const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };

/// Nanoseconds of single runs on frames of different flows, including two readings of the kernel's clock.
fn single(program: &mut XdpProgram, flows: u32, lan: u32) -> Result<String, Failed> {
    let mut random = Random::new(1);
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let (client, server) = ends(random.below(flows as usize) as u32);
        times.push(f64::from(program.run_on(&udp(client, server, b"").frame(), lan, 1)?.nanoseconds));
    }
    times.sort_by(f64::total_cmp);
    Ok(format!("p50 {:.0}, p90 {:.0}", times[times.len() / 2], times[times.len() * 9 / 10]))
}

/// Two ports with an end each, with the settings that a level needs: frames reach the program one by one,
/// whole.
fn ports() -> Result<(), Failed> {
    for (port, end) in [("lan", "a"), ("wan", "b")] {
        run("ip", &format!("link add {port} type veth peer name {end}"))?;
        for name in [port, end] {
            run("ip", &format!("link set dev {name} up"))?;
        }
        run("ethtool", &format!("-K {port} tx off tso off gso off gro off rxvlan off"))?;
        run("ethtool", &format!("-K {end} gro on"))?;
    }
    Ok(())
}

/// Attaches the program to both ports; it watches two workers, neither of which is ever late.
fn attach(program: &mut XdpProgram) -> Result<(), Failed> {
    let (fail, stale) = (Fail::Closed, Duration::from_secs(3_600));
    let watch = Watch { fail, stale, spread: Spread::new([1, 2], 2), first: 0 };
    for (name, side, own, pair) in [("lan", PortSide::First, 0, 1), ("wan", PortSide::Second, 1, 0)] {
        program.attach(&PortSetup {
            ifindex: index(name)?,
            link: LinkId(1),
            side,
            index: own,
            pair,
            vlans_in_key: false,
            drop_samples: None,
            early: None,
            watch: Some(watch),
        })?;
    }
    Ok(())
}

/// Packets that go up to the host: no flow is decided.
fn undecided(program: &mut XdpProgram, frame: &[u8], lan: u32) -> Result<(), Failed> {
    println!("no port, ns a packet: {}", warm(program, frame, 1)?);
    println!("no flow, watched, ns a packet: {}", warm(program, frame, lan)?);
    for worker in 0..2 {
        program.tables().beat(worker, monotonic_time().saturating_sub(7_200_000_000_000));
    }
    println!("no flow, its worker has failed (closed), ns a packet: {}", warm(program, frame, lan)?);
    program.end_watch()?;
    println!("no flow, ns a packet: {}", warm(program, frame, lan)?);
    let mut arp = frame.to_vec();
    arp[12..14].copy_from_slice(&[8, 6]);
    println!("no IP, ns a packet: {}", warm(program, &arp, lan)?);
    Ok(())
}

/// One flow in the tables, then one inside a tunnel.
fn one_flow(program: &mut XdpProgram, frame: &[u8], lan: u32) -> Result<(), Failed> {
    let tables = program.tables();
    tables.set_control(0, FORWARD);
    tables.insert(&key(0), 0)?;
    println!("forward, 1 flow, ns a packet: {}", warm(program, frame, lan)?);
    println!("forward, 1 flow, single runs, ns: {}", single(program, 1, lan)?);
    tables.remove(&key(0));
    compared(program, lan)?;
    let (carried, both) = in_vxlan();
    for (slot, key) in (0..).zip(both) {
        tables.set_control(slot, FORWARD);
        tables.insert(&key, slot)?;
    }
    println!("forward, in VXLAN, 1 flow and the one around, ns a packet: {}", warm(program, &carried, lan)?);
    tables.remove(&both[1]);
    println!("in VXLAN, of no flow, ns a packet: {}", warm(program, &carried, lan)?);
    tables.remove(&both[0]);
    Ok(())
}

/// Tables full of flows: added and removed one at a time and in bulk, counted, and visited by packets.
fn many_flows(program: &mut XdpProgram, flows: u32, frame: &[u8], lan: u32) -> Result<(), Failed> {
    let tables = program.tables();
    let begin = Instant::now();
    for slot in 0..flows {
        tables.set_control(slot, FORWARD);
    }
    println!("set_control: {:.2} M/s", rate(flows as usize, begin));
    let begin = Instant::now();
    for slot in 0..flows {
        tables.insert(&key(slot), slot)?;
    }
    println!("insert, one at a time: {:.2} M/s", rate(flows as usize, begin));
    println!("forward, {flows} flows, the same one, ns a packet: {}", warm(program, frame, lan)?);
    println!("forward, {flows} flows, single runs, ns: {}", single(program, flows, lan)?);
    let begin = Instant::now();
    let packets: u64 = (0..flows)
        .filter_map(|slot| tables.counts(slot, bartizan_xdp::boot_time()))
        .map(|counts| counts.packets[0])
        .sum();
    println!("counts: {:.2} M/s ({packets} packets)", rate(flows as usize, begin));
    let begin = Instant::now();
    for slot in 0..flows {
        tables.remove(&key(slot));
    }
    println!("remove, one at a time: {:.2} M/s", rate(flows as usize, begin));
    Ok(())
}

fn main() -> Result<(), Failed> {
    let flows: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    ports()?;
    let begin = Instant::now();
    let mut program = XdpProgram::load(&XdpOptions {
        flows,
        mode: ModeChoice::Auto,
        tunnels: DecoderConfig::default(),
        workers: 2,
        early: None,
        seed: 77,
    })?;
    println!(
        "load: {:.0} ms, {} instructions verified, memory of the maps {:.0} MiB",
        begin.elapsed().as_secs_f64() * 1e3,
        verified()?,
        memory()?
    );
    attach(&mut program)?;
    let lan = index("lan")?;
    let (client, server) = ends(0);
    let frame = udp(client, server, b"").frame();
    undecided(&mut program, &frame, lan)?;
    one_flow(&mut program, &frame, lan)?;
    many_flows(&mut program, flows, &frame, lan)
}
