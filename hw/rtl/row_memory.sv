// SPDX-License-Identifier: Apache-2.0
// A memory with one write and one read port; the kind of memory is a parameter.
//
// Interface: a write in each cycle with `write_i`; `data_o` is the word that stood at `read_address_i` at the
// clock edge before, without a write of that edge.
// Parameters: Width, bits; Words; Block, 1 for block memory, 0 for LUT memory.
// Latency: 1 cycle. Throughput: one read and one write a cycle.
`default_nettype none

module row_memory #(
  parameter int unsigned Width = 32,
  parameter int unsigned Words = 16,
  parameter int unsigned Block = 0
) (
  input  logic                     clk_i,
  input  logic                     write_i,
  input  logic [$clog2(Words)-1:0] write_address_i,
  input  logic [Width-1:0]         write_data_i,
  input  logic [$clog2(Words)-1:0] read_address_i,
  output logic [Width-1:0]         data_o
);

  logic [Width-1:0] data_q;

  assign data_o = data_q;

  if (Block != 0) begin : gen_block
    (* ram_style = "block", syn_ramstyle = "block_ram" *)
    logic [Width-1:0] memory[Words];
    always_ff @(posedge clk_i) begin
      if (write_i) begin
        memory[write_address_i] <= write_data_i;
      end
      data_q <= memory[read_address_i];
    end
  end else begin : gen_lut
    (* ram_style = "distributed", syn_ramstyle = "distributed" *)
    logic [Width-1:0] memory[Words];
    always_ff @(posedge clk_i) begin
      if (write_i) begin
        memory[write_address_i] <= write_data_i;
      end
      data_q <= memory[read_address_i];
    end
  end

endmodule

`default_nettype wire
