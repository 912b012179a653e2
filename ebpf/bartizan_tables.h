/* SPDX-License-Identifier: Apache-2.0
 * Generated from crates/packet/src/tables.rs by `cargo xtask generate`: do not edit.
 *
 * Entries of the tables that levels below the host read; numbers are little endian. The structures are for programs that
 * run little endian, as BPF does on such hosts; the accessors are right everywhere and need no alignment. */
#ifndef BARTIZAN_TABLES_H
#define BARTIZAN_TABLES_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* No entry is longer. */
#define BARTIZAN_ENTRY_MAX 128

/* Verdicts. */
#define BARTIZAN_VERDICT_CONTINUE 0
#define BARTIZAN_VERDICT_PASS 1
#define BARTIZAN_VERDICT_DROP 2
#define BARTIZAN_VERDICT_REJECT 3

/* Reasons. */
#define BARTIZAN_REASON_PFW_RULE 0
#define BARTIZAN_REASON_PFW_DEFAULT 1
#define BARTIZAN_REASON_SFW_NO_CONNECTION 2
#define BARTIZAN_REASON_SFW_STATE 3
#define BARTIZAN_REASON_SFW_WINDOW 4
#define BARTIZAN_REASON_SFW_INITIATOR 5
#define BARTIZAN_REASON_SFW_UNRELATED_ICMP 6
#define BARTIZAN_REASON_SFW_SYN_LIMIT 7
#define BARTIZAN_REASON_SFW_CONNECTION_LIMIT 8
#define BARTIZAN_REASON_IDS_RULE 9
#define BARTIZAN_REASON_IDS_THRESHOLD 10
#define BARTIZAN_REASON_IDS_FLOW 11
#define BARTIZAN_REASON_FIREWALL_RULE 12
#define BARTIZAN_REASON_FIREWALL_PACKET_POLICY 13
#define BARTIZAN_REASON_FIREWALL_APP_POLICY 14
#define BARTIZAN_REASON_FIREWALL_PRE_FLOW 15
#define BARTIZAN_REASON_FIREWALL_PRE_STREAM 16
#define BARTIZAN_REASON_FIREWALL_FLOW 17
#define BARTIZAN_REASON_EXCEPTION_FLOW 18
#define BARTIZAN_REASON_TUNNEL_INNER 19
#define BARTIZAN_REASON_DEFRAG 20
#define BARTIZAN_REASON_UNREADABLE 21
#define BARTIZAN_REASON_STREAM_ERROR 22
#define BARTIZAN_REASON_STREAM_OVERLAP 23
#define BARTIZAN_REASON_STREAM_MEMORY 24
#define BARTIZAN_REASON_STREAM_REASSEMBLY 25
#define BARTIZAN_REASON_STREAM_MIDSTREAM 26
#define BARTIZAN_REASON_FLOW_MEMORY 27
#define BARTIZAN_REASON_APPLAYER_ERROR 28
#define BARTIZAN_REASON_PROTOCOL_OPEN 29
#define BARTIZAN_REASON_APPLAYER_MEMORY 30
#define BARTIZAN_REASON_DEFRAG_MEMORY 31
#define BARTIZAN_REASON_POLICY_DEFAULT 32
#define BARTIZAN_REASON_ONE_SIDED 33
#define BARTIZAN_REASON_EGRESS_MTU 34
#define BARTIZAN_REASON_EGRESS_RING 35
#define BARTIZAN_REASON_HAND_OVER_RING 36
#define BARTIZAN_REASON_PORTSCAN 37
#define BARTIZAN_REASON_FUNCTION_FAILED 38
#define BARTIZAN_REASON_FUNCTION_STOPPED 39
#define BARTIZAN_REASON_HTTP2 40
#define BARTIZAN_REASON_OVERLOAD 41

/* Flags of flow entries. */
#define BARTIZAN_FLOW_FLAG_VALID 0x01 /* The entry holds a flow. Set last, and cleared first. */
#define BARTIZAN_FLOW_FLAG_CLIENT_IS_HIGH 0x02 /* The client is the higher endpoint. */
#define BARTIZAN_FLOW_FLAG_WINDOW_CHECK 0x04 /* The policy checks that numbers are in the window. */
#define BARTIZAN_FLOW_FLAG_BOTH_SEEN 0x08 /* Packets of both directions were seen. */

/* Flags of match entries. */
#define BARTIZAN_MATCH_FLAG_VALID 0x01 /* The entry is valid. Set last, and cleared first. */
#define BARTIZAN_MATCH_FLAG_TENANT 0x02 /* The tenant counts. */
#define BARTIZAN_MATCH_FLAG_LINK 0x04 /* The link counts. */
#define BARTIZAN_MATCH_FLAG_SOURCE 0x08 /* The source network counts. */
#define BARTIZAN_MATCH_FLAG_DESTINATION 0x10 /* The destination network counts. */
#define BARTIZAN_MATCH_FLAG_PROTOCOL 0x20 /* The protocol counts. */
#define BARTIZAN_MATCH_FLAG_IPV6 0x40 /* The networks are of IPv6. */

/* Flags of rule entries. */
#define BARTIZAN_RULE_FLAG_VALID 0x01 /* The entry is valid. Set last, and cleared first. */
#define BARTIZAN_RULE_FLAG_EACH_ICMP 0x02 /* ICMP is decided packet by packet, since rules of its class test codes, which may change within a flow. */
#define BARTIZAN_RULE_FLAG_REDIRECT 0x04 /* Packets that pass leave by the named port `egress`, and not by the one across their link. */

/* A flow. The first 56 bytes are its key, equal for both directions: the lower endpoint comes first. */
#define BARTIZAN_FLOW_LEN 128
struct bartizan_flow_entry {
	__u64 low_address_high;         /*   0: Lower address, upper half; 0 of IPv4. */
	__u64 low_address_low;          /*   8: Lower address, lower half. */
	__u64 high_address_high;        /*  16: Higher address, upper half. */
	__u64 high_address_low;         /*  24: Higher address, lower half. */
	__u64 tunnel;                   /*  32: Kind and number of the innermost tunnel; 0 outside of tunnels. */
	__u16 low_port;                 /*  40: Port of the lower endpoint. */
	__u16 high_port;                /*  42: Port of the higher endpoint. */
	__u16 tenant;                   /*  44: Whose it is. */
	__u16 link;                     /*  46: What its packets enter by. */
	__u8 protocol;                  /*  48: IP protocol. */
	__u8 ip_level;                  /*  49: IP headers before the one that counts. */
	__u8 key_flags;                 /*  50: 1: IPv6; 2, 4: of one direction, from the lower or the higher endpoint; 8, 16: the lower one is on the link's first or second side. */
	__u8 vlans_low;                 /*  51: VLAN ids, 12 bits each, the outermost lowest: their lowest 8 bits. */
	__u32 vlans;                    /*  52: The rest of the VLAN ids. */
	__u32 fid;                      /*  56: Flow class. */
	__u32 path;                     /*  60: Functions that its packets still visit, a bit each. */
	__u64 last_seen;                /*  64: When the latest packet came, in nanoseconds of the port's epoch. */
	__u32 next_to_server;           /*  72: TCP: the client's next sequence number. */
	__u32 acknowledged_to_server;   /*  76: TCP: what of the client's is acknowledged. */
	__u32 edge_to_server;           /*  80: TCP: right edge of the window that the client may send into. */
	__u32 next_to_client;           /*  84: TCP: the server's next sequence number. */
	__u32 acknowledged_to_client;   /*  88: TCP: what of the server's is acknowledged. */
	__u32 edge_to_client;           /*  92: TCP: right edge of the window that the server may send into. */
	__u64 bytes_to_server;          /*  96: Bytes of frames to the server since the host last read them. */
	__u64 bytes_to_client;          /* 104: Bytes of frames to the client since the host last read them. */
	__u32 packets_to_server;        /* 112: Packets to the server since the host last read them, which it does before they can wrap. */
	__u32 packets_to_client;        /* 116: Packets to the client since the host last read them. */
	__u8 generation;                /* 120: Low 8 bits of the generation that decided; a packet of another one goes up. */
	__u8 flags;                     /* 121: See the flags of flow entries. */
	__u8 state;                     /* 122: TCP: state of the connection, as rows of the transitions are numbered. */
	__u8 action;                    /* 123: What to do with its packets: an action of the metadata. */
	__u8 reason;                    /* 124: Why, where they are dropped: number of the reason. */
	__u8 timeout;                   /* 125: Which timeout holds: new, established, closed. */
	__u8 scale_to_server;           /* 126: TCP: shift of the windows that the client offers. */
	__u8 scale_to_client;           /* 127: TCP: shift of the windows that the server offers. */
} __attribute__((packed));

/* The headers that a rule matches: one of the rule's alternatives. The first entry that matches decides. */
#define BARTIZAN_MATCH_LEN 64
struct bartizan_match_entry {
	__u64 source_high;              /*   0: Source network, upper half; 0 of IPv4. */
	__u64 source_low;               /*   8: Source network, lower half. */
	__u64 destination_high;         /*  16: Destination network, upper half; 0 of IPv4. */
	__u64 destination_low;          /*  24: Destination network, lower half. */
	__u16 source_first;             /*  32: First source port; of ICMP the type. */
	__u16 source_last;              /*  34: Last source port. */
	__u16 destination_first;        /*  36: First destination port; of ICMP the code. */
	__u16 destination_last;         /*  38: Last destination port. */
	__u16 tenant;                   /*  40: Whose it is, if that counts. */
	__u16 link;                     /*  42: What it enters by, if that counts. */
	__u8 source_length;             /*  44: Bits of the source network. */
	__u8 destination_length;        /*  45: Bits of the destination network. */
	__u8 protocol;                  /*  46: IP protocol, if that counts. */
	__u8 flags;                     /*  47: See the flags of match entries. */
	__u32 fid;                      /*  48: Class of flows that it holds for. */
	__u32 outcome;                  /*  52: Place of its outcome in the table of rules. */
	__u8 generation;                /*  56: Low 8 bits of the generation. */
	__u8 reserved[7];               /*  57: Zero. */
} __attribute__((packed));

/* The outcome of a rule of the packet filter for the packets that it decides. */
#define BARTIZAN_RULE_LEN 16
struct bartizan_rule_entry {
	__u32 rule;                     /*   0: Number of the rule within its policy, from 1; 0 is the default. */
	__u32 counter;                  /*   4: Place of its counter: packets that it decided. */
	__u8 verdict;                   /*   8: Number of the verdict: continue, drop or reject. */
	__u8 reason;                    /*   9: Why, where they are refused: number of the reason. */
	__u8 flags;                     /*  10: See the flags of rule entries. */
	__u8 generation;                /*  11: Low 8 bits of the generation. */
	__u8 egress;                    /*  12: Number of the named port that packets leave by, if they are redirected. */
	__u8 reserved[3];               /*  13: Zero. */
} __attribute__((packed));

/* The compiler lays the structures out as the description says. */
_Static_assert(sizeof(struct bartizan_flow_entry) == 128, "flow");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, low_address_high) == 0, "flow.low_address_high");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, low_address_low) == 8, "flow.low_address_low");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, high_address_high) == 16, "flow.high_address_high");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, high_address_low) == 24, "flow.high_address_low");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, tunnel) == 32, "flow.tunnel");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, low_port) == 40, "flow.low_port");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, high_port) == 42, "flow.high_port");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, tenant) == 44, "flow.tenant");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, link) == 46, "flow.link");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, protocol) == 48, "flow.protocol");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, ip_level) == 49, "flow.ip_level");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, key_flags) == 50, "flow.key_flags");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, vlans_low) == 51, "flow.vlans_low");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, vlans) == 52, "flow.vlans");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, fid) == 56, "flow.fid");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, path) == 60, "flow.path");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, last_seen) == 64, "flow.last_seen");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, next_to_server) == 72, "flow.next_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, acknowledged_to_server) == 76, "flow.acknowledged_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, edge_to_server) == 80, "flow.edge_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, next_to_client) == 84, "flow.next_to_client");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, acknowledged_to_client) == 88, "flow.acknowledged_to_client");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, edge_to_client) == 92, "flow.edge_to_client");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, bytes_to_server) == 96, "flow.bytes_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, bytes_to_client) == 104, "flow.bytes_to_client");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, packets_to_server) == 112, "flow.packets_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, packets_to_client) == 116, "flow.packets_to_client");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, generation) == 120, "flow.generation");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, flags) == 121, "flow.flags");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, state) == 122, "flow.state");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, action) == 123, "flow.action");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, reason) == 124, "flow.reason");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, timeout) == 125, "flow.timeout");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, scale_to_server) == 126, "flow.scale_to_server");
_Static_assert(__builtin_offsetof(struct bartizan_flow_entry, scale_to_client) == 127, "flow.scale_to_client");
_Static_assert(sizeof(struct bartizan_match_entry) == 64, "match");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, source_high) == 0, "match.source_high");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, source_low) == 8, "match.source_low");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, destination_high) == 16, "match.destination_high");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, destination_low) == 24, "match.destination_low");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, source_first) == 32, "match.source_first");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, source_last) == 34, "match.source_last");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, destination_first) == 36, "match.destination_first");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, destination_last) == 38, "match.destination_last");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, tenant) == 40, "match.tenant");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, link) == 42, "match.link");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, source_length) == 44, "match.source_length");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, destination_length) == 45, "match.destination_length");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, protocol) == 46, "match.protocol");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, flags) == 47, "match.flags");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, fid) == 48, "match.fid");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, outcome) == 52, "match.outcome");
_Static_assert(__builtin_offsetof(struct bartizan_match_entry, generation) == 56, "match.generation");
_Static_assert(sizeof(struct bartizan_rule_entry) == 16, "rule");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, rule) == 0, "rule.rule");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, counter) == 4, "rule.counter");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, verdict) == 8, "rule.verdict");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, reason) == 9, "rule.reason");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, flags) == 10, "rule.flags");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, generation) == 11, "rule.generation");
_Static_assert(__builtin_offsetof(struct bartizan_rule_entry, egress) == 12, "rule.egress");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BARTIZAN_TABLES_LE16(x) (x)
#define BARTIZAN_TABLES_LE32(x) (x)
#define BARTIZAN_TABLES_LE64(x) (x)
#else
#define BARTIZAN_TABLES_LE16(x) __builtin_bswap16(x)
#define BARTIZAN_TABLES_LE32(x) __builtin_bswap32(x)
#define BARTIZAN_TABLES_LE64(x) __builtin_bswap64(x)
#endif
#define BARTIZAN_TABLES_LE8(x) (x)

/* Reads and writes a field of the entry that begins at `entry`; the caller has seen that the entry is there. */
#define BARTIZAN_TABLES_ACCESSORS(table, name, bits, offset) \
	static inline __attribute__((unused, always_inline)) __u##bits bartizan_##table##_##name(const void *entry) \
	{ \
		__u##bits value; \
		__builtin_memcpy(&value, (const __u8 *)entry + (offset), sizeof(value)); \
		return BARTIZAN_TABLES_LE##bits(value); \
	} \
	static inline __attribute__((unused, always_inline)) void bartizan_##table##_set_##name(void *entry, __u##bits value) \
	{ \
		value = BARTIZAN_TABLES_LE##bits(value); \
		__builtin_memcpy((__u8 *)entry + (offset), &value, sizeof(value)); \
	}

BARTIZAN_TABLES_ACCESSORS(flow, low_address_high, 64, 0)
BARTIZAN_TABLES_ACCESSORS(flow, low_address_low, 64, 8)
BARTIZAN_TABLES_ACCESSORS(flow, high_address_high, 64, 16)
BARTIZAN_TABLES_ACCESSORS(flow, high_address_low, 64, 24)
BARTIZAN_TABLES_ACCESSORS(flow, tunnel, 64, 32)
BARTIZAN_TABLES_ACCESSORS(flow, low_port, 16, 40)
BARTIZAN_TABLES_ACCESSORS(flow, high_port, 16, 42)
BARTIZAN_TABLES_ACCESSORS(flow, tenant, 16, 44)
BARTIZAN_TABLES_ACCESSORS(flow, link, 16, 46)
BARTIZAN_TABLES_ACCESSORS(flow, protocol, 8, 48)
BARTIZAN_TABLES_ACCESSORS(flow, ip_level, 8, 49)
BARTIZAN_TABLES_ACCESSORS(flow, key_flags, 8, 50)
BARTIZAN_TABLES_ACCESSORS(flow, vlans_low, 8, 51)
BARTIZAN_TABLES_ACCESSORS(flow, vlans, 32, 52)
BARTIZAN_TABLES_ACCESSORS(flow, fid, 32, 56)
BARTIZAN_TABLES_ACCESSORS(flow, path, 32, 60)
BARTIZAN_TABLES_ACCESSORS(flow, last_seen, 64, 64)
BARTIZAN_TABLES_ACCESSORS(flow, next_to_server, 32, 72)
BARTIZAN_TABLES_ACCESSORS(flow, acknowledged_to_server, 32, 76)
BARTIZAN_TABLES_ACCESSORS(flow, edge_to_server, 32, 80)
BARTIZAN_TABLES_ACCESSORS(flow, next_to_client, 32, 84)
BARTIZAN_TABLES_ACCESSORS(flow, acknowledged_to_client, 32, 88)
BARTIZAN_TABLES_ACCESSORS(flow, edge_to_client, 32, 92)
BARTIZAN_TABLES_ACCESSORS(flow, bytes_to_server, 64, 96)
BARTIZAN_TABLES_ACCESSORS(flow, bytes_to_client, 64, 104)
BARTIZAN_TABLES_ACCESSORS(flow, packets_to_server, 32, 112)
BARTIZAN_TABLES_ACCESSORS(flow, packets_to_client, 32, 116)
BARTIZAN_TABLES_ACCESSORS(flow, generation, 8, 120)
BARTIZAN_TABLES_ACCESSORS(flow, flags, 8, 121)
BARTIZAN_TABLES_ACCESSORS(flow, state, 8, 122)
BARTIZAN_TABLES_ACCESSORS(flow, action, 8, 123)
BARTIZAN_TABLES_ACCESSORS(flow, reason, 8, 124)
BARTIZAN_TABLES_ACCESSORS(flow, timeout, 8, 125)
BARTIZAN_TABLES_ACCESSORS(flow, scale_to_server, 8, 126)
BARTIZAN_TABLES_ACCESSORS(flow, scale_to_client, 8, 127)

BARTIZAN_TABLES_ACCESSORS(match, source_high, 64, 0)
BARTIZAN_TABLES_ACCESSORS(match, source_low, 64, 8)
BARTIZAN_TABLES_ACCESSORS(match, destination_high, 64, 16)
BARTIZAN_TABLES_ACCESSORS(match, destination_low, 64, 24)
BARTIZAN_TABLES_ACCESSORS(match, source_first, 16, 32)
BARTIZAN_TABLES_ACCESSORS(match, source_last, 16, 34)
BARTIZAN_TABLES_ACCESSORS(match, destination_first, 16, 36)
BARTIZAN_TABLES_ACCESSORS(match, destination_last, 16, 38)
BARTIZAN_TABLES_ACCESSORS(match, tenant, 16, 40)
BARTIZAN_TABLES_ACCESSORS(match, link, 16, 42)
BARTIZAN_TABLES_ACCESSORS(match, source_length, 8, 44)
BARTIZAN_TABLES_ACCESSORS(match, destination_length, 8, 45)
BARTIZAN_TABLES_ACCESSORS(match, protocol, 8, 46)
BARTIZAN_TABLES_ACCESSORS(match, flags, 8, 47)
BARTIZAN_TABLES_ACCESSORS(match, fid, 32, 48)
BARTIZAN_TABLES_ACCESSORS(match, outcome, 32, 52)
BARTIZAN_TABLES_ACCESSORS(match, generation, 8, 56)

BARTIZAN_TABLES_ACCESSORS(rule, rule, 32, 0)
BARTIZAN_TABLES_ACCESSORS(rule, counter, 32, 4)
BARTIZAN_TABLES_ACCESSORS(rule, verdict, 8, 8)
BARTIZAN_TABLES_ACCESSORS(rule, reason, 8, 9)
BARTIZAN_TABLES_ACCESSORS(rule, flags, 8, 10)
BARTIZAN_TABLES_ACCESSORS(rule, generation, 8, 11)
BARTIZAN_TABLES_ACCESSORS(rule, egress, 8, 12)

#endif
