// SPDX-License-Identifier: Apache-2.0
//! For any bytes in the traffic, every line is one JSON object on one line, without null, and fits the
//! schema.

use bartizan_base::{Direction, RuleId, Timestamp};
use bartizan_events::config::{AlertOptions, HeaderOptions};
use bartizan_events::record::*;
use bartizan_events::{JsonWriter, schema};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::IpAddr;

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn check(w: &JsonWriter) -> serde_json::Value {
    assert!(!w.bytes().contains(&b'\n'), "a line end in the line");
    let event = serde_json::from_slice(w.bytes()).unwrap();
    schema::check(&event).unwrap();
    event
}

proptest! {
    #[test]
    fn any_bytes_make_valid_alerts(
        nanos in any::<u64>(),
        src in address(),
        dest in address(),
        proto in any::<u8>(),
        ports in any::<Option<(u16, u16)>>(),
        message in vec(any::<u8>(), 0..64),
        payload in vec(any::<u8>(), 0..200),
        name in vec(any::<u8>(), 0..64),
        word in "\\PC{0,12}",
        vlan in vec(any::<u16>(), 0..3),
    ) {
        let tuple = Tuple { src, dest, ports, proto };
        let flowvars = [(word.as_str(), payload.as_slice())];
        let common = Common {
            timestamp: Timestamp::from_nanos(nanos),
            flow_id: Some(nanos),
            vlan: &vlan,
            tuple: Some(tuple),
            packet_source: Some(EventPacketSource::Wire),
            variables: Variables { flowbits: &[word.as_str()], flowvars: &flowvars, ..Variables::default() },
            community: Some((tuple, None)),
            in_iface: Some(&word),
            ..Common::default()
        };
        let options = HeaderOptions { community_id: Some(0), ethernet: true, ..HeaderOptions::default() };
        let alert = AlertOptions {
            payload: true,
            payload_printable: true,
            payload_length: true,
            packet: true,
            rule_raw: true,
            ..AlertOptions::default()
        };
        let files = [FileInfo { filename: Some(&name), magic: Some(&word), ..FileInfo::default() }];
        let record = AlertRecord {
            alert: AlertInfo {
                transaction: Some(AlertTransaction { id: nanos, guessed: true }),
                rule_id: RuleId { gid: 1, sid: 2, rev: 3 },
                signature: &message,
                target: Some(TargetSide::Source),
                rule: Some(&message),
                ..AlertInfo::default()
            },
            files: &files,
            direction: Some(Direction::ToServer),
            flow: Some(AlertFlow { counters: FlowCounters::default(), start: Timestamp::ZERO, tuple }),
            payload: Some(Payload { bytes: Some(&payload), stream: true }),
            packet: Some(PacketBytes { bytes: &payload, linktype: u32::from(proto) }),
            ..AlertRecord::default()
        };
        let mut w = JsonWriter::new();
        record.write(&mut w, &options, &alert, &common, |w| {
            w.object("http");
            w.text("url", &name);
            w.end_object();
        });
        let event = check(&w);
        prop_assert_eq!(event["payload_length"].as_u64(), Some(payload.len() as u64));
        prop_assert_eq!(event["payload_printable"].as_str().unwrap().chars().count(), payload.len());
        prop_assert_eq!(event["src_port"].is_u64(), ports.is_some());
    }

    #[test]
    fn any_counter_names_make_valid_stats(names in vec("[a-c]{0,2}(\\.[a-c]{0,2}){0,3}", 0..20)) {
        let counters: Vec<Counter<'_>> =
            names.iter().map(|name| Counter { name, value: 1, last: 0 }).collect();
        let record = StatsRecord { totals: &counters, ..StatsRecord::default() };
        let mut w = JsonWriter::new();
        record.write(&mut w, &HeaderOptions::default(), &Default::default(), &Common::default());
        check(&w);
    }
}
