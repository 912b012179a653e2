// SPDX-License-Identifier: Apache-2.0
//! `bartizan explain flow`: for a 5-tuple the policy's decision, for a capture the history of its flows.

use super::flow_text;
use crate::arguments::BuildArgs;
use crate::commands::ctl::running::{self, To};
use bartizan_api::control::command;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::explain::flow::{self, CaptureFlow, FlowContext};
use bartizan_runtime::offline::OfflineGeneration;
use bartizan_runtime::tuple::{self, FlowTuple};
use serde::Serialize;
use std::path::{Path, PathBuf};

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
pub struct ExplainFlowArgs {
    /// A flow (`tcp 10.0.0.1:40000 192.0.2.7:80`; IPv6 as `[2001:db8::1]:80`; without a port any), or a
    /// capture file.
    #[arg(value_name = "TUPLE|CAPTURE", required_unless_present = "capture")]
    subject: Vec<String>,
    /// Capture file: pcap or pcapng, plain, gzip or zstd.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// The flow of the capture: a 5-tuple, or the number of one of its packets. All unless given.
    #[arg(long, value_name = "TUPLE|NUMBER")]
    flow: Option<String>,
    /// Ask a running program about its live flow: its disposition, the level that handles it, and why not a
    /// lower one (`bartizan ctl explain-flow`).
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
    /// Link that the flow, or the capture, arrives by: a name of the policy.
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

/// The subject of an explanation.
enum ExplainSubject {
    Tuple(FlowTuple),
    Capture(PathBuf),
}

/// Explains a flow.
pub fn run(args: &ExplainFlowArgs) -> Result<Exit, Failure> {
    if args.live {
        return live(args);
    }
    if args.to.socket.is_some() {
        return Err(Failure::usage("--socket names a running program; use it with --live"));
    }
    let asked = subject(args)?;
    if matches!(asked, ExplainSubject::Tuple(_)) && args.build.policy.is_none() {
        return Err(Failure::usage(
            "without a policy every flow has the chain `ids`; name a policy with --policy FILE, or ask a running program with --live",
        ));
    }
    // Before anything is compiled, so that a wrong flow is refused at once.
    let wanted = args.flow.as_deref().map(CaptureFlow::parse).transpose()?;
    let generation = OfflineGeneration::build(&args.build.options(), args.ips)?;
    match asked {
        ExplainSubject::Tuple(tuple) => one(args, &generation, &tuple),
        ExplainSubject::Capture(path) => capture(args, &generation, &path, wanted.as_ref()),
    }
}

/// Asks a running program.
fn live(args: &ExplainFlowArgs) -> Result<Exit, Failure> {
    let spec = command("explain-flow").ok_or_else(|| Failure::usage("there is no such command"))?;
    let request = spec.request(&args.subject).map_err(Failure::usage)?;
    running::run_command(&args.to, &request, args.json)
}

fn subject(args: &ExplainFlowArgs) -> Result<ExplainSubject, Failure> {
    let text = args.subject.join(" ");
    match (&args.capture, args.subject.as_slice()) {
        (Some(path), []) => Ok(ExplainSubject::Capture(path.clone())),
        (Some(_), _) => Err(Failure::usage(format!(
            "`{text}`: with --capture the flow is named with --flow; write --flow '{text}'"
        ))),
        (None, _) if tuple::is_meant(&text) => {
            if args.flow.is_some() {
                return Err(Failure::usage(
                    "--flow selects a flow of a capture; name a capture, or remove --flow",
                ));
            }
            Ok(ExplainSubject::Tuple(tuple::parse(&text).map_err(Failure::usage)?))
        }
        (None, [path]) if Path::new(path).exists() => Ok(ExplainSubject::Capture(path.into())),
        (None, _) => Err(Failure::usage(format!(
            "`{text}` is neither a flow nor an existing capture file; {}, or check the path",
            tuple::FORM
        ))),
    }
}

/// Explains a flow by its 5-tuple.
fn one(args: &ExplainFlowArgs, generation: &OfflineGeneration, tuple: &FlowTuple) -> Result<Exit, Failure> {
    let (tenant, link) = (args.tenant.clone(), args.link.clone());
    let context = FlowContext { tenant, link, vlans: args.vlan.clone(), vni: args.vni };
    let question = flow::question(generation, tuple, &context)?;
    let explanation = flow::explained(generation, &question)?;
    if args.json {
        let mut json = serde_json::to_value(&explanation).map_err(Failure::stopped)?;
        if let Some(json) = json.as_object_mut() {
            json.insert("flow".to_owned(), flow::as_json(&question, args.link.as_deref()));
        }
        print_json(&json)?;
    } else {
        flow_text::print_explanation(&question, &explanation);
    }
    match &explanation.disagreement {
        Some(disagreement) => Err(Failure::stopped(disagreement)),
        None => Ok(Exit::Done),
    }
}

/// Explains the flows of a capture.
fn capture(
    args: &ExplainFlowArgs,
    generation: &OfflineGeneration,
    path: &Path,
    wanted: Option<&CaptureFlow>,
) -> Result<Exit, Failure> {
    let only_tuples = [
        ("--tenant", args.tenant.is_some()),
        ("--vlan", !args.vlan.is_empty()),
        ("--vni", args.vni.is_some()),
    ];
    if let Some((option, _)) = only_tuples.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "{option} applies to a 5-tuple; the packets of a capture determine it"
        )));
    }
    let link = generation.link(args.link.as_deref())?;
    let explained = flow::capture(generation, path, link, wanted)?;
    let (prevention, omitted) = (explained.prevention, explained.omitted);
    if args.json {
        let json = serde_json::json!({
            "capture": path.display().to_string(),
            "frames": explained.frames,
            "prevention": prevention,
            "flows": explained.flows,
            "omitted": omitted,
        });
        print_json(&json)?;
    } else if wanted.is_some() {
        explained.flows.iter().for_each(|flow| flow_text::print_history(flow, prevention));
    } else {
        flow_text::print_list(&explained.flows, prevention);
    }
    if omitted > 0 {
        eprintln!("note: {omitted} further flows are omitted; select one with --flow");
    }
    Ok(Exit::Done)
}

/// Prints a result.
pub fn print_json(json: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(json).map_err(Failure::stopped)?);
    Ok(())
}
