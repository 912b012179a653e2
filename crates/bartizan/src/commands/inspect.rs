// SPDX-License-Identifier: Apache-2.0
//! `bartizan inspect`: inspects capture files.

use crate::arguments::BuildArgs;
use crate::log::LogArgs;
use crate::signals;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::inspect::{self, InspectOptions, LevelSummary, Refused, Summary};
use bartizan_runtime::levels::Levels;
use std::path::PathBuf;

/// Shown below `--help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan inspect --rules my.rules capture.pcap
  bartizan inspect --policy policy.yaml --ips --out out capture.pcap    # drops with reasons in out/eve.json
  bartizan inspect --policy policy.yaml --link wan --threads 4 a.pcapng.zst
  bartizan inspect --rules my.rules captures/                           # all captures of a folder, the oldest file first
  tcpdump -i eth0 -w - | bartizan inspect --rules my.rules -
  bartizan explain flow capture.pcap --policy policy.yaml               # what happened to each flow, and why";

/// Arguments.
#[derive(clap::Args)]
pub struct InspectArgs {
    #[command(flatten)]
    build: BuildArgs,
    /// Log lines.
    #[command(flatten)]
    pub log: LogArgs,
    /// Name of the link that the capture comes from, for policies that name links; repeated for further
    /// captures.
    #[arg(long, value_name = "NAME")]
    link: Vec<String>,
    /// Inspect only packets that this filter passes, in tcpdump's language (pcap-filter(7)): `--filter 'not
    /// port 22'`. Needs libpcap.
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Prevention over captures: drop, reject and pass act as they would inline.
    #[arg(long)]
    ips: bool,
    /// Folder for eve.json, stats.json and files; made if missing. [default: bartizan-out, or the
    /// `default-log-dir` of a suricata.yaml]
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    out: Option<PathBuf>,
    /// Workers that inspect in parallel; the results are the same.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// For tests: flows move between workers at random, by this seed; the results are the same.
    #[arg(long, value_name = "SEED", hide = true)]
    move_flows: Option<u64>,
    /// A level below the worker that sees the frames first, and handles packets of decided flows: `rtl`, the
    /// model of the SmartNIC, in a program that was built with it.
    #[arg(long, value_name = "LEVEL", visible_alias = "device")]
    offload: Option<String>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Capture files: pcap or pcapng, plain, gzip or zstd; a folder means the captures in it, the oldest
    /// first; `-` is standard input.
    #[arg(required = true, value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    let options = InspectOptions {
        build: args.build.options(),
        links: args.link.clone(),
        filter: args.filter.clone(),
        prevention: args.ips,
        out: args.out.clone(),
        threads: args.threads,
        move_flows: args.move_flows,
        captures: args.captures.clone(),
        offload: args.offload.clone(),
        levels: Levels::default(),
    };
    let done = inspect::run(&options, signals::install()?)?;
    print_summary(&done.summary, args.json)?;
    match done.failure {
        Some(failure) => Err(failure),
        None if done.is_complete => Ok(Exit::Done),
        None => Ok(Exit::Stopped),
    }
}

fn print_refused(refused: &Refused) {
    let word = if refused.dropped { "dropped" } else { "would be dropped (--ips drops)" };
    println!("{} packets {word}", refused.packets);
    for by in &refused.by {
        let policy = by.policy.as_deref().map_or("no flow".to_owned(), |p| format!("policy {p}"));
        println!("    {} {} by {}, {policy}", by.packets, by.reason, by.function);
    }
}

fn print_summary(summary: &Summary, json: bool) -> Result<(), Failure> {
    // Events are written by now; a reader of the summary may stop reading.
    signals::end_with_the_pipe();
    if json {
        let text = serde_json::to_string_pretty(summary).map_err(Failure::stopped)?;
        println!("{text}");
        return Ok(());
    }
    println!("{} packets, {} bytes, {} flows", summary.packets, summary.bytes, summary.flows);
    if let Some(LevelSummary { level, frames, up, forwarded, dropped, counters }) = &summary.level {
        println!("{level}: {frames} frames, {up} up, {forwarded} forwarded, {dropped} dropped");
        for (name, count) in counters {
            println!("    {count} {}", name.to_lowercase());
        }
    }
    let alerts: u64 = summary.alerts.values().sum();
    println!("{alerts} alerts of {} rules", summary.alerts.len());
    if let Some(refused) = &summary.refused {
        print_refused(refused);
    }
    let refused: u64 = summary.rules.refused.values().sum();
    println!("rules: {} loaded, {refused} refused, {} skipped", summary.rules.loaded, summary.rules.skipped);
    for (reason, count) in &summary.rules.refused {
        println!("    {count} refused: {reason}");
    }
    for (name, count) in &summary.rules.unsupported_protocols {
        println!("        {count} of the protocol {name}");
    }
    for (name, count) in &summary.rules.unsupported_keywords {
        println!("        {count} with {name}");
    }
    println!("patterns: {}", summary.patterns);
    println!(
        "{:.3} s to load, {:.3} s to inspect, {} {}",
        summary.seconds.load,
        summary.seconds.inspect,
        summary.threads,
        if summary.threads == 1 { "thread" } else { "threads" }
    );
    if summary.filtered > 0 {
        println!("{} packets excluded by --filter", summary.filtered);
    }
    for why in &summary.incomplete {
        println!("incomplete: {why}");
    }
    if !summary.skipped.is_empty() {
        println!("{} files of the folders were skipped", summary.skipped.len());
    }
    match summary.events_lost {
        0 => println!("events: {}", summary.eve.display()),
        lost => println!("events: {}, {lost} lost", summary.eve.display()),
    }
    Ok(())
}
