// SPDX-License-Identifier: Apache-2.0
// StrideBV: for each stride of the key and each of its values a row with a bit for every entry that matches;
// the conjunction of one row for each stride has the entries that match the key (Ganegedara, Jiang, Prasanna,
// "A Scalable and Modular Architecture for High-Performance Packet Classification", TPDS 2014). Prefixes and
// masks cost nothing; a range of ports is several entries, which the host makes.
//
// Interface: `key_i` in any cycle; `matches_o` has a bit for each entry. All rows of a lookup and all valid
// flags are read at one clock edge. So the host may change an entry under traffic: flag off, rows, flag on; a
// lookup meets the entry as it was, not at all, or as it is then, and never a part of it. Words of rows:
// address[22:16] stride, [15:7] value, [6:2] 32 entries; words of flags: 32 entries each. The key's first
// stride is its highest bits; the last one is filled up with zeros at the low end.
// Parameters: KeyW; Stride, 4 or 9 bits; NumRules, 64 to 1024 entries; Block, 1 for block memory.
// Latency: 1 + levels of and_tree. Throughput: 1 lookup a cycle.
`default_nettype none

module stride_bv #(
  parameter int unsigned KeyW     = 128,
  parameter int unsigned Stride   = 4,
  parameter int unsigned NumRules = 128,
  parameter int unsigned Block    = 0
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  bartizan_rtl_pkg::write_t write_i,
  input  logic [KeyW-1:0]          key_i,
  output logic [NumRules-1:0]      matches_o
);

  localparam int unsigned Strides = (KeyW + Stride - 1) / Stride;
  localparam int unsigned Words   = NumRules / 32;
  localparam int unsigned PaddedW = Strides * Stride;

  logic [PaddedW-1:0]              key;
  logic [NumRules*(Strides+1)-1:0] rows;
  logic [NumRules-1:0]             flags_q, flags_read_q;
  bartizan_rtl_pkg::write_t        write_q;

  assign key = PaddedW'(key_i) << (PaddedW - KeyW);

  always_ff @(posedge clk_i) begin
    write_q <= write_i;
    if (!rst_ni) begin
      write_q.valid <= 1'b0;
    end
  end

  for (genvar s = 0; s < Strides; s++) begin : gen_stride
    for (genvar w = 0; w < Words; w++) begin : gen_word
      logic write;
      assign write = write_q.valid && write_q.address[23] && write_q.address[22:16] == 7'(s)
          && write_q.address[6:2] == 5'(w);

      row_memory #(.Width(32), .Words(1 << Stride), .Block(Block)) u_rows (
        .clk_i,
        .write_i        (write),
        .write_address_i(write_q.address[7 +: Stride]),
        .write_data_i   (write_q.data),
        .read_address_i (key[PaddedW - Stride * (s + 1) +: Stride]),
        .data_o         (rows[NumRules*s + 32*w +: 32])
      );
    end
  end

  for (genvar w = 0; w < Words; w++) begin : gen_flags
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        flags_q[32*w +: 32] <= '0;
      end else if (write_q.valid && write_q.address[23:16] == bartizan_regs_pkg::VALID_BASE[23:16]
          && write_q.address[6:2] == 5'(w)) begin
        flags_q[32*w +: 32] <= write_q.data;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    flags_read_q <= flags_q;
  end
  assign rows[NumRules*Strides +: NumRules] = flags_read_q;

  and_tree #(.Width(NumRules), .Inputs(Strides + 1)) u_join (
    .clk_i,
    .vectors_i(rows),
    .vector_o (matches_o)
  );

endmodule

`default_nettype wire
