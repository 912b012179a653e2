/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets without a flow, for flows.bpf.c, of which this is a part: those that the host's packet filter refuses whatever else is known of them are dropped here.
 *
 * Nothing is searched but segments of addresses: address, ports and scope have classes, and tables of classes say the rest (crates/classify/src/early, which reads the same words in
 * Rust). The host has two tables and writes that which nobody reads; the level's generation says which one counts, so each packet is judged by one of them, whole.
 *
 * A scope is a link, or where rules ask for tenants one of those by which packets of a link are judged; whose a packet is follows from link, tags, tunnel and addresses. A packet in a
 * tunnel is judged where the packet around it has an entry that forwards it (tunnels.h): it is dropped with that one, which is counted for its own flow.
 *
 * A packet of a flow that the host knows and lets go on is marked (`marks`), and goes up: its rule was asked when it was opened. A mark may be another flow's; then a
 * packet goes up that need not.
 *
 * While a link is open, what is not read here is judged as well, and otherwise: see open.h.
 *
 * Not done: other messages of ICMP than queries and their answers, packets in GRE and in tunnels in tunnels, rules that reject with an answer. */
#ifndef BARTIZAN_EARLY_H
#define BARTIZAN_EARLY_H

/* In a table's first word: it is of this generation. The rest are flags. */
#define EARLY_IS_OF(word, generation) (((word) & 511) == ((generation) | 256))

/* A word of one of the two tables. */
INLINE __u64 early_word(__u32 table, __u32 index)
{
	__u32 at = (table & 1) * BARTIZAN_EARLY_WORDS + (index & (BARTIZAN_EARLY_WORDS - 1));
	const volatile __u64 *word = bpf_map_lookup_elem(&early, &at);
	return word ? *word : 0;
}

/* A number of 32 bits, of 16 bits, of many that stand side by side. */
INLINE __u32 early_half(__u32 table, __u32 first, __u32 index)
{
	return early_word(table, first + index / 2) >> (index % 2 * 32);
}

INLINE __u16 early_quarter(__u32 table, __u32 first, __u32 index)
{
	return early_word(table, first + index / 4) >> (index % 4 * 16);
}

/* A field of a table's header. */
#define EARLY_FIELD(table, field) \
	((__u32)(early_word(table, __builtin_offsetof(struct bartizan_early, field) / 8) >> \
		 (__builtin_offsetof(struct bartizan_early, field) % 8 * 8)))

/* The class of the segment that an address lies in. Segments are sorted by their first address, which is 0 of the first one. Not static: the verifier looks at it once, with
 * arguments that can be anything. */
__attribute__((noinline)) __u32 class_of_ipv4(__u32 table, __u32 first, __u32 count, __u32 address)
{
	for (__u32 step = 0; step < BARTIZAN_EARLY_STEPS && count > 1; step++) {
		__u32 left = count / 2;
		if (early_word(table, first + left) >> 32 <= address) {
			first += left;
			count -= left;
		} else {
			count = left;
		}
	}
	return early_word(table, first);
}

__attribute__((noinline)) __u32 class_of_ipv6(__u32 table_first, __u32 count, __u64 high, __u64 low)
{
	__u32 table = table_first >> 31, first = table_first & 0x7fffffff;
	for (__u32 step = 0; step < BARTIZAN_EARLY_STEPS && count > 1; step++) {
		__u32 left = count / 2, at = first + left * 3;
		__u64 begin = early_word(table, at);
		if (begin < high || (begin == high && early_word(table, at + 1) <= low)) {
			first = at;
			count -= left;
		} else {
			count = left;
		}
	}
	return early_word(table, first + 2);
}

/* The place of the first selector that fits, of those that fit a tag (or the number of a tunnel) and one of two hosts. `row`: of the link. */
INLINE __u32 first_selector(__u32 table, __u32 row, __u32 tag, __u32 source, __u32 destination)
{
	__u32 selected = EARLY_FIELD(table, selected), cell = (row + tag) * EARLY_FIELD(table, host_classes);
	__u32 first = early_half(table, selected, cell + source), second = early_half(table, selected, cell + destination);
	return first < second ? first : second;
}

/* Which rules count for a packet, by its link and tenant: the scope. Only of a table that tells tenants apart; else it is the link. Not static: as `class_of_ipv4`. */
__attribute__((noinline)) __u32 early_scope(const struct question *question, __u32 table, __u32 link)
{
	if (!question)
		return 0;
	__u32 source = 0, destination = 0, row = link * EARLY_FIELD(table, tag_classes), place;
	if (EARLY_FIELD(table, host_classes) > 1) {
		if (question->ipv6) {
			__u32 first = table << 31 | EARLY_FIELD(table, v6_hosts), count = EARLY_FIELD(table, v6_host_count);
			source = class_of_ipv6(first, count, question->source_high, question->source_low);
			destination = class_of_ipv6(first, count, question->destination_high, question->destination_low);
		} else {
			__u32 first = EARLY_FIELD(table, v4_hosts), count = EARLY_FIELD(table, v4_host_count);
			source = class_of_ipv4(table, first, count, question->source_low);
			destination = class_of_ipv4(table, first, count, question->destination_low);
		}
	}
	__u64 network = question->network, tags = network >> VLANS_COUNT_AT;
	if (question->inside) {
		__u32 tag = class_of_ipv4(table, EARLY_FIELD(table, tunnels), EARLY_FIELD(table, tunnel_count), network);
		place = first_selector(table, row, tag, source, destination);
	} else if (!tags) {
		place = first_selector(table, row, EARLY_FIELD(table, untagged), source, destination);
	} else {
		place = ~0U;
		for (__u32 number = 0; number < VLAN_TAGS && number < tags; number++) {
			__u32 vlan = network >> (12 * number) & 0xfff;
			__u32 tag = early_quarter(table, EARLY_FIELD(table, vlans), vlan);
			__u32 own = first_selector(table, row, tag, source, destination);
			place = own < place ? own : place;
		}
	}
	return early_half(table, EARLY_FIELD(table, scopes), link * EARLY_FIELD(table, selectors) + place);
}

/* VLAN ids with their number, where the last tag ends at `at`. */
INLINE __u64 tagged(__u64 vlans, __u32 at)
{
	return vlans | (__u64)(at - sizeof(struct ethernet)) / sizeof(struct vlan) << VLANS_COUNT_AT;
}

/* Reads the tags of a frame, which tell tenants. Not 0: it cannot be read. */
INLINE int ask_tags(const struct frame *frame, struct question *question)
{
	HEADER(ethernet, ethernet, frame, 0, 1)
	__u16 kind = BE16(ethernet->kind);
	__u32 at = sizeof(*ethernet);
	__u64 vlans = 0;
	if (vlan_tags(frame, VLAN_TAGS, &at, &kind, &vlans))
		return 1;
	question->network = tagged(vlans, at);
	return 0;
}

/* What the rules say of a packet, or with `turned` of one that answers it: one more than the number of the outcome; 0: it goes up. */
__attribute__((noinline)) __u32 early_outcome(const struct question *question, __u32 table, __u32 scope, __u32 turned)
{
	if (!question)
		return 0;
	__u16 source_port = turned ? question->destination_port : question->source_port;
	__u16 destination_port = turned ? question->source_port : question->destination_port;
	__u64 source_high = turned ? question->destination_high : question->source_high;
	__u64 source_low = turned ? question->destination_low : question->source_low;
	__u64 destination_high = turned ? question->source_high : question->destination_high;
	__u64 destination_low = turned ? question->source_low : question->destination_low;
	if (question->protocol == 2 || question->protocol == 3) {
		/* Rules have kind and code. */
		source_port = question->source_port;
		destination_port = 0;
		if (turned)
			source_port = counterpart(question->protocol == 2 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6, source_port);
	}
	__u32 service = scope * EARLY_KINDS + question->protocol;
	service = service * EARLY_FIELD(table, source_port_classes) +
		  early_quarter(table, EARLY_FIELD(table, source_ports), source_port);
	service = service * EARLY_FIELD(table, destination_port_classes) +
		  early_quarter(table, EARLY_FIELD(table, destination_ports), destination_port);
	service = early_half(table, EARLY_FIELD(table, services), service);
	__u32 source, destination, pair, outcomes;
	if (question->ipv6) {
		__u32 count = EARLY_FIELD(table, v6_source_count);
		if (!count)
			return 0;
		source = class_of_ipv6(table << 31 | EARLY_FIELD(table, v6_sources), count, source_high, source_low);
		destination = class_of_ipv6(table << 31 | EARLY_FIELD(table, v6_destinations),
					    EARLY_FIELD(table, v6_destination_count), destination_high, destination_low);
		pair = early_half(table, EARLY_FIELD(table, v6_pairs),
				  source * EARLY_FIELD(table, v6_destination_classes) + destination);
		outcomes = EARLY_FIELD(table, v6_outcomes);
	} else {
		__u32 count = EARLY_FIELD(table, v4_source_count);
		if (!count)
			return 0;
		source = class_of_ipv4(table, EARLY_FIELD(table, v4_sources), count, source_low);
		destination = class_of_ipv4(table, EARLY_FIELD(table, v4_destinations),
					    EARLY_FIELD(table, v4_destination_count), destination_low);
		pair = early_half(table, EARLY_FIELD(table, v4_pairs),
				  source * EARLY_FIELD(table, v4_destination_classes) + destination);
		outcomes = EARLY_FIELD(table, v4_outcomes);
	}
	return early_half(table, outcomes, pair * EARLY_FIELD(table, service_classes) + service);
}

/* Whether some flow that the host knows, and has not refused by its packet filter, has this hash. */
INLINE int is_marked(__u64 hash)
{
	__u32 mark = (hash >> 32) & marks_mask, at = mark / 2;
	const volatile __u64 *word = bpf_map_lookup_elem(&marks, &at);
	return !word || (__u32)(*word >> (mark % 2 * 32));
}

/* Counts the packet around one that is refused, as its flow's entry would have it. Not 0: it has none that forwards, and the host looks at both. */
INLINE int count_around(const struct frame *frame, const struct around *around, __u32 processor)
{
	__u8 action = 0;
	struct bartizan_slot *line = acting(around->slot, processor, &action);
	if (!line || action != BARTIZAN_ACTION_FORWARD)
		return 1;
	count_carrier(line, frame->length);
	count_packet(line, frame->length, around->from_high);
	return 0;
}

/* Whether a packet without a flow is dropped here, and counted. Not where the worker that it would go to has failed: nobody marks flows then, and what becomes of its packets is
 * told by `go_up`. Not inlined: as `handle`. */
static __attribute__((noinline)) int refuses_early(const struct frame *frame, __u64 port, __u32 processor,
						   struct question *question, const struct around *around)
{
	__u32 zero = 0, link = BARTIZAN_PORT_EARLY(port) - 1, scope = link;
	const volatile __u64 *state_now = bpf_map_lookup_elem(&state, &zero);
	if (!state_now || is_marked(question->hash))
		return 0;
	__u64 generation = (__u8)*state_now;
	__u32 table = generation & 1;
	__u64 word = early_word(table, 0);
	if (!EARLY_IS_OF(word, generation) || (question->inside && !(word & BARTIZAN_EARLY_TUNNELS)))
		return 0;
	if (word & BARTIZAN_EARLY_TENANTS) {
		if (!question->inside && ask_tags(frame, question))
			return 0;
		scope = early_scope(question, table, link);
	}
	__u32 outcome = early_outcome(question, table, scope, 0);
	if (!outcome || outcome > early_outcomes)
		return 0;
	/* Who opened may be the one that it goes to. */
	if (question->answers && !early_outcome(question, table, scope, 1))
		return 0;
	if (is_stale(frame, port) || is_sample(port))
		return 0;
	/* It was not written over meanwhile. */
	if (early_word(table, 0) != word)
		return 0;
	__u32 index = ((processor * 2 + table) * early_links + link) * early_outcomes + outcome - 1;
	struct bartizan_early_count *count = bpf_map_lookup_elem(&early_counts, &index);
	if (!count || (question->inside && count_around(frame, around, processor)))
		return 0;
	count->packets++;
	count->bytes += question->inside ? question->inside : frame->length;
	return 1;
}

#endif
