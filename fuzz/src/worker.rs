// SPDX-License-Identifier: Apache-2.0
//! Frames through a whole worker: decoding, defragmentation, flows, streams, protocols, detection, records.
//!
//! The first byte chooses prevention, the link type, and whether the link has a snap length; then come
//! frames, each with a delay and a length.

use crate::load::{SETTINGS, compile};
use crate::planted::planted;
use crate::take::Take;
use bartizan_applayer::{file::FileSettings, flow::Engine, transaction::LogOptions};
use bartizan_base::{FunctionId, Generation, LinkId, Timestamp};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_events::JsonWriter;
use bartizan_functions::ids::{ALERTS_PER_PACKET, Ids};
use bartizan_packet::{DecoderConfig, LinkType};
use bartizan_stages::chain::Chains;
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_stages::settings::EngineSettings;
use std::sync::{Arc, LazyLock};

/// A few rules, so that detection has something to do.
const RULES: &str = r#"
alert tcp any any -> any any (msg:"a"; content:"GET"; content:"HTTP"; distance:1; within:200; sid:1;)
alert http any any -> any any (msg:"b"; http.uri; content:"/"; pcre:"/a+b/"; sid:2;)
alert dns any any -> any any (msg:"c"; dns.query; content:"a"; nocase; sid:3;)
alert tls any any -> any any (msg:"d"; tls.sni; content:"."; sid:4;)
alert ip any any -> any any (msg:"e"; flowbits:isnotset,x; flowbits:set,x; byte_test:2,>,7,0; sid:5;)
alert udp any any -> any any (msg:"f"; byte_jump:1,0; isdataat:4,relative; sid:6;)
drop tcp any any -> any any (msg:"g"; content:"evil"; sid:7;)
"#;

static ENGINE: LazyLock<Arc<Engine>> = LazyLock::new(|| {
    Arc::new(Engine::new(&SETTINGS, FileSettings::default()).expect("the shipped settings"))
});

static CHAINS: LazyLock<Arc<Chains>> = LazyLock::new(|| {
    let rules = compile(RULES.as_bytes()).expect("the rules of the target");
    Arc::new(Chains::one(
        Generation(1),
        vec![Arc::new(Ids::new(FunctionId(2), Generation(1), Arc::new(rules), ALERTS_PER_PACKET))],
    ))
});

/// Writes the records of transactions and counts the rest.
#[derive(Default)]
struct Sink {
    alerts: u64,
    transactions: u64,
}

impl Recorder for Sink {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { .. } => {
                self.alerts += 1;
            }
            RecorderEvent::Refused { verdict: fate, .. } => {
                assert!(fate.decision.reason.is_some(), "a refusal without a reason");
            }
            RecorderEvent::Transaction { tx, .. } => {
                self.transactions += 1;
                let mut json = JsonWriter::new();
                json.begin_object();
                tx.tx.log(&mut json, &LogOptions::default(), false);
                json.end_object();
            }
            _ => {}
        }
    }
}

/// Runs the frames.
pub fn run(data: &[u8]) {
    let mut take = Take(data);
    let first = take.byte();
    let link_type = LinkType::SUPPORTED[usize::from(first >> 1) % LinkType::SUPPORTED.len()];
    let Ok((mut settings, _)) = EngineSettings::from_settings(&SETTINGS, first & 1 == 1, [1, 2]) else {
        return;
    };
    settings.flow_capacity = 64;
    settings.checksums = bartizan_stages::settings::ChecksumMode::Ignore;
    // A link with a snap length: a frame may be cut, and its last byte gives the missing length.
    let is_cut = first & 0x80 != 0;
    settings.decoder = DecoderConfig { cut_frames: is_cut, ..crate::decode::open_config() };
    let Ok(mut worker) = Worker::new(settings, Arc::clone(&ENGINE), Arc::clone(&CHAINS)) else { return };
    let mut sink = Sink::default();
    let (mut now, mut number) = (1_000_000_000_000u64, 0);
    while !take.is_empty() {
        now += u64::from(take.byte()) * 250_000_000;
        let len = usize::from(take.short());
        let bytes = take.bytes(len);
        number += 1;
        let missing = bytes.last().map_or(0, |last| u32::from(*last) * 16);
        let frame = Frame {
            now: Timestamp::from_nanos(now),
            bytes,
            wire_len: bytes.len() as u32 + if is_cut { missing } else { 0 },
            link_type,
            link: LinkId(0),
            number: Some(number),
        };
        worker.frame(&frame, &mut sink);
    }
    worker.shutdown(&mut sink);
    planted(sink.transactions > 0 && sink.alerts == 3);
}
