// SPDX-License-Identifier: Apache-2.0
// Generated from crates/functions/src/sfw_table.rs and sfw_messages.rs by `cargo xtask generate`: do not edit.
//
// What the stateful firewall decides, by state and class of a segment. What a class is and how it is found:
// docs/design/0014-header-halves.md. Reasons are those of bartizan_tables_pkg.
package bartizan_sfw_pkg;

  // Nobody uses all of a package.
  /* verilator lint_off UNUSEDPARAM */

  // In place of a number: there is none. A state after a segment that is none is the host's matter:
         // the packet goes up.
  localparam logic [7:0] NONE = 8'd255;

  // States of a connection: rows.
  localparam logic [3:0] STATE_NONE = 4'd0;
  localparam logic [3:0] STATE_SYN_SENT = 4'd1;
  localparam logic [3:0] STATE_SYN_RECV = 4'd2;
  localparam logic [3:0] STATE_ESTABLISHED = 4'd3;
  localparam logic [3:0] STATE_FIN_WAIT1 = 4'd4;
  localparam logic [3:0] STATE_FIN_WAIT2 = 4'd5;
  localparam logic [3:0] STATE_TIME_WAIT = 4'd6;
  localparam logic [3:0] STATE_LAST_ACK = 4'd7;
  localparam logic [3:0] STATE_CLOSE_WAIT = 4'd8;
  localparam logic [3:0] STATE_CLOSING = 4'd9;
  localparam logic [3:0] STATE_CLOSED = 4'd10;

  // What a segment is by its flags.
  localparam logic [2:0] KIND_BROKEN = 3'd0;
  localparam logic [2:0] KIND_SYN = 3'd1;
  localparam logic [2:0] KIND_SYN_ACK = 3'd2;
  localparam logic [2:0] KIND_RST = 3'd3;
  localparam logic [2:0] KIND_ACK = 3'd4;
  localparam logic [2:0] KIND_FIN = 3'd5;

  // How a segment that is taken lies in the state before it.
  localparam logic [1:0] PLACE_UNCHANGED = 2'd0;
  localparam logic [1:0] PLACE_EXPECTED = 2'd1;
  localparam logic [1:0] PLACE_MOVES = 2'd2;

  // Classes of segments that a check has decided.
  localparam logic [5:0] CLASS_BROKEN = 6'd0;
  localparam logic [5:0] CLASS_UNREAD = 6'd1;
  localparam logic [5:0] CLASS_NO_CONNECTION = 6'd2;
  localparam logic [5:0] CLASS_ONE_SIDED = 6'd3;
  localparam logic [5:0] CLASS_OUT_OF_WINDOW = 6'd4;
  localparam logic [5:0] CLASS_UNCHECKED = 6'd5;
  localparam logic [5:0] CLASS_REFUSED = 6'd6;
  localparam logic [5:0] CLASS_INJECTED = 6'd7;

  // What becomes of a packet.
  localparam logic [7:0] ACTION_ADMIT = 8'd0;
  localparam logic [7:0] ACTION_SKIP = 8'd1;
  localparam logic [7:0] ACTION_REFUSE = 8'd2;

  // Which timeout a flow has.
  localparam logic [7:0] TIMEOUT_NEW = 8'd0;
  localparam logic [7:0] TIMEOUT_ESTABLISHED = 8'd1;
  localparam logic [7:0] TIMEOUT_CLOSED = 8'd2;

  // What a connection counts for its source.
  localparam logic [7:0] SHARE_HALF_OPEN = 8'd0;
  localparam logic [7:0] SHARE_OPEN = 8'd1;
  localparam logic [7:0] SHARE_NOTHING = 8'd2;

  // What is known of the flow of a packet that is no segment: rows.
  localparam logic [1:0] KNOWN_NO_FLOW = 2'd0;
  localparam logic [1:0] KNOWN_NEW = 2'd1;
  localparam logic [1:0] KNOWN_ADMITTED = 2'd2;

  // What such a packet is: columns.
  localparam logic [2:0] MESSAGE_UNTRACKED = 3'd0;
  localparam logic [2:0] MESSAGE_PLAIN = 3'd1;
  localparam logic [2:0] MESSAGE_QUESTION = 3'd2;
  localparam logic [2:0] MESSAGE_ANSWER = 3'd3;
  localparam logic [2:0] MESSAGE_ANSWER_OF_ASKER = 3'd4;
  localparam logic [2:0] MESSAGE_ERROR = 3'd5;
  localparam logic [2:0] MESSAGE_STRAY_ERROR = 3'd6;
  localparam logic [2:0] MESSAGE_NEIGHBOUR = 3'd7;

  // What a type of ICMP is.
  localparam logic [7:0] ICMP_QUESTION = 8'd0;
  localparam logic [7:0] ICMP_ANSWER = 8'd1;
  localparam logic [7:0] ICMP_ERROR = 8'd2;
  localparam logic [7:0] ICMP_NEIGHBOUR = 8'd3;

  typedef struct packed {
    logic [7:0] timeout;  // That of `next`.
    logic [7:0] reason;
    logic [7:0] action;
    logic [7:0] next;     // State after it.
  } cell_t;

  // What a segment is, by the flags of its header.
  function automatic logic [2:0] kind_of(input logic ack, input logic rst, input logic syn, input logic fin);
    unique case ({ack, rst, syn, fin})
      4'd2: kind_of = KIND_SYN;
      4'd4: kind_of = KIND_RST;
      4'd8: kind_of = KIND_ACK;
      4'd9: kind_of = KIND_FIN;
      4'd10: kind_of = KIND_SYN_ACK;
      4'd12: kind_of = KIND_RST;
      default: kind_of = KIND_BROKEN;
    endcase
  endfunction

  // The class of a segment that is taken.
  function automatic logic [5:0] class_of(input logic [2:0] kind, input logic [1:0] place, input logic to_client);
    class_of = {kind, place, to_client};
  endfunction

  // The cell for a state and a class; numbers that no segment has let nothing through.
  function automatic cell_t transition(input logic [3:0] state, input logic [5:0] class_number);
    unique case ({state, class_number})
      {4'd0, 6'd1}: transition = 32'hffff00ff;
      {4'd0, 6'd2}: transition = 32'hff0202ff;
      {4'd0, 6'd3}: transition = 32'hffff01ff;
      {4'd0, 6'd4}: transition = 32'hff0402ff;
      {4'd0, 6'd5}: transition = 32'hffff00ff;
      {4'd0, 6'd8}: transition = 32'h00ff0000;
      {4'd0, 6'd9}: transition = 32'h00ff0000;
      {4'd0, 6'd10}: transition = 32'h00ff0000;
      {4'd0, 6'd11}: transition = 32'h00ff0000;
      {4'd0, 6'd12}: transition = 32'h00ff0001;
      {4'd0, 6'd13}: transition = 32'h00ff0001;
      {4'd0, 6'd16}: transition = 32'h00ff0000;
      {4'd0, 6'd17}: transition = 32'h00ff0000;
      {4'd0, 6'd18}: transition = 32'h00ff0000;
      {4'd0, 6'd19}: transition = 32'h00ff0000;
      {4'd0, 6'd20}: transition = 32'h00ff0002;
      {4'd0, 6'd21}: transition = 32'h00ff0002;
      {4'd0, 6'd24}: transition = 32'h00ff0000;
      {4'd0, 6'd25}: transition = 32'h00ff0000;
      {4'd0, 6'd26}: transition = 32'h00ff0000;
      {4'd0, 6'd27}: transition = 32'h00ff0000;
      {4'd0, 6'd28}: transition = 32'hffff00ff;
      {4'd0, 6'd29}: transition = 32'hffff00ff;
      {4'd0, 6'd32}: transition = 32'h00ff0000;
      {4'd0, 6'd33}: transition = 32'h00ff0000;
      {4'd0, 6'd34}: transition = 32'h00ff0000;
      {4'd0, 6'd35}: transition = 32'h00ff0000;
      {4'd0, 6'd36}: transition = 32'h01ff0003;
      {4'd0, 6'd37}: transition = 32'h01ff0003;
      {4'd0, 6'd40}: transition = 32'h00ff0000;
      {4'd0, 6'd41}: transition = 32'h00ff0000;
      {4'd0, 6'd42}: transition = 32'h00ff0000;
      {4'd0, 6'd43}: transition = 32'h00ff0000;
      {4'd0, 6'd44}: transition = 32'h01ff0004;
      {4'd0, 6'd45}: transition = 32'h01ff0004;
      {4'd1, 6'd1}: transition = 32'hffff00ff;
      {4'd1, 6'd2}: transition = 32'hff0202ff;
      {4'd1, 6'd3}: transition = 32'hffff01ff;
      {4'd1, 6'd4}: transition = 32'hff0402ff;
      {4'd1, 6'd5}: transition = 32'hffff00ff;
      {4'd1, 6'd8}: transition = 32'h00ff0001;
      {4'd1, 6'd9}: transition = 32'h00ff0001;
      {4'd1, 6'd10}: transition = 32'h00ff0001;
      {4'd1, 6'd11}: transition = 32'h00ff0001;
      {4'd1, 6'd12}: transition = 32'hffff00ff;
      {4'd1, 6'd13}: transition = 32'hffff00ff;
      {4'd1, 6'd16}: transition = 32'h00ff0001;
      {4'd1, 6'd17}: transition = 32'h00ff0001;
      {4'd1, 6'd18}: transition = 32'h00ff0001;
      {4'd1, 6'd19}: transition = 32'h00ff0001;
      {4'd1, 6'd20}: transition = 32'hffff00ff;
      {4'd1, 6'd21}: transition = 32'h00ff0002;
      {4'd1, 6'd24}: transition = 32'h00ff0001;
      {4'd1, 6'd25}: transition = 32'h00ff0001;
      {4'd1, 6'd26}: transition = 32'h00ff0001;
      {4'd1, 6'd27}: transition = 32'h00ff0001;
      {4'd1, 6'd28}: transition = 32'hffff00ff;
      {4'd1, 6'd29}: transition = 32'h02ff000a;
      {4'd1, 6'd32}: transition = 32'h00030201;
      {4'd1, 6'd33}: transition = 32'h00030201;
      {4'd1, 6'd34}: transition = 32'h00ff0001;
      {4'd1, 6'd35}: transition = 32'h00ff0001;
      {4'd1, 6'd36}: transition = 32'h01ff0003;
      {4'd1, 6'd37}: transition = 32'h01ff0003;
      {4'd1, 6'd40}: transition = 32'h00030201;
      {4'd1, 6'd41}: transition = 32'h00030201;
      {4'd1, 6'd42}: transition = 32'h00ff0001;
      {4'd1, 6'd43}: transition = 32'h00ff0001;
      {4'd1, 6'd44}: transition = 32'hffff00ff;
      {4'd1, 6'd45}: transition = 32'hffff00ff;
      {4'd2, 6'd1}: transition = 32'hffff00ff;
      {4'd2, 6'd2}: transition = 32'hff0202ff;
      {4'd2, 6'd3}: transition = 32'hffff01ff;
      {4'd2, 6'd4}: transition = 32'hff0402ff;
      {4'd2, 6'd5}: transition = 32'hffff00ff;
      {4'd2, 6'd8}: transition = 32'h00ff0002;
      {4'd2, 6'd9}: transition = 32'h00ff0002;
      {4'd2, 6'd10}: transition = 32'h00ff0002;
      {4'd2, 6'd11}: transition = 32'h00ff0002;
      {4'd2, 6'd12}: transition = 32'hffff00ff;
      {4'd2, 6'd13}: transition = 32'hffff00ff;
      {4'd2, 6'd16}: transition = 32'h00ff0002;
      {4'd2, 6'd17}: transition = 32'h00ff0002;
      {4'd2, 6'd18}: transition = 32'h00ff0002;
      {4'd2, 6'd19}: transition = 32'h00ff0002;
      {4'd2, 6'd20}: transition = 32'hffff00ff;
      {4'd2, 6'd21}: transition = 32'hffff00ff;
      {4'd2, 6'd24}: transition = 32'h00ff0002;
      {4'd2, 6'd25}: transition = 32'h00ff0002;
      {4'd2, 6'd26}: transition = 32'h00ff0002;
      {4'd2, 6'd27}: transition = 32'h00ff0002;
      {4'd2, 6'd28}: transition = 32'h02ff000a;
      {4'd2, 6'd29}: transition = 32'h02ff000a;
      {4'd2, 6'd32}: transition = 32'h00ff0002;
      {4'd2, 6'd33}: transition = 32'h00ff0002;
      {4'd2, 6'd34}: transition = 32'h00ff0002;
      {4'd2, 6'd35}: transition = 32'h00ff0002;
      {4'd2, 6'd36}: transition = 32'h01ff0003;
      {4'd2, 6'd37}: transition = 32'h01ff0003;
      {4'd2, 6'd40}: transition = 32'h00ff0002;
      {4'd2, 6'd41}: transition = 32'h00ff0002;
      {4'd2, 6'd42}: transition = 32'h00ff0002;
      {4'd2, 6'd43}: transition = 32'h00ff0002;
      {4'd2, 6'd44}: transition = 32'h01ff0008;
      {4'd2, 6'd45}: transition = 32'h01ff0004;
      {4'd3, 6'd1}: transition = 32'hffff00ff;
      {4'd3, 6'd2}: transition = 32'hff0202ff;
      {4'd3, 6'd3}: transition = 32'hffff01ff;
      {4'd3, 6'd4}: transition = 32'hff0402ff;
      {4'd3, 6'd5}: transition = 32'hffff00ff;
      {4'd3, 6'd8}: transition = 32'h01ff0003;
      {4'd3, 6'd9}: transition = 32'h01ff0003;
      {4'd3, 6'd10}: transition = 32'h01ff0003;
      {4'd3, 6'd11}: transition = 32'h01ff0003;
      {4'd3, 6'd12}: transition = 32'hffff00ff;
      {4'd3, 6'd13}: transition = 32'hffff00ff;
      {4'd3, 6'd16}: transition = 32'h01ff0003;
      {4'd3, 6'd17}: transition = 32'h01ff0003;
      {4'd3, 6'd18}: transition = 32'h01ff0003;
      {4'd3, 6'd19}: transition = 32'h01ff0003;
      {4'd3, 6'd20}: transition = 32'hffff00ff;
      {4'd3, 6'd21}: transition = 32'hffff00ff;
      {4'd3, 6'd24}: transition = 32'h01ff0003;
      {4'd3, 6'd25}: transition = 32'h01ff0003;
      {4'd3, 6'd26}: transition = 32'h01ff0003;
      {4'd3, 6'd27}: transition = 32'h01ff0003;
      {4'd3, 6'd28}: transition = 32'h02ff000a;
      {4'd3, 6'd29}: transition = 32'h02ff000a;
      {4'd3, 6'd32}: transition = 32'h01ff0003;
      {4'd3, 6'd33}: transition = 32'h01ff0003;
      {4'd3, 6'd34}: transition = 32'h01ff0003;
      {4'd3, 6'd35}: transition = 32'h01ff0003;
      {4'd3, 6'd36}: transition = 32'hffff00ff;
      {4'd3, 6'd37}: transition = 32'hffff00ff;
      {4'd3, 6'd40}: transition = 32'h01ff0003;
      {4'd3, 6'd41}: transition = 32'h01ff0003;
      {4'd3, 6'd42}: transition = 32'h01ff0003;
      {4'd3, 6'd43}: transition = 32'h01ff0003;
      {4'd3, 6'd44}: transition = 32'h01ff0008;
      {4'd3, 6'd45}: transition = 32'h01ff0004;
      {4'd4, 6'd1}: transition = 32'hffff00ff;
      {4'd4, 6'd2}: transition = 32'hff0202ff;
      {4'd4, 6'd3}: transition = 32'hffff01ff;
      {4'd4, 6'd4}: transition = 32'hff0402ff;
      {4'd4, 6'd5}: transition = 32'hffff00ff;
      {4'd4, 6'd8}: transition = 32'h01ff0004;
      {4'd4, 6'd9}: transition = 32'h01ff0004;
      {4'd4, 6'd10}: transition = 32'h01ff0004;
      {4'd4, 6'd11}: transition = 32'h01ff0004;
      {4'd4, 6'd12}: transition = 32'hffff00ff;
      {4'd4, 6'd13}: transition = 32'hffff00ff;
      {4'd4, 6'd16}: transition = 32'h01ff0004;
      {4'd4, 6'd17}: transition = 32'h01ff0004;
      {4'd4, 6'd18}: transition = 32'h01ff0004;
      {4'd4, 6'd19}: transition = 32'h01ff0004;
      {4'd4, 6'd20}: transition = 32'hffff00ff;
      {4'd4, 6'd21}: transition = 32'hffff00ff;
      {4'd4, 6'd24}: transition = 32'h01ff0004;
      {4'd4, 6'd25}: transition = 32'h01ff0004;
      {4'd4, 6'd26}: transition = 32'h01ff0004;
      {4'd4, 6'd27}: transition = 32'h01ff0004;
      {4'd4, 6'd28}: transition = 32'h02ff000a;
      {4'd4, 6'd29}: transition = 32'h02ff000a;
      {4'd4, 6'd32}: transition = 32'h01ff0004;
      {4'd4, 6'd33}: transition = 32'h01ff0004;
      {4'd4, 6'd34}: transition = 32'h01ff0004;
      {4'd4, 6'd35}: transition = 32'h01ff0004;
      {4'd4, 6'd36}: transition = 32'h01ff0005;
      {4'd4, 6'd37}: transition = 32'hffff00ff;
      {4'd4, 6'd40}: transition = 32'h01ff0004;
      {4'd4, 6'd41}: transition = 32'h01ff0004;
      {4'd4, 6'd42}: transition = 32'h01ff0004;
      {4'd4, 6'd43}: transition = 32'h01ff0004;
      {4'd4, 6'd44}: transition = 32'h02ff0006;
      {4'd4, 6'd45}: transition = 32'h02ff0006;
      {4'd5, 6'd1}: transition = 32'hffff00ff;
      {4'd5, 6'd2}: transition = 32'hff0202ff;
      {4'd5, 6'd3}: transition = 32'hffff01ff;
      {4'd5, 6'd4}: transition = 32'hff0402ff;
      {4'd5, 6'd5}: transition = 32'hffff00ff;
      {4'd5, 6'd8}: transition = 32'h01ff0005;
      {4'd5, 6'd9}: transition = 32'h01ff0005;
      {4'd5, 6'd10}: transition = 32'h01ff0005;
      {4'd5, 6'd11}: transition = 32'h01ff0005;
      {4'd5, 6'd12}: transition = 32'hffff00ff;
      {4'd5, 6'd13}: transition = 32'hffff00ff;
      {4'd5, 6'd16}: transition = 32'h01ff0005;
      {4'd5, 6'd17}: transition = 32'h01ff0005;
      {4'd5, 6'd18}: transition = 32'h01ff0005;
      {4'd5, 6'd19}: transition = 32'h01ff0005;
      {4'd5, 6'd20}: transition = 32'hffff00ff;
      {4'd5, 6'd21}: transition = 32'hffff00ff;
      {4'd5, 6'd24}: transition = 32'h01ff0005;
      {4'd5, 6'd25}: transition = 32'h01ff0005;
      {4'd5, 6'd26}: transition = 32'h01ff0005;
      {4'd5, 6'd27}: transition = 32'h01ff0005;
      {4'd5, 6'd28}: transition = 32'h02ff000a;
      {4'd5, 6'd29}: transition = 32'h02ff000a;
      {4'd5, 6'd32}: transition = 32'h01ff0005;
      {4'd5, 6'd33}: transition = 32'h01ff0005;
      {4'd5, 6'd34}: transition = 32'h01ff0005;
      {4'd5, 6'd35}: transition = 32'h01ff0005;
      {4'd5, 6'd36}: transition = 32'hffff00ff;
      {4'd5, 6'd37}: transition = 32'hffff00ff;
      {4'd5, 6'd40}: transition = 32'h01ff0005;
      {4'd5, 6'd41}: transition = 32'h01ff0005;
      {4'd5, 6'd42}: transition = 32'h01ff0005;
      {4'd5, 6'd43}: transition = 32'h01ff0005;
      {4'd5, 6'd44}: transition = 32'h02ff0006;
      {4'd5, 6'd45}: transition = 32'h02ff0006;
      {4'd6, 6'd1}: transition = 32'hffff00ff;
      {4'd6, 6'd2}: transition = 32'hff0202ff;
      {4'd6, 6'd3}: transition = 32'hffff01ff;
      {4'd6, 6'd4}: transition = 32'hff0402ff;
      {4'd6, 6'd5}: transition = 32'hffff00ff;
      {4'd6, 6'd8}: transition = 32'h02ff0006;
      {4'd6, 6'd9}: transition = 32'h02ff0006;
      {4'd6, 6'd10}: transition = 32'h02ff0006;
      {4'd6, 6'd11}: transition = 32'h02ff0006;
      {4'd6, 6'd12}: transition = 32'hffff00ff;
      {4'd6, 6'd13}: transition = 32'hffff00ff;
      {4'd6, 6'd16}: transition = 32'h02ff0006;
      {4'd6, 6'd17}: transition = 32'h02ff0006;
      {4'd6, 6'd18}: transition = 32'h02ff0006;
      {4'd6, 6'd19}: transition = 32'h02ff0006;
      {4'd6, 6'd20}: transition = 32'hffff00ff;
      {4'd6, 6'd21}: transition = 32'hffff00ff;
      {4'd6, 6'd24}: transition = 32'h02ff0006;
      {4'd6, 6'd25}: transition = 32'h02ff0006;
      {4'd6, 6'd26}: transition = 32'h02ff0006;
      {4'd6, 6'd27}: transition = 32'h02ff0006;
      {4'd6, 6'd28}: transition = 32'h02ff000a;
      {4'd6, 6'd29}: transition = 32'h02ff000a;
      {4'd6, 6'd32}: transition = 32'h02ff0006;
      {4'd6, 6'd33}: transition = 32'h02ff0006;
      {4'd6, 6'd34}: transition = 32'h02ff0006;
      {4'd6, 6'd35}: transition = 32'h02ff0006;
      {4'd6, 6'd36}: transition = 32'h02ff000a;
      {4'd6, 6'd37}: transition = 32'h02ff000a;
      {4'd6, 6'd40}: transition = 32'h02ff0006;
      {4'd6, 6'd41}: transition = 32'h02ff0006;
      {4'd6, 6'd42}: transition = 32'h02ff0006;
      {4'd6, 6'd43}: transition = 32'h02ff0006;
      {4'd6, 6'd44}: transition = 32'hffff00ff;
      {4'd6, 6'd45}: transition = 32'hffff00ff;
      {4'd7, 6'd1}: transition = 32'hffff00ff;
      {4'd7, 6'd2}: transition = 32'hff0202ff;
      {4'd7, 6'd3}: transition = 32'hffff01ff;
      {4'd7, 6'd4}: transition = 32'hff0402ff;
      {4'd7, 6'd5}: transition = 32'hffff00ff;
      {4'd7, 6'd8}: transition = 32'h02ff0007;
      {4'd7, 6'd9}: transition = 32'h02ff0007;
      {4'd7, 6'd10}: transition = 32'h02ff0007;
      {4'd7, 6'd11}: transition = 32'h02ff0007;
      {4'd7, 6'd12}: transition = 32'hffff00ff;
      {4'd7, 6'd13}: transition = 32'hffff00ff;
      {4'd7, 6'd16}: transition = 32'h02ff0007;
      {4'd7, 6'd17}: transition = 32'h02ff0007;
      {4'd7, 6'd18}: transition = 32'h02ff0007;
      {4'd7, 6'd19}: transition = 32'h02ff0007;
      {4'd7, 6'd20}: transition = 32'hffff00ff;
      {4'd7, 6'd21}: transition = 32'hffff00ff;
      {4'd7, 6'd24}: transition = 32'h02ff0007;
      {4'd7, 6'd25}: transition = 32'h02ff0007;
      {4'd7, 6'd26}: transition = 32'h02ff0007;
      {4'd7, 6'd27}: transition = 32'h02ff0007;
      {4'd7, 6'd28}: transition = 32'h02ff000a;
      {4'd7, 6'd29}: transition = 32'h02ff000a;
      {4'd7, 6'd32}: transition = 32'h02ff0007;
      {4'd7, 6'd33}: transition = 32'h02ff0007;
      {4'd7, 6'd34}: transition = 32'h02ff0007;
      {4'd7, 6'd35}: transition = 32'h02ff0007;
      {4'd7, 6'd36}: transition = 32'h02ff000a;
      {4'd7, 6'd37}: transition = 32'hffff00ff;
      {4'd7, 6'd40}: transition = 32'h02ff0007;
      {4'd7, 6'd41}: transition = 32'h02ff0007;
      {4'd7, 6'd42}: transition = 32'h02ff0007;
      {4'd7, 6'd43}: transition = 32'h02ff0007;
      {4'd7, 6'd44}: transition = 32'hffff00ff;
      {4'd7, 6'd45}: transition = 32'hffff00ff;
      {4'd8, 6'd1}: transition = 32'hffff00ff;
      {4'd8, 6'd2}: transition = 32'hff0202ff;
      {4'd8, 6'd3}: transition = 32'hffff01ff;
      {4'd8, 6'd4}: transition = 32'hff0402ff;
      {4'd8, 6'd5}: transition = 32'hffff00ff;
      {4'd8, 6'd8}: transition = 32'h01ff0008;
      {4'd8, 6'd9}: transition = 32'h01ff0008;
      {4'd8, 6'd10}: transition = 32'h01ff0008;
      {4'd8, 6'd11}: transition = 32'h01ff0008;
      {4'd8, 6'd12}: transition = 32'hffff00ff;
      {4'd8, 6'd13}: transition = 32'hffff00ff;
      {4'd8, 6'd16}: transition = 32'h01ff0008;
      {4'd8, 6'd17}: transition = 32'h01ff0008;
      {4'd8, 6'd18}: transition = 32'h01ff0008;
      {4'd8, 6'd19}: transition = 32'h01ff0008;
      {4'd8, 6'd20}: transition = 32'hffff00ff;
      {4'd8, 6'd21}: transition = 32'hffff00ff;
      {4'd8, 6'd24}: transition = 32'h01ff0008;
      {4'd8, 6'd25}: transition = 32'h01ff0008;
      {4'd8, 6'd26}: transition = 32'h01ff0008;
      {4'd8, 6'd27}: transition = 32'h01ff0008;
      {4'd8, 6'd28}: transition = 32'h02ff000a;
      {4'd8, 6'd29}: transition = 32'h02ff000a;
      {4'd8, 6'd32}: transition = 32'h01ff0008;
      {4'd8, 6'd33}: transition = 32'h01ff0008;
      {4'd8, 6'd34}: transition = 32'h01ff0008;
      {4'd8, 6'd35}: transition = 32'h01ff0008;
      {4'd8, 6'd36}: transition = 32'hffff00ff;
      {4'd8, 6'd37}: transition = 32'hffff00ff;
      {4'd8, 6'd40}: transition = 32'h01ff0008;
      {4'd8, 6'd41}: transition = 32'h01ff0008;
      {4'd8, 6'd42}: transition = 32'h01ff0008;
      {4'd8, 6'd43}: transition = 32'h01ff0008;
      {4'd8, 6'd44}: transition = 32'hffff00ff;
      {4'd8, 6'd45}: transition = 32'h02ff0007;
      {4'd9, 6'd1}: transition = 32'hffff00ff;
      {4'd9, 6'd2}: transition = 32'hff0202ff;
      {4'd9, 6'd3}: transition = 32'hffff01ff;
      {4'd9, 6'd4}: transition = 32'hff0402ff;
      {4'd9, 6'd5}: transition = 32'hffff00ff;
      {4'd9, 6'd8}: transition = 32'h01ff0009;
      {4'd9, 6'd9}: transition = 32'h01ff0009;
      {4'd9, 6'd10}: transition = 32'h01ff0009;
      {4'd9, 6'd11}: transition = 32'h01ff0009;
      {4'd9, 6'd12}: transition = 32'hffff00ff;
      {4'd9, 6'd13}: transition = 32'hffff00ff;
      {4'd9, 6'd16}: transition = 32'h01ff0009;
      {4'd9, 6'd17}: transition = 32'h01ff0009;
      {4'd9, 6'd18}: transition = 32'h01ff0009;
      {4'd9, 6'd19}: transition = 32'h01ff0009;
      {4'd9, 6'd20}: transition = 32'hffff00ff;
      {4'd9, 6'd21}: transition = 32'hffff00ff;
      {4'd9, 6'd24}: transition = 32'h01ff0009;
      {4'd9, 6'd25}: transition = 32'h01ff0009;
      {4'd9, 6'd26}: transition = 32'h01ff0009;
      {4'd9, 6'd27}: transition = 32'h01ff0009;
      {4'd9, 6'd28}: transition = 32'h02ff000a;
      {4'd9, 6'd29}: transition = 32'h02ff000a;
      {4'd9, 6'd32}: transition = 32'h01ff0009;
      {4'd9, 6'd33}: transition = 32'h01ff0009;
      {4'd9, 6'd34}: transition = 32'h01ff0009;
      {4'd9, 6'd35}: transition = 32'h01ff0009;
      {4'd9, 6'd36}: transition = 32'h02ff0006;
      {4'd9, 6'd37}: transition = 32'h02ff0006;
      {4'd9, 6'd40}: transition = 32'h01ff0009;
      {4'd9, 6'd41}: transition = 32'h01ff0009;
      {4'd9, 6'd42}: transition = 32'h01ff0009;
      {4'd9, 6'd43}: transition = 32'h01ff0009;
      {4'd9, 6'd44}: transition = 32'h02ff0006;
      {4'd9, 6'd45}: transition = 32'h02ff0006;
      {4'd10, 6'd1}: transition = 32'hffff00ff;
      {4'd10, 6'd2}: transition = 32'hff0202ff;
      {4'd10, 6'd3}: transition = 32'hffff01ff;
      {4'd10, 6'd4}: transition = 32'hff0402ff;
      {4'd10, 6'd5}: transition = 32'hffff00ff;
      {4'd10, 6'd8}: transition = 32'h0203020a;
      {4'd10, 6'd9}: transition = 32'h0203020a;
      {4'd10, 6'd10}: transition = 32'h0203020a;
      {4'd10, 6'd11}: transition = 32'h0203020a;
      {4'd10, 6'd12}: transition = 32'hffff00ff;
      {4'd10, 6'd13}: transition = 32'hffff00ff;
      {4'd10, 6'd16}: transition = 32'h0203020a;
      {4'd10, 6'd17}: transition = 32'h0203020a;
      {4'd10, 6'd18}: transition = 32'h0203020a;
      {4'd10, 6'd19}: transition = 32'h0203020a;
      {4'd10, 6'd20}: transition = 32'hffff00ff;
      {4'd10, 6'd21}: transition = 32'hffff00ff;
      {4'd10, 6'd24}: transition = 32'h02ff000a;
      {4'd10, 6'd25}: transition = 32'h02ff000a;
      {4'd10, 6'd26}: transition = 32'h02ff000a;
      {4'd10, 6'd27}: transition = 32'h02ff000a;
      {4'd10, 6'd28}: transition = 32'hffff00ff;
      {4'd10, 6'd29}: transition = 32'hffff00ff;
      {4'd10, 6'd32}: transition = 32'h0203020a;
      {4'd10, 6'd33}: transition = 32'h0203020a;
      {4'd10, 6'd34}: transition = 32'h02ff000a;
      {4'd10, 6'd35}: transition = 32'h02ff000a;
      {4'd10, 6'd36}: transition = 32'hffff00ff;
      {4'd10, 6'd37}: transition = 32'hffff00ff;
      {4'd10, 6'd40}: transition = 32'h0203020a;
      {4'd10, 6'd41}: transition = 32'h0203020a;
      {4'd10, 6'd42}: transition = 32'h02ff000a;
      {4'd10, 6'd43}: transition = 32'h02ff000a;
      {4'd10, 6'd44}: transition = 32'hffff00ff;
      {4'd10, 6'd45}: transition = 32'hffff00ff;
      default: transition = 32'hff0302ff;
    endcase
  endfunction

  // A packet that is no segment: reason and action, by what is known of its flow and by message.
  function automatic logic [15:0] exchange(input logic [1:0] known, input logic [2:0] message);
    unique case ({known, message})
      5'd0: exchange = 16'h0202;
      5'd1: exchange = 16'hff00;
      5'd2: exchange = 16'hff00;
      5'd3: exchange = 16'hff00;
      5'd4: exchange = 16'hff00;
      5'd5: exchange = 16'h0602;
      5'd6: exchange = 16'h0602;
      5'd7: exchange = 16'hff01;
      5'd8: exchange = 16'hff00;
      5'd9: exchange = 16'hff00;
      5'd10: exchange = 16'hff00;
      5'd11: exchange = 16'hff00;
      5'd12: exchange = 16'h0202;
      5'd13: exchange = 16'hff01;
      5'd14: exchange = 16'h0602;
      5'd15: exchange = 16'hff01;
      5'd16: exchange = 16'hff00;
      5'd17: exchange = 16'hff00;
      5'd18: exchange = 16'hff00;
      5'd19: exchange = 16'hff00;
      5'd20: exchange = 16'hff00;
      5'd21: exchange = 16'hff01;
      5'd22: exchange = 16'h0602;
      5'd23: exchange = 16'hff01;
      default: exchange = {NONE, ACTION_REFUSE};
    endcase
  endfunction

  // What a type of icmpv4 is.
  function automatic logic [7:0] icmpv4_kind(input logic [7:0] number);
    unique case (number)
      8'd0: icmpv4_kind = 8'd1;
      8'd3: icmpv4_kind = 8'd2;
      8'd4: icmpv4_kind = 8'd2;
      8'd5: icmpv4_kind = 8'd2;
      8'd11: icmpv4_kind = 8'd2;
      8'd12: icmpv4_kind = 8'd2;
      8'd14: icmpv4_kind = 8'd1;
      8'd16: icmpv4_kind = 8'd1;
      8'd18: icmpv4_kind = 8'd1;
      8'd43: icmpv4_kind = 8'd1;
      default: icmpv4_kind = ICMP_QUESTION;
    endcase
  endfunction

  // What a type of icmpv6 is.
  function automatic logic [7:0] icmpv6_kind(input logic [7:0] number);
    unique case (number)
      8'd1: icmpv6_kind = 8'd2;
      8'd2: icmpv6_kind = 8'd2;
      8'd3: icmpv6_kind = 8'd2;
      8'd4: icmpv6_kind = 8'd2;
      8'd129: icmpv6_kind = 8'd1;
      8'd130: icmpv6_kind = 8'd3;
      8'd131: icmpv6_kind = 8'd3;
      8'd132: icmpv6_kind = 8'd3;
      8'd133: icmpv6_kind = 8'd3;
      8'd134: icmpv6_kind = 8'd3;
      8'd135: icmpv6_kind = 8'd3;
      8'd136: icmpv6_kind = 8'd3;
      8'd137: icmpv6_kind = 8'd3;
      8'd143: icmpv6_kind = 8'd3;
      8'd161: icmpv6_kind = 8'd1;
      default: icmpv6_kind = ICMP_QUESTION;
    endcase
  endfunction

  /* verilator lint_on UNUSEDPARAM */

endpackage
