// SPDX-License-Identifier: Apache-2.0
// Says whether the function behind it processes a packet or lets it through: its bit in the packet's path.
// Packets that go up or are dropped already are let through.
//
// Interface: a record in each cycle with `valid_i`; the same at `valid_o`, with `selected_o`. `bit_i` is the
// function's number in paths.
// Latency: 1 cycle. Throughput: 1 a cycle.
`default_nettype none

module path_selector (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic [4:0]                  bit_i,
  input  logic                        valid_i,
  input  logic                        done_i,
  input  bartizan_rtl_pkg::headers_t  headers_i,
  input  bartizan_rtl_pkg::decision_t decision_i,
  output logic                        valid_o,
  output logic                        done_o,
  output logic                        selected_o,
  output bartizan_rtl_pkg::headers_t  headers_o,
  output bartizan_rtl_pkg::decision_t decision_o
);

  logic                        valid_q, done_q, selected_q;
  bartizan_rtl_pkg::headers_t  headers_q;
  bartizan_rtl_pkg::decision_t decision_q;

  always_ff @(posedge clk_i) begin
    valid_q    <= rst_ni && valid_i;
    done_q     <= done_i;
    headers_q  <= headers_i;
    decision_q <= decision_i;
    selected_q <= decision_i.classified && !decision_i.up && !decision_i.drop && decision_i.path[bit_i];
  end

  assign valid_o    = valid_q;
  assign done_o     = done_q;
  assign selected_o = selected_q;
  assign headers_o  = headers_q;
  assign decision_o = decision_q;

endmodule

`default_nettype wire
