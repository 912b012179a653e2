// SPDX-License-Identifier: Apache-2.0
//! Fragments of a few datagrams: per fragment its datagram, offset, flags, delay and bytes.

use crate::planted::planted;
use crate::take::Take;
use bartizan_base::{PacketDuration, TenantId, Timestamp};
use bartizan_packet::defrag::{
    DefragConfig, DefragResult, Defragmenter, Fragment, FragmentKey, OverlapPolicy,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MEMORY: usize = 64 << 10;

/// Defragments them, with small bounds so that these are met.
pub fn run(data: &[u8]) {
    let mut take = Take(data);
    let policy = OverlapPolicy::ALL[usize::from(take.byte()) % OverlapPolicy::ALL.len()];
    let mut defragmenter = Defragmenter::new(DefragConfig {
        max_trackers: 8,
        max_fragments: 64,
        max_datagram_fragments: 32,
        memory: MEMORY,
        timeout: PacketDuration::from_secs(60),
        strict: data.first().is_some_and(|byte| byte & 0x80 != 0),
        hold: false,
        remember: 16,
        hash_seed: 1,
    });
    let (mut now, mut out) = (0u64, Vec::new());
    while !take.is_empty() {
        let (which, place, flags) = (take.byte(), take.short(), take.byte());
        now += u64::from(flags >> 4);
        let v6 = which & 1 == 1;
        let address =
            |n: u8| if v6 { IpAddr::V6(Ipv6Addr::from([n; 16])) } else { IpAddr::V4(Ipv4Addr::from([n; 4])) };
        let key = FragmentKey {
            tenant: TenantId(u16::from(which >> 6)),
            link: None,
            vlans: [0; 3],
            tunnel: 0,
            src: address(1),
            dst: address(2),
            id: u32::from(which >> 1 & 3),
            protocol: 17,
            recursion: 0,
        };
        let header: &[u8] = if v6 { &[0x60; 40] } else { &[0x45; 20] };
        let len = usize::from(take.byte()) * if flags & 2 == 0 { 1 } else { 8 };
        let payload = take.bytes(len);
        let fragment = Fragment {
            offset: place & !7,
            more: flags & 1 == 1,
            header,
            hop_limit: flags >> 2 & 1,
            path: [0; 2],
            reserved: false,
            next_header: 17,
            payload,
        };
        let outcome = defragmenter.insert(&key, &fragment, policy, Timestamp::from_parts(now, 0), &mut out);
        assert!(defragmenter.memory_used() <= MEMORY, "{} bytes", defragmenter.memory_used());
        assert!(defragmenter.waiting() <= 8 && defragmenter.fragments() <= 64);
        if let Some(datagram) = outcome.datagram
            && outcome.result == DefragResult::Complete
        {
            if flags & 0x20 == 0 {
                assert!(defragmenter.pass(datagram, Timestamp::from_parts(now, 0)));
            } else {
                defragmenter.refuse(datagram);
            }
        }
        if outcome.result == DefragResult::Complete {
            assert!(out.len() <= 40 + 65_535);
            planted(place & !7 == 0 && out.len() > 64);
        }
    }
}
