// SPDX-License-Identifier: Apache-2.0
//! BSD and OpenBSD loopback: a four-byte address family, then IP.
//!
//! BSD's is in the byte order of the capturing machine: families are below 2^16, so the value shows the
//! order.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ipv4, ipv6};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 4;

/// Byte order of the address family.
#[derive(Clone, Copy)]
pub(super) enum FamilyOrder {
    /// The order of the capturing machine.
    Host,
    /// Network order.
    Network,
}

pub(super) fn decode(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    span: DecodeSpan,
    order: FamilyOrder,
) -> LayerResult {
    cx.counters.null += 1;
    let Some(family) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::LtnullPktTooSmall);
        return Err(DecodeStop);
    };
    let family = match order {
        FamilyOrder::Network => u32::from_be_bytes(*family),
        FamilyOrder::Host => match u32::from_le_bytes(*family) {
            little if little <= 0xffff => little,
            big => big.swap_bytes(),
        },
    };
    match family {
        2 => ipv4::decode(cx, p, span.skip(HEADER_LEN)),
        // Linux, Windows, BSD, Solaris, FreeBSD, Darwin.
        10 | 23 | 24 | 26 | 28 | 30 => ipv6::decode(cx, p, span.skip(HEADER_LEN)),
        _ => {
            p.event(DecodeEvent::LtnullUnsupportedType);
            Ok(())
        }
    }
}
