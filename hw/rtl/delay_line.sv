// SPDX-License-Identifier: Apache-2.0
// Delays a value by a fixed number of cycles, in a ring of memory.
//
// Interface: `data_o` is `data_i` of Cycles cycles before. There is no stall.
// Parameters: Width, bits; Cycles, at least 4.
// Latency: Cycles. Throughput: 1 a cycle.
`default_nettype none

module delay_line #(
  parameter int unsigned Width  = 64,
  parameter int unsigned Cycles = 8
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned PlaceW = $clog2(Cycles);
  localparam int unsigned Places = 1 << PlaceW;

  logic [Width-1:0]  memory[Places];
  logic [Width-1:0]  read_q, data_q;
  logic [PlaceW-1:0] write_q;
  logic [PlaceW-1:0] place;

  // One cycle is the memory's, one that of the register behind it.
  assign place  = write_q - PlaceW'(Cycles - 2);
  assign data_o = data_q;

  always_ff @(posedge clk_i) begin
    memory[write_q] <= data_i;
    read_q          <= memory[place];
    data_q          <= read_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= '0;
    end else begin
      write_q <= write_q + PlaceW'(1);
    end
  end

endmodule

`default_nettype wire
