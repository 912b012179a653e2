// SPDX-License-Identifier: Apache-2.0
//! The committed headers of the tables' entries are those of their description, and a C compiler and
//! Verilator read random entries as Rust does. `cargo xtask generate` writes them.

use crate::tables;

use bartizan_packet::layout::Layout;
use bartizan_packet::tables::{ENTRIES, FlowEntry, MatchEntry, RuleEntry};
use bartizan_testkit::generated;
use bartizan_testkit::random::Random;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tables::{c, lower, reserved, system_verilog};

const C: &str = "ebpf/bartizan_tables.h";
const SYSTEM_VERILOG: &str = "hw/rtl/bartizan_tables_pkg.sv";

#[test]
fn the_committed_headers_are_those_of_the_description() {
    for (name, expected) in [(C, c()), (SYSTEM_VERILOG, system_verilog())] {
        generated::check(name, &expected);
    }
}

/// An entry's bytes as Rust prints them (`FlowEntry { low_address_high: 7, ... }`), and the bytes that it
/// writes from that.
fn rust(layout: &Layout, bytes: &[u8]) -> (String, Vec<u8>) {
    match layout.name {
        "flow" => {
            let entry = FlowEntry::read(bytes.try_into().unwrap());
            (format!("{entry:?}"), entry.write().to_vec())
        }
        "match" => {
            let entry = MatchEntry::read(bytes.try_into().unwrap());
            (format!("{entry:?}"), entry.write().to_vec())
        }
        "rule" => {
            let entry = RuleEntry::read(bytes.try_into().unwrap());
            (format!("{entry:?}"), entry.write().to_vec())
        }
        other => panic!("{other} is new; say here how Rust reads it"),
    }
}

/// The name of an entry's type in Rust.
fn type_name(layout: &Layout) -> String {
    rust(layout, &vec![0; layout.len]).0.split(' ').next().unwrap().to_owned()
}

/// Random entries; the first ones have all bits equal.
fn entries(layout: &Layout) -> Vec<Vec<u8>> {
    let mut random = Random::of(19, &[layout.len as u64]);
    let mut all = vec![vec![0; layout.len], vec![0xff; layout.len]];
    all.extend((0..50).map(|_| random.bytes(layout.len)));
    let used = layout.len - reserved(layout);
    all.iter_mut().for_each(|bytes| bytes[used..].fill(0));
    all
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-tables-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?}:\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A program that reads entries of each kind from standard input. It prints each by the structure and by the
/// accessors, as Rust does, then the bytes that the accessors write from it.
fn c_program(count: usize) -> String {
    let mut text = String::from(
        "#include <stdio.h>\n#include <string.h>\n#include \"bartizan_tables.h\"\nint main(void) {\n",
    );
    for layout in ENTRIES {
        let name = layout.name;
        let _ = write!(
            text,
            "for (int i = 0; i < {count}; i++) {{\n\
             unsigned char bytes[{len}], copy[{len}];\n\
             struct bartizan_{name}_entry entry;\n\
             if (fread(bytes, 1, sizeof(bytes), stdin) != sizeof(bytes)) return 1;\n\
             memcpy(&entry, bytes, sizeof(entry));\n\
             memset(copy, 0, sizeof(copy));\n",
            len = layout.len
        );
        for by_accessor in [false, true] {
            let _ = writeln!(text, "printf(\"{} {{\");", type_name(layout));
            for (index, field) in layout.fields.iter().enumerate() {
                let field = lower(field);
                let value = if by_accessor {
                    format!("bartizan_{name}_{field}(bytes)")
                } else {
                    format!("entry.{field}")
                };
                let comma = if index == 0 { "" } else { "," };
                let _ = writeln!(text, "printf(\"{comma} {field}: %llu\", (unsigned long long){value});");
            }
            text.push_str("puts(\" }\");\n");
        }
        for field in layout.fields.iter().map(lower) {
            let _ = writeln!(text, "bartizan_{name}_set_{field}(copy, bartizan_{name}_{field}(bytes));");
        }
        text.push_str(
            "for (size_t j = 0; j < sizeof(copy); j++) printf(\"%02x\", copy[j]);\nputs(\"\");\n}\n",
        );
    }
    text.push_str("return 0;\n}\n");
    text
}

#[test]
fn a_c_program_reads_and_writes_random_entries_as_rust_does() {
    let folder = folder("c");
    let (source, program) = (folder.join("main.c"), folder.join("main"));
    let count = entries(&ENTRIES[0]).len();
    std::fs::write(&source, c_program(count)).unwrap();
    let include = generated::committed(C).parent().unwrap().to_owned();
    run(Command::new("cc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).args([
        &include,
        Path::new("-o"),
        &program,
        &source,
    ]));
    let (mut input, mut expected) = (Vec::new(), String::new());
    for layout in ENTRIES {
        for bytes in entries(layout) {
            let (said, written) = rust(layout, &bytes);
            assert_eq!(written, bytes);
            let _ = writeln!(expected, "{said}\n{said}\n{}", hex(&bytes));
            input.extend(bytes);
        }
    }
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    for (found, expected) in output.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(output.lines().count(), expected.lines().count());
    std::fs::remove_dir_all(&folder).unwrap();
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A BPF compiler accepts the header, too.
#[test]
fn clang_compiles_the_header_for_bpf() {
    if !is_there("clang") {
        eprintln!("not run: clang is not installed");
        return;
    }
    let folder = folder("bpf");
    let source = folder.join("main.c");
    let text = "#include \"bartizan_tables.h\"\n\
        __u32 f(const void *flow, const void *rule) { return bartizan_flow_fid(flow) + bartizan_rule_verdict(rule); }\n";
    std::fs::write(&source, text).unwrap();
    let include = generated::committed(C).parent().unwrap().to_owned();
    let asm = Command::new("cc").arg("-print-multiarch").output().map_or(String::new(), |output| {
        format!("/usr/include/{}", String::from_utf8_lossy(&output.stdout).trim())
    });
    run(Command::new("clang")
        .args(["-target", "bpf", "-O2", "-Wall", "-Werror", "-c", "-I"])
        .arg(&include)
        .args(["-isystem", &asm, "-o"])
        .args([&folder.join("main.o"), &source]));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A module whose elaboration fails if a field of an entry differs from Rust's.
fn checks() -> String {
    let mut text = String::from("module check;\n  import bartizan_tables_pkg::*;\n");
    for layout in ENTRIES {
        let (name, bits) = (layout.name, layout.len * 8);
        let _ = writeln!(text, "  if ($bits({name}_entry_t) != {bits}) $error(\"length of {name}\");");
        for (number, bytes) in entries(layout).iter().enumerate().take(6) {
            let vector = hex(&bytes.iter().rev().copied().collect::<Vec<_>>());
            let _ = writeln!(text, "  localparam {name}_entry_t {name}_{number} = {bits}'h{vector};");
            let said = rust(layout, bytes).0;
            for field in layout.fields {
                let member = lower(field);
                let value =
                    said.split([' ', ',', '{', '}']).skip_while(|w| *w != format!("{member}:")).nth(1);
                let _ = writeln!(
                    text,
                    "  if ({name}_{number}.{member} != {}'d{}) $error(\"{member} of {name} {number}\");",
                    field.len * 8,
                    value.expect("the field")
                );
            }
        }
    }
    text.push_str("endmodule\n");
    text
}

#[test]
fn verilator_reads_entries_as_rust_does() {
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
    // It does fail where something differs.
    let wrong = checks().replacen("32'd0)", "32'd1)", 1);
    assert_ne!(wrong, checks());
    std::fs::write(&source, wrong).unwrap();
    assert!(!lint().output().unwrap().status.success());
    std::fs::remove_dir_all(&folder).unwrap();
}
