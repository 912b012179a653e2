// SPDX-License-Identifier: Apache-2.0
// Proof: a sender with one register behind `ready_o`, as intake is, never has more items out than there are
// places; and when all places are free it is let go on.
module credits_proof (
  input logic clk_i,
  input logic want_i,
  input logic back_i
);
  localparam int unsigned Places = 5;

  logic       rst_nq = 1'b0;
  logic       ready, ready_q = 1'b0;
  logic       take, give;
  logic [3:0] out_q = '0;
  logic [2:0] free_q = '0;

  assign take = want_i && ready_q;
  assign give = back_i && out_q != 4'd0;

  credits #(.Places(Places)) u_credits (.clk_i, .rst_ni(rst_nq), .take_i(take), .give_i(give), .ready_o(ready));

  always_ff @(posedge clk_i) begin
    rst_nq  <= 1'b1;
    ready_q <= rst_nq && ready;
    out_q   <= out_q + 4'(take) - 4'(give);
    free_q  <= (rst_nq && out_q == 4'd0 && !take) ? (free_q == 3'd7 ? 3'd7 : free_q + 3'd1) : 3'd0;
    if (rst_nq) begin
      assert (out_q <= 4'(Places));
      assert (free_q < 3'd5 || ready_q);
      cover (out_q == 4'(Places));
    end
  end
endmodule
