// SPDX-License-Identifier: Apache-2.0
// Reads the headers of a frame: Ethernet, 0 to 2 VLAN tags (IEEE 802.1Q, 802.1ad), IPv4 with options (RFC
// 791), IPv6 without extension headers (RFC 8200), TCP (RFC 9293), UDP (RFC 768), and what is inside of one
// VXLAN tunnel (RFC 7348) whose outer packet has no IPv4 options. Whatever else there is, the host reads: the
// record has `up` with the cause. Packets with IPv4 options, or with TCP options other than a timestamp
// behind two no-operations (RFC 7323, appendix A), are read, and go up as well: whether the options are well
// formed is not checked here.
//
// Interface: `valid_i` with a window and a length for one cycle, from the collector. `valid_o` with
// `headers_o`; a tunnel gives two records in cycles that follow each other, the outer packet first, and
// `done_o` with the last one of a frame. There is no stall.
// Parameters: DataW, bits of a beat, by which frames with headers follow each other; Ipv6, 0: such packets go
// up.
// Latency: 7 cycles for the first record, 8 where a record of the frame before was in the way.
// Throughput: a record a cycle. A frame with a tunnel has at least two beats at every DataW, so there is a
// cycle for each of its records.
`default_nettype none

module header_parser #(
  parameter int unsigned DataW = 64,
  parameter int unsigned Ipv6  = 0
) (
  input  logic                                     clk_i,
  input  logic                                     rst_ni,
  // Configuration; it changes between frames only.
  input  logic [15:0]                              vxlan_port_i,
  input  logic [63:0]                              tunnel_ports_i,  // Four UDP ports of other tunnels; 0 is none.
  input  logic                                     valid_i,
  input  logic [bartizan_rtl_pkg::WINDOW_BITS-1:0] window_i,
  input  logic [15:0]                              length_i,
  input  logic [7:0]                               ingress_i,
  input  logic                                     oversize_i,
  output logic                                     valid_o,
  output logic                                     done_o,
  output bartizan_rtl_pkg::headers_t               headers_o
);

  localparam int unsigned WindowBits = bartizan_rtl_pkg::WINDOW_BITS;
  // The smallest frame with an IPv4 header. Frames that are shorter have at most one beat fewer than three,
  // and need no window.
  localparam int unsigned Smallest = 34;
  // Bytes of a packet's headers that are extracted: IPv4's longest header and the beginning of TCP's.
  localparam int unsigned ViewBytes = 80;
  localparam int unsigned ViewBits = 8 * ViewBytes;

  // Two bytes in network order.
  function automatic logic [15:0] swap16(input logic [15:0] x);
    swap16 = {x[7:0], x[15:8]};
  endfunction

  function automatic logic [31:0] swap32(input logic [31:0] x);
    swap32 = {x[7:0], x[15:8], x[23:16], x[31:24]};
  endfunction

  function automatic logic is_tag(input logic [15:0] x);
    is_tag = x == bartizan_rtl_pkg::ETHER_VLAN || x == bartizan_rtl_pkg::ETHER_PROVIDER_BRIDGE
        || x == bartizan_rtl_pkg::ETHER_QINQ;
  endfunction

  // ---- 1: VLAN tags ----
  //
  //   byte      12    14    16    18    20    22
  //   no tag    type  IP
  //   one tag   tag   id    type  IP
  //   two tags  tag   id    tag   id    type  IP

  logic                  valid1_q, usable1_q, oversize1_q;
  logic [WindowBits-1:0] window1_q;
  logic [15:0]           length1_q;
  logic [7:0]            ingress1_q;
  logic [1:0]            tags1_q;  // 3: more than two.
  logic [15:0]           ether1_q;
  logic [11:0]           vlan_outer1_q, vlan_inner1_q;
  logic [15:0]           type_a, type_b, type_c, id_a, id_b;
  logic                  tag_a, tag_b, tag_c;

  assign type_a = swap16(window_i[8*12 +: 16]);
  assign type_b = swap16(window_i[8*16 +: 16]);
  assign type_c = swap16(window_i[8*20 +: 16]);
  assign id_a   = swap16(window_i[8*14 +: 16]);
  assign id_b   = swap16(window_i[8*18 +: 16]);
  assign tag_a  = is_tag(type_a);
  assign tag_b  = tag_a && is_tag(type_b);
  assign tag_c  = tag_b && is_tag(type_c);

  always_ff @(posedge clk_i) begin
    valid1_q      <= rst_ni && valid_i;
    usable1_q     <= length_i >= 16'(Smallest);
    oversize1_q   <= oversize_i;
    window1_q     <= window_i;
    length1_q     <= length_i;
    ingress1_q    <= ingress_i;
    tags1_q       <= tag_c ? 2'd3 : tag_b ? 2'd2 : tag_a ? 2'd1 : 2'd0;
    ether1_q      <= tag_b ? type_c : tag_a ? type_b : type_a;
    vlan_outer1_q <= tag_a ? id_a[11:0] : 12'd0;
    vlan_inner1_q <= tag_b ? id_b[11:0] : 12'd0;
  end

  // ---- 2: what of the outer packet says that it is a tunnel ----
  //
  //   byte from the IP header   IPv4                      IPv6
  //   version, header length    0                         0
  //   length                    2                         4
  //   fragment                  6                         none
  //   protocol                  9                         6
  //   UDP: destination, length  22, 24                    42, 44
  //   VXLAN: flags, VNI         28, 32                    48, 52
  //   inner EtherType           48                        68

  logic                  valid2_q, usable2_q, oversize2_q;
  logic [WindowBits-1:0] window2_q;
  logic [15:0]           length2_q, ether2_q;
  logic [7:0]            ingress2_q;
  logic [1:0]            tags2_q;
  logic [11:0]           vlan_outer2_q, vlan_inner2_q;
  logic                  plain4_2_q;  // IPv4, no options, no fragment, UDP.
  logic                  plain6_2_q;
  logic [15:0]           ip_length2_q, udp_port2_q, udp_length2_q, inner_ether2_q;
  logic                  vni_valid2_q;
  logic [23:0]           vni2_q;
  logic [559:0]          outer;  // 70 bytes from the IP header.

  always_comb begin
    unique case (tags1_q)
      2'd0:    outer = window1_q[8*14 +: 560];
      2'd1:    outer = window1_q[8*18 +: 560];
      default: outer = window1_q[8*22 +: 560];
    endcase
  end

  always_ff @(posedge clk_i) begin
    valid2_q      <= rst_ni && valid1_q;
    usable2_q     <= usable1_q;
    oversize2_q   <= oversize1_q;
    window2_q     <= window1_q;
    length2_q     <= length1_q;
    ether2_q      <= ether1_q;
    ingress2_q    <= ingress1_q;
    tags2_q       <= tags1_q;
    vlan_outer2_q <= vlan_outer1_q;
    vlan_inner2_q <= vlan_inner1_q;
    plain4_2_q    <= ether1_q == bartizan_rtl_pkg::ETHER_IPV4 && outer[7:0] == 8'h45
        && outer[8*9 +: 8] == bartizan_rtl_pkg::PROTOCOL_UDP
        && (swap16(outer[8*6 +: 16]) & 16'h3fff) == 16'd0;
    plain6_2_q    <= Ipv6 != 0 && ether1_q == bartizan_rtl_pkg::ETHER_IPV6 && outer[7:4] == 4'd6
        && outer[8*6 +: 8] == bartizan_rtl_pkg::PROTOCOL_UDP;
    if (Ipv6 != 0 && ether1_q == bartizan_rtl_pkg::ETHER_IPV6) begin
      ip_length2_q   <= swap16(outer[8*4 +: 16]);
      udp_port2_q    <= swap16(outer[8*42 +: 16]);
      udp_length2_q  <= swap16(outer[8*44 +: 16]);
      vni_valid2_q   <= outer[8*48 + 3];
      vni2_q         <= {outer[8*52 +: 8], outer[8*53 +: 8], outer[8*54 +: 8]};
      inner_ether2_q <= swap16(outer[8*68 +: 16]);
    end else begin
      ip_length2_q   <= swap16(outer[8*2 +: 16]) - 16'd20;
      udp_port2_q    <= swap16(outer[8*22 +: 16]);
      udp_length2_q  <= swap16(outer[8*24 +: 16]);
      vni_valid2_q   <= outer[8*28 + 3];
      vni2_q         <= {outer[8*32 +: 8], outer[8*33 +: 8], outer[8*34 +: 8]};
      inner_ether2_q <= swap16(outer[8*48 +: 16]);
    end
  end

  // ---- 3: is there a packet inside, and where does it end? ----

  logic                  valid3_q, usable3_q, oversize3_q;
  logic [WindowBits-1:0] window3_q;
  logic [15:0]           length3_q, ether3_q, inner_ether3_q, inner_left3_q;
  logic [7:0]            ingress3_q;
  logic [1:0]            tags3_q;
  logic [11:0]           vlan_outer3_q, vlan_inner3_q;
  logic                  to_vxlan3_q, has_inner3_q, outer6_3_q;
  logic [23:0]           vni3_q;
  logic [15:0]           ip_start, ip_header, left_in_frame;
  logic                  to_vxlan, has_inner;

  assign ip_start  = 16'd14 + {12'd0, tags2_q, 2'b00};
  assign ip_header = plain6_2_q ? 16'd40 : 16'd20;
  // Not below zero with a frame that is long enough for its IP header; else the length test fails.
  assign left_in_frame = length2_q - ip_start - ip_header;
  assign to_vxlan  = (plain4_2_q || plain6_2_q) && udp_port2_q == vxlan_port_i && vxlan_port_i != 16'd0;
  // UDP, VXLAN and Ethernet are 30 bytes. What is inside ends with UDP's length.
  assign has_inner = to_vxlan && usable2_q && tags2_q != 2'd3 && vni_valid2_q
      && length2_q >= ip_start + ip_header + 16'd30
      && ip_length2_q <= left_in_frame && udp_length2_q <= ip_length2_q && udp_length2_q >= 16'd30
      && (inner_ether2_q == bartizan_rtl_pkg::ETHER_IPV4 || inner_ether2_q == bartizan_rtl_pkg::ETHER_IPV6);

  always_ff @(posedge clk_i) begin
    valid3_q       <= rst_ni && valid2_q;
    // Until the next frame with headers comes, which is two cycles later if this one has a tunnel, and which
    // at DataW 512 is kept beside it (see below).
    if (valid2_q && (DataW >= 512 || usable2_q)) begin
      window3_q      <= window2_q;
    end
    if (valid2_q) begin
      usable3_q      <= usable2_q;
      oversize3_q    <= oversize2_q;
      length3_q      <= length2_q;
      ether3_q       <= ether2_q;
      ingress3_q     <= ingress2_q;
      tags3_q        <= tags2_q;
      vlan_outer3_q  <= vlan_outer2_q;
      vlan_inner3_q  <= vlan_inner2_q;
      outer6_3_q     <= plain6_2_q;
      to_vxlan3_q    <= to_vxlan;
      has_inner3_q   <= has_inner;
      vni3_q         <= vni2_q;
      inner_ether3_q <= inner_ether2_q;
      inner_left3_q  <= udp_length2_q - 16'd30;
    end
  end

  // ---- Sequence: one record a cycle ----
  //
  // A frame with a tunnel is shown twice. `kept` is what waits for a cycle: the second record of a frame, or
  // a frame that came meanwhile. One place is enough: a frame that is shown twice had two beats.

  typedef struct packed {
    logic usable, oversize, to_vxlan, has_inner, outer6, second;
    logic [15:0] length, ether, inner_ether, inner_left;
    logic [7:0] ingress;
    logic [1:0] tags;
    logic [11:0] vlan_outer, vlan_inner;
    logic [23:0] vni;
  } waiting_t;

  waiting_t              arrived, kept_q, current;
  logic                  kept_valid_q, current_valid, again;
  logic [WindowBits-1:0] current_window;

  assign arrived.usable      = usable3_q;
  assign arrived.oversize    = oversize3_q;
  assign arrived.to_vxlan    = to_vxlan3_q;
  assign arrived.has_inner   = has_inner3_q;
  assign arrived.outer6      = outer6_3_q;
  assign arrived.second      = 1'b0;
  assign arrived.length      = length3_q;
  assign arrived.ether       = ether3_q;
  assign arrived.inner_ether = inner_ether3_q;
  assign arrived.inner_left  = inner_left3_q;
  assign arrived.ingress     = ingress3_q;
  assign arrived.tags        = tags3_q;
  assign arrived.vlan_outer  = vlan_outer3_q;
  assign arrived.vlan_inner  = vlan_inner3_q;
  assign arrived.vni         = vni3_q;

  assign current       = kept_valid_q ? kept_q : arrived;
  assign current_valid = kept_valid_q || valid3_q;
  assign again         = current.has_inner && !current.second;

  if (DataW >= 512) begin : gen_kept_window
    logic [WindowBits-1:0] kept_window_q;
    always_ff @(posedge clk_i) begin
      if (valid3_q) begin
        kept_window_q <= window3_q;
      end
    end
    assign current_window = kept_valid_q ? kept_window_q : window3_q;
  end else begin : gen_window
    // What comes directly after a frame with a tunnel has no headers: the window is still that of the frame.
    assign current_window = window3_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      kept_valid_q <= 1'b0;
    end else begin
      kept_valid_q <= (current_valid && again) || (kept_valid_q && valid3_q);
    end
    if (current_valid && again) begin
      kept_q        <= current;
      kept_q.second <= 1'b1;
    end else begin
      kept_q <= arrived;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni) begin
      assert (!(kept_valid_q && valid3_q && again)) else $error("a tunnel in a frame of one beat");
    end
  end
`endif

  // ---- 4: the packet's headers, from its IP header on ----

  logic                valid4_q, done4_q;
  waiting_t            info4_q;
  logic [ViewBits-1:0] view4_q;
  logic [15:0]         l3_4_q, left4_q, ether4_q;
  logic [3:0]          place;  // In steps of four bytes.
  logic [15:0]         l3;

  assign place = !current.second ? {2'd0, current.tags} : {current.outer6 ? 2'd2 : 2'd1, current.tags};
  assign l3    = 16'd14 + {12'd0, current.tags, 2'b00}
      + (!current.second ? 16'd0 : current.outer6 ? 16'd70 : 16'd50);

  always_ff @(posedge clk_i) begin
    valid4_q <= rst_ni && current_valid;
    done4_q  <= !again;
    info4_q  <= current;
    l3_4_q   <= l3;
    ether4_q <= current.second ? current.inner_ether : current.ether;
    left4_q  <= current.second ? current.inner_left : current.length - l3;
    unique case (place)
      4'd0:    view4_q <= current_window[8*14 +: ViewBits];
      4'd1:    view4_q <= current_window[8*18 +: ViewBits];
      4'd4:    view4_q <= current_window[8*64 +: ViewBits];
      4'd5:    view4_q <= current_window[8*68 +: ViewBits];
      4'd6:    view4_q <= current_window[8*72 +: ViewBits];
      4'd8:    view4_q <= Ipv6 != 0 ? current_window[8*84 +: ViewBits] : current_window[8*22 +: ViewBits];
      4'd9:    view4_q <= Ipv6 != 0 ? current_window[8*88 +: ViewBits] : current_window[8*22 +: ViewBits];
      4'd10:   view4_q <= Ipv6 != 0 ? current_window[8*92 +: ViewBits] : current_window[8*22 +: ViewBits];
      default: view4_q <= current_window[8*22 +: ViewBits];
    endcase
  end

  // ---- 5: IP ----

  logic         valid5_q, done5_q, ipv6_5_q, fragment5_q, options5_q, extension5_q, unknown5_q;
  logic         broken5_q, short5_q, tagged5_q;
  waiting_t     info5_q;
  logic [15:0]  l3_5_q, l4_5_q, l4_left5_q;
  logic [7:0]   protocol5_q;
  logic [127:0] source5_q, destination5_q;
  logic [111:0] head5_q;  // The first 14 bytes of the transport header.
  logic [143:0] rest5_q;  // The 18 after them, where there are no IPv4 options: window to timestamp.
  logic         is4, is6;
  logic [5:0]   header_bytes;
  logic [15:0]  total4, payload6, datagram_left;
  logic         good4, good6;
  logic [111:0] head;

  assign is4           = ether4_q == bartizan_rtl_pkg::ETHER_IPV4;
  assign is6           = ether4_q == bartizan_rtl_pkg::ETHER_IPV6;
  assign header_bytes  = is6 ? 6'd40 : {view4_q[3:0], 2'b00};
  assign total4        = swap16(view4_q[8*2 +: 16]);
  assign payload6      = swap16(view4_q[8*4 +: 16]);
  assign good4         = view4_q[7:4] == 4'd4 && view4_q[3:0] >= 4'd5 && total4 >= 16'(header_bytes)
      && left4_q >= 16'd20 && total4 <= left4_q;
  assign good6         = view4_q[7:4] == 4'd6 && left4_q >= 16'd40 && payload6 <= left4_q - 16'd40;
  assign datagram_left = is6 ? payload6 : total4 - 16'(header_bytes);

  always_comb begin
    unique case (header_bytes[5:2])
      4'd5:    head = view4_q[8*20 +: 112];
      4'd6:    head = view4_q[8*24 +: 112];
      4'd7:    head = view4_q[8*28 +: 112];
      4'd8:    head = view4_q[8*32 +: 112];
      4'd9:    head = view4_q[8*36 +: 112];
      4'd10:   head = view4_q[8*40 +: 112];
      4'd11:   head = view4_q[8*44 +: 112];
      4'd12:   head = view4_q[8*48 +: 112];
      4'd13:   head = view4_q[8*52 +: 112];
      4'd14:   head = view4_q[8*56 +: 112];
      default: head = view4_q[8*60 +: 112];
    endcase
  end

  always_ff @(posedge clk_i) begin
    valid5_q       <= rst_ni && valid4_q;
    done5_q        <= done4_q;
    info5_q        <= info4_q;
    l3_5_q         <= l3_4_q;
    l4_5_q         <= l3_4_q + 16'(header_bytes);
    l4_left5_q     <= datagram_left;
    ipv6_5_q       <= is6;
    tagged5_q      <= info4_q.tags == 2'd3;
    unknown5_q     <= !is4 && !(is6 && Ipv6 != 0);
    short5_q       <= !info4_q.usable;
    broken5_q      <= is6 ? !good6 : !good4;
    fragment5_q    <= is4 && (swap16(view4_q[8*6 +: 16]) & 16'h3fff) != 16'd0;
    options5_q     <= is4 && view4_q[3:0] != 4'd5;
    protocol5_q    <= is6 ? view4_q[8*6 +: 8] : view4_q[8*9 +: 8];
    // Extension headers, and what carries nothing (59).
    extension5_q   <= is6 && view4_q[8*6 +: 8] != bartizan_rtl_pkg::PROTOCOL_TCP
        && view4_q[8*6 +: 8] != bartizan_rtl_pkg::PROTOCOL_UDP;
    head5_q        <= head;
    rest5_q        <= is6 && Ipv6 != 0 ? view4_q[8*54 +: 144] : view4_q[8*34 +: 144];
    if (is6 && Ipv6 != 0) begin
      source5_q      <= {swap32(view4_q[8*8 +: 32]), swap32(view4_q[8*12 +: 32]),
          swap32(view4_q[8*16 +: 32]), swap32(view4_q[8*20 +: 32])};
      destination5_q <= {swap32(view4_q[8*24 +: 32]), swap32(view4_q[8*28 +: 32]),
          swap32(view4_q[8*32 +: 32]), swap32(view4_q[8*36 +: 32])};
    end else begin
      source5_q      <= {96'd0, swap32(view4_q[8*12 +: 32])};
      destination5_q <= {96'd0, swap32(view4_q[8*16 +: 32])};
    end
  end

  // ---- 6: TCP and UDP, and what goes up ----

  bartizan_rtl_pkg::headers_t headers6_q;
  logic                       valid6_q, done6_q;
  logic                       is_tcp, is_udp, good_tcp, good_udp, other_tunnel, plain_options, good_ip;
  logic [15:0]                source_port, destination_port, udp_length;
  logic [5:0]                 tcp_header;
  logic [6:0]                 cause;
  logic                       parsed;

  assign is_tcp           = protocol5_q == bartizan_rtl_pkg::PROTOCOL_TCP;
  assign is_udp           = protocol5_q == bartizan_rtl_pkg::PROTOCOL_UDP;
  assign source_port      = swap16(head5_q[15:0]);
  assign destination_port = swap16(head5_q[31:16]);
  assign udp_length       = swap16(head5_q[8*4 +: 16]);
  assign tcp_header       = {head5_q[8*12 + 4 +: 4], 2'b00};
  assign good_tcp         = is_tcp && l4_left5_q >= 16'd20 && tcp_header >= 6'd20
      && l4_left5_q >= 16'(tcp_header);
  assign good_udp         = is_udp && l4_left5_q >= 16'd8 && udp_length >= 16'd8 && udp_length <= l4_left5_q;
  // Two no-operations, then a timestamp of ten bytes: bytes 20 to 23 of the header.
  assign plain_options    = tcp_header == 6'd20 || (tcp_header == 6'd32 && rest5_q[8*6 +: 32] == 32'h0a080101);
  assign other_tunnel     = is_udp && (
      (tunnel_ports_i[15:0] != 16'd0
        && (source_port == tunnel_ports_i[15:0] || destination_port == tunnel_ports_i[15:0]))
      || (tunnel_ports_i[31:16] != 16'd0
        && (source_port == tunnel_ports_i[31:16] || destination_port == tunnel_ports_i[31:16]))
      || (tunnel_ports_i[47:32] != 16'd0
        && (source_port == tunnel_ports_i[47:32] || destination_port == tunnel_ports_i[47:32]))
      || (tunnel_ports_i[63:48] != 16'd0
        && (source_port == tunnel_ports_i[63:48] || destination_port == tunnel_ports_i[63:48]))
      // A datagram to VXLAN's port in which no packet was found, or a tunnel in a tunnel.
      || (destination_port == vxlan_port_i && vxlan_port_i != 16'd0 && !(info5_q.has_inner && !info5_q.second)));
  assign good_ip          = !short5_q && !tagged5_q && !unknown5_q && !broken5_q && !fragment5_q
      && !info5_q.oversize;
  assign parsed           = good_ip && !extension5_q && (good_tcp || good_udp);

  always_comb begin
    if (info5_q.oversize) begin
      cause = bartizan_regs_pkg::DISPOSITION_LOST_OVERSIZE;
    end else if (short5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_SHORT;
    end else if (tagged5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_VLAN;
    end else if (unknown5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_ETHER_TYPE;
    end else if (broken5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_IP_BROKEN;
    end else if (fragment5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_FRAGMENT;
    end else if (extension5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_PROTOCOL;
    end else if (!is_tcp && !is_udp) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_PROTOCOL;
    end else if (!good_tcp && !good_udp) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_TRANSPORT_BROKEN;
    end else if (other_tunnel) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_TUNNEL;
    end else if (options5_q) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_IP_OPTIONS;
    end else if (is_tcp && !plain_options) begin
      cause = bartizan_regs_pkg::DISPOSITION_UP_TCP_OPTIONS;
    end else begin
      cause = bartizan_regs_pkg::DISPOSITION_TO_PORT;
    end
  end

  always_ff @(posedge clk_i) begin
    valid6_q                    <= rst_ni && valid5_q;
    done6_q                     <= done5_q;
    headers6_q.has_inner        <= info5_q.has_inner && !info5_q.second;
    headers6_q.inner            <= info5_q.second;
    headers6_q.parsed           <= parsed;
    headers6_q.up               <= cause != bartizan_regs_pkg::DISPOSITION_TO_PORT;
    headers6_q.cause            <= cause;
    headers6_q.ipv6             <= ipv6_5_q;
    headers6_q.fragment         <= !short5_q && !tagged5_q && !unknown5_q && !broken5_q && fragment5_q;
    headers6_q.invalid          <= !short5_q && !tagged5_q && !unknown5_q
        && (broken5_q || (!fragment5_q && ((is_tcp && !good_tcp) || (is_udp && !good_udp))));
    headers6_q.ingress          <= info5_q.ingress;
    headers6_q.l3               <= l3_5_q;
    headers6_q.l4               <= l4_5_q;
    headers6_q.payload          <= l4_5_q + (is_tcp ? 16'(tcp_header) : 16'd8);
    headers6_q.payload_length   <= is_tcp ? l4_left5_q - 16'(tcp_header) : udp_length - 16'd8;
    headers6_q.vlans            <= info5_q.second ? 2'd0 : info5_q.tags;
    headers6_q.vlan_outer       <= info5_q.second ? 12'd0 : info5_q.vlan_outer;
    headers6_q.vlan_inner       <= info5_q.second ? 12'd0 : info5_q.vlan_inner;
    headers6_q.vni              <= info5_q.second ? info5_q.vni : 24'd0;
    headers6_q.tenant           <= 16'd0;
    headers6_q.protocol         <= protocol5_q;
    headers6_q.source           <= source5_q;
    headers6_q.destination      <= destination5_q;
    headers6_q.source_port      <= source_port;
    headers6_q.destination_port <= destination_port;
    headers6_q.tcp_flags        <= head5_q[8*13 +: 8];
    headers6_q.sequence_number  <= swap32(head5_q[8*4 +: 32]);
    headers6_q.acknowledged     <= swap32(head5_q[8*8 +: 32]);
    headers6_q.offered          <= swap16(rest5_q[15:0]);
    headers6_q.urgent           <= head5_q[8*13 + 5];
    headers6_q.stamped          <= tcp_header == 6'd32;
    headers6_q.timestamp        <= swap32(rest5_q[8*10 +: 32]);
    // As the host's decoder counts: a packet inside begins at its IP header and ends with the tunnel's UDP.
    headers6_q.bytes            <= info5_q.second ? info5_q.inner_left : info5_q.length;
  end

  assign valid_o   = valid6_q;
  assign done_o    = done6_q;
  assign headers_o = headers6_q;

endmodule

`default_nettype wire
