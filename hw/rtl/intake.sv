// SPDX-License-Identifier: Apache-2.0
// Lets beats into the device while there are places for them, and ends frames that are too long.
//
// A frame takes a place among frames with its first beat, and each beat takes one in the queue of beats. Of a
// frame longer than MaxBeats, the last beat that is kept is marked as the last one and the rest is taken and
// forgotten; the frame is lost, and counted as such at its end.
//
// Interface: AXI4-Stream in, with the bytes of the beat in the place of tkeep; a beat goes on in cycles with
// `valid_o`. `ready_o` is a register.
// Parameters: DataW; Beats and Frames, places; MaxBeats, of the longest frame.
// Latency: 1 cycle. Throughput: 1 beat a cycle.
`default_nettype none

module intake #(
  parameter int unsigned DataW    = 64,
  parameter int unsigned Beats    = 512,
  parameter int unsigned Frames   = 64,
  parameter int unsigned MaxBeats = 256,
  localparam int unsigned BytesW  = $clog2(DataW / 8) + 1
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              hold_i,        // No frame begins.
  input  logic              beat_left_i,   // A beat has left its queue.
  input  logic              frame_left_i,  // A frame has left the device.
  input  logic              valid_i,
  output logic              ready_o,
  input  logic [DataW-1:0]  data_i,
  input  logic [BytesW-1:0] bytes_i,
  input  logic              last_i,
  input  logic [7:0]        ingress_i,
  output logic              valid_o,
  output logic [DataW-1:0]  data_o,
  output logic [BytesW-1:0] bytes_o,
  output logic              last_o,
  output logic              oversize_o,
  output logic [7:0]        ingress_o,
  output logic              begins_o       // A frame has begun; for counting.
);

  localparam int unsigned CountW = $clog2(MaxBeats + 1);

  logic              beat_ready, frame_ready, ready_q;
  logic              inside_q, skips_q;
  logic [CountW-1:0] count_q;
  logic              take, keep, cut;

  // Within a frame it is the beats that count, at its beginning frames and whoever holds as well.
  assign ready_o = ready_q;
  assign take    = valid_i && ready_q;
  assign keep    = take && !skips_q;
  assign cut     = keep && !last_i && count_q == CountW'(MaxBeats - 1);

  credits #(.Places(Beats)) u_beats (
    .clk_i, .rst_ni, .take_i(keep), .give_i(beat_left_i), .ready_o(beat_ready)
  );
  credits #(.Places(Frames)) u_frames (
    .clk_i, .rst_ni, .take_i(keep && !inside_q), .give_i(frame_left_i), .ready_o(frame_ready)
  );

  logic next_inside;
  assign next_inside = take ? !last_i : inside_q;

  always_ff @(posedge clk_i) begin
    data_o     <= data_i;
    bytes_o    <= bytes_i;
    last_o     <= last_i || cut;
    oversize_o <= cut;
    ingress_o  <= ingress_i;
    if (!rst_ni) begin
      ready_q  <= 1'b0;
      valid_o  <= 1'b0;
      inside_q <= 1'b0;
      skips_q  <= 1'b0;
      count_q  <= '0;
      begins_o <= 1'b0;
    end else begin
      // The counts are of two cycles before; `credits` keeps places for what is sent meanwhile.
      ready_q  <= beat_ready && (next_inside || (frame_ready && !hold_i));
      valid_o  <= keep;
      begins_o <= keep && !inside_q;
      inside_q <= next_inside;
      if (take && last_i) begin
        skips_q <= 1'b0;
      end else if (cut) begin
        skips_q <= 1'b1;
      end
      if (take && last_i) begin
        count_q <= '0;
      end else if (keep) begin
        count_q <= count_q + CountW'(1);
      end
    end
  end

endmodule

`default_nettype wire
