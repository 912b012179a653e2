// SPDX-License-Identifier: Apache-2.0
// The stateful firewall's header half, and the action of a flow's entry.
//
// A packet of a flow whose entry decides is done with what the entry says, whatever is left on its path. A
// packet on whose path the stateful firewall is left (`selected_i`) is judged if its flow has an entry, and
// the firewall's bit is cleared. A TCP segment is judged by the numbers of its connection, by the rule of
// crates/packet/src/windows.rs, and by the cell of the firewall's table (bartizan_sfw_pkg) for the state of
// the connection and the class of the segment. What does not plainly go on is not refused here, but goes up:
// so do SYN, FIN and RST, whose effect follows from more than is known here, and urgent data. The ACK of the
// handshake opens the connection if the entry lets the state change.
//
// Numbers change only with segments that leave: of a tunnel, if the outer packet leaves too. They are read,
// compared and written in one cycle, so that segments of one connection may follow each other directly.
//
// The host's commands take a cycle without a record; `hold_o` asks intake for one.
//
//   op        effect
//   1 load    numbers and rules are those of `staged_i`
//   2 publish each number goes forward to the staged one, none back; the state is the staged one
//   3 read    nothing
//
// Each command leaves the numbers before it in `result_o`: words as in FLOW_NUMBERS (crates/rtl).
//
// Interface: a record in each cycle with `valid_i`; the same, decided, at `valid_o`.
// Parameters: Entries, of the flow cache; Block, 1 for block memory.
// Latency: 4 cycles. Throughput: 1 a cycle.
`default_nettype none

module sfw #(
  parameter int unsigned Entries = 256,
  parameter int unsigned Block   = 0
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        enable_i,
  input  logic [4:0]                  bit_i,
  input  logic                        valid_i,
  input  logic                        done_i,
  input  logic                        selected_i,
  input  bartizan_rtl_pkg::headers_t  headers_i,
  input  bartizan_rtl_pkg::decision_t decision_i,
  input  bartizan_rtl_pkg::flow_t     flow_i,
  output logic                        valid_o,
  output logic                        done_o,
  output bartizan_rtl_pkg::headers_t  headers_o,
  output bartizan_rtl_pkg::decision_t decision_o,
  // Commands: held until `command_done_o`.
  input  logic                        command_i,
  input  logic [1:0]                  op_i,
  input  logic [13:0]                 place_i,
  input  logic [287:0]                staged_i,
  output logic                        command_done_o,
  output logic [287:0]                result_o,
  output logic                        hold_o
);

  localparam int unsigned PlaceW   = $clog2(Entries);
  localparam int unsigned NumbersW = 6 + 256;
  localparam int unsigned RulesW   = 9;

  localparam logic [1:0] OpLoad = 2'd1;
  localparam logic [1:0] OpPublish = 2'd2;

  // Numbers: of the lower endpoint, then of the higher one, sent (31:0), timestamp, acknowledged, edge
  // (127:96); then the state and whose progress is noted.
  typedef struct packed {
    logic [31:0] edge_right;
    logic [31:0] acknowledged;
    logic [31:0] timestamp;
    logic [31:0] sent;
  } side_t;

  function automatic logic is_after(input logic [31:0] a, input logic [31:0] b);
    logic [31:0] difference;
    difference = a - b;
    is_after = !difference[31] && difference != 32'd0;
  endfunction

  // Not the same as the other one's being after: half the circle away each is before the other one.
  function automatic logic is_before(input logic [31:0] a, input logic [31:0] b);
    logic [31:0] difference;
    difference = a - b;
    is_before = difference[31];
  endfunction

  function automatic logic [31:0] later(input logic [31:0] a, input logic [31:0] b);
    later = is_after(b, a) ? b : a;
  endfunction

  // ---- 1: the rules of the connection; what the segment is ----

  logic                        valid1_q, done1_q, selected1_q;
  bartizan_rtl_pkg::headers_t  headers1_q;
  bartizan_rtl_pkg::decision_t decision1_q;
  bartizan_rtl_pkg::flow_t     flow1_q;
  logic                        load3;
  logic [RulesW-1:0]           rules;

  row_memory #(.Width(RulesW), .Words(Entries), .Block(0)) u_rules (
    .clk_i, .write_i(load3), .write_address_i(place_i[PlaceW-1:0]),
    .write_data_i({staged_i[256+16], staged_i[256+12 +: 4], staged_i[256+8 +: 4]}),
    .read_address_i(flow_i.place[PlaceW-1:0]), .data_o(rules)
  );

  always_ff @(posedge clk_i) begin
    valid1_q    <= rst_ni && valid_i;
    done1_q     <= done_i;
    selected1_q <= selected_i;
    headers1_q  <= headers_i;
    decision1_q <= decision_i;
    flow1_q     <= flow_i;
  end

  // ---- 2: where the segment ends, and what it offers ----

  logic                        valid2_q, done2_q, selected2_q, stamps2_q, is_tcp2_q, bare2_q;
  bartizan_rtl_pkg::headers_t  headers2_q;
  bartizan_rtl_pkg::decision_t decision2_q;
  bartizan_rtl_pkg::flow_t     flow2_q;
  logic [31:0]                 end2_q, edge2_q;
  logic [2:0]                  kind2_q;
  logic [3:0]                  scale;

  // A shift above 14 counts as 14 (RFC 7323 section 2.3); the driver loads none.
  assign scale = flow1_q.from_high ? rules[7:4] : rules[3:0];

  always_ff @(posedge clk_i) begin
    valid2_q    <= rst_ni && valid1_q;
    done2_q     <= done1_q;
    selected2_q <= selected1_q;
    headers2_q  <= headers1_q;
    decision2_q <= decision1_q;
    flow2_q     <= flow1_q;
    stamps2_q   <= rules[8];
    is_tcp2_q   <= headers1_q.protocol == bartizan_rtl_pkg::PROTOCOL_TCP;
    bare2_q     <= headers1_q.payload_length == 16'd0;
    end2_q      <= headers1_q.sequence_number + 32'(headers1_q.payload_length);
    edge2_q     <= headers1_q.acknowledged + (32'(headers1_q.offered) << scale);
    kind2_q     <= bartizan_sfw_pkg::kind_of(headers1_q.tcp_flags[4], headers1_q.tcp_flags[2],
        headers1_q.tcp_flags[1], headers1_q.tcp_flags[0]);
  end

  // ---- 3: numbers ----

  logic                        valid3_q, done3_q, selected3_q, stamps3_q, is_tcp3_q, bare3_q, command3_q;
  bartizan_rtl_pkg::headers_t  headers3_q;
  bartizan_rtl_pkg::decision_t decision3_q;
  bartizan_rtl_pkg::flow_t     flow3_q;
  logic [31:0]                 end3_q, edge3_q;
  logic [2:0]                  kind3_q;
  logic [PlaceW-1:0]           place2, place3_q, written_place_q;
  logic                        write3, written_q, command_taken;
  logic [NumbersW-1:0]         stored, numbers, next, written_value_q;

  // A command goes where there is no record; after it one more cycle passes until it is taken back.
  assign command_taken = command_i && !valid2_q && !command3_q && !command_done_o;
  assign hold_o        = command_i;
  assign place2        = valid2_q ? flow2_q.place[PlaceW-1:0] : place_i[PlaceW-1:0];

  row_memory #(.Width(NumbersW), .Words(Entries), .Block(Block)) u_numbers (
    .clk_i, .write_i(write3), .write_address_i(place3_q), .write_data_i(next), .read_address_i(place2),
    .data_o(stored)
  );

  always_ff @(posedge clk_i) begin
    valid3_q        <= rst_ni && valid2_q;
    command3_q      <= rst_ni && command_taken;
    done3_q         <= done2_q;
    selected3_q     <= selected2_q;
    headers3_q      <= headers2_q;
    decision3_q     <= decision2_q;
    flow3_q         <= flow2_q;
    stamps3_q       <= stamps2_q;
    is_tcp3_q       <= is_tcp2_q;
    bare3_q         <= bare2_q;
    end3_q          <= end2_q;
    edge3_q         <= edge2_q;
    kind3_q         <= kind2_q;
    place3_q        <= place2;
    written_q       <= rst_ni && write3;
    written_place_q <= place3_q;
    written_value_q <= next;
  end

  // The memory does not show what the record before has written.
  assign numbers = (written_q && written_place_q == place3_q) ? written_value_q : stored;

  // ---- 3: the segment ----

  side_t       low, high, own, other, own_next, other_next, staged_low, staged_high;
  logic [3:0]  state, state_next;
  logic [1:0]  seen;
  logic        from_high, is_ack, plain, stamp_fits, moves, goes_on, old, own_seen;
  logic [31:0] stamp;
  logic [5:0]  segment_class;
  bartizan_sfw_pkg::cell_t cell_found;

  assign {state, seen, high, low} = numbers;
  assign from_high  = flow3_q.from_high;
  assign own        = from_high ? high : low;
  assign other      = from_high ? low : high;
  assign own_seen   = from_high ? seen[1] : seen[0];
  assign is_ack     = kind3_q == bartizan_sfw_pkg::KIND_ACK;
  assign stamp_fits = !stamps3_q || (headers3_q.stamped && headers3_q.timestamp != 32'd0
      && headers3_q.timestamp - own.timestamp <= bartizan_regs_pkg::TIMESTAMP_FAR_AHEAD);
  assign plain      = is_ack && !headers3_q.urgent
      && !is_after(headers3_q.acknowledged, other.sent)
      && !(bare3_q && is_after(end3_q, own.sent))
      && !is_after(end3_q, own.edge_right)
      && !is_before(end3_q, own.acknowledged - bartizan_regs_pkg::FLIGHT_MAX)
      && !is_before(headers3_q.acknowledged, other.acknowledged)
      && stamp_fits;
  assign stamp      = stamps3_q && !is_after(headers3_q.sequence_number, own.acknowledged)
      ? headers3_q.timestamp : own.timestamp;
  assign old        = is_before(end3_q, own.acknowledged);

  // The client's ACK that ends the handshake.
  assign moves         = flow3_q.control[30] && state == bartizan_sfw_pkg::STATE_SYN_RECV
      && from_high == flow3_q.control[31] && headers3_q.sequence_number == own.sent
      && headers3_q.acknowledged == other.sent;
  assign segment_class = bartizan_sfw_pkg::class_of(kind3_q,
      moves ? bartizan_sfw_pkg::PLACE_MOVES : bartizan_sfw_pkg::PLACE_UNCHANGED,
      from_high != flow3_q.control[31]);
  assign cell_found    = bartizan_sfw_pkg::transition(state, segment_class);
  assign goes_on       = plain && (moves || state == bartizan_sfw_pkg::STATE_ESTABLISHED)
      && cell_found.next != bartizan_sfw_pkg::NONE && cell_found.action == bartizan_sfw_pkg::ACTION_ADMIT;

  // ---- 3: the packet ----

  logic                        known, up, judged, decides, clears, leaves, outer_leaves_q, notes, commits;
  bartizan_rtl_pkg::decision_t decision;

  assign known   = flow3_q.hit && headers3_q.parsed && !headers3_q.up;
  assign decides = known && flow3_q.control[1];
  assign judged  = flow3_q.control[4];
  // What goes up by its flow, whether the entry decides or the firewall judges.
  assign up      = (from_high ? flow3_q.control[6] : flow3_q.control[7])
      || (is_tcp3_q && (!is_ack || (judged && !goes_on)));
  // Without numbers the firewall judges no segment.
  assign clears  = known && !flow3_q.control[1] && selected3_q && (!is_tcp3_q || judged);

  always_comb begin
    decision = decision3_q;
    decision.flow_place = flow3_q.place;
    decision.from_high  = from_high;
    decision.flow       = 1'b0;
    if (decides || clears) begin
      if (up) begin
        decision.up    = 1'b1;
        decision.cause = bartizan_regs_pkg::DISPOSITION_UP_FLOW;
      end else if (clears) begin
        decision.flow        = 1'b1;
        decision.path[bit_i] = 1'b0;
      end else if (flow3_q.control[3:2] == 2'd2 && (headers3_q.inner || headers3_q.has_inner)) begin
        decision.up    = 1'b1;
        decision.cause = bartizan_regs_pkg::DISPOSITION_UP_REDIRECT;
      end else begin
        decision.flow     = 1'b1;
        decision.up       = 1'b0;
        decision.path     = 32'd0;
        decision.counted  = 1'b0;
        decision.drop     = flow3_q.control[3:2] == 2'd1;
        decision.reason   = flow3_q.control[21:16];
        decision.redirect = flow3_q.control[3:2] == 2'd2;
        decision.egress   = flow3_q.control[3:2] == 2'd2 ? flow3_q.control[29:22]
            : headers3_q.ingress ^ 8'd1;
      end
    end
  end

  assign leaves  = enable_i && !decision.up && !decision.drop && decision.path == 32'd0
      && (!headers3_q.inner || outer_leaves_q);
  assign notes   = flow3_q.control[5] && !judged;
  assign commits = valid3_q && leaves && decision.flow && is_tcp3_q && (judged ? !old : notes);

  // ---- 3: what is written ----

  always_comb begin
    own_next   = own;
    other_next = other;
    state_next = state;
    own_next.sent           = judged || own_seen ? later(own.sent, end3_q) : end3_q;
    other_next.acknowledged = judged || own_seen
        ? later(other.acknowledged, headers3_q.acknowledged) : headers3_q.acknowledged;
    if (judged) begin
      own_next.timestamp    = later(own.timestamp, stamp);
      other_next.edge_right = later(other.edge_right, edge3_q);
      state_next            = cell_found.next[3:0];
    end
  end

  assign {staged_high, staged_low} = staged_i[255:0];

  always_comb begin
    if (command3_q) begin
      if (op_i == OpLoad) begin
        next = {staged_i[256 +: 4], staged_i[256+4 +: 2], staged_i[255:0]};
      end else begin
        next = {staged_i[256 +: 4], seen,
            later(high.edge_right, staged_high.edge_right), later(high.acknowledged, staged_high.acknowledged),
            later(high.timestamp, staged_high.timestamp), later(high.sent, staged_high.sent),
            later(low.edge_right, staged_low.edge_right), later(low.acknowledged, staged_low.acknowledged),
            later(low.timestamp, staged_low.timestamp), later(low.sent, staged_low.sent)};
      end
    end else begin
      next = {state_next, from_high ? {1'b1, seen[0]} : {seen[1], 1'b1},
          from_high ? own_next : other_next, from_high ? other_next : own_next};
    end
  end

  assign load3  = command3_q && op_i == OpLoad;
  assign write3 = commits || (command3_q && (op_i == OpLoad || op_i == OpPublish));

  // ---- 4 ----

  logic                        valid4_q, done4_q, command4_q;
  bartizan_rtl_pkg::headers_t  headers4_q;
  bartizan_rtl_pkg::decision_t decision4_q;
  logic [287:0]                result_q;

  always_ff @(posedge clk_i) begin
    valid4_q    <= rst_ni && valid3_q;
    command4_q  <= rst_ni && command3_q;
    done4_q     <= done3_q;
    headers4_q  <= headers3_q;
    decision4_q <= decision;
    if (valid3_q) begin
      outer_leaves_q <= leaves;
    end
    if (command3_q) begin
      result_q <= {26'd0, seen, state, high, low};
    end
  end

  assign valid_o        = valid4_q;
  assign done_o         = done4_q;
  assign headers_o      = headers4_q;
  assign decision_o     = decision4_q;
  assign command_done_o = command4_q;
  assign result_o       = result_q;

endmodule

`default_nettype wire
