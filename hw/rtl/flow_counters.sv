// SPDX-License-Identifier: Apache-2.0
// The counts of the flow cache's entries, by sender: packets, bytes, and when the latest packet was counted;
// and a bit for each entry that a packet has been counted for since the host last looked (idle ageing).
//
// Counts are 64 bits wide and do not come round (see counter_bank).
//
// A command of the host waits for cycles without an event. It reads both counts of an entry, and clears them
// with `clear_i`; the entry is not valid then. Result, for the lower endpoint and then the higher one: words
// of packets, bytes, time in nanoseconds, two each.
//
// Interface: an event in each cycle with `count_i`. A command is held until `command_done_o`. The word
// of bits at `touched_place_i` is shown at `touched_o`, and cleared with `touched_clear_i`.
// Parameters: Entries.
// Latency: an event is readable after 4 cycles. Throughput: 1 event a cycle, also of the same entry.
`default_nettype none

module flow_counters #(
  parameter int unsigned Entries = 256
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic [63:0]  now_ns_i,
  input  logic         count_i,
  input  logic [13:0]  place_i,
  input  logic         from_high_i,
  input  logic [15:0]  bytes_i,
  input  logic         command_i,
  input  logic         clear_i,
  input  logic [13:0]  command_place_i,
  output logic         command_done_o,
  output logic [383:0] result_o,
  input  logic [8:0]   touched_place_i,
  input  logic         touched_clear_i,
  output logic [31:0]  touched_o
);

  localparam int unsigned PlaceW = $clog2(Entries) + 1;
  localparam int unsigned Width  = 3 * 64;  // Packets, bytes, time.

  logic              count1_q, count2_q, written_q;
  logic [PlaceW-1:0] place, place1_q, place2_q, written_place_q, command_place, read_place;
  logic [15:0]       bytes1_q, bytes2_q;
  logic [63:0]       now1_q, now2_q;
  logic [Width-1:0]  stored, written_value_q, next, value2_q;
  logic              write;

  // ---- Commands: a step for each endpoint, read and then cleared ----

  logic step_q;  // The higher endpoint's turn.
  logic clears_q, waits_q, shows_q, done_q, reads, clears;

  assign command_place = {command_place_i[PlaceW-2:0], step_q};
  assign reads         = command_i && !clears_q && !waits_q && !shows_q && !done_q && !count_i;
  assign clears        = command_i && clears_q && !count2_q;
  assign place         = {place_i[PlaceW-2:0], from_high_i};
  assign read_place    = count_i ? place : command_place;

  row_memory #(.Width(Width), .Words(2 * Entries), .Block(1)) u_counts (
    .clk_i, .write_i(write), .write_address_i(clears ? command_place : place2_q),
    .write_data_i(clears ? '0 : next), .read_address_i(read_place), .data_o(stored)
  );

  always_ff @(posedge clk_i) begin
    if (shows_q) begin
      if (step_q) begin
        result_o[383:192] <= stored;
      end else begin
        result_o[191:0]   <= stored;
      end
    end
    if (!rst_ni) begin
      step_q   <= 1'b0;
      clears_q <= 1'b0;
      waits_q  <= 1'b0;
      shows_q  <= 1'b0;
      done_q   <= 1'b0;
    end else begin
      // What was asked for stands at the memory's output in the next cycle.
      shows_q <= reads;
      done_q  <= 1'b0;
      if (shows_q) begin
        clears_q <= clear_i;
        waits_q  <= !clear_i;
      end
      if (clears || waits_q) begin
        clears_q <= 1'b0;
        waits_q  <= 1'b0;
        step_q   <= !step_q;
        done_q   <= step_q;
      end
    end
  end
  assign command_done_o = done_q;

  // ---- Events: read, add, write; of an event at most two cycles before, the memory shows nothing yet ----

  assign next  = {now2_q, value2_q[127:64] + 64'(bytes2_q), value2_q[63:0] + 64'd1};
  assign write = count2_q || clears;

  always_ff @(posedge clk_i) begin
    place1_q <= place;
    bytes1_q <= bytes_i;
    now1_q   <= now_ns_i;
    place2_q <= place1_q;
    bytes2_q <= bytes1_q;
    now2_q   <= now1_q;
    value2_q <= (count2_q && place2_q == place1_q) ? next
        : (written_q && written_place_q == place1_q) ? written_value_q : stored;
    written_place_q <= place2_q;
    written_value_q <= next;
    if (!rst_ni) begin
      count1_q  <= 1'b0;
      count2_q  <= 1'b0;
      written_q <= 1'b0;
    end else begin
      count1_q  <= count_i;
      count2_q  <= count1_q;
      written_q <= count2_q;
    end
  end

  // ---- Ageing ----

  // In memory of LUTs: a word of entries each, read and written in one cycle. An event is noted a cycle after
  // the one before, so that each finds the word as that one left it.
  localparam int unsigned Words = Entries / 32;
  localparam int unsigned WordW = Words > 1 ? $clog2(Words) : 1;

  logic [31:0]      touched[Words];
  logic [Words-1:0] stale_q;  // Words that have no bit set, whatever memory holds.
  logic [WordW-1:0] touched_word, event_word;
  logic [31:0]      event_bits;
  logic             fresh;

  assign touched_word = touched_place_i[WordW-1:0];
  assign event_word   = WordW'(place1_q[PlaceW-1:1] >> 5);
  assign fresh        = stale_q[event_word] || (touched_clear_i && touched_word == event_word);
  assign event_bits   = 32'd1 << place1_q[5:1];
  assign touched_o    = stale_q[touched_word] ? 32'd0 : touched[touched_word];

  always_ff @(posedge clk_i) begin
    if (count1_q) begin
      touched[event_word] <= event_bits | (fresh ? 32'd0 : touched[event_word]);
    end
    if (!rst_ni) begin
      stale_q <= '1;
    end else begin
      if (touched_clear_i) begin
        stale_q[touched_word] <= 1'b1;
      end
      // An event in the cycle of the look belongs to the next look.
      if (count1_q) begin
        stale_q[event_word] <= 1'b0;
      end
    end
  end

endmodule

`default_nettype wire
