// SPDX-License-Identifier: Apache-2.0
//! Explanations of flows: for a 5-tuple the policy's decision, for a capture the history of its flows.

use crate::captures::frames;
use crate::error::Failure;
use crate::offline::OfflineGeneration;
use crate::tuple::{self, ANY_PORT, FlowTuple};
use bartizan_agent::explain::{FlowExplanation, FlowQuestion, explain};
use bartizan_base::{LinkId, TenantId};
use bartizan_dataplane::explain::history::{FlowHistory, Histories, HistoryFilter, Watcher, flow_of};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Facts of a flow that its 5-tuple does not have.
#[derive(Clone, Default)]
pub struct FlowContext {
    /// Tenant; if absent, the policy's selectors decide.
    pub tenant: Option<String>,
    /// Link that the flow enters by; if absent, one that no policy names.
    pub link: Option<String>,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// VXLAN network.
    pub vni: Option<u32>,
}

/// A selection among the flows of a capture.
pub enum CaptureFlow {
    /// The flows of a 5-tuple, with its text.
    Tuple(FlowTuple, String),
    /// The flow of a packet, by its number from 1.
    Packet(u64),
}

impl CaptureFlow {
    /// Parses a selection: a number or a 5-tuple.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text.trim().parse::<u64>() {
            Ok(0) => Err(Failure::usage("packets of a capture are numbered from 1")),
            Ok(number) => Ok(CaptureFlow::Packet(number)),
            Err(_) => {
                let parsed = tuple::parse(text).map_err(|error| {
                    Failure::usage(format!("--flow: {error}, or the number of a packet of the flow"))
                })?;
                Ok(CaptureFlow::Tuple(parsed, text.to_owned()))
            }
        }
    }
}

/// A flow of a capture, with the explanation of its policy.
#[derive(Serialize)]
pub struct ExplainedFlow {
    /// The policy's reasons for the flow's treatment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<FlowExplanation>,
    /// History of the flow.
    pub history: FlowHistory,
}

/// The flows of a capture.
pub struct ExplainedCapture {
    /// Whether refusals were enforced.
    pub prevention: bool,
    /// Frames of the capture.
    pub frames: u64,
    /// The flows that were kept.
    pub flows: Vec<ExplainedFlow>,
    /// Number of flows that were not kept.
    pub omitted: u64,
}

/// The flow question for a 5-tuple: its first packet.
///
/// # Errors
/// There is no policy, the policy does not have a name, or the destination port is missing.
pub fn question(
    generation: &OfflineGeneration,
    tuple: &FlowTuple,
    context: &FlowContext,
) -> Result<FlowQuestion, Failure> {
    let tenant = generation.tenant(context.tenant.as_deref())?;
    let ports = matches!(tuple.protocol, 6 | 17 | 132);
    if ports && tuple.destination.1.is_none() {
        return Err(Failure::usage(format!(
            "the destination port is missing; write for example `{}:80`",
            if tuple.destination.0.is_ipv6() {
                format!("[{}]", tuple.destination.0)
            } else {
                tuple.destination.0.to_string()
            }
        )));
    }
    Ok(FlowQuestion {
        protocol: tuple.protocol,
        source: Some((tuple.source.0, tuple.source.1.unwrap_or(if ports { ANY_PORT } else { 0 }))),
        destination: Some((tuple.destination.0, tuple.destination.1.unwrap_or(0))),
        icmp: tuple.icmp,
        tenant,
        link: generation.link(context.link.as_deref())?,
        vlans: context.vlans.clone(),
        vni: context.vni,
        tenant_from: None,
    })
}

/// The flow of a question as JSON; `link`: name of its link.
pub fn as_json(question: &FlowQuestion, link: Option<&str>) -> Value {
    let mut flow = Map::new();
    flow.insert("protocol".to_owned(), question.protocol.into());
    for (name, end) in [("src", question.source), ("dest", question.destination)] {
        if let Some((address, port)) = end {
            flow.insert(format!("{name}_ip"), address.to_string().into());
            if port != 0 {
                flow.insert(format!("{name}_port"), port.into());
            }
        }
    }
    if let Some((kind, code)) = question.icmp {
        flow.insert("icmp".to_owned(), json!({"type": kind, "code": code}));
    }
    if !question.vlans.is_empty() {
        flow.insert("vlan".to_owned(), question.vlans.clone().into());
    }
    if let Some(vni) = question.vni {
        flow.insert("vni".to_owned(), vni.into());
    }
    if let Some(link) = link {
        flow.insert("link".to_owned(), link.into());
    }
    flow.into()
}

/// Explains why the policy treats a flow as it does.
///
/// # Errors
/// There is no policy, or it cannot explain such a flow.
pub fn explained(
    generation: &OfflineGeneration,
    question: &FlowQuestion,
) -> Result<FlowExplanation, Failure> {
    explain(&generation.subject()?, question).map_err(Failure::input)
}

/// Explains the flows of a capture that entered by a link; without a selection all of them.
///
/// # Errors
/// The capture cannot be read, or has no selected flow.
pub fn capture(
    generation: &OfflineGeneration,
    path: &Path,
    link: LinkId,
    wanted: Option<&CaptureFlow>,
) -> Result<ExplainedCapture, Failure> {
    let Histories { prevention, frames, flows, omitted } = histories(generation, path, link, wanted)?;
    let mut explained_flows = Vec::new();
    for history in flows {
        let policy = match &generation.built.policy {
            Some(_) => Some(explained(generation, &question_of(&history))?),
            None => None,
        };
        explained_flows.push(ExplainedFlow { policy, history });
    }
    Ok(ExplainedCapture { prevention, frames, flows: explained_flows, omitted })
}

/// The histories of the selected flows.
fn histories(
    generation: &OfflineGeneration,
    path: &Path,
    link: LinkId,
    wanted: Option<&CaptureFlow>,
) -> Result<Histories, Failure> {
    let select = match wanted {
        None => None,
        Some(CaptureFlow::Tuple(tuple, _)) => {
            Some(HistoryFilter { protocol: Some(tuple.protocol), ends: [tuple.source, tuple.destination] })
        }
        Some(CaptureFlow::Packet(number)) => Some(select_packet(generation, path, link, *number)?),
    };
    let built = &generation.built;
    let (settings, engine) = (&generation.settings, &generation.engine);
    let mut watcher = Watcher::new(&built.chains, settings, engine, select, &built.function_names)
        .map_err(Failure::stopped)?;
    frames(path, link, |frame| {
        watcher.frame(frame);
        true
    })?;
    let mut histories = watcher.finish();
    if let Some(CaptureFlow::Packet(number)) = wanted {
        histories.flows.retain(|flow| (flow.frames.0..=flow.frames.1).contains(number));
    }
    if histories.flows.is_empty() {
        let what = match wanted {
            None => "no flow at all".to_owned(),
            Some(CaptureFlow::Packet(number)) => format!("no flow of packet {number}"),
            Some(CaptureFlow::Tuple(_, text)) => format!("no flow `{text}`"),
        };
        return Err(Failure::input(format!(
            "{} has {what} in its {} packets; `bartizan explain flow {}` lists its flows",
            path.display(),
            histories.frames,
            path.display()
        )));
    }
    Ok(histories)
}

/// The flow question for a flow of a capture.
fn question_of(history: &FlowHistory) -> FlowQuestion {
    let ends = &history.ends;
    FlowQuestion {
        protocol: ends.protocol,
        source: Some((ends.src_ip, ends.src_port)),
        destination: Some((ends.dest_ip, ends.dest_port)),
        icmp: history.icmp,
        tenant: Some(TenantId(history.tenant)),
        link: LinkId(history.link),
        vlans: history.vlans.clone(),
        vni: None,
        tenant_from: Some("as in the capture"),
    }
}

/// The flow of a packet of a capture.
fn select_packet(
    generation: &OfflineGeneration,
    path: &Path,
    link: LinkId,
    number: u64,
) -> Result<HistoryFilter, Failure> {
    let mut found = None;
    let mut count = 0;
    frames(path, link, |frame| {
        count += 1;
        if frame.number == Some(number) {
            found = Some(flow_of(&generation.settings, frame));
        }
        found.is_none()
    })?;
    match found {
        Some(Ok(select)) => Ok(select),
        Some(Err(why)) => {
            Err(Failure::input(format!("packet {number} of {} has no flow: {why}", path.display())))
        }
        None => Err(Failure::input(format!(
            "{} has no packet {number}: it has {count} packets, numbered from 1",
            path.display()
        ))),
    }
}
