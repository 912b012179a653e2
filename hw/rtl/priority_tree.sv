// SPDX-License-Identifier: Apache-2.0
// The number of the first bit that is set: a tree with four branches, and a register after each level.
//
// Interface: `bits_i` in any cycle; `hit_o` and `index_o` belong to the bits of the latency before.
// Parameters: Width, 2 to 1024.
// Latency: levels, half of the index's bits, rounded up. Throughput: 1 a cycle.
`default_nettype none

module priority_tree #(
  parameter int unsigned Width = 128
) (
  input  logic             clk_i,
  input  logic [Width-1:0] bits_i,
  output logic             hit_o,
  output logic [9:0]       index_o
);

  localparam int unsigned Levels = ($clog2(Width) + 1) / 2;

  // Nodes of a level: level 0 has the bits, filled up to whole groups of four.
  function automatic int unsigned nodes(input int unsigned level);
    int unsigned n;
    n = 1;
    for (int unsigned l = level; l < Levels; l++) begin
      n = n * 4;
    end
    nodes = n;
  endfunction

  function automatic int unsigned start(input int unsigned level);
    int unsigned at;
    at = 0;
    for (int unsigned l = 0; l < level; l++) begin
      at = at + nodes(l);
    end
    start = at;
  endfunction

  localparam int unsigned All = start(Levels + 1);

  logic [All-1:0]    hits;
  logic [All*10-1:0] indexes;

  assign hits[nodes(0)-1:0]       = nodes(0)'(bits_i);
  for (genvar n = 0; n < nodes(0); n++) begin : gen_leaf
    assign indexes[10*n +: 10] = 10'd0;
  end

  for (genvar l = 1; l <= Levels; l++) begin : gen_level
    for (genvar n = 0; n < nodes(l); n++) begin : gen_node
      localparam int unsigned From = start(l - 1) + 4 * n;
      logic       hit_q;
      logic [9:0] index_q;

      always_ff @(posedge clk_i) begin
        hit_q   <= |hits[From +: 4];
        index_q <= hits[From]     ? indexes[10*From +: 10]
            : hits[From + 1] ? indexes[10*(From+1) +: 10] | 10'(1 << (2 * (l - 1)))
            : hits[From + 2] ? indexes[10*(From+2) +: 10] | 10'(2 << (2 * (l - 1)))
            : indexes[10*(From+3) +: 10] | 10'(3 << (2 * (l - 1)));
      end
      assign hits[start(l) + n]             = hit_q;
      assign indexes[10*(start(l)+n) +: 10] = index_q;
    end
  end

  assign hit_o   = hits[All-1];
  assign index_o = indexes[10*(All-1) +: 10];

endmodule

`default_nettype wire
