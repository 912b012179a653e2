// SPDX-License-Identifier: Apache-2.0
//! Writes the entries of the tables in C and SystemVerilog, from the description in `bartizan_packet::tables`
//! alone.
//!
//! Source: the description itself; IEEE 1800-2017 section 7.2.1 (the first member of a packed structure is
//! its most significant one).

use bartizan_base::{Reason, Verdict};
use bartizan_packet::layout::{Field, Layout};
use bartizan_packet::tables::{ENTRIES, ENTRY_MAX, FLOW_FLAGS, MATCH_FLAGS, RULE_FLAGS};
use std::fmt::Write as _;

/// Flags of each entry: the entry's name, then bit, name, meaning.
type Flags = [(&'static str, &'static [(u8, &'static str, &'static str)]); 3];

/// The flags of each entry.
pub const FLAGS: Flags = [("flow", FLOW_FLAGS), ("match", MATCH_FLAGS), ("rule", RULE_FLAGS)];

/// Every verdict.
pub const VERDICTS: [Verdict; 4] = [Verdict::Continue, Verdict::Pass, Verdict::Drop, Verdict::Reject];

/// The member for a field.
pub fn lower(field: &Field) -> String {
    field.name.to_ascii_lowercase()
}

/// Bytes of an entry that no field holds, all at its end.
pub fn reserved(layout: &Layout) -> usize {
    layout.len - layout.fields.iter().map(|field| field.offset + field.len).max().unwrap_or(0)
}

/// The C header, for the XDP program and for programs in user space.
pub fn c() -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: Apache-2.0\n \
         * Generated from crates/packet/src/tables.rs by `cargo xtask generate`: do not edit.\n \
         *\n \
         * Entries of the tables that levels below the host read; numbers are little endian. The structures are for programs that\n \
         * run little endian, as BPF does on such hosts; the accessors are right everywhere and need no alignment. */\n\
         #ifndef BARTIZAN_TABLES_H\n#define BARTIZAN_TABLES_H\n\n\
         #ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n\n\
         /* No entry is longer. */\n",
    );
    let _ = writeln!(out, "#define BARTIZAN_ENTRY_MAX {ENTRY_MAX}");
    out.push_str("\n/* Verdicts. */\n");
    for verdict in VERDICTS {
        let name = verdict.name().to_ascii_uppercase();
        let _ = writeln!(out, "#define BARTIZAN_VERDICT_{name} {}", verdict as u8);
    }
    out.push_str("\n/* Reasons. */\n");
    for reason in Reason::ALL {
        let name = reason.name().to_ascii_uppercase();
        let _ = writeln!(out, "#define BARTIZAN_REASON_{name} {}", *reason as u8);
    }
    for (entry, flags) in FLAGS {
        let _ = writeln!(out, "\n/* Flags of {entry} entries. */");
        for (bit, name, what) in flags {
            let entry = entry.to_ascii_uppercase();
            let _ = writeln!(out, "#define BARTIZAN_{entry}_FLAG_{name} {bit:#04x} /* {what} */");
        }
    }
    for layout in ENTRIES {
        let (name, upper) = (layout.name, layout.name.to_ascii_uppercase());
        let _ = writeln!(out, "\n/* {} */", layout.what);
        let _ = writeln!(out, "#define BARTIZAN_{upper}_LEN {}", layout.len);
        let _ = writeln!(out, "struct bartizan_{name}_entry {{");
        for field in layout.fields {
            let member = format!("__u{} {};", field.len * 8, lower(field));
            let _ = writeln!(out, "\t{member:<32}/* {:>3}: {} */", field.offset, field.what);
        }
        if reserved(layout) > 0 {
            let member = format!("__u8 reserved[{}];", reserved(layout));
            let _ = writeln!(out, "\t{member:<32}/* {:>3}: Zero. */", layout.len - reserved(layout));
        }
        out.push_str("} __attribute__((packed));\n");
    }
    out.push_str("\n/* The compiler lays the structures out as the description says. */\n");
    for layout in ENTRIES {
        let name = format!("struct bartizan_{}_entry", layout.name);
        let _ = writeln!(out, "_Static_assert(sizeof({name}) == {}, \"{}\");", layout.len, layout.name);
        for field in layout.fields {
            let place = format!("__builtin_offsetof({name}, {})", lower(field));
            let said = format!("{}.{}", layout.name, lower(field));
            let _ = writeln!(out, "_Static_assert({place} == {}, \"{said}\");", field.offset);
        }
    }
    out.push_str(
        "\n#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__\n\
         #define BARTIZAN_TABLES_LE16(x) (x)\n\
         #define BARTIZAN_TABLES_LE32(x) (x)\n\
         #define BARTIZAN_TABLES_LE64(x) (x)\n\
         #else\n\
         #define BARTIZAN_TABLES_LE16(x) __builtin_bswap16(x)\n\
         #define BARTIZAN_TABLES_LE32(x) __builtin_bswap32(x)\n\
         #define BARTIZAN_TABLES_LE64(x) __builtin_bswap64(x)\n\
         #endif\n\
         #define BARTIZAN_TABLES_LE8(x) (x)\n\n\
         /* Reads and writes a field of the entry that begins at `entry`; the caller has seen that the entry is there. */\n\
         #define BARTIZAN_TABLES_ACCESSORS(table, name, bits, offset) \\\n\
         \tstatic inline __attribute__((unused, always_inline)) __u##bits bartizan_##table##_##name(const void *entry) \\\n\
         \t{ \\\n\
         \t\t__u##bits value; \\\n\
         \t\t__builtin_memcpy(&value, (const __u8 *)entry + (offset), sizeof(value)); \\\n\
         \t\treturn BARTIZAN_TABLES_LE##bits(value); \\\n\
         \t} \\\n\
         \tstatic inline __attribute__((unused, always_inline)) void bartizan_##table##_set_##name(void *entry, __u##bits value) \\\n\
         \t{ \\\n\
         \t\tvalue = BARTIZAN_TABLES_LE##bits(value); \\\n\
         \t\t__builtin_memcpy((__u8 *)entry + (offset), &value, sizeof(value)); \\\n\
         \t}\n",
    );
    for layout in ENTRIES {
        out.push('\n');
        for field in layout.fields {
            let (name, bits, offset) = (lower(field), field.len * 8, field.offset);
            let _ = writeln!(out, "BARTIZAN_TABLES_ACCESSORS({}, {name}, {bits}, {offset})", layout.name);
        }
    }
    out.push_str("\n#endif\n");
    out
}

/// The SystemVerilog package.
pub fn system_verilog() -> String {
    let mut out = String::from(
        "// SPDX-License-Identifier: Apache-2.0\n\
         // Generated from crates/packet/src/tables.rs by `cargo xtask generate`: do not edit.\n\
         //\n\
         // Entries of the tables that levels below the host read. Byte n of an entry is bits [8n+7:8n] of its vector; numbers are\n\
         // little endian, so each field is a plain slice. The first member of a packed structure is its most significant one: members\n\
         // stand from the last byte to the first.\n\
         package bartizan_tables_pkg;\n\n  \
         // Nobody uses all of a package.\n  \
         /* verilator lint_off UNUSEDPARAM */\n\n  \
         // No entry is longer.\n",
    );
    let _ = writeln!(out, "  localparam int unsigned ENTRY_MAX_BYTES = {ENTRY_MAX};");
    out.push_str("\n  // Verdicts.\n");
    for verdict in VERDICTS {
        let name = verdict.name().to_ascii_uppercase();
        let _ = writeln!(out, "  localparam logic [7:0] VERDICT_{name} = 8'd{};", verdict as u8);
    }
    out.push_str("\n  // Reasons.\n");
    for reason in Reason::ALL {
        let name = reason.name().to_ascii_uppercase();
        let _ = writeln!(out, "  localparam logic [7:0] REASON_{name} = 8'd{};", *reason as u8);
    }
    for (entry, flags) in FLAGS {
        let _ = writeln!(out, "\n  // Flags of {entry} entries.");
        for (bit, name, what) in flags {
            let entry = entry.to_ascii_uppercase();
            let _ = writeln!(out, "  localparam logic [7:0] {entry}_FLAG_{name} = 8'h{bit:02x};  // {what}");
        }
    }
    for layout in ENTRIES {
        let (name, upper) = (layout.name, layout.name.to_ascii_uppercase());
        let _ = writeln!(out, "\n  // {}", layout.what);
        let _ = writeln!(out, "  localparam int unsigned {upper}_BYTES = {};", layout.len);
        out.push_str("  typedef struct packed {\n");
        if reserved(layout) > 0 {
            let member = format!("logic [{}:0] reserved;", reserved(layout) * 8 - 1);
            let _ = writeln!(out, "    {member:<38}// byte {:>3}: Zero.", layout.len - reserved(layout));
        }
        for field in layout.fields.iter().rev() {
            let member = format!("logic [{}:0] {};", field.len * 8 - 1, lower(field));
            let _ = writeln!(out, "    {member:<38}// byte {:>3}: {}", field.offset, field.what);
        }
        let _ = writeln!(out, "  }} {name}_entry_t;");
    }
    out.push_str("\n  /* verilator lint_on UNUSEDPARAM */\n\nendpackage\n");
    out
}
