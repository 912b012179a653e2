// SPDX-License-Identifier: Apache-2.0
// The packet filter's header half: what the outcome of the packet's rule says, as crate functions,
// pfw_table.rs interprets the same entry. `continue` ends the function's work on the packet; `drop` drops it;
// `reject` goes up, since the sender is told; so does a redirect inside of a tunnel, and an entry that is not
// valid or of another generation.
//
// Entries: rule_entry_t of bartizan_tables_pkg, 16 bytes each. Words 0 and 1 (number of the rule, place of
// its counter) are not kept: the counter's place is the entry's. Word 3 is kept until word 2 is written,
// which writes both.
//
// Interface: a record in each cycle with `valid_i` and whether it is processed; the same, decided, at
// `valid_o`.
// Parameters: Outcomes, entries; Block, 1 for block memory.
// Latency: 2 cycles. Throughput: 1 a cycle.
`default_nettype none

module pfw #(
  parameter int unsigned Outcomes = 128,
  parameter int unsigned Block    = 0
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  bartizan_rtl_pkg::write_t    write_i,
  input  logic [7:0]                  generation_i,
  input  logic [4:0]                  bit_i,
  input  logic                        valid_i,
  input  logic                        done_i,
  input  logic                        selected_i,
  input  bartizan_rtl_pkg::headers_t  headers_i,
  input  bartizan_rtl_pkg::decision_t decision_i,
  output logic                        valid_o,
  output logic                        done_o,
  output bartizan_rtl_pkg::headers_t  headers_o,
  output bartizan_rtl_pkg::decision_t decision_o
);

  localparam int unsigned PlaceW = $clog2(Outcomes);
  // egress, generation, flags, reason, verdict; of the verdict whether it is one of two.
  localparam int unsigned EntryW = 8 + 8 + 2 + 6 + 2;

  bartizan_rtl_pkg::write_t    write_q;
  logic [7:0]                  egress_q;
  logic                        is_mine;
  logic [EntryW-1:0]           entry_in, entry;
  logic                        valid1_q, done1_q, selected1_q, valid2_q, done2_q;
  bartizan_rtl_pkg::headers_t  headers1_q, headers2_q;
  bartizan_rtl_pkg::decision_t decision1_q, decision2_q;

  assign is_mine  = write_q.valid && write_q.address[23:16] == bartizan_regs_pkg::OUTCOME_BASE[23:16];
  assign entry_in = {egress_q, write_q.data[31:24],
      (write_q.data[23:16] & bartizan_tables_pkg::RULE_FLAG_REDIRECT) != 8'd0,
      (write_q.data[23:16] & bartizan_tables_pkg::RULE_FLAG_VALID) != 8'd0,
      write_q.data[13:8],
      write_q.data[7:0] == bartizan_tables_pkg::VERDICT_REJECT,
      write_q.data[7:0] == bartizan_tables_pkg::VERDICT_CONTINUE};

  always_ff @(posedge clk_i) begin
    write_q <= write_i;
    if (!rst_ni) begin
      write_q.valid <= 1'b0;
    end
    if (is_mine && write_q.address[3:2] == 2'd3) begin
      egress_q <= write_q.data[7:0];
    end
  end

  row_memory #(.Width(EntryW), .Words(Outcomes), .Block(Block)) u_entries (
    .clk_i,
    .write_i        (is_mine && write_q.address[3:2] == 2'd2),
    .write_address_i(write_q.address[4 +: PlaceW]),
    .write_data_i   (entry_in),
    .read_address_i (decision_i.outcome[PlaceW-1:0]),
    .data_o         (entry)
  );

  logic       passes, rejects, is_valid, redirects;
  logic [5:0] reason;
  logic [7:0] generation, egress;

  assign {egress, generation, redirects, is_valid, reason, rejects, passes} = entry;

  always_ff @(posedge clk_i) begin
    valid1_q    <= rst_ni && valid_i;
    done1_q     <= done_i;
    selected1_q <= selected_i;
    headers1_q  <= headers_i;
    decision1_q <= decision_i;

    valid2_q    <= rst_ni && valid1_q;
    done2_q     <= done1_q;
    headers2_q  <= headers1_q;
    decision2_q <= decision1_q;
    if (selected1_q) begin
      if (!is_valid || generation != generation_i) begin
        decision2_q.up    <= 1'b1;
        decision2_q.cause <= bartizan_regs_pkg::DISPOSITION_UP_OUTCOME;
      end else if (rejects) begin
        decision2_q.up    <= 1'b1;
        decision2_q.cause <= bartizan_regs_pkg::DISPOSITION_UP_REJECT;
      end else if (passes && redirects && (headers1_q.inner || headers1_q.has_inner)) begin
        decision2_q.up    <= 1'b1;
        decision2_q.cause <= bartizan_regs_pkg::DISPOSITION_UP_REDIRECT;
      end else begin
        decision2_q.counted     <= 1'b1;
        decision2_q.path[bit_i] <= 1'b0;
        decision2_q.drop        <= !passes;
        decision2_q.reason      <= reason;
        decision2_q.redirect    <= redirects;
        if (redirects) begin
          decision2_q.egress <= egress;
        end
      end
    end
  end

  assign valid_o    = valid2_q;
  assign done_o     = done2_q;
  assign headers_o  = headers2_q;
  assign decision_o = decision2_q;

endmodule

`default_nettype wire
