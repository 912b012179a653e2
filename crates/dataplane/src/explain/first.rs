// SPDX-License-Identifier: Apache-2.0
//! The decisions of the chain on the first packet of a flow that is given by its 5-tuple.

use super::observe::{FunctionCall, How, observed, take};
use super::probe;
use crate::worker::{Frame, Worker};
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, LinkId, TenantId, Timestamp};
use bartizan_classify::Header;
use bartizan_flow::{FlowKey, FlowScope, TableError};
use bartizan_function::header::header_of_flow;
use bartizan_packet::LinkType;
use bartizan_stages::chain::{Chains, Class, HeaderRuleMatches, LookupExplained};
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_stages::settings::{ChecksumMode, EngineSettings};
use core::net::IpAddr;
use std::sync::Arc;

/// The flow to be explained, by its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowProbe {
    /// Tenant of the traffic.
    pub tenant: TenantId,
    /// Link that the packet enters by.
    pub link: LinkId,
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the side that opens the flow; both sides have the same IP version.
    pub source: (IpAddr, u16),
    /// Address and port of the other side.
    pub destination: (IpAddr, u16),
    /// ICMP: type and code; an echo request unless given.
    pub icmp: Option<(u8, u8)>,
}

impl FlowProbe {
    /// Type and code of an ICMP packet.
    #[must_use]
    pub fn icmp_numbers(&self) -> (u8, u8) {
        self.icmp.unwrap_or(if self.protocol == 58 { (128, 0) } else { (8, 0) })
    }

    /// The header fields of the classifier's lookup.
    #[must_use]
    pub fn header(&self) -> Header {
        let (kind, code) = self.icmp_numbers();
        header_of_flow(&self.key(), (u16::from(kind), u16::from(code)))
    }

    /// The flow's identity.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let scope = FlowScope { tenant: self.tenant, link: self.link, ..FlowScope::default() };
        match self.protocol {
            6 | 17 | 132 => FlowKey::ported(&scope, self.protocol, self.source, self.destination),
            1 | 58 => {
                let (kind, code) = self.icmp_numbers();
                FlowKey::icmp(&scope, self.protocol, self.source.0, self.destination.0, kind, code)
            }
            _ => FlowKey::other(&scope, self.protocol, self.source.0, self.destination.0),
        }
    }
}

/// Explanation of a flow's first packet.
#[derive(Clone, Debug)]
pub struct FirstPacket {
    /// The flow's class, from the classifier.
    pub class: Class,
    /// The lookup of the flow, step by step.
    pub lookup: Option<LookupExplained>,
    /// The calls of all functions in path order, also of those after a function that drops.
    pub calls: Vec<FunctionCall>,
    /// The packet's decision: the strictest of all calls, the first among equals.
    pub decision: Decision,
}

/// Arrival time of the packet.
const NOW: Timestamp = Timestamp::from_parts(1, 0);

/// Runs the chain on a flow's first packet. Refusals count as in prevention.
///
/// # Errors
/// There is no memory for a flow table of a few entries.
pub fn first_packet(
    chains: &Arc<Chains>,
    settings: &EngineSettings,
    engine: &Arc<Engine>,
    asked: &FlowProbe,
) -> Result<FirstPacket, TableError> {
    let (watched, calls) = observed(chains, Some(asked.tenant), How { details: true, go_on: true });
    let settings = EngineSettings {
        flow_capacity: 16,
        prevention: true,
        // The probe's transport header carries none.
        checksums: ChecksumMode::Ignore,
        ..settings.clone()
    };
    let mut worker = Worker::new(settings, Arc::clone(engine), watched)?;
    let bytes = probe::packet(asked);
    let frame = Frame {
        now: NOW,
        bytes: &bytes,
        wire_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        link_type: LinkType::RAW,
        link: asked.link,
        number: Some(1),
    };
    worker.frame(&frame, &mut Nobody);
    let calls = take(&calls);
    let decision = calls.iter().fold(Decision::CONTINUE, |all, call| all.strictest(call.decision));
    let header = asked.header();
    let class = chains.classifier.classify(&header, NOW, &mut HeaderRuleMatches::new());
    Ok(FirstPacket { class, lookup: chains.classifier.explain(&header, NOW), calls, decision })
}

/// A recorder that records nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Recorder for Nobody {
    fn record(&mut self, _: RecorderEvent<'_>) {}
}
