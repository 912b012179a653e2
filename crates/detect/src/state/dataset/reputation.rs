// SPDX-License-Identifier: Apache-2.0
//! Reputations of addresses: category file (`id,name,description`) and lists
//! (`address[/length],category,score`) from the settings `reputation-categories-file`,
//! `default-reputation-path` and `reputation-files`.
//!
//! The files are read once per load of rules; traffic changes nothing. Lines that cannot be understood are
//! left out and reported.

use super::{ListFile, SkippedEntries};
use bartizan_base::SettingsMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The largest category number.
pub const CATEGORY_MAX: u8 = 60;
/// The largest score.
pub const SCORE_MAX: u8 = 127;

/// The reason why reputations are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReputationError {
    /// The settings name no category file.
    #[error("no reputations are configured; set `reputation-categories-file` and `reputation-files`")]
    NotConfigured,
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: String,
    },
}

type Scores = SmallVec<[(u8, u8); 2]>;

/// Categories and scores.
#[derive(Debug, Default)]
pub struct Reputation {
    categories: HashMap<String, u8>,
    hosts: HashMap<IpAddr, Scores>,
    /// Networks by prefix length in IPv6 bits; iteration in reverse gives the longest prefixes first.
    networks: BTreeMap<u8, HashMap<u128, Scores>>,
}

impl Reputation {
    /// Reads the files that the settings name, and records them in `lists`.
    ///
    /// # Errors
    /// The settings name no file, or a file cannot be read.
    pub fn load(
        settings: &SettingsMap,
        skipped: &mut SkippedEntries,
        lists: &mut Vec<ListFile>,
    ) -> Result<Self, ReputationError> {
        let categories = settings.get("reputation-categories-file").ok_or(ReputationError::NotConfigured)?;
        let folder = settings.get("default-reputation-path").map(Path::new);
        let mut reputation = Reputation::default();
        let path = Path::new(categories);
        reputation.read_categories(path, &read(path, lists)?, skipped);
        for item in settings.children("reputation-files") {
            let Some(name) = settings.get(&format!("reputation-files.{item}")) else { continue };
            let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
            reputation.read_scores(&path, &read(&path, lists)?, skipped);
        }
        Ok(reputation)
    }

    /// The number of a category.
    #[must_use]
    pub fn category(&self, name: &str) -> Option<u8> {
        self.categories.get(name).copied()
    }

    /// Number of addresses and networks with scores.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len().saturating_add(self.networks.values().map(HashMap::len).sum())
    }

    /// Whether no address has a score.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The score of an address in a category: its own, else that of the smallest listed network around it. A
    /// score of 0 counts as a score.
    #[must_use]
    pub fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
        let in_list = |scores: &Scores| scores.iter().find(|(c, _)| *c == category).map(|(_, score)| *score);
        let own = self.hosts.get(&address).and_then(in_list);
        if own.is_some() {
            return own;
        }
        let bits = bits(address);
        let v4 = address.is_ipv4();
        self.networks
            .iter()
            .rev()
            // IPv4 networks have a part of the table to themselves.
            .filter(|(length, _)| !v4 || **length >= 96)
            .find_map(|(length, networks)| networks.get(&masked(bits, *length)).and_then(in_list))
    }

    fn read_categories(&mut self, path: &Path, text: &str, skipped: &mut SkippedEntries) {
        for (number, line) in records(text) {
            match category_of(line) {
                Ok((category, name)) => {
                    self.categories.insert(name.to_owned(), category);
                }
                Err(what) => skipped.add(path, number, line.as_bytes(), what),
            }
        }
    }

    fn read_scores(&mut self, path: &Path, text: &str, skipped: &mut SkippedEntries) {
        for (number, line) in records(text) {
            if let Err(what) = self.add_score(line) {
                skipped.add(path, number, line.as_bytes(), what);
            }
        }
    }

    fn add_score(&mut self, line: &str) -> Result<(), &'static str> {
        let fields = fields(line);
        // As in Suricata, text after the score is ignored.
        let [address, category, score, ..] = fields.as_slice() else {
            return Err("`address,category,score` is expected");
        };
        let category = category_number(category)?;
        let score = score.parse().ok().filter(|s| *s <= SCORE_MAX).ok_or("a score is at most 127")?;
        let scores = match address.split_once('/') {
            None => {
                let address = address.parse().map_err(|_| "this is not an address")?;
                self.hosts.entry(address).or_default()
            }
            Some((address, length)) => {
                let address: IpAddr = address.parse().map_err(|_| "this is not an address")?;
                let most = if address.is_ipv4() { 32 } else { 128 };
                let length: u8 =
                    length.parse().ok().filter(|l| *l <= most).ok_or("this is not a prefix length")?;
                let length = length.saturating_add(128 - most);
                self.networks.entry(length).or_default().entry(masked(bits(address), length)).or_default()
            }
        };
        scores.retain(|(c, _)| *c != category);
        scores.push((category, score));
        Ok(())
    }
}

/// Parses number and name from a line of the category file.
fn category_of(line: &str) -> Result<(u8, &str), &'static str> {
    match fields(line).as_slice() {
        [number, name, ..] => Ok((category_number(number)?, *name)),
        _ => Err("`number,name,description` is expected"),
    }
}

fn category_number(text: &str) -> Result<u8, &'static str> {
    text.parse().ok().filter(|n| (1..CATEGORY_MAX).contains(n)).ok_or("a category has a number from 1 to 59")
}

/// The text of a file. A line that is not UTF-8 gets replacement characters, which no number or address has.
fn read(path: &Path, lists: &mut Vec<ListFile>) -> Result<String, ReputationError> {
    let unreadable = |error: std::io::Error| ReputationError::Unreadable {
        path: path.to_owned(),
        error: error.to_string(),
    };
    let bytes = std::fs::read(path).map_err(unreadable)?;
    lists.push(ListFile::new(path, &bytes));
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines with their numbers, without empty lines and remarks.
fn records(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn fields(line: &str) -> SmallVec<[&str; 4]> {
    line.split(',').map(str::trim).collect()
}

/// The address as a number; IPv4 is mapped into IPv6.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
    u128::from(Ipv6Addr::from(bits & mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Reputation {
        let (mut reputation, mut skipped) = (Reputation::default(), SkippedEntries::default());
        let path = Path::new("list");
        let categories = "1,BadHosts,Known bad hosts\n2,GoodHosts,Known good\n";
        reputation.read_categories(path, categories, &mut skipped);
        let list = "# remark\n10.0.0.0/24,1,20\n10.0.0.0/8,1,10\n10.0.0.7,2,100\n10.1.0.0/16,2,5\n10.2.0.0/16,1,0\n\
                    2001:db8::/32,1,30\n2001:db8::1,1,0\n";
        reputation.read_scores(path, list, &mut skipped);
        assert!(skipped.entries().is_empty());
        reputation
    }

    #[test]
    fn the_smallest_network_of_the_category_counts() {
        let reputation = example();
        let score = |address: &str, name: &str| {
            reputation.score(address.parse().unwrap(), reputation.category(name).unwrap())
        };
        for (address, name, expected) in [
            ("10.0.0.1", "BadHosts", Some(20)),
            ("10.9.0.1", "BadHosts", Some(10)),
            ("10.0.0.7", "GoodHosts", Some(100)),
            ("10.0.0.7", "BadHosts", Some(20)),
            ("10.1.0.7", "BadHosts", Some(10)),
            ("10.1.0.7", "GoodHosts", Some(5)),
            ("10.2.0.7", "BadHosts", Some(0)),
            ("10.2.0.7", "GoodHosts", None),
            ("11.0.0.1", "BadHosts", None),
            ("2001:db8::5", "BadHosts", Some(30)),
            ("2001:db8::1", "BadHosts", Some(0)),
            ("2001:db9::5", "BadHosts", None),
        ] {
            assert_eq!(score(address, name), expected, "{address} {name}");
        }
        assert_eq!((reputation.len(), reputation.category("Nothing")), (7, None));
    }

    #[test]
    fn lines_that_cannot_be_understood_are_left_out() {
        let (mut reputation, mut skipped) = (Reputation::default(), SkippedEntries::default());
        let list = "10.0.0.1,1\n10.0.0.1,0,5\n10.0.0.1,60,5\n10.0.0.2,1,9\n10.0.0.1,1,128\n10.0.0.1/33,1,1\nx,1,1\n\
                    10.0.0.1,1,-1\n2001:db8::/129,1,1\n2001:db8::2,1,9\n10.0.0.300,1,1\n\u{fffd},1,1\n";
        reputation.read_scores(Path::new("list"), list, &mut skipped);
        reputation.read_categories(Path::new("c"), "0,None,x\n60,Beyond,x\n1,Bad,x\nx,y\n3\n", &mut skipped);
        let lines: Vec<_> = skipped.entries().iter().map(|entry| entry.line).collect();
        assert_eq!(lines, [1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 1, 2, 4, 5]);
        assert_eq!(
            (reputation.len(), reputation.category("Bad"), reputation.category("None")),
            (2, Some(1), None)
        );
        let none = Reputation::load(&SettingsMap::new(), &mut skipped, &mut Vec::new());
        assert_eq!(none.unwrap_err(), ReputationError::NotConfigured);
    }

    #[test]
    fn ipv4_and_ipv6_never_meet() {
        let mut reputation = Reputation::default();
        reputation.read_scores(Path::new("list"), "::/0,1,5\n", &mut SkippedEntries::default());
        assert_eq!(reputation.score("192.0.2.1".parse().unwrap(), 1), None);
        assert_eq!(reputation.score("2001:db8::1".parse().unwrap(), 1), Some(5));
    }
}
