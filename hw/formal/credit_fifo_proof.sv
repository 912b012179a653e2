// SPDX-License-Identifier: Apache-2.0
// Proof: with a sender that keeps to its credits, credit_fifo loses nothing, invents nothing and keeps the
// order. One item, whichever, is followed; and an item that is inside is shown within three cycles.
module credit_fifo_proof (
  input logic       clk_i,
  input logic       push_i,
  input logic [2:0] data_i,
  input logic       pop_i
);
  localparam int unsigned Depth = 4;

  logic       rst_nq = 1'b0;
  logic       valid;
  logic [2:0] data;
  logic       push, pop;
  logic [4:0] pushed_q = '0;  // Items so far; the proof is shorter than these counts.
  logic [4:0] popped_q = '0;
  logic [2:0] watched_q;
  logic [1:0] waited_q = '0;

  (* anyconst *) logic [4:0] which;

  // The sender has Depth credits.
  assign push = push_i && rst_nq && (pushed_q - popped_q) < 5'(Depth);
  assign pop  = pop_i && rst_nq && valid;

  credit_fifo #(.Width(3), .Depth(Depth)) u_fifo (
    .clk_i, .rst_ni(rst_nq), .push_i(push), .data_i, .valid_o(valid), .pop_i(pop), .data_o(data)
  );

  always_ff @(posedge clk_i) begin
    rst_nq <= 1'b1;
    if (push) begin
      pushed_q <= pushed_q + 5'd1;
      if (pushed_q == which) begin
        watched_q <= data_i;
      end
    end
    if (pop) begin
      popped_q <= popped_q + 5'd1;
    end
    waited_q <= (!rst_nq || valid || pushed_q == popped_q) ? 2'd0 : waited_q + 2'd1;
    if (rst_nq) begin
      assert (!valid || pushed_q != popped_q);
      assert (!(valid && popped_q == which) || data == watched_q);
      assert (waited_q != 2'd3);
      cover (popped_q == 5'd6);
    end
  end
endmodule
