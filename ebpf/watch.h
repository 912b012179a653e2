/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker that a frame goes to, and whether it was heard of lately, for flows.bpf.c, of which this is a part. */
#ifndef BARTIZAN_WATCH_H
#define BARTIZAN_WATCH_H

/* What the hash of `worker_of` adds for a word of both addresses. */
INLINE __u32 part(__u32 source, __u32 destination, __u64 factor)
{
	return (BE32(source) + BE32(destination)) * (__u32)factor;
}

/* Which of its link's workers a frame goes to: what `Spread::worker` says, by the steps of the filter that shares frames out among their sockets
 * (crates/ports/src/filter.rs). What that filter does not know goes to the first one. */
INLINE __u32 worker_of(const struct frame *frame, const struct bartizan_watch *watch)
{
	HEADER(ethernet, ethernet, frame, 0, 0)
	__u16 kind = BE16(ethernet->kind);
	__u32 hash, begin, at = sizeof(*ethernet);
	__u64 vlans = 0;
	__u8 protocol;
	/* The kernel takes the first tag out, the filter knows a second one. */
	if (vlan_tags(frame, 2, &at, &kind, &vlans))
		return 0;
	begin = (__u32)watch->start + ((__u32)(vlans & 0xfff) + (__u32)(vlans >> 12 & 0xfff)) * (__u32)watch->vlans;
	if (kind == ETHERNET_IPV4) {
		HEADER(ipv4, header, frame, at, 0)
		hash = begin + part(header->source, header->destination, watch->address_0);
		/* Not all fragments have ports. */
		protocol = header->fragment & BE16(0x3fff) ? 0 : header->protocol;
		at += (header->version_length & 15) * 4;
	} else if (kind == ETHERNET_IPV6) {
		HEADER(ipv6, header, frame, at, 0)
		const __u32 *words = (const __u32 *)&header->source_high;
		hash = begin + part(words[0], words[4], watch->address_0) + part(words[1], words[5], watch->address_1) +
		       part(words[2], words[6], watch->address_2) + part(words[3], words[7], watch->address_3);
		protocol = header->next;
		at += sizeof(*header);
	} else {
		return 0;
	}
	if (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP) {
		HEADER(both_ports, ports, frame, at, 0)
		hash += ((__u32)BE16(ports->source) + BE16(ports->destination)) * (__u32)watch->ports;
	}
	hash ^= hash >> 15;
	hash *= (__u32)watch->last;
	return ((hash >> 16) * (__u32)watch->workers) >> 16;
}

/* The worker that a frame would go to was not heard of for too long. Without a watch all are taken for alive. */
static __attribute__((noinline)) int is_stale(const struct frame *frame, __u64 port)
{
	__u32 index = BARTIZAN_PORT_INDEX(port);
	const struct bartizan_watch *watch = bpf_map_lookup_elem(&watches, &index);
	__u64 stale = watch ? *(const volatile __u64 *)&watch->stale : 0;
	if (!watch || !stale)
		return 0;
	__u32 worker = watch->first + worker_of(frame, watch);
	const volatile struct bartizan_heartbeat *heartbeat = bpf_map_lookup_elem(&heartbeats, &worker);
	/* The sign may be younger than the clock that is read here. */
	return heartbeat && (__s64)(bpf_ktime_get_ns() - heartbeat->seen) > (__s64)stale;
}

#endif
