// SPDX-License-Identifier: Apache-2.0
//! Batched lookups without vector units: one stage at a time over a block of headers, so that reads of different
//! headers are under way together. The oracle of the vector forms.

use super::At;
use super::tables::{Bundle, PortWords, Searches, Tables, Words};
use crate::flat::{FlatV4, FlatV6};

/// Headers of a block.
pub(crate) const BLOCK: usize = 64;

/// What the field stage makes of a block: leaf of source and destination, index of the port words.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub source: [u32; BLOCK],
    pub destination: [u32; BLOCK],
    pub ports: [u32; BLOCK],
}

impl Default for Stage {
    fn default() -> Self {
        Stage { source: [0; BLOCK], destination: [0; BLOCK], ports: [0; BLOCK] }
    }
}

/// What a header has besides addresses.
#[derive(Clone, Copy)]
struct Small {
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    tenant: u16,
    link: u8,
}

impl Tables {
    #[inline(always)]
    fn port_index(&self, s: Small) -> u32 {
        let values = [
            u32::from(s.source_port),
            u32::from(s.destination_port),
            u32::from(s.protocol),
            u32::from(s.tenant),
            u32::from(s.link),
        ];
        let mut index = 0;
        for ((table, value), stride) in self.ports.iter().zip(values).zip(self.strides) {
            index += table.class(value) * stride;
        }
        index
    }

    /// Field stage of at most [`BLOCK`] IPv4 headers.
    #[inline(always)]
    pub(crate) fn stage_v4(&self, headers: &[FlatV4], stage: &mut Stage) {
        let Searches::V4([source, destination]) = &self.searches else { return };
        for (header, out) in headers.iter().zip(&mut stage.source) {
            *out = source.find(header.source);
        }
        for (header, out) in headers.iter().zip(&mut stage.destination) {
            *out = destination.find(header.destination);
        }
        for (h, out) in headers.iter().zip(&mut stage.ports) {
            *out = self.port_index(Small {
                source_port: h.source_port,
                destination_port: h.destination_port,
                protocol: h.protocol,
                tenant: h.tenant,
                link: h.link,
            });
        }
    }

    /// Field stage of at most [`BLOCK`] IPv6 headers.
    #[inline(always)]
    pub(crate) fn stage_v6(&self, headers: &[FlatV6], stage: &mut Stage) {
        let Searches::V6([source, destination]) = &self.searches else { return };
        for (header, out) in headers.iter().zip(&mut stage.source) {
            *out = source.find(header.source);
        }
        for (header, out) in headers.iter().zip(&mut stage.destination) {
            *out = destination.find(header.destination);
        }
        self.stage_v6_ports(headers, stage);
    }

    /// The part of the field stage that is no address.
    #[inline(always)]
    pub(crate) fn stage_v6_ports(&self, headers: &[FlatV6], stage: &mut Stage) {
        for (h, out) in headers.iter().zip(&mut stage.ports) {
            *out = self.port_index(Small {
                source_port: h.source_port,
                destination_port: h.destination_port,
                protocol: h.protocol,
                tenant: h.tenant,
                link: h.link,
            });
        }
    }

    /// Aggregation of `count` headers: lowers the ranks in `results`, [`BLOCK`] of each set.
    #[inline(always)]
    pub(crate) fn aggregate(&self, stage: &Stage, count: usize, results: &mut [[u32; BLOCK]]) {
        for bundle in &self.bundles {
            aggregate_bundle(bundle, stage, count, results);
        }
    }
}

impl Tables {
    /// For the first header of a stage: ranks of all rules of a set whose addresses match, best first in each slice.
    pub(crate) fn candidates(&self, stage: &Stage, set: u8) -> impl Iterator<Item = &[u32]> {
        let (source, destination) = (stage.source.at(0), stage.destination.at(0));
        self.bundles.iter().flat_map(move |bundle| {
            let words = (word(&bundle.source, source), word(&bundle.destination, destination));
            bundle
                .aggregates
                .iter()
                .filter(move |a| a.set == set)
                .map(move |a| a.candidates(words.0, words.1))
        })
    }
}

#[inline(always)]
fn word(words: &Words, leaf: u32) -> u64 {
    match words {
        Words::Leaf => u64::from(leaf),
        Words::Table(words) => words.at(leaf as usize),
    }
}

#[inline(always)]
fn aggregate_bundle(bundle: &Bundle, stage: &Stage, count: usize, results: &mut [[u32; BLOCK]]) {
    let mut words = [[0u64; 3]; BLOCK];
    let fields = stage.source.iter().zip(&stage.destination).zip(&stage.ports);
    for (((source, destination), ports), out) in fields.zip(&mut words).take(count) {
        let ports = match &bundle.ports {
            PortWords::Narrow(words) => u64::from(words.at(*ports as usize)),
            PortWords::Wide(words) => words.at(*ports as usize),
        };
        *out = [word(&bundle.source, *source), word(&bundle.destination, *destination), ports];
    }
    for aggregate in &bundle.aggregates {
        let Some(results) = results.get_mut(usize::from(aggregate.set)) else { continue };
        for ([source, destination, ports], result) in words.iter().zip(results).take(count) {
            *result = aggregate.find(*source, *destination, *ports).min(*result);
        }
    }
}
