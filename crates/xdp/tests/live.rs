// SPDX-License-Identifier: Apache-2.0
//! Real frames between virtual Ethernet pairs: forwarded ones arrive, others go up, and unfit ports are
//! refused with the command that mends them.

use crate::common;

use bartizan_base::Reason;
use bartizan_packet::DecoderConfig;
use bartizan_testkit::packet::{UDP, udp};
use bartizan_xdp::{
    FlowSlotControl, Hold, Holders, Mode, ModeChoice, PortNews, PortSide, Tables, XdpError, XdpFlowAction,
    XdpOptions, XdpProgram,
};
use common::{Wire, ends, ethtool, in_namespace, ip, key, level, plain_wire, port, ports, wires};
use std::process::Command;

const FORWARD: FlowSlotControl = FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 };
/// The longest wait for a frame, and the wait for one that must not come, in milliseconds.
const PATIENCE: i32 = 10_000;
const SILENCE: i32 = 200;

fn install(tables: &Tables, control: FlowSlotControl) {
    for (slot, v6) in [false, true].into_iter().enumerate() {
        let [low, high] = ends(v6);
        assert!(tables.set_control(slot as u32, control));
        tables.insert(&key(UDP, low, high, [0; 3]), slot as u32).unwrap();
    }
}

/// A numbered datagram, from the lower to the higher endpoint or back.
fn frame(v6: bool, back: bool, number: u16, load: usize) -> Vec<u8> {
    let [low, high] = ends(v6);
    let mut bytes = vec![b'L'; load];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    if back { udp(high, low, &bytes).frame() } else { udp(low, high, &bytes).frame() }
}

/// Sends datagrams both ways; each arrives unchanged, in order, and is counted once.
fn both_ways(mode: ModeChoice, mtu: u32, load: usize) {
    wires(mtu);
    if mode == ModeChoice::Only(Mode::Generic) {
        // Frames leave as the kernel sends everything: the ends need not poll.
        for end in ["a", "b"] {
            ethtool(&format!("-K {end} gro off"));
        }
    }
    let mut program = XdpProgram::load(&XdpOptions {
        flows: 16,
        mode,
        tunnels: DecoderConfig::default(),
        workers: 2,
        early: None,
        seed: 77,
    })
    .unwrap();
    let expected = if mode == ModeChoice::Auto { Mode::Native } else { Mode::Generic };
    for port in ports() {
        assert_eq!(program.attach(&port).unwrap_or_else(|error| panic!("{error}")).mode, expected);
    }
    let tables = program.tables();
    install(&tables, FORWARD);
    let (a, b) = (Wire::open("a"), Wire::open("b"));
    let (rounds, mut bytes) = (400, [[0, 0]; 2]);
    for number in 0..rounds {
        for (slot, v6) in [false, true].into_iter().enumerate() {
            for (back, from, to) in [(false, &a, &b), (true, &b, &a)] {
                let frame = frame(v6, back, number, load);
                from.send(&frame);
                assert_eq!(to.next(PATIENCE).as_ref(), Some(&frame), "{number} {v6} {back}");
                bytes[slot][usize::from(back)] += frame.len() as u64;
            }
        }
    }
    assert!(a.next(SILENCE).is_none() && b.next(0).is_none());
    for slot in 0..2 {
        let counts = tables.counts(slot, bartizan_xdp::boot_time()).unwrap();
        assert_eq!((counts.packets, counts.bytes), ([u64::from(rounds); 2], bytes[slot as usize]));
    }
    for (index, side) in [(4, 0), (9, 1)] {
        let counters = tables.port_counters(index).unwrap();
        let all = 2 * u64::from(rounds);
        assert_eq!((counters.frames, counters.forwarded, counters.up), (all, all, 0));
        assert_eq!(counters.forwarded_bytes, bytes[0][side] + bytes[1][side]);
        assert_eq!((counters.out, counters.out_bytes), (all, bytes[0][1 - side] + bytes[1][1 - side]));
    }
}

#[test]
fn datagrams_go_both_ways() {
    in_namespace(|| both_ways(ModeChoice::Auto, 1500, 1000));
}

#[test]
fn frames_of_9000_bytes_go_both_ways() {
    in_namespace(|| both_ways(ModeChoice::Auto, 9000, 8952));
}

#[test]
fn datagrams_go_both_ways_in_generic_mode() {
    in_namespace(|| both_ways(ModeChoice::Only(Mode::Generic), 1500, 1000));
}

#[test]
fn what_is_dropped_goes_nowhere_and_what_is_taken_back_goes_up() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install(&tables, FlowSlotControl { action: XdpFlowAction::Drop(Reason::IdsRule), generation: 0 });
        let (a, b, host) = (Wire::open("a"), Wire::open("b"), Wire::open("lan"));
        let send = |count: u16| {
            for number in 0..count {
                a.send(&frame(number % 2 == 0, false, number, 100));
            }
        };
        let hears = |wire: &Wire, count: u16| {
            for number in 0..count {
                assert_eq!(wire.next(PATIENCE), Some(frame(number % 2 == 0, false, number, 100)));
            }
        };
        let quiet = |wires: [&Wire; 2]| assert!(wires.iter().all(|wire| wire.next(SILENCE).is_none()));
        send(100);
        quiet([&b, &host]);
        assert_eq!(tables.port_counters(4).unwrap().dropped, 100);
        (0..2).for_each(|slot| assert!(tables.mark(slot)));
        send(100);
        hears(&host, 100);
        (0..2).for_each(|slot| assert!(tables.set_control(slot, FORWARD)));
        send(100);
        hears(&b, 100);
        tables.enter_generation(1);
        send(100);
        hears(&host, 100);
        quiet([&b, &host]);
        for slot in 0..2 {
            assert_eq!(tables.counts(slot, bartizan_xdp::boot_time()).unwrap().packets, [100, 0]);
        }
        let next = FlowSlotControl { generation: 1, ..FORWARD };
        (0..2).for_each(|slot| assert!(tables.set_control(slot, next)));
        program.detach(9).unwrap();
        send(100);
        hears(&host, 100);
        assert!(program.attach(&ports()[1]).unwrap().enabled);
        send(100);
        hears(&b, 100);
        drop(program);
        send(100);
        hears(&host, 100);
        quiet([&b, &host]);
        let counters = tables.port_counters(4).unwrap();
        assert_eq!((counters.frames, counters.up, counters.dropped), (500, 200, 100));
    });
}

#[test]
fn a_hook_that_is_taken_is_left_alone() {
    in_namespace(|| {
        let (_first, _) = level(16, 1500);
        let mut second = common::program(16);
        match second.attach(&ports()[0]).unwrap_err() {
            XdpError::HookTaken { name, id, program, mode: Mode::Native, .. } => {
                assert_eq!((name.as_str(), program.as_str()), ("lan", "bartizan_flows"));
                let shown = Command::new("ip").args(["link", "show", "dev", "lan"]).output().unwrap();
                let shown = String::from_utf8(shown.stdout).unwrap();
                assert!(shown.contains(&format!("prog/xdp id {id} ")), "{shown}");
            }
            error => panic!("{error}"),
        }
    });
}

/// The command in an error's message.
fn command(error: &XdpError, begin: &str) -> String {
    let text = error.to_string();
    text.split('`').find(|part| part.starts_with(begin)).unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Runs the command in an error's message.
fn obey(error: &XdpError, begin: &str) {
    let command = command(error, begin);
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}");
}

/// The refusal of a taken hook, with the holders of its program.
fn refusal() -> (XdpError, Holders) {
    let error = common::program(16).attach(&ports()[0]).unwrap_err().with_holders();
    match &error {
        XdpError::HookTaken { holders: Some(holders), .. } => {
            let holders = (**holders).clone();
            (error, holders)
        }
        other => panic!("{other}"),
    }
}

/// The error of a taken hook names the holders of its program (its pins, the processes that have it open,
/// or none) and the command that frees it, which works.
#[test]
fn who_holds_a_taken_hook_is_told() {
    common::with_bpf_file_system(|| {
        wires(1500);
        let this =
            |holders: &Holders| holders.processes.iter().any(|held| held.process == std::process::id());
        // A link that this process has open; another one of the same program's kind is of another interface.
        let link = common::attach_other(common::number("lan"));
        let _beside = common::attach_other(common::number("wan"));
        let (error, holders) = refusal();
        let [number] = holders.links.as_slice() else { panic!("{error}") };
        assert!(this(&holders) && holders.pins.is_empty(), "{error}");
        assert_eq!(command(&error, "bpftool link detach"), format!("bpftool link detach id {number}"));
        // The program is pinned, by a name with a blank in a folder, and no process has it open.
        let folder = std::path::Path::new("/sys/fs/bpf/some body");
        std::fs::create_dir(folder).unwrap();
        common::pin(&link, &folder.join("lan"));
        drop(link);
        let (error, holders) = refusal();
        assert_eq!(holders.pins, [(folder.join("lan"), Hold::Link)], "{error}");
        assert!(!this(&holders) && holders.links.len() == 1, "{error}");
        assert!(error.to_string().contains("pinned as `/sys/fs/bpf/some body/lan`"), "{error}");
        // The program alone is pinned, and attached without a link. (Taken away by name: a process that
        // another test starts may have a copy of the descriptor for a moment.)
        common::detach_pinned(&folder.join("lan"));
        std::fs::remove_file(folder.join("lan")).unwrap();
        common::attach_by_name("lan", &folder.join("program"));
        let (error, holders) = refusal();
        assert_eq!(holders.pins, [(folder.join("program"), Hold::Program)], "{error}");
        assert!(holders.links.is_empty(), "{error}");
        // The program has no holder any more; it stays all the same, until the command of the message is
        // run.
        std::fs::remove_file(folder.join("program")).unwrap();
        let (error, holders) = refusal();
        assert!(holders.links.is_empty() && holders.pins.is_empty() && !this(&holders), "{error}");
        assert!(error.to_string().contains("nobody has pinned it"), "{error}");
        obey(&error, "ip link set");
        common::program(16).attach(&ports()[0]).unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn default_pairs_are_refused_until_their_commands_were_run() {
    in_namespace(|| {
        plain_wire("lan", "a", 1500);
        plain_wire("wan", "b", 1500);
        let mut program = common::program(16);
        let [lan, wan] = ports();
        for (setup, name) in [(&lan, "lan"), (&wan, "wan")] {
            let error = program.attach(setup).unwrap_err();
            assert!(matches!(&error, XdpError::Offloads { name: found, .. } if found == name), "{error}");
            obey(&error, "ethtool -K");
            if name == "lan" {
                assert!(!program.attach(setup).unwrap().enabled);
            }
        }
        for (end, name) in [("b", "wan"), ("a", "lan")] {
            let error = program.attach(&wan).unwrap_err();
            assert!(matches!(&error, XdpError::TakesNothing { kind, .. } if kind == "veth"), "{error}");
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
            assert!(error.to_string().contains("`ethtool -K OTHER_END gro on`"), "{error}");
            // Nothing of the port that failed is left.
            assert!(matches!(program.detach(9).unwrap_err(), XdpError::Port { index: 9, .. }));
            ethtool(&format!("-K {end} gro on"));
        }
        assert!(program.attach(&wan).unwrap().enabled);
    });
}

/// A port that takes no frames any more loses one frame: this is counted, and later ones go up until it takes
/// frames again.
#[test]
fn a_port_that_loses_frames_is_left_alone_until_it_takes_them() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install(&tables, FORWARD);
        let (a, b, host) = (Wire::open("a"), Wire::open("b"), Wire::open("lan"));
        let lost = || [4, 9].map(|port| tables.port_counters(port).unwrap().lost);
        let arrives = |to: &Wire, number| {
            let frame = frame(number % 2 == 0, false, number, 100);
            a.send(&frame);
            assert_eq!(to.next(PATIENCE), Some(frame), "{number}");
        };
        let break_and_mend: [[fn(); 2]; 2] = [
            // The other end does not poll. The interface is down.
            [|| ethtool("-K b gro off"), || ethtool("-K b gro on")],
            [|| ip("link set dev wan down"), || ip("link set dev wan up")],
        ];
        for (round, [breaks, mends]) in break_and_mend.into_iter().enumerate() {
            arrives(&b, 1);
            assert!(program.follow_losses().is_empty());
            breaks();
            a.send(&frame(false, false, 2, 100));
            assert!(b.next(SILENCE).is_none());
            assert_eq!(lost(), [0, 1 + round as u64], "it is counted for the port that it was to leave by");
            // One that takes none gets none.
            (3..20).for_each(|number| arrives(&host, number));
            let news = program.follow_losses();
            let [PortNews::Closed { name, lost: 1.., why }] = news.as_slice() else { panic!("{news:?}") };
            let command =
                if round == 0 { "`ethtool -K OTHER_END gro on`" } else { "`ip link set dev wan up`" };
            assert!(name == "wan" && why.to_string().contains(command), "{why}");
            assert!(program.follow_losses().is_empty(), "it was told");
            program.refresh_mtu(9).unwrap();
            (20..30).for_each(|number| arrives(&host, number));
            // The other way goes on, where it can.
            if round == 0 {
                b.send(&frame(false, true, 7, 100));
                assert_eq!(a.next(PATIENCE), Some(frame(false, true, 7, 100)));
            }
            mends();
            let news = program.follow_losses();
            assert!(matches!(news.as_slice(), [PortNews::Open { name }] if name == "wan"), "{news:?}");
            (30..40).for_each(|number| arrives(&b, number));
            assert_eq!(lost(), [0, 1 + round as u64], "what was sent to try it does not count");
        }
    });
}

#[test]
fn ports_that_do_not_fit_are_refused() {
    in_namespace(|| {
        wires(1500);
        let mut program = common::program(16);
        let [lan, wan] = ports();
        let mut nowhere = lan;
        nowhere.ifindex = 4_000_000;
        let error = program.attach(&nowhere).unwrap_err();
        assert!(matches!(error, XdpError::NoSuchInterface { ifindex: 4_000_000 }), "{error}");
        ip("link set dev lan down");
        let error = program.attach(&lan).unwrap_err();
        assert!(matches!(error, XdpError::Down { .. }), "{error}");
        obey(&error, "ip link");
        assert!(!program.attach(&lan).unwrap().enabled);
        ip("link set dev lan down");
        let error = program.attach(&wan).unwrap_err();
        assert!(matches!(&error, XdpError::Down { name } if name == "lan"), "{error}");
        ip("link set dev lan up");
        ethtool("-K lan gro on");
        let error = program.attach(&wan).unwrap_err();
        assert!(matches!(&error, XdpError::Offloads { name, .. } if name == "lan"), "{error}");
        obey(&error, "ethtool -K");
        ip("link set dev wan mtu 1400");
        let error = program.attach(&wan).unwrap_err();
        assert!(matches!(error, XdpError::MtuDiffers { .. }), "{error}");
        // The command makes the larger one smaller; the smaller one is another way.
        obey(&error, "ip link");
        ip("link set dev lan mtu 1500");
        ip("link set dev wan mtu 1500");
        assert!(program.attach(&wan).unwrap().enabled);
        for (index, pair) in [(4, 9), (64, 3), (3, 64), (3, 3), (3, 9)] {
            let error = program.attach(&port("a", PortSide::First, index, pair)).unwrap_err();
            assert!(matches!(error, XdpError::Port { .. }), "{index} {pair}: {error}");
        }
    });
}

#[test]
fn a_driver_without_native_mode_gets_the_generic_one_unless_it_is_forced() {
    in_namespace(|| {
        ip("link add bridge type bridge");
        ip("link set dev bridge up");
        let setup = port("bridge", PortSide::First, 4, 9);
        let load = |mode| {
            XdpProgram::load(&XdpOptions {
                flows: 16,
                mode,
                tunnels: DecoderConfig::default(),
                workers: 2,
                early: None,
                seed: 77,
            })
            .unwrap()
        };
        let error = load(ModeChoice::Only(Mode::Native)).attach(&setup).unwrap_err();
        if let XdpError::Offloads { .. } = error {
            obey(&error, "ethtool -K");
        }
        let error = load(ModeChoice::Only(Mode::Native)).attach(&setup).unwrap_err();
        assert!(matches!(error, XdpError::NoNativeMode { .. }), "{error}");
        assert_eq!(load(ModeChoice::Auto).attach(&setup).unwrap().mode, Mode::Generic);
    });
}

#[test]
fn an_interface_that_goes_takes_its_program_along() {
    in_namespace(|| {
        let (mut program, _) = level(16, 1500);
        ip("link del dev wan");
        program.detach(9).unwrap();
        common::plain_wire("wan", "b", 1500);
        ethtool("-K wan tx off tso off gso off gro off rxvlan off");
        ethtool("-K b gro on");
        assert!(program.attach(&ports()[1]).unwrap().enabled);
    });
}

#[test]
fn a_port_is_free_at_once_whoever_holds_descriptors() {
    in_namespace(|| {
        let (mut program, _) = level(16, 1500);
        common::while_a_process_starts(|| {
            program.detach(9).unwrap();
            assert!(program.attach(&ports()[1]).unwrap_or_else(|error| panic!("{error}")).enabled);
            drop(program);
            let mut next = common::program(16);
            for port in ports() {
                next.attach(&port).unwrap_or_else(|error| panic!("{error}"));
            }
        });
    });
}
