// SPDX-License-Identifier: Apache-2.0
// Counters in a memory. They are 64 bits wide: at one event a cycle and 1 GHz none comes round in 500 years.
//
// Interface: `count_i` adds one at `place_i`, in any cycle. `read_i` with `read_place_i` is held until
// `read_valid_o`, which comes with the count of a cycle before. After reset all counters are set to zero, one
// a cycle, meanwhile
// `busy_o`; the owner sends no event then.
// Parameters: Counters; Copy, 1: reads have a memory of their own and never wait; 0: a read waits for a cycle
// without an event.
// Latency: an event is readable after 4 cycles. Throughput: 1 event a cycle, also of the same counter.
`default_nettype none

module counter_bank #(
  parameter int unsigned Counters = 128,
  parameter int unsigned Copy     = 1
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  output logic                        busy_o,
  input  logic                        count_i,
  input  logic [$clog2(Counters)-1:0] place_i,
  input  logic                        read_i,
  input  logic [$clog2(Counters)-1:0] read_place_i,
  output logic                        read_valid_o,
  output logic [63:0]                 read_o
);

  localparam int unsigned PlaceW = $clog2(Counters);

  logic                busy_q;
  logic [PlaceW-1:0]   clear_q;
  logic                count1_q, count2_q, written_q;
  logic [PlaceW-1:0]   place1_q, place2_q, written_place_q;
  logic [63:0]         value1, value2_q, written_value_q, next;
  logic                write;
  logic [PlaceW-1:0]   write_place;
  logic [63:0]         write_value;

  assign busy_o      = busy_q;
  assign next        = value2_q + 64'd1;
  assign write       = busy_q || count2_q;
  assign write_place = busy_q ? clear_q : place2_q;
  assign write_value = busy_q ? 64'd0 : next;

  if (Copy != 0) begin : gen_copy
    logic [63:0] copy;
    logic        valid_q, second_q;
    row_memory #(.Width(64), .Words(Counters), .Block(1)) u_counts (
      .clk_i, .write_i(write), .write_address_i(write_place), .write_data_i(write_value),
      .read_address_i(place_i), .data_o(value1)
    );
    row_memory #(.Width(64), .Words(Counters), .Block(1)) u_copy (
      .clk_i, .write_i(write), .write_address_i(write_place), .write_data_i(write_value),
      .read_address_i(read_place_i), .data_o(copy)
    );
    always_ff @(posedge clk_i) begin
      valid_q  <= rst_ni && read_i && !valid_q && !second_q;
      second_q <= rst_ni && valid_q;
      read_o   <= copy;
    end
    assign read_valid_o = second_q;
  end else begin : gen_shared
    logic valid_q, second_q;
    row_memory #(.Width(64), .Words(Counters), .Block(1)) u_counts (
      .clk_i, .write_i(write), .write_address_i(write_place), .write_data_i(write_value),
      .read_address_i(count_i ? place_i : read_place_i), .data_o(value1)
    );
    always_ff @(posedge clk_i) begin
      valid_q  <= rst_ni && read_i && !count_i && !valid_q && !second_q;
      second_q <= rst_ni && valid_q;
      read_o   <= value1;
    end
    assign read_valid_o = second_q;
  end

  // An event reads in its first cycle, has the value in the second, and writes in the third. Of an event at
  // most two cycles before, the memory does not show the result yet.
  always_ff @(posedge clk_i) begin
    place1_q <= place_i;
    place2_q <= place1_q;
    value2_q <= (count2_q && place2_q == place1_q) ? next
        : (written_q && written_place_q == place1_q) ? written_value_q : value1;
    written_place_q <= place2_q;
    written_value_q <= next;
    if (!rst_ni) begin
      busy_q    <= 1'b1;
      clear_q   <= '0;
      count1_q  <= 1'b0;
      count2_q  <= 1'b0;
      written_q <= 1'b0;
    end else begin
      count1_q  <= count_i;
      count2_q  <= count1_q;
      written_q <= count2_q;
      if (busy_q) begin
        clear_q <= clear_q + PlaceW'(1);
        busy_q  <= clear_q != PlaceW'(Counters - 1);
      end
    end
  end

endmodule

`default_nettype wire
