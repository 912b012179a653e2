// SPDX-License-Identifier: Apache-2.0
//! Options of IPv6 hop-by-hop and destination headers (RFC 8200, 4.2).

use crate::{DecodeEvent, Decoded};

const PAD1: u8 = 0x00;
const PADN: u8 = 0x01;
const ROUTER_ALERT: u8 = 0x05;
const JUMBO: u8 = 0xc2;
const HOME_ADDRESS: u8 = 0xc9;

/// Walks the options of one header.
pub(super) fn decode(p: &mut Decoded, options: &[u8], hop_by_hop: bool) {
    let (mut padding, mut others) = (false, false);
    let mut rest = options;
    while let Some((kind, tail)) = rest.split_first() {
        if *kind == PAD1 {
            padding = true;
            rest = tail;
            continue;
        }
        let Some(len) = tail.first().copied().map(usize::from) else {
            p.invalid(DecodeEvent::Ipv6ExthdrInvalidOptlen);
            break;
        };
        // One byte beyond the end is accepted, as in Suricata.
        if 1 + len > rest.len() {
            p.invalid(DecodeEvent::Ipv6ExthdrInvalidOptlen);
            break;
        }
        let least = match *kind {
            PADN => {
                padding = true;
                if len == 0 {
                    p.event(DecodeEvent::Ipv6ZeroLenPadn);
                }
                0
            }
            ROUTER_ALERT => 2,
            JUMBO => 4,
            HOME_ADDRESS => 16,
            _ => {
                p.event(if hop_by_hop {
                    DecodeEvent::Ipv6HopoptsUnknownOpt
                } else {
                    DecodeEvent::Ipv6DstoptsUnknownOpt
                });
                others = true;
                0
            }
        };
        if len < least {
            p.invalid(DecodeEvent::Ipv6ExthdrInvalidOptlen);
            break;
        }
        others |= matches!(*kind, ROUTER_ALERT | HOME_ADDRESS);
        rest = rest.get(2 + len..).unwrap_or(&[]);
    }
    if padding && !others {
        p.event(if hop_by_hop {
            DecodeEvent::Ipv6HopoptsOnlyPadding
        } else {
            DecodeEvent::Ipv6DstoptsOnlyPadding
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DecodeEvent as E;

    fn walk(options: &[u8]) -> (Vec<DecodeEvent>, bool) {
        let mut p = Decoded::default();
        decode(&mut p, options, true);
        (p.events.as_slice().to_vec(), p.is_invalid())
    }

    #[test]
    fn options() {
        assert_eq!(walk(&[ROUTER_ALERT, 2, 0, 0, PADN, 0]), (vec![E::Ipv6ZeroLenPadn], false));
        assert_eq!(walk(&[PADN, 4, 0, 0, 0, 0]), (vec![E::Ipv6HopoptsOnlyPadding], false));
        assert_eq!(walk(&[0x33, 4, 0, 0, 0, 0]), (vec![E::Ipv6HopoptsUnknownOpt], false));
        assert_eq!(walk(&[PADN, 9, 0, 0, 0, 0]), (vec![E::Ipv6ExthdrInvalidOptlen], true));
        assert_eq!(walk(&[ROUTER_ALERT, 1, 0, 0, 0, 0]), (vec![E::Ipv6ExthdrInvalidOptlen], true));
        assert_eq!(
            walk(&[0, 0, 0, 0, 0, 7]),
            (vec![E::Ipv6ExthdrInvalidOptlen, E::Ipv6HopoptsOnlyPadding], true)
        );
        assert_eq!(walk(&[JUMBO, 4, 0, 1, 0, 0]), (vec![], false));
    }
}
