// SPDX-License-Identifier: Apache-2.0
// Whose a packet is, by VXLAN network, VLAN and link: the first entry that selects it decides, as the host's
// list of selectors does; a packet that none selects is tenant 0's. Selectors by prefixes have no entry: a
// host that has one does not enable the device.
//
// Interface: a record in each cycle with `valid_i`; the same record, with its tenant, at `headers_o`. Entries
// are written while the device is disabled (regs), so that no packet meets a part of one.
//
//   word  bits
//   0     31 valid, 30 VNI counts, 29 VLAN counts, 28 link counts, 23:0 VNI
//   1     27:16 VLAN, 15:0 tenant
//   2     7:0 link
//
// Parameters: Entries.
// Latency: 2 cycles. Throughput: a record a cycle.
`default_nettype none

module tenant_table #(
  parameter int unsigned Entries = 16
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,
  input  bartizan_rtl_pkg::write_t   write_i,
  input  logic                       valid_i,
  input  logic                       done_i,
  input  bartizan_rtl_pkg::headers_t headers_i,
  output logic                       valid_o,
  output logic                       done_o,
  output bartizan_rtl_pkg::headers_t headers_o
);

  logic [Entries-1:0]         selects_q;
  logic [Entries*16-1:0]      tenants;
  logic                       valid1_q, done1_q, valid2_q, done2_q;
  bartizan_rtl_pkg::headers_t headers1_q, headers2_q;
  logic [15:0]                tenant;
  logic                       is_mine;

  assign is_mine = write_i.valid && write_i.address[23:16] == bartizan_regs_pkg::TENANT_BASE[23:16];

  for (genvar e = 0; e < Entries; e++) begin : gen_entry
    logic        entry_valid_q, by_vni_q, by_vlan_q, by_link_q;
    logic [23:0] vni_q;
    logic [11:0] vlan_q;
    logic [7:0]  link_q;
    logic [15:0] tenant_q;
    logic        write, vlan_matches;

    assign write = is_mine && write_i.address[15:4] == 12'(e);
    assign tenants[16*e +: 16] = tenant_q;
    assign vlan_matches = (headers_i.vlans != 2'd0 && headers_i.vlan_outer == vlan_q)
        || (headers_i.vlans == 2'd2 && headers_i.vlan_inner == vlan_q);

    always_ff @(posedge clk_i) begin
      if (write && write_i.address[3:2] == 2'd0) begin
        by_vni_q  <= write_i.data[30];
        by_vlan_q <= write_i.data[29];
        by_link_q <= write_i.data[28];
        vni_q     <= write_i.data[23:0];
      end
      if (write && write_i.address[3:2] == 2'd1) begin
        vlan_q   <= write_i.data[27:16];
        tenant_q <= write_i.data[15:0];
      end
      if (write && write_i.address[3:2] == 2'd2) begin
        link_q <= write_i.data[7:0];
      end
      if (!rst_ni) begin
        entry_valid_q <= 1'b0;
      end else if (write && write_i.address[3:2] == 2'd0) begin
        entry_valid_q <= write_i.data[31];
      end
      selects_q[e] <= entry_valid_q && (!by_vni_q || (headers_i.inner && headers_i.vni == vni_q))
          && (!by_vlan_q || vlan_matches) && (!by_link_q || {1'b0, headers_i.ingress[7:1]} == link_q);
    end
  end

  always_comb begin
    tenant = 16'd0;
    for (int e = Entries - 1; e >= 0; e--) begin
      if (selects_q[e]) begin
        tenant = tenants[16*e +: 16];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    valid1_q          <= rst_ni && valid_i;
    done1_q           <= done_i;
    headers1_q        <= headers_i;
    valid2_q          <= rst_ni && valid1_q;
    done2_q           <= done1_q;
    headers2_q        <= headers1_q;
    headers2_q.tenant <= tenant;
  end

  assign valid_o   = valid2_q;
  assign done_o    = done2_q;
  assign headers_o = headers2_q;

endmodule

`default_nettype wire
