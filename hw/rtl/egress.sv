// SPDX-License-Identifier: Apache-2.0
// Does with each frame what its verdict says: to the host with the metadata block before it, to a port
// without, or nothing. Frames leave in the order in which they came; a frame that waits for the host or a
// port holds up those behind it.
//
// Interface: queues of verdicts, of what is known of frames and of beats, each with valid and pop; the host's
// and the ports' side are AXI4-Stream. With `verdict_pop_o`, once for each frame, `disposition_o` says what
// is counted. While
// `flush_i`, frames that have not begun to leave are dropped and counted as lost by the reset.
// Parameters: DataW.
// Latency: 1 cycle for the first beat of a frame. Throughput: 1 beat a cycle, without a gap between frames; a
// frame to the host has 512 / DataW beats more.
`default_nettype none

module egress #(
  parameter int unsigned DataW = 64,
  localparam int unsigned BytesW = $clog2(DataW / 8) + 1
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,
  input  logic                       flush_i,
  // Verdict and knowledge of the oldest frame; they leave together.
  input  logic                       verdict_valid_i,
  input  bartizan_rtl_pkg::verdict_t verdict_i,
  input  bartizan_rtl_pkg::frame_t   frame_i,
  output logic                       verdict_pop_o,
  // Its beats: last, bytes, data.
  input  logic                       beat_valid_i,
  input  logic [DataW+BytesW:0]      beat_i,
  output logic                       beat_pop_o,
  output logic                       cpu_valid_o,
  input  logic                       cpu_ready_i,
  output logic [DataW+BytesW:0]      cpu_beat_o,
  output logic                       port_valid_o,
  input  logic                       port_ready_i,
  output logic [DataW+BytesW:0]      port_beat_o,
  output logic [7:0]                 port_egress_o,
  output logic [6:0]                 disposition_o
);

  localparam int unsigned MetaBeats = 512 / DataW;
  localparam int unsigned MetaW     = MetaBeats > 1 ? $clog2(MetaBeats) : 1;

  logic             begun_q, meta_done_q, is_last, lost;  // The flush ends only when no frame is inside.
  logic [MetaW-1:0] meta_q;
  logic             to_cpu, to_port, meta_turn, move;
  logic [511:0]     block;

  bartizan_metadata_pkg::generic_t  generic;
  bartizan_metadata_pkg::extended_t extended;

  assign generic.timestamp_us = frame_i.timestamp_us;
  assign generic.length       = frame_i.length;
  assign generic.payload      = verdict_i.payload;
  assign generic.l4           = verdict_i.l4;
  assign generic.l3           = verdict_i.l3;
  assign generic.flags        = verdict_i.flags;
  assign generic.tenant       = verdict_i.tenant;
  assign generic.egress       = verdict_i.egress;
  assign generic.ingress      = frame_i.ingress;
  assign generic.action       = verdict_i.action;
  assign generic.generation   = verdict_i.generation;
  assign generic.flow_hash    = 32'd0;
  assign generic.path         = verdict_i.path;
  assign generic.fid          = verdict_i.fid;

  assign extended.functions    = 192'd0;
  assign extended.timestamp_ns = frame_i.timestamp_ns;
  assign block = {extended, generic};

  assign is_last = beat_i[DataW+BytesW];
  assign lost    = flush_i && !begun_q;
  assign to_cpu  = !lost && verdict_i.action == bartizan_metadata_pkg::ACTION_TO_CPU;
  assign to_port = !lost && verdict_i.action == bartizan_metadata_pkg::ACTION_TO_PORT;

  assign meta_turn = to_cpu && !meta_done_q;

  assign cpu_valid_o  = verdict_valid_i && to_cpu && (meta_turn || beat_valid_i);
  assign cpu_beat_o   = meta_turn ? {1'b0, BytesW'(DataW / 8), block[DataW*meta_q +: DataW]} : beat_i;
  assign port_valid_o = verdict_valid_i && to_port && beat_valid_i;
  assign port_beat_o  = beat_i;
  assign port_egress_o = verdict_i.egress;

  assign move = verdict_valid_i && (to_cpu ? cpu_ready_i : to_port ? port_ready_i : 1'b1);
  assign beat_pop_o    = move && beat_valid_i && !meta_turn;
  assign verdict_pop_o = beat_pop_o && is_last;

  assign disposition_o = lost ? bartizan_regs_pkg::DISPOSITION_LOST_RESET : verdict_i.disposition;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      begun_q     <= 1'b0;
      meta_done_q <= 1'b0;
      meta_q      <= '0;
    end else begin
      if (verdict_pop_o) begin
        begun_q     <= 1'b0;
        meta_done_q <= 1'b0;
        meta_q      <= '0;
      end else if (verdict_valid_i && move) begin
        if (!lost) begin
          begun_q <= begun_q || meta_turn || beat_valid_i;
        end
        if (meta_turn) begin
          meta_q      <= meta_q + MetaW'(1);
          meta_done_q <= meta_q == MetaW'(MetaBeats - 1);
        end
      end
    end
  end

endmodule

`default_nettype wire
