/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets in tunnels, for flows.bpf.c, of which this is a part: VXLAN (RFC 7348), GENEVE (RFC 8926), GTP-U (3GPP TS 29.281), IP in IP (RFC 2003, 4213, 2473).
 *
 * The host counts a packet in a tunnel for its own flow, and the packet around it for another one, and inspects both. So a frame is handled here only if
 * both flows have an entry of this generation, and that of the flow around forwards. The one inside forwards as well (perhaps after its segments were compared with windows: windows.h), or drops: then the packet around is dropped for what it carries,
 * which its line says. Each counts what the host would: of the packet inside the bytes from where it begins (behind the Ethernet header of VXLAN, with that of GENEVE).
 *
 * Read is what the host's decoder reads in the same way (crates/packet/src/decode): one tunnel, with its header as the standard has it. Up goes the rest: what the
 * host refuses or takes for no tunnel, other lengths than all of the packet around, tags inside, a tunnel inside.
 *
 * Not done: GRE. The packet around has no flow, so functions look at each. */
#ifndef BARTIZAN_TUNNELS_H
#define BARTIZAN_TUNNELS_H

#define ETHERNET_BRIDGE 0x6558

/* The flag I, and nothing that is reserved. */
#define VXLAN_FLAGS BE32(0x08000000)
#define VNI_RESERVED BE32(0x000000ff)

#define GENEVE_VERSION 0xc0
#define GENEVE_OPTIONS 0x3f
#define GENEVE_RESERVED 0x3f
#define GENEVE_OPTION_LENGTH 0x1f
/* Options that are stepped over. */
#define GENEVE_OPTIONS_MOST 4

/* Version 1, protocol type GTP. */
#define GTP_VERSION 0xf0
#define GTP_VERSION_1 0x30
/* Sequence number, number of the N-PDU, extension headers: with any of them there is room for all. */
#define GTP_OPTIONAL 0x07
#define GTP_EXTENSION 0x04
#define GTP_USER_PACKET 0xff
/* Extension headers that are stepped over. */
#define GTP_EXTENSIONS_MOST 2

/* Ethernet, tags and the network header of the packet around are no longer. */
#define HEADERS_BEFORE 128

/* The level of a packet in one tunnel, in the last word of its key. */
#define KEY_IN_TUNNEL (1ULL << 8)
/* Where the kind of a tunnel stands in its word of the key, above its number. */
#define KEY_TUNNEL_KIND_AT 32

struct vxlan {
	__u32 flags, vni;
};

struct geneve {
	__u8 version_options, flags;
	__u16 kind;
	__u32 vni;
};

struct geneve_option {
	__u16 class;
	__u8 type, length;
};

struct gtp {
	__u8 flags, kind;
	__u16 length;
	__u32 end;
};

struct gtp_optional {
	__u16 sequence;
	__u8 number, next;
};

struct byte {
	__u8 value;
};

/* A packet in a tunnel. */
struct carried {
	__u64 tunnel; /* its number, and above it its kind */
	__u32 start;  /* where it begins, as the host counts */
	__u32 at;     /* its network header */
	__u32 end;    /* of what the tunnel carries */
	__u16 kind;   /* EtherType of its network header */
	__u8 parted;  /* the packet around is a first fragment: the tunnel goes on behind it */
};

/* A tunnel as keys have it: of GTP-U each side numbers its own end, so no number is in the key. */
INLINE __u64 tunnel_in_key(__u64 tunnel)
{
	return tunnel >> KEY_TUNNEL_KIND_AT == CARRIES_GTP ? (__u64)CARRIES_GTP << KEY_TUNNEL_KIND_AT : tunnel;
}

/* It is a tunnel, with more options than are stepped over. */
#define TUNNEL_FARTHER 2

INLINE int vxlan(const struct frame *frame, __u32 at, struct carried *carried)
{
	HEADER(vxlan, header, frame, at, 1)
	if (header->flags != VXLAN_FLAGS || header->vni & VNI_RESERVED)
		return 1;
	HEADER(ethernet, ethernet, frame, at + sizeof(*header), 1)
	carried->tunnel = BE32(header->vni) >> 8;
	carried->kind = BE16(ethernet->kind);
	carried->start = carried->at = at + sizeof(*header) + sizeof(*ethernet);
	return 0;
}

INLINE int geneve(const struct frame *frame, __u32 at, struct carried *carried)
{
	HEADER(geneve, header, frame, at, 1)
	if (header->version_options & GENEVE_VERSION || header->flags & GENEVE_RESERVED || header->vni & VNI_RESERVED)
		return 1;
	__u16 kind = BE16(header->kind);
	carried->tunnel = BE32(header->vni) >> 8;
	at += sizeof(*header);
	__u32 behind = at + (header->version_options & GENEVE_OPTIONS) * 4;
#pragma clang loop unroll(full)
	for (int number = 0; number < GENEVE_OPTIONS_MOST; number++) {
		if (at != behind) {
			HEADER(geneve_option, option, frame, at, 1)
			at += sizeof(*option) + (option->length & GENEVE_OPTION_LENGTH) * 4;
		}
	}
	if (at != behind)
		return TUNNEL_FARTHER;
	carried->start = at;
	if (kind == ETHERNET_BRIDGE) {
		HEADER(ethernet, ethernet, frame, at, 1)
		kind = BE16(ethernet->kind);
		at += sizeof(*ethernet);
	}
	carried->at = at;
	carried->kind = kind;
	return 0;
}

/* Steps over what may follow a header of GTP-U. Not 0: goes up. */
INLINE int gtp_optional(const struct frame *frame, __u32 *at, __u8 flags)
{
	HEADER(gtp_optional, optional, frame, *at, 1)
	__u8 next = flags & GTP_EXTENSION ? optional->next : 0;
	*at += sizeof(*optional);
#pragma clang loop unroll(full)
	for (int number = 0; number < GTP_EXTENSIONS_MOST; number++) {
		if (!next)
			return 0;
		HEADER(byte, words, frame, *at, 1)
		__u32 length = words->value * 4;
		if (!length)
			return 1;
		HEADER(byte, last, frame, *at + length - 1, 1)
		next = last->value;
		*at += length;
	}
	return next ? TUNNEL_FARTHER : 0;
}

INLINE int gtp(const struct frame *frame, __u32 at, struct carried *carried)
{
	HEADER(gtp, header, frame, at, 1)
	if ((header->flags & GTP_VERSION) != GTP_VERSION_1 || header->kind != GTP_USER_PACKET)
		return 1;
	at += sizeof(*header);
	__u32 end = at + BE16(header->length);
	if (carried->parted ? end < carried->end : end != carried->end)
		return 1;
	__u8 flags = header->flags;
	int odd = flags & GTP_OPTIONAL ? gtp_optional(frame, &at, flags) : 0;
	if (odd)
		return odd;
	HEADER(byte, first, frame, at, 1)
	carried->tunnel = BE32(header->end);
	carried->kind = first->value >> 4 == 6 ? ETHERNET_IPV6 : ETHERNET_IPV4;
	carried->start = carried->at = at;
	return 0;
}

/* A packet that carries another one, and what is known of its frame; by which port it leaves. */
struct around {
	__u64 port;
	__u32 at, length; /* of what follows its network header */
	__u32 frame_length;
	__u32 slot, processor;
	__u32 from_high;
	__u32 out; /* the port by which the frame leaves, if it does */
	__u8 carries, protocol;
};

/* No action of XDP. */
#define CARRIES 255

/* Where the packet begins that another one carries, behind whose network header, at `at`, there are `length` bytes. Not 0: goes up. */
INLINE int carried_by(const struct frame *frame, __u8 carries, __u8 protocol, __u32 at, __u32 length,
		      struct carried *carried)
{
	__u32 load = at + sizeof(struct udp);
	int odd = 0;
	carried->end = at + length;
	if (carries == CARRIES_VXLAN) {
		odd = vxlan(frame, load, carried);
	} else if (carries == CARRIES_GENEVE) {
		odd = geneve(frame, load, carried);
	} else if (carries == CARRIES_GTP) {
		odd = gtp(frame, load, carried);
	} else {
		carried->tunnel = 0;
		carried->start = carried->at = at;
		carried->kind = protocol == PROTOCOL_IPV6 ? ETHERNET_IPV6 : ETHERNET_IPV4;
	}
	carried->tunnel |= (__u64)carries << KEY_TUNNEL_KIND_AT;
	return odd;
}

/* This processor's line of a slot, if it acts: it is valid, and of the generation. `action` becomes what it does. */
INLINE struct bartizan_slot *acting(__u32 slot, __u32 processor, __u8 *action)
{
	__u32 zero = 0, index = SLOT_LINE(slot, processor);
	struct bartizan_slot *line = bpf_map_lookup_elem(&slots, &index);
	const volatile __u64 *generation = bpf_map_lookup_elem(&state, &zero);
	if (!line || !generation)
		return 0;
	__u64 control = *(volatile __u64 *)&line->control;
	if (BARTIZAN_CONTROL_FLAGS(control) != BARTIZAN_CONTROL_FLAG_VALID ||
	    BARTIZAN_CONTROL_GENERATION(control) != (__u32)*generation)
		return 0;
	*action = BARTIZAN_CONTROL_ACTION(control);
	return line;
}

/* A packet is dropped for what it carries. */
INLINE void count_carrier(struct bartizan_slot *around, __u32 length)
{
	volatile struct bartizan_carrier *carrier = (void *)around;
	carrier->refused_packets++;
	carrier->refused_bytes += length;
	BARRIER();
}

/* A packet is refused, and that around it for what it carries. That is written before the packet itself is counted: who reads in between takes none that was dropped for one
 * that has left. */
INLINE void count_refused(struct bartizan_slot *line, __u32 length, int from_high, struct bartizan_slot *around,
			  __u32 length_around, int around_from_high)
{
	count_packet(line, length, from_high);
	count_carrier(around, length_around);
	count_packet(around, length_around, around_from_high);
}

/* What becomes of a frame with a tunnel, whose outer flow has a slot. A function of its own, not inlined and not static: the verifier looks at it once, and not once
 * for each way in which the headers before can have been read. It sees only what is in `around`, and that as numbers that can be any.
 * Or `MISSED`: no entry handles the packet inside, and rules are to be asked (`ask_inside`). */
__attribute__((noinline)) int carry(struct xdp_md *context, struct around *around)
{
	struct carried carried = {};
	struct network inside;
	__u64 key[KEY_WORDS];
	if (!around || around->at > HEADERS_BEFORE)
		return XDP_PASS;
	__u32 processor = around->processor;
	__u64 port = around->port;
	struct frame frame = {
		.data = (const void *)(long)context->data,
		.end = (const void *)(long)context->data_end,
		.length = around->frame_length,
	};
	if (carried_by(&frame, around->carries, around->protocol, around->at, around->length, &carried))
		return XDP_PASS;
	/* It ends where the tunnel does. */
	struct frame inner = {.data = frame.data, .end = frame.end, .length = carried.end};
	if (network_header(&inner, carried.at, carried.kind, &inside) || transport_header(&inner, &inside) ||
	    inside.carries)
		return XDP_PASS;
	int missed = BARTIZAN_PORT_FLAGS(port) & BARTIZAN_PORT_FLAG_EARLY ? MISSED : XDP_PASS;
	if (inside.odd || inside.segment.fin)
		return missed;
	int inside_from_high = make_key(key, &inside, port, 0);
	key[4] = tunnel_in_key(carried.tunnel);
	key[6] |= KEY_IN_TUNNEL;
	__u32 slot = find_flow((const struct key *)key, hash_of(key));
	if (slot == NO_SLOT)
		return missed;
	__u8 action = 0, action_around = 0;
	struct bartizan_slot *line = acting(slot, processor, &action);
	struct bartizan_slot *line_around = acting(around->slot, processor, &action_around);
	__u32 out = BARTIZAN_PORT_PAIR(port), length = carried.end - carried.start;
	/* What refuses or redirects the packet around looks inside first: the host does. */
	if (!line || !line_around || action_around != BARTIZAN_ACTION_FORWARD)
		return XDP_PASS;
	if (action == BARTIZAN_ACTION_DROP) {
		/* While nobody is there to drop the sample, it would go on. */
		if (is_sample(port) && !is_stale(&frame, port))
			return XDP_PASS;
		count_refused(line, length, inside_from_high, line_around, frame.length, around->from_high);
		return XDP_DROP;
	}
	int compare = action == BARTIZAN_ACTION_COMPARE;
	SETTLED(compare);
	if (!compare && action != BARTIZAN_ACTION_FORWARD)
		return XDP_PASS;
	struct numbers numbers;
	if (compare) {
		__u32 shared_slot = slot;
		struct bartizan_windows *shared = bpf_map_lookup_elem(&windows, &shared_slot);
		if (!shared)
			return XDP_PASS;
		find_numbers(shared, inside_from_high, &numbers);
		if (!is_plain(&numbers, &inside.segment))
			return XDP_PASS;
	}
	if (!may_leave(&frame, port, out) || bpf_redirect_map(&egress, out, XDP_PASS) != XDP_REDIRECT)
		return XDP_PASS;
	if (compare && !move_connection(&numbers, &inside.segment, inside_from_high))
		return XDP_PASS;
	count_flow(line, length, &inside, inside_from_high);
	count_packet(line_around, frame.length, around->from_high);
	around->out = out;
	return XDP_REDIRECT;
}

/* Reads what is asked of a packet in a tunnel that `carry` has missed, once more, so that those that have flows do not pay for it. `MISSED`: `question` says it; else it goes up, since it
 * has an entry. Not static, as `carry`. */
__attribute__((noinline)) int ask_inside(struct xdp_md *context, const struct around *around, struct question *question)
{
	struct carried carried = {};
	struct network inside;
	__u64 key[KEY_WORDS];
	if (!around || !question || around->at > HEADERS_BEFORE)
		return XDP_PASS;
	struct frame frame = {
		.data = (const void *)(long)context->data,
		.end = (const void *)(long)context->data_end,
		.length = around->frame_length,
	};
	if (carried_by(&frame, around->carries, around->protocol, around->at, around->length, &carried))
		return XDP_PASS;
	frame.length = carried.end;
	if (network_header(&frame, carried.at, carried.kind, &inside) || transport_header(&frame, &inside))
		return XDP_PASS;
	/* That there is such a tunnel is a guess, and the host takes it for none if anything of the packet inside is wrong. */
	if (around->carries == CARRIES_GTP && inside.odd)
		return XDP_PASS;
	make_key(key, &inside, around->port, 0);
	key[4] = tunnel_in_key(carried.tunnel);
	key[6] |= KEY_IN_TUNNEL;
	__u64 hash = hash_of(key);
	if (find_flow((const struct key *)key, hash) != NO_SLOT)
		return XDP_PASS;
	ask(question, hash, &inside);
	question->inside = carried.end - carried.start;
	question->network = carried.tunnel;
	return MISSED;
}

#endif
