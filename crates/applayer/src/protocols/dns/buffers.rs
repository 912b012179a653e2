// SPDX-License-Identifier: Apache-2.0
//! Buffers and numbers of DNS and mDNS.

use super::states::COMPLETE;
use crate::protocol::{BufferKind::Multi, BufferSpec, NumberId, NumberSpec, buffer};

/// `dns.query`: queried names, in queries.
pub(super) const QUERY: u16 = 0;
/// `dns.queries.rrname`: queried names, in queries and responses.
pub(super) const QUERIES: u16 = 1;
/// `dns.query.name`: older name of `dns.queries.rrname`.
pub(super) const QUERY_NAME: u16 = 2;
/// `dns.answers.rrname`: owners of the answers.
pub(super) const ANSWERS: u16 = 3;
/// `dns.answer.name`: older name of `dns.answers.rrname`.
pub(super) const ANSWER_NAME: u16 = 4;
/// `dns.authorities.rrname`.
pub(super) const AUTHORITIES: u16 = 5;
/// `dns.additionals.rrname`.
pub(super) const ADDITIONALS: u16 = 6;
/// `dns.response.rrname`: all names of a response, also those within data.
pub(super) const RESPONSE: u16 = 7;
/// `dns.rrtype.raw`: record types, two bytes each.
pub(super) const RRTYPES: u16 = 8;

/// `dns.opcode`: the operation.
pub(super) const OPCODE: NumberId = 0;
/// `dns.rcode`: the response code.
pub(super) const RCODE: NumberId = 1;
/// `dns.rrtype`: the type of the first question, or of the first answer.
pub(super) const RRTYPE: NumberId = 2;

/// Numbers of DNS.
pub(super) const NUMBERS: &[NumberSpec] = &[
    NumberSpec { id: OPCODE, name: "dns.opcode" },
    NumberSpec { id: RCODE, name: "dns.rcode" },
    NumberSpec { id: RRTYPE, name: "dns.rrtype" },
];

/// Buffers of DNS.
pub(in crate::protocols) const DNS: &[BufferSpec] = &[
    buffer(QUERY, "dns.query", true, false, COMPLETE, Multi),
    buffer(QUERIES, "dns.queries.rrname", true, true, COMPLETE, Multi),
    buffer(QUERY_NAME, "dns.query.name", true, true, COMPLETE, Multi),
    buffer(ANSWERS, "dns.answers.rrname", true, true, COMPLETE, Multi),
    buffer(ANSWER_NAME, "dns.answer.name", true, true, COMPLETE, Multi),
    buffer(AUTHORITIES, "dns.authorities.rrname", true, true, COMPLETE, Multi),
    buffer(ADDITIONALS, "dns.additionals.rrname", true, true, COMPLETE, Multi),
    buffer(RESPONSE, "dns.response.rrname", false, true, COMPLETE, Multi),
    buffer(RRTYPES, "dns.rrtype.raw", true, true, COMPLETE, Multi),
];

/// Buffers of mDNS, whose responses travel to the server, too.
pub(super) const MDNS: &[BufferSpec] = &[
    buffer(QUERIES, "mdns.queries.rrname", true, true, COMPLETE, Multi),
    buffer(ANSWERS, "mdns.answers.rrname", true, true, COMPLETE, Multi),
    buffer(AUTHORITIES, "mdns.authorities.rrname", true, true, COMPLETE, Multi),
    buffer(ADDITIONALS, "mdns.additionals.rrname", true, true, COMPLETE, Multi),
    buffer(RESPONSE, "mdns.response.rrname", true, false, COMPLETE, Multi),
];
