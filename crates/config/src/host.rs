// SPDX-License-Identifier: Apache-2.0
//! The host file, bartizan.yaml: links, workers, memory, outputs.
//!
//! Not done here: whether interfaces exist (the ports say so), defaults that depend on the machine.

use crate::policy::read;
use crate::policy::values::{List, Seconds, Size};
use crate::policy::{PolicyError, Problem};
use crate::yaml;
use core::net::SocketAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The host file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "Bartizan host file")]
pub struct HostFile {
    /// What packets come in by.
    pub links: Vec<Link>,
    /// Worker threads; one per core unless given.
    pub workers: Option<u16>,
    /// Bounds of what traffic can make grow.
    #[serde(default)]
    pub memory: Memory,
    /// Where events go.
    #[serde(default)]
    pub outputs: Outputs,
    /// Metrics for Prometheus.
    pub metrics: Option<Metrics>,
    /// The policy file, beside this file or absolute; without one the chain is `ids` alone.
    pub policy: Option<PathBuf>,
    /// An existing suricata.yaml, beside this file or absolute.
    pub suricata_config: Option<PathBuf>,
}

/// What packets come in by: exactly one of `inline`, `tap` and `capture`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Link {
    /// Name, in policies and events.
    pub name: String,
    /// Two interfaces that are bridged: prevention.
    pub inline: Option<Inline>,
    /// An interface that is listened on: detection.
    pub tap: Option<Tap>,
    /// Capture files that are read.
    pub capture: Option<List<PathBuf>>,
}

/// Two interfaces that are bridged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Inline {
    /// One interface.
    pub a: String,
    /// The other.
    pub b: String,
}

/// An interface that is listened on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tap {
    /// The interface.
    pub interface: String,
}

/// A link's kind, as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind<'l> {
    /// Bridged interfaces.
    Inline(&'l Inline),
    /// An interface that is listened on.
    Tap(&'l Tap),
    /// Capture files.
    Capture(&'l [PathBuf]),
}

impl Link {
    /// Which kind it is; `None` unless exactly one is given, which [`parse`] has checked.
    #[must_use]
    pub fn kind(&self) -> Option<LinkKind<'_>> {
        match (&self.inline, &self.tap, &self.capture) {
            (Some(inline), None, None) => Some(LinkKind::Inline(inline)),
            (None, Some(tap), None) => Some(LinkKind::Tap(tap)),
            (None, None, Some(files)) => Some(LinkKind::Capture(files)),
            _ => None,
        }
    }
}

/// Bounds of what traffic can make grow, in total for all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Memory {
    /// Entries of the flow tables.
    #[serde(default = "flows")]
    pub flows: u32,
    /// Entries of the host table.
    #[serde(default = "hosts")]
    pub hosts: u32,
    /// Stream reassembly.
    #[serde(default = "reassembly")]
    pub reassembly: Size,
    /// IP defragmentation.
    #[serde(default = "defrag")]
    pub defrag: Size,
}

fn flows() -> u32 {
    262_144
}

fn hosts() -> u32 {
    65_536
}

fn reassembly() -> Size {
    Size(256 << 20)
}

fn defrag() -> Size {
    Size(32 << 20)
}

impl Default for Memory {
    fn default() -> Self {
        Memory { flows: flows(), hosts: hosts(), reassembly: reassembly(), defrag: defrag() }
    }
}

/// Where events go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Outputs {
    /// EVE JSON files.
    pub eve: Option<Eve>,
    /// EVE JSON to a Unix socket that a reader listens on.
    pub socket: Option<PathBuf>,
    /// EVE JSON to standard output.
    #[serde(default)]
    pub stdout: bool,
}

/// EVE JSON files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Eve {
    /// The folder; `eve.json` is written there.
    pub dir: PathBuf,
    /// When a new file is begun.
    #[serde(default)]
    pub rotate: Rotate,
}

/// When a new file is begun; never, unless something is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rotate {
    /// When the file has grown to this size.
    pub size: Option<Size>,
    /// After this time.
    pub every: Option<Seconds>,
    /// How many old files are kept; all unless given.
    pub keep: Option<u32>,
}

/// Metrics for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Metrics {
    /// Address and port: `127.0.0.1:9100`, `[::1]:9100`.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
}

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
        wrong(vec![Problem {
            position: e.position,
            path: String::new(),
            message: format!("not YAML: {}", e.message),
        }])
    })?;
    let file: HostFile = read::read(&root).map_err(wrong)?;
    let mut problems = Vec::new();
    let mut problem = |path: String, message: String| {
        problems.push(Problem { position: read::locate(&root, &path), path, message });
    };
    if file.links.is_empty() {
        problem("links".to_owned(), "no link: packets come in by none; add one".to_owned());
    }
    if file.workers == Some(0) {
        problem(
            "workers".to_owned(),
            "at least one worker is needed; leave the key out for one per core".to_owned(),
        );
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
            Some(LinkKind::Tap(tap)) => vec![&tap.interface],
            Some(LinkKind::Capture(_)) => Vec::new(),
            None => {
                let message =
                    format!("link `{}` needs exactly one of `inline`, `tap` and `capture`", link.name);
                problem(format!("links/{index}"), message);
                Vec::new()
            }
        };
        for interface in used {
            if !interfaces.insert(interface) {
                let message = format!("interface `{interface}` is used twice; one link is one pair of ports");
                problem(format!("links/{index}"), message);
            }
        }
    }
    if problems.is_empty() { Ok(file) } else { Err(wrong(problems)) }
}

/// Reads and checks a host file from disk; relative paths in it become relative to its folder.
///
/// # Errors
/// It cannot be read, or see [`parse`].
pub fn load(path: &Path) -> Result<HostFile, PolicyError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PolicyError::Read { path: path.display().to_string(), source })?;
    let mut file = parse(&path.display().to_string(), &text)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    for inner in [&mut file.policy, &mut file.suricata_config].into_iter().flatten() {
        *inner = folder.join(&*inner);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
links:
  - name: wan
    inline: {a: eth1, b: eth2}
  - {name: mirror, tap: {interface: eth3}}
  - {name: replay, capture: one.pcap}
workers: 2
memory: {flows: 1000000, reassembly: 1GiB}
outputs:
  eve: {dir: /var/log/bartizan, rotate: {size: 100MiB, every: 1h, keep: 5}}
  socket: /run/bartizan/eve.sock
metrics: {listen: '[::1]:9100'}
policy: policy.yaml
suricata-config: /etc/suricata/suricata.yaml
";

    #[test]
    fn reads_everything() {
        let file = parse("bartizan.yaml", FILE).expect("host file");
        assert_eq!(file.links.len(), 3);
        assert!(matches!(file.links[0].kind(), Some(LinkKind::Inline(i)) if i.b == "eth2"));
        assert!(
            matches!(file.links[2].kind(), Some(LinkKind::Capture([one])) if one == Path::new("one.pcap"))
        );
        assert_eq!(file.memory.reassembly, Size(1 << 30));
        assert_eq!(file.memory.hosts, 65_536);
        let rotate = &file.outputs.eve.as_ref().expect("eve").rotate;
        assert_eq!(
            (rotate.size, rotate.every, rotate.keep),
            (Some(Size(100 << 20)), Some(Seconds(3600)), Some(5))
        );
        assert_eq!(file.metrics.expect("metrics").listen.port(), 9100);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let cases = [
            (
                "links: [{name: a, tap: {interfce: e}}]",
                "1:25: the key `interfce` is not known; did you mean `interface`?",
            ),
            ("links: [{name: a}]", "1:9: link `a` needs exactly one of `inline`, `tap` and `capture`"),
            ("workers: 2", "1:1: the key `links` is missing; add it"),
            (
                "links: [{name: a, inline: {a: e0, b: e0}}]",
                "1:9: interface `e0` is used twice; one link is one pair of ports",
            ),
            (
                "links: []\nmemory: {reassembly: 3 bananas}",
                "2:22: `3 bananas` is no size; write 64MiB, 2GiB or a number of bytes",
            ),
            ("links: []\nworkers: many", "2:10: expected a whole number from 0 to 65535, found `many`"),
            ("links: []", "1:1: no link: packets come in by none; add one"),
        ];
        for (text, expected) in cases {
            let error = parse("bartizan.yaml", text).expect_err(text).to_string();
            assert!(error.contains(&format!("bartizan.yaml:{expected}")), "{text}\n{error}");
        }
    }

    #[test]
    fn the_schema_is_the_committed_one() {
        crate::policy::schema_file("host-schema.json", &schema());
    }
}
