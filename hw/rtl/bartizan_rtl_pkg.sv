// SPDX-License-Identifier: Apache-2.0
// Records that the modules of the SmartNIC hand to each other. What leaves the chip or is read by the host
// is in the generated packages: bartizan_metadata_pkg, bartizan_tables_pkg, bartizan_regs_pkg.
package bartizan_rtl_pkg;

  // Nobody uses all of a package.
  /* verilator lint_off UNUSEDPARAM */

  // Bytes of a frame in which headers are read; headers behind them are the host's.
  localparam int unsigned WINDOW_BYTES = 192;
  localparam int unsigned WINDOW_BITS = 8 * WINDOW_BYTES;

  // EtherTypes (IEEE) and IP protocols (IANA).
  localparam logic [15:0] ETHER_IPV4 = 16'h0800;
  localparam logic [15:0] ETHER_IPV6 = 16'h86dd;
  localparam logic [15:0] ETHER_VLAN = 16'h8100;
  localparam logic [15:0] ETHER_PROVIDER_BRIDGE = 16'h88a8;
  localparam logic [15:0] ETHER_QINQ = 16'h9100;
  localparam logic [7:0] PROTOCOL_TCP = 8'd6;
  localparam logic [7:0] PROTOCOL_UDP = 8'd17;

  /* verilator lint_on UNUSEDPARAM */

  // What is known of a frame beside its bytes.
  typedef struct packed {
    logic [63:0] timestamp_ns;  // Nanoseconds since 1970.
    logic [31:0] timestamp_us;  // Microseconds of the port's epoch.
    logic [7:0] ingress;        // Port it came in by.
    logic [15:0] length;        // Bytes.
  } frame_t;

  // The headers of one packet. A frame with a tunnel has two of these, the outer one first, in cycles that
  // follow each other.
  typedef struct packed {
    logic has_inner;             // An outer packet: the next record is the packet inside.
    logic inner;                 // The packet inside.
    logic parsed;                // Addresses, ports and offsets count.
    logic up;                    // The host judges this packet, for `cause`.
    logic [6:0] cause;           // A DISPOSITION of bartizan_regs_pkg.
    logic ipv6;
    logic fragment;
    logic invalid;
    logic [7:0] ingress;
    logic [15:0] l3;             // Offsets from the start of the frame, in bytes.
    logic [15:0] l4;
    logic [15:0] payload;
    logic [15:0] payload_length; // Bytes; of TCP and UDP.
    logic [1:0] vlans;           // Number of VLAN tags.
    logic [11:0] vlan_outer;
    logic [11:0] vlan_inner;
    logic [23:0] vni;            // Of the VXLAN tunnel around the packet inside.
    logic [15:0] tenant;
    logic [7:0] protocol;
    logic [127:0] source;        // IPv4 in the lowest 32 bits.
    logic [127:0] destination;
    logic [15:0] source_port;
    logic [15:0] destination_port;
    logic [7:0] tcp_flags;
    logic [31:0] sequence_number;
    logic [31:0] acknowledged;
    logic [15:0] offered;        // TCP: the window that the segment offers, as in the header.
    logic urgent;
    logic stamped;               // TCP: it has a timestamp.
    logic [31:0] timestamp;
    logic [15:0] bytes;          // What the packet counts: those of its frame, or from its IP header on.
  } headers_t;

  // What has been decided of a packet so far.
  typedef struct packed {
    logic up;                // The host judges it, for `cause`.
    logic [6:0] cause;
    logic drop;              // It is dropped, for `reason`.
    logic [5:0] reason;
    logic classified;        // Class and path are known.
    logic [31:0] fid;
    logic [31:0] path;       // Functions that it still visits.
    logic [7:0] generation;
    logic [9:0] outcome;     // Place of its rule's outcome in the packet filter's table.
    logic counted;           // The packet filter has decided it by that rule.
    logic redirect;          // It leaves by `egress`, not by the port across its link.
    logic [7:0] egress;
    logic flow;              // Its flow's entry takes part: the packet counts there if it does not go up.
    logic [13:0] flow_place;
    logic from_high;         // Sent by the higher endpoint of the entry's key.
  } decision_t;

  // What the flow cache has for a packet.
  typedef struct packed {
    logic hit;               // There is a valid entry of the present generation.
    logic from_high;
    logic [13:0] place;      // Bucket and way.
    logic [31:0] control;    // Word 15 of the entry: see flow_cache.
  } flow_t;

  // The end of a frame: what egress does with it, and what the metadata says.
  typedef struct packed {
    logic [7:0] action;       // An ACTION of bartizan_metadata_pkg.
    logic [6:0] disposition;  // What is counted.
    logic [31:0] fid;
    logic [31:0] path;
    logic [7:0] generation;
    logic [7:0] egress;
    logic [15:0] tenant;
    logic [15:0] flags;
    logic [15:0] l3;
    logic [15:0] l4;
    logic [15:0] payload;
  } verdict_t;

  // A write of the host to a table: one cycle, seen by all tables.
  typedef struct packed {
    logic valid;
    logic [23:0] address;  // Byte address.
    logic [31:0] data;
  } write_t;

endpackage
