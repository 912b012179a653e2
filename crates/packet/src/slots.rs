// SPDX-License-Identifier: Apache-2.0
//! Blocks that the XDP level and the host share beside the key of a flow: slots of flows, ports, counters.
//!
//! Source: Linux `include/uapi/linux/bpf.h` (arrays that are mapped into memory). Program and host run on
//! one machine, so numbers are in its own order, other than in the [tables](crate::tables), which a device
//! reads as well. `ebpf/bartizan_slots.h` is generated from this: `cargo xtask generate`,
//! `tests/slot_headers.rs`.
//!
//! *Words* are blocks of eight bytes that are read and written at once: the program and the host never see
//! half of one. A field's place in a word is by value: the field at byte n is `word >> 8 * n`. All other
//! blocks are structures of numbers, each with one writer.

use crate::layout::{Layout, layout};
use crate::tables::flags;

/// The most ports of the level. The host numbers them.
pub const PORTS: u32 = 64;

/// The number of [`UdpPorts`] blocks for all ports: 64 in each.
pub const UDP_PORT_BLOCKS: u32 = 1024;

/// The unit of a slot's times: 2^20 nanoseconds of CLOCK_BOOTTIME. With 32 bits they wrap around after 52
/// days.
pub const SEEN_SHIFT: u32 = 20;

/// The most that the TCP sequence number of a retransmitted or overtaken segment can be before the latest
/// one. A number further back has wrapped around: the segments in between were not seen.
pub const SEQUENCE_BACK: u32 = 1 << 26;

/// The most bytes before the acknowledged number at which a retransmitted segment may end: no sender has
/// more unacknowledged bytes.
pub const FLIGHT_MAX: u32 = 16 << 20;

/// A timestamp that is so far ahead of the one before goes up: the host decides whether the clock wraps
/// around, or the timestamp is forged.
pub const TIMESTAMP_FAR_AHEAD: u32 = 1 << 29;

/// Number of attempts to change a word that other processors change at the same time. After these the segment
/// goes up.
pub const WINDOW_TRIES: u32 = 4;

/// Words of 64 bits of an early table (a power of two). There are two: one for generations of even numbers,
/// one for odd ones.
pub const EARLY_WORDS: u32 = 1 << 20;

/// Steps in which an address is found among the segments of an early table: 2^17 of them.
pub const EARLY_STEPS: u32 = 17;

/// In the first word of an early table: its rules distinguish tenants.
pub const EARLY_TENANTS: u32 = 1 << 9;

/// In the first word of an early table: packets in tunnels are judged as well.
pub const EARLY_TUNNELS: u32 = 1 << 10;

/// Places of a bucket of the index that finds a flow's slot: two cache lines, which a processor fetches
/// together.
pub const INDEX_PLACES: u32 = 16;

/// The most outcomes of early tables that have counters of their own, over all links.
pub const EARLY_OUTCOMES: u32 = 1 << 14;

/// The constants that the program needs: name, number, meaning.
pub const TABLE_CONSTANTS: &[(&str, u32, &str)] = &[
    ("INDEX_PLACES", INDEX_PLACES, "Places of a bucket of the index."),
    (
        "EARLY_WORDS",
        EARLY_WORDS,
        "Words of an early table; there are two, for generations of even and odd numbers.",
    ),
    ("EARLY_STEPS", EARLY_STEPS, "Steps in which an address is found among the segments of an early table."),
    ("EARLY_TENANTS", EARLY_TENANTS, "In the first word of an early table: its rules tell tenants apart."),
    (
        "EARLY_TUNNELS",
        EARLY_TUNNELS,
        "In the first word of an early table: packets in tunnels are judged as well.",
    ),
];

/// Layouts of words.
pub const WORDS: &[Layout] = &[
    SlotControl::LAYOUT,
    PortWord::LAYOUT,
    ExitWord::LAYOUT,
    NumbersWord::LAYOUT,
    ProgressWord::LAYOUT,
    OfferWord::LAYOUT,
    EndWord::LAYOUT,
];

/// Layouts of structures of 64-bit numbers.
pub const COUNTERS: &[Layout] = &[
    SlotLine::LAYOUT,
    CarrierLine::LAYOUT,
    WindowLine::LAYOUT,
    PortLine::LAYOUT,
    UdpPorts::LAYOUT,
    WatchEntry::LAYOUT,
    Heartbeat::LAYOUT,
    EarlyHeader::LAYOUT,
    EarlyCount::LAYOUT,
    ProbeOutcome::LAYOUT,
    LostLine::LAYOUT,
];

layout! {
    /// The handling of the packets of a slot's flow. The host writes it.
    SlotControl, "control", 8 {
        flags: u8 ["FLAGS"] @ 0, "See the flags of controls.";
        action: u8 ["ACTION"] @ 1, "See the actions.";
        egress: u8 ["EGRESS"] @ 2, "Number of the port that packets leave by, if they are redirected.";
        reason: u8 ["REASON"] @ 3, "Why, where packets are dropped: number of the reason. The program does not look at it.";
        generation: u32 ["GENERATION"] @ 4, "Low 32 bits of the generation that decided; a packet of another one goes up.";
    }
}

layout! {
    /// A port, found by its interface's index. The host writes it.
    PortWord, "port", 8 {
        link: u16 ["LINK"] @ 0, "The link, as it stands in keys.";
        side: u8 ["SIDE"] @ 2, "Side of the link that senders behind this port are on: 0 does not count, 1 the first, 2 the second.";
        index: u8 ["INDEX"] @ 3, "Its own number.";
        pair: u8 ["PAIR"] @ 4, "Number of the port across the link.";
        flags: u8 ["FLAGS"] @ 5, "See the flags of ports.";
        sample: u8 ["SAMPLE"] @ 6, "Of 2^(n-1) packets that would be dropped one goes up instead, by chance; 0: none does.";
        early: u8 ["EARLY"] @ 7, "One more than the number of its link among those that have early tables; 0: it has none.";
    }
}

layout! {
    /// Limits of the frames that may leave by a port. The kernel drops frames beyond them silently. The
    /// host writes it.
    ExitWord, "exit", 8 {
        longest: u32 ["LONGEST"] @ 0, "The longest frame, in bytes.";
        flags: u8 ["FLAGS"] @ 4, "See the flags of exits.";
    }
}

layout! {
    /// The settings for reading a connection's numbers. The host writes it.
    NumbersWord, "numbers", 8 {
        flags: u8 ["FLAGS"] @ 0, "See the flags of numbers.";
        scale_low: u8 ["SCALE_LOW"] @ 1, "Shift of the windows that the lower endpoint offers, 14 at most.";
        scale_high: u8 ["SCALE_HIGH"] @ 2, "The same of the higher endpoint.";
    }
}

layout! {
    /// The progress of an endpoint's sending. A processor that passes one of its segments writes it,
    /// forward only.
    ProgressWord, "progress", 8 {
        sent: u32 ["SENT"] @ 0, "The sequence number behind all that it has sent.";
        timestamp: u32 ["TIMESTAMP"] @ 4, "The timestamp that later ones are measured by (RFC 7323 section 4.3).";
    }
}

layout! {
    /// The other endpoint's acknowledgement of that, and its window. A processor that passes one of that
    /// endpoint's segments writes it, forward only.
    OfferWord, "offer", 8 {
        acknowledged: u32 ["ACKNOWLEDGED"] @ 0, "The latest acknowledgement of it.";
        edge: u32 ["EDGE"] @ 4, "Right edge of the window that it may send into.";
    }
}

layout! {
    /// The end of what an endpoint sends. The program writes it, once.
    EndWord, "end", 8 {
        number: u32 ["NUMBER"] @ 0, "The sequence number behind its FIN.";
        flags: u8 ["FLAGS"] @ 4, "See the flags of ends.";
    }
}

layout! {
    /// The state of a TCP connection that all processors share: the numbers that its segments are compared
    /// with; without these, how it ends. Words change by compare and exchange only: see [`crate::windows`].
    /// One cache line.
    WindowLine, "windows", 64 {
        numbers: u64 ["NUMBERS"] @ 0, "How they are read: a word `numbers`.";
        progress_low: u64 ["PROGRESS_LOW"] @ 8, "What the lower endpoint has sent: a word `progress`.";
        offer_low: u64 ["OFFER_LOW"] @ 16, "What the higher endpoint says of that: a word `offer`.";
        progress_high: u64 ["PROGRESS_HIGH"] @ 24, "What the higher endpoint has sent.";
        offer_high: u64 ["OFFER_HIGH"] @ 32, "What the lower endpoint says of that.";
        end_low: u64 ["END_LOW"] @ 40, "Where nothing is compared: the end of what the lower endpoint sends, a word `end`, once it has come.";
        end_high: u64 ["END_HIGH"] @ 48, "The same of the higher endpoint.";
    }
}

layout! {
    /// A flow's slot, for one processor: line `slot * processors + processor`. One cache line.
    SlotLine, "slot", 64 {
        control: u64 ["CONTROL"] @ 0, "What is done, the same in the lines of all processors; the host writes it, the rest the program.";
        packets_low: u64 ["PACKETS_LOW"] @ 8, "Packets from the lower endpoint.";
        packets_high: u64 ["PACKETS_HIGH"] @ 16, "Packets from the higher endpoint.";
        bytes_low: u64 ["BYTES_LOW"] @ 24, "Bytes of their frames, from the lower endpoint.";
        bytes_high: u64 ["BYTES_HIGH"] @ 32, "Bytes of their frames, from the higher endpoint.";
        seen_low: u32 ["SEEN_LOW"] @ 40, "When the latest came from the lower endpoint, in units of `SEEN_SHIFT`, if there was one.";
        seen_high: u32 ["SEEN_HIGH"] @ 44, "When the latest came from the higher endpoint.";
        sent_low: u32 ["SENT_LOW"] @ 48, "TCP: the sequence number behind all that the lower endpoint has sent, if it has.";
        sent_high: u32 ["SENT_HIGH"] @ 52, "TCP: the same of the higher endpoint.";
        acknowledged_low: u32 ["ACKNOWLEDGED_LOW"] @ 56, "TCP: the latest acknowledgement of the lower endpoint.";
        acknowledged_high: u32 ["ACKNOWLEDGED_HIGH"] @ 60, "TCP: the same of the higher endpoint.";
    }
}

layout! {
    /// The slot of a flow of packets that may carry others (UDP, IP in IP), for one processor: such a flow
    /// has no sequence numbers. All other fields are those of `slot`.
    CarrierLine, "carrier", 64 {
        control: u64 ["CONTROL"] @ 0, "As in `slot`.";
        packets_low: u64 ["PACKETS_LOW"] @ 8, "As in `slot`; those that were dropped are among them.";
        packets_high: u64 ["PACKETS_HIGH"] @ 16, "As in `slot`.";
        bytes_low: u64 ["BYTES_LOW"] @ 24, "As in `slot`.";
        bytes_high: u64 ["BYTES_HIGH"] @ 32, "As in `slot`.";
        seen_low: u32 ["SEEN_LOW"] @ 40, "As in `slot`.";
        seen_high: u32 ["SEEN_HIGH"] @ 44, "As in `slot`.";
        refused_packets: u64 ["REFUSED_PACKETS"] @ 48, "Packets that were dropped because what they carry is refused. Written before `packets`, read behind them: never fewer than are among those.";
        refused_bytes: u64 ["REFUSED_BYTES"] @ 56, "Bytes of their frames.";
    }
}

layout! {
    /// The frames that arrived by a port, as one processor counts them: line `port * processors +
    /// processor`. Only while the port is enabled. The counters of most frames are in its first two cache
    /// lines.
    PortLine, "counts", 256 {
        frames: u64 ["FRAMES"] @ 0, "Frames that came: those that went up, were forwarded, were dropped (for their flow or early), failed open and failed closed.";
        up: u64 ["UP"] @ 8, "Frames that went up to the host.";
        up_bytes: u64 ["UP_BYTES"] @ 16, "Bytes of the frames that went up, without the checksum of a frame; so are those below.";
        forwarded: u64 ["FORWARDED"] @ 24, "Frames that left by another port.";
        forwarded_bytes: u64 ["FORWARDED_BYTES"] @ 32, "Bytes of those that left.";
        dropped: u64 ["DROPPED"] @ 40, "Frames that were dropped for their flow.";
        dropped_bytes: u64 ["DROPPED_BYTES"] @ 48, "Bytes of those that were dropped for their flow.";
        early: u64 ["EARLY"] @ 56, "Frames without a flow that were dropped as the host would drop them, by an early table.";
        size_64: u64 ["SIZE_64"] @ 64, "Frames by size, with the 4 bytes of their checksum as RFC 2819 has it: up to 64.";
        size_127: u64 ["SIZE_127"] @ 72, "65 to 127.";
        size_255: u64 ["SIZE_255"] @ 80, "128 to 255.";
        size_511: u64 ["SIZE_511"] @ 88, "256 to 511.";
        size_1023: u64 ["SIZE_1023"] @ 96, "512 to 1,023.";
        size_1518: u64 ["SIZE_1518"] @ 104, "1,024 to 1,518.";
        size_9216: u64 ["SIZE_9216"] @ 112, "1,519 to 9,216, which RFC 2819 does not know.";
        size_larger: u64 ["SIZE_LARGER"] @ 120, "Larger.";
        early_bytes: u64 ["EARLY_BYTES"] @ 128, "Bytes of those that were dropped early.";
        open: u64 ["OPEN"] @ 136, "Frames that were forwarded because the worker that serves them was not heard of.";
        open_bytes: u64 ["OPEN_BYTES"] @ 144, "Bytes of those that failed open.";
        closed: u64 ["CLOSED"] @ 152, "Frames that were dropped because the worker that serves them was not heard of.";
        closed_bytes: u64 ["CLOSED_BYTES"] @ 160, "Bytes of those that failed closed.";
        multicast: u64 ["MULTICAST"] @ 168, "Frames that came to a group of stations (RFC 2863), whatever became of them.";
        broadcast: u64 ["BROADCAST"] @ 176, "Frames that came to all stations.";
        out_multicast: u64 ["OUT_MULTICAST"] @ 184, "Of those below: to a group of stations.";
        out: u64 ["OUT"] @ 192, "Frames that were to leave by this port, having come by another one; those that its device did not take as well.";
        out_bytes: u64 ["OUT_BYTES"] @ 200, "Bytes of those that were to leave.";
        out_broadcast: u64 ["OUT_BROADCAST"] @ 208, "Of those that were to leave: to all stations.";
    }
}

layout! {
    /// Whether each of 64 UDP ports may carry a tunnel that the host decodes: a bit each, the lowest port
    /// in the lowest bit.
    UdpPorts, "udp_ports", 32 {
        teredo: u64 ["TEREDO"] @ 0, "Datagrams from or to the port go up if they can be Teredo: what they carry has the length of an IPv6 packet.";
        vxlan: u64 ["VXLAN"] @ 8, "Datagrams to the port may be VXLAN.";
        geneve: u64 ["GENEVE"] @ 16, "Datagrams from or to the port may be GENEVE.";
        gtp: u64 ["GTP"] @ 24, "Datagrams from or to the port may be GTP-U.";
    }
}

layout! {
    /// The workers that serve the frames of a port that go up: those of its link, which a keyed hash
    /// (`Spread` of crate `base`) chooses from. The host writes it.
    WatchEntry, "watch", 128 {
        stale: u64 ["STALE"] @ 0, "Nanoseconds after which a worker that was not heard of has failed; 0: nobody watches, and all frames go up.";
        first: u64 ["FIRST"] @ 8, "Number of the link's first worker among those of all links.";
        workers: u64 ["WORKERS"] @ 16, "Workers of the link.";
        address_0: u64 ["ADDRESS_0"] @ 24, "Factor of the hash for the first word of the addresses, the only one of IPv4.";
        address_1: u64 ["ADDRESS_1"] @ 32, "For the second word.";
        address_2: u64 ["ADDRESS_2"] @ 40, "For the third word.";
        address_3: u64 ["ADDRESS_3"] @ 48, "For the last word.";
        ports: u64 ["PORTS"] @ 56, "For the ports.";
        last: u64 ["LAST"] @ 64, "For the last step.";
        vlans: u64 ["VLANS"] @ 72, "For the sum of VLAN ids; 0 where they do not count.";
        start: u64 ["START"] @ 80, "What the hash begins with: the link's part.";
    }
}

layout! {
    /// A worker's sign of life, which it writes between two batches. One cache line.
    Heartbeat, "heartbeat", 64 {
        seen: u64 ["SEEN"] @ 0, "When it was last heard of: nanoseconds of CLOCK_MONOTONIC, which is never set and stands still while the machine sleeps, as workers do.";
    }
}

layout! {
    /// The header of an early table: its generation, and the words where its parts begin. The host writes
    /// it; `classify::early` describes the parts.
    EarlyHeader, "early", 256 {
        generation: u64 ["GENERATION"] @ 0, "Low 8 bits of its generation, 256, and what EARLY_TENANTS and EARLY_TUNNELS say; 0: it holds nothing.";
        source_ports: u32 ["SOURCE_PORTS"] @ 8, "Classes of source ports, four in a word.";
        destination_ports: u32 ["DESTINATION_PORTS"] @ 12, "Classes of destination ports.";
        services: u32 ["SERVICES"] @ 16, "Classes of services, two in a word, by scope, protocol and classes of ports.";
        source_port_classes: u32 ["SOURCE_PORT_CLASSES"] @ 20, "How many classes of source ports there are.";
        destination_port_classes: u32 ["DESTINATION_PORT_CLASSES"] @ 24, "How many classes of destination ports there are.";
        service_classes: u32 ["SERVICE_CLASSES"] @ 28, "How many classes of services there are.";
        v4_sources: u32 ["V4_SOURCES"] @ 32, "IPv4: segments of source addresses.";
        v4_source_count: u32 ["V4_SOURCE_COUNT"] @ 36, "How many there are; 0: all packets of the family go up.";
        v4_destinations: u32 ["V4_DESTINATIONS"] @ 40, "Segments of destination addresses.";
        v4_destination_count: u32 ["V4_DESTINATION_COUNT"] @ 44, "How many there are.";
        v4_destination_classes: u32 ["V4_DESTINATION_CLASSES"] @ 48, "How many classes of destination addresses there are.";
        v4_pairs: u32 ["V4_PAIRS"] @ 52, "Classes of pairs of addresses, two in a word, by the classes of both.";
        v4_outcomes: u32 ["V4_OUTCOMES"] @ 56, "Outcomes, two in a word, by classes of pair and service.";
        v6_sources: u32 ["V6_SOURCES"] @ 60, "The same of IPv6.";
        v6_source_count: u32 ["V6_SOURCE_COUNT"] @ 64, "See IPv4.";
        v6_destinations: u32 ["V6_DESTINATIONS"] @ 68, "See IPv4.";
        v6_destination_count: u32 ["V6_DESTINATION_COUNT"] @ 72, "See IPv4.";
        v6_destination_classes: u32 ["V6_DESTINATION_CLASSES"] @ 76, "See IPv4.";
        v6_pairs: u32 ["V6_PAIRS"] @ 80, "See IPv4.";
        v6_outcomes: u32 ["V6_OUTCOMES"] @ 84, "See IPv4.";
        scopes: u32 ["SCOPES"] @ 88, "Scopes, two in a word, by link and place of the tenant's selector. Where tenants are not told apart a scope is the number of the link.";
        selectors: u32 ["SELECTORS"] @ 92, "Places of selectors: one for each, and the last for what none of them selects.";
        selected: u32 ["SELECTED"] @ 96, "Places of the first selectors that fit, two in a word, by link, class of a tag and class of an address.";
        tag_classes: u32 ["TAG_CLASSES"] @ 100, "How many classes there are of VLAN ids and numbers of tunnels together.";
        host_classes: u32 ["HOST_CLASSES"] @ 104, "How many classes of addresses selectors tell apart; 1: none asks for addresses.";
        untagged: u32 ["UNTAGGED"] @ 108, "The class of packets without a tag, outside of tunnels.";
        vlans: u32 ["VLANS"] @ 112, "Classes of VLAN ids, four in a word.";
        tunnels: u32 ["TUNNELS"] @ 116, "Segments of numbers of tunnels, each with its class.";
        tunnel_count: u32 ["TUNNEL_COUNT"] @ 120, "How many there are.";
        v4_hosts: u32 ["V4_HOSTS"] @ 124, "IPv4: segments of the addresses that selectors ask for.";
        v4_host_count: u32 ["V4_HOST_COUNT"] @ 128, "How many there are.";
        v6_hosts: u32 ["V6_HOSTS"] @ 132, "The same of IPv6.";
        v6_host_count: u32 ["V6_HOST_COUNT"] @ 136, "See IPv4.";
    }
}

layout! {
    /// The packets dropped for an outcome of an early table, as one processor counts them.
    EarlyCount, "early_count", 16 {
        packets: u64 ["PACKETS"] @ 0, "Packets.";
        bytes: u64 ["BYTES"] @ 8, "Bytes of their frames.";
    }
}

layout! {
    /// The outcome of frames that were redirected to test a port.
    ProbeOutcome, "probe", 64 {
        processor: u64 ["PROCESSOR"] @ 0, "The processor, plus one, that holds frames which the next report is about; 0 for none.";
        sent: u64 ["SENT"] @ 8, "Frames that the device took.";
        dropped: u64 ["DROPPED"] @ 16, "Frames that it did not take.";
        error: u64 ["ERROR"] @ 24, "The number of the error that it gave for that; 0 for none.";
        device: u64 ["DEVICE"] @ 32, "The device, as the kernel's reports name it.";
    }
}

layout! {
    /// The frames lost on their way out by a port, as one processor counts them: line `port * processors +
    /// processor`.
    LostLine, "lost", 16 {
        frames: u64 ["FRAMES"] @ 0, "Frames that its device did not take, or that the kernel did not give it.";
        error: u64 ["ERROR"] @ 8, "The number of the latest error that was given for it; 0 for none.";
    }
}

flags! {
    /// Flags of controls.
    ControlFlags, CONTROL_FLAGS {
        /// The slot holds a flow. Without this flag all packets go up and nothing is counted.
        VALID = 0,
    }
}

flags! {
    /// Flags of ports.
    PortFlags, PORT_FLAGS {
        /// Both ports of the link are ready. Without this flag all frames go up and nothing is counted.
        ENABLED = 0,
        /// VLAN ids are part of keys.
        VLANS = 1,
        /// The kernel runs the program, not the driver: frames leave as all frames of the kernel do.
        GENERIC = 2,
        /// While the worker that serves a frame has failed, a frame that would go up is forwarded. Without
        /// this flag, it is dropped.
        OPEN = 3,
        /// The early table refuses packets without a flow whether or not the host is alive. Without this
        /// flag, only while the link is open.
        EARLY = 4,
    }
}

flags! {
    /// Flags of exits.
    ExitFlags, EXIT_FLAGS {
        /// It was tested, and takes frames that a driver redirects to it.
        PROVEN = 0,
        /// Also frames in several buffers.
        PARTS = 1,
    }
}

flags! {
    /// Flags of numbers.
    NumbersFlags, NUMBERS_FLAGS {
        /// Both endpoints send timestamps.
        TIMESTAMPS = 0,
    }
}

flags! {
    /// Flags of ends.
    EndFlags, END_FLAGS {
        /// Its FIN has arrived.
        SEEN = 0,
        /// The other endpoint had ended before.
        SECOND = 1,
    }
}

/// The handling of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SlotAction {
    /// Packets leave by the port across the link.
    Forward = 0,
    /// Packets leave by a named port.
    Redirect = 1,
    /// Packets are dropped.
    Drop = 2,
    /// Packets leave by the port across the link if they plainly go on with their connection; others go up.
    Compare = 3,
    /// Packets from the lower endpoint of the key are dropped; the rest goes up.
    DropLow = 4,
    /// Packets from the higher endpoint are dropped; the rest goes up.
    DropHigh = 5,
}

/// Every action: number, name in headers, meaning.
pub const ACTIONS: &[(u8, &str, &str)] = &[
    (SlotAction::Forward as u8, "FORWARD", "They leave by the port across the link."),
    (SlotAction::Redirect as u8, "REDIRECT", "They leave by the port `egress`."),
    (SlotAction::Drop as u8, "DROP", "They are dropped."),
    (
        SlotAction::Compare as u8,
        "COMPARE",
        "They leave by the port across the link if they plainly go on with their connection; others go up.",
    ),
    (
        SlotAction::DropLow as u8,
        "DROP_LOW",
        "What the lower endpoint of the key sends is dropped; the rest goes up.",
    ),
    (SlotAction::DropHigh as u8, "DROP_HIGH", "What the higher endpoint sends is dropped; the rest goes up."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_no_holes_and_counters_stand_at_their_natural_places() {
        for block in WORDS.iter().chain(COUNTERS) {
            assert!(block.len.is_power_of_two() && block.len >= 8, "{}", block.name);
            let mut end = 0;
            for field in block.fields {
                assert_eq!(
                    (field.offset, field.offset % field.len),
                    (end, 0),
                    "{}.{}",
                    block.name,
                    field.name
                );
                end += field.len;
            }
            assert!(end <= block.len, "{}", block.name);
        }
        assert!(WORDS.iter().all(|word| word.len == 8));
        assert!(COUNTERS.iter().flat_map(|block| block.fields).all(|field| matches!(field.len, 4 | 8)));
        assert_eq!(UDP_PORT_BLOCKS * 64, 65_536);
    }
}
