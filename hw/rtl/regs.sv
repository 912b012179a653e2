// SPDX-License-Identifier: Apache-2.0
// The host's side: identity, configuration, tables and counters over AXI4-Lite (AMBA AXI, chapter B1). The
// map is in crates/rtl/src/registers.rs, from which bartizan_regs_pkg is made.
//
// Writes are of whole words. A write to configuration or to flags of entries is answered when every packet
// that met the state before has its verdict; all other writes are answered at once. Reads and writes of
// addresses that are not in the map, and writes with other strobes, are answered with SLVERR and change
// nothing. Of counters the low word is read first; it keeps the high word that belongs to it.
//
// Software reset: a write of CONTROL with RESET lets no frame begin, drops those inside (counted as lost by
// the reset) and ends when none is inside; configuration and tables stay. CONTROL shows RESET meanwhile.
//
// Commands to the flow cache go to `sfw`, and after it to `flow_counters`, whose results are read in place.
//
// Parameters: DataW, Stride, NumRules, Ipv6, Tenants, FlowBuckets, FlowWays, for the capabilities;
// SettleCycles, longer than any packet's way through the device's tables.
// Throughput: one transaction at a time.
`default_nettype none

module regs #(
  parameter int unsigned DataW        = 64,
  parameter int unsigned Stride       = 4,
  parameter int unsigned NumRules     = 128,
  parameter int unsigned Ipv6         = 0,
  parameter int unsigned Tenants      = 16,
  parameter int unsigned FlowBuckets  = 64,
  parameter int unsigned FlowWays     = 4,
  parameter int unsigned SettleCycles = 64
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  // AXI4-Lite.
  input  logic                     s_axil_awvalid_i,
  output logic                     s_axil_awready_o,
  input  logic [23:0]              s_axil_awaddr_i,
  input  logic                     s_axil_wvalid_i,
  output logic                     s_axil_wready_o,
  input  logic [31:0]              s_axil_wdata_i,
  input  logic [3:0]               s_axil_wstrb_i,
  output logic                     s_axil_bvalid_o,
  input  logic                     s_axil_bready_i,
  output logic [1:0]               s_axil_bresp_o,
  input  logic                     s_axil_arvalid_i,
  output logic                     s_axil_arready_o,
  input  logic [23:0]              s_axil_araddr_i,
  output logic                     s_axil_rvalid_o,
  input  logic                     s_axil_rready_i,
  output logic [31:0]              s_axil_rdata_o,
  output logic [1:0]               s_axil_rresp_o,
  // Configuration.
  output logic                     enable_o,
  output logic                     flush_o,
  output logic [7:0]               generation_o,
  output logic [15:0]              vxlan_port_o,
  output logic [63:0]              tunnel_ports_o,
  output logic [4:0]               pfw_bit_o,
  output logic [4:0]               sfw_bit_o,
  output logic                     sides_in_key_o,
  output logic                     vlans_in_key_o,
  // Tables.
  output bartizan_rtl_pkg::write_t write_o,
  // Counters.
  output logic                     disposition_read_o,
  output logic                     rule_read_o,
  output logic [9:0]               count_place_o,
  input  logic                     disposition_valid_i,
  input  logic [63:0]              disposition_i,
  input  logic                     rule_valid_i,
  input  logic [63:0]              rule_i,
  // Flow cache.
  output logic                     numbers_command_o,
  output logic                     counts_command_o,
  output logic [1:0]               flow_op_o,
  output logic [13:0]              flow_place_o,
  output logic [287:0]             numbers_o,
  input  logic                     numbers_done_i,
  input  logic [287:0]             numbers_i,
  input  logic                     counts_done_i,
  input  logic [383:0]             counts_i,
  output logic [8:0]               touched_place_o,
  output logic                     touched_clear_o,
  input  logic [31:0]              touched_i,
  // Frames.
  input  logic                     begins_i,
  input  logic                     ends_i,
  input  logic                     busy_i
);

  localparam logic [1:0] Okay = 2'b00;
  localparam logic [1:0] SlaveError = 2'b10;
  localparam int unsigned SettleW = $clog2(SettleCycles + 1);
  localparam int unsigned Flows = FlowBuckets * FlowWays;
  localparam int unsigned FlowKeyWords = Ipv6 != 0 ? 12 : 6;
  localparam int unsigned FlowChunks = (32 * FlowKeyWords + 4) / 5;

  logic        enable_q, flush_q;
  logic [7:0]  generation_q;
  logic [15:0] vxlan_port_q;
  logic [63:0] tunnel_ports_q;
  logic [4:0]  pfw_bit_q, sfw_bit_q;
  logic        sides_in_key_q, vlans_in_key_q;
  logic [63:0] frames_q;
  logic [15:0] inside_q;

  assign enable_o       = enable_q;
  assign flush_o        = flush_q;
  assign generation_o   = generation_q;
  assign vxlan_port_o   = vxlan_port_q;
  assign tunnel_ports_o = tunnel_ports_q;
  assign pfw_bit_o      = pfw_bit_q;
  assign sfw_bit_o      = sfw_bit_q;
  assign sides_in_key_o = sides_in_key_q;
  assign vlans_in_key_o = vlans_in_key_q;

  // ---- Writes ----

  bartizan_rtl_pkg::write_t write_q;
  logic                     take_write, write_known, settles, commands, waits_q, bvalid_q;
  logic                     numbers_command_q, counts_command_q;
  logic [1:0]               bresp_q;
  logic [SettleW-1:0]       settle_q;
  logic [7:0]               page;

  assign page       = s_axil_awaddr_i[23:16];
  assign take_write = s_axil_awvalid_i && s_axil_wvalid_i && !waits_q && !bvalid_q && !write_q.valid
      && !numbers_command_q && !counts_command_q;
  assign s_axil_awready_o = take_write;
  assign s_axil_wready_o  = take_write;
  assign s_axil_bvalid_o  = bvalid_q;
  assign s_axil_bresp_o   = bresp_q;

  // Configuration that can be written; tables by pages, the number of entries decides how far.
  assign settles = page == 8'd0 || page == bartizan_regs_pkg::VALID_BASE[23:16]
      || (page[7:4] == bartizan_regs_pkg::FLOW_BASE[23:20] && s_axil_awaddr_i[5:2] == 4'd15);
  assign commands = s_axil_awaddr_i == bartizan_regs_pkg::FLOW_COMMAND;
  always_comb begin
    write_known = 1'b0;
    if (s_axil_wstrb_i == 4'b1111 && s_axil_awaddr_i[1:0] == 2'b00) begin
      if (page == 8'd0) begin
        unique case (s_axil_awaddr_i)
          bartizan_regs_pkg::CONTROL, bartizan_regs_pkg::GENERATION, bartizan_regs_pkg::VXLAN_PORT,
          bartizan_regs_pkg::TUNNEL_PORTS_LOW, bartizan_regs_pkg::TUNNEL_PORTS_HIGH,
          bartizan_regs_pkg::FUNCTION_BITS, bartizan_regs_pkg::FLOW_KEYS: write_known = 1'b1;
          default: write_known = 1'b0;
        endcase
      end else if (page == bartizan_regs_pkg::ENTRY_BASE[23:16]
          || page == bartizan_regs_pkg::OUTCOME_BASE[23:16]) begin
        write_known = 32'(s_axil_awaddr_i[15:4]) < NumRules;
      end else if (page == bartizan_regs_pkg::TENANT_BASE[23:16]) begin
        write_known = 32'(s_axil_awaddr_i[15:4]) < Tenants;
      end else if (page == bartizan_regs_pkg::VALID_BASE[23:16]) begin
        write_known = 32'(s_axil_awaddr_i[15:2]) < NumRules / 32;
      end else if (page == bartizan_regs_pkg::FLOW_NUMBERS[23:16]) begin
        write_known = s_axil_awaddr_i[15:0] < 16'd36 || (commands && 32'(s_axil_wdata_i[13:0]) < Flows);
      end else if (page[7:4] == bartizan_regs_pkg::FLOW_BASE[23:20]) begin
        write_known = 32'(s_axil_awaddr_i[19:6]) < Flows
            && (32'(s_axil_awaddr_i[5:2]) < FlowKeyWords || s_axil_awaddr_i[5:2] == 4'd15);
      end else if (page[7:4] == bartizan_regs_pkg::FLOW_HASH_BASE[23:20]) begin
        write_known = 32'(s_axil_awaddr_i[19:7]) < FlowChunks;
      end else begin
        write_known = page[7] && 32'(s_axil_awaddr_i[6:2]) < NumRules / 32
            && 32'(s_axil_awaddr_i[15:7]) < (1 << Stride)
            && 32'(s_axil_awaddr_i[22:16]) < ((Ipv6 != 0 ? 321 : 128) + Stride - 1) / Stride;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    write_q.address <= s_axil_awaddr_i;
    write_q.data    <= s_axil_wdata_i;
    if (!rst_ni) begin
      write_q.valid <= 1'b0;
      waits_q       <= 1'b0;
      settle_q      <= '0;
      bvalid_q      <= 1'b0;
      bresp_q       <= Okay;
      numbers_command_q <= 1'b0;
      counts_command_q  <= 1'b0;
    end else begin
      write_q.valid <= take_write && write_known;
      if (take_write) begin
        bresp_q  <= write_known ? Okay : SlaveError;
        waits_q  <= write_known && settles;
        bvalid_q <= !(write_known && (settles || commands));
        settle_q <= SettleW'(SettleCycles);
        numbers_command_q <= write_known && commands;
      end else if (numbers_command_q) begin
        numbers_command_q <= !numbers_done_i;
        counts_command_q  <= numbers_done_i;
      end else if (counts_command_q) begin
        counts_command_q <= !counts_done_i;
        bvalid_q         <= counts_done_i;
      end else if (waits_q) begin
        settle_q <= settle_q - SettleW'(1);
        waits_q  <= settle_q != SettleW'(1);
        bvalid_q <= settle_q == SettleW'(1);
      end else if (s_axil_bready_i) begin
        bvalid_q <= 1'b0;
      end
    end
  end
  assign write_o = write_q;

  // ---- Commands to the flow cache ----

  logic [1:0]   flow_op_q;
  logic [13:0]  flow_place_q;
  logic [287:0] numbers_q;

  assign numbers_command_o = numbers_command_q;
  assign counts_command_o  = counts_command_q;
  assign flow_op_o         = flow_op_q;
  assign flow_place_o      = flow_place_q;
  assign numbers_o         = numbers_q;

  for (genvar n = 0; n < 9; n++) begin : gen_number
    always_ff @(posedge clk_i) begin
      if (write_q.valid && write_q.address == bartizan_regs_pkg::FLOW_NUMBERS + 24'(4 * n)) begin
        numbers_q[32*n +: 32] <= write_q.data;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (take_write && commands) begin
      flow_op_q    <= s_axil_wdata_i[29:28];
      flow_place_q <= s_axil_wdata_i[13:0];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      enable_q       <= 1'b0;
      flush_q        <= 1'b0;
      generation_q   <= '0;
      vxlan_port_q   <= '0;
      tunnel_ports_q <= '0;
      pfw_bit_q      <= '0;
      sfw_bit_q      <= '0;
      sides_in_key_q <= 1'b0;
      vlans_in_key_q <= 1'b0;
      frames_q       <= '0;
      inside_q       <= '0;
    end else begin
      if (write_q.valid) begin
        unique case (write_q.address)
          bartizan_regs_pkg::CONTROL:           enable_q <= write_q.data[0];
          bartizan_regs_pkg::GENERATION:        generation_q <= write_q.data[7:0];
          bartizan_regs_pkg::VXLAN_PORT:        vxlan_port_q <= write_q.data[15:0];
          bartizan_regs_pkg::TUNNEL_PORTS_LOW:  tunnel_ports_q[31:0] <= write_q.data;
          bartizan_regs_pkg::TUNNEL_PORTS_HIGH: tunnel_ports_q[63:32] <= write_q.data;
          bartizan_regs_pkg::FUNCTION_BITS: begin
            pfw_bit_q <= write_q.data[4:0];
            sfw_bit_q <= write_q.data[12:8];
          end
          bartizan_regs_pkg::FLOW_KEYS: begin
            sides_in_key_q <= write_q.data[0];
            vlans_in_key_q <= write_q.data[1];
          end
          default:                              enable_q <= enable_q;
        endcase
      end
      if (write_q.valid && write_q.address == bartizan_regs_pkg::CONTROL && write_q.data[1]) begin
        flush_q <= 1'b1;
      end else if (inside_q == '0 && !begins_i && !write_q.valid) begin
        // A frame that was let in a cycle ago is not counted yet; the write is answered later than that.
        flush_q <= flush_q && waits_q;
      end
      frames_q <= frames_q + 64'(begins_i);
      inside_q <= inside_q + 16'(begins_i) - 16'(ends_i);
    end
  end

  // ---- Reads ----

  logic        take_read, reads_q, rvalid_q, disposition_q, rule_q, touched_q;
  logic [23:0] address_q;
  logic [31:0] rdata_q, high_q;
  logic [1:0]  rresp_q;
  logic        is_high, flow_result_q;
  logic [31:0] number, count;

  always_comb begin
    number = '0;
    count  = '0;
    for (int n = 0; n < 9; n++) begin
      number = number | (address_q[5:2] == 4'(n) ? numbers_i[32*n +: 32] : 32'd0);
    end
    for (int n = 0; n < 12; n++) begin
      count = count | (address_q[5:2] == 4'(n) ? counts_i[32*n +: 32] : 32'd0);
    end
  end

  assign touched_place_o = address_q[10:2];
  assign touched_clear_o = reads_q && touched_q;

  assign take_read        = s_axil_arvalid_i && !reads_q && !rvalid_q;
  assign s_axil_arready_o = take_read;
  assign s_axil_rvalid_o  = rvalid_q;
  assign s_axil_rdata_o   = rdata_q;
  assign s_axil_rresp_o   = rresp_q;

  assign is_high            = address_q[2];
  assign disposition_read_o = reads_q && disposition_q && !is_high;
  assign rule_read_o        = reads_q && rule_q && !is_high;
  assign count_place_o      = address_q[12:3];

  always_ff @(posedge clk_i) begin
    if (take_read) begin
      address_q     <= s_axil_araddr_i;
      disposition_q <= s_axil_araddr_i[23:16] == bartizan_regs_pkg::COUNT_BASE[23:16]
          && s_axil_araddr_i[15:3] < 13'd128 && s_axil_araddr_i[1:0] == 2'b00;
      rule_q        <= s_axil_araddr_i[23:16] == bartizan_regs_pkg::RULE_COUNT_BASE[23:16]
          && 32'(s_axil_araddr_i[15:3]) < NumRules && s_axil_araddr_i[1:0] == 2'b00;
      touched_q     <= s_axil_araddr_i[23:16] == bartizan_regs_pkg::FLOW_TOUCHED_BASE[23:16]
          && 32'(s_axil_araddr_i[15:2]) < Flows / 32 && s_axil_araddr_i[1:0] == 2'b00;
      flow_result_q <= s_axil_araddr_i[23:7] == bartizan_regs_pkg::FLOW_NUMBERS[23:7]
          && (s_axil_araddr_i[6] ? s_axil_araddr_i[5:2] < 4'd12 : s_axil_araddr_i[5:2] < 4'd9)
          && s_axil_araddr_i[1:0] == 2'b00;
    end
    if (!rst_ni) begin
      reads_q  <= 1'b0;
      rvalid_q <= 1'b0;
      rresp_q  <= Okay;
    end else if (take_read) begin
      reads_q <= 1'b1;
    end else if (reads_q) begin
      rresp_q <= Okay;
      if ((disposition_q || rule_q) && !is_high) begin
        if (disposition_q ? disposition_valid_i : rule_valid_i) begin
          {high_q, rdata_q} <= disposition_q ? disposition_i : rule_i;
          reads_q  <= 1'b0;
          rvalid_q <= 1'b1;
        end
      end else begin
        reads_q  <= 1'b0;
        rvalid_q <= 1'b1;
        if (disposition_q || rule_q) begin
          rdata_q <= high_q;
        end else if (touched_q) begin
          rdata_q <= touched_i;
        end else if (flow_result_q) begin
          rdata_q <= address_q[6] ? count : number;
        end else begin
          unique case (address_q)
            bartizan_regs_pkg::ID:                rdata_q <= bartizan_regs_pkg::ID_VALUE;
            bartizan_regs_pkg::VERSION:           rdata_q <= bartizan_regs_pkg::VERSION_VALUE;
            bartizan_regs_pkg::CAPABILITY:        rdata_q <= {16'(NumRules), 8'(Stride), 8'(DataW / 8)};
            bartizan_regs_pkg::CAPABILITY_MORE:   rdata_q <= {16'd0, 8'(Tenants), 7'd0, Ipv6 != 0};
            bartizan_regs_pkg::CONTROL:           rdata_q <= {30'd0, flush_q, enable_q};
            bartizan_regs_pkg::STATUS:            rdata_q <= {busy_i, 15'd0, inside_q};
            bartizan_regs_pkg::GENERATION:        rdata_q <= {24'd0, generation_q};
            bartizan_regs_pkg::VXLAN_PORT:        rdata_q <= {16'd0, vxlan_port_q};
            bartizan_regs_pkg::TUNNEL_PORTS_LOW:  rdata_q <= tunnel_ports_q[31:0];
            bartizan_regs_pkg::TUNNEL_PORTS_HIGH: rdata_q <= tunnel_ports_q[63:32];
            bartizan_regs_pkg::FUNCTION_BITS:     rdata_q <= {19'd0, sfw_bit_q, 3'd0, pfw_bit_q};
            bartizan_regs_pkg::FLOW_KEYS:         rdata_q <= {30'd0, vlans_in_key_q, sides_in_key_q};
            bartizan_regs_pkg::CAPABILITY_FLOWS:  rdata_q <= {8'd0, 8'(FlowWays), 16'(Flows)};
            bartizan_regs_pkg::FRAMES_LOW: begin
              {high_q, rdata_q} <= frames_q;
            end
            bartizan_regs_pkg::FRAMES_HIGH:       rdata_q <= high_q;
            default: begin
              rdata_q <= 32'd0;
              rresp_q <= SlaveError;
            end
          endcase
        end
      end
    end else if (s_axil_rready_i) begin
      rvalid_q <= 1'b0;
    end
  end

endmodule

`default_nettype wire
