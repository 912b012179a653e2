// SPDX-License-Identifier: Apache-2.0
// Proof: no packet sees half an entry. Rows and flag of stride_bv are written by a host that keeps to the
// driver's order (flag off, rows, flag on) at any time, and lookups come in every cycle. A lookup that the
// entry matches has matched all strides of one version of it: the one that stood when the flag was on.
module classifier_proof (
  input logic        clk_i,
  input logic        write_i,
  input logic        row_i,      // A row is written, else the flags.
  input logic        stride_i,
  input logic        value_i,    // Two values of each stride are used.
  input logic [31:0] data_i,
  input logic [1:0]  key_i
);
  localparam int unsigned Rules = 32;

  logic                     rst_nq = 1'b0;
  bartizan_rtl_pkg::write_t write;
  logic [Rules-1:0]         matches;

  // All entries are made by the same loops; one stands for each.
  localparam int unsigned Entry = 17;

  assign write.valid   = write_i && rst_nq && legal;
  assign write.address = row_i ? {1'b1, 6'd0, stride_i, 8'd0, value_i, 7'd0} : bartizan_regs_pkg::VALID_BASE;
  assign write.data    = data_i;

  stride_bv #(.KeyW(8), .Stride(4), .NumRules(Rules), .Block(0)) u_dut (
    .clk_i, .rst_ni(rst_nq), .write_i(write), .key_i({3'd0, key_i[1], 3'd0, key_i[0]}), .matches_o(matches)
  );

  // The host's copy of the entry's bits, which it has written all before it sets the flag; and the flag.
  logic [3:0] bits_q;
  logic [3:0] known_q = '0;
  logic       flag_q = 1'b0;
  logic       legal;
  // While the flag is on, a write of rows leaves the entry's bit as it is.
  assign legal = row_i ? !flag_q || data_i[Entry] == bits_q[{stride_i, value_i}] : !data_i[Entry] || (&known_q);

  // The version that stood, what the bits were when the flag went on; and both of cycles before.
  logic [3:0] standing_q, before1_q, before2_q, before3_q;
  logic       stood1_q = 1'b0, stood2_q = 1'b0, stood3_q = 1'b0;
  logic [1:0] key1_q, key2_q;
  // Registers of lookups are not reset; what comes out of them counts three cycles later.
  logic [3:0] lookups_q = '0;

  always_ff @(posedge clk_i) begin
    rst_nq    <= 1'b1;
    lookups_q <= {lookups_q[2:0], rst_nq};
    if (write.valid && row_i) begin
      bits_q[{stride_i, value_i}]  <= data_i[Entry];
      known_q[{stride_i, value_i}] <= 1'b1;
    end
    if (write.valid && !row_i) begin
      flag_q <= data_i[Entry];
      if (data_i[Entry] && !flag_q) begin
        standing_q <= bits_q;
      end
    end
    {before1_q, before2_q, before3_q} <= {standing_q, before1_q, before2_q};
    {stood1_q, stood2_q, stood3_q}    <= {flag_q, stood1_q, stood2_q};
    {key1_q, key2_q}                  <= {key_i, key1_q};
    if (lookups_q[3] && matches[Entry]) begin
      // A lookup was two cycles ago, and meets what was written at least two cycles before it.
      assert (stood3_q && before3_q[{1'b0, key2_q[1]}] && before3_q[{1'b1, key2_q[0]}]);
    end
    cover (lookups_q[3] && matches[Entry] && standing_q != before3_q);
  end
endmodule
