// SPDX-License-Identifier: Apache-2.0
//! Writes the packet metadata's layout in C and SystemVerilog, from the tables of `bartizan_packet::metadata`
//! alone.
//!
//! Source: the description itself; IEEE 1800-2017 section 7.2.1 (the first member of a packed structure is
//! its most significant one).

use bartizan_base::MetadataAction;
use bartizan_packet::metadata::{EXTENDED_LEN, FIELDS, FLAGS, Field, GENERIC_LEN, Generic, LEN};
use std::fmt::Write as _;

/// Both parts by their names.
const PARTS: [(&str, usize, usize); 2] =
    [("generic", 0, GENERIC_LEN), ("extended", GENERIC_LEN, EXTENDED_LEN)];

/// The fields of a part from an offset on, with so many bytes.
pub fn fields_of(start: usize, len: usize) -> impl DoubleEndedIterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| (start..start + len).contains(&field.offset))
}

/// Every action with its code.
pub fn actions() -> Vec<(u8, String)> {
    let read = |code: u8| {
        let mut block = [0; GENERIC_LEN];
        let place = FIELDS.iter().find(|field| field.name == "ACTION").expect("the field").offset;
        block[place] = code;
        Generic::read(&block).map(|read| read.action)
    };
    (0..=u8::MAX).filter_map(|code| Some((code, name_of(read(code)?)))).collect()
}

/// `ToCpu` as `TO_CPU`.
fn name_of(action: MetadataAction) -> String {
    let mut name = String::new();
    for letter in format!("{action:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn lower(field: &Field) -> String {
    field.name.to_ascii_lowercase()
}

/// The C header, for the XDP program and for programs in user space.
pub fn c() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: Apache-2.0\n \
         * Generated from crates/packet/src/metadata.rs by `cargo xtask generate`: do not edit.\n \
         *\n \
         * The metadata block before a packet: 32 generic bytes and, where there is room, 32 extended ones; numbers are little\n \
         * endian. The structures are for programs that run little endian, as BPF does on such hosts; the accessors are right\n \
         * everywhere and need no alignment. */\n\
         #ifndef BARTIZAN_METADATA_H\n#define BARTIZAN_METADATA_H\n\n\
         #ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n\n",
    );
    for (name, value) in [("GENERIC_LEN", GENERIC_LEN), ("EXTENDED_LEN", EXTENDED_LEN), ("LEN", LEN)] {
        let _ = writeln!(out, "#define BARTIZAN_METADATA_{name} {value}");
    }
    out.push_str("\n/* Fields: first byte, from the start of the block, and length in bytes. */\n");
    for field in FIELDS {
        let _ = writeln!(out, "#define BARTIZAN_METADATA_{}_OFFSET {}", field.name, field.offset);
        let _ = writeln!(out, "#define BARTIZAN_METADATA_{}_LEN {}", field.name, field.len);
    }
    out.push_str("\n/* Actions. */\n");
    for (code, name) in actions() {
        let _ = writeln!(out, "#define BARTIZAN_METADATA_ACTION_{name} {code}");
    }
    out.push_str("\n/* Flags. */\n");
    for (flag, name, what) in FLAGS {
        let _ = writeln!(out, "#define BARTIZAN_METADATA_FLAG_{name} {:#06x} /* {what} */", flag.bits());
    }
    for (part, start, len) in PARTS {
        let _ = writeln!(out, "\n/* The {part} part; bytes {start} to {}. */", start + len - 1);
        let _ = writeln!(out, "struct bartizan_metadata_{part} {{");
        for field in fields_of(start, len) {
            let member = match field.len {
                1 | 2 | 4 | 8 => format!("__u{} {};", field.len * 8, lower(field)),
                bytes => format!("__u8 {}[{bytes}];", lower(field)),
            };
            let _ = writeln!(out, "\t{member:<24}/* {:>2}: {} */", field.offset, field.what);
        }
        out.push_str("} __attribute__((packed));\n");
    }
    out.push_str("\n/* The compiler lays the structures out as the offsets say. */\n");
    for (part, start, len) in PARTS {
        let name = format!("struct bartizan_metadata_{part}");
        let said = format!("length of the {part} part");
        let _ = writeln!(out, "_Static_assert(sizeof({name}) == {len}, \"{said}\");");
        for field in fields_of(start, len) {
            let place = format!("__builtin_offsetof({name}, {})", lower(field));
            let _ =
                writeln!(out, "_Static_assert({place} == {}, \"{}\");", field.offset - start, lower(field));
        }
    }
    out.push_str(
        "\n#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__\n\
         #define BARTIZAN_METADATA_LE16(x) (x)\n\
         #define BARTIZAN_METADATA_LE32(x) (x)\n\
         #define BARTIZAN_METADATA_LE64(x) (x)\n\
         #else\n\
         #define BARTIZAN_METADATA_LE16(x) __builtin_bswap16(x)\n\
         #define BARTIZAN_METADATA_LE32(x) __builtin_bswap32(x)\n\
         #define BARTIZAN_METADATA_LE64(x) __builtin_bswap64(x)\n\
         #endif\n\
         #define BARTIZAN_METADATA_LE8(x) (x)\n\n\
         /* Reads and writes a field of the block that begins at `block`; the caller has seen that the block is there. */\n\
         #define BARTIZAN_METADATA_ACCESSORS(name, bits, offset) \\\n\
         \tstatic inline __attribute__((unused, always_inline)) __u##bits bartizan_metadata_##name(const void *block) \\\n\
         \t{ \\\n\
         \t\t__u##bits value; \\\n\
         \t\t__builtin_memcpy(&value, (const __u8 *)block + (offset), sizeof(value)); \\\n\
         \t\treturn BARTIZAN_METADATA_LE##bits(value); \\\n\
         \t} \\\n\
         \tstatic inline __attribute__((unused, always_inline)) void bartizan_metadata_set_##name(void *block, __u##bits value) \\\n\
         \t{ \\\n\
         \t\tvalue = BARTIZAN_METADATA_LE##bits(value); \\\n\
         \t\t__builtin_memcpy((__u8 *)block + (offset), &value, sizeof(value)); \\\n\
         \t}\n\n",
    );
    for field in FIELDS.iter().filter(|field| is_number(field)) {
        let _ = writeln!(
            out,
            "BARTIZAN_METADATA_ACCESSORS({}, {}, BARTIZAN_METADATA_{}_OFFSET)",
            lower(field),
            field.len * 8,
            field.name
        );
    }
    out.push_str("\n#endif\n");
    out
}

/// Whether a field is a number, with accessors.
pub fn is_number(field: &Field) -> bool {
    matches!(field.len, 1 | 2 | 4 | 8)
}

/// The SystemVerilog package.
pub fn system_verilog() -> String {
    let mut out = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n\
         // Generated from crates/packet/src/metadata.rs by `cargo xtask generate`: do not edit.\n\
         //\n\
         // The metadata block before a packet: 32 generic bytes and, where there is room, 32 extended ones. Byte n of a part is\n\
         // bits [8n+7:8n] of its vector, as on a byte-wide lane of AXI4-Stream; numbers are little endian, so each field is a plain\n\
         // slice. The first member of a packed structure is its most significant one: members stand from the last byte to\n\
         // the first.\n\
         package bartizan_metadata_pkg;\n\n  \
         // Nobody uses all of a package.\n  \
         /* verilator lint_off UNUSEDPARAM */\n\n",
    );
    for (name, value) in [("GENERIC_BYTES", GENERIC_LEN), ("EXTENDED_BYTES", EXTENDED_LEN), ("BYTES", LEN)] {
        let _ = writeln!(out, "  localparam int unsigned {name} = {value};");
    }
    out.push_str("\n  // Fields: first byte, from the start of the block, and length in bytes.\n");
    for field in FIELDS {
        let _ = writeln!(out, "  localparam int unsigned {}_OFFSET = {};", field.name, field.offset);
        let _ = writeln!(out, "  localparam int unsigned {}_BYTES = {};", field.name, field.len);
    }
    out.push_str("\n  // Actions; a block with another one is handed up to the host.\n");
    for (code, name) in actions() {
        let _ = writeln!(out, "  localparam logic [7:0] ACTION_{name} = 8'd{code};");
    }
    out.push_str("\n  // Flags.\n");
    for (flag, name, what) in FLAGS {
        let _ = writeln!(out, "  localparam logic [15:0] FLAG_{name} = 16'h{:04x};  // {what}", flag.bits());
    }
    for (part, start, len) in PARTS {
        out.push_str("\n  typedef struct packed {\n");
        for field in fields_of(start, len).rev() {
            let member = format!("logic [{}:0] {};", field.len * 8 - 1, lower(field));
            let _ = writeln!(out, "    {member:<28}// byte {:>2}: {}", field.offset, field.what);
        }
        let _ = writeln!(out, "  }} {part}_t;");
    }
    out.push_str("\n  /* verilator lint_on UNUSEDPARAM */\n\nendpackage\n");
    out
}
