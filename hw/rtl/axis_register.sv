// SPDX-License-Identifier: Apache-2.0
// A register on a stream: cuts every combinational path between its two sides, ready included.
//
// Interface: valid/ready on both sides; `data_i` is taken in cycles with `valid_i && ready_o`. A side that
// has raised valid keeps it, and its data, until ready (AMBA AXI4-Stream, section 2.2).
// Parameters: Width, bits of data.
// Latency: 1 cycle. Throughput: 1 item a cycle. Two items fit.
`default_nettype none

module axis_register #(
  parameter int unsigned Width = 64
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  logic             head_valid_q, spare_valid_q;
  logic [Width-1:0] head_q, spare_q;
  logic             take, leave;

  // The spare place is for the item that is on its way when the head cannot leave.
  assign ready_o = !spare_valid_q;
  assign valid_o = head_valid_q;
  assign data_o  = head_q;
  assign take    = valid_i && ready_o;
  assign leave   = !head_valid_q || ready_i;

  always_ff @(posedge clk_i) begin
    if (leave) begin
      head_q <= spare_valid_q ? spare_q : data_i;
    end
    if (!spare_valid_q) begin
      spare_q <= data_i;
    end
    if (!rst_ni) begin
      head_valid_q  <= 1'b0;
      spare_valid_q <= 1'b0;
    end else if (leave) begin
      head_valid_q  <= spare_valid_q || take;
      spare_valid_q <= 1'b0;
    end else if (take) begin
      spare_valid_q <= 1'b1;
    end
  end

endmodule

`default_nettype wire
