// SPDX-License-Identifier: Apache-2.0
//! Decodes captures beside the repository, if they exist.
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView, TunnelKind};
use std::path::{Path, PathBuf};

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            captures(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "pcap") {
            found.push(path);
        }
    }
}

/// Captured bytes and length on the wire.
type Captured<'a> = (&'a [u8], u32);

/// The packets of a classic capture file.
fn packets(file: &[u8]) -> Option<(LinkType, Vec<Captured<'_>>)> {
    let little = matches!(file.get(..4)?, [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]);
    let number = |at: usize| -> Option<u32> {
        let bytes: [u8; 4] = file.get(at..at + 4)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let link = LinkType::from_capture(number(20)? as u16);
    let mut list = Vec::new();
    let mut at = 24;
    while let (Some(len), Some(wire)) = (number(at + 8), number(at + 12)) {
        let Some(bytes) = file.get(at + 16..at + 16 + len as usize) else { break };
        list.push((bytes, wire));
        at += 16 + len as usize;
    }
    Some((link, list))
}

#[test]
fn captures_beside_the_repository_are_decoded() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let mut found = Vec::new();
    captures(&shared.join("compat/cases"), &mut found);
    captures(&shared.join("data/captures"), &mut found);
    if found.is_empty() {
        println!("skipped: no captures beside the repository");
        return;
    }
    let mut decoder = Decoder::default();
    let mut out = DecodeOutput::new();
    for path in &found {
        let file = std::fs::read(path).unwrap();
        let Some((link, list)) = packets(&file) else { continue };
        assert!(link.is_supported(), "{}: link type {link}", path.display());
        for (bytes, wire) in list {
            decoder.decode(link, bytes, wire, &mut out);
            for packet in out.packets() {
                let view = PacketView::new(bytes, packet);
                assert_eq!(view.payload().len(), packet.payload_len as usize, "{}", path.display());
                assert!(!packet.is_invalid() || !packet.events.is_empty(), "{}", path.display());
            }
        }
    }
    let counters = decoder.counters();
    assert!(counters.tcp > 10_000 && counters.ipv6 > 100 && counters.gre > 10, "{counters:?}");
    assert!(counters.invalid * 100 < counters.pkts, "{} of {} invalid", counters.invalid, counters.pkts);
}

#[test]
fn tenants_are_told_apart_by_their_tags() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures");
    let (Ok(vxlan), Ok(vlan)) =
        (std::fs::read(shared.join("tenants-vxlan.pcap")), std::fs::read(shared.join("tenants-vlan.pcap")))
    else {
        println!("skipped: no captures beside the repository");
        return;
    };
    let mut out = DecodeOutput::new();
    let mut tags = std::collections::BTreeSet::new();
    let (link, list) = packets(&vxlan).unwrap();
    for (bytes, wire) in list {
        Decoder::default().decode(link, bytes, wire, &mut out);
        let inner = out.packets().last().unwrap();
        assert_eq!(inner.tunnel.kind, TunnelKind::Vxlan);
        tags.insert(inner.tunnel);
    }
    assert_eq!(tags.len(), 2);
    let mut ids = std::collections::BTreeSet::new();
    let (link, list) = packets(&vlan).unwrap();
    for (bytes, wire) in list {
        Decoder::default().decode(link, bytes, wire, &mut out);
        ids.insert(out.outer().unwrap().vlan.padded());
    }
    assert_eq!(ids.len(), 2);
}
