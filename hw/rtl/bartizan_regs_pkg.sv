// SPDX-License-Identifier: Apache-2.0
// Generated from crates/rtl/src/registers.rs by `cargo xtask generate`: do not edit.
//
// The registers of the device, by byte address, and the dispositions of frames.
package bartizan_regs_pkg;

  // Nobody uses all of a package.
  /* verilator lint_off UNUSEDPARAM */

  // Constant by which the device is recognised.
  localparam logic [23:0] ID = 24'h000000;
  // Version of this map.
  localparam logic [23:0] VERSION = 24'h000004;
  // Bytes of a beat (7:0), bits of a stride (15:8), entries of the classifier (31:16).
  localparam logic [23:0] CAPABILITY = 24'h000008;
  // Whether IPv6 is read (0), entries of the tenant table (15:8).
  localparam logic [23:0] CAPABILITY_MORE = 24'h00000c;
  // Enabled (0): while it is not, every frame goes up. Software reset (1): set to begin one, set while it lasts.
  localparam logic [23:0] CONTROL = 24'h000010;
  // Frames inside (15:0), counters are being cleared (31).
  localparam logic [23:0] STATUS = 24'h000014;
  // Low 8 bits of the generation; entries of another one send packets up.
  localparam logic [23:0] GENERATION = 24'h000018;
  // UDP destination port of VXLAN; 0: none.
  localparam logic [23:0] VXLAN_PORT = 24'h00001c;
  // UDP ports of tunnels that the device does not read, two of them; 0: none.
  localparam logic [23:0] TUNNEL_PORTS_LOW = 24'h000020;
  // Two more.
  localparam logic [23:0] TUNNEL_PORTS_HIGH = 24'h000024;
  // Numbers in paths of the packet filter (4:0) and the stateful firewall (12:8).
  localparam logic [23:0] FUNCTION_BITS = 24'h000028;
  // Fields of the flow cache's keys: the side of the link (0), VLAN ids (1).
  localparam logic [23:0] FLOW_KEYS = 24'h00002c;
  // Frames that have begun, low word; reading it keeps the high one.
  localparam logic [23:0] FRAMES_LOW = 24'h000030;
  // The high word that belongs to the low one.
  localparam logic [23:0] FRAMES_HIGH = 24'h000034;
  // Entries of the flow cache (15:0), entries of a bucket (23:16).
  localparam logic [23:0] CAPABILITY_FLOWS = 24'h000038;
  // Frames by disposition, 8 bytes each.
  localparam logic [23:0] COUNT_BASE = 24'h010000;
  // Classifier: class, path, generation (17:10) with place of the outcome (9:0); 16 bytes each.
  localparam logic [23:0] ENTRY_BASE = 24'h020000;
  // Packet filter: rule entries, 16 bytes each; word 3 first, word 2 puts both in place.
  localparam logic [23:0] OUTCOME_BASE = 24'h030000;
  // Packets by outcome, 8 bytes each.
  localparam logic [23:0] RULE_COUNT_BASE = 24'h040000;
  // Tenant table, 16 bytes an entry; written while the device is not enabled.
  localparam logic [23:0] TENANT_BASE = 24'h050000;
  // Flags of the classifier's entries, 32 a word.
  localparam logic [23:0] VALID_BASE = 24'h060000;
  // Entries of the flow cache that a packet counted for, 32 a word; reading a word clears it.
  localparam logic [23:0] FLOW_TOUCHED_BASE = 24'h070000;
  // Flow cache: numbers that a command writes or has read. Lower endpoint: sent, timestamp, acknowledged, edge; the higher one's; state (3:0), progress noted (5:4), scales of the lower (11:8) and the higher (15:12) endpoint, timestamps in use (16).
  localparam logic [23:0] FLOW_NUMBERS = 24'h080000;
  // Flow cache: counts that a command has read. Lower endpoint: packets, bytes, time, two words each; the higher one's.
  localparam logic [23:0] FLOW_COUNTS = 24'h080040;
  // Flow cache: command (31:28: 1 load, 2 publish, 3 read) for an entry (13:0); the write is answered when it is done.
  localparam logic [23:0] FLOW_COMMAND = 24'h080080;
  // Flow cache: entries of 64 bytes, by bucket and place in it; word 15 is the control word.
  localparam logic [23:0] FLOW_BASE = 24'h100000;
  // Flow cache: tables of the hash, by place in the key (13:7) and value (6:2).
  localparam logic [23:0] FLOW_HASH_BASE = 24'h200000;
  // Classifier: rows, by stride (22:16), value (15:7) and word (6:2).
  localparam logic [23:0] ROW_BASE = 24'h800000;

  localparam logic [31:0] ID_VALUE = 32'h425a5254;
  localparam logic [31:0] VERSION_VALUE = 32'd2;

  // Bounds of the rule for segments (crates/packet/src/slots.rs).
  localparam logic [31:0] FLIGHT_MAX = 32'd16777216;
  localparam logic [31:0] TIMESTAMP_FAR_AHEAD = 32'd536870912;

  // Ends of frames, by the numbers of their counters.
  // It left by a port.
  localparam logic [6:0] DISPOSITION_TO_PORT = 7'd0;
  // It is longer than the device holds, and was lost.
  localparam logic [6:0] DISPOSITION_LOST_OVERSIZE = 7'd1;
  // It was inside when the device was reset, and was lost.
  localparam logic [6:0] DISPOSITION_LOST_RESET = 7'd2;
  // The device is not enabled.
  localparam logic [6:0] DISPOSITION_UP_DISABLED = 7'd3;
  // It is too short for an IPv4 header.
  localparam logic [6:0] DISPOSITION_UP_SHORT = 7'd4;
  // It has more than two VLAN tags.
  localparam logic [6:0] DISPOSITION_UP_VLAN = 7'd5;
  // It is no IP packet, or of a version that the device does not read.
  localparam logic [6:0] DISPOSITION_UP_ETHER_TYPE = 7'd6;
  // The lengths or the version of its IP header are wrong.
  localparam logic [6:0] DISPOSITION_UP_IP_BROKEN = 7'd7;
  // It is a fragment.
  localparam logic [6:0] DISPOSITION_UP_FRAGMENT = 7'd8;
  // It is neither TCP nor UDP, or has extension headers.
  localparam logic [6:0] DISPOSITION_UP_PROTOCOL = 7'd9;
  // The lengths of its TCP or UDP header are wrong.
  localparam logic [6:0] DISPOSITION_UP_TRANSPORT_BROKEN = 7'd10;
  // It may carry a packet that the device does not read.
  localparam logic [6:0] DISPOSITION_UP_TUNNEL = 7'd11;
  // It has IPv4 options.
  localparam logic [6:0] DISPOSITION_UP_IP_OPTIONS = 7'd12;
  // It has TCP options other than a timestamp.
  localparam logic [6:0] DISPOSITION_UP_TCP_OPTIONS = 7'd13;
  // No entry matches.
  localparam logic [6:0] DISPOSITION_UP_NO_ENTRY = 7'd14;
  // The entry is of another generation.
  localparam logic [6:0] DISPOSITION_UP_GENERATION = 7'd15;
  // The outcome of its rule is not valid, or of another generation.
  localparam logic [6:0] DISPOSITION_UP_OUTCOME = 7'd16;
  // Its sender is told that it is refused.
  localparam logic [6:0] DISPOSITION_UP_REJECT = 7'd17;
  // A rule sends a packet in a tunnel to another port.
  localparam logic [6:0] DISPOSITION_UP_REDIRECT = 7'd18;
  // Functions without a half on the device are left on its path.
  localparam logic [6:0] DISPOSITION_UP_PATH = 7'd19;
  // A packet of a tunnel is refused.
  localparam logic [6:0] DISPOSITION_UP_TUNNEL_REFUSED = 7'd20;
  // Its flow's entry leaves it to the host: a segment that does not plainly go on, or the other direction.
  localparam logic [6:0] DISPOSITION_UP_FLOW = 7'd21;
  // It was refused; the number of the reason is added.
  localparam logic [6:0] DISPOSITION_DROP = 7'd64;

  /* verilator lint_on UNUSEDPARAM */

endpackage
