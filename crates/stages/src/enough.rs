// SPDX-License-Identifier: Apache-2.0
//! How much of a flow a policy has inspected, at most: the key `bypass` of a policy.
//!
//! What is decided here rests on the policy, so another generation judges it anew, other than the depth of
//! streams and what parsers say by the settings.

use bartizan_applayer::flow::AppLayer;
use bartizan_base::PerDirection;

/// When payload functions are done with flows of a class, whatever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enough {
    /// Once what follows is encrypted, by the flow's parser.
    pub encrypted: bool,
    /// After so many packets of both directions.
    pub packets: Option<u64>,
    /// After so many bytes of their frames.
    pub bytes: Option<u64>,
}

impl Enough {
    /// Whether nothing ends inspection early.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        !self.encrypted && self.packets.is_none() && self.bytes.is_none()
    }

    /// Whether it is so far with a flow of so many packets and bytes in each direction.
    pub fn is_met(
        &self,
        packets: &PerDirection<u64>,
        bytes: &PerDirection<u64>,
        app: Option<&AppLayer>,
    ) -> bool {
        let over = |most: Option<u64>, here: &PerDirection<u64>| {
            most.is_some_and(|most| here.to_server.saturating_add(here.to_client) >= most)
        };
        over(self.packets, packets)
            || over(self.bytes, bytes)
            || self.encrypted && app.is_some_and(AppLayer::is_encrypted)
    }
}
