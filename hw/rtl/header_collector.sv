// SPDX-License-Identifier: Apache-2.0
// Collects the first WINDOW_BYTES bytes of a frame and counts its length.
//
// Interface: a beat in each cycle with `valid_i`; `bytes_i` is the number of bytes of the last beat, all
// others are full. In the cycle after the last beat `valid_o` shows the frame, for that cycle only; bytes of
// the window behind the frame's end are not defined.
// Parameters: DataW, bits of a beat.
// Latency: 1 cycle after the last beat. Throughput: 1 beat a cycle, also of frames of one beat.
`default_nettype none

module header_collector #(
  parameter int unsigned DataW = 64
) (
  input  logic                                    clk_i,
  input  logic                                    rst_ni,
  input  logic                                    valid_i,
  input  logic [DataW-1:0]                        data_i,
  input  logic [$clog2(DataW/8):0]                bytes_i,
  input  logic                                    last_i,
  output logic                                    valid_o,
  output logic [bartizan_rtl_pkg::WINDOW_BITS-1:0] window_o,
  output logic [15:0]                             length_o
);

  localparam int unsigned Words = bartizan_rtl_pkg::WINDOW_BITS / DataW;
  localparam int unsigned BeatBytes = DataW / 8;

  logic [Words-1:0]                         place_q;  // Which word is next, one bit; none behind the window.
  logic [15:0]                              before_q; // Bytes of the beats before.
  logic [15:0]                              length_q;
  logic                                     valid_q;

  assign valid_o  = valid_q;
  assign length_o = length_q;

  for (genvar w = 0; w < Words; w++) begin : gen_word
    logic [DataW-1:0] word_q;
    always_ff @(posedge clk_i) begin
      if (valid_i && place_q[w]) begin
        word_q <= data_i;
      end
    end
    assign window_o[w*DataW +: DataW] = word_q;
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      length_q <= before_q + 16'(bytes_i);
    end
    if (!rst_ni) begin
      place_q  <= Words'(1);
      before_q <= '0;
      valid_q  <= 1'b0;
    end else begin
      valid_q <= valid_i && last_i;
      if (valid_i && last_i) begin
        place_q  <= Words'(1);
        before_q <= '0;
      end else if (valid_i) begin
        place_q  <= place_q << 1;
        before_q <= before_q + 16'(BeatBytes);
      end
    end
  end

endmodule

`default_nettype wire
