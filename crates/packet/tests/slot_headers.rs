// SPDX-License-Identifier: Apache-2.0
//! The committed header of the XDP level's slots, ports and counters is that of its description, and a C
//! compiler reads random blocks as Rust does. `cargo xtask generate` writes it.

use bartizan_packet::layout::Layout;
use bartizan_packet::slots::{
    ACTIONS, CONTROL_FLAGS, COUNTERS, CarrierLine, END_FLAGS, EXIT_FLAGS, EarlyCount, EarlyHeader, EndWord,
    ExitWord, FLIGHT_MAX, Heartbeat, LostLine, NUMBERS_FLAGS, NumbersWord, OfferWord, PORT_FLAGS, PORTS,
    PortLine, PortWord, ProbeOutcome, ProgressWord, SEEN_SHIFT, SEQUENCE_BACK, SlotControl, SlotLine,
    TABLE_CONSTANTS, TIMESTAMP_FAR_AHEAD, UDP_PORT_BLOCKS, UdpPorts, WINDOW_TRIES, WORDS, WatchEntry,
    WindowLine,
};
use bartizan_testkit::generated;
use bartizan_testkit::random::Random;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const FILE: &str = "ebpf/bartizan_slots.h";

/// Bytes of a block that no field holds, all at its end.
fn reserved(layout: &Layout) -> usize {
    layout.len - layout.fields.iter().map(|field| field.offset + field.len).max().unwrap_or(0)
}

fn word(out: &mut String, layout: &Layout) {
    let name = layout.name.to_ascii_uppercase();
    let _ = writeln!(out, "\n/* {} */", layout.what);
    for field in layout.fields {
        let macro_ = format!("#define BARTIZAN_{name}_{}(word)", field.name);
        let value = format!("((__u{})((word) >> {}))", field.len * 8, field.offset * 8);
        let _ = writeln!(out, "{macro_:<44}{value:<24}/* {} */", field.what);
    }
}

fn structure(out: &mut String, layout: &Layout) {
    let name = format!("struct bartizan_{}", layout.name);
    let _ = writeln!(out, "\n/* {} */\n{name} {{", layout.what);
    for field in layout.fields {
        let member = format!("__u{} {};", field.len * 8, field.name.to_ascii_lowercase());
        let _ = writeln!(out, "\t{member:<24}/* {:>3}: {} */", field.offset, field.what);
    }
    if reserved(layout) > 0 {
        let member = format!("__u8 reserved[{}];", reserved(layout));
        let _ = writeln!(out, "\t{member:<24}/* {:>3}: Zero. */", layout.len - reserved(layout));
    }
    let _ = writeln!(out, "}};\n_Static_assert(sizeof({name}) == {}, \"{}\");", layout.len, layout.name);
    for field in layout.fields {
        let member = field.name.to_ascii_lowercase();
        let place = format!("__builtin_offsetof({name}, {member})");
        let _ = writeln!(out, "_Static_assert({place} == {}, \"{}.{member}\");", field.offset, layout.name);
    }
}

/// The header.
fn header() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: Apache-2.0\n \
         * Generated from crates/packet/src/slots.rs by `cargo xtask generate`: do not edit.\n \
         *\n \
         * What the XDP level and the host share beside the key of a flow. Both run on one machine: numbers are in its own order. */\n\
         #ifndef BARTIZAN_SLOTS_H\n#define BARTIZAN_SLOTS_H\n\n\
         #ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n\n",
    );
    let _ = writeln!(out, "/* Ports at most. */\n#define BARTIZAN_PORTS {PORTS}");
    let _ =
        writeln!(out, "\n/* Blocks of 64 UDP ports. */\n#define BARTIZAN_UDP_PORT_BLOCKS {UDP_PORT_BLOCKS}");
    let _ = writeln!(
        out,
        "\n/* Unit of a slot's times: a power of two, in nanoseconds. */\n#define BARTIZAN_SEEN_SHIFT {SEEN_SHIFT}"
    );
    let _ = writeln!(
        out,
        "\n/* Sequence numbers that lie further behind the latest one have gone round. */\n#define BARTIZAN_SEQUENCE_BACK {SEQUENCE_BACK}U"
    );
    for (what, name, number) in [
        ("A segment may end so far behind what is acknowledged.", "FLIGHT_MAX", FLIGHT_MAX),
        ("A timestamp that is further ahead goes up.", "TIMESTAMP_FAR_AHEAD", TIMESTAMP_FAR_AHEAD),
        ("How often a word is tried to be changed.", "WINDOW_TRIES", WINDOW_TRIES),
    ] {
        let _ = writeln!(out, "\n/* {what} */\n#define BARTIZAN_{name} {number}U");
    }
    for (name, number, what) in TABLE_CONSTANTS {
        let _ = writeln!(out, "\n/* {what} */\n#define BARTIZAN_{name} {number}U");
    }
    out.push_str("\n/* Actions. */\n");
    for (number, name, what) in ACTIONS {
        let _ = writeln!(out, "#define BARTIZAN_ACTION_{name} {number} /* {what} */");
    }
    for (of, many, flags) in [
        ("control", "controls", CONTROL_FLAGS),
        ("port", "ports", PORT_FLAGS),
        ("exit", "exits", EXIT_FLAGS),
        ("numbers", "numbers", NUMBERS_FLAGS),
        ("end", "ends", END_FLAGS),
    ] {
        let _ = writeln!(out, "\n/* Flags of {many}. */");
        for (bit, name, what) in flags {
            let _ = writeln!(
                out,
                "#define BARTIZAN_{}_FLAG_{name} {bit:#04x} /* {what} */",
                of.to_ascii_uppercase()
            );
        }
    }
    WORDS.iter().for_each(|layout| word(&mut out, layout));
    COUNTERS.iter().for_each(|layout| structure(&mut out, layout));
    out.push_str("\n#endif\n");
    out
}

#[test]
fn the_committed_header_is_that_of_the_description() {
    generated::check(FILE, &header());
}

/// A block's bytes as Rust prints them (`SlotLine { control: 7, ... }`).
fn rust(layout: &Layout, bytes: &[u8]) -> String {
    match layout.name {
        "control" => format!("{:?}", SlotControl::read(bytes.try_into().unwrap())),
        "port" => format!("{:?}", PortWord::read(bytes.try_into().unwrap())),
        "exit" => format!("{:?}", ExitWord::read(bytes.try_into().unwrap())),
        "numbers" => format!("{:?}", NumbersWord::read(bytes.try_into().unwrap())),
        "progress" => format!("{:?}", ProgressWord::read(bytes.try_into().unwrap())),
        "offer" => format!("{:?}", OfferWord::read(bytes.try_into().unwrap())),
        "end" => format!("{:?}", EndWord::read(bytes.try_into().unwrap())),
        "windows" => format!("{:?}", WindowLine::read(bytes.try_into().unwrap())),
        "slot" => format!("{:?}", SlotLine::read(bytes.try_into().unwrap())),
        "carrier" => format!("{:?}", CarrierLine::read(bytes.try_into().unwrap())),
        "counts" => format!("{:?}", PortLine::read(bytes.try_into().unwrap())),
        "udp_ports" => format!("{:?}", UdpPorts::read(bytes.try_into().unwrap())),
        "watch" => format!("{:?}", WatchEntry::read(bytes.try_into().unwrap())),
        "heartbeat" => format!("{:?}", Heartbeat::read(bytes.try_into().unwrap())),
        "early" => format!("{:?}", EarlyHeader::read(bytes.try_into().unwrap())),
        "early_count" => format!("{:?}", EarlyCount::read(bytes.try_into().unwrap())),
        "lost" => format!("{:?}", LostLine::read(bytes.try_into().unwrap())),
        "probe" => format!("{:?}", ProbeOutcome::read(bytes.try_into().unwrap())),
        other => panic!("{other} is new; say here how Rust reads it"),
    }
}

/// The program prints the blocks that it reads in the form of Rust. Its input is the bytes as numbers of
/// eight bytes, as host and program exchange them.
fn program(blocks: &[(&Layout, Vec<u8>)]) -> String {
    let mut text = String::from(
        "#include <stdio.h>\n#include <string.h>\n#include \"bartizan_slots.h\"\nint main(void) {\n",
    );
    for (layout, bytes) in blocks {
        let said = rust(layout, bytes);
        let type_name = said.split(' ').next().unwrap();
        let numbers = bytes.chunks(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap()));
        let numbers = numbers.map(|number| format!("{number}ULL")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{{ __u64 words[] = {{ {numbers} }}; printf(\"{type_name} {{\");");
        let is_word = layout.len == 8;
        if !is_word {
            let _ = writeln!(
                text,
                "struct bartizan_{} block; memcpy(&block, words, sizeof(block));",
                layout.name
            );
        }
        for (number, field) in layout.fields.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let member = field.name.to_ascii_lowercase();
            let value = if is_word {
                format!("BARTIZAN_{}_{}(words[0])", layout.name.to_ascii_uppercase(), field.name)
            } else {
                format!("block.{member}")
            };
            let _ = writeln!(text, "printf(\"{comma} {member}: %llu\", (unsigned long long){value});");
        }
        text.push_str("puts(\" }\"); }\n");
    }
    text.push_str("return 0;\n}\n");
    text
}

#[test]
fn a_c_program_reads_random_blocks_as_rust_does() {
    let mut random = Random::new(20);
    let blocks: Vec<(&Layout, Vec<u8>)> = WORDS
        .iter()
        .chain(COUNTERS)
        .flat_map(|layout| [layout; 8])
        .map(|layout| {
            let mut bytes = random.bytes(layout.len);
            bytes[layout.len - reserved(layout)..].fill(0);
            (layout, bytes)
        })
        .collect();
    let folder = std::env::temp_dir().join(format!("bartizan-slots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("main.c"), folder.join("main"));
    std::fs::write(&source, program(&blocks)).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .args([generated::committed(FILE).parent().unwrap(), Path::new("-o"), &binary, &source])
        .output()
        .expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new(&binary).output().unwrap().stdout;
    let expected: String = blocks.iter().map(|(layout, bytes)| rust(layout, bytes) + "\n").collect();
    assert_eq!(String::from_utf8(said).unwrap(), expected);
    std::fs::remove_dir_all(&folder).unwrap();
}
