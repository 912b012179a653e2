// SPDX-License-Identifier: Apache-2.0
//! The real worker, for tests: [`Stack`] is one with a policy, rules and an EVE file; [`Alone`] is one that
//! runs a single function; [`live`] runs one on ports; [`Nothing`] and [`Captured`] are for tests that build
//! their own; [`events`] reads the written events.
//!
//! It uses the data plane and the layers below, so in the crates that it uses only tests in `tests/` may use
//! it: these are linked with the same library as this crate is. In unit tests (`src/`) the crate under test
//! would exist twice, and its types would differ; `cargo xtask tidy` refuses that.

mod alone;
pub mod events;
mod header_function;
pub mod live;
mod stack;

pub use alone::Alone;
pub use header_function::header_function;
pub use stack::{FIREWALL, Made, Stack, ids};

use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_packet::LinkType;
use bartizan_stages::record::{Recorder, RecorderEvent};

/// A frame with its time.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The time of arrival.
    pub now: Timestamp,
    /// The bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl Captured {
    /// A frame that arrives so many milliseconds after the first second.
    #[must_use]
    pub fn at_millis(millis: u64, bytes: Vec<u8>) -> Self {
        Captured { now: Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000), bytes }
    }

    /// The frame in the form of a worker's input.
    #[must_use]
    pub fn frame(&self, number: u64) -> Frame<'_> {
        Frame {
            now: self.now,
            bytes: &self.bytes,
            wire_len: self.bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: Some(number),
        }
    }
}

/// A recorder that keeps nothing.
pub struct Nothing;

impl Recorder for Nothing {
    fn record(&mut self, _: RecorderEvent<'_>) {}
}
