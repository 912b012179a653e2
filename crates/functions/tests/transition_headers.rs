// SPDX-License-Identifier: Apache-2.0
//! The committed headers of the stateful firewall's tables match the tables, and a C compiler and Verilator
//! read every cell as Rust does. `cargo xtask generate` writes them.

use crate::transitions;

use bartizan_functions::sfw_messages::{EXCHANGES, SfwMessageKind, icmpv4_kind, icmpv6_kind};
use bartizan_functions::sfw_table::{KINDS, NONE, STATES, SegmentClass, SegmentKind, TRANSITIONS, share};
use bartizan_testkit::generated;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use transitions::{c, system_verilog};

const C: &str = "ebpf/bartizan_sfw.h";
const SYSTEM_VERILOG: &str = "hw/rtl/bartizan_sfw_pkg.sv";

#[test]
fn the_committed_headers_are_those_of_the_tables() {
    for (name, expected) in [(C, c()), (SYSTEM_VERILOG, system_verilog())] {
        generated::check(name, &expected);
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-sfw-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}:\n{output}{}", String::from_utf8_lossy(&done.stderr));
    output
}

/// Each cell by the functions of the header, each kind by flags, each type of ICMP, each exchange, each
/// share.
const C_PROGRAM: &str = r#"
#include <stdio.h>
#include "bartizan_sfw.h"
int main(void) {
    for (int state = 0; state < 16; state++)
        for (int class = 0; class < 64; class++) {
            const struct bartizan_sfw_cell *cell = bartizan_sfw_cell(state, class);
            if (cell)
                printf("%d %d: %d %d %d %d\n", state, class, cell->next, cell->action, cell->reason, cell->timeout);
        }
    for (int flags = 0; flags < 256; flags++)
        printf("%d: %d\n", flags, bartizan_sfw_kind(flags));
    for (int type = 0; type < 256; type++)
        printf("%d: %d %d\n", type, bartizan_sfw_icmpv4(type), bartizan_sfw_icmpv6(type));
    for (int i = 0; i < 3 * BARTIZAN_SFW_MESSAGES; i++)
        printf("%d: %d %d\n", i, bartizan_sfw_exchanges[i][0], bartizan_sfw_exchanges[i][1]);
    for (int i = 0; i < BARTIZAN_SFW_STATES; i++)
        printf("%d: %d\n", i, bartizan_sfw_shares[i]);
    printf("%d\n", bartizan_sfw_class(BARTIZAN_SFW_KIND_FIN, BARTIZAN_SFW_PLACE_MOVES, 1));
    return 0;
}
"#;

#[test]
fn a_c_program_reads_every_cell_as_rust_does() {
    let folder = folder("c");
    let (source, program) = (folder.join("main.c"), folder.join("main"));
    std::fs::write(&source, C_PROGRAM).unwrap();
    let include = generated::committed(C).parent().unwrap().to_owned();
    run(Command::new("cc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).args([
        &include,
        Path::new("-o"),
        &program,
        &source,
    ]));
    let output = run(&mut Command::new(&program));
    let mut expected = String::new();
    for (state, row) in TRANSITIONS.chunks(SegmentClass::COUNT).enumerate() {
        for (class, cell) in row.iter().enumerate() {
            let [next, action, reason, timeout] = cell.bytes();
            let _ = writeln!(expected, "{state} {class}: {next} {action} {reason} {timeout}");
        }
    }
    for flags in 0..=u8::MAX {
        let _ = writeln!(expected, "{flags}: {}", kind(flags) as u8);
    }
    for number in 0..=u8::MAX {
        let (v4, v6) = (icmpv4_kind(number) as u8, icmpv6_kind(number) as u8);
        let _ = writeln!(expected, "{number}: {v4} {v6}");
    }
    for (number, (action, reason)) in EXCHANGES.iter().enumerate() {
        let _ = writeln!(expected, "{number}: {} {}", *action as u8, reason.map_or(NONE, |r| r as u8));
    }
    for state in STATES {
        let _ = writeln!(expected, "{}: {}", state as u8, share(state) as u8);
    }
    let _ = writeln!(expected, "{}", (SegmentKind::Fin as u8) << 3 | 2 << 1 | 1);
    assert_eq!(output, expected);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn kind(flags: u8) -> SegmentKind {
    KINDS[usize::from(flags & 7 | (flags & 0x10) >> 1)]
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A module whose elaboration fails if a cell differs from Rust's.
fn checks() -> String {
    let mut text = String::from("module check;\n  import bartizan_sfw_pkg::*;\n");
    let mut expect = |is: String, value: String| {
        let _ = writeln!(text, "  if ({is} != {value}) $error(\"{is}\");");
    };
    for (number, cell) in TRANSITIONS.iter().enumerate() {
        let (state, class) = (number / SegmentClass::COUNT, number % SegmentClass::COUNT);
        let value = format!("32'h{:08x}", u32::from_le_bytes(cell.bytes()));
        expect(format!("transition(4'd{state}, 6'd{class})"), value);
    }
    for flags in 0..=u8::MAX {
        let [ack, rst, syn, fin] = [0x10, 4, 2, 1].map(|bit| u8::from(flags & bit != 0));
        let is = format!("kind_of(1'd{ack}, 1'd{rst}, 1'd{syn}, 1'd{fin})");
        expect(is, format!("3'd{}", kind(flags) as u8));
        expect(format!("icmpv4_kind(8'd{flags})"), format!("8'd{}", icmpv4_kind(flags) as u8));
        expect(format!("icmpv6_kind(8'd{flags})"), format!("8'd{}", icmpv6_kind(flags) as u8));
    }
    for (number, (action, reason)) in EXCHANGES.iter().enumerate() {
        let value = format!("16'h{:02x}{:02x}", reason.map_or(NONE, |r| r as u8), *action as u8);
        let (known, message) = (number / SfwMessageKind::COUNT, number % SfwMessageKind::COUNT);
        expect(format!("exchange(2'd{known}, 3'd{message})"), value);
    }
    expect("class_of(KIND_FIN, PLACE_MOVES, 1'b1)".to_owned(), "6'd45".to_owned());
    text.push_str("endmodule\n");
    text
}

#[test]
fn verilator_reads_every_cell_as_rust_does() {
    if !is_there("verilator") {
        eprintln!("not run: verilator is not installed");
        return;
    }
    let folder = folder("sv");
    let source = folder.join("check.sv");
    let lint = || {
        let mut command = Command::new("verilator");
        command
            .args(["--lint-only", "-Wall", "--top-module", "check"])
            .args([&generated::committed(SYSTEM_VERILOG), &source]);
        command
    };
    std::fs::write(&source, checks()).unwrap();
    run(&mut lint());
    // The check fails on a difference.
    let wrong = checks().replace("!= 6'd45", "!= 6'd44");
    assert_ne!(wrong, checks());
    std::fs::write(&source, wrong).unwrap();
    assert!(!lint().output().unwrap().status.success());
    std::fs::remove_dir_all(&folder).unwrap();
}
