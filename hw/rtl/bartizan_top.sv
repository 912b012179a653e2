// SPDX-License-Identifier: Apache-2.0
// The SmartNIC's packet path: parser, classifier, header halves, egress.
//
//                  beats
//   s_axis -> intake -----------------------------------------------> queue ---> egress -> m_cpu, m_port
//                `-> collector -> parser -> tenant -+-> classifier -> pfw -> sfw -> join -> verdicts
//                        |                          `-> flow cache ---------^
//                        `------------------------------------------------------> frames
//
// Nothing between intake and the queues can wait: intake lets in what has a place in each queue.
// Back-pressure of the host or a port fills the queues, and then intake.
//
// Interface: frames by s_axis (tuser: port it came in by) with full beats but the last, whose bytes are at
// the low end; m_cpu: frames to the host, a metadata block of 64 bytes before each; m_port: frames to ports
// (tuser: port); s_axil: the host's registers; the clock of the port.
// Parameters: DataW 64, 128 or 512; NumRules 64 to 1024; Stride 4 or 9; Block, 1 for tables in block memory;
// Ipv6, 1 if IPv6 is read and classified; MaxFrame, bytes of the longest frame; FlowBuckets, each of four
// entries of the flow cache: a power of two of 8 to 4,096.
// Latency: see hw/README.md. Throughput: 1 beat a cycle, without a gap between frames.
`default_nettype none

module bartizan_top #(
  parameter int unsigned DataW    = 64,
  parameter int unsigned NumRules = 128,
  parameter int unsigned Stride   = 4,
  parameter int unsigned Block    = 0,
  parameter int unsigned Ipv6     = 1,
  parameter int unsigned MaxFrame = 2048,
  parameter int unsigned FlowBuckets = 64
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic [31:0]        timestamp_us_i,
  input  logic [63:0]        timestamp_ns_i,

  input  logic               s_axis_tvalid_i,
  output logic               s_axis_tready_o,
  input  logic [DataW-1:0]   s_axis_tdata_i,
  input  logic [DataW/8-1:0] s_axis_tkeep_i,
  input  logic               s_axis_tlast_i,
  input  logic [7:0]         s_axis_tuser_i,

  output logic               m_cpu_axis_tvalid_o,
  input  logic               m_cpu_axis_tready_i,
  output logic [DataW-1:0]   m_cpu_axis_tdata_o,
  output logic [DataW/8-1:0] m_cpu_axis_tkeep_o,
  output logic               m_cpu_axis_tlast_o,

  output logic               m_port_axis_tvalid_o,
  input  logic               m_port_axis_tready_i,
  output logic [DataW-1:0]   m_port_axis_tdata_o,
  output logic [DataW/8-1:0] m_port_axis_tkeep_o,
  output logic               m_port_axis_tlast_o,
  output logic [7:0]         m_port_axis_tuser_o,

  input  logic               s_axil_awvalid_i,
  output logic               s_axil_awready_o,
  input  logic [23:0]        s_axil_awaddr_i,
  input  logic               s_axil_wvalid_i,
  output logic               s_axil_wready_o,
  input  logic [31:0]        s_axil_wdata_i,
  input  logic [3:0]         s_axil_wstrb_i,
  output logic               s_axil_bvalid_o,
  input  logic               s_axil_bready_i,
  output logic [1:0]         s_axil_bresp_o,
  input  logic               s_axil_arvalid_i,
  output logic               s_axil_arready_o,
  input  logic [23:0]        s_axil_araddr_i,
  output logic               s_axil_rvalid_o,
  input  logic               s_axil_rready_i,
  output logic [31:0]        s_axil_rdata_o,
  output logic [1:0]         s_axil_rresp_o
);

  localparam int unsigned BytesW   = $clog2(DataW / 8) + 1;
  localparam int unsigned MaxBeats = MaxFrame * 8 / DataW;
  localparam int unsigned Tenants  = 16;
  // A frame is kept until it is there as a whole and has its verdict: the longest frame, and what comes while
  // headers are on their way.
  localparam int unsigned Beats  = DataW >= 512 ? 128 : 2 * MaxBeats;
  localparam int unsigned Frames = 64;
  localparam int unsigned BeatW  = DataW + BytesW + 1;
  localparam int unsigned FlowWays = 4;
  localparam int unsigned Flows    = FlowBuckets * FlowWays;
  // As long as the way through classifier, path selector, packet filter and the second selector.
  localparam int unsigned KeyW      = Ipv6 != 0 ? 321 : 128;
  localparam int unsigned Rows      = (KeyW + Stride - 1) / Stride + 1;
  localparam int unsigned FlowDelay = 3 + (Rows <= 6 ? 1 : Rows <= 36 ? 2 : 3) + ($clog2(NumRules) + 1) / 2 + 4;

  if (DataW != 64 && DataW != 128 && DataW != 256 && DataW != 512) begin : gen_data_w
    $error("DataW is %0d; it can be 64, 128, 256 or 512", DataW);
  end
  if (Stride != 4 && Stride != 9) begin : gen_stride
    $error("Stride is %0d; it can be 4 or 9", Stride);
  end
  if (FlowBuckets < 8 || FlowBuckets > 4096 || (1 << $clog2(FlowBuckets)) != FlowBuckets) begin : gen_buckets
    $error("FlowBuckets is %0d; it can be a power of two from 8 to 4096", FlowBuckets);
  end
  if (NumRules < 64 || NumRules > 1024 || NumRules % 64 != 0) begin : gen_rules
    $error("NumRules is %0d; it can be 64 to 1024, in steps of 64", NumRules);
  end

  // ---- Configuration ----

  bartizan_rtl_pkg::write_t write;
  logic                     enable, flush, busy, busy_count, busy_rule;
  logic [7:0]               generation;
  logic [15:0]              vxlan_port;
  logic [63:0]              tunnel_ports;
  logic [4:0]               pfw_bit, sfw_bit;
  logic                     sides_in_key, vlans_in_key, numbers_command, counts_command, numbers_done, counts_done;
  logic [1:0]               flow_op;
  logic [13:0]              flow_place;
  logic [287:0]             numbers_staged, numbers_read;
  logic [383:0]             counts_read;
  logic [8:0]               touched_place;
  logic                     touched_clear, flow_hold;
  logic [31:0]              touched;
  logic                     disposition_read, rule_read, disposition_valid, rule_valid;
  logic [63:0]              disposition_value, rule_value;
  logic [9:0]               count_place;
  logic                     begins, ends;
  logic [6:0]               disposition;

  assign busy = busy_count || busy_rule;

  regs #(
    .DataW(DataW), .Stride(Stride), .NumRules(NumRules), .Ipv6(Ipv6), .Tenants(Tenants),
    .FlowBuckets(FlowBuckets), .FlowWays(FlowWays)
  ) u_regs (
    .clk_i, .rst_ni,
    .s_axil_awvalid_i, .s_axil_awready_o, .s_axil_awaddr_i, .s_axil_wvalid_i, .s_axil_wready_o,
    .s_axil_wdata_i, .s_axil_wstrb_i, .s_axil_bvalid_o, .s_axil_bready_i, .s_axil_bresp_o,
    .s_axil_arvalid_i, .s_axil_arready_o, .s_axil_araddr_i, .s_axil_rvalid_o, .s_axil_rready_i,
    .s_axil_rdata_o, .s_axil_rresp_o,
    .enable_o(enable), .flush_o(flush), .generation_o(generation), .vxlan_port_o(vxlan_port),
    .tunnel_ports_o(tunnel_ports), .pfw_bit_o(pfw_bit), .sfw_bit_o(sfw_bit),
    .sides_in_key_o(sides_in_key), .vlans_in_key_o(vlans_in_key), .write_o(write),
    .disposition_read_o(disposition_read), .rule_read_o(rule_read), .count_place_o(count_place),
    .disposition_valid_i(disposition_valid), .disposition_i(disposition_value),
    .rule_valid_i(rule_valid), .rule_i(rule_value),
    .numbers_command_o(numbers_command), .counts_command_o(counts_command), .flow_op_o(flow_op),
    .flow_place_o(flow_place), .numbers_o(numbers_staged), .numbers_done_i(numbers_done),
    .numbers_i(numbers_read), .counts_done_i(counts_done), .counts_i(counts_read),
    .touched_place_o(touched_place), .touched_clear_o(touched_clear), .touched_i(touched),
    .begins_i(begins), .ends_i(ends), .busy_i(busy)
  );

  // ---- In ----

  logic [BytesW-1:0]    in_bytes;
  logic                 in_valid, in_ready, in_last;
  logic [DataW-1:0]     in_data;
  logic [BytesW-1:0]    in_count;
  logic [7:0]           in_user;

  // The bytes of a beat: tkeep has ones at the low end only.
  always_comb begin
    in_bytes = '0;
    for (int b = 0; b < DataW / 8; b++) begin
      in_bytes = in_bytes | (s_axis_tkeep_i[b] && (b == DataW / 8 - 1 || !s_axis_tkeep_i[(b + 1) % (DataW / 8)])
          ? BytesW'(b + 1) : '0);
    end
  end

  axis_register #(.Width(DataW + BytesW + 9)) u_in (
    .clk_i, .rst_ni,
    .valid_i(s_axis_tvalid_i), .ready_o(s_axis_tready_o),
    .data_i ({s_axis_tuser_i, s_axis_tlast_i, in_bytes, s_axis_tdata_i}),
    .valid_o(in_valid), .ready_i(in_ready), .data_o({in_user, in_last, in_count, in_data})
  );

  logic              beat_valid, beat_last, beat_oversize, beat_left;
  logic [DataW-1:0]  beat_data;
  logic [BytesW-1:0] beat_bytes;
  logic [7:0]        beat_ingress;

  intake #(.DataW(DataW), .Beats(Beats), .Frames(Frames), .MaxBeats(MaxBeats)) u_intake (
    .clk_i, .rst_ni,
    .hold_i(flush || busy || flow_hold), .beat_left_i(beat_left), .frame_left_i(ends),
    .valid_i(in_valid), .ready_o(in_ready), .data_i(in_data), .bytes_i(in_count), .last_i(in_last),
    .ingress_i(in_user),
    .valid_o(beat_valid), .data_o(beat_data), .bytes_o(beat_bytes), .last_o(beat_last),
    .oversize_o(beat_oversize), .ingress_o(beat_ingress), .begins_o(begins)
  );

  // ---- Beats wait for the verdict of their frame ----

  logic             out_beat_valid;
  logic [BeatW-1:0] out_beat;

  credit_fifo #(.Width(BeatW), .Depth(Beats)) u_beats (
    .clk_i, .rst_ni,
    .push_i(beat_valid), .data_i({beat_last, beat_bytes, beat_data}),
    .valid_o(out_beat_valid), .pop_i(beat_left), .data_o(out_beat)
  );

  // ---- Headers ----

  logic                                     window_valid, oversize_q;
  logic [bartizan_rtl_pkg::WINDOW_BITS-1:0] window;
  logic [15:0]                              length;
  logic [7:0]                               ingress_q;
  bartizan_rtl_pkg::frame_t                 frame_in, frame_out;

  header_collector #(.DataW(DataW)) u_collector (
    .clk_i, .rst_ni, .valid_i(beat_valid), .data_i(beat_data), .bytes_i(beat_bytes), .last_i(beat_last),
    .valid_o(window_valid), .window_o(window), .length_o(length)
  );

  always_ff @(posedge clk_i) begin
    oversize_q <= beat_oversize;
    ingress_q  <= beat_ingress;
  end

  assign frame_in.timestamp_ns = timestamp_ns_i;
  assign frame_in.timestamp_us = timestamp_us_i;
  assign frame_in.ingress      = ingress_q;
  assign frame_in.length       = length;

  logic frame_valid;
  credit_fifo #(.Width($bits(frame_in)), .Depth(Frames)) u_frames (
    .clk_i, .rst_ni,
    .push_i(window_valid), .data_i(frame_in), .valid_o(frame_valid), .pop_i(ends), .data_o(frame_out)
  );

  logic                        parsed_valid, parsed_done, tenant_valid, tenant_done, class_valid, class_done;
  logic                        pick_valid, pick_done, pick_selected, pfw_valid, pfw_done;
  logic                        next_valid, next_done, next_selected, sfw_valid, sfw_done;
  bartizan_rtl_pkg::headers_t  parsed_headers, tenant_headers, class_headers, pick_headers, pfw_headers;
  bartizan_rtl_pkg::headers_t  next_headers, sfw_headers;
  bartizan_rtl_pkg::decision_t class_decision, pick_decision, pfw_decision, next_decision, sfw_decision;
  bartizan_rtl_pkg::flow_t     flow;

  header_parser #(.DataW(DataW), .Ipv6(Ipv6)) u_parser (
    .clk_i, .rst_ni, .vxlan_port_i(vxlan_port), .tunnel_ports_i(tunnel_ports),
    .valid_i(window_valid), .window_i(window), .length_i(length), .ingress_i(ingress_q), .oversize_i(oversize_q),
    .valid_o(parsed_valid), .done_o(parsed_done), .headers_o(parsed_headers)
  );

  tenant_table #(.Entries(Tenants)) u_tenant (
    .clk_i, .rst_ni, .write_i(write),
    .valid_i(parsed_valid), .done_i(parsed_done), .headers_i(parsed_headers),
    .valid_o(tenant_valid), .done_o(tenant_done), .headers_o(tenant_headers)
  );

  classifier #(.Ipv6(Ipv6), .Stride(Stride), .NumRules(NumRules), .Block(Block)) u_classifier (
    .clk_i, .rst_ni, .write_i(write), .generation_i(generation),
    .valid_i(tenant_valid), .done_i(tenant_done), .headers_i(tenant_headers),
    .valid_o(class_valid), .done_o(class_done), .headers_o(class_headers), .decision_o(class_decision)
  );

  path_selector u_pick_pfw (
    .clk_i, .rst_ni, .bit_i(pfw_bit),
    .valid_i(class_valid), .done_i(class_done), .headers_i(class_headers), .decision_i(class_decision),
    .valid_o(pick_valid), .done_o(pick_done), .selected_o(pick_selected), .headers_o(pick_headers),
    .decision_o(pick_decision)
  );

  pfw #(.Outcomes(NumRules), .Block(Block)) u_pfw (
    .clk_i, .rst_ni, .write_i(write), .generation_i(generation), .bit_i(pfw_bit),
    .valid_i(pick_valid), .done_i(pick_done), .selected_i(pick_selected), .headers_i(pick_headers),
    .decision_i(pick_decision),
    .valid_o(pfw_valid), .done_o(pfw_done), .headers_o(pfw_headers), .decision_o(pfw_decision)
  );

  flow_cache #(
    .Ipv6(Ipv6), .Buckets(FlowBuckets), .Ways(FlowWays), .Block(Block), .Latency(FlowDelay)
  ) u_flows (
    .clk_i, .rst_ni, .write_i(write), .generation_i(generation), .sides_in_key_i(sides_in_key),
    .vlans_in_key_i(vlans_in_key), .headers_i(tenant_headers), .flow_o(flow)
  );

  path_selector u_pick_sfw (
    .clk_i, .rst_ni, .bit_i(sfw_bit),
    .valid_i(pfw_valid), .done_i(pfw_done), .headers_i(pfw_headers), .decision_i(pfw_decision),
    .valid_o(next_valid), .done_o(next_done), .selected_o(next_selected), .headers_o(next_headers),
    .decision_o(next_decision)
  );

  sfw #(.Entries(Flows), .Block(Block)) u_sfw (
    .clk_i, .rst_ni, .enable_i(enable), .bit_i(sfw_bit),
    .valid_i(next_valid), .done_i(next_done), .selected_i(next_selected), .headers_i(next_headers),
    .decision_i(next_decision), .flow_i(flow),
    .valid_o(sfw_valid), .done_o(sfw_done), .headers_o(sfw_headers), .decision_o(sfw_decision),
    .command_i(numbers_command), .op_i(flow_op), .place_i(flow_place), .staged_i(numbers_staged),
    .command_done_o(numbers_done), .result_o(numbers_read), .hold_o(flow_hold)
  );

  // ---- Verdicts ----

  logic                       flow_count, flow_count_high;
  logic [13:0]                flow_count_place;
  logic [15:0]                flow_count_bytes;
  logic                       verdict_push, verdict_valid, rule_count;
  logic [9:0]                 rule_place;
  bartizan_rtl_pkg::verdict_t verdict_in, verdict_out;

  verdict_join u_join (
    .clk_i, .rst_ni, .enable_i(enable),
    .valid_i(sfw_valid), .done_i(sfw_done), .headers_i(sfw_headers), .decision_i(sfw_decision),
    .push_o(verdict_push), .verdict_o(verdict_in), .count_o(rule_count), .place_o(rule_place),
    .flow_count_o(flow_count), .flow_place_o(flow_count_place), .flow_high_o(flow_count_high),
    .flow_bytes_o(flow_count_bytes)
  );

  flow_counters #(.Entries(Flows)) u_flow_counts (
    .clk_i, .rst_ni, .now_ns_i(timestamp_ns_i),
    .count_i(flow_count), .place_i(flow_count_place), .from_high_i(flow_count_high), .bytes_i(flow_count_bytes),
    .command_i(counts_command), .clear_i(flow_op == 2'd1), .command_place_i(flow_place),
    .command_done_o(counts_done), .result_o(counts_read),
    .touched_place_i(touched_place), .touched_clear_i(touched_clear), .touched_o(touched)
  );

  credit_fifo #(.Width($bits(verdict_in)), .Depth(Frames)) u_verdicts (
    .clk_i, .rst_ni,
    .push_i(verdict_push), .data_i(verdict_in), .valid_o(verdict_valid), .pop_i(ends), .data_o(verdict_out)
  );

  counter_bank #(.Counters(NumRules), .Copy(DataW >= 512 ? 1 : 0)) u_rule_counts (
    .clk_i, .rst_ni, .busy_o(busy_rule), .count_i(rule_count), .place_i(rule_place[$clog2(NumRules)-1:0]),
    .read_i(rule_read), .read_place_i(count_place[$clog2(NumRules)-1:0]),
    .read_valid_o(rule_valid), .read_o(rule_value)
  );

  counter_bank #(.Counters(128), .Copy(1)) u_dispositions (
    .clk_i, .rst_ni, .busy_o(busy_count), .count_i(ends), .place_i(disposition),
    .read_i(disposition_read), .read_place_i(count_place[6:0]),
    .read_valid_o(disposition_valid), .read_o(disposition_value)
  );

  // ---- Out ----

  logic             cpu_valid, cpu_ready, port_valid, port_ready;
  logic [BeatW-1:0] cpu_beat, port_beat, cpu_out, port_out;
  logic [7:0]       port_egress;

  egress #(.DataW(DataW)) u_egress (
    .clk_i, .rst_ni, .flush_i(flush),
    .verdict_valid_i(verdict_valid && frame_valid), .verdict_i(verdict_out), .frame_i(frame_out),
    .verdict_pop_o(ends),
    .beat_valid_i(out_beat_valid), .beat_i(out_beat), .beat_pop_o(beat_left),
    .cpu_valid_o(cpu_valid), .cpu_ready_i(cpu_ready), .cpu_beat_o(cpu_beat),
    .port_valid_o(port_valid), .port_ready_i(port_ready), .port_beat_o(port_beat),
    .port_egress_o(port_egress), .disposition_o(disposition)
  );

  axis_register #(.Width(BeatW)) u_cpu (
    .clk_i, .rst_ni, .valid_i(cpu_valid), .ready_o(cpu_ready), .data_i(cpu_beat),
    .valid_o(m_cpu_axis_tvalid_o), .ready_i(m_cpu_axis_tready_i), .data_o(cpu_out)
  );
  axis_register #(.Width(BeatW + 8)) u_port (
    .clk_i, .rst_ni, .valid_i(port_valid), .ready_o(port_ready), .data_i({port_egress, port_beat}),
    .valid_o(m_port_axis_tvalid_o), .ready_i(m_port_axis_tready_i), .data_o({m_port_axis_tuser_o, port_out})
  );

  assign m_cpu_axis_tdata_o  = cpu_out[DataW-1:0];
  assign m_cpu_axis_tlast_o  = cpu_out[BeatW-1];
  assign m_port_axis_tdata_o = port_out[DataW-1:0];
  assign m_port_axis_tlast_o = port_out[BeatW-1];

  for (genvar b = 0; b < DataW / 8; b++) begin : gen_keep
    assign m_cpu_axis_tkeep_o[b]  = cpu_out[DataW +: BytesW] > BytesW'(b);
    assign m_port_axis_tkeep_o[b] = port_out[DataW +: BytesW] > BytesW'(b);
  end

endmodule

`default_nettype wire
