// SPDX-License-Identifier: Apache-2.0
//! The plan of a run: the command line takes precedence over the host file, and that over the defaults.
//!
//! Every key of the host file becomes part of the plan or is refused: a key without an effect is an error.
//! Not done: links that are captures (`inspect` reads those), several links by options of the command line.

use crate::default_route;
use crate::error::Failure;
use crate::generation::BuildOptions;
use crate::levels::Levels;
pub use crate::link_plan::{FilterExpression, LinkPlan, LinkPorts, Receive};
use crate::reload::Terms;
use crate::{captures_of_settings, control, input, outputs};
use bartizan_api::content::{ContentKind, Contents};
use bartizan_base::SettingsMap;
use bartizan_config::host::{self, GuestSection, HostFile, LinkKind, NamedPort, OffloadSection, Snap};
use bartizan_config::kind::FileKind;
use bartizan_config::policy::values::Share;
use bartizan_ports::processors;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::warn;

/// Default folder for events.
pub const OUT: &str = "bartizan-out";

/// Options of a run; they take precedence over the host file.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// Host file: links, workers, bounds, outputs, metrics, rules, policy. Options of the command line win
    /// over it.
    pub config: Option<PathBuf>,
    /// Forward between two interfaces: `--inline eth0 eth1`. Packets that the chain refuses do not pass.
    pub inline: Option<Vec<String>>,
    /// Watch one interface; nothing is forwarded or refused.
    pub tap: Option<String>,
    /// Serve one guest: programs on the stream path (docs/stream.md).
    pub guest: Option<GuestLink>,
    /// With a tap: inspect only the packets that match this filter, in tcpdump's language (pcap-filter(7)):
    /// `--filter 'not port 22'`. Needs libpcap.
    pub filter: Option<String>,
    /// With a tap: inspect this many bytes of each frame, from 128 to 65535, or its headers and this many
    /// bytes after them: `layer4+64`. Flows are counted with their lengths on the wire, and payloads are
    /// inspected as far as they are captured.
    pub snap_length: Option<Snap>,
    /// Inputs of generations.
    pub options: BuildOptions,
    /// With an inline link: a level below this program that forwards and drops packets of decided flows.
    /// `xdp`: the kernel's XDP hook of both interfaces.
    pub offload: Option<String>,
    /// Kinds of level that links may name.
    pub levels: Levels,
    /// Only report refusals, also inline.
    pub detect: bool,
    /// Switch off the interfaces' offloads while running, and on again at the end.
    pub fix_offloads: bool,
    /// Workers that share the traffic, each flow to one of them [default: 1, with a host file one per
    /// processor]. Each is pinned to its own processor if another one is free for everything else. Several
    /// links of a host file share them.
    pub workers: Option<u16>,
    /// Microseconds to poll for packets before sleeping; 50 by default, 0 if the workers need all processors.
    pub spin: Option<u64>,
    /// Let idle processors sleep deeply, also while packets come. Without this option the kernel is requested
    /// (by /dev/cpu_dma_latency) to keep them awake as long as an inline link has traffic, which shortens a
    /// packet's way from end to end by tens of microseconds.
    pub save_power: bool,
    /// Largest share of the running rules that a reload may remove, for example `25%` [default: 10%].
    pub max_loss: Option<Share>,
    /// Accept rule files with malformed lines, and files that have no rules any more, at a reload.
    pub accept_malformed: bool,
    /// Folder for eve.json and stats.json; made if necessary [default: bartizan-out, or the `default-log-dir`
    /// of a suricata.yaml].
    pub out: Option<PathBuf>,
    /// Write the number of this process into a file, for senders of signals; the file is removed when the run
    /// ends.
    pub pidfile: Option<PathBuf>,
    /// Path of the socket for commands (`bartizan ctl`, Suricata's tools); `none` for no socket [default:
    /// control.socket in /run/bartizan, for other users in their own folder, or the path in the
    /// `unix-command` of a suricata.yaml].
    pub control: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics, for example on 127.0.0.1:9100; off by default.
    pub metrics: Option<SocketAddr>,
}

/// A guest that is a run's only link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLink {
    /// Name in policies and events.
    pub name: String,
    /// The guest's settings.
    pub guest: GuestSection,
}

impl RunPlan {
    /// Number of workers of all links.
    pub fn workers(&self) -> u16 {
        self.links.iter().map(|link| link.workers).sum()
    }
}

/// The plan; see the module.
pub struct RunPlan {
    /// The links, by number.
    pub links: Vec<LinkPlan>,
    /// Ports that packets may be redirected to, by number.
    pub exits: Vec<NamedPort>,
    /// Whether names of links are those of a host file.
    pub named: bool,
    /// The Suricata settings, of which the plan has read some: the run marks them in its own copy.
    pub settings: SettingsMap,
    /// Time that workers poll for packets before they sleep; `None`: the default for their number.
    pub spin: Option<Duration>,
    /// Whether idle processors are kept out of deep sleep while packets arrive.
    pub awake: bool,
    /// Kinds of level that links may name.
    pub levels: Levels,
    /// Inputs of generations.
    pub options: BuildOptions,
    /// Folder for events and counters; `None`: no files.
    pub out: Option<PathBuf>,
    /// Address that serves metrics.
    pub metrics: Option<SocketAddr>,
    /// The command socket, and the group that may use it.
    pub control: control::ControlSocketSpec,
    /// User that the run becomes, by name or number; `None`: that of the settings, else the present one.
    pub user: Option<String>,
    /// Processors of workers, in their order; empty: one for each worker if one more is left.
    pub processors: Vec<usize>,
    /// File with the number of the process.
    pub pid_file: Option<PathBuf>,
    /// Whether standard output is an output of events.
    pub stdout_taken: bool,
    /// The controller that supplies the policy.
    pub controller: Option<host::ControllerSection>,
}

/// The terms of a reload: from the command line, else from the host file in its present form.
pub fn terms(given: &RunOptions) -> Result<Terms, Failure> {
    let of_file = given
        .config
        .as_deref()
        .map(|path| read(path, &given.levels))
        .transpose()?
        .map(|file| file.reload)
        .unwrap_or_default();
    let usual = Terms::default();
    Ok(Terms {
        max_loss: given.max_loss.or(of_file.max_loss).unwrap_or(usual.max_loss),
        accept_malformed: given.accept_malformed || of_file.accept_malformed,
    })
}

/// Merges command line and host file.
pub fn plan(given: &RunOptions) -> Result<RunPlan, Failure> {
    let (mut options, mut out) = (given.options.clone(), given.out.clone());
    let file = given
        .config
        .as_deref()
        .map(|path| read_noting(path, &given.levels, &mut options.contents))
        .transpose()?;
    let mut wanted = outputs::OutputSelection::default();
    if let Some(file) = &file {
        take_options(&mut options, file);
        options.below_from = given.config.as_deref().map(places).transpose()?.unwrap_or_default();
        wanted = outputs::OutputSelection::of(&file.outputs, out.is_some());
        out = out.or_else(|| file.outputs.eve.as_ref().map(|eve| eve.dir.clone()));
    }
    if out.is_none() && (!wanted.is_set() || wanted.file) {
        out = Some(options.log_folder()?.unwrap_or_else(|| PathBuf::from(OUT)));
    }
    let stdout_taken = wanted.stdout;
    options.outputs = wanted;
    let settings = options.settings(&mut Contents::default())?;
    let (mut links, detect) = match links(given, file.as_ref(), &settings)? {
        Some(links) => (links, false),
        None => links_of_settings(given, &settings)?,
    };
    let detect = detect || given.detect || file.as_ref().is_some_and(|f| f.detect);
    links.iter_mut().for_each(|link| link.prevention = (link.is_inline() || link.is_guest()) && !detect);
    options.links = links.iter().map(|link| link.name.clone()).collect();
    let exits = file.as_ref().map(|file| file.ports.clone()).unwrap_or_default();
    options.ports = Some(exits.iter().map(|port| port.name.clone()).collect());
    options.guests = links.iter().any(|link| matches!(link.ports, LinkPorts::Guest(_)));
    options.inline = links.iter().any(|link| link.prevention && link.is_inline());
    options.early = links.iter().any(|link| link.levels.iter().any(|level| link.knows_refusals(level)));
    let spin = given.spin.or_else(|| file.as_ref()?.spin.map(u64::from));
    Ok(RunPlan {
        awake: links.iter().any(LinkPlan::is_inline)
            && !given.save_power
            && !file.as_ref().is_some_and(|f| f.save_power),
        links,
        exits,
        named: given.inline.is_none() && given.tap.is_none(),
        spin: spin.map(Duration::from_micros),
        options,
        out,
        control: control::ControlSocketSpec {
            socket: given.control.clone().or_else(|| file.as_ref()?.control.socket.clone()),
            group: file.as_ref().and_then(|file| file.control.group.clone()),
        },
        user: file.as_ref().and_then(|file| file.user.clone()),
        pid_file: given
            .pidfile
            .clone()
            .or_else(|| file.as_ref()?.pid_file.clone())
            .or_else(|| pid_file_of(&settings)),
        processors: captures_of_settings::processors(&settings)?,
        settings,
        metrics: given.metrics.or_else(|| Some(file.as_ref()?.metrics.as_ref()?.listen)),
        stdout_taken,
        levels: given.levels.clone(),
        controller: file.and_then(|file| file.controller),
    })
}

fn read(path: &Path, levels: &Levels) -> Result<HostFile, Failure> {
    read_noting(path, levels, &mut Contents::default())
}

/// Reads a host file, and adds it to `contents`.
fn read_noting(path: &Path, levels: &Levels, contents: &mut Contents) -> Result<HostFile, Failure> {
    let text = input::read_utf8(path, "host file")?;
    contents.add_file(ContentKind::Settings, path, text.as_bytes());
    input::is_no_other(path, &text, FileKind::Host)?;
    let mut file = host::parse(&path.display().to_string(), &text).map_err(Failure::input)?;
    for (index, link) in file.links.iter().enumerate() {
        let Some(inline) = &link.inline else { continue };
        for (number, offload) in inline.levels().iter().enumerate() {
            levels.of_name(&offload.level).map_err(|why| {
                let key = inline.level_path(number, "level");
                let place = place_in(path, &text, &format!("links/{index}/{key}"));
                Failure::input(format!("{place}: link `{}`: {why}", link.name))
            })?;
        }
    }
    file.relative_to(path.parent().unwrap_or(Path::new("")));
    Ok(file)
}

/// Places of a host file's settings: `bartizan.yaml:4:12`, by key.
fn places(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = input::read_utf8(path, "host file")?;
    let places = host::places_of_settings(&text).into_iter();
    Ok(places.map(|(key, at)| (key, format!("{}:{}:{}", path.display(), at.line, at.column))).collect())
}

/// Takes the file's inputs of generations, with lower precedence than the command line.
fn take_options(options: &mut BuildOptions, file: &HostFile) {
    if options.rules.is_empty() {
        options.rules.clone_from(&file.rules.0);
    }
    options.policy = options.policy.take().or_else(|| file.policy.clone());
    options.controlled = file.controller.is_some();
    options.suricata_config = options.suricata_config.take().or_else(|| file.suricata_config.clone());
    options.cache = options.cache.take().or_else(|| file.cache.clone());
    options.hosts = file.memory.hosts;
    options.function_hosts = file.memory.function_hosts.map(|size| size.0);
    let memory = &file.memory;
    let mut below: Vec<(String, String)> = Vec::new();
    let sizes = [("stream.reassembly.memcap", memory.reassembly), ("defrag.memcap", memory.defrag)];
    below.extend(
        sizes.iter().filter_map(|(key, size)| Some(((*key).to_owned(), size.as_ref()?.0.to_string()))),
    );
    if let Some(flows) = memory.flows {
        // Suricata's setting is a number of bytes, in its own accounting.
        let bytes = u64::from(flows) * bartizan_stages::settings::SURICATA_FLOW_BYTES;
        below.push(("flow.memcap".to_owned(), bytes.to_string()));
    }
    let outputs = &file.outputs;
    let rights = [("mode", &outputs.mode), ("owner", &outputs.owner), ("group", &outputs.group)];
    below.extend(
        rights.iter().filter_map(|(key, value)| Some((format!("output-rights.{key}"), (*value).clone()?))),
    );
    below.extend(file.settings.iter().map(|(key, value)| (key.clone(), value.clone())));
    options.below = below;
}

/// The pid file of the Suricata settings, unless it names a process that lives: Suricata may run beside this
/// program with the same settings.
fn pid_file_of(settings: &SettingsMap) -> Option<PathBuf> {
    let path = PathBuf::from(settings.get("pid-file").map(str::trim).filter(|path| !path.is_empty())?);
    let named = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let lives = |pid: &u32| *pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists();
    match named.filter(lives) {
        Some(pid) => {
            warn!(
                "`pid-file: {}` of the settings is not written: it names process {pid}, which runs; choose another file with --pidfile",
                path.display()
            );
            None
        }
        None => Some(path),
    }
}

/// The links of the Suricata settings, and whether they only copy packets.
fn links_of_settings(given: &RunOptions, settings: &SettingsMap) -> Result<(Vec<LinkPlan>, bool), Failure> {
    let auto = given.workers.unwrap_or_else(|| u16::try_from(processors()).unwrap_or(1).min(host::WORKERS));
    let is_named = given.options.suricata_config.is_some();
    let mut found = if is_named { captures_of_settings::links(settings, auto)? } else { Default::default() };
    if found.links.is_empty() {
        return Err(Failure::usage(
            "there is no source of packets; use --inline A B, --tap INTERFACE, a host file with -c FILE, or settings with `af-packet` (see `bartizan run --help`)",
        ));
    }
    if let Some(workers) = given.workers {
        let shares = share_workers(&vec![None; found.links.len()], workers);
        found.links.iter_mut().zip(shares).for_each(|(link, share)| link.workers = share);
    }
    Ok((found.links, found.detect))
}

/// The links: that of the command line, else those of the file. `None`: neither names one.
fn links(
    given: &RunOptions,
    file: Option<&HostFile>,
    settings: &SettingsMap,
) -> Result<Option<Vec<LinkPlan>>, Failure> {
    let per_processor = || u16::try_from(processors()).unwrap_or(u16::MAX).min(host::WORKERS);
    let of_file = file.map(|file| file.workers.unwrap_or_else(per_processor));
    let given_filter =
        given.filter.clone().map(|expression| FilterExpression { expression, place: "--filter".to_owned() });
    let one = |ports, name, of_settings: Option<FilterExpression>| {
        let workers = given.workers.or(of_file).unwrap_or(1);
        let receive = Receive { snap_length: given.snap_length, ..Receive::default() };
        let filter = given_filter.clone().or(of_settings);
        let levels = given.offload.as_deref().map(OffloadSection::usual).into_iter().collect();
        Ok(Some(vec![LinkPlan { name, ports, workers, prevention: false, filter, receive, levels }]))
    };
    if let Some(GuestLink { name, guest }) = &given.guest {
        return one(LinkPorts::Guest(guest.clone()), name.clone(), None);
    }
    if let Some(pair) = &given.inline {
        let [a, b] = pair.as_slice() else { return Err(Failure::usage("--inline needs two interfaces")) };
        let ports = LinkPorts::Inline { a: a.clone(), b: b.clone(), fix_offloads: given.fix_offloads };
        return one(ports, pair.join("-"), None);
    }
    if let Some(tap) = &given.tap {
        let interface = default_route::interface(tap)?;
        let interfaces = vec![interface.clone()];
        let filter = captures_of_settings::filter_of(settings, &interface);
        return one(LinkPorts::Tap { interfaces, fix_offloads: given.fix_offloads }, interface, filter);
    }
    let Some(file) = file else { return Ok(None) };
    if given.filter.is_some() {
        return Err(Failure::usage(
            "--filter applies to --tap; a link of a host file has its own filter: `filter: 'not port 22'` beside its `tap`",
        ));
    }
    if given.snap_length.is_some() {
        return Err(Failure::usage(
            "--snap-length applies to --tap; a tap of a host file has its own: `snap-length: 128` beside its `interface`",
        ));
    }
    let own = own_workers(file);
    // All guests share a worker.
    let least = own.iter().filter(|own| **own != Some(0)).count();
    let workers = match given.workers {
        Some(all) if usize::from(all) < least => {
            return Err(Failure::usage(format!(
                "--workers {all}: the host file has {least} links, and each needs a worker; use at least {least}"
            )));
        }
        Some(all) => {
            let is_guest = file.links.iter().map(|link| link.guest.is_some());
            let own: Vec<_> = own.iter().zip(is_guest).map(|(own, guest)| own.filter(|_| guest)).collect();
            share_workers(&own, all)
        }
        None => share_workers(&own, of_file.unwrap_or(1)),
    };
    let made = file.links.iter().zip(workers).enumerate().map(|(index, (link, workers))| {
        let ports = ports(link, given)?;
        let place = || place_in_file(given.config.as_deref(), &format!("links/{index}/filter"));
        let filter = link.filter.clone().map(|expression| FilterExpression { expression, place: place() });
        let (name, receive) = (link.name.clone(), Receive::of(link));
        let levels = link.inline.as_ref().map_or_else(Vec::new, |inline| inline.levels().to_vec());
        Ok(LinkPlan { name, ports, workers, prevention: false, filter, receive, levels })
    });
    made.collect::<Result<_, _>>().map(Some)
}

/// The place of a value in the host file: `bartizan.yaml:3:5`.
fn place_in_file(path: Option<&Path>, key: &str) -> String {
    let Some(path) = path else { return key.to_owned() };
    place_in(path, &input::read_utf8(path, "host file").unwrap_or_default(), key)
}

/// Where a value stands in the text of a host file.
fn place_in(path: &Path, text: &str, key: &str) -> String {
    match host::place_of(text, key) {
        Some(at) => format!("{}:{}:{}", path.display(), at.line, at.column),
        None => path.display().to_string(),
    }
}

/// The number of workers that each link names itself: the first guest has the worker of all guests.
fn own_workers(file: &HostFile) -> Vec<Option<u16>> {
    let first = file.links.iter().position(|link| link.guest.is_some());
    let links = file.links.iter().enumerate();
    let own = |(index, link): (usize, &host::Link)| match &link.guest {
        Some(_) => Some(u16::from(first == Some(index))),
        None => link.workers,
    };
    links.map(own).collect()
}

/// Workers of each link: its own number if it has one; the other links share the rest of all, the first ones
/// with one more if the rest does not divide. Each has at least one.
fn share_workers(own: &[Option<u16>], all: u16) -> Vec<u16> {
    let taken: u16 = own.iter().flatten().fold(0, |sum, own| sum.saturating_add(*own));
    let sharers = own.iter().filter(|own| own.is_none()).count();
    let left = usize::from(all.saturating_sub(taken));
    let (each, more) = (left.checked_div(sharers).unwrap_or(0), left.checked_rem(sharers).unwrap_or(0));
    let mut nth = 0;
    let mut share = || {
        nth += 1;
        u16::try_from(each + usize::from(nth <= more)).unwrap_or(1).max(1)
    };
    own.iter().map(|own| own.unwrap_or_else(&mut share)).collect()
}

/// The ports of a link of the host file.
fn ports(link: &host::Link, given: &RunOptions) -> Result<LinkPorts, Failure> {
    match link.kind() {
        Some(LinkKind::Inline(pair)) => Ok(LinkPorts::Inline {
            a: pair.a.clone(),
            b: pair.b.clone(),
            fix_offloads: pair.fix_offloads || given.fix_offloads,
        }),
        Some(LinkKind::Tap(tap)) => Ok(LinkPorts::Tap {
            interfaces: tap
                .interface
                .iter()
                .map(|name| default_route::interface(name))
                .collect::<Result<_, _>>()?,
            fix_offloads: tap.fix_offloads || given.fix_offloads,
        }),
        Some(LinkKind::Capture(files)) => {
            let files: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
            Err(Failure::input(format!(
                "link `{}` is a capture, which `run` cannot serve; use `bartizan inspect {}`",
                link.name,
                files.join(" ")
            )))
        }
        Some(LinkKind::Guest(guest)) => Ok(LinkPorts::Guest(guest.clone())),
        None => Err(Failure::input(format!("link `{}` has no kind", link.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_stages::settings::EngineSettings;

    const FILE: &str = "\
links: [{name: wan, inline: {a: eth1, b: eth2, fix-offloads: true, frames: 64}}]
workers: 3
detect: true
spin: 7
save-power: true
memory: {flows: 5000, hosts: 1000, reassembly: 1MiB, defrag: 2MiB}
outputs: {eve: {dir: events}, mode: 0600, owner: '0', group: '12'}
metrics: {listen: '[::1]:9100'}
pid-file: run/bartizan.pid
rules: [a.rules]
policy: policy.yaml
settings: {stream.midstream: yes, defrag.memcap: 3mb}
cache: none
";

    fn with(name: &str, text: &str, set: impl FnOnce(&mut RunOptions)) -> Result<RunPlan, Failure> {
        let folder = std::env::temp_dir().join(format!("bartizan-plan-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("bartizan.yaml");
        std::fs::write(&path, text).unwrap();
        let mut given = RunOptions { config: Some(path), ..RunOptions::default() };
        set(&mut given);
        let made = plan(&given);
        std::fs::remove_dir_all(&folder).unwrap();
        made
    }

    #[test]
    fn the_pid_file_of_settings_is_not_taken_from_a_living_process() {
        let path = std::env::temp_dir().join(format!("bartizan-pid-{}", std::process::id()));
        let mut settings = SettingsMap::new();
        settings.set("pid-file", path.display().to_string());
        assert_eq!(pid_file_of(&settings), Some(path.clone()), "there is none yet");
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(pid_file_of(&settings), None, "process 1 lives");
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(pid_file_of(&settings), Some(path.clone()));
        std::fs::write(&path, "4294967295\n").unwrap();
        assert_eq!(pid_file_of(&settings), Some(path.clone()), "no process has this number");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn every_key_of_the_file_has_an_effect() {
        let plan = with("all", FILE, |_| {}).unwrap();
        let ports = LinkPorts::Inline { a: "eth1".into(), b: "eth2".into(), fix_offloads: true };
        let receive = Receive { frames: Some(64), ..Receive::default() };
        let link = LinkPlan {
            name: "wan".into(),
            ports,
            workers: 3,
            prevention: false,
            filter: None,
            receive,
            levels: Vec::new(),
        };
        assert_eq!((plan.links.as_slice(), plan.named), (&[link][..], true));
        assert_eq!((plan.spin, plan.metrics.unwrap().port()), (Some(Duration::from_micros(7)), 9100));
        assert!(!plan.awake && with("power", &FILE.replace("save-power: true\n", ""), |_| {}).unwrap().awake);
        assert!(plan.out.unwrap().ends_with("events"));
        assert!(plan.pid_file.unwrap().ends_with("run/bartizan.pid"));
        assert!(plan.options.policy.as_ref().unwrap().ends_with("policy.yaml"));
        assert!(plan.options.rules[0].is_absolute() && plan.options.rules[0].ends_with("a.rules"));
        assert_eq!(
            (plan.options.hosts, plan.options.links.as_slice()),
            (Some(1000), &["wan".to_owned()][..])
        );
        let settings = plan.options.settings(&mut Contents::default()).unwrap();
        let rights = ["mode", "owner", "group"].map(|key| settings.get(&format!("output-rights.{key}")));
        assert_eq!(rights, [Some("0600"), Some("0"), Some("12")]);
        let (engine, _) = EngineSettings::from_settings(&settings, false, [0; 2]).unwrap();
        assert_eq!((engine.flow_capacity, engine.stream.reassembly.memcap), (5000, 1 << 20));
        // A single setting takes precedence over `memory`.
        assert_eq!((engine.defrag.memory, engine.stream.midstream), (3 << 20, true));
    }

    #[test]
    fn offloads_of_a_tap_are_switched_off_when_asked() {
        let link = |more: &str| format!("links: [{{name: m, tap: {{interface: e0{more}}}}}]\n");
        for (file, line_has, own_tap, fix_offloads) in [
            (link(""), false, false, false),
            (link(", fix-offloads: true"), false, false, true),
            (link(", ring: 2MiB, duplicate-window: 5, snap-length: 200"), true, false, true),
            (link(""), true, false, true),
            (link(""), true, true, true),
        ] {
            let set = |given: &mut RunOptions| {
                given.fix_offloads = line_has;
                given.tap = own_tap.then(|| "e0".to_owned());
            };
            let plan = with("offloads", &file, set).unwrap();
            let tap = LinkPorts::Tap { interfaces: vec!["e0".into()], fix_offloads };
            assert_eq!(plan.links[0].ports, tap, "{file} {line_has} {own_tap}");
            let receive = plan.links[0].receive;
            let all = Receive {
                ring: Some(2 << 20),
                duplicate_window: Some(5),
                snap_length: Some(Snap::Frame(200)),
                ..Receive::default()
            };
            assert_eq!(receive, if file.contains("ring") { all } else { Receive::default() });
        }
    }

    #[test]
    fn a_snap_length_is_for_taps() {
        let plan = with("snap", FILE, |given| {
            given.tap = Some("e0".to_owned());
            given.snap_length = Some(Snap::Frame(128));
        })
        .unwrap();
        assert_eq!(
            plan.links[0].receive,
            Receive { snap_length: Some(Snap::Frame(128)), ..Receive::default() }
        );
        let error = with("snap-file", FILE, |given| given.snap_length = Some(Snap::Frame(128)))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("a tap of a host file has its own: `snap-length: 128`"), "{error}");
    }

    #[test]
    fn the_command_line_wins() {
        let set = |given: &mut RunOptions| {
            given.tap = Some("eth9".to_owned());
            given.out = Some("elsewhere".into());
            given.metrics = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
            given.spin = Some(1);
            given.workers = Some(2);
            given.options.rules = vec!["b.rules".into()];
            given.options.policy = Some("other.yaml".into());
            given.options.overrides = vec!["defrag.memcap=4mb".to_owned()];
            given.options.cache = Some("there".into());
            given.pidfile = Some("other.pid".into());
        };
        let plan = with("line", FILE, set).unwrap();
        let tap = LinkPorts::Tap { interfaces: vec!["eth9".into()], fix_offloads: false };
        let receive = Receive::default();
        let link = LinkPlan {
            name: "eth9".into(),
            ports: tap,
            workers: 2,
            prevention: false,
            filter: None,
            receive,
            levels: Vec::new(),
        };
        assert_eq!((plan.links.as_slice(), plan.named), (&[link][..], false));
        assert_eq!(plan.out.as_deref(), Some(Path::new("elsewhere")));
        assert_eq!((plan.metrics.unwrap().port(), plan.spin), (1, Some(Duration::from_micros(1))));
        assert_eq!(plan.options.rules, [PathBuf::from("b.rules")]);
        assert_eq!(plan.options.policy.as_deref(), Some(Path::new("other.yaml")));
        assert_eq!(plan.options.cache.as_deref(), Some(Path::new("there")));
        assert_eq!(
            plan.options.settings(&mut Contents::default()).unwrap().get("defrag.memcap"),
            Some("4mb")
        );
        assert_eq!(plan.pid_file.as_deref(), Some(Path::new("other.pid")));
    }

    #[test]
    fn what_a_run_cannot_do_is_said() {
        let error =
            with("capture", "links: [{name: a, capture: x.pcap}]\n", |_| {}).err().unwrap().to_string();
        assert!(error.contains("bartizan inspect") && error.contains("x.pcap"), "{error}");
        let two = "links: [{name: a, tap: {interface: e0}}, {name: b, filter: ip, tap: {interface: e1}}]\n";
        let filter = &with("filter", two, |_| {}).unwrap().links[1].filter;
        assert!(
            filter.as_ref().is_some_and(|f| f.expression == "ip" && f.place.ends_with(".yaml:1:60")),
            "{filter:?}"
        );
        let error =
            with("filter", two, |given| given.filter = Some("ip".to_owned())).err().unwrap().to_string();
        assert!(error.contains("--filter applies to --tap"), "{error}");
        let error = with("few", two, |given| given.workers = Some(1)).err().unwrap().to_string();
        assert!(error.contains("2 links, and each needs a worker"), "{error}");
    }

    #[test]
    fn guests_share_one_worker() {
        let file = "links: [{name: e, inline: {a: e0, b: e1}}, {name: a, guest: {}}, {name: b, guest: {streams: 5}}]\nworkers: 4\n";
        let of = |plan: &RunPlan| plan.links.iter().map(|l| (l.workers, l.prevention)).collect::<Vec<_>>();
        let plan = with("guests", file, |_| {}).unwrap();
        assert_eq!(of(&plan), [(3, true), (1, true), (0, true)]);
        let guest = GuestSection { streams: Some(5), ..GuestSection::default() };
        assert_eq!(
            (&plan.links[2].ports, plan.links[2].interface()),
            (&LinkPorts::Guest(guest), "b".to_owned())
        );
        let plan = with("guests-given", file, |given| given.workers = Some(2)).unwrap();
        assert_eq!(of(&plan), [(1, true), (1, true), (0, true)]);
        let error = with("guests-few", file, |given| given.workers = Some(1)).err().unwrap().to_string();
        assert!(error.contains("2 links, and each needs a worker"), "{error}");
        let plan = with("guests-detect", &format!("{file}detect: true\n"), |_| {}).unwrap();
        assert!(of(&plan).iter().all(|(_, prevention)| !prevention));
    }

    #[test]
    fn a_level_has_a_name_that_this_program_knows() {
        let link = |level: &str| {
            format!("links: [{{name: w, inline: {{a: e0, b: e1, offload: {{level: {level}}}}}}}]\n")
        };
        let plan = with("level", &link("xdp"), |_| {}).unwrap();
        assert_eq!(plan.links[0].levels, [OffloadSection::usual("xdp")]);
        let error = with("no-level", &link("nic"), |_| {}).err().unwrap().to_string();
        assert!(
            error.contains("bartizan.yaml:1:59: link `w`: there is no level `nic`")
                && error.contains("`xdp`"),
            "{error}"
        );
    }

    #[test]
    fn several_links_share_the_workers() {
        let file = "links:
  - {name: wan, inline: {a: e0, b: e1}}
  - {name: mirror, tap: {interface: e2}, workers: 2}
  - {name: lan, inline: {a: e3, b: e4}}
workers: 7
";
        let of = |plan: &RunPlan| plan.links.iter().map(|l| (l.workers, l.prevention)).collect::<Vec<_>>();
        let plan = with("several", file, |_| {}).unwrap();
        assert_eq!(of(&plan), [(3, true), (2, false), (2, true)]);
        assert_eq!(plan.options.links, ["wan", "mirror", "lan"]);
        assert_eq!(plan.links[2].interface(), "e3-e4");
        // The command line's number is the sum over all links.
        let plan = with("several", file, |given| {
            given.workers = Some(4);
            given.detect = true;
        })
        .unwrap();
        assert_eq!(of(&plan), [(2, false), (1, false), (1, false)]);
        // The command line's link replaces those of the file.
        assert_eq!(with("several", file, |given| given.tap = Some("e9".to_owned())).unwrap().links.len(), 1);
        for (own, all, share) in [
            (&[None][..], 3, &[3][..]),
            (&[None, None], 1, &[1, 1]),
            (&[None, Some(5), None, None], 6, &[1, 5, 1, 1]),
            (&[Some(2)], 8, &[2]),
        ] {
            assert_eq!(share_workers(own, all), share);
        }
    }

    #[test]
    fn outputs_are_files_unless_others_are_given() {
        let link = "links: [{name: a, tap: {interface: e0}}]\n";
        assert_eq!(with("none", link, |_| {}).unwrap().out, Some(PathBuf::from(OUT)));
        let plan = with("stdout", &format!("{link}outputs: {{stdout: true}}\n"), |_| {}).unwrap();
        assert_eq!((plan.out, plan.stdout_taken), (None, true));
        let plan =
            with("both", &format!("{link}outputs: {{stdout: true}}\n"), |given| given.out = Some("o".into()))
                .unwrap();
        assert_eq!((plan.out, plan.stdout_taken), (Some(PathBuf::from("o")), true));
    }
}
