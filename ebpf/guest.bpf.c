/* SPDX-License-Identifier: Apache-2.0
 *
 * The boundary of a guest of the stream path (docs/stream.md): programs of its control group that do not use the socket library,
 * because they are static or make system calls themselves, are led to the relay that listens on the guest's own loopback; what
 * cannot be led there is refused. Everything is counted.
 *
 * A connect keeps its true destination here, by the socket's cookie; once the kernel has chosen the local port, by that port, by
 * which the relay finds it. An IPv4-mapped address on an IPv6 socket meets connect6 here and gets an IPv4-mapped relay.
 */
#include "bpf.h"
#include <linux/in.h>

char licence[] SEC("license") = "Apache-2.0";

static __u64 (*const bpf_get_socket_cookie)(void *context) = (void *)BPF_FUNC_get_socket_cookie;
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define IPPROTO_MPTCP_NUMBER 262

/* Streams at a time whose destination is known. */
#define DESTINATIONS 65536

/* Where a program wanted to connect: an IPv4 address stands in the last word, in the notation of IPv4 in IPv6. */
struct destination {
	__u32 address[4]; /* network order */
	__u32 port;       /* network order */
	__u32 family;     /* of the socket */
};

/* The relay's port by family (0: IPv4, 1: IPv6), in network order; 0: there is none, and all is refused. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 2);
	TYPE(key, __u32);
	TYPE(value, __u32);
} relay SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, DESTINATIONS);
	TYPE(key, __u64);
	TYPE(value, struct destination);
} by_cookie SEC(".maps");

/* By the local port, in host order, with the family of the wire above it. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, DESTINATIONS);
	TYPE(key, __u32);
	TYPE(value, struct destination);
} by_port SEC(".maps");

enum counter { RELAYED, REFUSED_CONNECT, REFUSED_DATAGRAM, COUNTERS };

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, COUNTERS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counters SEC(".maps");

INLINE void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &which);
	if (counter)
		__sync_fetch_and_add(counter, 1);
}

INLINE int is_loopback4(__u32 address)
{
	return (BE32(address) >> 24) == 127;
}

INLINE int is_mapped(__u32 a, __u32 b, __u32 c)
{
	return a == 0 && b == 0 && c == BE32(0xffff);
}

INLINE int is_stream(struct bpf_sock_addr *context)
{
	return context->type == SOCK_STREAM &&
	       (context->protocol == IPPROTO_TCP || context->protocol == IPPROTO_MPTCP_NUMBER);
}

/* Keeps a connect's destination; returns the relay's port, 0: the connect is refused. */
INLINE __u32 keep(struct bpf_sock_addr *context, struct destination *destination, __u32 wire)
{
	__u32 *port = bpf_map_lookup_elem(&relay, &wire);
	__u64 cookie = bpf_get_socket_cookie(context);
	if (!port || !*port || !is_stream(context) || bpf_map_update_elem(&by_cookie, &cookie, destination, BPF_ANY)) {
		count(REFUSED_CONNECT);
		return 0;
	}
	count(RELAYED);
	return *port;
}

SEC("cgroup/connect4")
int guest_connect4(struct bpf_sock_addr *context)
{
	if (is_loopback4(context->user_ip4))
		return 1;
	struct destination destination = { { 0, 0, BE32(0xffff), context->user_ip4 }, context->user_port, AF_INET };
	__u32 port = keep(context, &destination, 0);
	if (!port)
		return 0;
	context->user_ip4 = BE32(0x7f000001);
	context->user_port = port;
	return 1;
}

SEC("cgroup/connect6")
int guest_connect6(struct bpf_sock_addr *context)
{
	__u32 a = context->user_ip6[0], b = context->user_ip6[1], c = context->user_ip6[2], d = context->user_ip6[3];
	int mapped = is_mapped(a, b, c);
	if (mapped ? is_loopback4(d) : (a | b | c) == 0 && d == BE32(1))
		return 1;
	struct destination destination = { { a, b, c, d }, context->user_port, AF_INET6 };
	__u32 port = keep(context, &destination, mapped ? 0 : 1);
	if (!port)
		return 0;
	context->user_ip6[0] = 0;
	context->user_ip6[1] = 0;
	context->user_ip6[2] = mapped ? BE32(0xffff) : 0;
	context->user_ip6[3] = mapped ? BE32(0x7f000001) : BE32(1);
	context->user_port = port;
	return 1;
}

/* A program that asks for its peer gets what it connected to. */
SEC("cgroup/getpeername4")
int guest_getpeername4(struct bpf_sock_addr *context)
{
	__u64 cookie = bpf_get_socket_cookie(context);
	struct destination *destination = bpf_map_lookup_elem(&by_cookie, &cookie);
	if (destination) {
		context->user_ip4 = destination->address[3];
		context->user_port = destination->port;
	}
	return 1;
}

SEC("cgroup/getpeername6")
int guest_getpeername6(struct bpf_sock_addr *context)
{
	__u64 cookie = bpf_get_socket_cookie(context);
	struct destination *destination = bpf_map_lookup_elem(&by_cookie, &cookie);
	if (destination) {
		context->user_ip6[0] = destination->address[0];
		context->user_ip6[1] = destination->address[1];
		context->user_ip6[2] = destination->address[2];
		context->user_ip6[3] = destination->address[3];
		context->user_port = destination->port;
	}
	return 1;
}

/* Datagrams are not relayed: those to the guest's own loopback go on, others are refused. */
SEC("cgroup/sendmsg4")
int guest_sendmsg4(struct bpf_sock_addr *context)
{
	if (is_loopback4(context->user_ip4))
		return 1;
	count(REFUSED_DATAGRAM);
	return 0;
}

SEC("cgroup/sendmsg6")
int guest_sendmsg6(struct bpf_sock_addr *context)
{
	__u32 a = context->user_ip6[0], b = context->user_ip6[1], c = context->user_ip6[2], d = context->user_ip6[3];
	if (is_mapped(a, b, c) ? is_loopback4(d) : (a | b | c) == 0 && d == BE32(1))
		return 1;
	count(REFUSED_DATAGRAM);
	return 0;
}

/* Before the SYN: the local port is known, by which the relay finds the destination. */
SEC("sockops")
int guest_sockops(struct bpf_sock_ops *context)
{
	if (context->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	__u64 cookie = bpf_get_socket_cookie(context);
	struct destination *destination = bpf_map_lookup_elem(&by_cookie, &cookie);
	if (!destination)
		return 1;
	/* On the wire, an IPv4-mapped connection is one of IPv4. */
	__u32 wire = is_mapped(destination->address[0], destination->address[1], destination->address[2]) ? 0 : 1;
	__u32 key = context->local_port | wire << 16;
	struct destination copy = *destination;
	bpf_map_update_elem(&by_port, &key, &copy, BPF_ANY);
	return 1;
}
