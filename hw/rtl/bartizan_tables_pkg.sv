// SPDX-License-Identifier: Apache-2.0
// Generated from crates/packet/src/tables.rs by `cargo xtask generate`: do not edit.
//
// Entries of the tables that levels below the host read. Byte n of an entry is bits [8n+7:8n] of its vector; numbers are
// little endian, so each field is a plain slice. The first member of a packed structure is its most significant one: members
// stand from the last byte to the first.
package bartizan_tables_pkg;

  // Nobody uses all of a package.
  /* verilator lint_off UNUSEDPARAM */

  // No entry is longer.
  localparam int unsigned ENTRY_MAX_BYTES = 128;

  // Verdicts.
  localparam logic [7:0] VERDICT_CONTINUE = 8'd0;
  localparam logic [7:0] VERDICT_PASS = 8'd1;
  localparam logic [7:0] VERDICT_DROP = 8'd2;
  localparam logic [7:0] VERDICT_REJECT = 8'd3;

  // Reasons.
  localparam logic [7:0] REASON_PFW_RULE = 8'd0;
  localparam logic [7:0] REASON_PFW_DEFAULT = 8'd1;
  localparam logic [7:0] REASON_SFW_NO_CONNECTION = 8'd2;
  localparam logic [7:0] REASON_SFW_STATE = 8'd3;
  localparam logic [7:0] REASON_SFW_WINDOW = 8'd4;
  localparam logic [7:0] REASON_SFW_INITIATOR = 8'd5;
  localparam logic [7:0] REASON_SFW_UNRELATED_ICMP = 8'd6;
  localparam logic [7:0] REASON_SFW_SYN_LIMIT = 8'd7;
  localparam logic [7:0] REASON_SFW_CONNECTION_LIMIT = 8'd8;
  localparam logic [7:0] REASON_IDS_RULE = 8'd9;
  localparam logic [7:0] REASON_IDS_THRESHOLD = 8'd10;
  localparam logic [7:0] REASON_IDS_FLOW = 8'd11;
  localparam logic [7:0] REASON_FIREWALL_RULE = 8'd12;
  localparam logic [7:0] REASON_FIREWALL_PACKET_POLICY = 8'd13;
  localparam logic [7:0] REASON_FIREWALL_APP_POLICY = 8'd14;
  localparam logic [7:0] REASON_FIREWALL_PRE_FLOW = 8'd15;
  localparam logic [7:0] REASON_FIREWALL_PRE_STREAM = 8'd16;
  localparam logic [7:0] REASON_FIREWALL_FLOW = 8'd17;
  localparam logic [7:0] REASON_EXCEPTION_FLOW = 8'd18;
  localparam logic [7:0] REASON_TUNNEL_INNER = 8'd19;
  localparam logic [7:0] REASON_DEFRAG = 8'd20;
  localparam logic [7:0] REASON_UNREADABLE = 8'd21;
  localparam logic [7:0] REASON_STREAM_ERROR = 8'd22;
  localparam logic [7:0] REASON_STREAM_OVERLAP = 8'd23;
  localparam logic [7:0] REASON_STREAM_MEMORY = 8'd24;
  localparam logic [7:0] REASON_STREAM_REASSEMBLY = 8'd25;
  localparam logic [7:0] REASON_STREAM_MIDSTREAM = 8'd26;
  localparam logic [7:0] REASON_FLOW_MEMORY = 8'd27;
  localparam logic [7:0] REASON_APPLAYER_ERROR = 8'd28;
  localparam logic [7:0] REASON_PROTOCOL_OPEN = 8'd29;
  localparam logic [7:0] REASON_APPLAYER_MEMORY = 8'd30;
  localparam logic [7:0] REASON_DEFRAG_MEMORY = 8'd31;
  localparam logic [7:0] REASON_POLICY_DEFAULT = 8'd32;
  localparam logic [7:0] REASON_ONE_SIDED = 8'd33;
  localparam logic [7:0] REASON_EGRESS_MTU = 8'd34;
  localparam logic [7:0] REASON_EGRESS_RING = 8'd35;
  localparam logic [7:0] REASON_HAND_OVER_RING = 8'd36;
  localparam logic [7:0] REASON_PORTSCAN = 8'd37;
  localparam logic [7:0] REASON_FUNCTION_FAILED = 8'd38;
  localparam logic [7:0] REASON_FUNCTION_STOPPED = 8'd39;
  localparam logic [7:0] REASON_HTTP2 = 8'd40;
  localparam logic [7:0] REASON_OVERLOAD = 8'd41;

  // Flags of flow entries.
  localparam logic [7:0] FLOW_FLAG_VALID = 8'h01;  // The entry holds a flow. Set last, and cleared first.
  localparam logic [7:0] FLOW_FLAG_CLIENT_IS_HIGH = 8'h02;  // The client is the higher endpoint.
  localparam logic [7:0] FLOW_FLAG_WINDOW_CHECK = 8'h04;  // The policy checks that numbers are in the window.
  localparam logic [7:0] FLOW_FLAG_BOTH_SEEN = 8'h08;  // Packets of both directions were seen.

  // Flags of match entries.
  localparam logic [7:0] MATCH_FLAG_VALID = 8'h01;  // The entry is valid. Set last, and cleared first.
  localparam logic [7:0] MATCH_FLAG_TENANT = 8'h02;  // The tenant counts.
  localparam logic [7:0] MATCH_FLAG_LINK = 8'h04;  // The link counts.
  localparam logic [7:0] MATCH_FLAG_SOURCE = 8'h08;  // The source network counts.
  localparam logic [7:0] MATCH_FLAG_DESTINATION = 8'h10;  // The destination network counts.
  localparam logic [7:0] MATCH_FLAG_PROTOCOL = 8'h20;  // The protocol counts.
  localparam logic [7:0] MATCH_FLAG_IPV6 = 8'h40;  // The networks are of IPv6.

  // Flags of rule entries.
  localparam logic [7:0] RULE_FLAG_VALID = 8'h01;  // The entry is valid. Set last, and cleared first.
  localparam logic [7:0] RULE_FLAG_EACH_ICMP = 8'h02;  // ICMP is decided packet by packet, since rules of its class test codes, which may change within a flow.
  localparam logic [7:0] RULE_FLAG_REDIRECT = 8'h04;  // Packets that pass leave by the named port `egress`, and not by the one across their link.

  // A flow. The first 56 bytes are its key, equal for both directions: the lower endpoint comes first.
  localparam int unsigned FLOW_BYTES = 128;
  typedef struct packed {
    logic [7:0] scale_to_client;          // byte 127: TCP: shift of the windows that the server offers.
    logic [7:0] scale_to_server;          // byte 126: TCP: shift of the windows that the client offers.
    logic [7:0] timeout;                  // byte 125: Which timeout holds: new, established, closed.
    logic [7:0] reason;                   // byte 124: Why, where they are dropped: number of the reason.
    logic [7:0] action;                   // byte 123: What to do with its packets: an action of the metadata.
    logic [7:0] state;                    // byte 122: TCP: state of the connection, as rows of the transitions are numbered.
    logic [7:0] flags;                    // byte 121: See the flags of flow entries.
    logic [7:0] generation;               // byte 120: Low 8 bits of the generation that decided; a packet of another one goes up.
    logic [31:0] packets_to_client;       // byte 116: Packets to the client since the host last read them.
    logic [31:0] packets_to_server;       // byte 112: Packets to the server since the host last read them, which it does before they can wrap.
    logic [63:0] bytes_to_client;         // byte 104: Bytes of frames to the client since the host last read them.
    logic [63:0] bytes_to_server;         // byte  96: Bytes of frames to the server since the host last read them.
    logic [31:0] edge_to_client;          // byte  92: TCP: right edge of the window that the server may send into.
    logic [31:0] acknowledged_to_client;  // byte  88: TCP: what of the server's is acknowledged.
    logic [31:0] next_to_client;          // byte  84: TCP: the server's next sequence number.
    logic [31:0] edge_to_server;          // byte  80: TCP: right edge of the window that the client may send into.
    logic [31:0] acknowledged_to_server;  // byte  76: TCP: what of the client's is acknowledged.
    logic [31:0] next_to_server;          // byte  72: TCP: the client's next sequence number.
    logic [63:0] last_seen;               // byte  64: When the latest packet came, in nanoseconds of the port's epoch.
    logic [31:0] path;                    // byte  60: Functions that its packets still visit, a bit each.
    logic [31:0] fid;                     // byte  56: Flow class.
    logic [31:0] vlans;                   // byte  52: The rest of the VLAN ids.
    logic [7:0] vlans_low;                // byte  51: VLAN ids, 12 bits each, the outermost lowest: their lowest 8 bits.
    logic [7:0] key_flags;                // byte  50: 1: IPv6; 2, 4: of one direction, from the lower or the higher endpoint; 8, 16: the lower one is on the link's first or second side.
    logic [7:0] ip_level;                 // byte  49: IP headers before the one that counts.
    logic [7:0] protocol;                 // byte  48: IP protocol.
    logic [15:0] link;                    // byte  46: What its packets enter by.
    logic [15:0] tenant;                  // byte  44: Whose it is.
    logic [15:0] high_port;               // byte  42: Port of the higher endpoint.
    logic [15:0] low_port;                // byte  40: Port of the lower endpoint.
    logic [63:0] tunnel;                  // byte  32: Kind and number of the innermost tunnel; 0 outside of tunnels.
    logic [63:0] high_address_low;        // byte  24: Higher address, lower half.
    logic [63:0] high_address_high;       // byte  16: Higher address, upper half.
    logic [63:0] low_address_low;         // byte   8: Lower address, lower half.
    logic [63:0] low_address_high;        // byte   0: Lower address, upper half; 0 of IPv4.
  } flow_entry_t;

  // The headers that a rule matches: one of the rule's alternatives. The first entry that matches decides.
  localparam int unsigned MATCH_BYTES = 64;
  typedef struct packed {
    logic [55:0] reserved;                // byte  57: Zero.
    logic [7:0] generation;               // byte  56: Low 8 bits of the generation.
    logic [31:0] outcome;                 // byte  52: Place of its outcome in the table of rules.
    logic [31:0] fid;                     // byte  48: Class of flows that it holds for.
    logic [7:0] flags;                    // byte  47: See the flags of match entries.
    logic [7:0] protocol;                 // byte  46: IP protocol, if that counts.
    logic [7:0] destination_length;       // byte  45: Bits of the destination network.
    logic [7:0] source_length;            // byte  44: Bits of the source network.
    logic [15:0] link;                    // byte  42: What it enters by, if that counts.
    logic [15:0] tenant;                  // byte  40: Whose it is, if that counts.
    logic [15:0] destination_last;        // byte  38: Last destination port.
    logic [15:0] destination_first;       // byte  36: First destination port; of ICMP the code.
    logic [15:0] source_last;             // byte  34: Last source port.
    logic [15:0] source_first;            // byte  32: First source port; of ICMP the type.
    logic [63:0] destination_low;         // byte  24: Destination network, lower half.
    logic [63:0] destination_high;        // byte  16: Destination network, upper half; 0 of IPv4.
    logic [63:0] source_low;              // byte   8: Source network, lower half.
    logic [63:0] source_high;             // byte   0: Source network, upper half; 0 of IPv4.
  } match_entry_t;

  // The outcome of a rule of the packet filter for the packets that it decides.
  localparam int unsigned RULE_BYTES = 16;
  typedef struct packed {
    logic [23:0] reserved;                // byte  13: Zero.
    logic [7:0] egress;                   // byte  12: Number of the named port that packets leave by, if they are redirected.
    logic [7:0] generation;               // byte  11: Low 8 bits of the generation.
    logic [7:0] flags;                    // byte  10: See the flags of rule entries.
    logic [7:0] reason;                   // byte   9: Why, where they are refused: number of the reason.
    logic [7:0] verdict;                  // byte   8: Number of the verdict: continue, drop or reject.
    logic [31:0] counter;                 // byte   4: Place of its counter: packets that it decided.
    logic [31:0] rule;                    // byte   0: Number of the rule within its policy, from 1; 0 is the default.
  } rule_entry_t;

  /* verilator lint_on UNUSEDPARAM */

endpackage
