// SPDX-License-Identifier: Apache-2.0
//! The committed headers of the packet metadata are those of its description, and a C compiler and Verilator
//! read a block as Rust does. `cargo xtask generate` writes them.

use crate::headers;

use bartizan_base::{MetadataAction, Path, PortIndex};
use bartizan_packet::metadata::{
    Extended, FIELDS, FLAGS, FUNCTION_LEN, Field, GENERIC_LEN, Generic, LEN, MetadataFlags,
};
use bartizan_testkit::generated;
use headers::{actions, c, fields_of, is_number, system_verilog};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path as File, PathBuf};
use std::process::{Command, Stdio};

const C: &str = "ebpf/bartizan_metadata.h";
const SYSTEM_VERILOG: &str = "hw/rtl/bartizan_metadata_pkg.sv";

#[test]
fn the_committed_headers_are_those_of_the_description() {
    for (name, expected) in [(C, c()), (SYSTEM_VERILOG, system_verilog())] {
        generated::check(name, &expected);
    }
}

#[test]
fn every_action_and_flag_has_a_name() {
    let expected = [(0, "TO_CPU"), (1, "TO_PORT"), (2, "DROP")].map(|(code, name)| (code, name.to_owned()));
    assert_eq!(actions(), expected);
    let all = FLAGS.iter().fold(MetadataFlags::empty(), |all, (flag, ..)| all | *flag);
    assert_eq!(all, MetadataFlags::all());
}

/// Numbers that differ in every byte, and a block that holds them.
fn sample() -> (Generic, Extended, [u8; LEN]) {
    let generic = Generic {
        fid: 0x0403_0201,
        path: Path(0x8877_6655),
        flow_hash: 0xdead_beef,
        generation: 0x9d,
        action: MetadataAction::Drop,
        ingress: PortIndex(0xf0),
        egress: PortIndex(0x0e),
        tenant: 0x1234,
        flags: MetadataFlags::PARSED | MetadataFlags::IPV6 | MetadataFlags::INVALID,
        l3: 0x0e01,
        l4: 0x3602,
        payload: 0x4a03,
        length: 0x05dc,
        timestamp_us: 0xcafe_f00d,
    };
    let mut functions = [0; FUNCTION_LEN];
    functions.iter_mut().zip(0xa0..).for_each(|(byte, value)| *byte = value);
    let extended = Extended { timestamp_ns: 0x0123_4567_89ab_cdef, functions };
    let mut block = [0; LEN];
    extended.write(&mut block);
    let mut first = [0; GENERIC_LEN];
    generic.write(&mut first);
    block[..GENERIC_LEN].copy_from_slice(&first);
    (generic, extended, block)
}

/// A field's value, as Rust reads it.
fn number(field: &Field, generic: &Generic, extended: &Extended) -> u64 {
    match field.name {
        "FID" => generic.fid.into(),
        "PATH" => generic.path.0.into(),
        "FLOW_HASH" => generic.flow_hash.into(),
        "GENERATION" => generic.generation.into(),
        "ACTION" => generic.action as u64,
        "INGRESS" => generic.ingress.0.into(),
        "EGRESS" => generic.egress.0.into(),
        "TENANT" => generic.tenant.into(),
        "FLAGS" => generic.flags.bits().into(),
        "L3" => generic.l3.into(),
        "L4" => generic.l4.into(),
        "PAYLOAD" => generic.payload.into(),
        "LENGTH" => generic.length.into(),
        "TIMESTAMP_US" => generic.timestamp_us.into(),
        "TIMESTAMP_NS" => extended.timestamp_ns,
        other => panic!("{other} is not a number; say here what Rust reads"),
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-metadata-{}-{name}", std::process::id()));
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

/// A program that reads a block from standard input and prints each field's offset, and its number by the
/// structure and by the accessor; then the block that the accessors write from these numbers.
fn c_program() -> String {
    let mut text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n#include \"{}\"\n\
         int main(void) {{\n\
         unsigned char block[BARTIZAN_METADATA_LEN], copy[BARTIZAN_METADATA_LEN];\n\
         struct bartizan_metadata_generic generic;\n\
         struct bartizan_metadata_extended extended;\n\
         if (fread(block, 1, sizeof(block), stdin) != sizeof(block)) return 1;\n\
         memset(copy, 0, sizeof(copy));\n\
         memcpy(&generic, block, sizeof(generic));\n\
         memcpy(&extended, block + BARTIZAN_METADATA_GENERIC_LEN, sizeof(extended));\n",
        File::new(C).file_name().unwrap().to_str().unwrap(),
    );
    for field in FIELDS {
        let (name, part) = (
            field.name.to_ascii_lowercase(),
            if field.offset < GENERIC_LEN { "generic" } else { "extended" },
        );
        let place = format!(
            "offsetof(struct bartizan_metadata_{part}, {name}) + {}, sizeof({part}.{name})",
            if part == "generic" { "0" } else { "BARTIZAN_METADATA_GENERIC_LEN" }
        );
        if is_number(field) {
            let _ = writeln!(
                text,
                "printf(\"{name} %zu %zu %llu %llu\\n\", {place}, (unsigned long long){part}.{name}, \
                 (unsigned long long)bartizan_metadata_{name}(block));\n\
                 bartizan_metadata_set_{name}(copy, bartizan_metadata_{name}(block));"
            );
        } else {
            let _ = writeln!(
                text,
                "printf(\"{name} %zu %zu\\n\", {place});\n\
                 memcpy(copy + BARTIZAN_METADATA_{0}_OFFSET, {part}.{name}, BARTIZAN_METADATA_{0}_LEN);",
                field.name
            );
        }
    }
    for (_, name, _) in FLAGS {
        let _ = writeln!(text, "printf(\"{name} %d\\n\", BARTIZAN_METADATA_FLAG_{name});");
    }
    for (_, name) in actions() {
        let _ = writeln!(text, "printf(\"{name} %d\\n\", BARTIZAN_METADATA_ACTION_{name});");
    }
    text.push_str(
        "for (size_t i = 0; i < sizeof(copy); i++) printf(\"%02x\", copy[i]);\nputs(\"\");\nreturn 0;\n}\n",
    );
    text
}

#[test]
fn a_c_program_reads_and_writes_a_block_as_rust_does() {
    let (generic, extended, block) = sample();
    let folder = folder("c");
    let (source, program) = (folder.join("main.c"), folder.join("main"));
    std::fs::write(&source, c_program()).unwrap();
    let include = generated::committed(C).parent().unwrap().to_owned();
    run(Command::new("cc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).args([
        &include,
        File::new("-o"),
        &program,
        &source,
    ]));
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    child.stdin.take().unwrap().write_all(&block).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut expected = String::new();
    for field in FIELDS {
        let name = field.name.to_ascii_lowercase();
        let _ = write!(expected, "{name} {} {}", field.offset, field.len);
        if is_number(field) {
            let number = number(field, &generic, &extended);
            let _ = write!(expected, " {number} {number}");
        }
        expected.push('\n');
    }
    for (flag, name, _) in FLAGS {
        let _ = writeln!(expected, "{name} {}", flag.bits());
    }
    for (code, name) in actions() {
        let _ = writeln!(expected, "{name} {code}");
    }
    for byte in block {
        let _ = write!(expected, "{byte:02x}");
    }
    expected.push('\n');
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
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
    let text = "#include \"bartizan_metadata.h\"\n\
        __u32 f(const void *block) { return bartizan_metadata_fid(block) + bartizan_metadata_l3(block); }\n";
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

/// A module whose elaboration fails if a field of the sample block differs from Rust's.
fn checks() -> String {
    let (generic, extended, block) = sample();
    let vector =
        |bytes: &[u8]| bytes.iter().rev().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let mut text = String::from("module check;\n  import bartizan_metadata_pkg::*;\n");
    let (low, high) = block.split_at(GENERIC_LEN);
    for (part, bytes) in [("generic", low), ("extended", high)] {
        let bits = bytes.len() * 8;
        let _ = writeln!(text, "  localparam {part}_t {part} = {bits}'h{};", vector(bytes));
        let _ = writeln!(text, "  if ($bits({part}_t) != {bits}) $error(\"length of {part}\");");
    }
    let mut expect = |what: &str, is: String, value: String| {
        let _ = writeln!(text, "  if ({is} != {value}) $error(\"{what}\");");
    };
    for field in FIELDS {
        let (name, bits) = (field.name.to_ascii_lowercase(), field.len * 8);
        let (part, start) =
            if field.offset < GENERIC_LEN { ("generic", 0) } else { ("extended", GENERIC_LEN) };
        let expected = if is_number(field) {
            format!("{bits}'h{:x}", number(field, &generic, &extended))
        } else {
            format!("{bits}'h{}", vector(&extended.functions))
        };
        expect(field.name, format!("{part}.{name}"), expected.clone());
        let place = format!("{part}[({}_OFFSET - {start}) * 8 +: {}_BYTES * 8]", field.name, field.name);
        expect(&format!("{} by its offset", field.name), place, expected);
    }
    for (flag, name, _) in FLAGS {
        expect(name, format!("FLAG_{name}"), format!("16'h{:04x}", flag.bits()));
    }
    for (code, name) in actions() {
        expect(&name, format!("ACTION_{name}"), format!("8'd{code}"));
    }
    text.push_str("endmodule\n");
    text
}

#[test]
fn verilator_reads_a_block_as_rust_does() {
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
    let wrong = checks().replace("32'h4030201", "32'h1020304");
    assert_ne!(wrong, checks());
    std::fs::write(&source, wrong).unwrap();
    assert!(!lint().output().unwrap().status.success());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_field_is_in_one_part() {
    let parts = fields_of(0, GENERIC_LEN).chain(fields_of(GENERIC_LEN, LEN - GENERIC_LEN));
    assert!(parts.eq(FIELDS));
}
