// SPDX-License-Identifier: Apache-2.0
//! Names of record types and response codes (IANA "Domain Name System Parameters").
//!
//! The list has the types that Suricata 8 names in EVE and in the setting `types`; other types appear as
//! numbers.

/// A record type.
pub const A: u16 = 1;
/// Name server.
pub const NS: u16 = 2;
/// Canonical name.
pub const CNAME: u16 = 5;
/// Start of authority.
pub const SOA: u16 = 6;
/// Arbitrary bytes.
pub const NULL: u16 = 10;
/// Domain name of an address.
pub const PTR: u16 = 12;
/// Mail exchange.
pub const MX: u16 = 15;
/// Text.
pub const TXT: u16 = 16;
/// IPv6 address.
pub const AAAA: u16 = 28;
/// Service (RFC 2782).
pub const SRV: u16 = 33;
/// EDNS options (RFC 6891).
pub const OPT: u16 = 41;
/// SSH fingerprint (RFC 4255).
pub const SSHFP: u16 = 44;

/// Types with a name.
const TYPES: &[(u16, &str)] = &[
    (A, "A"),
    (NS, "NS"),
    (3, "MD"),
    (4, "MF"),
    (CNAME, "CNAME"),
    (SOA, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (NULL, "NULL"),
    (11, "WKS"),
    (PTR, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (MX, "MX"),
    (TXT, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAPPTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (AAAA, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (SRV, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (OPT, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (SSHFP, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (49, "DHCID"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (55, "HIP"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (65, "HTTPS"),
    (99, "SPF"),
    (249, "TKEY"),
    (250, "TSIG"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
];

const RCODES: &[&str] = &[
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
    "NOTAUTH", "NOTZONE",
];

/// Name of a record type, or `None` for those that are written as numbers.
#[must_use]
pub fn type_name(rrtype: u16) -> Option<&'static str> {
    TYPES
        .binary_search_by_key(&rrtype, |(number, _)| *number)
        .ok()
        .and_then(|i| TYPES.get(i))
        .map(|(_, n)| *n)
}

/// Name of a response code, or `None` for those that are written as numbers.
#[must_use]
pub fn rcode_name(rcode: u8) -> Option<&'static str> {
    RCODES.get(usize::from(rcode)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(TYPES.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(type_name(28), Some("AAAA"));
        assert_eq!(type_name(64), None);
        assert_eq!(rcode_name(3), Some("NXDOMAIN"));
        assert_eq!(rcode_name(11), None);
    }
}
