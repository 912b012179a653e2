// SPDX-License-Identifier: Apache-2.0
//! Arguments that several commands share, and the options of the runtime that they become.

use crate::log;
use bartizan_config::host::{self, Snap};
use bartizan_config::policy::values::Share;
use bartizan_runtime::firewall::FirewallOptions;
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::levels::Levels;
use bartizan_runtime::plan::RunOptions;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options for the cache of compiled patterns.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CacheArgs {
    /// Folder for compiled patterns, so that the next start is faster; `none` for none [default:
    /// /var/cache/bartizan
    /// for root, else `bartizan` in the user's cache folder].
    #[arg(long, value_name = "DIR|none")]
    pub cache: Option<PathBuf>,
}

/// Firewall mode.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FirewallArgs {
    /// Firewall mode: only packets that a firewall rule accepts pass, and go to detection. The rules are in
    /// `firewall.rule-files`.
    #[arg(long)]
    pub firewall: bool,
    /// Firewall mode with the rules of this file instead of those that the settings name.
    #[arg(long, value_name = "FILE")]
    pub firewall_rules_exclusive: Option<PathBuf>,
}

impl FirewallArgs {
    /// Converts these to options of a build.
    pub fn options(&self) -> FirewallOptions {
        FirewallOptions {
            firewall: self.firewall,
            firewall_rules_exclusive: self.firewall_rules_exclusive.clone(),
        }
    }
}

/// Inputs of a generation: rules, policies, settings.
#[derive(clap::Args, Clone, Default)]
pub struct BuildArgs {
    /// Rule file (may be repeated); plain, gzip or zstd.
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Settings from a suricata.yaml instead of Suricata's shipped ones.
    #[arg(long, value_name = "FILE")]
    pub suricata_config: Option<PathBuf>,
    /// Override one setting, for example `stream.midstream=true`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Policy file: who may talk to whom, and which functions inspect. Without one the chain is `ids` alone.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    #[command(flatten)]
    pub firewall: FirewallArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Treat as errors: settings that are misspelt, whose loss weakens, or whose events are not written, and
    /// all rules that are left out.
    #[arg(long)]
    pub strict: bool,
}

impl BuildArgs {
    /// Converts these to options of a build whose diagnostics are printed.
    pub fn options(&self) -> BuildOptions {
        BuildOptions {
            rules: self.rules.clone(),
            suricata_config: self.suricata_config.clone(),
            overrides: self.overrides.clone(),
            policy: self.policy.clone(),
            firewall: self.firewall.options(),
            cache: self.cache.cache.clone(),
            strict: self.strict,
            report: log::report(),
            ..BuildOptions::default()
        }
    }
}

/// Options of `run`.
#[derive(clap::Args, Clone, Default)]
pub struct RunArgs {
    /// Host file: links, workers, bounds, outputs, metrics, rules, policy. Options of the command line
    /// override it.
    #[arg(short = 'c', long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Forward between two interfaces: `--inline eth0 eth1`. Packets that the chain refuses do not pass.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "tap")]
    pub inline: Option<Vec<String>>,
    /// Watch one interface; nothing is forwarded or refused.
    #[arg(long, value_name = "INTERFACE")]
    pub tap: Option<String>,
    /// With a tap: inspect only packets that this filter passes, in tcpdump's language (pcap-filter(7)):
    /// `--filter 'not port 22'`. Needs libpcap.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "inline")]
    pub filter: Option<String>,
    /// With a tap: inspect this number of bytes of each frame, from 128 to 65535, or the headers and this
    /// number of bytes after them: `layer4+64`. Flows are counted with their length on the wire, and
    /// payloads are inspected as far as they were captured.
    #[arg(long, value_name = "BYTES|LAYER+BYTES", conflicts_with = "inline", value_parser = snap_length)]
    pub snap_length: Option<Snap>,
    #[command(flatten)]
    pub build: BuildArgs,
    /// With an inline link: a level below this program that forwards and drops packets of flows whose
    /// verdict is final. `xdp`: the kernel's XDP hook of both interfaces. `rtl`: the model of the SmartNIC,
    /// in a program that was built with it.
    #[arg(long, value_name = "LEVEL", visible_alias = "device", requires = "inline", conflicts_with = "tap", value_parser = offload_level)]
    pub offload: Option<String>,
    /// Only report refusals, also inline.
    #[arg(long)]
    pub detect: bool,
    /// Switch off the interfaces' offloads while running, and on again at the end.
    #[arg(long)]
    pub fix_offloads: bool,
    /// Workers that share the traffic, each flow on one of them [default: 1, with a host file one per
    /// processor]. Each is pinned to its own processor if another one is free for everything else. Several
    /// links of a host file share them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Time to poll for packets before sleeping, in microseconds; 50 unless the workers need all
    /// processors, then 0.
    #[arg(long, value_name = "MICROSECONDS")]
    pub spin: Option<u64>,
    /// Let idle processors sleep as deep as they like, also while packets come. Without this option, the
    /// program asks the kernel (by /dev/cpu_dma_latency) to keep them awake as long as an inline link has
    /// traffic, which takes tens of microseconds off a packet's latency.
    #[arg(long)]
    pub save_power: bool,
    /// Largest share of the running rules that a reload may remove, for example `25%` [default: 10%].
    #[arg(long, value_name = "SHARE")]
    pub max_loss: Option<Share>,
    /// Accept rule files with malformed lines, and files that have no rules any more, at a reload.
    #[arg(long)]
    pub accept_malformed: bool,
    /// Folder for eve.json and stats.json; made if it is not there [default: bartizan-out, or the
    /// `default-log-dir` of a suricata.yaml].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the process number into a file, for programs that send signals; the file is removed when the run
    /// ends.
    #[arg(long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// The path of the socket for commands (`bartizan ctl`, Suricata's tools); `none` for no socket
    /// [default: control.socket in /run/bartizan, of other users in their own, or the `unix-command` of a
    /// suricata.yaml].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics, for example on 127.0.0.1:9100; off unless
    /// given.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub metrics: Option<SocketAddr>,
}

impl RunArgs {
    /// Converts these to options of a run.
    pub fn options(&self) -> RunOptions {
        let of = self.clone();
        RunOptions {
            guest: None,
            config: of.config,
            inline: of.inline,
            tap: of.tap,
            filter: of.filter,
            snap_length: of.snap_length,
            options: of.build.options(),
            offload: of.offload,
            levels: Levels::default(),
            detect: of.detect,
            fix_offloads: of.fix_offloads,
            workers: of.workers,
            spin: of.spin,
            save_power: of.save_power,
            max_loss: of.max_loss,
            accept_malformed: of.accept_malformed,
            out: of.out,
            pidfile: of.pidfile,
            control: of.control,
            metrics: of.metrics,
        }
    }
}

/// Parses an address with port; the error says how to write one.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    host::listen_address(text)
}

/// Parses a level; the error lists them.
fn offload_level(text: &str) -> Result<String, String> {
    Levels::default().of_name(text).map(|level| level.name().to_owned())
}

/// Parses a snap length; the error says how to write one.
fn snap_length(text: &str) -> Result<Snap, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn line(arguments: &[&str]) -> Result<RunOptions, String> {
        let line = ["run"].iter().chain(arguments).copied();
        Line::try_parse_from(line).map(|line| line.args.options()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_snap_length_is_for_taps() {
        for (bytes, says) in [
            ("127", "give 128 to 65535"),
            ("65536", "give 128 to 65535"),
            ("0", "give 128 to 65535"),
            ("many", "give 128 to 65535 bytes of a frame, or a layer"),
            ("layer3+59", "give 60 to 65535"),
        ] {
            let error = line(&["--tap", "e0", "--snap-length", bytes]).err().unwrap();
            assert!(error.contains(says), "{error}");
        }
        assert!(line(&["--tap", "e0", "--snap-length", "layer4+0"]).is_ok());
        assert!(line(&["--inline", "e0", "e1", "--snap-length", "128"]).is_err());
        let longest = line(&["--tap", "e0", "--snap-length", "65535"]).ok().unwrap();
        assert_eq!(longest.snap_length, Some(Snap::Frame(65535)));
    }

    #[test]
    fn every_argument_of_a_run_becomes_its_option() {
        let all = [
            "-c",
            "f.yaml",
            "--inline",
            "a",
            "b",
            "--rules",
            "x.rules",
            "--suricata-config",
            "s.yaml",
            "--set",
            "k=v",
            "--policy",
            "p.yaml",
            "--firewall",
            "--firewall-rules-exclusive",
            "f.rules",
            "--cache",
            "none",
            "--strict",
            "--offload",
            "xdp",
            "--detect",
            "--fix-offloads",
            "--workers",
            "3",
            "--spin",
            "5",
            "--save-power",
            "--max-loss",
            "25%",
            "--accept-malformed",
            "--out",
            "o",
            "--pidfile",
            "pid",
            "--control",
            "sock",
            "--metrics",
            "127.0.0.1:9100",
        ];
        let made = line(&all).ok().unwrap();
        assert_eq!(made.config, Some("f.yaml".into()));
        assert_eq!(made.inline, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((made.offload.as_deref(), made.detect, made.fix_offloads), (Some("xdp"), true, true));
        assert_eq!((made.workers, made.spin, made.save_power), (Some(3), Some(5), true));
        assert_eq!((made.max_loss, made.accept_malformed), ("25%".parse().ok(), true));
        let paths =
            [&made.out, &made.pidfile, &made.control].map(|path| path.as_deref().and_then(|p| p.to_str()));
        assert_eq!(paths, [Some("o"), Some("pid"), Some("sock")]);
        assert_eq!(made.metrics.map(|address| address.port()), Some(9100));
        let build = made.options;
        assert_eq!(build.rules, [PathBuf::from("x.rules")]);
        assert_eq!((build.suricata_config, build.policy), (Some("s.yaml".into()), Some("p.yaml".into())));
        assert_eq!((build.overrides, build.strict), (vec!["k=v".to_owned()], true));
        assert!(build.firewall.firewall && build.firewall.firewall_rules_exclusive == Some("f.rules".into()));
        assert_eq!(build.cache, Some("none".into()));
        let tap = line(&["--tap", "e0", "--filter", "tcp"]).ok().unwrap();
        assert_eq!((tap.tap.as_deref(), tap.filter.as_deref()), (Some("e0"), Some("tcp")));
        assert!(line(&["--tap", "e0", "--workers", "0"]).is_err());
    }
}
