// SPDX-License-Identifier: Apache-2.0
// Finds a packet's flow: exact match of its key in a bucket of Ways entries, which the hash of the key names.
//
// Key, 32-bit words; the lower endpoint (address, then port) comes first, so both directions have one key:
//
//   word  bits
//   0     31:16 higher port, 15:0 lower port
//   1     31:16 tenant, 15 packet inside of a tunnel, 14:8 link, 7:0 protocol
//   2     26 lower endpoint on the second side, 25 on the first side, 24 IPv6, 23:0 VNI
//   3     23:12 second VLAN id, 11:0 first one
//   4...  lower address, its lowest word first, then the higher one: 1 word each, 4 with Ipv6
//
// Sides and VLAN ids are zero unless FLOW_KEYS has them in keys. The hash is by tabulation (Zobrist): each 5
// bits of the key choose a word of a table that the host has filled at random, and these are joined by
// exclusive or. A sender who does not know the tables cannot choose flows of one bucket.
//
// Entries: 64 bytes each, words 0 to 11 the key, word 15 the control word, which is written last, and first
// with its flag off; the answer to a write of it (regs) comes when no packet is under way that met the word
// before. Control word:
//
//   bit    meaning
//   0      valid
//   1      decides: what is left on the packet's path does not count
//   3:2    action: 0 forward, 1 drop, 2 leave by the port of 29:22
//   4      segments are compared with the connection's numbers (sfw)
//   5      the connection's progress is noted (sfw)
//   7:6    only packets of the lower endpoint (6), of the higher one (7); others go up
//   15:8   generation
//   21:16  reason, of a drop
//   29:22  port
//   30     sfw may change the connection's state
//   31     the client is the higher endpoint
//
// Interface: a record in each cycle with `valid_i`, whose tenant is known; its entry after Latency cycles.
// Parameters: Ipv6; Buckets, a power of two; Ways; Block, 1 for block memory; Latency, at least 11.
// Throughput: 1 a cycle.
`default_nettype none

module flow_cache #(
  parameter int unsigned Ipv6    = 0,
  parameter int unsigned Buckets = 64,
  parameter int unsigned Ways    = 4,
  parameter int unsigned Block   = 0,
  parameter int unsigned Latency = 12
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,
  input  bartizan_rtl_pkg::write_t   write_i,
  input  logic [7:0]                 generation_i,
  input  logic                       sides_in_key_i,
  input  logic                       vlans_in_key_i,
  input  bartizan_rtl_pkg::headers_t headers_i,
  output bartizan_rtl_pkg::flow_t    flow_o
);

  localparam int unsigned AddressW = Ipv6 != 0 ? 128 : 32;
  localparam int unsigned KeyWords = 4 + AddressW / 16;
  localparam int unsigned KeyW     = 32 * KeyWords;
  localparam int unsigned Chunks   = (KeyW + 4) / 5;
  localparam int unsigned HashW    = $clog2(Buckets);
  localparam int unsigned WayW     = $clog2(Ways);

  // ---- Writes ----

  bartizan_rtl_pkg::write_t write_q;
  logic                     hash_write, entry_write;

  assign hash_write  = write_q.valid && write_q.address[23:20] == bartizan_regs_pkg::FLOW_HASH_BASE[23:20];
  assign entry_write = write_q.valid && write_q.address[23:20] == bartizan_regs_pkg::FLOW_BASE[23:20];

  always_ff @(posedge clk_i) begin
    write_q <= write_i;
    if (!rst_ni) begin
      write_q.valid <= 1'b0;
    end
  end

  // ---- 1: which endpoint is the lower one ----

  bartizan_rtl_pkg::headers_t headers1_q;
  logic                       reversed1_q;

  always_ff @(posedge clk_i) begin
    headers1_q  <= headers_i;
    reversed1_q <= {headers_i.source[AddressW-1:0], headers_i.source_port}
        > {headers_i.destination[AddressW-1:0], headers_i.destination_port};
  end

  // ---- 2: key ----

  logic [KeyW-1:0]     key2_q;
  logic                high2_q;
  logic [AddressW-1:0] low_address, high_address;
  logic [15:0]         low_port, high_port;
  logic                sides;

  assign low_address  = reversed1_q ? headers1_q.destination[AddressW-1:0] : headers1_q.source[AddressW-1:0];
  assign high_address = reversed1_q ? headers1_q.source[AddressW-1:0] : headers1_q.destination[AddressW-1:0];
  assign low_port     = reversed1_q ? headers1_q.destination_port : headers1_q.source_port;
  assign high_port    = reversed1_q ? headers1_q.source_port : headers1_q.destination_port;
  assign sides        = sides_in_key_i;

  always_ff @(posedge clk_i) begin
    high2_q <= reversed1_q;
    key2_q  <= {high_address, low_address,
        8'd0, vlans_in_key_i ? {headers1_q.vlan_inner, headers1_q.vlan_outer} : 24'd0,
        5'd0, sides && (headers1_q.ingress[0] != reversed1_q), sides && (headers1_q.ingress[0] == reversed1_q),
        headers1_q.ipv6, headers1_q.inner ? headers1_q.vni : 24'd0,
        headers1_q.tenant, headers1_q.inner, headers1_q.ingress[7:1], headers1_q.protocol,
        high_port, low_port};
  end

  // ---- 3 and 4: hash ----

  logic [Chunks*5-1:0]     chunks;
  logic [Chunks*HashW-1:0] hashes;
  logic [HashW-1:0]        hash4_q, hash;

  if (Chunks * 5 > KeyW) begin : gen_fill
    assign chunks = {{(Chunks * 5 - KeyW){1'b0}}, key2_q};
  end else begin : gen_exact
    assign chunks = key2_q;
  end

  for (genvar c = 0; c < Chunks; c++) begin : gen_chunk
    row_memory #(.Width(HashW), .Words(32), .Block(0)) u_table (
      .clk_i, .write_i(hash_write && write_q.address[13:7] == 7'(c)), .write_address_i(write_q.address[6:2]),
      .write_data_i(write_q.data[HashW-1:0]), .read_address_i(chunks[5*c +: 5]),
      .data_o(hashes[HashW*c +: HashW])
    );
  end

  always_comb begin
    hash = '0;
    for (int c = 0; c < Chunks; c++) begin
      hash = hash ^ hashes[HashW*c +: HashW];
    end
  end

  logic [KeyW-1:0]  key3_q, key4_q, key5_q;
  logic [HashW-1:0] hash5_q, hash6_q;
  logic             high3_q, high4_q, high5_q, high6_q;

  always_ff @(posedge clk_i) begin
    key3_q  <= key2_q;
    high3_q <= high2_q;
    key4_q  <= key3_q;
    high4_q <= high3_q;
    hash4_q <= hash;
  end

  // ---- 5: bucket; 6: comparison by words ----

  logic [Ways*KeyWords-1:0] same6_q;
  logic [Ways*32-1:0]       control, control6_q;

  for (genvar w = 0; w < Ways; w++) begin : gen_way
    logic mine;
    assign mine = entry_write && write_q.address[6 +: WayW] == WayW'(w);
    for (genvar k = 0; k < KeyWords; k++) begin : gen_word
      logic [31:0] word;
      row_memory #(.Width(32), .Words(Buckets), .Block(Block)) u_key (
        .clk_i, .write_i(mine && write_q.address[5:2] == 4'(k)),
        .write_address_i(write_q.address[6 + WayW +: HashW]),
        .write_data_i(write_q.data), .read_address_i(hash4_q), .data_o(word)
      );
      always_ff @(posedge clk_i) begin
        same6_q[w*KeyWords+k] <= word == key5_q[32*k +: 32];
      end
    end
    row_memory #(.Width(32), .Words(Buckets), .Block(Block)) u_control (
      .clk_i, .write_i(mine && write_q.address[5:2] == 4'd15),
      .write_address_i(write_q.address[6 + WayW +: HashW]),
      .write_data_i(write_q.data), .read_address_i(hash4_q), .data_o(control[32*w +: 32])
    );
  end

  always_ff @(posedge clk_i) begin
    key5_q     <= key4_q;
    high5_q    <= high4_q;
    hash5_q    <= hash4_q;
    control6_q <= control;
    high6_q    <= high5_q;
    hash6_q    <= hash5_q;
  end

  // ---- 7: the entry ----

  bartizan_rtl_pkg::flow_t flow, flow7_q;
  logic [Ways-1:0]         hits;

  for (genvar w = 0; w < Ways; w++) begin : gen_hit
    assign hits[w] = (&same6_q[w*KeyWords +: KeyWords]) && control6_q[32*w]
        && control6_q[32*w+8 +: 8] == generation_i;
  end

  always_comb begin
    flow.hit       = |hits;
    flow.from_high = high6_q;
    flow.place     = '0;
    flow.control   = '0;
    for (int w = 0; w < Ways; w++) begin
      if (hits[w]) begin
        flow.place   = 14'({hash6_q, WayW'(w)});
        flow.control = control6_q[32*w +: 32];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    flow7_q <= flow;
  end

  delay_line #(.Width($bits(flow7_q)), .Cycles(Latency - 7)) u_late (
    .clk_i, .rst_ni, .data_i(flow7_q), .data_o(flow_o)
  );

endmodule

`default_nettype wire
