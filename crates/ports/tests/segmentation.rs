// SPDX-License-Identifier: Apache-2.0
//! Datagrams that a sender on this host leaves to a device to split (`UDP_SEGMENT`), as the ports hand them
//! out: with the size that the kernel reports (needs root; without, it prints so and returns).

use crate::common;

use bartizan_ports::{
    Batch, FrameFlags, FrameInfo, InlineOptions, InlinePort, PassiveOptions, PassivePort, Port, Segmentation,
    SendRefusal, Warning, wait_any,
};
use common::{in_namespace, ip, leave_to_device, veth};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

/// The datagrams that arrive at a port, from the test's own sender only.
fn collect(port: &mut dyn Port, count: usize) -> Vec<(FrameInfo, Vec<u8>)> {
    let mut batch = Batch::with_capacity(64);
    let mut frames = Vec::new();
    let end = Instant::now() + Duration::from_secs(5);
    while frames.len() < count && Instant::now() < end {
        port.receive(&mut batch).unwrap();
        for index in batch.indices() {
            let bytes = batch.bytes(index).unwrap();
            if bytes.ends_with(b"end") {
                frames.push((*batch.info(index).unwrap(), bytes.to_vec()));
            }
        }
        batch.clear();
        wait_any(&mut [&mut *port], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
    }
    frames
}

#[test]
fn joined_datagrams_come_with_their_size() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        // Not every kernel has VLAN devices.
        let vlan = "link add link a0 name v0 up type vlan id 5";
        let vlan = Command::new("ip").args(vlan.split(' ')).output().unwrap().status.success();
        let nets: &[_] = if vlan { &[("a0", 1, 0), ("v0", 2, 4)] } else { &[("a0", 1, 0)] };
        for &(device, net, _) in nets {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "0").unwrap();
            ip(&format!("address add 10.9.{net}.1/24 dev {device}"));
            ip(&format!("address add fd09:{net}::1/64 dev {device} nodad"));
        }
        let options = InlineOptions { frames: 256, transmit_frames: 256, ..Default::default() };
        let mut inline = InlinePort::open("a1", &options).unwrap();
        let mut passive = PassivePort::open("a1", &PassiveOptions::default()).unwrap();
        if inline.warnings().iter().any(|one| matches!(one, Warning::NoSegmentSizes { .. })) {
            eprintln!("needs Linux 6.2: not run");
            return;
        }
        // (bytes of a datagram, bytes of the call)
        let shapes =
            [(1_200, 12_000), (1_200, 62_400), (300, 900), (301, 1_000), (1_200, 1_200), (1_200, 700)];
        for &(_, net, tag) in nets {
            for (address, header) in [(format!("10.9.{net}.2"), 34), (format!("fd09:{net}::2"), 54)] {
                let any = if header == 34 { "0.0.0.0" } else { "::" };
                for (size, whole) in shapes {
                    let socket = UdpSocket::bind((any, 0)).unwrap();
                    leave_to_device(&socket, i32::from(size));
                    let mut data = vec![7; whole];
                    data[whole - 3..].copy_from_slice(b"end");
                    assert_eq!(socket.send_to(&data, (address.as_str(), 9)).unwrap(), whole);
                    let ports: [&mut dyn Port; 2] = [&mut inline, &mut passive];
                    for port in ports {
                        let came = collect(port, 1);
                        let [(info, bytes)] = came.as_slice() else { panic!("{} frames", came.len()) };
                        let header = header + tag;
                        assert_eq!(bytes.len(), usize::from(header) + 8 + whole, "{address} {size}");
                        assert!(bytes.ends_with(&data), "{address} {size}");
                        let joined = whole > usize::from(size);
                        let told = Segmentation { size, header };
                        let told = if joined { told } else { Segmentation::default() };
                        assert_eq!(
                            info.flags.contains(FrameFlags::JOINED),
                            joined,
                            "{address} {size} {whole}"
                        );
                        assert_eq!(info.segmentation, told, "{address} {size} {whole}");
                        assert_eq!(info.flags.contains(FrameFlags::VLAN_RESTORED), tag > 0);
                        assert_eq!(info.wire_length as usize, bytes.len());
                    }
                }
            }
        }
        assert_eq!(inline.stats().ring_dropped, 0);
        // Even where one would fit the MTU: its receiver would read one datagram.
        let mut batch = Batch::with_capacity(1);
        let flags = FrameFlags::JOINED;
        batch.push_copy(&[0; 100], FrameInfo { flags, ..FrameInfo::default() });
        batch.forward_all();
        assert_eq!(inline.transmit(&mut batch), 0);
        assert_eq!(inline.stats().send_failures.get(SendRefusal::Joined), 1);
    });
}
