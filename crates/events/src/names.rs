// SPDX-License-Identifier: Apache-2.0
//! Names of numbers as EVE spells them: IP protocols (IANA "Protocol Numbers", in the spelling that
//! Suricata's records use) and link types (libpcap's names).

/// Names by protocol number.
const PROTOCOLS: [&str; 144] = [
    "HOPOPT",
    "ICMP",
    "IGMP",
    "GGP",
    "IP-in-IP",
    "ST",
    "TCP",
    "CBT",
    "EGP",
    "IGP",
    "BBN-RCC-MON",
    "NVP-II",
    "PUP",
    "ARGUS",
    "EMCON",
    "XNET",
    "CHAOS",
    "UDP",
    "MUX",
    "DCN-MEAS",
    "HMP",
    "PRM",
    "XNS-IDP",
    "TRUNK-1",
    "TRUNK-2",
    "LEAF-1",
    "LEAF-2",
    "RDP",
    "IRTP",
    "ISO-TP4",
    "NETBLT",
    "MFE-NSP",
    "MERIT-INP",
    "DCCP",
    "3PC",
    "IDPR",
    "XTP",
    "DDP",
    "IDPR-CMTP",
    "TP++",
    "IL",
    "IPv6",
    "SDRP",
    "IPv6-Route",
    "IPv6-Frag",
    "IDRP",
    "RSVP",
    "GRE",
    "DSR",
    "BNA",
    "ESP",
    "AH",
    "I-NLSP",
    "SwIPe",
    "NARP",
    "MOBILE",
    "TLSP",
    "SKIP",
    "IPv6-ICMP",
    "IPv6-NoNxt",
    "IPv6-Opts",
    "Any",
    "CFTP",
    "Any",
    "SAT-EXPAK",
    "KRYPTOLAN",
    "RVD",
    "IPPC",
    "Any",
    "SAT-MON",
    "VISA",
    "IPCU",
    "CPNX",
    "CPHB",
    "WSN",
    "PVP",
    "BR-SAT-MON",
    "SUN-ND",
    "WB-MON",
    "WB-EXPAK",
    "ISO-IP",
    "VMTP",
    "SECURE-VMTP",
    "VINES",
    "TTP",
    "NSFNET-IGP",
    "DGP",
    "TCF",
    "EIGRP",
    "OSPF",
    "Sprite-RPC",
    "LARP",
    "MTP",
    "AX.25",
    "OS",
    "MICP",
    "SCC-SP",
    "ETHERIP",
    "ENCAP",
    "Any",
    "GMTP",
    "IFMP",
    "PNNI",
    "PIM",
    "ARIS",
    "SCPS",
    "QNX",
    "A/N",
    "IPComp",
    "SNP",
    "Compaq-Peer",
    "IPX-in-IP",
    "VRRP",
    "PGM",
    "Any",
    "L2TP",
    "DDX",
    "IATP",
    "STP",
    "SRP",
    "UTI",
    "SMP",
    "SM",
    "PTP",
    "IS-IS",
    "FIRE",
    "CRTP",
    "CRUDP",
    "SSCOPMCE",
    "IPLT",
    "SPS",
    "PIPE",
    "SCTP",
    "FC",
    "RSVP-E2E-IGNORE",
    "Mobility",
    "UDPLite",
    "MPLS-in-IP",
    "manet",
    "HIP",
    "Shim6",
    "WESP",
    "ROHC",
    "Ethernet",
];

/// Name of an IP protocol number; `None` for numbers without a name, which EVE writes as digits.
#[must_use]
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.get(usize::from(number)).copied()
}

/// Number of an IP protocol by its EVE name, digits included.
#[must_use]
pub fn protocol_number(name: &str) -> Option<u8> {
    match PROTOCOLS.iter().position(|known| *known == name) {
        Some(index) => u8::try_from(index).ok(),
        None => name.parse().ok(),
    }
}

/// Name of a link type (`packet_info.linktype_name`); `n/a` for those this program does not decode.
#[must_use]
pub fn linktype_name(linktype: u32) -> &'static str {
    match linktype {
        0 => "NULL",
        1 => "EN10MB",
        9 => "PPP",
        12 | 14 | 101 => "RAW",
        50 => "PPP_SERIAL",
        51 => "PPP_ETHER",
        104 => "C_HDLC",
        108 => "LOOP",
        113 => "LINUX_SLL",
        228 => "IPv4",
        229 => "IPv6",
        276 => "LINUX_SLL2",
        _ => "n/a",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_captures_meet() {
        for (number, name) in
            [(1, "ICMP"), (4, "IP-in-IP"), (6, "TCP"), (17, "UDP"), (41, "IPv6"), (47, "GRE")]
        {
            assert_eq!(protocol_name(number), Some(name));
            assert_eq!(protocol_number(name), Some(number));
        }
        assert_eq!(protocol_name(58), Some("IPv6-ICMP"));
        assert_eq!(protocol_name(132), Some("SCTP"));
        assert_eq!(protocol_name(253), None);
        assert_eq!(protocol_number("253"), Some(253));
        assert_eq!(linktype_name(1), "EN10MB");
        assert_eq!(linktype_name(147), "n/a");
    }
}
