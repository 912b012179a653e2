// SPDX-License-Identifier: Apache-2.0
//! Rows of docs/nftables.md: the verdicts of nftables and of Bartizan on the same packets.

pub mod differ;
pub mod same;
pub mod trial;

pub use trial::{POLICY, Trial};

/// The IP versions of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    Both,
    V4,
    V6,
}

impl Versions {
    /// For each version, whether it is IPv6.
    pub fn each(self) -> &'static [bool] {
        match self {
            Versions::Both => &[false, true],
            Versions::V4 => &[false],
            Versions::V6 => &[true],
        }
    }
}

/// A row of the page.
pub struct Row {
    pub packets: &'static str,
    pub versions: Versions,
    /// The verdict of Linux 6.18 with nftables 1.0.6.
    pub nftables: &'static str,
    /// The verdict of Bartizan; a test compares it.
    pub bartizan: &'static str,
    /// The reason for the difference.
    pub why: &'static str,
    pub run: fn(&mut Trial),
}

/// A row with equal verdicts.
const fn same(
    packets: &'static str,
    versions: Versions,
    both: [&'static str; 2],
    run: fn(&mut Trial),
) -> Row {
    let [nftables, bartizan] = both;
    Row { packets, versions, nftables, bartizan, why: "", run }
}

/// A row with different verdicts.
const fn differ(
    packets: &'static str,
    versions: Versions,
    verdicts: [&'static str; 2],
    why: &'static str,
    run: fn(&mut Trial),
) -> Row {
    let [nftables, bartizan] = verdicts;
    Row { packets, versions, nftables, bartizan, why, run }
}
