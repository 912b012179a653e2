// SPDX-License-Identifier: Apache-2.0
//! Bounds of the decoder, for docs/limits.md. Those of defragmentation, which are settings, are declared
//! beside the code that reads the settings.

use crate::capture::MAX_PACKET_LEN;
use crate::{DecodeEvents, VlanIds, decode};
use bartizan_base::Reason::{Defrag, SfwUnrelatedIcmp, Unreadable};
use bartizan_base::limit::LimitTrace::{Event, Nothing, Refused, Stats, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "decode events of a packet" = "{}" [count(DecodeEvents::CAPACITY)] in ["packet/event.rs"],
        "further ones are dropped", [Nothing];
    Flow "VLAN tags" = "{}" [count(VlanIds::CAPACITY)] in ["packet/decoded.rs"],
        "decode event; live prevention refuses it", [Event("vlan.too_many_layers"), Refused(Unreadable)];
    Flow "fragments in prevention" = "sound, alike, no overlap, lengths that fit" []
        in ["packet/defrag/likeness.rs", "packet/defrag/config.rs"],
        "refused ([0011](design/0011-what-the-receiver-reads.md))", [Stats("defrag.dropped.*"), Refused(Defrag)];
    Flow "extension headers of a quoted IPv6 packet" = "{}" [count(decode::quoted::EXTENSIONS_MAX)]
        in ["packet/decode/quoted.rs"], "the ICMP error is about no known flow", [Refused(SfwUnrelatedIcmp)];
    File "captured packet" = "{}" [bytes(MAX_PACKET_LEN)] in ["packet/capture/mod.rs"],
        "the capture is broken off there", [Told("a line on stderr")];
};
