/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of ICMP and ICMPv6. Part of flows.bpf.c, whose frames and readers it uses.
 */

#define PROTOCOL_ICMP 1
#define PROTOCOL_ICMPV6 58

struct icmp {
	__u8 kind, code;
	__u16 checksum;
};

/* The kind of message that answers one, or is answered by it, of those that are judged: echo, and of IPv4 timestamp, information and mask. 256: another one, as errors are, which belong
 * to the flows that they are about. */
INLINE __u16 counterpart(__u8 protocol, __u8 kind)
{
	if (protocol == PROTOCOL_ICMPV6)
		return kind == 128 || kind == 129 ? kind ^ 1 : 256;
	if (kind == 0 || kind == 8)
		return kind ^ 8;
	if (kind >= 13 && kind <= 18)
		return kind & 1 ? kind + 1 : kind - 1;
	return 256;
}

/* A message of ICMP, whose key has kinds for ports. No entry handles it; without a flow it may be refused early. Codes are 0 of all these kinds. */
INLINE int icmp(const struct frame *frame, struct network *network)
{
	HEADER(icmp, header, frame, network->at, 1)
	__u16 other = counterpart(network->protocol, header->kind);
	/* The host reads identifier and number as well. */
	if (other > 255 || header->code || network->length < 2 * sizeof(*header))
		return 1;
	network->source.port = header->kind;
	network->destination.port = other;
	network->carries = CARRIES_NO_TUNNEL;
	network->answers = 0;
	network->odd = 1;
	network->segment = (struct segment){};
	return 0;
}
