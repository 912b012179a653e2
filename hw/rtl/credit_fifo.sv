// SPDX-License-Identifier: Apache-2.0
// A queue whose write side has no `full`: the sender counts the places itself (see `credits`), so that no
// path leads from the pointers to the sender's ready.
//
// Interface: `push_i` stores `data_i`. `valid_o` and `data_o` show the oldest item; `pop_i` takes it, and
// only counts with `valid_o`. The sender pushes at most Depth items beyond those that were popped; the proof
// in hw/formal shows that nothing is lost or reordered then.
// Parameters: Width, bits of an item; Depth, items, a power of two of at least 4.
// Latency: 3 cycles from push to `valid_o`: block memory has a register of its own behind it, since its clock
// to output is long. Throughput: 1 item a cycle on both sides.
`default_nettype none

module credit_fifo #(
  parameter int unsigned Width = 64,
  parameter int unsigned Depth = 16
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             push_i,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  input  logic             pop_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned AddressW = $clog2(Depth);

  logic [Width-1:0]    memory[Depth];
  logic [AddressW-1:0] write_q, read_q;
  logic [AddressW:0]   stored_q;  // In memory; the two oldest items have left it.
  logic                next_valid_q, head_valid_q;
  logic [Width-1:0]    next_q, head_q;
  logic                fetch, move;

  assign valid_o = head_valid_q;
  assign data_o  = head_q;
  assign move    = next_valid_q && (!head_valid_q || pop_i);
  assign fetch   = stored_q != '0 && (!next_valid_q || move);

  always_ff @(posedge clk_i) begin
    if (push_i) begin
      memory[write_q] <= data_i;
    end
    if (fetch) begin
      next_q <= memory[read_q];
    end
    if (move) begin
      head_q <= next_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q      <= '0;
      read_q       <= '0;
      stored_q     <= '0;
      next_valid_q <= 1'b0;
      head_valid_q <= 1'b0;
    end else begin
      if (push_i) begin
        write_q <= write_q + AddressW'(1);
      end
      if (fetch) begin
        read_q <= read_q + AddressW'(1);
      end
      stored_q     <= stored_q + (AddressW + 1)'(push_i) - (AddressW + 1)'(fetch);
      next_valid_q <= fetch || (next_valid_q && !move);
      head_valid_q <= move || (head_valid_q && !pop_i);
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni) begin
      assert (!(push_i && stored_q == (AddressW + 1)'(Depth))) else $error("a push beyond the credits");
    end
  end
`endif

endmodule

`default_nettype wire
