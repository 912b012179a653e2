// SPDX-License-Identifier: Apache-2.0
//! Writes the stateful firewall's tables in C and SystemVerilog, from `bartizan_functions::sfw_table` and
//! `sfw_messages` alone.

use bartizan_functions::sfw_messages::{
    EXCHANGES, IcmpKind, SfwAdmission, SfwMessageKind, icmpv4_kind, icmpv6_kind,
};
use bartizan_functions::sfw_table::{
    CELLS, ConnectionShare, KINDS, NONE, STATES, SegmentClass, SegmentKind, SegmentPosition, SfwAction,
    TRANSITIONS, Timeout, share,
};
use std::fmt::{Debug, Write as _};

/// `ToCpu` as `TO_CPU`.
fn upper(value: impl Debug) -> String {
    let mut name = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Names with their numbers: prefix, description, and each name.
type Group = (&'static str, &'static str, Vec<(String, u8)>);

fn names<T: Debug + Copy>(of: &[T], number: fn(T) -> u8) -> Vec<(String, u8)> {
    of.iter().map(|one| (upper(one), number(*one))).collect()
}

fn constants() -> Vec<Group> {
    let classes = SegmentClass::NAMED.iter().map(|(class, name)| ((*name).to_owned(), class.0)).collect();
    let actions = [SfwAction::Admit, SfwAction::Skip, SfwAction::Refuse];
    let timeouts = [Timeout::New, Timeout::Established, Timeout::Closed];
    let shares = [ConnectionShare::HalfOpen, ConnectionShare::Open, ConnectionShare::Nothing];
    let known = [SfwAdmission::NoFlow, SfwAdmission::New, SfwAdmission::Admitted];
    let icmp = [IcmpKind::Question, IcmpKind::Answer, IcmpKind::Error, IcmpKind::Neighbour];
    vec![
        ("STATE", "States of a connection: rows.", names(&STATES, |s| s as u8)),
        ("KIND", "What a segment is by its flags.", names(&SegmentKind::ALL, |k| k as u8)),
        (
            "PLACE",
            "How a segment that is taken lies in the state before it.",
            names(&SegmentPosition::ALL, |p| p as u8),
        ),
        ("CLASS", "Classes of segments that a check has decided.", classes),
        ("ACTION", "What becomes of a packet.", names(&actions, |a| a as u8)),
        ("TIMEOUT", "Which timeout a flow has.", names(&timeouts, |t| t as u8)),
        ("SHARE", "What a connection counts for its source.", names(&shares, |s| s as u8)),
        (
            "KNOWN",
            "What is known of the flow of a packet that is no segment: rows.",
            names(&known, |k| k as u8),
        ),
        ("MESSAGE", "What such a packet is: columns.", names(&SfwMessageKind::ALL, |m| m as u8)),
        ("ICMP", "What a type of ICMP is.", names(&icmp, |i| i as u8)),
    ]
}

/// Both tables of ICMP types: those other than queries, the default for all others.
fn icmp_types() -> [(&'static str, Vec<(u8, u8)>); 2] {
    let those = |kind: fn(u8) -> IcmpKind| {
        (0..=u8::MAX).filter(|t| kind(*t) != IcmpKind::Question).map(|t| (t, kind(t) as u8)).collect()
    };
    [("icmpv4", those(icmpv4_kind)), ("icmpv6", those(icmpv6_kind))]
}

/// Each cell of the exchanges: action and reason.
fn exchanges() -> impl Iterator<Item = (u8, u8)> {
    EXCHANGES.iter().map(|(action, reason)| (*action as u8, reason.map_or(NONE, |reason| reason as u8)))
}

/// The C header.
pub fn c() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: Apache-2.0\n \
         * Generated from crates/functions/src/sfw_table.rs and sfw_messages.rs by `cargo xtask generate`: do not edit.\n \
         *\n \
         * What the stateful firewall decides, by state and class of a segment. What a class is and how it is found:\n \
         * docs/design/0014-header-halves.md. Reasons are those of bartizan_tables.h. */\n\
         #ifndef BARTIZAN_SFW_H\n#define BARTIZAN_SFW_H\n\n\
         #ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n\n\
         /* In place of a number: no state follows. The packet goes up to the host. */\n",
    );
    let _ = writeln!(out, "#define BARTIZAN_SFW_NONE {NONE}");
    let _ = writeln!(out, "#define BARTIZAN_SFW_STATES {}", STATES.len());
    let _ = writeln!(out, "#define BARTIZAN_SFW_CLASSES {}", SegmentClass::COUNT);
    let _ = writeln!(out, "#define BARTIZAN_SFW_MESSAGES {}", SfwMessageKind::COUNT);
    for (group, what, names) in constants() {
        let _ = writeln!(out, "\n/* {what} */");
        for (name, number) in names {
            let _ = writeln!(out, "#define BARTIZAN_SFW_{group}_{name} {number}");
        }
    }
    out.push_str("\nstruct bartizan_sfw_cell {\n\t__u8 next;    /* State after it. */\n\t__u8 action;\n\t__u8 reason;\n\t__u8 timeout; /* That of `next`. */\n};\n");
    out.push_str(
        "\n/* Rows by state, columns by class. */\n\
         static const struct bartizan_sfw_cell bartizan_sfw_transitions[BARTIZAN_SFW_STATES * BARTIZAN_SFW_CLASSES]\n\
         \t__attribute__((unused)) = {\n",
    );
    for (row, state) in TRANSITIONS.chunks(SegmentClass::COUNT).zip(STATES) {
        let _ = writeln!(out, "\t/* {} */", upper(state));
        for eight in row.chunks(8) {
            let cells: Vec<String> = eight
                .iter()
                .map(|cell| {
                    let [next, action, reason, timeout] = cell.bytes();
                    format!("{{{next}, {action}, {reason}, {timeout}}},")
                })
                .collect();
            let _ = writeln!(out, "\t{}", cells.join(" "));
        }
    }
    out.push_str("};\n\n/* Kinds by flags: FIN 1, SYN 2, RST 4, ACK 8. */\nstatic const __u8 bartizan_sfw_kinds[16] __attribute__((unused)) = {\n\t");
    let kinds: Vec<String> = KINDS.iter().map(|kind| (*kind as u8).to_string()).collect();
    let _ = writeln!(out, "{},\n}};", kinds.join(", "));
    out.push_str("\n/* Packets that are no segments: action and reason; rows by what is known of the flow, columns by message. */\nstatic const __u8 bartizan_sfw_exchanges[3 * BARTIZAN_SFW_MESSAGES][2] __attribute__((unused)) = {\n");
    for row in exchanges().collect::<Vec<_>>().chunks(SfwMessageKind::COUNT) {
        let cells: Vec<String> =
            row.iter().map(|(action, reason)| format!("{{{action}, {reason}}},")).collect();
        let _ = writeln!(out, "\t{}", cells.join(" "));
    }
    out.push_str("};\n\n/* What a connection counts for its source, by its state. */\nstatic const __u8 bartizan_sfw_shares[BARTIZAN_SFW_STATES] __attribute__((unused)) = {\n\t");
    let shares: Vec<String> = STATES.iter().map(|state| (share(*state) as u8).to_string()).collect();
    let _ = writeln!(out, "{},\n}};", shares.join(", "));
    out.push_str(
        "\n/* What a segment is, by the flags of its header. */\n\
         static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_kind(__u8 flags)\n\
         {\n\treturn bartizan_sfw_kinds[(flags & 7) | (flags & 0x10) >> 1];\n}\n\
         \n/* The class of a segment that is taken. */\n\
         static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_class(__u8 kind, __u8 place, __u8 to_client)\n\
         {\n\treturn (__u8)(kind << 3 | place << 1 | to_client);\n}\n\
         \n/* The cell, or nothing where numbers are none that a segment has. */\n\
         static inline __attribute__((unused, always_inline)) const struct bartizan_sfw_cell *bartizan_sfw_cell(__u8 state, __u8 class)\n\
         {\n\tif (state >= BARTIZAN_SFW_STATES || class >= BARTIZAN_SFW_CLASSES)\n\t\treturn 0;\n\
         \treturn &bartizan_sfw_transitions[state * BARTIZAN_SFW_CLASSES + class];\n}\n",
    );
    for (version, types) in icmp_types() {
        let _ = write!(
            out,
            "\n/* What a type of {version} is. */\n\
             static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_{version}(__u8 type)\n\
             {{\n\tswitch (type) {{\n"
        );
        for (number, kind) in types {
            let _ = writeln!(out, "\tcase {number}: return {kind};");
        }
        out.push_str("\tdefault: return BARTIZAN_SFW_ICMP_QUESTION;\n\t}\n}\n");
    }
    out.push_str("\n#endif\n");
    out
}

/// The SystemVerilog package.
pub fn system_verilog() -> String {
    let mut out = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n\
         // Generated from crates/functions/src/sfw_table.rs and sfw_messages.rs by `cargo xtask generate`: do not edit.\n\
         //\n\
         // What the stateful firewall decides, by state and class of a segment. What a class is and how it is found:\n\
         // docs/design/0014-header-halves.md. Reasons are those of bartizan_tables_pkg.\n\
         package bartizan_sfw_pkg;\n\n  \
         // Nobody uses all of a package.\n  \
         /* verilator lint_off UNUSEDPARAM */\n\n  \
         // In place of a number: there is none. A state after a segment that is none is the host's matter:
         // the packet goes up.\n",
    );
    let _ = writeln!(out, "  localparam logic [7:0] NONE = 8'd{NONE};");
    for (group, what, names) in constants() {
        let bits = match group {
            "STATE" => 4,
            "CLASS" => 6,
            "KIND" | "MESSAGE" => 3,
            "PLACE" | "KNOWN" => 2,
            _ => 8,
        };
        let _ = writeln!(out, "\n  // {what}");
        for (name, number) in names {
            let _ = writeln!(out, "  localparam logic [{}:0] {group}_{name} = {bits}'d{number};", bits - 1);
        }
    }
    out.push_str(
        "\n  typedef struct packed {\n    logic [7:0] timeout;  // That of `next`.\n    logic [7:0] reason;\n    logic [7:0] action;\n    logic [7:0] next;     // State after it.\n  } cell_t;\n\
         \n  // What a segment is, by the flags of its header.\n\
         \x20 function automatic logic [2:0] kind_of(input logic ack, input logic rst, input logic syn, input logic fin);\n\
         \x20   unique case ({ack, rst, syn, fin})\n",
    );
    for (flags, kind) in KINDS.iter().enumerate().filter(|(_, kind)| **kind != SegmentKind::Broken) {
        let _ = writeln!(out, "      4'd{flags}: kind_of = KIND_{};", upper(kind));
    }
    out.push_str(
        "      default: kind_of = KIND_BROKEN;\n    endcase\n  endfunction\n\
         \n  // The class of a segment that is taken.\n\
         \x20 function automatic logic [5:0] class_of(input logic [2:0] kind, input logic [1:0] place, input logic to_client);\n\
         \x20   class_of = {kind, place, to_client};\n  endfunction\n\
         \n  // The cell for a state and a class; numbers that no segment has let nothing through.\n\
         \x20 function automatic cell_t transition(input logic [3:0] state, input logic [5:0] class_number);\n\
         \x20   unique case ({state, class_number})\n",
    );
    let vector = |bytes: [u8; 4]| format!("32'h{:08x}", u32::from_le_bytes(bytes));
    let broken = TRANSITIONS[0].bytes();
    for (number, cell) in TRANSITIONS.iter().enumerate().filter(|(_, cell)| cell.bytes() != broken) {
        let (state, class) = (number / SegmentClass::COUNT, number % SegmentClass::COUNT);
        let _ = writeln!(out, "      {{4'd{state}, 6'd{class}}}: transition = {};", vector(cell.bytes()));
    }
    let _ = writeln!(out, "      default: transition = {};\n    endcase\n  endfunction", vector(broken));
    out.push_str(
        "\n  // A packet that is no segment: reason and action, by what is known of its flow and by message.\n\
         \x20 function automatic logic [15:0] exchange(input logic [1:0] known, input logic [2:0] message);\n\
         \x20   unique case ({known, message})\n",
    );
    for (number, (action, reason)) in exchanges().enumerate() {
        let _ = writeln!(out, "      5'd{number}: exchange = 16'h{reason:02x}{action:02x};");
    }
    out.push_str("      default: exchange = {NONE, ACTION_REFUSE};\n    endcase\n  endfunction\n");
    for (version, types) in icmp_types() {
        let _ = write!(
            out,
            "\n  // What a type of {version} is.\n  function automatic logic [7:0] {version}_kind(input logic [7:0] number);\n    unique case (number)\n"
        );
        for (number, kind) in types {
            let _ = writeln!(out, "      8'd{number}: {version}_kind = 8'd{kind};");
        }
        let _ = writeln!(out, "      default: {version}_kind = ICMP_QUESTION;\n    endcase\n  endfunction");
    }
    out.push_str("\n  /* verilator lint_on UNUSEDPARAM */\n\nendpackage\n");
    debug_assert_eq!(TRANSITIONS.len(), CELLS);
    out
}
