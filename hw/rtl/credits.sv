// SPDX-License-Identifier: Apache-2.0
// The places that are left in a queue, counted where items are sent.
//
// Interface: `take_i` when an item is sent, `give_i` when one has left the queue. `ready_o` is a register; an
// item may be sent in a cycle with `ready_o`, and in the one after it, so that the sender can have a register
// of its own behind it.
// Parameters: Places, those of the queue, at least 4.
// Latency: `ready_o` is of the cycle before. Two places are kept for what is sent meanwhile.
`default_nettype none

module credits #(
  parameter int unsigned Places = 16
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic take_i,
  input  logic give_i,
  output logic ready_o
);

  localparam int unsigned CountW = $clog2(Places + 1);

  logic [CountW-1:0] left_q;
  logic              ready_q;

  assign ready_o = ready_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q  <= CountW'(Places);
      ready_q <= 1'b0;
    end else begin
      left_q  <= left_q - CountW'(take_i) + CountW'(give_i);
      ready_q <= left_q > CountW'(2);
    end
  end

endmodule

`default_nettype wire
