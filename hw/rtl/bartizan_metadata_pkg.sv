// SPDX-License-Identifier: Apache-2.0
// Generated from crates/packet/src/metadata.rs by `cargo xtask generate`: do not edit.
//
// The metadata block before a packet: 32 generic bytes and, where there is room, 32 extended ones. Byte n of a part is
// bits [8n+7:8n] of its vector, as on a byte-wide lane of AXI4-Stream; numbers are little endian, so each field is a plain
// slice. The first member of a packed structure is its most significant one: members stand from the last byte to
// the first.
package bartizan_metadata_pkg;

  // Nobody uses all of a package.
  /* verilator lint_off UNUSEDPARAM */

  localparam int unsigned GENERIC_BYTES = 32;
  localparam int unsigned EXTENDED_BYTES = 32;
  localparam int unsigned BYTES = 64;

  // Fields: first byte, from the start of the block, and length in bytes.
  localparam int unsigned FID_OFFSET = 0;
  localparam int unsigned FID_BYTES = 4;
  localparam int unsigned PATH_OFFSET = 4;
  localparam int unsigned PATH_BYTES = 4;
  localparam int unsigned FLOW_HASH_OFFSET = 8;
  localparam int unsigned FLOW_HASH_BYTES = 4;
  localparam int unsigned GENERATION_OFFSET = 12;
  localparam int unsigned GENERATION_BYTES = 1;
  localparam int unsigned ACTION_OFFSET = 13;
  localparam int unsigned ACTION_BYTES = 1;
  localparam int unsigned INGRESS_OFFSET = 14;
  localparam int unsigned INGRESS_BYTES = 1;
  localparam int unsigned EGRESS_OFFSET = 15;
  localparam int unsigned EGRESS_BYTES = 1;
  localparam int unsigned TENANT_OFFSET = 16;
  localparam int unsigned TENANT_BYTES = 2;
  localparam int unsigned FLAGS_OFFSET = 18;
  localparam int unsigned FLAGS_BYTES = 2;
  localparam int unsigned L3_OFFSET = 20;
  localparam int unsigned L3_BYTES = 2;
  localparam int unsigned L4_OFFSET = 22;
  localparam int unsigned L4_BYTES = 2;
  localparam int unsigned PAYLOAD_OFFSET = 24;
  localparam int unsigned PAYLOAD_BYTES = 2;
  localparam int unsigned LENGTH_OFFSET = 26;
  localparam int unsigned LENGTH_BYTES = 2;
  localparam int unsigned TIMESTAMP_US_OFFSET = 28;
  localparam int unsigned TIMESTAMP_US_BYTES = 4;
  localparam int unsigned TIMESTAMP_NS_OFFSET = 32;
  localparam int unsigned TIMESTAMP_NS_BYTES = 8;
  localparam int unsigned FUNCTIONS_OFFSET = 40;
  localparam int unsigned FUNCTIONS_BYTES = 24;

  // Actions; a block with another one is handed up to the host.
  localparam logic [7:0] ACTION_TO_CPU = 8'd0;
  localparam logic [7:0] ACTION_TO_PORT = 8'd1;
  localparam logic [7:0] ACTION_DROP = 8'd2;

  // Flags.
  localparam logic [15:0] FLAG_PARSED = 16'h0001;  // Headers are parsed: the offsets count.
  localparam logic [15:0] FLAG_CLASSIFIED = 16'h0002;  // Flow class and path are known.
  localparam logic [15:0] FLAG_HEADER_HALVES_DONE = 16'h0004;  // Header halves on the path have run.
  localparam logic [15:0] FLAG_EXTENDED = 16'h0008;  // The extended part is present.
  localparam logic [15:0] FLAG_IPV6 = 16'h0010;  // IP version 6.
  localparam logic [15:0] FLAG_FRAGMENT = 16'h0020;  // A fragment.
  localparam logic [15:0] FLAG_CHECKSUM_OK = 16'h0040;  // The transport checksum was found right.
  localparam logic [15:0] FLAG_INVALID = 16'h0080;  // A header is broken.

  typedef struct packed {
    logic [31:0] timestamp_us;  // byte 28: Microseconds of the port's epoch.
    logic [15:0] length;        // byte 26: Length of the frame.
    logic [15:0] payload;       // byte 24: Offset of the payload.
    logic [15:0] l4;            // byte 22: Offset of the transport header.
    logic [15:0] l3;            // byte 20: Offset of the network header, from the start of the frame.
    logic [15:0] flags;         // byte 18: What has been done with it.
    logic [15:0] tenant;        // byte 16: Whose it is.
    logic [7:0] egress;         // byte 15: Port it leaves by.
    logic [7:0] ingress;        // byte 14: Port it came in by.
    logic [7:0] action;         // byte 13: What to do with the packet.
    logic [7:0] generation;     // byte 12: Low 8 bits of the generation.
    logic [31:0] flow_hash;     // byte  8: Keyed hash of the flow.
    logic [31:0] path;          // byte  4: Functions that the packet still visits, a bit each.
    logic [31:0] fid;           // byte  0: Flow class.
  } generic_t;

  typedef struct packed {
    logic [191:0] functions;    // byte 40: Left by functions for those after them.
    logic [63:0] timestamp_ns;  // byte 32: Nanoseconds since 1970-01-01T00:00:00Z.
  } extended_t;

  /* verilator lint_on UNUSEDPARAM */

endpackage
