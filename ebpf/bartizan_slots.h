/* SPDX-License-Identifier: Apache-2.0
 * Generated from crates/packet/src/slots.rs by `cargo xtask generate`: do not edit.
 *
 * What the XDP level and the host share beside the key of a flow. Both run on one machine: numbers are in its own order. */
#ifndef BARTIZAN_SLOTS_H
#define BARTIZAN_SLOTS_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* Ports at most. */
#define BARTIZAN_PORTS 64

/* Blocks of 64 UDP ports. */
#define BARTIZAN_UDP_PORT_BLOCKS 1024

/* Unit of a slot's times: a power of two, in nanoseconds. */
#define BARTIZAN_SEEN_SHIFT 20

/* Sequence numbers that lie further behind the latest one have gone round. */
#define BARTIZAN_SEQUENCE_BACK 67108864U

/* A segment may end so far behind what is acknowledged. */
#define BARTIZAN_FLIGHT_MAX 16777216U

/* A timestamp that is further ahead goes up. */
#define BARTIZAN_TIMESTAMP_FAR_AHEAD 536870912U

/* How often a word is tried to be changed. */
#define BARTIZAN_WINDOW_TRIES 4U

/* Places of a bucket of the index. */
#define BARTIZAN_INDEX_PLACES 16U

/* Words of an early table; there are two, for generations of even and odd numbers. */
#define BARTIZAN_EARLY_WORDS 1048576U

/* Steps in which an address is found among the segments of an early table. */
#define BARTIZAN_EARLY_STEPS 17U

/* In the first word of an early table: its rules tell tenants apart. */
#define BARTIZAN_EARLY_TENANTS 512U

/* In the first word of an early table: packets in tunnels are judged as well. */
#define BARTIZAN_EARLY_TUNNELS 1024U

/* Actions. */
#define BARTIZAN_ACTION_FORWARD 0 /* They leave by the port across the link. */
#define BARTIZAN_ACTION_REDIRECT 1 /* They leave by the port `egress`. */
#define BARTIZAN_ACTION_DROP 2 /* They are dropped. */
#define BARTIZAN_ACTION_COMPARE 3 /* They leave by the port across the link if they plainly go on with their connection; others go up. */
#define BARTIZAN_ACTION_DROP_LOW 4 /* What the lower endpoint of the key sends is dropped; the rest goes up. */
#define BARTIZAN_ACTION_DROP_HIGH 5 /* What the higher endpoint sends is dropped; the rest goes up. */

/* Flags of controls. */
#define BARTIZAN_CONTROL_FLAG_VALID 0x01 /* The slot holds a flow. Without this flag all packets go up and nothing is counted. */

/* Flags of ports. */
#define BARTIZAN_PORT_FLAG_ENABLED 0x01 /* Both ports of the link are ready. Without this flag all frames go up and nothing is counted. */
#define BARTIZAN_PORT_FLAG_VLANS 0x02 /* VLAN ids are part of keys. */
#define BARTIZAN_PORT_FLAG_GENERIC 0x04 /* The kernel runs the program, not the driver: frames leave as all frames of the kernel do. */
#define BARTIZAN_PORT_FLAG_OPEN 0x08 /* While the worker that serves a frame has failed, a frame that would go up is forwarded. Without this flag, it is dropped. */
#define BARTIZAN_PORT_FLAG_EARLY 0x10 /* The early table refuses packets without a flow whether or not the host is alive. Without this flag, only while the link is open. */

/* Flags of exits. */
#define BARTIZAN_EXIT_FLAG_PROVEN 0x01 /* It was tested, and takes frames that a driver redirects to it. */
#define BARTIZAN_EXIT_FLAG_PARTS 0x02 /* Also frames in several buffers. */

/* Flags of numbers. */
#define BARTIZAN_NUMBERS_FLAG_TIMESTAMPS 0x01 /* Both endpoints send timestamps. */

/* Flags of ends. */
#define BARTIZAN_END_FLAG_SEEN 0x01 /* Its FIN has arrived. */
#define BARTIZAN_END_FLAG_SECOND 0x02 /* The other endpoint had ended before. */

/* The handling of the packets of a slot's flow. The host writes it. */
#define BARTIZAN_CONTROL_FLAGS(word)        ((__u8)((word) >> 0))   /* See the flags of controls. */
#define BARTIZAN_CONTROL_ACTION(word)       ((__u8)((word) >> 8))   /* See the actions. */
#define BARTIZAN_CONTROL_EGRESS(word)       ((__u8)((word) >> 16))  /* Number of the port that packets leave by, if they are redirected. */
#define BARTIZAN_CONTROL_REASON(word)       ((__u8)((word) >> 24))  /* Why, where packets are dropped: number of the reason. The program does not look at it. */
#define BARTIZAN_CONTROL_GENERATION(word)   ((__u32)((word) >> 32)) /* Low 32 bits of the generation that decided; a packet of another one goes up. */

/* A port, found by its interface's index. The host writes it. */
#define BARTIZAN_PORT_LINK(word)            ((__u16)((word) >> 0))  /* The link, as it stands in keys. */
#define BARTIZAN_PORT_SIDE(word)            ((__u8)((word) >> 16))  /* Side of the link that senders behind this port are on: 0 does not count, 1 the first, 2 the second. */
#define BARTIZAN_PORT_INDEX(word)           ((__u8)((word) >> 24))  /* Its own number. */
#define BARTIZAN_PORT_PAIR(word)            ((__u8)((word) >> 32))  /* Number of the port across the link. */
#define BARTIZAN_PORT_FLAGS(word)           ((__u8)((word) >> 40))  /* See the flags of ports. */
#define BARTIZAN_PORT_SAMPLE(word)          ((__u8)((word) >> 48))  /* Of 2^(n-1) packets that would be dropped one goes up instead, by chance; 0: none does. */
#define BARTIZAN_PORT_EARLY(word)           ((__u8)((word) >> 56))  /* One more than the number of its link among those that have early tables; 0: it has none. */

/* Limits of the frames that may leave by a port. The kernel drops frames beyond them silently. The host writes it. */
#define BARTIZAN_EXIT_LONGEST(word)         ((__u32)((word) >> 0))  /* The longest frame, in bytes. */
#define BARTIZAN_EXIT_FLAGS(word)           ((__u8)((word) >> 32))  /* See the flags of exits. */

/* The settings for reading a connection's numbers. The host writes it. */
#define BARTIZAN_NUMBERS_FLAGS(word)        ((__u8)((word) >> 0))   /* See the flags of numbers. */
#define BARTIZAN_NUMBERS_SCALE_LOW(word)    ((__u8)((word) >> 8))   /* Shift of the windows that the lower endpoint offers, 14 at most. */
#define BARTIZAN_NUMBERS_SCALE_HIGH(word)   ((__u8)((word) >> 16))  /* The same of the higher endpoint. */

/* The progress of an endpoint's sending. A processor that passes one of its segments writes it, forward only. */
#define BARTIZAN_PROGRESS_SENT(word)        ((__u32)((word) >> 0))  /* The sequence number behind all that it has sent. */
#define BARTIZAN_PROGRESS_TIMESTAMP(word)   ((__u32)((word) >> 32)) /* The timestamp that later ones are measured by (RFC 7323 section 4.3). */

/* The other endpoint's acknowledgement of that, and its window. A processor that passes one of that endpoint's segments writes it, forward only. */
#define BARTIZAN_OFFER_ACKNOWLEDGED(word)   ((__u32)((word) >> 0))  /* The latest acknowledgement of it. */
#define BARTIZAN_OFFER_EDGE(word)           ((__u32)((word) >> 32)) /* Right edge of the window that it may send into. */

/* The end of what an endpoint sends. The program writes it, once. */
#define BARTIZAN_END_NUMBER(word)           ((__u32)((word) >> 0))  /* The sequence number behind its FIN. */
#define BARTIZAN_END_FLAGS(word)            ((__u8)((word) >> 32))  /* See the flags of ends. */

/* A flow's slot, for one processor: line `slot * processors + processor`. One cache line. */
struct bartizan_slot {
	__u64 control;          /*   0: What is done, the same in the lines of all processors; the host writes it, the rest the program. */
	__u64 packets_low;      /*   8: Packets from the lower endpoint. */
	__u64 packets_high;     /*  16: Packets from the higher endpoint. */
	__u64 bytes_low;        /*  24: Bytes of their frames, from the lower endpoint. */
	__u64 bytes_high;       /*  32: Bytes of their frames, from the higher endpoint. */
	__u32 seen_low;         /*  40: When the latest came from the lower endpoint, in units of `SEEN_SHIFT`, if there was one. */
	__u32 seen_high;        /*  44: When the latest came from the higher endpoint. */
	__u32 sent_low;         /*  48: TCP: the sequence number behind all that the lower endpoint has sent, if it has. */
	__u32 sent_high;        /*  52: TCP: the same of the higher endpoint. */
	__u32 acknowledged_low; /*  56: TCP: the latest acknowledgement of the lower endpoint. */
	__u32 acknowledged_high;/*  60: TCP: the same of the higher endpoint. */
};
_Static_assert(sizeof(struct bartizan_slot) == 64, "slot");
_Static_assert(__builtin_offsetof(struct bartizan_slot, control) == 0, "slot.control");
_Static_assert(__builtin_offsetof(struct bartizan_slot, packets_low) == 8, "slot.packets_low");
_Static_assert(__builtin_offsetof(struct bartizan_slot, packets_high) == 16, "slot.packets_high");
_Static_assert(__builtin_offsetof(struct bartizan_slot, bytes_low) == 24, "slot.bytes_low");
_Static_assert(__builtin_offsetof(struct bartizan_slot, bytes_high) == 32, "slot.bytes_high");
_Static_assert(__builtin_offsetof(struct bartizan_slot, seen_low) == 40, "slot.seen_low");
_Static_assert(__builtin_offsetof(struct bartizan_slot, seen_high) == 44, "slot.seen_high");
_Static_assert(__builtin_offsetof(struct bartizan_slot, sent_low) == 48, "slot.sent_low");
_Static_assert(__builtin_offsetof(struct bartizan_slot, sent_high) == 52, "slot.sent_high");
_Static_assert(__builtin_offsetof(struct bartizan_slot, acknowledged_low) == 56, "slot.acknowledged_low");
_Static_assert(__builtin_offsetof(struct bartizan_slot, acknowledged_high) == 60, "slot.acknowledged_high");

/* The slot of a flow of packets that may carry others (UDP, IP in IP), for one processor: such a flow has no sequence numbers. All other fields are those of `slot`. */
struct bartizan_carrier {
	__u64 control;          /*   0: As in `slot`. */
	__u64 packets_low;      /*   8: As in `slot`; those that were dropped are among them. */
	__u64 packets_high;     /*  16: As in `slot`. */
	__u64 bytes_low;        /*  24: As in `slot`. */
	__u64 bytes_high;       /*  32: As in `slot`. */
	__u32 seen_low;         /*  40: As in `slot`. */
	__u32 seen_high;        /*  44: As in `slot`. */
	__u64 refused_packets;  /*  48: Packets that were dropped because what they carry is refused. Written before `packets`, read behind them: never fewer than are among those. */
	__u64 refused_bytes;    /*  56: Bytes of their frames. */
};
_Static_assert(sizeof(struct bartizan_carrier) == 64, "carrier");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, control) == 0, "carrier.control");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, packets_low) == 8, "carrier.packets_low");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, packets_high) == 16, "carrier.packets_high");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, bytes_low) == 24, "carrier.bytes_low");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, bytes_high) == 32, "carrier.bytes_high");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, seen_low) == 40, "carrier.seen_low");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, seen_high) == 44, "carrier.seen_high");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, refused_packets) == 48, "carrier.refused_packets");
_Static_assert(__builtin_offsetof(struct bartizan_carrier, refused_bytes) == 56, "carrier.refused_bytes");

/* The state of a TCP connection that all processors share: the numbers that its segments are compared with; without these, how it ends. Words change by compare and exchange only: see [`crate::windows`]. One cache line. */
struct bartizan_windows {
	__u64 numbers;          /*   0: How they are read: a word `numbers`. */
	__u64 progress_low;     /*   8: What the lower endpoint has sent: a word `progress`. */
	__u64 offer_low;        /*  16: What the higher endpoint says of that: a word `offer`. */
	__u64 progress_high;    /*  24: What the higher endpoint has sent. */
	__u64 offer_high;       /*  32: What the lower endpoint says of that. */
	__u64 end_low;          /*  40: Where nothing is compared: the end of what the lower endpoint sends, a word `end`, once it has come. */
	__u64 end_high;         /*  48: The same of the higher endpoint. */
	__u8 reserved[8];       /*  56: Zero. */
};
_Static_assert(sizeof(struct bartizan_windows) == 64, "windows");
_Static_assert(__builtin_offsetof(struct bartizan_windows, numbers) == 0, "windows.numbers");
_Static_assert(__builtin_offsetof(struct bartizan_windows, progress_low) == 8, "windows.progress_low");
_Static_assert(__builtin_offsetof(struct bartizan_windows, offer_low) == 16, "windows.offer_low");
_Static_assert(__builtin_offsetof(struct bartizan_windows, progress_high) == 24, "windows.progress_high");
_Static_assert(__builtin_offsetof(struct bartizan_windows, offer_high) == 32, "windows.offer_high");
_Static_assert(__builtin_offsetof(struct bartizan_windows, end_low) == 40, "windows.end_low");
_Static_assert(__builtin_offsetof(struct bartizan_windows, end_high) == 48, "windows.end_high");

/* The frames that arrived by a port, as one processor counts them: line `port * processors + processor`. Only while the port is enabled. The counters of most frames are in its first two cache lines. */
struct bartizan_counts {
	__u64 frames;           /*   0: Frames that came: those that went up, were forwarded, were dropped (for their flow or early), failed open and failed closed. */
	__u64 up;               /*   8: Frames that went up to the host. */
	__u64 up_bytes;         /*  16: Bytes of the frames that went up, without the checksum of a frame; so are those below. */
	__u64 forwarded;        /*  24: Frames that left by another port. */
	__u64 forwarded_bytes;  /*  32: Bytes of those that left. */
	__u64 dropped;          /*  40: Frames that were dropped for their flow. */
	__u64 dropped_bytes;    /*  48: Bytes of those that were dropped for their flow. */
	__u64 early;            /*  56: Frames without a flow that were dropped as the host would drop them, by an early table. */
	__u64 size_64;          /*  64: Frames by size, with the 4 bytes of their checksum as RFC 2819 has it: up to 64. */
	__u64 size_127;         /*  72: 65 to 127. */
	__u64 size_255;         /*  80: 128 to 255. */
	__u64 size_511;         /*  88: 256 to 511. */
	__u64 size_1023;        /*  96: 512 to 1,023. */
	__u64 size_1518;        /* 104: 1,024 to 1,518. */
	__u64 size_9216;        /* 112: 1,519 to 9,216, which RFC 2819 does not know. */
	__u64 size_larger;      /* 120: Larger. */
	__u64 early_bytes;      /* 128: Bytes of those that were dropped early. */
	__u64 open;             /* 136: Frames that were forwarded because the worker that serves them was not heard of. */
	__u64 open_bytes;       /* 144: Bytes of those that failed open. */
	__u64 closed;           /* 152: Frames that were dropped because the worker that serves them was not heard of. */
	__u64 closed_bytes;     /* 160: Bytes of those that failed closed. */
	__u64 multicast;        /* 168: Frames that came to a group of stations (RFC 2863), whatever became of them. */
	__u64 broadcast;        /* 176: Frames that came to all stations. */
	__u64 out_multicast;    /* 184: Of those below: to a group of stations. */
	__u64 out;              /* 192: Frames that were to leave by this port, having come by another one; those that its device did not take as well. */
	__u64 out_bytes;        /* 200: Bytes of those that were to leave. */
	__u64 out_broadcast;    /* 208: Of those that were to leave: to all stations. */
	__u8 reserved[40];      /* 216: Zero. */
};
_Static_assert(sizeof(struct bartizan_counts) == 256, "counts");
_Static_assert(__builtin_offsetof(struct bartizan_counts, frames) == 0, "counts.frames");
_Static_assert(__builtin_offsetof(struct bartizan_counts, up) == 8, "counts.up");
_Static_assert(__builtin_offsetof(struct bartizan_counts, up_bytes) == 16, "counts.up_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, forwarded) == 24, "counts.forwarded");
_Static_assert(__builtin_offsetof(struct bartizan_counts, forwarded_bytes) == 32, "counts.forwarded_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, dropped) == 40, "counts.dropped");
_Static_assert(__builtin_offsetof(struct bartizan_counts, dropped_bytes) == 48, "counts.dropped_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, early) == 56, "counts.early");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_64) == 64, "counts.size_64");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_127) == 72, "counts.size_127");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_255) == 80, "counts.size_255");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_511) == 88, "counts.size_511");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_1023) == 96, "counts.size_1023");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_1518) == 104, "counts.size_1518");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_9216) == 112, "counts.size_9216");
_Static_assert(__builtin_offsetof(struct bartizan_counts, size_larger) == 120, "counts.size_larger");
_Static_assert(__builtin_offsetof(struct bartizan_counts, early_bytes) == 128, "counts.early_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, open) == 136, "counts.open");
_Static_assert(__builtin_offsetof(struct bartizan_counts, open_bytes) == 144, "counts.open_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, closed) == 152, "counts.closed");
_Static_assert(__builtin_offsetof(struct bartizan_counts, closed_bytes) == 160, "counts.closed_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, multicast) == 168, "counts.multicast");
_Static_assert(__builtin_offsetof(struct bartizan_counts, broadcast) == 176, "counts.broadcast");
_Static_assert(__builtin_offsetof(struct bartizan_counts, out_multicast) == 184, "counts.out_multicast");
_Static_assert(__builtin_offsetof(struct bartizan_counts, out) == 192, "counts.out");
_Static_assert(__builtin_offsetof(struct bartizan_counts, out_bytes) == 200, "counts.out_bytes");
_Static_assert(__builtin_offsetof(struct bartizan_counts, out_broadcast) == 208, "counts.out_broadcast");

/* Whether each of 64 UDP ports may carry a tunnel that the host decodes: a bit each, the lowest port in the lowest bit. */
struct bartizan_udp_ports {
	__u64 teredo;           /*   0: Datagrams from or to the port go up if they can be Teredo: what they carry has the length of an IPv6 packet. */
	__u64 vxlan;            /*   8: Datagrams to the port may be VXLAN. */
	__u64 geneve;           /*  16: Datagrams from or to the port may be GENEVE. */
	__u64 gtp;              /*  24: Datagrams from or to the port may be GTP-U. */
};
_Static_assert(sizeof(struct bartizan_udp_ports) == 32, "udp_ports");
_Static_assert(__builtin_offsetof(struct bartizan_udp_ports, teredo) == 0, "udp_ports.teredo");
_Static_assert(__builtin_offsetof(struct bartizan_udp_ports, vxlan) == 8, "udp_ports.vxlan");
_Static_assert(__builtin_offsetof(struct bartizan_udp_ports, geneve) == 16, "udp_ports.geneve");
_Static_assert(__builtin_offsetof(struct bartizan_udp_ports, gtp) == 24, "udp_ports.gtp");

/* The workers that serve the frames of a port that go up: those of its link, which a keyed hash (`Spread` of crate `base`) chooses from. The host writes it. */
struct bartizan_watch {
	__u64 stale;            /*   0: Nanoseconds after which a worker that was not heard of has failed; 0: nobody watches, and all frames go up. */
	__u64 first;            /*   8: Number of the link's first worker among those of all links. */
	__u64 workers;          /*  16: Workers of the link. */
	__u64 address_0;        /*  24: Factor of the hash for the first word of the addresses, the only one of IPv4. */
	__u64 address_1;        /*  32: For the second word. */
	__u64 address_2;        /*  40: For the third word. */
	__u64 address_3;        /*  48: For the last word. */
	__u64 ports;            /*  56: For the ports. */
	__u64 last;             /*  64: For the last step. */
	__u64 vlans;            /*  72: For the sum of VLAN ids; 0 where they do not count. */
	__u64 start;            /*  80: What the hash begins with: the link's part. */
	__u8 reserved[40];      /*  88: Zero. */
};
_Static_assert(sizeof(struct bartizan_watch) == 128, "watch");
_Static_assert(__builtin_offsetof(struct bartizan_watch, stale) == 0, "watch.stale");
_Static_assert(__builtin_offsetof(struct bartizan_watch, first) == 8, "watch.first");
_Static_assert(__builtin_offsetof(struct bartizan_watch, workers) == 16, "watch.workers");
_Static_assert(__builtin_offsetof(struct bartizan_watch, address_0) == 24, "watch.address_0");
_Static_assert(__builtin_offsetof(struct bartizan_watch, address_1) == 32, "watch.address_1");
_Static_assert(__builtin_offsetof(struct bartizan_watch, address_2) == 40, "watch.address_2");
_Static_assert(__builtin_offsetof(struct bartizan_watch, address_3) == 48, "watch.address_3");
_Static_assert(__builtin_offsetof(struct bartizan_watch, ports) == 56, "watch.ports");
_Static_assert(__builtin_offsetof(struct bartizan_watch, last) == 64, "watch.last");
_Static_assert(__builtin_offsetof(struct bartizan_watch, vlans) == 72, "watch.vlans");
_Static_assert(__builtin_offsetof(struct bartizan_watch, start) == 80, "watch.start");

/* A worker's sign of life, which it writes between two batches. One cache line. */
struct bartizan_heartbeat {
	__u64 seen;             /*   0: When it was last heard of: nanoseconds of CLOCK_MONOTONIC, which is never set and stands still while the machine sleeps, as workers do. */
	__u8 reserved[56];      /*   8: Zero. */
};
_Static_assert(sizeof(struct bartizan_heartbeat) == 64, "heartbeat");
_Static_assert(__builtin_offsetof(struct bartizan_heartbeat, seen) == 0, "heartbeat.seen");

/* The header of an early table: its generation, and the words where its parts begin. The host writes it; `classify::early` describes the parts. */
struct bartizan_early {
	__u64 generation;       /*   0: Low 8 bits of its generation, 256, and what EARLY_TENANTS and EARLY_TUNNELS say; 0: it holds nothing. */
	__u32 source_ports;     /*   8: Classes of source ports, four in a word. */
	__u32 destination_ports;/*  12: Classes of destination ports. */
	__u32 services;         /*  16: Classes of services, two in a word, by scope, protocol and classes of ports. */
	__u32 source_port_classes;/*  20: How many classes of source ports there are. */
	__u32 destination_port_classes;/*  24: How many classes of destination ports there are. */
	__u32 service_classes;  /*  28: How many classes of services there are. */
	__u32 v4_sources;       /*  32: IPv4: segments of source addresses. */
	__u32 v4_source_count;  /*  36: How many there are; 0: all packets of the family go up. */
	__u32 v4_destinations;  /*  40: Segments of destination addresses. */
	__u32 v4_destination_count;/*  44: How many there are. */
	__u32 v4_destination_classes;/*  48: How many classes of destination addresses there are. */
	__u32 v4_pairs;         /*  52: Classes of pairs of addresses, two in a word, by the classes of both. */
	__u32 v4_outcomes;      /*  56: Outcomes, two in a word, by classes of pair and service. */
	__u32 v6_sources;       /*  60: The same of IPv6. */
	__u32 v6_source_count;  /*  64: See IPv4. */
	__u32 v6_destinations;  /*  68: See IPv4. */
	__u32 v6_destination_count;/*  72: See IPv4. */
	__u32 v6_destination_classes;/*  76: See IPv4. */
	__u32 v6_pairs;         /*  80: See IPv4. */
	__u32 v6_outcomes;      /*  84: See IPv4. */
	__u32 scopes;           /*  88: Scopes, two in a word, by link and place of the tenant's selector. Where tenants are not told apart a scope is the number of the link. */
	__u32 selectors;        /*  92: Places of selectors: one for each, and the last for what none of them selects. */
	__u32 selected;         /*  96: Places of the first selectors that fit, two in a word, by link, class of a tag and class of an address. */
	__u32 tag_classes;      /* 100: How many classes there are of VLAN ids and numbers of tunnels together. */
	__u32 host_classes;     /* 104: How many classes of addresses selectors tell apart; 1: none asks for addresses. */
	__u32 untagged;         /* 108: The class of packets without a tag, outside of tunnels. */
	__u32 vlans;            /* 112: Classes of VLAN ids, four in a word. */
	__u32 tunnels;          /* 116: Segments of numbers of tunnels, each with its class. */
	__u32 tunnel_count;     /* 120: How many there are. */
	__u32 v4_hosts;         /* 124: IPv4: segments of the addresses that selectors ask for. */
	__u32 v4_host_count;    /* 128: How many there are. */
	__u32 v6_hosts;         /* 132: The same of IPv6. */
	__u32 v6_host_count;    /* 136: See IPv4. */
	__u8 reserved[116];     /* 140: Zero. */
};
_Static_assert(sizeof(struct bartizan_early) == 256, "early");
_Static_assert(__builtin_offsetof(struct bartizan_early, generation) == 0, "early.generation");
_Static_assert(__builtin_offsetof(struct bartizan_early, source_ports) == 8, "early.source_ports");
_Static_assert(__builtin_offsetof(struct bartizan_early, destination_ports) == 12, "early.destination_ports");
_Static_assert(__builtin_offsetof(struct bartizan_early, services) == 16, "early.services");
_Static_assert(__builtin_offsetof(struct bartizan_early, source_port_classes) == 20, "early.source_port_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, destination_port_classes) == 24, "early.destination_port_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, service_classes) == 28, "early.service_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_sources) == 32, "early.v4_sources");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_source_count) == 36, "early.v4_source_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_destinations) == 40, "early.v4_destinations");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_destination_count) == 44, "early.v4_destination_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_destination_classes) == 48, "early.v4_destination_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_pairs) == 52, "early.v4_pairs");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_outcomes) == 56, "early.v4_outcomes");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_sources) == 60, "early.v6_sources");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_source_count) == 64, "early.v6_source_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_destinations) == 68, "early.v6_destinations");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_destination_count) == 72, "early.v6_destination_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_destination_classes) == 76, "early.v6_destination_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_pairs) == 80, "early.v6_pairs");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_outcomes) == 84, "early.v6_outcomes");
_Static_assert(__builtin_offsetof(struct bartizan_early, scopes) == 88, "early.scopes");
_Static_assert(__builtin_offsetof(struct bartizan_early, selectors) == 92, "early.selectors");
_Static_assert(__builtin_offsetof(struct bartizan_early, selected) == 96, "early.selected");
_Static_assert(__builtin_offsetof(struct bartizan_early, tag_classes) == 100, "early.tag_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, host_classes) == 104, "early.host_classes");
_Static_assert(__builtin_offsetof(struct bartizan_early, untagged) == 108, "early.untagged");
_Static_assert(__builtin_offsetof(struct bartizan_early, vlans) == 112, "early.vlans");
_Static_assert(__builtin_offsetof(struct bartizan_early, tunnels) == 116, "early.tunnels");
_Static_assert(__builtin_offsetof(struct bartizan_early, tunnel_count) == 120, "early.tunnel_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_hosts) == 124, "early.v4_hosts");
_Static_assert(__builtin_offsetof(struct bartizan_early, v4_host_count) == 128, "early.v4_host_count");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_hosts) == 132, "early.v6_hosts");
_Static_assert(__builtin_offsetof(struct bartizan_early, v6_host_count) == 136, "early.v6_host_count");

/* The packets dropped for an outcome of an early table, as one processor counts them. */
struct bartizan_early_count {
	__u64 packets;          /*   0: Packets. */
	__u64 bytes;            /*   8: Bytes of their frames. */
};
_Static_assert(sizeof(struct bartizan_early_count) == 16, "early_count");
_Static_assert(__builtin_offsetof(struct bartizan_early_count, packets) == 0, "early_count.packets");
_Static_assert(__builtin_offsetof(struct bartizan_early_count, bytes) == 8, "early_count.bytes");

/* The outcome of frames that were redirected to test a port. */
struct bartizan_probe {
	__u64 processor;        /*   0: The processor, plus one, that holds frames which the next report is about; 0 for none. */
	__u64 sent;             /*   8: Frames that the device took. */
	__u64 dropped;          /*  16: Frames that it did not take. */
	__u64 error;            /*  24: The number of the error that it gave for that; 0 for none. */
	__u64 device;           /*  32: The device, as the kernel's reports name it. */
	__u8 reserved[24];      /*  40: Zero. */
};
_Static_assert(sizeof(struct bartizan_probe) == 64, "probe");
_Static_assert(__builtin_offsetof(struct bartizan_probe, processor) == 0, "probe.processor");
_Static_assert(__builtin_offsetof(struct bartizan_probe, sent) == 8, "probe.sent");
_Static_assert(__builtin_offsetof(struct bartizan_probe, dropped) == 16, "probe.dropped");
_Static_assert(__builtin_offsetof(struct bartizan_probe, error) == 24, "probe.error");
_Static_assert(__builtin_offsetof(struct bartizan_probe, device) == 32, "probe.device");

/* The frames lost on their way out by a port, as one processor counts them: line `port * processors + processor`. */
struct bartizan_lost {
	__u64 frames;           /*   0: Frames that its device did not take, or that the kernel did not give it. */
	__u64 error;            /*   8: The number of the latest error that was given for it; 0 for none. */
};
_Static_assert(sizeof(struct bartizan_lost) == 16, "lost");
_Static_assert(__builtin_offsetof(struct bartizan_lost, frames) == 0, "lost.frames");
_Static_assert(__builtin_offsetof(struct bartizan_lost, error) == 8, "lost.error");

#endif
