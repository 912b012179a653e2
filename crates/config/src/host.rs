// SPDX-License-Identifier: Apache-2.0
//! The host file, bartizan.yaml: links, workers, memory, outputs.
//!
//! An absent key leaves the default of the program or of the Suricata settings, so most keys are optional.
//! Not checked here: whether interfaces exist (the ports do), and defaults that depend on the machine.

mod address;
mod controller;
mod guests;
mod ports;
mod snap;

pub use address::listen_address;
pub use controller::{
    ControllerSection, HERE_AGENTS, HERE_DEVICE, HERE_LISTEN, Here, STATISTICS_EVERY, STATISTICS_EVERY_USUAL,
};

pub use guests::{GUEST_CONNECTS, GUEST_MEMORY_MIN, GUEST_PROCESSES, GUEST_STREAMS, GuestSection};
pub use ports::{NAMED_PORTS, NamedPort};
pub use snap::{Snap, SnapAfter, SnapLayer};

use crate::policy::read;
use crate::policy::values::{EMPTY_LIST, OneOrMany, Seconds, Share, Size};
use crate::policy::{ConfigProblem, PolicyError};
use crate::yaml;
use address::read_listen_address;
use core::net::SocketAddr;
use guests::LinkedGuest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The host file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Bartizan host file")]
pub struct HostFile {
    /// The links: the sources of packets.
    pub links: Vec<Link>,
    /// Ports that policies can redirect flows to (`redirect` of `pfw`): at most 16. Nothing is received on
    /// them.
    #[serde(default)]
    pub ports: Vec<NamedPort>,
    /// Worker threads of all links together; one per core unless given, and at least one for each link.
    pub workers: Option<u16>,
    /// Only report packets that would be dropped, also inline.
    #[serde(default)]
    pub detect: bool,
    /// Time for which an idle worker polls for packets before it sleeps, in microseconds; 0 if no core is
    /// free.
    pub spin: Option<u32>,
    /// Let idle processors use deep sleep states, also while an inline link has traffic.
    #[serde(default)]
    pub save_power: bool,
    /// Bounds of memory that traffic can make grow.
    #[serde(default)]
    pub memory: Memory,
    /// Destinations of events.
    #[serde(default)]
    pub outputs: Outputs,
    /// Limits on losses by a reload; read again at each reload.
    #[serde(default)]
    pub reload: Reload,
    /// Metrics for Prometheus; not served unless given.
    pub metrics: Option<Metrics>,
    /// The socket for commands.
    #[serde(default)]
    pub control: ControlSection,
    /// Rule files, beside this file or absolute, for all flows with detection.
    #[serde(default)]
    pub rules: OneOrMany<PathBuf>,
    /// The policy file, beside this file or absolute; without one the chain is `ids` alone.
    pub policy: Option<PathBuf>,
    /// An existing suricata.yaml, beside this file or absolute.
    pub suricata_config: Option<PathBuf>,
    /// Single settings, with precedence over those of Suricata: `stream.midstream: yes`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Folder for compiled patterns, beside this file or absolute; `none` for none.
    pub cache: Option<PathBuf>,
    /// User that the run becomes, by name or number, once it has made its folders: it keeps the capabilities
    /// that its links need, and writes to its own folders only. The user that starts it unless given.
    pub user: Option<String>,
    /// File for the process id while the program runs, beside this file or absolute.
    pub pid_file: Option<PathBuf>,
    /// The controller that sends policies and rules; until it has, `policy` and `rules` apply. None unless
    /// given.
    pub controller: Option<ControllerSection>,
}

/// A link: exactly one of `inline`, `tap`, `capture` and `guest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Link {
    /// Name, in policies and events.
    pub name: String,
    /// Two bridged interfaces: prevention.
    pub inline: Option<Inline>,
    /// A monitored interface: detection.
    pub tap: Option<Tap>,
    /// Capture files to read.
    pub capture: Option<OneOrMany<PathBuf>>,
    /// Programs of this host, by the stream path: prevention.
    pub guest: Option<GuestSection>,
    /// Worker threads of this link; unless given, its share of those of all links.
    pub workers: Option<u16>,
    /// Filter of a tap (pcap-filter(7)): `not port 22`. The kernel drops other packets.
    pub filter: Option<String>,
}

/// Two bridged interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Inline {
    /// One interface.
    pub a: String,
    /// The other interface of the pair.
    pub b: String,
    /// Switch off the interfaces' offloads while the program runs, and on again at the end.
    #[serde(default)]
    pub fix_offloads: bool,
    /// Frames in each worker's and interface's receive ring, 16 to 1,048,576; 4,096 unless given.
    pub frames: Option<u32>,
    /// A level below the host, which handles flows that are fully decided, or a list of them, the nearest to
    /// the wire first: a flow that one cannot hold goes to the next. None unless given.
    pub offload: Option<OneOrMany<OffloadSection>>,
}

/// A level below the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Offload")]
pub struct OffloadSection {
    /// The level's name, for example `xdp` (the kernel's XDP hook).
    pub level: String,
    /// Attachment to the interfaces: `native` (by the driver), `generic` (by the kernel, for drivers that
    /// cannot), `auto` (native if the driver can); `auto` unless given.
    #[serde(default)]
    pub mode: OffloadMode,
    /// Most flows at the level, of all workers of the link together, from 64 to 4,194,304; 131,072 unless
    /// given. An entry takes about 200 bytes and 64 more for each processor.
    pub entries: Option<u32>,
    /// Handling of frames that the level passes to this program while the program does not serve them,
    /// because it hangs or was killed: `closed` (they are dropped; the default), or `open` (they are
    /// forwarded uninspected; flows dropped at the level stay dropped). `open` needs a bpf file system at
    /// /sys/fs/bpf.
    #[serde(default)]
    pub fail: OffloadFail,
    /// Silence of a worker after which `fail` applies to its frames, from 1s to 1h; 1s unless given.
    pub stale: Option<Seconds>,
    /// One of this many packets that the level would drop is handed up to this program, which drops it and
    /// writes a `drop` event if enabled. A power of two up to 1,048,576, or 0 for none; 1,024 unless given.
    pub drop_samples: Option<u32>,
    /// `true`: as far as it has the rules, the level drops packets of TCP, UDP and ICMP (queries and answers)
    /// without a flow that a policy's packet filter or default action drops, before the host makes a flow of
    /// them. They are counted by rule, without a flow record; their `drop` events are sampled
    /// (`drop-samples`).
    #[serde(default)]
    pub early_drop: bool,
}

impl Inline {
    /// The levels below the host, the nearest to the wire first.
    #[must_use]
    pub fn levels(&self) -> &[OffloadSection] {
        self.offload.as_deref().unwrap_or_default()
    }

    /// Path of a key of a level from the link on.
    #[must_use]
    pub fn level_path(&self, number: usize, key: &str) -> String {
        // The path of a single section has no number.
        match self.levels().len() {
            0 | 1 => format!("inline/offload/{key}"),
            _ => format!("inline/offload/{number}/{key}"),
        }
    }
}

impl OffloadSection {
    /// A level with all settings at their defaults.
    #[must_use]
    pub fn usual(level: &str) -> Self {
        OffloadSection {
            level: level.to_owned(),
            mode: OffloadMode::default(),
            entries: None,
            fail: OffloadFail::default(),
            stale: None,
            drop_samples: None,
            early_drop: false,
        }
    }
}

/// Handling of frames that no worker serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadFail {
    /// They are dropped.
    #[default]
    Closed,
    /// They are forwarded.
    Open,
}

/// Attachment of a level to interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadMode {
    /// By the driver if it can, otherwise by the kernel.
    #[default]
    Auto,
    /// By the driver.
    Native,
    /// By the kernel.
    Generic,
}

/// Fewest and most flows of a level below the host.
pub const OFFLOAD_ENTRIES: core::ops::RangeInclusive<u32> = 64..=1 << 22;
/// Default of the most flows of a level below the host.
pub const OFFLOAD_ENTRIES_USUAL: u32 = 1 << 17;

/// Shortest and longest time, in seconds, without a sign of life until frames fail open or closed.
pub const OFFLOAD_STALE: core::ops::RangeInclusive<u32> = 1..=3_600;
/// Default of that time.
pub const OFFLOAD_STALE_USUAL: Seconds = Seconds(1);

/// Largest sampling interval of drops at a level.
pub const OFFLOAD_DROP_SAMPLES: u32 = 1 << 20;
/// Default sampling interval of drops at a level.
pub const OFFLOAD_DROP_SAMPLES_USUAL: u32 = 1_024;

/// A monitored interface, or several as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tap {
    /// The interface, or up to 8: the two sides of a network tap, several mirror ports. Their packets are
    /// handled in the order of their timestamps.
    pub interface: OneOrMany<String>,
    /// Longest time, from 1 to 1,000 milliseconds, that a packet of one of several interfaces waits for older
    /// packets of the others, counted from its timestamp; 50 unless given.
    pub merge_wait: Option<u32>,
    /// Switch off the interface's offloads while the program runs, and on again at the end.
    #[serde(default)]
    pub fix_offloads: bool,
    /// Receive ring of each worker, from 2MiB to 4GiB in whole MiB; 32MiB unless given.
    pub ring: Option<Size>,
    /// Source of timestamps: `software` (the kernel; the default), `hardware` (the device, which is set to
    /// stamp all packets; an error if it cannot), `auto` (the device if it stamps all packets already, by the
    /// system's clock).
    pub timestamps: Option<TimestampSource>,
    /// Time, from 1 to 1,000 milliseconds, within which a second frame with the same bytes is ignored: mirror
    /// ports duplicate frames. None unless given.
    pub duplicate_window: Option<u32>,
    /// Bytes of each frame that are captured; all unless given. A number, from 128 to 65,535, counts from the
    /// link header on; `{after: layer4, bytes: 64}` takes all headers up to a layer's, and 64 bytes more. The
    /// kernel cuts the rest: flows are counted as on the wire, payloads inspected as far as captured.
    pub snap_length: Option<Snap>,
}

/// Source of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Timestamps")]
pub enum TimestampSource {
    /// The kernel.
    #[default]
    Software,
    /// The device, if it already stamps all packets.
    Auto,
    /// The device.
    Hardware,
}

/// Fewest and most frames of an inline link's ring.
pub const RING_FRAMES: core::ops::RangeInclusive<u32> = 16..=1 << 20;
/// Fewest and most bytes of a tap's ring, and the size of its blocks.
pub const RING_BYTES: (core::ops::RangeInclusive<u64>, u64) = (2 << 20..=4 << 30, 1 << 20);
/// Most interfaces of a tap.
pub const TAP_INTERFACES: usize = 8;
/// Shortest and longest time that packets of one interface wait for those of another, in milliseconds.
pub const MERGE_WAIT: core::ops::RangeInclusive<u32> = 1..=1_000;
/// Shortest and longest window for duplicate frames, in milliseconds.
pub const DUPLICATE_WINDOW: core::ops::RangeInclusive<u32> = 1..=1_000;

/// Fewest and most bytes of a tap's snap length. The fewest hold the longest headers of a TCP segment outside
/// tunnels: Ethernet with two VLAN tags, IPv6 without extension headers, and 60 bytes of TCP are 122.
pub const SNAP_LENGTH: core::ops::RangeInclusive<u32> = 128..=65_535;

/// A link's kind with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind<'l> {
    /// Bridged interfaces.
    Inline(&'l Inline),
    /// A monitored interface.
    Tap(&'l Tap),
    /// Capture files.
    Capture(&'l [PathBuf]),
    /// Programs of this host.
    Guest(&'l GuestSection),
}

impl Link {
    /// The kind; `None` unless exactly one is given, which [`parse`] has checked.
    #[must_use]
    pub fn kind(&self) -> Option<LinkKind<'_>> {
        match (&self.inline, &self.tap, &self.capture, &self.guest) {
            (Some(inline), None, None, None) => Some(LinkKind::Inline(inline)),
            (None, Some(tap), None, None) => Some(LinkKind::Tap(tap)),
            (None, None, Some(files), None) => Some(LinkKind::Capture(files)),
            (None, None, None, Some(guest)) => Some(LinkKind::Guest(guest)),
            _ => None,
        }
    }
}

/// Bounds of memory that traffic can make grow, over all workers; default: the Suricata settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Memory {
    /// Entries of the flow tables, from 1,024 to 16,777,216.
    pub flows: Option<u32>,
    /// Entries of each host table (for rules; for connection limits), from 64 to 16,777,216; 65,536 unless
    /// given.
    pub hosts: Option<u32>,
    /// State per host of each function that keeps some (`portscan`); 32MiB unless given.
    pub function_hosts: Option<Size>,
    /// Memory of stream reassembly.
    pub reassembly: Option<Size>,
    /// Memory of IP defragmentation.
    pub defrag: Option<Size>,
}

/// Fewest and most entries of flow tables.
pub const FLOWS: core::ops::RangeInclusive<u32> = 1024..=1 << 24;
/// Fewest and most entries of a host table.
pub const HOSTS: core::ops::RangeInclusive<u32> = 64..=1 << 24;
/// Least memory of reassembly and of defragmentation, in bytes.
pub const MEMORY_MIN: u64 = 1 << 16;

/// Destinations of events; `bartizan-out/eve.json` in the working folder if none is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Outputs {
    /// EVE JSON files; the final counters are written beside them.
    pub eve: Option<Eve>,
    /// EVE JSON to a Unix socket on which a reader listens.
    pub socket: Option<PathBuf>,
    /// EVE JSON to standard output.
    #[serde(default)]
    pub stdout: bool,
    /// Mode of all files that are written, in octal digits: `640` unless given; users who may read the files
    /// may enter their folders.
    pub mode: Option<String>,
    /// Owner of all files that are written: a name or a number.
    pub owner: Option<String>,
    /// Group of all files that are written: a name or a number.
    pub group: Option<String>,
}

/// EVE JSON files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Eve {
    /// The folder, beside this file or absolute, for `eve.json` and `stats.json`.
    pub dir: PathBuf,
    /// Rotation of the files.
    #[serde(default)]
    pub rotate: Rotate,
}

/// Rotation of files; none unless a bound is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rotate {
    /// Begin a new file at this size.
    pub size: Option<Size>,
    /// Begin a new file after this time, by the packet clock.
    pub every: Option<Seconds>,
    /// Number of old files that are kept; all unless given.
    pub keep: Option<u32>,
}

/// Limits on losses by a reload; a reload that exceeds them is refused, and the running generation stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Reload {
    /// Largest share of the running rules that may disappear; 10% unless given.
    pub max_loss: Option<Share>,
    /// Accept rule files with malformed lines, and files that have no rules any more.
    #[serde(default)]
    pub accept_malformed: bool,
}

/// The socket for commands (`bartizan ctl`, Suricata's tools), accessible to its owner and group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Control")]
pub struct ControlSection {
    /// The socket's path, beside this file or absolute; `none` for no socket. Unless given: that of
    /// `unix-command` in a suricata.yaml, else control.socket in /run/bartizan, or for other users in their
    /// own folder.
    pub socket: Option<PathBuf>,
    /// The socket's group: a name or a number.
    pub group: Option<String>,
}

/// Metrics for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Metrics {
    /// Address and port: `127.0.0.1:9100`, `[::1]:9100`.
    #[schemars(with = "String")]
    #[serde(deserialize_with = "read_listen_address")]
    pub listen: SocketAddr,
}

/// Most workers of a run.
pub const WORKERS: u16 = bartizan_base::spread::WORKERS_MAX;

/// The JSON schema of host files.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::SchemaGenerator::default().into_root_schema_for::<HostFile>().to_value()
}

/// Reads and checks a host file.
///
/// # Errors
/// [`PolicyError::Wrong`] with every problem and its position.
pub fn parse(name: &str, text: &str) -> Result<HostFile, PolicyError> {
    let wrong = |problems| PolicyError::Wrong { file: name.to_owned(), problems };
    let root = yaml::parse(text).map_err(|e| {
        wrong(vec![ConfigProblem {
            position: e.position,
            path: String::new(),
            message: format!("not YAML: {}", e.message),
        }])
    })?;
    let file: HostFile = read::read(&root).map_err(wrong)?;
    let mut problems = Vec::new();
    let mut problem = |path: String, message: String| {
        problems.push(ConfigProblem { position: read::locate(&root, &path), path, message });
    };
    for (path, message) in numbers(&file) {
        problem(path.to_owned(), message);
    }
    workers(&file, &mut problem);
    rings(&file, &mut problem);
    levels(&file, &mut problem);
    taps(&file, &mut problem);
    snap::check(&file, &mut problem);
    guests::check(&linked_guests(&file), &mut problem);
    for (index, link) in file.links.iter().enumerate().filter(|(_, link)| link.filter.is_some()) {
        let why = match link.kind() {
            Some(LinkKind::Inline(_)) => {
                "is inline: a filter finds no ports in fragments, so one fragment of a datagram would pass uninspected and the others wait for it; give that traffic a policy with `chain: []`, which only forwards and counts"
            }
            Some(LinkKind::Capture(_)) => "is a capture; give the filter to `bartizan inspect --filter`",
            Some(LinkKind::Guest(_)) => {
                "is a guest, whose bytes have no packets that a filter could see; give that traffic a policy with `chain: []`, which only forwards and counts"
            }
            _ => continue,
        };
        problem(format!("links/{index}/filter"), format!("link `{}` {why}", link.name));
    }
    let mut names = HashSet::new();
    let mut interfaces = HashSet::new();
    for (index, link) in file.links.iter().enumerate() {
        if !names.insert(&link.name) {
            problem(
                format!("links/{index}/name"),
                format!("two links are called `{}`; rename one", link.name),
            );
        }
        let used: Vec<&String> = match link.kind() {
            Some(LinkKind::Inline(inline)) => vec![&inline.a, &inline.b],
            Some(LinkKind::Tap(tap)) => tap.interface.iter().collect(),
            Some(LinkKind::Capture(_) | LinkKind::Guest(_)) => Vec::new(),
            None => {
                let message = format!(
                    "link `{}` needs exactly one of `inline`, `tap`, `capture` and `guest`",
                    link.name
                );
                problem(format!("links/{index}"), message);
                Vec::new()
            }
        };
        for interface in used {
            if !interfaces.insert(interface) {
                let message = format!(
                    "interface `{interface}` is used twice; give each interface to one link, and once"
                );
                problem(format!("links/{index}"), message);
            }
        }
    }
    ports::check(&file, &interfaces, &mut problem);
    if problems.is_empty() { Ok(file) } else { Err(wrong(problems)) }
}

/// The guests with what their links say of them.
fn linked_guests(file: &HostFile) -> Vec<LinkedGuest<'_>> {
    let links = file.links.iter().enumerate();
    let guests = links.filter_map(|(index, link)| {
        let has_workers = link.workers.is_some();
        Some(LinkedGuest { index, name: &link.name, has_workers, guest: link.guest.as_ref()? })
    });
    guests.collect()
}

/// Checks that every link gets at least one worker.
fn workers(file: &HostFile, problem: &mut impl FnMut(String, String)) {
    for (index, link) in file.links.iter().enumerate() {
        let (path, name) = (format!("links/{index}/workers"), &link.name);
        if link.capture.is_some() && link.workers.is_some() {
            let message =
                format!("link `{name}` is a capture, which has no workers of its own; remove the key");
            problem(path, message);
        } else if link.workers == Some(0) {
            let message = format!(
                "link `{name}` needs at least one worker; remove the key for its share of all workers"
            );
            problem(path, message);
        }
    }
    let live = file.links.iter().filter(|link| link.capture.is_none() && link.guest.is_none());
    let of_guests = u32::from(file.links.iter().any(|link| link.guest.is_some()));
    let least = of_guests + live.map(|link| u32::from(link.workers.unwrap_or(1).max(1))).sum::<u32>();
    if least > u32::from(WORKERS) {
        let message =
            format!("the links need {least} workers, and at most {WORKERS} are supported; give links fewer");
        problem("links".to_owned(), message);
    }
    if let Some(all) = file.workers.filter(|all| *all > 0 && u32::from(*all) < least) {
        let message = format!(
            "{all} workers are too few for the links, which need {least} (at least one each); give {least} or more, or give the links fewer"
        );
        problem("workers".to_owned(), message);
    }
}

/// A link's levels with their numbers.
fn levels_of(link: &Link) -> impl Iterator<Item = (&Inline, usize, &OffloadSection)> {
    let of = |inline| Inline::levels(inline).iter().enumerate().map(move |(n, level)| (inline, n, level));
    link.inline.iter().flat_map(of)
}

/// Checks the names of levels, and their sampling.
fn levels(file: &HostFile, problem: &mut impl FnMut(String, String)) {
    for (index, link) in file.links.iter().enumerate() {
        let name = &link.name;
        if link.inline.as_ref().and_then(|inline| inline.offload.as_ref()).is_some_and(OneOrMany::is_none) {
            problem(format!("links/{index}/inline/offload"), format!("link `{name}`: {EMPTY_LIST}"));
        }
        let mut seen = HashSet::new();
        for (inline, number, section) in levels_of(link) {
            let mut wrong = |key, message| {
                problem(format!("links/{index}/{}", inline.level_path(number, key)), message);
            };
            if !seen.insert(&section.level) {
                let level = &section.level;
                wrong("level", format!("link `{name}` has level `{level}` twice; give each level once"));
            }
            let fits = |n: &u32| *n == 0 || n.is_power_of_two() && *n <= OFFLOAD_DROP_SAMPLES;
            if let Some(samples) = section.drop_samples.filter(|samples| !fits(samples)) {
                let near = samples.clamp(1, OFFLOAD_DROP_SAMPLES).next_power_of_two();
                let message = format!(
                    "link `{name}`: one of {samples} packets is not a possible sample; give a power of two up to {OFFLOAD_DROP_SAMPLES}, for instance {near}, or 0 for none"
                );
                wrong("drop-samples", message);
            }
        }
    }
}

/// Checks the sizes of rings.
fn rings(file: &HostFile, problem: &mut impl FnMut(String, String)) {
    for (index, link) in file.links.iter().enumerate() {
        let name = &link.name;
        let mut number =
            |path: &str, value: Option<u32>, range: core::ops::RangeInclusive<u32>, unit: &str| {
                if let Some(value) = value.filter(|value| !range.contains(value)) {
                    let (least, most) = (range.start(), range.end());
                    let message =
                        format!("link `{name}`: {value} {unit} are out of range; give {least} to {most}");
                    problem(format!("links/{index}/{path}"), message);
                }
            };
        number("inline/frames", link.inline.as_ref().and_then(|inline| inline.frames), RING_FRAMES, "frames");
        for (inline, level, section) in levels_of(link) {
            let path = |key| inline.level_path(level, key);
            number(&path("entries"), section.entries, OFFLOAD_ENTRIES, "entries");
            let stale = section.stale.map(|Seconds(seconds)| u32::try_from(seconds).unwrap_or(u32::MAX));
            number(&path("stale"), stale, OFFLOAD_STALE, "seconds");
        }
        let tap = link.tap.as_ref();
        let window = tap.and_then(|tap| tap.duplicate_window);
        number("tap/duplicate-window", window, DUPLICATE_WINDOW, "milliseconds");
        number("tap/merge-wait", tap.and_then(|tap| tap.merge_wait), MERGE_WAIT, "milliseconds");
        let (range, block) = RING_BYTES;
        let fits = |ring: &Size| range.contains(&ring.0) && ring.0.is_multiple_of(block);
        if let Some(ring) = tap.and_then(|tap| tap.ring).filter(|ring| !fits(ring)) {
            let message =
                format!("link `{name}`: a ring of {ring} is not possible; give 2MiB to 4GiB, in whole MiB");
            problem(format!("links/{index}/tap/ring"), message);
        }
    }
}

/// Checks the number of interfaces of taps, and keys that only taps with several interfaces may have.
fn taps(file: &HostFile, problem: &mut impl FnMut(String, String)) {
    for (index, link) in file.links.iter().enumerate() {
        let (name, Some(tap)) = (&link.name, &link.tap) else { continue };
        let count = tap.interface.len();
        if !(1..=TAP_INTERFACES).contains(&count) {
            let message = format!(
                "link `{name}`: a tap has 1 to {TAP_INTERFACES} interfaces, and this one has {count}; write `interface: eth1` or `interface: [eth1, eth2]`"
            );
            problem(format!("links/{index}/tap/interface"), message);
        }
        if count < 2 && tap.merge_wait.is_some() {
            let message = format!(
                "link `{name}`: `merge-wait` needs several interfaces, whose packets it puts in order; remove the key, or give the interfaces of both sides: `interface: [eth1, eth2]`"
            );
            problem(format!("links/{index}/tap/merge-wait"), message);
        }
    }
}

/// Positions of the values of `settings` in a host file that [`parse`] accepts.
#[must_use]
pub fn places_of_settings(text: &str) -> BTreeMap<String, yaml::Position> {
    let entries = |node: &yaml::Node| match &node.value {
        yaml::Value::Mapping(pairs) => pairs.clone(),
        _ => Vec::new(),
    };
    let Ok(root) = yaml::parse(text) else { return BTreeMap::new() };
    let section = entries(&root).into_iter().find(|(key, _)| key.as_str() == Some("settings"));
    let pairs = section.map(|(_, value)| entries(&value)).unwrap_or_default();
    pairs.iter().filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value.position))).collect()
}

/// Position of a value in a host file that [`parse`] accepts: `links/0/filter`.
#[must_use]
pub fn place_of(text: &str, path: &str) -> Option<yaml::Position> {
    yaml::parse(text).ok().map(|root| read::locate(&root, path))
}

/// Problems of single values: path and message.
fn numbers(file: &HostFile) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if file.links.is_empty() {
        found.push(("links", "there is no link, so no packet comes in; add one".to_owned()));
    }
    if file.workers == Some(0) {
        let message = "at least one worker is needed; remove the key for one per core";
        found.push(("workers", message.to_owned()));
    }
    if file.workers.is_some_and(|workers| workers > WORKERS) {
        found.push(("workers", format!("more than {WORKERS} workers are not supported; give fewer")));
    }
    let entries = [("memory/flows", file.memory.flows, FLOWS), ("memory/hosts", file.memory.hosts, HOSTS)];
    for (path, value, range) in entries {
        if let Some(value) = value.filter(|v| !range.contains(v)) {
            let message =
                format!("{value} entries are out of range; give {} to {}", range.start(), range.end());
            found.push((path, message));
        }
    }
    let sizes = [
        ("memory/function-hosts", file.memory.function_hosts),
        ("memory/reassembly", file.memory.reassembly),
        ("memory/defrag", file.memory.defrag),
    ];
    for (path, size) in sizes {
        if let Some(Size(bytes)) = size.filter(|s| s.0 < MEMORY_MIN) {
            let message = format!("{bytes} bytes are too few; give {} or more", Size(MEMORY_MIN));
            found.push((path, message));
        }
    }
    found.extend(file.controller.iter().flat_map(ControllerSection::wrong));
    if let Some(mode) = file.outputs.mode.as_deref().filter(|mode| !is_mode(mode)) {
        let message =
            format!("`{mode}` is not a file mode; write octal digits such as 640, with 6 for the owner");
        found.push(("outputs/mode", message));
    }
    let rotate = file.outputs.eve.as_ref().map(|e| e.rotate.clone()).unwrap_or_default();
    if rotate.size == Some(Size(0)) {
        found.push((
            "outputs/eve/rotate/size",
            "a file cannot have 0 bytes; remove the key for no limit".to_owned(),
        ));
    }
    if rotate.every == Some(Seconds(0)) {
        found.push((
            "outputs/eve/rotate/every",
            "a file cannot last 0 seconds; remove the key for no limit".to_owned(),
        ));
    }
    if rotate.keep.is_some() && rotate.size.is_none() && rotate.every.is_none() {
        let message =
            "`keep` needs `size` or `every`: without them no file is rotated; add one, or remove `keep`";
        found.push(("outputs/eve/rotate/keep", message.to_owned()));
    }
    found
}

/// Whether a mode is three octal digits, with or without a leading 0, that let the owner read and write. The
/// writer of the files parses it again.
fn is_mode(text: &str) -> bool {
    let digits = text.strip_prefix('0').unwrap_or(text).as_bytes();
    matches!(digits, [b'6' | b'7', b'0'..=b'7', b'0'..=b'7'])
}

impl HostFile {
    /// Makes relative paths relative to the folder of the file.
    pub fn relative_to(&mut self, folder: &Path) {
        let named =
            [&mut self.policy, &mut self.suricata_config, &mut self.outputs.socket, &mut self.pid_file];
        let eve = self.outputs.eve.as_mut().map(|e| &mut e.dir);
        let rules = self.rules.0.iter_mut();
        let of_controller = self.controller.iter_mut().flat_map(ControllerSection::folders);
        let captures_and_sockets = self.links.iter_mut().flat_map(|link| {
            let socket = link.guest.as_mut().and_then(|guest| guest.socket.as_mut());
            link.capture.as_mut().map(|files| files.0.iter_mut()).into_iter().flatten().chain(socket)
        });
        let or_none = [&mut self.cache, &mut self.control.socket].into_iter().flatten();
        let or_none = or_none.filter(|path| path.as_os_str() != "none");
        for path in named
            .into_iter()
            .flatten()
            .chain(eve)
            .chain(rules)
            .chain(captures_and_sockets)
            .chain(or_none)
            .chain(of_controller)
        {
            *path = folder.join(&*path);
        }
    }
}

#[cfg(test)]
mod tests;
