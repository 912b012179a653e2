// SPDX-License-Identifier: Apache-2.0
//! Links, filters and processors that the Suricata settings name: `af-packet`, `threading.cpu-affinity`.
//!
//! They apply where neither the command line nor a host file names a link; a filter also applies to the tap
//! of its interface (`--tap`). Source: Suricata 8's user guide. Not done: other ways of capture; rings, whose
//! sizes mean something else here; processors by interface.

use crate::error::Failure;
use crate::link_plan::{FilterExpression, LinkPlan, LinkPorts, Receive};
use bartizan_base::{SettingsMap, parse_bool};
use bartizan_config::host;

/// The entry whose values apply where another one has none.
const DEFAULT: &str = "default";

/// Links of `af-packet`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SettingsLinks {
    /// The links, without prevention.
    pub links: Vec<LinkPlan>,
    /// All inline links only copy packets (`copy-mode: tap`).
    pub detect: bool,
}

/// An entry of the list.
struct Entry<'s> {
    settings: &'s SettingsMap,
    number: &'s str,
    /// The number of the entry with defaults.
    default: Option<&'s str>,
}

impl<'s> Entry<'s> {
    /// All entries, and the interface of each.
    fn all(settings: &'s SettingsMap) -> Vec<(&'s str, Entry<'s>)> {
        let numbers: Vec<&str> = settings.children("af-packet").collect();
        let interface = |number: &str| settings.get(&format!("af-packet.{number}.interface"));
        let default = numbers.iter().copied().find(|number| interface(number) == Some(DEFAULT));
        let entry = |number: &'s str| Some((interface(number)?, Entry { settings, number, default }));
        numbers.into_iter().filter_map(entry).filter(|(name, _)| *name != DEFAULT).collect()
    }

    fn key(&self, name: &str) -> String {
        format!("af-packet.{}.{name}", self.number)
    }

    /// A value, or that of the entry with defaults, with its key.
    fn value(&self, name: &str) -> Option<(String, &'s str)> {
        let of_default = || {
            let key = format!("af-packet.{}.{name}", self.default?);
            self.settings.get(&key).map(|value| (key, value))
        };
        let own = self.key(name);
        self.settings.get(&own).map(|value| (own, value)).or_else(of_default)
    }

    fn filter(&self) -> Option<FilterExpression> {
        let (key, expression) = self.value("bpf-filter")?;
        let place = self.settings.origin(&key).map_or_else(|| key.clone(), |at| format!("{at}: `{key}`"));
        let expression = expression.trim().to_owned();
        (!expression.is_empty()).then_some(FilterExpression { expression, place })
    }

    /// The interface that packets are copied to, and whether none is dropped on the way.
    fn copies_to(&self) -> Result<Option<(&'s str, bool)>, Failure> {
        let Some((key, mode)) = self.value("copy-mode") else { return Ok(None) };
        let only_copies = match mode.trim() {
            "ips" => false,
            "tap" => true,
            "none" | "" => return Ok(None),
            _ => return Err(self.wrong(&key, mode, "is not a mode; write `ips`, `tap` or `none`")),
        };
        let other = self.value("copy-iface").map(|(_, other)| other.trim()).filter(|other| !other.is_empty());
        let Some(other) = other else {
            let why = "needs the interface to copy to; add `copy-iface` beside it, or write `none`";
            return Err(self.wrong(&key, mode, why));
        };
        if let Some(FilterExpression { place, expression }) = self.filter() {
            return Err(Failure::input(format!(
                "{place}: `{expression}`: an inline link has no packet filter, so all packets are inspected; remove it, and exempt traffic by a policy"
            )));
        }
        Ok(Some((other, only_copies)))
    }

    fn wrong(&self, key: &str, value: &str, why: &str) -> Failure {
        let at = self.settings.origin(key).unwrap_or_default();
        Failure::input(format!("{at}: `{key}: {value}` {why}"))
    }

    fn workers(&self, all: u16) -> Result<u16, Failure> {
        let Some((key, threads)) = self.value("threads") else { return Ok(all) };
        if threads.trim() == "auto" {
            return Ok(all);
        }
        threads.trim().parse().ok().filter(|threads| (1..=host::WORKERS).contains(threads)).ok_or_else(|| {
            let why = format!("is not a number of workers; give 1 to {}, or `auto`", host::WORKERS);
            self.wrong(&key, threads, &why)
        })
    }
}

/// The links that the settings name, each pair of inline interfaces once. `auto`: workers of a link that
/// names no number.
///
/// # Errors
/// Workers that are no number; a mode that does not exist, or has no interface to copy to; a filter of an
/// inline link; links of which some copy and some prevent.
pub fn links(settings: &SettingsMap, auto: u16) -> Result<SettingsLinks, Failure> {
    let mut found = SettingsLinks::default();
    let (mut inline, mut taken): (Vec<bool>, Vec<&str>) = (Vec::new(), Vec::new());
    for (interface, entry) in Entry::all(settings) {
        if taken.contains(&interface) {
            continue;
        }
        taken.push(interface);
        let workers = entry.workers(auto)?;
        let (name, ports, filter) = match entry.copies_to()? {
            Some((other, only_copies)) => {
                taken.push(other);
                inline.push(only_copies);
                let (a, b) = (interface.to_owned(), other.to_owned());
                (format!("{a}-{b}"), LinkPorts::Inline { a, b, fix_offloads: false }, None)
            }
            None => {
                let interfaces = vec![interface.to_owned()];
                let ports = LinkPorts::Tap { interfaces, fix_offloads: false };
                (interface.to_owned(), ports, entry.filter())
            }
        };
        let (receive, levels) = (Receive::default(), Vec::new());
        found.links.push(LinkPlan { name, ports, workers, prevention: false, filter, receive, levels });
    }
    found.detect = !inline.is_empty() && inline.iter().all(|only_copies| *only_copies);
    if !found.detect && inline.contains(&true) {
        return Err(Failure::input(
            "`af-packet` has links with `copy-mode: ips` and with `copy-mode: tap`: a run prevents on all inline links or on none; run them apart",
        ));
    }
    Ok(found)
}

/// The filter of a tap's interface.
pub fn filter_of(settings: &SettingsMap, interface: &str) -> Option<FilterExpression> {
    let entries = Entry::all(settings);
    entries.iter().find(|(name, _)| *name == interface).and_then(|(_, entry)| entry.filter())
}

/// The processors of workers: `worker-cpu-set`, where affinity is on and the set is exclusive. Empty: as
/// without the settings.
///
/// # Errors
/// A processor that is no number.
pub fn processors(settings: &SettingsMap) -> Result<Vec<usize>, Failure> {
    const SET: &str = "threading.cpu-affinity.worker-cpu-set";
    let is_on = settings.get("threading.set-cpu-affinity").and_then(parse_bool) == Some(true);
    let mode = settings.get(&format!("{SET}.mode")).unwrap_or("exclusive");
    let list = format!("{SET}.cpu");
    let items: Vec<(String, &str)> = settings
        .children(&list)
        .map(|number| format!("{list}.{number}"))
        .chain([list.clone()])
        .filter_map(|key| settings.get(&key).map(|value| (key, value)))
        .collect();
    if !is_on || mode != "exclusive" {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (key, value) in items {
        for part in value.split(',').map(str::trim) {
            if part == "all" {
                return Ok(Vec::new());
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse::<usize>().ok().zip(last.trim().parse::<usize>().ok());
            let range = range.filter(|(first, last)| first <= last && *last < 4096).ok_or_else(|| {
                let at = settings.origin(&key).unwrap_or_default();
                Failure::input(format!(
                    "{at}: `{key}: {value}` names no processors; write `1`, `1-3` or `all`"
                ))
            })?;
            found.extend(range.0..=range.1);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> SettingsMap {
        let mut settings = SettingsMap::new();
        for (key, value) in pairs {
            settings.set_from(*key, *value, "s.yaml:1:1");
        }
        settings
    }

    #[test]
    fn each_entry_is_a_link_with_the_defaults_of_the_list() {
        let list = settings(&[
            ("af-packet.0.interface", "e0"),
            ("af-packet.0.threads", "2"),
            ("af-packet.1.interface", "e1"),
            ("af-packet.1.bpf-filter", "tcp"),
            ("af-packet.2.interface", "default"),
            ("af-packet.2.bpf-filter", "not port 22"),
        ]);
        let found = links(&list, 4).unwrap();
        let all: Vec<_> = found
            .links
            .iter()
            .map(|link| (link.interface(), link.workers, link.filter.as_ref().unwrap().expression.as_str()))
            .collect();
        assert_eq!(all, [("e0".to_owned(), 2, "not port 22"), ("e1".to_owned(), 4, "tcp")]);
        assert_eq!(filter_of(&list, "e1").unwrap().place, "s.yaml:1:1: `af-packet.1.bpf-filter`");
        assert_eq!(filter_of(&list, "e7"), None);
        let wrong = settings(&[("af-packet.0.interface", "e0"), ("af-packet.0.threads", "many")]);
        assert!(
            links(&wrong, 1).unwrap_err().message.contains("`af-packet.0.threads: many` is not a number")
        );
    }

    #[test]
    fn a_pair_is_one_inline_link() {
        let pair = |one: &str, other: &str| {
            settings(&[
                ("af-packet.0.interface", "e0"),
                ("af-packet.0.copy-mode", one),
                ("af-packet.0.copy-iface", "e1"),
                ("af-packet.1.interface", "e1"),
                ("af-packet.1.copy-mode", one),
                ("af-packet.1.copy-iface", "e0"),
                ("af-packet.2.interface", "e2"),
                ("af-packet.2.copy-mode", other),
                ("af-packet.2.copy-iface", "e3"),
            ])
        };
        let found = links(&pair("ips", "ips"), 1).unwrap();
        let names: Vec<_> = found.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!((names, found.detect), (vec!["e0-e1", "e2-e3"], false));
        assert!(found.links.iter().all(LinkPlan::is_inline));
        assert!(links(&pair("tap", "tap"), 1).unwrap().detect);
        assert!(links(&pair("ips", "tap"), 1).is_err());
        assert_eq!(links(&settings(&[]), 1).unwrap(), SettingsLinks::default());
    }

    #[test]
    fn an_inline_link_that_cannot_be_is_no_tap() {
        let refused = |more: &[(&str, &str)], says: &str| {
            let all = [&[("af-packet.0.interface", "e0")][..], more].concat();
            let error = links(&settings(&all), 1).unwrap_err().message;
            assert!(error.starts_with("s.yaml:1:1: `af-packet.0.") && error.contains(says), "{error}");
        };
        let (ips, to) = (("af-packet.0.copy-mode", "ips"), ("af-packet.0.copy-iface", "e1"));
        refused(&[ips], "needs the interface to copy to");
        refused(&[("af-packet.0.copy-mode", "isp"), to], "`af-packet.0.copy-mode: isp` is not a mode");
        refused(&[ips, to, ("af-packet.0.bpf-filter", "tcp")], "an inline link has no packet filter");
        let none = [("af-packet.0.interface", "e0"), ("af-packet.0.copy-mode", "none"), to];
        assert!(!links(&settings(&none), 1).unwrap().links[0].is_inline());
    }

    #[test]
    fn workers_have_the_processors_of_their_set() {
        let set = |on: &str, mode: &str, cpus: &[&str]| {
            let mut all = settings(&[
                ("threading.set-cpu-affinity", on),
                ("threading.cpu-affinity.worker-cpu-set.mode", mode),
            ]);
            for (number, cpu) in cpus.iter().enumerate() {
                let key = format!("threading.cpu-affinity.worker-cpu-set.cpu.{number}");
                all.set_from(key, *cpu, "s.yaml:1:1");
            }
            processors(&all)
        };
        assert_eq!(set("yes", "exclusive", &["1", "4-6"]).unwrap(), [1, 4, 5, 6]);
        assert_eq!(set("no", "exclusive", &["1"]).unwrap(), [0_usize; 0]);
        assert_eq!(set("yes", "balanced", &["1"]).unwrap(), [0_usize; 0]);
        assert_eq!(set("yes", "exclusive", &["all"]).unwrap(), [0_usize; 0]);
        assert!(set("yes", "exclusive", &["3-1"]).unwrap_err().message.contains("names no processors"));
    }
}
