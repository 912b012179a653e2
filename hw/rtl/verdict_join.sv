// SPDX-License-Identifier: Apache-2.0
// Joins what was decided of a frame's packets to the frame's verdict: the most careful one wins. A frame goes
// up if one of its packets does, or if functions are left on a path; one with a tunnel also if a packet of it
// is dropped. The metadata is that of the outer packet.
//
// The packet filter counts a packet here, once for each packet, and only if the host does not judge it again:
// the frame was decided, or only other functions are left.
//
// Interface: a record in each cycle with `valid_i`; a tunnel's two records come in cycles that follow each
// other.
// `push_o` with `verdict_o` once for each frame; `count_o` with `place_o` for each packet that is counted;
// `flow_count_o` for each packet that counts for its flow's entry, which is one that does not go up.
// Latency: 2 cycles. Throughput: 1 a cycle.
`default_nettype none

module verdict_join (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        enable_i,
  input  logic                        valid_i,
  input  logic                        done_i,
  input  bartizan_rtl_pkg::headers_t  headers_i,
  input  bartizan_rtl_pkg::decision_t decision_i,
  output logic                        push_o,
  output bartizan_rtl_pkg::verdict_t  verdict_o,
  output logic                        count_o,
  output logic [9:0]                  place_o,
  output logic                        flow_count_o,
  output logic [13:0]                 flow_place_o,
  output logic                        flow_high_o,
  output logic [15:0]                 flow_bytes_o
);

  logic                        valid_q, done_q;
  bartizan_rtl_pkg::headers_t  headers_q;
  bartizan_rtl_pkg::decision_t decision_q;
  bartizan_rtl_pkg::verdict_t  verdict, verdict_q;
  logic                        push_q, count_q, counts, counts_q;
  logic [9:0]                  place_q;
  logic                        decided_q, flow_count_q, flow_high_q;
  logic [13:0]                 flow_place_q;
  logic [15:0]                 flow_bytes_q;

  logic [31:0] path;
  logic        two, up, drop, lost;
  logic [6:0]  cause;

  // With a tunnel, the record at the input is the packet inside.
  assign two  = headers_q.has_inner;
  assign path = decision_q.path | (two ? decision_i.path : 32'd0);
  assign drop = decision_q.drop || (two && decision_i.drop);
  assign lost = decision_q.up && decision_q.cause == bartizan_regs_pkg::DISPOSITION_LOST_OVERSIZE;

  always_comb begin
    up    = 1'b1;
    cause = bartizan_regs_pkg::DISPOSITION_TO_PORT;
    if (lost) begin
      cause = bartizan_regs_pkg::DISPOSITION_LOST_OVERSIZE;
    end else if (!enable_i) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_DISABLED;
    end else if (decision_q.up) begin
      cause = decision_q.cause;
    end else if (two && decision_i.up) begin
      cause = decision_i.cause;
    end else if (path != 32'd0) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_PATH;
    end else if (two && drop) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_TUNNEL_REFUSED;
    end else begin
      up = 1'b0;
      if (drop) begin
        cause = bartizan_regs_pkg::DISPOSITION_DROP + {1'b0, decision_q.reason};
      end
    end
  end

  assign counts = !up || (cause == bartizan_regs_pkg::DISPOSITION_UP_PATH && !two);

  assign verdict.action = lost ? bartizan_metadata_pkg::ACTION_DROP
      : up ? bartizan_metadata_pkg::ACTION_TO_CPU
      : drop ? bartizan_metadata_pkg::ACTION_DROP : bartizan_metadata_pkg::ACTION_TO_PORT;
  assign verdict.disposition = cause;
  assign verdict.fid         = decision_q.classified ? decision_q.fid : 32'd0;
  assign verdict.path        = decision_q.classified ? decision_q.path : 32'd0;
  assign verdict.generation  = decision_q.classified ? decision_q.generation : 8'd0;
  assign verdict.egress      = decision_q.egress;
  assign verdict.tenant      = headers_q.parsed ? headers_q.tenant : 16'd0;
  assign verdict.l3          = headers_q.parsed ? headers_q.l3 : 16'd0;
  assign verdict.l4          = headers_q.parsed ? headers_q.l4 : 16'd0;
  assign verdict.payload     = headers_q.parsed ? headers_q.payload : 16'd0;
  assign verdict.flags       = bartizan_metadata_pkg::FLAG_EXTENDED
      | (headers_q.parsed ? bartizan_metadata_pkg::FLAG_PARSED : 16'd0)
      | (decision_q.classified ? bartizan_metadata_pkg::FLAG_CLASSIFIED : 16'd0)
      | (cause == bartizan_regs_pkg::DISPOSITION_UP_PATH && !two
        ? bartizan_metadata_pkg::FLAG_HEADER_HALVES_DONE : 16'd0)
      | (headers_q.ipv6 && headers_q.parsed ? bartizan_metadata_pkg::FLAG_IPV6 : 16'd0)
      | (headers_q.fragment ? bartizan_metadata_pkg::FLAG_FRAGMENT : 16'd0)
      | (headers_q.invalid ? bartizan_metadata_pkg::FLAG_INVALID : 16'd0);

  always_ff @(posedge clk_i) begin
    valid_q    <= rst_ni && valid_i;
    done_q     <= done_i;
    headers_q  <= headers_i;
    decision_q <= decision_i;

    push_q  <= rst_ni && valid_q && done_q;
    place_q <= decision_q.outcome;
    if (valid_q && !headers_q.inner) begin
      verdict_q <= verdict;
      counts_q  <= counts;
      decided_q <= !up;
    end
    // The packet inside counts by the verdict of its frame, which came the cycle before.
    count_q <= rst_ni && valid_q && decision_q.counted && (headers_q.inner ? counts_q : counts);

    flow_count_q <= rst_ni && valid_q && decision_q.flow && (headers_q.inner ? decided_q : !up);
    flow_place_q <= decision_q.flow_place;
    flow_high_q  <= decision_q.from_high;
    flow_bytes_q <= headers_q.bytes;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni && valid_q && headers_q.has_inner) begin
      assert (valid_i && headers_i.inner) else $error("a tunnel without the packet inside");
    end
  end
`endif

  assign push_o    = push_q;
  assign verdict_o = verdict_q;
  assign count_o   = count_q;
  assign place_o   = place_q;

  assign flow_count_o = flow_count_q;
  assign flow_place_o = flow_place_q;
  assign flow_high_o  = flow_high_q;
  assign flow_bytes_o = flow_bytes_q;

endmodule

`default_nettype wire
