// SPDX-License-Identifier: Apache-2.0
// The conjunction of several vectors, six at a time, with a register after each step. Six is what one LUT of
// the 7 series joins.
//
// Interface: `vectors_i` has Inputs vectors of Width bits, one after the other. There is no stall.
// Parameters: Width; Inputs, 1 to 216.
// Latency: and_tree_levels(Inputs), 1 to 3 cycles. Throughput: 1 a cycle.
`default_nettype none

module and_tree #(
  parameter int unsigned Width  = 64,
  parameter int unsigned Inputs = 16
) (
  input  logic                    clk_i,
  input  logic [Width*Inputs-1:0] vectors_i,
  output logic [Width-1:0]        vector_o
);

  localparam int unsigned First = (Inputs + 5) / 6;

  // The inputs are filled up with ones to whole groups.
  logic [Width*First*6-1:0] first_in;
  logic [Width*First-1:0]   first_q;

  assign first_in[Width*Inputs-1:0] = vectors_i;
  if (First * 6 > Inputs) begin : gen_fill
    assign first_in[Width*First*6-1:Width*Inputs] = '1;
  end

  for (genvar g = 0; g < First; g++) begin : gen_first
    logic [Width-1:0] group_q;
    always_ff @(posedge clk_i) begin
      group_q <= first_in[Width*(6*g) +: Width] & first_in[Width*(6*g+1) +: Width]
          & first_in[Width*(6*g+2) +: Width] & first_in[Width*(6*g+3) +: Width]
          & first_in[Width*(6*g+4) +: Width] & first_in[Width*(6*g+5) +: Width];
    end
    assign first_q[Width*g +: Width] = group_q;
  end

  if (First == 1) begin : gen_one
    assign vector_o = first_q;
  end else begin : gen_more
    and_tree #(.Width(Width), .Inputs(First)) u_rest (.clk_i, .vectors_i(first_q), .vector_o);
  end

endmodule

`default_nettype wire
