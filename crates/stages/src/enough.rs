// SPDX-License-Identifier: Apache-2.0
//! Upper bounds on the inspection of a flow: the key `bypass` of a policy.
//!
//! The decision rests on the policy, so another generation decides anew; the depth of streams and the
//! bypasses of parsers come from the settings.

use bartizan_applayer::flow::AppLayer;
use bartizan_base::PerDirection;

/// The limits after which payload functions are done with flows of a class; the first that is reached
/// applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectionLimit {
    /// When the flow's parser reports that only encrypted data follows.
    pub encrypted: bool,
    /// After this number of packets of both directions.
    pub packets: Option<u64>,
    /// After this number of bytes of these packets' frames.
    pub bytes: Option<u64>,
}

impl InspectionLimit {
    /// Whether no limit is set.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        !self.encrypted && self.packets.is_none() && self.bytes.is_none()
    }

    /// Whether a flow with these packets and bytes in each direction has reached a limit.
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
