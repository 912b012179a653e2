/* SPDX-License-Identifier: Apache-2.0
 *
 * What does not leave a link that is open (its workers give no sign of life, `fail: open`), for flows.bpf.c, of which this is a part: what the host has refused, and what it would refuse.
 *
 * Refused is a packet of a flow whose entry refuses, and one that the early table (early.h) refuses. Nobody marks flows while nobody is there, so who began has to be told otherwise. What is refused
 * whichever side began is dropped. What is refused only if its own sender began may be an answer: it leaves if the host knew its flow, or if a packet of the flow has left the other way while the link
 * was open (`passed`); else its sender began, and it is dropped. A SYN answers nothing.
 *
 * Read is more than the host's entries handle, since nobody else does: options of IPv4, extension headers, fragments, wrong checksums, and one tunnel. Later fragments have no ports: they are
 * refused where the table refuses whatever there is between the addresses. Without the first one, which has ports, they are no datagram: so of a tunnel in fragments the first one is judged by the headers inside that it
 * has. What hides its ports (a first fragment without them, more extension headers or options of a tunnel than anybody has use for, more tags than are stepped over) is dropped.
 *
 * Not done: what GRE, Teredo, tags in tunnels and a second tunnel carry is not looked at. */
#ifndef BARTIZAN_OPEN_H
#define BARTIZAN_OPEN_H

/* Extension headers that are stepped over. */
#define OPEN_EXTENSIONS_MOST 8
/* Network headers begin no farther from the frame's begin. */
#define OPEN_DEEPEST 2048

#define EXTENSION_HOPS 0
#define EXTENSION_ROUTING 43
#define EXTENSION_FRAGMENT 44
#define EXTENSION_AUTHENTICATION 51
#define EXTENSION_DESTINATION 60
#define EXTENSION_MOBILITY 135
#define EXTENSION_HOST_IDENTITY 139
#define EXTENSION_SHIM 140

/* What is known of a packet. */
#define OPEN_NOTHING 0 /* it is no IP packet, or one that no receiver takes */
#define OPEN_HIDES 1   /* its ports cannot be read */
#define OPEN_JUDGE 2

/* A packet of an open link: where it lies, and what is asked of it. */
struct open_packet {
	__u64 port, vlans;
	__u64 tunnel;  /* as the key has it; 0: it is in none */
	__u32 at, end; /* its network header; the end of what it lies in */
	__u16 kind;    /* EtherType */
	/* What is found. */
	__u8 protocol;
	__u8 carries;
	__u8 exact;  /* its flow's key is known */
	__u8 spared; /* neighbours find each other by it */
	__u8 parted; /* it, or what it lies in, is a first fragment: the rest comes behind */
	__u8 reserved;
	__u32 load, load_length; /* behind its network headers */
	struct question question;
};

struct extension {
	__u8 next, length;
};

struct ipv6_fragment {
	__u8 next, reserved;
	__u16 offset;
	__u32 identification;
};

/* What is made of a packet whose header is not all there. */
INLINE int open_cut(const struct open_packet *packet)
{
	return packet->parted ? OPEN_HIDES : OPEN_NOTHING;
}

/* Reads a network header and what stands between it and the transport header. `later`: this is no first fragment. */
INLINE int open_ipv4(const struct frame *frame, struct open_packet *packet, int *later)
{
	struct question *question = &packet->question;
	HEADER(ipv4, header, frame, packet->at, open_cut(packet))
	__u32 own = (header->version_length & 15) * 4, length = BE16(header->length);
	if (header->version_length >> 4 != 4 || own < sizeof(*header) || length < own)
		return OPEN_NOTHING;
	if (packet->at + length > packet->end) {
		if (!packet->parted)
			return OPEN_NOTHING;
		if (packet->at + own > packet->end)
			return OPEN_HIDES;
		length = packet->end - packet->at;
	}
	question->source_high = question->destination_high = 0;
	question->source_low = BE32(header->source);
	question->destination_low = BE32(header->destination);
	question->ipv6 = 0;
	packet->protocol = header->protocol;
	packet->load = packet->at + own;
	packet->load_length = length - own;
	*later = (header->fragment & BE16(0x1fff)) != 0;
	packet->parted |= (header->fragment & BE16(0x3fff)) == BE16(0x2000);
	return OPEN_JUDGE;
}

INLINE int open_ipv6(const struct frame *frame, struct open_packet *packet, int *later)
{
	struct question *question = &packet->question;
	HEADER(ipv6, header, frame, packet->at, open_cut(packet))
	__u32 length = BE16(header->length), at = packet->at + sizeof(*header), end = at + length;
	__u8 next = header->next;
	if (header->version_class >> 4 != 6)
		return OPEN_NOTHING;
	if (end > packet->end) {
		if (!packet->parted)
			return OPEN_NOTHING;
		if (at > packet->end)
			return OPEN_HIDES;
		end = packet->end;
	}
	question->source_high = BE64(header->source_high);
	question->source_low = BE64(header->source_low);
	question->destination_high = BE64(header->destination_high);
	question->destination_low = BE64(header->destination_low);
	question->ipv6 = 1;
	*later = 0;
	for (int number = 0; number < OPEN_EXTENSIONS_MOST; number++) {
		if (next == EXTENSION_FRAGMENT) {
			HEADER(ipv6_fragment, fragment, frame, at, OPEN_HIDES)
			if (at + sizeof(*fragment) > end)
				return OPEN_HIDES;
			next = fragment->next;
			at += sizeof(*fragment);
			*later = (fragment->offset & BE16(0xfff8)) != 0;
			packet->parted |= (fragment->offset & BE16(0xfff9)) == BE16(1);
			if (*later)
				break;
		} else if (next == EXTENSION_HOPS || next == EXTENSION_ROUTING || next == EXTENSION_DESTINATION ||
			   next == EXTENSION_AUTHENTICATION || next == EXTENSION_MOBILITY ||
			   next == EXTENSION_HOST_IDENTITY || next == EXTENSION_SHIM) {
			HEADER(extension, extension, frame, at, OPEN_HIDES)
			if (at + sizeof(*extension) > end)
				return OPEN_HIDES;
			at += next == EXTENSION_AUTHENTICATION ? (extension->length + 2) * 4 : (extension->length + 1) * 8;
			next = extension->next;
		} else {
			packet->protocol = next;
			packet->load = at;
			packet->load_length = at < end ? end - at : 0;
			return OPEN_JUDGE;
		}
	}
	packet->protocol = next;
	packet->load = at;
	packet->load_length = 0;
	return *later ? OPEN_JUDGE : OPEN_HIDES;
}

/* Reads ports, or types of ICMP, for key and rules. */
INLINE int open_transport(const struct frame *frame, struct open_packet *packet)
{
	struct question *question = &packet->question;
	__u32 at = packet->load;
	if (packet->protocol == (question->ipv6 ? PROTOCOL_ICMPV6 : PROTOCOL_ICMP)) {
		HEADER(icmp, icmp, frame, at, OPEN_HIDES)
		__u16 other = counterpart(packet->protocol, icmp->kind);
		packet->spared = question->ipv6 && ((icmp->kind >= 130 && icmp->kind <= 137) || icmp->kind == 143);
		/* Errors are of the flows that they are about. */
		if (other > 255 || icmp->code)
			return OPEN_JUDGE;
		question->source_port = icmp->kind;
		question->destination_port = other;
		question->protocol = 2 + question->ipv6;
		packet->exact = 1;
		return OPEN_JUDGE;
	}
	packet->exact = 1;
	if (packet->protocol != PROTOCOL_TCP && packet->protocol != PROTOCOL_UDP && packet->protocol != PROTOCOL_SCTP) {
		if (packet->protocol == PROTOCOL_IPV4 || packet->protocol == PROTOCOL_IPV6)
			packet->carries = CARRIES_IP;
		return OPEN_JUDGE;
	}
	HEADER(both_ports, ports, frame, at, OPEN_HIDES)
	if (packet->load_length < sizeof(*ports))
		return OPEN_HIDES;
	question->source_port = BE16(ports->source);
	question->destination_port = BE16(ports->destination);
	if (packet->protocol == PROTOCOL_TCP) {
		question->protocol = 0;
		/* A first fragment may end before the flags: it is not believed to be an answer. */
		question->begins = 1;
		HEADER(tcp, tcp, frame, at, OPEN_JUDGE)
		if (packet->load_length >= sizeof(*tcp))
			question->begins = (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	} else if (packet->protocol == PROTOCOL_UDP) {
		question->protocol = 1;
		if (packet->load_length < sizeof(struct udp))
			return OPEN_JUDGE;
		packet->carries = carried_by_udp(frame, question->source_port, question->destination_port,
						 at + sizeof(struct udp), packet->load_length - sizeof(struct udp));
	}
	return OPEN_JUDGE;
}

/* Reads what is asked of a packet. Not static, as `carry`: the verifier looks at it by itself. */
__attribute__((noinline)) int open_read(struct xdp_md *context, struct open_packet *packet)
{
	if (!packet || packet->at > OPEN_DEEPEST)
		return OPEN_HIDES;
	struct frame frame = {
		.data = (const void *)(long)context->data,
		.end = (const void *)(long)context->data_end,
		.length = packet->end,
	};
	int later = 0, found = OPEN_NOTHING;
	packet->carries = packet->exact = packet->spared = 0;
	packet->question.source_port = packet->question.destination_port = 0;
	packet->question.protocol = EARLY_WHATEVER;
	packet->question.begins = packet->question.answers = 0;
	if (packet->kind == ETHERNET_IPV4)
		found = open_ipv4(&frame, packet, &later);
	else if (packet->kind == ETHERNET_IPV6)
		found = open_ipv6(&frame, packet, &later);
	return found == OPEN_JUDGE && !later ? open_transport(&frame, packet) : found;
}

/* Goes on to the packet that this one carries, if there is one (OPEN_JUDGE). */
__attribute__((noinline)) int open_inside(struct xdp_md *context, struct open_packet *packet)
{
	if (!packet || packet->load > OPEN_DEEPEST)
		return OPEN_HIDES;
	struct carried carried = {.parted = packet->parted};
	struct frame frame = {
		.data = (const void *)(long)context->data,
		.end = (const void *)(long)context->data_end,
		.length = packet->end,
	};
	int odd = carried_by(&frame, packet->carries, packet->protocol, packet->load, packet->load_length, &carried);
	if (odd)
		return odd == TUNNEL_FARTHER || packet->parted ? OPEN_HIDES : OPEN_NOTHING;
	if (carried.end > packet->end)
		return OPEN_NOTHING;
	packet->tunnel = tunnel_in_key(carried.tunnel);
	packet->question.inside = carried.end - carried.start;
	packet->question.network = carried.tunnel;
	packet->at = carried.at;
	packet->end = carried.end;
	packet->kind = carried.kind;
	packet->vlans = 0;
	return OPEN_JUDGE;
}

/* The key of a packet's flow, as `make_key` makes it; says whether it comes from the higher endpoint. */
INLINE int open_key(__u64 *key, const struct open_packet *packet)
{
	const struct question *question = &packet->question;
	struct network network = {
		.source = {question->source_high, question->source_low, question->source_port},
		.destination = {question->destination_high, question->destination_low, question->destination_port},
		.flags = question->ipv6 ? KEY_IPV6 : 0,
		.protocol = packet->protocol,
	};
	int from_high = make_key(key, &network, packet->port, packet->vlans);
	if (packet->tunnel) {
		key[4] = packet->tunnel;
		key[6] |= KEY_IN_TUNNEL;
	}
	return from_high;
}

/* Whether the entry of a flow refuses what an endpoint sends, of whichever generation. */
INLINE int open_entry_refuses(const __u64 *key, __u64 hash, int from_high)
{
	__u32 slot = find_flow((const struct key *)key, hash);
	if (slot == NO_SLOT)
		return 0;
	__u32 index = SLOT_LINE(slot, 0);
	const struct bartizan_slot *line = bpf_map_lookup_elem(&slots, &index);
	if (!line)
		return 0;
	__u64 control = *(const volatile __u64 *)&line->control;
	__u8 action = BARTIZAN_CONTROL_ACTION(control);
	return BARTIZAN_CONTROL_FLAGS(control) & BARTIZAN_CONTROL_FLAG_VALID &&
	       (action == BARTIZAN_ACTION_DROP ||
		action == (from_high ? BARTIZAN_ACTION_DROP_HIGH : BARTIZAN_ACTION_DROP_LOW));
}

/* Whether the flow of a packet with this hash was let go on: the host knew it, or it has passed here. */
INLINE int open_is_known(__u64 hash)
{
	return is_marked(hash) || bpf_map_lookup_elem(&passed, &hash);
}

/* Whether a packet that was read is refused. */
__attribute__((noinline)) int open_refuses(const struct open_packet *packet)
{
	__u64 key[KEY_WORDS];
	__u32 zero = 0;
	if (!packet)
		return 0;
	int from_high = open_key(key, packet);
	__u64 hash = hash_of(key), port = packet->port;
	if (packet->exact && open_entry_refuses(key, hash, from_high))
		return 1;
	const volatile __u64 *state_now = bpf_map_lookup_elem(&state, &zero);
	if (!BARTIZAN_PORT_EARLY(port) || packet->spared || !state_now)
		return 0;
	__u64 generation = (__u8)*state_now;
	__u32 table = generation & 1, scope = BARTIZAN_PORT_EARLY(port) - 1;
	__u64 word = early_word(table, 0);
	if (!EARLY_IS_OF(word, generation))
		return 0;
	if (word & BARTIZAN_EARLY_TENANTS)
		scope = early_scope(&packet->question, table, scope);
	int own = early_outcome(&packet->question, table, scope, 0) != 0;
	int answer = early_outcome(&packet->question, table, scope, 1) != 0;
	if (own && answer)
		return 1;
	if (!packet->exact || own == answer)
		return 0;
	if (own)
		return packet->question.begins || !open_is_known(hash);
	/* Whoever is full forgets whom nobody has answered for the longest time. */
	__u64 yes = 1;
	bpf_map_update_elem(&passed, &hash, &yes, BPF_ANY);
	return 0;
}

/* Whether a frame of an open link is refused: for itself, or for what it carries. Not inlined: as `handle`. */
static __attribute__((noinline)) int is_refused(struct xdp_md *context, const struct frame *frame, __u64 port)
{
	struct open_packet packet = {.port = port, .end = frame->length, .at = sizeof(struct ethernet)};
	HEADER(ethernet, ethernet, frame, 0, 0)
	packet.kind = BE16(ethernet->kind);
	if (vlan_tags(frame, VLAN_TAGS, &packet.at, &packet.kind, &packet.vlans))
		return 0;
	packet.question.network = tagged(packet.vlans, packet.at);
	/* Receivers take off any number of them. */
	if (packet.kind == ETHERNET_VLAN || packet.kind == ETHERNET_PROVIDER_VLAN)
		return 1;
	int found = open_read(context, &packet);
	if (found != OPEN_JUDGE)
		return found == OPEN_HIDES;
	if (open_refuses(&packet))
		return 1;
	if (!packet.carries || packet.carries == CARRIES_SOMETHING)
		return 0;
	found = open_inside(context, &packet);
	if (found == OPEN_JUDGE)
		found = open_read(context, &packet);
	return found == OPEN_JUDGE ? open_refuses(&packet) : found == OPEN_HIDES;
}

#endif
