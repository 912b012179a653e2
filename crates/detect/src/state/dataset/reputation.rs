// SPDX-License-Identifier: Apache-2.0
//! Reputations of addresses: category file (`id,name,description`) and lists (`address[/length],category,score`), as
//! `reputation-categories-file`, `default-reputation-path` and `reputation-files` of the settings name them.
//!
//! Read once per load of rules; traffic adds nothing.

use bartizan_base::Settings;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The largest category number.
pub const CATEGORY_MAX: u8 = 60;
/// The largest score.
pub const SCORE_MAX: u8 = 127;

/// Why reputations cannot be had.
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
        /// Why.
        error: String,
    },
    /// A line cannot be understood.
    #[error("{path}, line {line}: {what}")]
    BadLine {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

type Scores = SmallVec<[(u8, u8); 2]>;

/// Categories and scores.
#[derive(Debug, Default)]
pub struct Reputation {
    categories: HashMap<String, u8>,
    hosts: HashMap<IpAddr, Scores>,
    /// By prefix length in IPv6 bits, longest first when walked backwards.
    networks: BTreeMap<u8, HashMap<u128, Scores>>,
}

impl Reputation {
    /// Reads what the settings name.
    ///
    /// # Errors
    /// Nothing is named; a file cannot be read or understood.
    pub fn load(settings: &Settings) -> Result<Self, ReputationError> {
        let categories = settings.get("reputation-categories-file").ok_or(ReputationError::NotConfigured)?;
        let folder = settings.get("default-reputation-path").map(Path::new);
        let mut reputation = Reputation::default();
        let path = Path::new(categories);
        reputation.read_categories(path, &read(path)?)?;
        for item in settings.children("reputation-files") {
            let Some(name) = settings.get(&format!("reputation-files.{item}")) else { continue };
            let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
            reputation.read_scores(&path, &read(&path)?)?;
        }
        Ok(reputation)
    }

    /// The number of a category.
    #[must_use]
    pub fn category(&self, name: &str) -> Option<u8> {
        self.categories.get(name).copied()
    }

    /// How many addresses and networks have scores.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len().saturating_add(self.networks.values().map(HashMap::len).sum())
    }

    /// Whether none has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The score of an address in a category, 0 without one: its own, else that of the smallest network around it
    /// that is listed.
    #[must_use]
    pub fn score(&self, address: IpAddr, category: u8) -> u8 {
        let in_list =
            |scores: &Scores| scores.iter().find(|(c, _)| *c == category).map_or(0, |(_, score)| *score);
        let own = self.hosts.get(&address).map_or(0, in_list);
        if own > 0 {
            return own;
        }
        let bits = bits(address);
        let v4 = address.is_ipv4();
        self.networks
            .iter()
            .rev()
            // Networks of IPv4 lie in their own part of the table.
            .filter(|(length, _)| !v4 || **length >= 96)
            .find_map(|(length, networks)| networks.get(&masked(bits, *length)))
            .map_or(0, in_list)
    }

    fn read_categories(&mut self, path: &Path, text: &str) -> Result<(), ReputationError> {
        for (line, fields) in records(text) {
            let bad = |what| ReputationError::BadLine { path: path.to_owned(), line, what };
            let [number, name, ..] = fields.as_slice() else {
                return Err(bad("`number,name,description` is expected"));
            };
            let number = number.parse().ok().filter(|n| (1..CATEGORY_MAX).contains(n));
            let number = number.ok_or_else(|| bad("a category has a number from 1 to 59"))?;
            self.categories.insert((*name).to_owned(), number);
        }
        Ok(())
    }

    fn read_scores(&mut self, path: &Path, text: &str) -> Result<(), ReputationError> {
        for (line, fields) in records(text) {
            let bad = |what| ReputationError::BadLine { path: path.to_owned(), line, what };
            let [address, category, score] = fields.as_slice() else {
                return Err(bad("`address,category,score` is expected"));
            };
            let category = category.parse().ok().filter(|n| (1..CATEGORY_MAX).contains(n));
            let category = category.ok_or_else(|| bad("a category has a number from 1 to 59"))?;
            let score = score
                .parse()
                .ok()
                .filter(|s| *s <= SCORE_MAX)
                .ok_or_else(|| bad("a score is at most 127"))?;
            let scores = match address.split_once('/') {
                None => {
                    let address = address.parse().map_err(|_| bad("this is no address"))?;
                    self.hosts.entry(address).or_default()
                }
                Some((address, length)) => {
                    let address: IpAddr = address.parse().map_err(|_| bad("this is no address"))?;
                    let most = if address.is_ipv4() { 32 } else { 128 };
                    let length: u8 = length
                        .parse()
                        .ok()
                        .filter(|l| *l <= most)
                        .ok_or_else(|| bad("this is no prefix length"))?;
                    let length = length.saturating_add(128 - most);
                    self.networks.entry(length).or_default().entry(masked(bits(address), length)).or_default()
                }
            };
            scores.retain(|(c, _)| *c != category);
            scores.push((category, score));
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, ReputationError> {
    std::fs::read_to_string(path)
        .map_err(|error| ReputationError::Unreadable { path: path.to_owned(), error: error.to_string() })
}

/// Lines with their numbers and fields; empty ones and remarks left out.
fn records(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| (number, line.split(',').map(str::trim).collect()))
}

/// The address as a number; IPv4 mapped into IPv6.
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
        let mut reputation = Reputation::default();
        let path = Path::new("list");
        reputation.read_categories(path, "1,BadHosts,Known bad hosts\n2,GoodHosts,Known good\n").unwrap();
        let list = "# remark\n10.0.0.0/24,1,20\n10.0.0.0/8,1,10\n10.0.0.7,2,100\n2001:db8::/32,1,30\n2001:db8::1,1,0\n";
        reputation.read_scores(path, list).unwrap();
        reputation
    }

    #[test]
    fn the_smallest_network_counts() {
        let reputation = example();
        let score = |address: &str, name: &str| {
            reputation.score(address.parse().unwrap(), reputation.category(name).unwrap())
        };
        for (address, name, expected) in [
            ("10.0.0.1", "BadHosts", 20),
            ("10.9.0.1", "BadHosts", 10),
            ("10.0.0.7", "GoodHosts", 100),
            ("10.0.0.7", "BadHosts", 20),
            ("11.0.0.1", "BadHosts", 0),
            ("2001:db8::5", "BadHosts", 30),
            ("2001:db9::5", "BadHosts", 0),
        ] {
            assert_eq!(score(address, name), expected, "{address} {name}");
        }
        assert_eq!((reputation.len(), reputation.category("Nothing")), (5, None));
    }

    #[test]
    fn what_is_refused() {
        let mut reputation = Reputation::default();
        for list in
            ["10.0.0.1,1", "10.0.0.1,0,5", "10.0.0.1,60,5", "10.0.0.1,1,128", "10.0.0.1/33,1,1", "x,1,1"]
        {
            let error = reputation.read_scores(Path::new("list"), list).unwrap_err();
            assert!(matches!(error, ReputationError::BadLine { line: 1, .. }), "{list}");
        }
        assert!(reputation.read_categories(Path::new("c"), "0,None,x").is_err());
        assert_eq!(Reputation::load(&Settings::new()).unwrap_err(), ReputationError::NotConfigured);
    }

    #[test]
    fn ipv4_and_ipv6_never_meet() {
        let mut reputation = Reputation::default();
        reputation.read_scores(Path::new("list"), "::/0,1,5\n").unwrap();
        assert_eq!(reputation.score("192.0.2.1".parse().unwrap(), 1), 0);
        assert_eq!(reputation.score("2001:db8::1".parse().unwrap(), 1), 5);
    }
}
