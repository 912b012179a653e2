// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain flow`: for a 5-tuple what the policy makes of it, for a capture what happened to its flows.

use super::flow_text;
use crate::arguments::BuildArgs;
use crate::commands::ctl::running::{self, To};
use bartizan_agent::explain::{FlowExplanation, FlowQuestion, Subject, explain};
use bartizan_api::control::command;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Generation, LinkId, TenantId};
use bartizan_dataplane::explain::history::{FlowHistory, Histories, Select, Watcher, flow_of};
use bartizan_dataplane::worker::Frame;
use bartizan_packet::LinkType;
use bartizan_packet::capture::CaptureReader;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::{
    Builder, Built, BuiltPolicy, find_link, find_tenant, reported, unnamed_link,
};
use bartizan_runtime::load;
use bartizan_runtime::tuple::{self, ANY_PORT, Tuple};
use bartizan_stages::settings::EngineSettings;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan explain flow tcp 10.0.0.1:40000 192.0.2.7:80 --policy policy.yaml
  bartizan explain flow icmp 2001:db8::1 2001:db8::2 --policy policy.yaml --vlan 102
  bartizan explain flow --live tcp 10.0.0.1:40000 192.0.2.7:80
  bartizan explain flow capture.pcap --policy policy.yaml --ips
  bartizan explain flow capture.pcap --flow 17 --rules my.rules
  bartizan explain flow --capture capture.pcap --flow 'udp 10.0.0.1 10.0.0.53:53' --json";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A flow (`tcp 10.0.0.1:40000 192.0.2.7:80`; IPv6 as `[2001:db8::1]:80`; without a port any), or a capture file.
    #[arg(value_name = "TUPLE|CAPTURE", required_unless_present = "capture")]
    subject: Vec<String>,
    /// Capture file: pcap or pcapng, plain, gzip or zstd.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Which flow of the capture: a 5-tuple, or the number of one of its packets. All unless given.
    #[arg(long, value_name = "TUPLE|NUMBER")]
    flow: Option<String>,
    /// Ask a running program about its live flow: what is decided of it, which level handles it, and why not a lower one (`bartizan ctl explain-flow`).
    #[arg(long, conflicts_with_all = ["capture", "flow", "policy", "ips"])]
    live: bool,
    #[command(flatten)]
    to: To,
    #[command(flatten)]
    build: BuildArgs,
    /// With a capture: prevention, refusals act.
    #[arg(long)]
    ips: bool,
    /// Tenant of the flow; else the policy's selectors decide.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Link that the flow, or the capture, comes in by: a name of the policy.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// VLAN id of the flow (repeated: outermost first).
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..4095))]
    vlan: Vec<u16>,
    /// VXLAN network of the flow.
    #[arg(long, value_name = "VNI", value_parser = clap::value_parser!(u32).range(0..=0xff_ffff))]
    vni: Option<u32>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// What a flow is asked about with.
enum Asked {
    Tuple(Tuple),
    Capture(PathBuf),
}

/// A flow of a capture, with what its policy says.
#[derive(Serialize)]
pub struct ExplainedFlow {
    /// Why it is treated as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<FlowExplanation>,
    /// What happened to it.
    pub history: FlowHistory,
}

/// A generation, and what it runs on.
struct Stage {
    built: Built,
    settings: EngineSettings,
    engine: Arc<Engine>,
}

/// Explains a flow.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.live {
        return live(args);
    }
    if args.to.socket.is_some() {
        return Err(Failure::usage("--socket names a running program, which is asked with --live"));
    }
    let asked = asked(args)?;
    if matches!(asked, Asked::Tuple(_)) && args.build.policy.is_none() {
        return Err(Failure::usage(
            "without a policy every flow has the same chain, ids alone; say which policy is asked with --policy FILE, or ask a running program with --live",
        ));
    }
    // Before anything is compiled: a wrong flow costs nothing.
    let wanted = args.flow.as_deref().map(Wanted::parse).transpose()?;
    let mut builder = Builder::for_captures(&args.build.options(), Path::new(""))?;
    let built = reported(&mut builder, |builder| builder.build(Generation(1)))?;
    // The hash needs no secret here: nobody waits for these flows.
    let (settings, _) = EngineSettings::from_settings(builder.settings(), args.ips, [1, 2])
        .map_err(Failure::setting(builder.settings()))?;
    let engine =
        Arc::new(load::app_layer(builder.settings(), &built.needs, load::Mode::over_captures(args.ips))?);
    let stage = Stage { built, settings, engine };
    match asked {
        Asked::Tuple(tuple) => one(args, &stage, &tuple),
        Asked::Capture(path) => capture(args, &stage, &path, wanted),
    }
}

/// Asks a running program.
fn live(args: &Args) -> Result<Exit, Failure> {
    let spec = command("explain-flow").ok_or_else(|| Failure::usage("there is no such command"))?;
    let request = spec.request(&args.subject).map_err(Failure::usage)?;
    running::give(&args.to, &request, args.json)
}

fn asked(args: &Args) -> Result<Asked, Failure> {
    let text = args.subject.join(" ");
    match (&args.capture, args.subject.as_slice()) {
        (Some(path), []) => Ok(Asked::Capture(path.clone())),
        (Some(_), _) => Err(Failure::usage(format!(
            "`{text}`: with --capture the flow is named with --flow; write --flow '{text}'"
        ))),
        (None, _) if tuple::is_meant(&text) => {
            if args.flow.is_some() {
                return Err(Failure::usage(
                    "--flow chooses a flow of a capture; give a capture, or leave it out",
                ));
            }
            Ok(Asked::Tuple(tuple::parse(&text).map_err(Failure::usage)?))
        }
        (None, [path]) if Path::new(path).exists() => Ok(Asked::Capture(path.into())),
        (None, _) => Err(Failure::usage(format!(
            "`{text}` is neither a flow nor a capture file that is there; {}, or check the path",
            tuple::FORM
        ))),
    }
}

/// The flow of a capture that is asked about.
enum Wanted {
    Flow(Tuple),
    Packet(u64),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.trim().parse::<u64>() {
            Ok(0) => Err(Failure::usage("packets of a capture are numbered from 1")),
            Ok(number) => Ok(Wanted::Packet(number)),
            Err(_) => tuple::parse(text).map(Wanted::Flow).map_err(|error| {
                Failure::usage(format!("--flow: {error}, or give the number of one of its packets"))
            }),
        }
    }
}

/// A flow by its 5-tuple.
fn one(args: &Args, stage: &Stage, tuple: &Tuple) -> Result<Exit, Failure> {
    let Some(policy) = &stage.built.policy else { return Err(Failure::usage("give --policy FILE")) };
    let tenant = args
        .tenant
        .as_deref()
        .map(|name| find_tenant(&policy.file.name, &policy.tenant_ids, name))
        .transpose()?;
    let ports = matches!(tuple.protocol, 6 | 17 | 132);
    if ports && tuple.destination.1.is_none() {
        return Err(Failure::usage(format!(
            "the port of the side that is spoken to is missing; write `{}:80`, or whatever it is",
            if tuple.destination.0.is_ipv6() {
                format!("[{}]", tuple.destination.0)
            } else {
                tuple.destination.0.to_string()
            }
        )));
    }
    let question = FlowQuestion {
        protocol: tuple.protocol,
        source: Some((tuple.source.0, tuple.source.1.unwrap_or(if ports { ANY_PORT } else { 0 }))),
        destination: Some((tuple.destination.0, tuple.destination.1.unwrap_or(0))),
        icmp: tuple.icmp,
        tenant,
        link: link(args, Some(policy))?,
        vlans: args.vlan.clone(),
        vni: args.vni,
        tenant_from: None,
    };
    let told = explained(stage, policy, &question)?;
    if args.json {
        let mut json = serde_json::to_value(&told).map_err(Failure::stopped)?;
        if let Some(json) = json.as_object_mut() {
            json.insert("flow".to_owned(), flow_text::flow_json(&question, args.link.as_deref()));
        }
        print_json(&json)?;
    } else {
        flow_text::print_explanation(&question, &told);
    }
    if let Some(disagreement) = &told.disagreement {
        return Err(Failure::stopped(disagreement));
    }
    Ok(Exit::Done)
}

fn explained(
    stage: &Stage,
    policy: &BuiltPolicy,
    question: &FlowQuestion,
) -> Result<FlowExplanation, Failure> {
    let subject = Subject {
        file: &policy.file,
        classes: &policy.classes,
        tenants: &policy.tenants,
        tenant_ids: &policy.tenant_ids,
        links: &policy.links,
        chains: &stage.built.chains,
        functions: &stage.built.function_names,
        settings: &stage.settings,
        engine: &stage.engine,
    };
    explain(&subject, question).map_err(Failure::input)
}

fn link(args: &Args, policy: Option<&BuiltPolicy>) -> Result<LinkId, Failure> {
    let known = policy.map(|p| p.links.as_slice()).unwrap_or_default();
    match &args.link {
        Some(name) => find_link(known, name),
        None => Ok(unnamed_link(known)),
    }
}

/// The flows of a capture.
fn capture(args: &Args, stage: &Stage, path: &Path, wanted: Option<Wanted>) -> Result<Exit, Failure> {
    let only_tuples = [
        ("--tenant", args.tenant.is_some()),
        ("--vlan", !args.vlan.is_empty()),
        ("--vni", args.vni.is_some()),
    ];
    if let Some((option, _)) = only_tuples.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "{option} is for a 5-tuple; a capture's packets say it themselves"
        )));
    }
    let link = link(args, stage.built.policy.as_ref())?;
    let select = match &wanted {
        None => None,
        Some(Wanted::Flow(tuple)) => {
            Some(Select { protocol: Some(tuple.protocol), ends: [tuple.source, tuple.destination] })
        }
        Some(Wanted::Packet(number)) => Some(select_packet(stage, path, link, *number)?),
    };
    let mut watcher = Watcher::new(
        &stage.built.chains,
        &stage.settings,
        &stage.engine,
        select,
        &stage.built.function_names,
    )
    .map_err(Failure::stopped)?;
    frames(path, link, |frame| {
        watcher.frame(frame);
        true
    })?;
    let mut histories = watcher.finish();
    if let Some(Wanted::Packet(number)) = wanted {
        histories.flows.retain(|flow| (flow.frames.0..=flow.frames.1).contains(&number));
    }
    if histories.flows.is_empty() {
        let what = match &wanted {
            None => "no flow at all".to_owned(),
            Some(Wanted::Packet(number)) => format!("no flow that packet {number} belongs to"),
            Some(Wanted::Flow(_)) => format!("no flow `{}`", args.flow.as_deref().unwrap_or_default()),
        };
        return Err(Failure::input(format!(
            "{} has {what} in its {} packets; `bartizan explain flow {}` lists those that it has",
            path.display(),
            histories.frames,
            path.display()
        )));
    }
    tell(args, stage, path, histories, wanted.is_some())
}

fn tell(
    args: &Args,
    stage: &Stage,
    path: &Path,
    histories: Histories,
    in_full: bool,
) -> Result<Exit, Failure> {
    let Histories { prevention, frames, flows, omitted } = histories;
    let mut told = Vec::new();
    for history in flows {
        let policy = match &stage.built.policy {
            Some(policy) => Some(explained(stage, policy, &question_of(&history))?),
            None => None,
        };
        told.push(ExplainedFlow { policy, history });
    }
    if args.json {
        let json = serde_json::json!({
            "capture": path.display().to_string(),
            "frames": frames,
            "prevention": prevention,
            "flows": told,
            "omitted": omitted,
        });
        print_json(&json)?;
    } else if in_full {
        told.iter().for_each(|flow| flow_text::print_history(flow, prevention));
    } else {
        flow_text::print_list(&told, prevention);
    }
    if omitted > 0 {
        eprintln!("note: {omitted} further flows are left out; choose one with --flow");
    }
    Ok(Exit::Done)
}

/// The question that a flow of a capture answers.
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
fn select_packet(stage: &Stage, path: &Path, link: LinkId, number: u64) -> Result<Select, Failure> {
    let mut found = None;
    let mut count = 0;
    frames(path, link, |frame| {
        count += 1;
        if frame.number == Some(number) {
            found = Some(flow_of(&stage.settings, frame));
        }
        found.is_none()
    })?;
    match found {
        Some(Ok(select)) => Ok(select),
        Some(Err(why)) => {
            Err(Failure::input(format!("packet {number} of {} has no flow: {why}", path.display())))
        }
        None => Err(Failure::input(format!(
            "{} has no packet {number}: it has {count}, numbered from 1",
            path.display()
        ))),
    }
}

/// Reads a capture until its end or until `take` has enough.
pub fn frames(path: &Path, link: LinkId, mut take: impl FnMut(&Frame<'_>) -> bool) -> Result<(), Failure> {
    let file = bartizan_runtime::input::open(path, "capture")?;
    let mut reader = CaptureReader::new(file, path.display().to_string()).map_err(Failure::input)?;
    let mut number = 0;
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                number += 1;
                let frame = Frame {
                    now: record.timestamp,
                    bytes: record.data,
                    wire_len: record.wire_len,
                    link_type: LinkType::from_capture(u16::try_from(record.link_type).unwrap_or(u16::MAX)),
                    link,
                    number: Some(number),
                };
                if !take(&frame) {
                    return Ok(());
                }
            }
            Ok(None) => break,
            Err(error) => {
                eprintln!("warning: {error}; read as far as it goes");
                break;
            }
        }
    }
    if let Some(notice) = reader.status().notice() {
        eprintln!("note: {}: {notice}", path.display());
    }
    Ok(())
}

/// Prints a result.
pub fn print_json(json: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(json).map_err(Failure::stopped)?);
    Ok(())
}
