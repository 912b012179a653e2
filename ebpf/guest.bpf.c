/* SPDX-License-Identifier: Apache-2.0
 *
 * The boundary of a guest of the stream path (docs/stream.md): programs of its control group that do not use the socket library,
 * because they are static or make system calls themselves, and the resolver of the C library, are led to the relay on the guest's
 * own loopback; what cannot be led there is refused. Everything is counted.
 *
 * A connect keeps its true destination here, by the socket's cookie; once the kernel has chosen the local port, by that port, by
 * which the relay finds it. An IPv4-mapped address on an IPv6 socket meets connect6 here and gets an IPv4-mapped relay.
 *
 * A destination of datagrams gets a number, and each is sent to a loopback address that has the number in it: 127.64.0.0/16, or
 * the last 16 bits of DATAGRAMS6. The relay finds the destination by the address that a datagram came to, and answers from
 * there, so a socket may have any number of destinations. recvmsg and getpeername show the true ones.
 */
#include "bpf.h"
#include <linux/in.h>

char licence[] SEC("license") = "Apache-2.0";

static __u64 (*const bpf_get_socket_cookie)(void *context) = (void *)BPF_FUNC_get_socket_cookie;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)BPF_FUNC_get_current_pid_tgid;
static long (*const bpf_skb_load_bytes)(const void *frame, __u32 at, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_MPTCP_NUMBER 262
#define ETH_P_IP_NUMBER 0x0800
#define ETH_P_IPV6_NUMBER 0x86dd

/* Streams at a time whose destination is known. */
#define DESTINATIONS 65536
/* Destinations of datagrams that have a number. Tries to find a free number; then another destination loses its own. */
#define NUMBERS 65536
#define TRIES 8
/* Loopback addresses with a number in the last 16 bits. */
#define DATAGRAMS4 0x7f400000
#define DATAGRAMS6_A 0xfd626172
#define DATAGRAMS6_B 0x74697a61
#define DATAGRAMS6_C 0x6e000000

/* Whether the kernel tells these programs which process calls: set by the loader. */
const volatile __u32 knows_processes = 0;

/* Where a program wanted to connect: an IPv4 address stands in the last word, in the notation of IPv4 in IPv6. */
struct destination {
	__u32 address[4]; /* network order */
	__u32 port;       /* network order */
	__u32 family;     /* of the socket; of datagrams 0 */
	__u32 process;    /* 0: not known */
	__u32 unused;
};

/* The relay's ports: of TCP over IPv4 and IPv6, of datagrams likewise; in network order. 0: there is none, and all is refused. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 4);
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

/* Destinations of datagrams by their number, and the number of each. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, NUMBERS);
	TYPE(key, __u32);
	TYPE(value, struct destination);
} by_number SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, NUMBERS);
	TYPE(key, struct destination);
	TYPE(value, __u32);
} numbers SEC(".maps");

/* The process that used a socket of datagrams last: by the socket's cookie, then by its port as `by_port`. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, DESTINATIONS);
	TYPE(key, __u64);
	TYPE(value, __u32);
} process_by_cookie SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, DESTINATIONS);
	TYPE(key, __u32);
	TYPE(value, __u32);
} process_by_port SEC(".maps");

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

INLINE int is_datagram(struct bpf_sock_addr *context)
{
	return context->type == SOCK_DGRAM && context->protocol == IPPROTO_UDP;
}

INLINE __u32 process(void)
{
	return knows_processes ? bpf_get_current_pid_tgid() >> 32 : 0;
}

INLINE int is_same(struct destination *a, struct destination *b)
{
	return a->address[0] == b->address[0] && a->address[1] == b->address[1] && a->address[2] == b->address[2] &&
	       a->address[3] == b->address[3] && a->port == b->port;
}

/* The number of a destination of datagrams, in network order; -1: there is none. */
INLINE __s64 number_of(struct destination *destination)
{
	__u32 *known = bpf_map_lookup_elem(&numbers, destination);
	if (known) {
		__u32 number = *known;
		struct destination *there = bpf_map_lookup_elem(&by_number, &number);
		if (there && is_same(there, destination))
			return BE32(number);
	}
	__u32 number = 0;
	for (int attempt = 0; attempt < TRIES; attempt++) {
		number = bpf_get_prandom_u32() % NUMBERS;
		struct destination *there = bpf_map_lookup_elem(&by_number, &number);
		if (there && !there->port)
			break;
	}
	if (bpf_map_update_elem(&by_number, &number, destination, BPF_ANY) ||
	    bpf_map_update_elem(&numbers, destination, &number, BPF_ANY))
		return -1;
	/* Another processor may have taken the number at the same time. */
	struct destination *there = bpf_map_lookup_elem(&by_number, &number);
	return there && is_same(there, destination) ? (__s64)BE32(number) : -1;
}

/* Leads datagrams for a destination to the relay: its port, 0: they are refused. */
INLINE __u32 lead(struct bpf_sock_addr *context, struct destination *destination, __u32 wire, __u32 *number, __u32 refusal)
{
	__u32 which = 2 + wire;
	__u32 *port = bpf_map_lookup_elem(&relay, &which);
	__u64 cookie = bpf_get_socket_cookie(context);
	__u32 own = process();
	if (port && *port && destination->port && is_datagram(context)) {
		__s64 found = number_of(destination);
		if (found >= 0) {
			if (own)
				bpf_map_update_elem(&process_by_cookie, &cookie, &own, BPF_ANY);
			*number = found;
			return *port;
		}
	}
	count(refusal);
	return 0;
}

/* The destination behind a loopback address of the relay; 0: it is no such address. */
INLINE struct destination *behind(struct bpf_sock_addr *context, __u32 address, __u32 wire)
{
	__u32 which = 2 + wire, number = BE32(address) & 0xffff;
	__u32 *port = bpf_map_lookup_elem(&relay, &which);
	if (!port || !*port || context->user_port != *port || !is_datagram(context))
		return 0;
	struct destination *destination = bpf_map_lookup_elem(&by_number, &number);
	return destination && destination->port ? destination : 0;
}

INLINE int is_behind4(__u32 address)
{
	return (BE32(address) & 0xffff0000) == DATAGRAMS4;
}

INLINE int is_behind6(__u32 a, __u32 b, __u32 c, __u32 d)
{
	return a == BE32(DATAGRAMS6_A) && b == BE32(DATAGRAMS6_B) && c == BE32(DATAGRAMS6_C) && !(BE32(d) & 0xffff0000);
}

/* Shows a program the true address in place of one of the relay. */
INLINE void show4(struct bpf_sock_addr *context)
{
	__u32 address = context->user_ip4;
	struct destination *destination = is_behind4(address) ? behind(context, address, 0) : 0;
	if (destination) {
		context->user_ip4 = destination->address[3];
		context->user_port = destination->port;
	}
}

INLINE void show6(struct bpf_sock_addr *context)
{
	__u32 a = context->user_ip6[0], b = context->user_ip6[1], c = context->user_ip6[2], d = context->user_ip6[3];
	struct destination *destination = 0;
	if (is_mapped(a, b, c) && is_behind4(d))
		destination = behind(context, d, 0);
	else if (is_behind6(a, b, c, d))
		destination = behind(context, d, 1);
	if (destination) {
		context->user_ip6[0] = destination->address[0];
		context->user_ip6[1] = destination->address[1];
		context->user_ip6[2] = destination->address[2];
		context->user_ip6[3] = destination->address[3];
		context->user_port = destination->port;
	}
}

/* Leads a destination of IPv4, and one of IPv6 or an IPv4-mapped one, to the relay; 0: refused. */
INLINE int lead4(struct bpf_sock_addr *context, __u32 refusal)
{
	struct destination destination = { { 0, 0, BE32(0xffff), context->user_ip4 }, context->user_port, 0, 0, 0 };
	__u32 number = 0, port = lead(context, &destination, 0, &number, refusal);
	if (!port)
		return 0;
	context->user_ip4 = BE32(DATAGRAMS4) | number;
	context->user_port = port;
	return 1;
}

INLINE int lead6(struct bpf_sock_addr *context, int mapped, __u32 refusal)
{
	struct destination destination = {
		{ context->user_ip6[0], context->user_ip6[1], context->user_ip6[2], context->user_ip6[3] }, context->user_port, 0, 0, 0
	};
	__u32 number = 0, port = lead(context, &destination, mapped ? 0 : 1, &number, refusal);
	if (!port)
		return 0;
	context->user_ip6[0] = mapped ? 0 : BE32(DATAGRAMS6_A);
	context->user_ip6[1] = mapped ? 0 : BE32(DATAGRAMS6_B);
	context->user_ip6[2] = mapped ? BE32(0xffff) : BE32(DATAGRAMS6_C);
	context->user_ip6[3] = (mapped ? BE32(DATAGRAMS4) : 0) | number;
	context->user_port = port;
	return 1;
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
	if (context->type == SOCK_DGRAM)
		return lead4(context, REFUSED_CONNECT);
	struct destination destination = { { 0, 0, BE32(0xffff), context->user_ip4 }, context->user_port, AF_INET, process(), 0 };
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
	if (context->type == SOCK_DGRAM)
		return is_behind6(a, b, c, d) ? 1 : lead6(context, mapped, REFUSED_CONNECT);
	struct destination destination = { { a, b, c, d }, context->user_port, AF_INET6, process(), 0 };
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
	if (context->type == SOCK_DGRAM) {
		show4(context);
		return 1;
	}
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
	if (context->type == SOCK_DGRAM) {
		show6(context);
		return 1;
	}
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

/* Datagrams to the guest's own loopback go on, and so do those that connect has led to the relay. */
SEC("cgroup/sendmsg4")
int guest_sendmsg4(struct bpf_sock_addr *context)
{
	return is_loopback4(context->user_ip4) ? 1 : lead4(context, REFUSED_DATAGRAM);
}

SEC("cgroup/sendmsg6")
int guest_sendmsg6(struct bpf_sock_addr *context)
{
	__u32 a = context->user_ip6[0], b = context->user_ip6[1], c = context->user_ip6[2], d = context->user_ip6[3];
	int mapped = is_mapped(a, b, c);
	if (mapped ? is_loopback4(d) : (a | b | c) == 0 && d == BE32(1))
		return 1;
	return is_behind6(a, b, c, d) ? 1 : lead6(context, mapped, REFUSED_DATAGRAM);
}

SEC("cgroup/recvmsg4")
int guest_recvmsg4(struct bpf_sock_addr *context)
{
	show4(context);
	return 1;
}

SEC("cgroup/recvmsg6")
int guest_recvmsg6(struct bpf_sock_addr *context)
{
	show6(context);
	return 1;
}

/* Datagrams on their way: the port is known by now, by which the relay finds the process. */
SEC("cgroup_skb/egress")
int guest_egress(struct __sk_buff *frame)
{
	__u8 head[1], protocol[1];
	__u16 port;
	__u32 wire = frame->protocol == BE16(ETH_P_IPV6_NUMBER);
	if (!knows_processes || (!wire && frame->protocol != BE16(ETH_P_IP_NUMBER)))
		return 1;
	if (bpf_skb_load_bytes(frame, 0, head, 1) || bpf_skb_load_bytes(frame, wire ? 6 : 9, protocol, 1))
		return 1;
	if (protocol[0] != IPPROTO_UDP || bpf_skb_load_bytes(frame, wire ? 40 : (head[0] & 15) * 4, &port, 2))
		return 1;
	__u64 cookie = bpf_get_socket_cookie(frame);
	__u32 *own = bpf_map_lookup_elem(&process_by_cookie, &cookie);
	if (own) {
		__u32 key = BE16(port) | wire << 16, process = *own;
		bpf_map_update_elem(&process_by_port, &key, &process, BPF_ANY);
	}
	return 1;
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
