/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets of flows that the host has decided on are handled here, before the kernel makes anything of them; everything else
 * goes up (XDP_PASS). The host writes all tables but the counters, and the numbers of connections whose segments are compared with them (windows.h), which both
 * write; an entry leaves only by the host.
 *
 * In doubt a frame goes up: what is not plain Ethernet, VLAN tags, IPv4 or IPv6, TCP or UDP, all with right lengths and without
 * fragments, options and extension headers, of TCP with no other options than open connections usually have; what opens a TCP
 * connection, resets it, or ends it otherwise than plainly (see ends_plainly). A packet in a tunnel belongs to two flows, its own and that of the packet around it: see tunnels.h. A packet without a flow may be refused
 * by the rules of the packet filter, where a link wants that: see early.h.
 *
 * The key of a flow is that of the host (crates/flow/src/key.rs, the first 56 bytes of bartizan_flow_entry) with tenant 0. What tells tenants apart
 * is in the key all the same: link and addresses always, VLAN ids where the port says so, and the number of a tunnel. So no two tenants share
 * a key, and the program need not know whose a packet is.
 *
 * Not done: tunnels in tunnels, GRE, flows of ICMP, SCTP, ESP.
 */
#include "bpf.h"
#include "bartizan_slots.h"
#include "windows.h"

char licence[] SEC("license") = "Apache-2.0";

#define ETHERNET_IPV4 0x0800
#define ETHERNET_IPV6 0x86dd
#define ETHERNET_VLAN 0x8100
#define ETHERNET_PROVIDER_VLAN 0x88a8
#define VLAN_TAGS 3

#define PROTOCOL_IPV4 4
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_IPV6 41
#define PROTOCOL_SCTP 132

/* What a packet carries, by the numbers of crates/packet (`TunnelKind`). */
#define CARRIES_NO_TUNNEL 0
#define CARRIES_IP 1
#define CARRIES_VXLAN 7
#define CARRIES_GENEVE 8
#define CARRIES_GTP 9
/* Nobody knows here: it goes up. */
#define CARRIES_SOMETHING 255

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

#define TCP_TIMESTAMPS BE32(0x0101080a)
#define TCP_TIMESTAMPS_LENGTH 12
#define TCP_BLOCKS BE32(0x01010500)

/* Flags of a key, in its last word. */
#define KEY_IPV6 (1ULL << 16)
#define KEY_LOW_ON_FIRST (1ULL << 19)
#define KEY_LOW_ON_SECOND (1ULL << 20)
#define KEY_VLANS_AT 24

#define KEY_WORDS 7

/* Lines of processors stand side by side: how many. The loader writes it, and what follows. */
const volatile __u32 processors = 1;
/* Links whose packets without a flow may be refused early, and outcomes that are counted of each. */
const volatile __u32 early_links = 1;
const volatile __u32 early_outcomes = 1;
/* Marks of flows: how many less one. */
const volatile __u32 marks_mask = 0;

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, BARTIZAN_PORTS);
	TYPE(key, __u32);   /* index of the interface that a frame came by */
	TYPE(value, __u64); /* port */
} ports SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: slots * (processors + 1) */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_slot);
} slots SEC(".maps");

/* A processor's line of a slot, behind that of its key. They stand side by side: one page, and so one walk through the tables of pages, for each packet of a flow. */
#define SLOT_LINE(slot, processor) ((slot) * (processors + 1) + 1 + (processor))

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: ports * processors */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_counts);
} counts SEC(".maps");

/* Beside the slots, since all processors share a line. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: slots */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_windows);
} windows SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, __u64); /* the generation that the level is at: packets have to be of it, by its low 32 bits */
} state SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, BARTIZAN_UDP_PORT_BLOCKS);
	TYPE(key, __u32);
	TYPE(value, struct bartizan_udp_ports);
} udp_ports SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, BARTIZAN_PORTS);
	TYPE(key, __u32);
	TYPE(value, __u64); /* what may leave by a port; where its device gives an error the program takes that away (lost.h) */
} exits SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, BARTIZAN_PORTS);
	TYPE(key, __u32);
	TYPE(value, struct bartizan_watch); /* who serves a port's frames */
} watches SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: workers of all links */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_heartbeat);
} heartbeats SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: two tables, if any */
	TYPE(key, __u32);
	TYPE(value, __u64);
} early SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: of both tables, by processor, link and outcome */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_early_count);
} early_counts SEC(".maps");

/* How many flows of the host have a hash: two numbers of 32 bits in each. The host writes it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, __u64);
} marks SEC(".maps");

/* Flows whose packets have passed while their link was open, and whose answers the rules refuse where they open: by the hash of a flow. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 1); /* the loader says how many */
	TYPE(key, __u64);
	TYPE(value, __u64);
} passed SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	NUMBER(max_entries, BARTIZAN_PORTS);
	TYPE(key, __u32);
	TYPE(value, struct bpf_devmap_val);
} egress SEC(".maps");

/* A frame: what of it can be read here, and how long it is in all. Headers that are not in the part that can be read go up. */
struct frame {
	const void *data;
	const void *end;
	__u32 length;
	__u32 cast; /* of one that is counted: the kind of its destination */
};

struct endpoint {
	__u64 high, low; /* address */
	__u16 port;
};

/* What a network header says: ends, protocol, and where and how long that what it carries is. */
struct network {
	struct endpoint source, destination;
	__u64 flags; /* of the key */
	__u32 at, length;
	__u8 protocol;
	__u8 carries; /* see above */
	__u8 odd;     /* of TCP: no flow's entry handles it */
	__u8 answers; /* of TCP: it may answer what nobody saw, and tells nothing of who opens */
	struct segment segment; /* of TCP */
};

/* Headers as they lie in a frame, numbers big endian. They stand wherever they stand: where the processor cares, the verifier does. */
struct ethernet {
	__u16 addresses[6], kind;
};

struct vlan {
	__u16 tag, kind;
};

struct ipv4 {
	__u8 version_length, service;
	__u16 length, identification, fragment;
	__u8 hops, protocol;
	__u16 checksum;
	__u32 source, destination;
};

struct ipv6 {
	__u8 version_class, class_label;
	__u16 label, length;
	__u8 next, hops;
	__u64 source_high, source_low, destination_high, destination_low;
};

struct tcp {
	__u16 source, destination;
	__u32 sequence, acknowledgement;
	__u8 offset, flags;
	__u16 window, checksum, urgent;
};

/* How options of TCP begin that data and acknowledgements have: two bytes that fill up, kind, length. */
struct option {
	__u32 head;
};

struct timestamps {
	__u32 head, own, echo;
};

struct udp {
	__u16 source, destination, length, checksum;
};

/* How headers of TCP, UDP and SCTP begin. */
struct both_ports {
	__u16 source, destination;
};

/* The header that begins at `at`, as a variable; where not all of it can be read the function returns. The bound is asked of the very pointer
 * that is read by, since the verifier forgets it for one that is computed once more. */
#define HEADER(type, header, frame, at, otherwise) \
	const struct type *header = (frame)->data + (at); \
	if ((const void *)(header + 1) > (frame)->end) \
		return otherwise;

/* Steps over VLAN tags, so many at most. `kind` becomes what follows them, `vlans` their ids. Not 0: goes up. */
INLINE int vlan_tags(const struct frame *frame, int most, __u32 *at, __u16 *kind, __u64 *vlans)
{
#pragma clang loop unroll(full)
	for (int number = 0; number < most; number++) {
		if (*kind != ETHERNET_VLAN && *kind != ETHERNET_PROVIDER_VLAN)
			return 0;
		HEADER(vlan, vlan, frame, *at, 1)
		*vlans |= (__u64)(BE16(vlan->tag) & 0x0fff) << (12 * number);
		*kind = BE16(vlan->kind);
		*at += sizeof(*vlan);
	}
	return 0;
}

/* The sum of RFC 1071 over an IPv4 header without options is what it has to be. */
INLINE int sums_up(const struct ipv4 *header)
{
	const __u32 *words = (const __u32 *)header;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

INLINE int ipv4(const struct frame *frame, __u32 at, struct network *network)
{
	HEADER(ipv4, header, frame, at, 1)
	/* Version 4, five words: no options. */
	if (header->version_length != 0x45)
		return 1;
	/* Of flags and offset only "don't fragment" may be set. */
	if (header->fragment & ~BE16(0x4000))
		return 1;
	__u32 length = BE16(header->length);
	if (length < sizeof(*header) || at + length > frame->length || !sums_up(header))
		return 1;
	network->source.high = network->destination.high = 0;
	network->source.low = BE32(header->source);
	network->destination.low = BE32(header->destination);
	network->flags = 0;
	network->protocol = header->protocol;
	network->at = at + sizeof(*header);
	network->length = length - sizeof(*header);
	return 0;
}

INLINE int ipv6(const struct frame *frame, __u32 at, struct network *network)
{
	HEADER(ipv6, header, frame, at, 1)
	if (header->version_class >> 4 != 6)
		return 1;
	__u32 length = BE16(header->length);
	if (at + sizeof(*header) + length > frame->length)
		return 1;
	network->source.high = BE64(header->source_high);
	network->source.low = BE64(header->source_low);
	network->destination.high = BE64(header->destination_high);
	network->destination.low = BE64(header->destination_low);
	network->flags = KEY_IPV6;
	/* An extension header is no transport protocol: it goes up. */
	network->protocol = header->next;
	network->at = at + sizeof(*header);
	network->length = length;
	return 0;
}

/* Reads a network header that begins at `at`. Not 0: goes up. */
INLINE int network_header(const struct frame *frame, __u32 at, __u16 kind, struct network *network)
{
	if (kind == ETHERNET_IPV4)
		return ipv4(frame, at, network);
	if (kind == ETHERNET_IPV6)
		return ipv6(frame, at, network);
	return 1;
}

/* The 16-bit words of a number, added up. */
INLINE __u64 words_of(__u64 number)
{
	return (number & 0xffff) + (number >> 16 & 0xffff) + (number >> 32 & 0xffff) + (number >> 48);
}

/* Whether a checksum is left open: a sender on this machine has put the sum of the pseudo header there, and leaves the rest to a device, which there is none of
 * on the way. The host fills it in. One packet of 65,536 has such a checksum by chance, and goes up for it. */
INLINE int is_open(const struct network *network, __u16 checksum)
{
	__u64 sum = words_of(network->source.high) + words_of(network->source.low) + words_of(network->destination.high) +
		    words_of(network->destination.low) + network->protocol + network->length;
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) == checksum;
}

/* Whether options are none, timestamps, acknowledged blocks (1 to 4), or both in this order, aligned as RFC 7323 and 2018 recommend: all that connections
 * usually have once they are open. Others may be broken, which the host's decoder tells. */
INLINE int usual_options(const struct frame *frame, __u32 at, __u32 length, struct segment *segment)
{
	segment->stamped = segment->timestamp = 0;
	if (length == 0)
		return 1;
	HEADER(option, first, frame, at, 0)
	__u32 head = first->head;
	if (head == TCP_TIMESTAMPS && length >= TCP_TIMESTAMPS_LENGTH) {
		HEADER(timestamps, timestamps, frame, at, 0)
		segment->timestamp = BE32(timestamps->own);
		segment->stamped = 1;
		length -= TCP_TIMESTAMPS_LENGTH;
		if (length == 0)
			return 1;
		HEADER(option, second, frame, at + TCP_TIMESTAMPS_LENGTH, 0)
		head = second->head;
	}
	__u32 blocks = BE32(head) & 0xff;
	return (head & BE32(0xffffff00)) == TCP_BLOCKS && blocks > 2 && blocks % 8 == 2 && blocks + 2 == length;
}

INLINE int tcp(const struct frame *frame, struct network *network)
{
	HEADER(tcp, header, frame, network->at, 1)
	network->source.port = BE16(header->source);
	network->destination.port = BE16(header->destination);
	network->carries = CARRIES_NO_TUNNEL;
	__u32 length = (header->offset >> 4) * 4;
	if (length < sizeof(*header) || length > network->length)
		return 1;
	struct segment *segment = &network->segment;
	/* What opens and resets a connection is the host's, and so is what no connection sends. */
	network->odd = !usual_options(frame, network->at + sizeof(*header), length - sizeof(*header), segment) ||
		       (header->flags & (TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK;
	segment->fin = header->flags & TCP_FIN;
	network->answers = (header->flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK);
	if (is_open(network, BE16(header->checksum)))
		return 1;
	segment->sequence = BE32(header->sequence);
	segment->end = segment->sequence + network->length - length + segment->fin;
	segment->acknowledged = BE32(header->acknowledgement);
	segment->window = BE16(header->window);
	segment->urgent = header->flags & TCP_URG;
	return 0;
}

/* Whether a datagram's payload can be Teredo, as crates/packet/src/decode/teredo.rs sees it: an IPv6 packet that fills it, perhaps behind
 * eight bytes that say where it comes from. (Authentication, which begins 0 1, is not decoded there.) */
INLINE int like_teredo(const struct frame *frame, __u32 at, __u32 length)
{
	const __u16 *first = frame->data + at;
	if (length < sizeof(struct ipv6))
		return 0;
	if ((const void *)(first + 1) > frame->end)
		return 1;
	if (*first == 0) {
		at += 8;
		length -= 8;
	}
	HEADER(ipv6, inner, frame, at, length >= sizeof(*inner))
	return inner->version_class >> 4 == 6 && length == sizeof(*inner) + BE16(inner->length);
}

/* What a datagram carries, as crates/packet/src/decode/udp.rs looks for it. That can be several things where ports are used for several kinds of tunnels. */
INLINE __u8 carried_by_udp(const struct frame *frame, __u16 source, __u16 destination, __u32 at, __u32 length)
{
	__u32 from_block = source / 64, to_block = destination / 64;
	__u64 from_bit = 1ULL << (source % 64), to_bit = 1ULL << (destination % 64);
	const struct bartizan_udp_ports *from = bpf_map_lookup_elem(&udp_ports, &from_block);
	const struct bartizan_udp_ports *to = bpf_map_lookup_elem(&udp_ports, &to_block);
	if (!from || !to)
		return CARRIES_SOMETHING;
	if ((from->teredo & from_bit || to->teredo & to_bit) && like_teredo(frame, at, length))
		return CARRIES_SOMETHING;
	int vxlan = (to->vxlan & to_bit) != 0;
	int geneve = from->geneve & from_bit || to->geneve & to_bit;
	int gtp = from->gtp & from_bit || to->gtp & to_bit;
	if (vxlan + geneve + gtp > 1)
		return CARRIES_SOMETHING;
	if (vxlan)
		return CARRIES_VXLAN;
	if (geneve)
		return CARRIES_GENEVE;
	if (gtp)
		return CARRIES_GTP;
	/* VXLAN goes to its port only. What comes from there is no tunnel to the host, and is seldom enough to go up. */
	return from->vxlan & from_bit ? CARRIES_SOMETHING : CARRIES_NO_TUNNEL;
}

INLINE int udp(const struct frame *frame, struct network *network)
{
	HEADER(udp, header, frame, network->at, 1)
	__u16 source = BE16(header->source), destination = BE16(header->destination);
	network->source.port = source;
	network->destination.port = destination;
	network->odd = network->answers = 0;
	/* Bytes behind the datagram within the packet are odd. */
	if (BE16(header->length) != network->length || network->length < sizeof(*header))
		return 1;
	if (is_open(network, BE16(header->checksum)))
		return 1;
	__u32 at = network->at + sizeof(*header), length = network->length - sizeof(*header);
	network->segment = (struct segment){};
	network->carries = carried_by_udp(frame, source, destination, at, length);
	return network->carries == CARRIES_SOMETHING;
}

#include "icmp.h"

/* Reads ports and what else has to be seen of a transport header. Not 0: goes up. */
INLINE int transport_header(const struct frame *frame, struct network *network)
{
	if (network->protocol == PROTOCOL_TCP)
		return tcp(frame, network);
	if (network->protocol == PROTOCOL_UDP)
		return udp(frame, network);
	if (network->protocol == PROTOCOL_IPV4 || network->protocol == PROTOCOL_IPV6) {
		network->source.port = network->destination.port = 0;
		network->odd = network->answers = 0;
		network->segment = (struct segment){};
		network->carries = CARRIES_IP;
		return 0;
	}
	if (network->protocol == (network->flags == KEY_IPV6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP))
		return icmp(frame, network);
	return 1;
}

INLINE int is_above(const struct endpoint *a, const struct endpoint *b)
{
	if (a->high != b->high)
		return a->high > b->high;
	if (a->low != b->low)
		return a->low > b->low;
	return a->port > b->port;
}

/* Writes the key; says whether the packet comes from the higher endpoint. */
INLINE int make_key(__u64 *key, const struct network *network, __u64 port, __u64 vlans)
{
	int from_high = is_above(&network->source, &network->destination);
	struct endpoint low = from_high ? network->destination : network->source;
	struct endpoint high = from_high ? network->source : network->destination;
	__u8 side = BARTIZAN_PORT_SIDE(port);
	__u64 flags = network->flags;
	if (side)
		flags |= (side == 1) != from_high ? KEY_LOW_ON_FIRST : KEY_LOW_ON_SECOND;
	if (BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_VLANS)
		flags |= vlans << KEY_VLANS_AT;
	key[0] = low.high;
	key[1] = low.low;
	key[2] = high.high;
	key[3] = high.low;
	key[4] = 0;
	key[5] = low.port | (__u64)high.port << 16 | (__u64)BARTIZAN_PORT_LINK(port) << 48;
	key[6] = network->protocol | flags;
	return from_high;
}

/* Parses a frame into its flow's key. Negative: goes up; else whether it comes from the higher endpoint. */
INLINE int parse(const struct frame *frame, __u64 port, __u64 *key, struct network *network)
{
	HEADER(ethernet, ethernet, frame, 0, -1)
	__u16 kind = BE16(ethernet->kind);
	__u32 at = sizeof(*ethernet);
	__u64 vlans = 0;
	if (vlan_tags(frame, VLAN_TAGS, &at, &kind, &vlans) || network_header(frame, at, kind, network) ||
	    transport_header(frame, network))
		return -1;
	return make_key(key, network, port, vlans);
}

INLINE void count_size(struct bartizan_counts *line, __u32 length)
{
	__u32 size = length + 4;
	if (size <= 64)
		line->size_64++;
	else if (size <= 127)
		line->size_127++;
	else if (size <= 255)
		line->size_255++;
	else if (size <= 511)
		line->size_511++;
	else if (size <= 1023)
		line->size_1023++;
	else if (size <= 1518)
		line->size_1518++;
	else if (size <= 9216)
		line->size_9216++;
	else
		line->size_larger++;
}

#include "casts.h"

/* The later one of two sequence numbers. One that is far behind has gone round while other processors had the connection's packets. */
INLINE __u32 later(__u32 had, __u32 now)
{
	return had - now < BARTIZAN_SEQUENCE_BACK ? had : now;
}

/* Notes in this processor's line how far a connection has come with a segment: before it leaves, so before anybody answers it. */
INLINE void note_progress(struct bartizan_slot *line, const struct segment *segment, int from_high)
{
	if (from_high) {
		int first = line->packets_high == 0;
		line->sent_high = first ? segment->end : later(line->sent_high, segment->end);
		line->acknowledged_high = first ? segment->acknowledged : later(line->acknowledged_high, segment->acknowledged);
	} else {
		int first = line->packets_low == 0;
		line->sent_low = first ? segment->end : later(line->sent_low, segment->end);
		line->acknowledged_low = first ? segment->acknowledged : later(line->acknowledged_low, segment->acknowledged);
	}
}

/* This processor's line, so that nobody else writes it: neither lock nor atomic operation. */
INLINE void count_packet(struct bartizan_slot *line, __u32 length, int from_high)
{
	__u32 now = bpf_ktime_get_boot_ns() >> BARTIZAN_SEEN_SHIFT;
	if (from_high) {
		line->seen_high = now;
		line->packets_high++;
		line->bytes_high += length;
	} else {
		line->seen_low = now;
		line->packets_low++;
		line->bytes_low += length;
	}
}

/* Counts a packet for its flow. Only connections have sequence numbers: in lines of other flows something else stands there (struct bartizan_carrier). */
INLINE void count_flow(struct bartizan_slot *line, __u32 length, const struct network *network, int from_high)
{
	if (network->protocol == PROTOCOL_TCP)
		note_progress(line, &network->segment, from_high);
	count_packet(line, length, from_high);
}

/* Whether a frame lies in several buffers, of which only the first can be read. */
INLINE int has_parts(const struct frame *frame)
{
	return frame->length > 0xffff || frame->data + frame->length > frame->end;
}

/* Whether a frame may leave by a port. What may not would be dropped by the kernel, and nobody told. */
INLINE int may_leave(const struct frame *frame, __u64 port, __u32 out)
{
	const volatile __u64 *entry = bpf_map_lookup_elem(&exits, &out);
	if (!entry)
		return 0;
	__u64 exit = *entry;
	if (frame->length > BARTIZAN_EXIT_LONGEST(exit))
		return 0;
	/* What the kernel redirects leaves as everything does that it sends. */
	if (BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_GENERIC)
		return 1;
	if (!(BARTIZAN_EXIT_FLAGS(exit) & BARTIZAN_EXIT_FLAG_PROVEN))
		return 0;
	return BARTIZAN_EXIT_FLAGS(exit) & BARTIZAN_EXIT_FLAG_PARTS || !has_parts(frame);
}

/* Whether the host is to see a packet that would be dropped: it drops it as well, and tells of it. */
INLINE int is_sample(__u64 port)
{
	__u8 sample = BARTIZAN_PORT_SAMPLE(port);
	return sample && !(bpf_get_prandom_u32() & ((1U << ((sample - 1) & 31)) - 1));
}

/* Whether a FIN plainly ends what its sender has sent here: it begins where that ends, or came before. It is noted for the host, which reads it with the counts: so is told that the
 * connection ends, while its segments go on here. Two FINs of a side are one; what was lost or overtaken before, or has come another way, only the host can tell. */
INLINE int ends_plainly(const struct bartizan_slot *line, const struct segment *segment, __u32 slot, int from_high)
{
	struct bartizan_windows *shared = bpf_map_lookup_elem(&windows, &slot);
	if (!shared)
		return 0;
	__u64 *own = from_high ? &shared->end_high : &shared->end_low;
	__u64 *other = from_high ? &shared->end_low : &shared->end_high;
	__u64 had = read_once(own);
	if (had)
		return BARTIZAN_END_NUMBER(had) == segment->end;
	if (!(from_high ? line->packets_high : line->packets_low) ||
	    (from_high ? line->sent_high : line->sent_low) != segment->sequence)
		return 0;
	__u64 flags = BARTIZAN_END_FLAG_SEEN | (read_once(other) ? BARTIZAN_END_FLAG_SECOND : 0);
	had = __sync_val_compare_and_swap(own, 0, segment->end | flags << 32);
	return !had || BARTIZAN_END_NUMBER(had) == segment->end;
}

#include "index.h"

/* What becomes of a frame whose flow has a slot; `leaves`: the port by which it leaves, if it does. Only what is dropped or leaves here is counted for the flow. */
INLINE int act(const struct frame *frame, const struct network *network, __u64 port, __u32 slot, __u32 processor,
	       int from_high, __u32 *leaves)
{
	__u32 zero = 0, index = SLOT_LINE(slot, processor);
	struct bartizan_slot *line = bpf_map_lookup_elem(&slots, &index);
	const volatile __u64 *generation = bpf_map_lookup_elem(&state, &zero);
	if (!line || !generation)
		return XDP_PASS;
	__u64 control = *(volatile __u64 *)&line->control;
	if (!(BARTIZAN_CONTROL_FLAGS(control) & BARTIZAN_CONTROL_FLAG_VALID) ||
	    BARTIZAN_CONTROL_GENERATION(control) != (__u32)*generation)
		return XDP_PASS;
	__u8 action = BARTIZAN_CONTROL_ACTION(control);
	struct numbers numbers;
	/* What the other endpoint sends goes up. */
	if (action == (from_high ? BARTIZAN_ACTION_DROP_HIGH : BARTIZAN_ACTION_DROP_LOW))
		action = BARTIZAN_ACTION_DROP;
	/* Who refuses or follows a connection is to see its end. */
	if (action > BARTIZAN_ACTION_COMPARE || (network->segment.fin && action != BARTIZAN_ACTION_FORWARD))
		return XDP_PASS;
	if (action == BARTIZAN_ACTION_COMPARE) {
		struct bartizan_windows *shared = bpf_map_lookup_elem(&windows, &slot);
		if (!shared)
			return XDP_PASS;
		find_numbers(shared, from_high, &numbers);
		if (!is_plain(&numbers, &network->segment))
			return XDP_PASS;
	}
	if (action == BARTIZAN_ACTION_DROP) {
		if (is_sample(port))
			return XDP_PASS;
		/* What does not leave moves no connection on. */
		count_packet(line, frame->length, from_high);
		return XDP_DROP;
	}
	__u32 out = action == BARTIZAN_ACTION_REDIRECT ? BARTIZAN_CONTROL_EGRESS(control) : BARTIZAN_PORT_PAIR(port);
	if (!may_leave(frame, port, out))
		return XDP_PASS;
	/* Without such a port the answer is what stands in the flags. */
	if (bpf_redirect_map(&egress, out, XDP_PASS) != XDP_REDIRECT)
		return XDP_PASS;
	/* The last thing that is asked: an end that is noted has left. */
	if (network->segment.fin && !ends_plainly(line, &network->segment, slot, from_high))
		return XDP_PASS;
	if (action == BARTIZAN_ACTION_COMPARE && !move_connection(&numbers, &network->segment, from_high))
		return XDP_PASS;
	count_flow(line, frame->length, network, from_high);
	*leaves = out;
	return XDP_REDIRECT;
}

#include "watch.h"

/* No action of XDP. */
#define MISSED 254

/* Kinds of packets that early tables tell apart: TCP, UDP, ICMP of IPv4 and of IPv6, and whatever else there is, or of which that is not known. */
#define EARLY_KINDS 5
#define EARLY_WHATEVER 4

/* Above the ids of tags: how many there are. */
#define VLANS_COUNT_AT 36

/* What is asked of a packet without a flow (early.h). */
struct question {
	__u64 source_high, source_low, destination_high, destination_low;
	__u64 hash;
	__u16 source_port, destination_port;
	__u8 protocol; /* kind in the tables */
	__u8 ipv6, answers;
	__u8 begins; /* it opens a connection, and can answer nothing; told only while a link is open */
	__u64 network; /* the VLAN ids of its tags, 12 bits each, and above them how many; only where they tell tenants. In a tunnel the tunnel as `carried` has it */
	__u32 inside;  /* of a packet in a tunnel: its length as the host counts, which is never 0 */
	__u32 reserved;
};

INLINE void ask(struct question *question, __u64 hash, const struct network *network)
{
	question->source_high = network->source.high;
	question->source_low = network->source.low;
	question->destination_high = network->destination.high;
	question->destination_low = network->destination.low;
	question->hash = hash;
	question->source_port = network->source.port;
	question->destination_port = network->destination.port;
	question->protocol = network->protocol == PROTOCOL_TCP ? 0 : network->protocol == PROTOCOL_UDP ? 1 : 2;
	if (question->protocol == 2)
		question->protocol += network->flags == KEY_IPV6;
	question->ipv6 = network->flags == KEY_IPV6;
	question->answers = network->answers;
	question->begins = 0;
	question->network = question->inside = 0;
}

#include "tunnels.h"
#include "early.h"
#include "open.h"
#include "lost.h"

/* What becomes of a frame, or `CARRIES`: that is a matter of what is in `around` then, and of what that carries; or `MISSED`: it has no flow here, and `question` says of which rules
 * there are to be asked. Not inlined, so that its stack is free again before
 * `carry` has its own: of both together there would be too little. */
static __attribute__((noinline)) int handle(const struct frame *frame, __u64 port, __u32 processor, struct around *around,
					    struct question *question)
{
	__u64 key[KEY_WORDS];
	struct network network;
	int from_high = parse(frame, port, key, &network), judges = BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_EARLY;
	if (from_high < 0 || (network.odd && !judges))
		return XDP_PASS;
	__u64 hash = hash_of(key);
	__u32 slot = find_flow((const struct key *)key, hash);
	if (slot == NO_SLOT) {
		if (!judges || network.carries)
			return XDP_PASS;
		ask(question, hash, &network);
		return MISSED;
	}
	if (network.odd)
		return XDP_PASS;
	if (network.carries) {
		around->port = port;
		around->at = network.at;
		around->length = network.length;
		around->frame_length = frame->length;
		around->slot = slot;
		around->processor = processor;
		around->from_high = from_high;
		around->carries = network.carries;
		around->protocol = network.protocol;
		return CARRIES;
	}
	return act(frame, &network, port, slot, processor, from_high, &around->out);
}

/* What becomes of a frame that goes up: that, unless the worker that it would go to was not heard of for too long. Then it leaves or is dropped, as the
 * port says; refused flows stay refused, and what cannot leave goes up all the same. Not inlined: as `handle`. */
static __attribute__((noinline)) int go_up(struct xdp_md *context, const struct frame *frame, __u64 port, __u32 processor,
					   struct bartizan_counts *counted)
{
	if (!is_stale(frame, port)) {
		counted->up++;
		counted->up_bytes += frame->length;
		return XDP_PASS;
	}
	if (!(BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_OPEN) || is_refused(context, frame, port)) {
		counted->closed++;
		counted->closed_bytes += frame->length;
		return XDP_DROP;
	}
	__u32 out = BARTIZAN_PORT_PAIR(port);
	if (may_leave(frame, port, out) && bpf_redirect_map(&egress, out, XDP_PASS) == XDP_REDIRECT) {
		counted->open++;
		counted->open_bytes += frame->length;
		count_out(frame, out, processor);
		return XDP_REDIRECT;
	}
	counted->up++;
	counted->up_bytes += frame->length;
	return XDP_PASS;
}

/* What becomes of a frame, and counts it; XDP_PASS: it goes up. Not inlined: as `handle`. */
static __attribute__((noinline)) int decide(struct xdp_md *context, const struct frame *frame, __u64 port, __u32 processor,
					    struct bartizan_counts *line)
{
	struct around around = {};
	struct question question;
	int result = handle(frame, port, processor, &around, &question);
	if (result == CARRIES) {
		result = carry(context, &around);
		if (result == MISSED)
			result = ask_inside(context, &around, &question);
	}
	if (result == MISSED && refuses_early(frame, port, processor, &question, &around)) {
		line->early++;
		line->early_bytes += frame->length;
		return XDP_DROP;
	}
	if (result == XDP_REDIRECT) {
		line->forwarded++;
		line->forwarded_bytes += frame->length;
		count_out(frame, around.out, processor);
	} else if (result == XDP_DROP) {
		line->dropped++;
		line->dropped_bytes += frame->length;
	} else {
		result = XDP_PASS;
	}
	return result;
}

SEC("xdp.frags")
int bartizan_flows(struct xdp_md *context)
{
	__u32 ingress = context->ingress_ifindex;
	const volatile __u64 *entry = bpf_map_lookup_elem(&ports, &ingress);
	if (!entry)
		return XDP_PASS;
	__u64 port = *entry;
	if (!(BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_ENABLED))
		return XDP_PASS;
	__u32 processor = bpf_get_smp_processor_id();
	__u32 index = BARTIZAN_PORT_INDEX(port) * processors + processor;
	struct bartizan_counts *line = bpf_map_lookup_elem(&counts, &index);
	if (!line || processor >= processors)
		return XDP_PASS;
	struct frame frame = {
		.data = (const void *)(long)context->data,
		.end = (const void *)(long)context->data_end,
		.length = bpf_xdp_get_buff_len(context),
	};
	frame.cast = cast_of(&frame);
	line->frames++;
	count_cast(line, frame.cast);
	count_size(line, frame.length);
	int result = decide(context, &frame, port, processor, line);
	return result == XDP_PASS ? go_up(context, &frame, port, processor, line) : result;
}
