// SPDX-License-Identifier: Apache-2.0
//! A queued SYN or SYN/ACK, which may turn out to be the true one.

use super::{Segment, Seq};

/// The fields of a SYN or SYN/ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) window: u16,
    pub(crate) wscale: Option<u8>,
    pub(crate) ts: Option<u32>,
    pub(crate) sack_ok: bool,
    pub(crate) pkt_ts: u32,
    /// Whether it is a SYN/ACK.
    pub(crate) answers: bool,
}

impl Queued {
    /// The fields of a SYN/ACK.
    pub(crate) fn syn_ack(segment: &Segment<'_>, now: u32) -> Self {
        Self { ack: segment.ack, answers: true, ..Self::syn(segment, now) }
    }

    /// The fields of a SYN, which acknowledges nothing.
    pub(crate) fn syn(segment: &Segment<'_>, now: u32) -> Self {
        Self {
            seq: segment.seq,
            ack: Seq(0),
            window: segment.window,
            wscale: segment.wscale(),
            ts: segment.options.ts.map(|(value, _)| value),
            sack_ok: segment.options.sack_ok,
            pkt_ts: now,
            answers: false,
        }
    }

    /// Whether all fields but the time of arrival are equal.
    pub(crate) fn same_syn_ack(&self, other: &Queued) -> bool {
        Queued { pkt_ts: 0, ..*self } == Queued { pkt_ts: 0, ..*other }
    }
}

/// A client's SYN that was forwarded within an open connection.
#[derive(Clone, Debug)]
pub struct OpeningSyn(pub(crate) Box<Queued>);

impl OpeningSyn {
    pub(crate) fn new(segment: &Segment<'_>, now: u32) -> Self {
        OpeningSyn(Box::new(Queued::syn(segment, now)))
    }
}
