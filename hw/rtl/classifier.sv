// SPDX-License-Identifier: Apache-2.0
// Looks a packet up by its headers, tenant and link: the first entry that matches gives flow class, path and
// the place of its rule's outcome. The host's twin is Linear (crates/classify).
//
// Key, highest bit first: source, destination, source port, destination port, protocol, link, tenant; with
// Ipv6 a first bit says that the packet is IPv6, and addresses are 128 bits, IPv4 in the lowest. Entries:
// words of fid, path, and generation [17:10] with outcome [9:0], 16 bytes each; see stride_bv for rows. Words
// are written while the entry's flag is off. The answer to a write of flags (regs) comes when no lookup is
// under way that met the flags before.
//
// Interface: a record in each cycle with `valid_i`; the same with a decision at `valid_o`.
// Parameters: Ipv6; Stride; NumRules; Block, 1 for block memory.
// Latency: 3 + levels of and_tree + levels of priority_tree. Throughput: 1 a cycle.
`default_nettype none

module classifier #(
  parameter int unsigned Ipv6     = 0,
  parameter int unsigned Stride   = 4,
  parameter int unsigned NumRules = 128,
  parameter int unsigned Block    = 0
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  bartizan_rtl_pkg::write_t    write_i,
  input  logic [7:0]                  generation_i,
  input  logic                        valid_i,
  input  logic                        done_i,
  input  bartizan_rtl_pkg::headers_t  headers_i,
  output logic                        valid_o,
  output logic                        done_o,
  output bartizan_rtl_pkg::headers_t  headers_o,
  output bartizan_rtl_pkg::decision_t decision_o
);

  localparam int unsigned KeyW    = Ipv6 != 0 ? 321 : 128;
  localparam int unsigned Strides = (KeyW + Stride - 1) / Stride;
  localparam int unsigned Joins   = Strides + 1 <= 6 ? 1 : Strides + 1 <= 36 ? 2 : 3;
  localparam int unsigned Tree    = ($clog2(NumRules) + 1) / 2;
  localparam int unsigned Latency = 3 + Joins + Tree;
  localparam int unsigned IndexW  = $clog2(NumRules);

  logic [KeyW-1:0]            key;
  logic [NumRules-1:0]        matching;
  logic                       hit, hit_q;
  logic [9:0]                 index;
  bartizan_rtl_pkg::headers_t late;
  logic [Latency-1:0]         valid_q, done_q;

  if (Ipv6 != 0) begin : gen_key6
    assign key = {headers_i.ipv6, headers_i.source, headers_i.destination, headers_i.source_port,
        headers_i.destination_port, headers_i.protocol, 1'b0, headers_i.ingress[7:1], headers_i.tenant};
  end else begin : gen_key4
    assign key = {headers_i.source[31:0], headers_i.destination[31:0], headers_i.source_port,
        headers_i.destination_port, headers_i.protocol, 1'b0, headers_i.ingress[7:1], headers_i.tenant};
  end

  stride_bv #(.KeyW(KeyW), .Stride(Stride), .NumRules(NumRules), .Block(Block)) u_rows (
    .clk_i, .rst_ni, .write_i, .key_i(key), .matches_o(matching)
  );

  priority_tree #(.Width(NumRules)) u_first (.clk_i, .bits_i(matching), .hit_o(hit), .index_o(index));

  delay_line #(.Width($bits(headers_i)), .Cycles(Latency - 1)) u_headers (
    .clk_i, .rst_ni, .data_i(headers_i), .data_o(late)
  );

  // ---- What the entry says ----

  bartizan_rtl_pkg::write_t write_q;
  logic [31:0]              fid, path;
  logic [17:0]              place;
  logic                     is_mine;

  always_ff @(posedge clk_i) begin
    write_q <= write_i;
    if (!rst_ni) begin
      write_q.valid <= 1'b0;
    end
    hit_q <= hit;
  end
  assign is_mine = write_q.valid && write_q.address[23:16] == bartizan_regs_pkg::ENTRY_BASE[23:16];

  row_memory #(.Width(32), .Words(NumRules), .Block(Block)) u_fid (
    .clk_i, .write_i(is_mine && write_q.address[3:2] == 2'd0), .write_address_i(write_q.address[4 +: IndexW]),
    .write_data_i(write_q.data), .read_address_i(index[IndexW-1:0]), .data_o(fid)
  );
  row_memory #(.Width(32), .Words(NumRules), .Block(Block)) u_path (
    .clk_i, .write_i(is_mine && write_q.address[3:2] == 2'd1), .write_address_i(write_q.address[4 +: IndexW]),
    .write_data_i(write_q.data), .read_address_i(index[IndexW-1:0]), .data_o(path)
  );
  row_memory #(.Width(18), .Words(NumRules), .Block(Block)) u_place (
    .clk_i, .write_i(is_mine && write_q.address[3:2] == 2'd2), .write_address_i(write_q.address[4 +: IndexW]),
    .write_data_i(write_q.data[17:0]), .read_address_i(index[IndexW-1:0]), .data_o(place)
  );

  // ---- The decision so far ----

  bartizan_rtl_pkg::headers_t  headers_q;
  bartizan_rtl_pkg::decision_t decision_q;
  logic                        current;

  assign current = place[17:10] == generation_i;

  always_ff @(posedge clk_i) begin
    valid_q <= rst_ni ? {valid_q[Latency-2:0], valid_i} : '0;
    done_q  <= {done_q[Latency-2:0], done_i};

    headers_q             <= late;
    decision_q.up         <= late.up || !hit_q || !current;
    decision_q.cause      <= late.up ? late.cause
        : !hit_q ? bartizan_regs_pkg::DISPOSITION_UP_NO_ENTRY : bartizan_regs_pkg::DISPOSITION_UP_GENERATION;
    decision_q.drop       <= 1'b0;
    decision_q.reason     <= 6'd0;
    decision_q.classified <= late.parsed && hit_q && current;
    decision_q.fid        <= fid;
    decision_q.path       <= path;
    decision_q.generation <= place[17:10];
    decision_q.outcome    <= place[9:0];
    decision_q.counted    <= 1'b0;
    decision_q.redirect   <= 1'b0;
    decision_q.egress     <= late.ingress ^ 8'd1;
    decision_q.flow       <= 1'b0;
    decision_q.flow_place <= 14'd0;
    decision_q.from_high  <= 1'b0;
  end

  assign valid_o    = valid_q[Latency-1];
  assign done_o     = done_q[Latency-1];
  assign headers_o  = headers_q;
  assign decision_o = decision_q;

endmodule

`default_nettype wire
