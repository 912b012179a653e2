// SPDX-License-Identifier: Apache-2.0
//! The address map of the device, and the dispositions of frames: one declaration for the driver and for the
//! logic (`hw/rtl/bartizan_regs_pkg.sv`, which [`system_verilog`] makes).
//!
//! Addresses are in bytes; every register is a word of 32 bits, little endian in counters of two words.

use bartizan_base::Reason;
use bartizan_packet::slots::{FLIGHT_MAX, TIMESTAMP_FAR_AHEAD};
use core::fmt::Write as _;

/// A register or the first one of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRegister {
    /// Name, in every language.
    pub name: &'static str,
    /// Byte address.
    pub address: u32,
    /// The register's content.
    pub what: &'static str,
}

macro_rules! registers {
    ($($name:ident @ $address:literal, $what:literal;)+) => {
        $(#[doc = $what] pub const $name: u32 = $address;)+

        /// Every register and table, in the order of the addresses.
        pub const REGISTERS: &[DeviceRegister] =
            &[$(DeviceRegister { name: stringify!($name), address: $address, what: $what },)+];
    };
}

registers! {
    ID @ 0x00_0000, "Constant by which the device is recognised.";
    VERSION @ 0x00_0004, "Version of this map.";
    CAPABILITY @ 0x00_0008, "Bytes of a beat (7:0), bits of a stride (15:8), entries of the classifier (31:16).";
    CAPABILITY_MORE @ 0x00_000c, "Whether IPv6 is read (0), entries of the tenant table (15:8).";
    CONTROL @ 0x00_0010, "Enabled (0): while it is not, every frame goes up. Software reset (1): set to begin one, set while it lasts.";
    STATUS @ 0x00_0014, "Frames inside (15:0), counters are being cleared (31).";
    GENERATION @ 0x00_0018, "Low 8 bits of the generation; entries of another one send packets up.";
    VXLAN_PORT @ 0x00_001c, "UDP destination port of VXLAN; 0: none.";
    TUNNEL_PORTS_LOW @ 0x00_0020, "UDP ports of tunnels that the device does not read, two of them; 0: none.";
    TUNNEL_PORTS_HIGH @ 0x00_0024, "Two more.";
    FUNCTION_BITS @ 0x00_0028, "Numbers in paths of the packet filter (4:0) and the stateful firewall (12:8).";
    FLOW_KEYS @ 0x00_002c, "Fields of the flow cache's keys: the side of the link (0), VLAN ids (1).";
    FRAMES_LOW @ 0x00_0030, "Frames that have begun, low word; reading it keeps the high one.";
    FRAMES_HIGH @ 0x00_0034, "The high word that belongs to the low one.";
    CAPABILITY_FLOWS @ 0x00_0038, "Entries of the flow cache (15:0), entries of a bucket (23:16).";
    COUNT_BASE @ 0x01_0000, "Frames by disposition, 8 bytes each.";
    ENTRY_BASE @ 0x02_0000, "Classifier: class, path, generation (17:10) with place of the outcome (9:0); 16 bytes each.";
    OUTCOME_BASE @ 0x03_0000, "Packet filter: rule entries, 16 bytes each; word 3 first, word 2 puts both in place.";
    RULE_COUNT_BASE @ 0x04_0000, "Packets by outcome, 8 bytes each.";
    TENANT_BASE @ 0x05_0000, "Tenant table, 16 bytes an entry; written while the device is not enabled.";
    VALID_BASE @ 0x06_0000, "Flags of the classifier's entries, 32 a word.";
    FLOW_TOUCHED_BASE @ 0x07_0000, "Entries of the flow cache that a packet counted for, 32 a word; reading a word clears it.";
    FLOW_NUMBERS @ 0x08_0000, "Flow cache: numbers that a command writes or has read. Lower endpoint: sent, timestamp, acknowledged, edge; the higher one's; state (3:0), progress noted (5:4), scales of the lower (11:8) and the higher (15:12) endpoint, timestamps in use (16).";
    FLOW_COUNTS @ 0x08_0040, "Flow cache: counts that a command has read. Lower endpoint: packets, bytes, time, two words each; the higher one's.";
    FLOW_COMMAND @ 0x08_0080, "Flow cache: command (31:28: 1 load, 2 publish, 3 read) for an entry (13:0); the write is answered when it is done.";
    FLOW_BASE @ 0x10_0000, "Flow cache: entries of 64 bytes, by bucket and place in it; word 15 is the control word.";
    FLOW_HASH_BASE @ 0x20_0000, "Flow cache: tables of the hash, by place in the key (13:7) and value (6:2).";
    ROW_BASE @ 0x80_0000, "Classifier: rows, by stride (22:16), value (15:7) and word (6:2).";
}

/// Content of [`ID`].
pub const ID_VALUE: u32 = 0x425a_5254;
/// Content of [`VERSION`].
pub const VERSION_VALUE: u32 = 2;

macro_rules! dispositions {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal;)+) => {
        /// The end of a frame, and its cause; each has a counter. Refused frames are counted by reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameDisposition { $($(#[doc = $doc])+ $variant,)+ }

        impl FrameDisposition {
            /// Every disposition, in the order of the numbers.
            pub const ALL: &'static [FrameDisposition] = &[$(FrameDisposition::$variant,)+];

            /// The name in counters and in the logic.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(FrameDisposition::$variant => $name,)+ }
            }

            const fn meaning(self) -> &'static str {
                match self { $(FrameDisposition::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

dispositions! {
    /// It left by a port.
    ToPort, "TO_PORT";
    /// It is longer than the device holds, and was lost.
    LostOversize, "LOST_OVERSIZE";
    /// It was inside when the device was reset, and was lost.
    LostReset, "LOST_RESET";
    /// The device is not enabled.
    UpDisabled, "UP_DISABLED";
    /// It is too short for an IPv4 header.
    UpShort, "UP_SHORT";
    /// It has more than two VLAN tags.
    UpVlan, "UP_VLAN";
    /// It is no IP packet, or of a version that the device does not read.
    UpEtherType, "UP_ETHER_TYPE";
    /// The lengths or the version of its IP header are wrong.
    UpIpBroken, "UP_IP_BROKEN";
    /// It is a fragment.
    UpFragment, "UP_FRAGMENT";
    /// It is neither TCP nor UDP, or has extension headers.
    UpProtocol, "UP_PROTOCOL";
    /// The lengths of its TCP or UDP header are wrong.
    UpTransportBroken, "UP_TRANSPORT_BROKEN";
    /// It may carry a packet that the device does not read.
    UpTunnel, "UP_TUNNEL";
    /// It has IPv4 options.
    UpIpOptions, "UP_IP_OPTIONS";
    /// It has TCP options other than a timestamp.
    UpTcpOptions, "UP_TCP_OPTIONS";
    /// No entry matches.
    UpNoEntry, "UP_NO_ENTRY";
    /// The entry is of another generation.
    UpGeneration, "UP_GENERATION";
    /// The outcome of its rule is not valid, or of another generation.
    UpOutcome, "UP_OUTCOME";
    /// Its sender is told that it is refused.
    UpReject, "UP_REJECT";
    /// A rule sends a packet in a tunnel to another port.
    UpRedirect, "UP_REDIRECT";
    /// Functions without a half on the device are left on its path.
    UpPath, "UP_PATH";
    /// A packet of a tunnel is refused.
    UpTunnelRefused, "UP_TUNNEL_REFUSED";
    /// Its flow's entry leaves it to the host: a segment that does not plainly go on, or the other direction.
    UpFlow, "UP_FLOW";
}

/// Number of the counter of frames refused for the first [`Reason`]; the others follow.
pub const DISPOSITION_DROP: u8 = 64;

/// Number of counters of frames.
pub const DISPOSITIONS: usize = DISPOSITION_DROP as usize + Reason::COUNT;

/// The SystemVerilog package of the map.
#[must_use]
pub fn system_verilog() -> String {
    let mut out = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n\
         // Generated from crates/rtl/src/registers.rs by `cargo xtask generate`: do not edit.\n\
         //\n\
         // The registers of the device, by byte address, and the dispositions of frames.\n\
         package bartizan_regs_pkg;\n\n\
         \x20 // Nobody uses all of a package.\n\
         \x20 /* verilator lint_off UNUSEDPARAM */\n\n",
    );
    // Writing to a string cannot fail.
    for register in REGISTERS {
        let _ = writeln!(out, "  // {}", register.what);
        let _ = writeln!(out, "  localparam logic [23:0] {} = 24'h{:06x};", register.name, register.address);
    }
    let _ = writeln!(out, "\n  localparam logic [31:0] ID_VALUE = 32'h{ID_VALUE:08x};");
    let _ = writeln!(out, "  localparam logic [31:0] VERSION_VALUE = 32'd{VERSION_VALUE};");
    out.push_str("\n  // Bounds of the rule for segments (crates/packet/src/slots.rs).\n");
    let _ = writeln!(out, "  localparam logic [31:0] FLIGHT_MAX = 32'd{FLIGHT_MAX};");
    let _ = writeln!(out, "  localparam logic [31:0] TIMESTAMP_FAR_AHEAD = 32'd{TIMESTAMP_FAR_AHEAD};");
    out.push_str("\n  // Ends of frames, by the numbers of their counters.\n");
    for disposition in FrameDisposition::ALL {
        let _ = writeln!(out, "  // {}", disposition.meaning());
        let _ = writeln!(
            out,
            "  localparam logic [6:0] DISPOSITION_{} = 7'd{};",
            disposition.name(),
            *disposition as u8
        );
    }
    out.push_str("  // It was refused; the number of the reason is added.\n");
    let _ = writeln!(out, "  localparam logic [6:0] DISPOSITION_DROP = 7'd{DISPOSITION_DROP};");
    out.push_str("\n  /* verilator lint_on UNUSEDPARAM */\n\nendpackage\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_rise_and_are_of_words() {
        assert!(REGISTERS.windows(2).all(|pair| pair[0].address < pair[1].address));
        assert!(REGISTERS.iter().all(|register| register.address % 4 == 0));
    }

    #[test]
    fn dispositions_and_reasons_have_counters_of_their_own() {
        assert!(FrameDisposition::ALL.len() <= usize::from(DISPOSITION_DROP));
        const { assert!(DISPOSITIONS <= 128) };
    }
}
