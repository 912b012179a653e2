/* SPDX-License-Identifier: Apache-2.0
 * Generated from crates/packet/src/metadata.rs by `cargo xtask generate`: do not edit.
 *
 * The metadata block before a packet: 32 generic bytes and, where there is room, 32 extended ones; numbers are little
 * endian. The structures are for programs that run little endian, as BPF does on such hosts; the accessors are right
 * everywhere and need no alignment. */
#ifndef BARTIZAN_METADATA_H
#define BARTIZAN_METADATA_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define BARTIZAN_METADATA_GENERIC_LEN 32
#define BARTIZAN_METADATA_EXTENDED_LEN 32
#define BARTIZAN_METADATA_LEN 64

/* Fields: first byte, from the start of the block, and length in bytes. */
#define BARTIZAN_METADATA_FID_OFFSET 0
#define BARTIZAN_METADATA_FID_LEN 4
#define BARTIZAN_METADATA_PATH_OFFSET 4
#define BARTIZAN_METADATA_PATH_LEN 4
#define BARTIZAN_METADATA_FLOW_HASH_OFFSET 8
#define BARTIZAN_METADATA_FLOW_HASH_LEN 4
#define BARTIZAN_METADATA_GENERATION_OFFSET 12
#define BARTIZAN_METADATA_GENERATION_LEN 1
#define BARTIZAN_METADATA_ACTION_OFFSET 13
#define BARTIZAN_METADATA_ACTION_LEN 1
#define BARTIZAN_METADATA_INGRESS_OFFSET 14
#define BARTIZAN_METADATA_INGRESS_LEN 1
#define BARTIZAN_METADATA_EGRESS_OFFSET 15
#define BARTIZAN_METADATA_EGRESS_LEN 1
#define BARTIZAN_METADATA_TENANT_OFFSET 16
#define BARTIZAN_METADATA_TENANT_LEN 2
#define BARTIZAN_METADATA_FLAGS_OFFSET 18
#define BARTIZAN_METADATA_FLAGS_LEN 2
#define BARTIZAN_METADATA_L3_OFFSET 20
#define BARTIZAN_METADATA_L3_LEN 2
#define BARTIZAN_METADATA_L4_OFFSET 22
#define BARTIZAN_METADATA_L4_LEN 2
#define BARTIZAN_METADATA_PAYLOAD_OFFSET 24
#define BARTIZAN_METADATA_PAYLOAD_LEN 2
#define BARTIZAN_METADATA_LENGTH_OFFSET 26
#define BARTIZAN_METADATA_LENGTH_LEN 2
#define BARTIZAN_METADATA_TIMESTAMP_US_OFFSET 28
#define BARTIZAN_METADATA_TIMESTAMP_US_LEN 4
#define BARTIZAN_METADATA_TIMESTAMP_NS_OFFSET 32
#define BARTIZAN_METADATA_TIMESTAMP_NS_LEN 8
#define BARTIZAN_METADATA_FUNCTIONS_OFFSET 40
#define BARTIZAN_METADATA_FUNCTIONS_LEN 24

/* Actions. */
#define BARTIZAN_METADATA_ACTION_TO_CPU 0
#define BARTIZAN_METADATA_ACTION_TO_PORT 1
#define BARTIZAN_METADATA_ACTION_DROP 2

/* Flags. */
#define BARTIZAN_METADATA_FLAG_PARSED 0x0001 /* Headers are parsed: the offsets count. */
#define BARTIZAN_METADATA_FLAG_CLASSIFIED 0x0002 /* Flow class and path are known. */
#define BARTIZAN_METADATA_FLAG_HEADER_HALVES_DONE 0x0004 /* Header halves on the path have run. */
#define BARTIZAN_METADATA_FLAG_EXTENDED 0x0008 /* The extended part is present. */
#define BARTIZAN_METADATA_FLAG_IPV6 0x0010 /* IP version 6. */
#define BARTIZAN_METADATA_FLAG_FRAGMENT 0x0020 /* A fragment. */
#define BARTIZAN_METADATA_FLAG_CHECKSUM_OK 0x0040 /* The transport checksum was found right. */
#define BARTIZAN_METADATA_FLAG_INVALID 0x0080 /* A header is broken. */

/* The generic part; bytes 0 to 31. */
struct bartizan_metadata_generic {
	__u32 fid;              /*  0: Flow class. */
	__u32 path;             /*  4: Functions that the packet still visits, a bit each. */
	__u32 flow_hash;        /*  8: Keyed hash of the flow. */
	__u8 generation;        /* 12: Low 8 bits of the generation. */
	__u8 action;            /* 13: What to do with the packet. */
	__u8 ingress;           /* 14: Port it came in by. */
	__u8 egress;            /* 15: Port it leaves by. */
	__u16 tenant;           /* 16: Whose it is. */
	__u16 flags;            /* 18: What has been done with it. */
	__u16 l3;               /* 20: Offset of the network header, from the start of the frame. */
	__u16 l4;               /* 22: Offset of the transport header. */
	__u16 payload;          /* 24: Offset of the payload. */
	__u16 length;           /* 26: Length of the frame. */
	__u32 timestamp_us;     /* 28: Microseconds of the port's epoch. */
} __attribute__((packed));

/* The extended part; bytes 32 to 63. */
struct bartizan_metadata_extended {
	__u64 timestamp_ns;     /* 32: Nanoseconds since 1970-01-01T00:00:00Z. */
	__u8 functions[24];     /* 40: Left by functions for those after them. */
} __attribute__((packed));

/* The compiler lays the structures out as the offsets say. */
_Static_assert(sizeof(struct bartizan_metadata_generic) == 32, "length of the generic part");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, fid) == 0, "fid");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, path) == 4, "path");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, flow_hash) == 8, "flow_hash");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, generation) == 12, "generation");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, action) == 13, "action");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, ingress) == 14, "ingress");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, egress) == 15, "egress");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, tenant) == 16, "tenant");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, flags) == 18, "flags");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, l3) == 20, "l3");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, l4) == 22, "l4");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, payload) == 24, "payload");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, length) == 26, "length");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_generic, timestamp_us) == 28, "timestamp_us");
_Static_assert(sizeof(struct bartizan_metadata_extended) == 32, "length of the extended part");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_extended, timestamp_ns) == 0, "timestamp_ns");
_Static_assert(__builtin_offsetof(struct bartizan_metadata_extended, functions) == 8, "functions");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BARTIZAN_METADATA_LE16(x) (x)
#define BARTIZAN_METADATA_LE32(x) (x)
#define BARTIZAN_METADATA_LE64(x) (x)
#else
#define BARTIZAN_METADATA_LE16(x) __builtin_bswap16(x)
#define BARTIZAN_METADATA_LE32(x) __builtin_bswap32(x)
#define BARTIZAN_METADATA_LE64(x) __builtin_bswap64(x)
#endif
#define BARTIZAN_METADATA_LE8(x) (x)

/* Reads and writes a field of the block that begins at `block`; the caller has seen that the block is there. */
#define BARTIZAN_METADATA_ACCESSORS(name, bits, offset) \
	static inline __attribute__((unused, always_inline)) __u##bits bartizan_metadata_##name(const void *block) \
	{ \
		__u##bits value; \
		__builtin_memcpy(&value, (const __u8 *)block + (offset), sizeof(value)); \
		return BARTIZAN_METADATA_LE##bits(value); \
	} \
	static inline __attribute__((unused, always_inline)) void bartizan_metadata_set_##name(void *block, __u##bits value) \
	{ \
		value = BARTIZAN_METADATA_LE##bits(value); \
		__builtin_memcpy((__u8 *)block + (offset), &value, sizeof(value)); \
	}

BARTIZAN_METADATA_ACCESSORS(fid, 32, BARTIZAN_METADATA_FID_OFFSET)
BARTIZAN_METADATA_ACCESSORS(path, 32, BARTIZAN_METADATA_PATH_OFFSET)
BARTIZAN_METADATA_ACCESSORS(flow_hash, 32, BARTIZAN_METADATA_FLOW_HASH_OFFSET)
BARTIZAN_METADATA_ACCESSORS(generation, 8, BARTIZAN_METADATA_GENERATION_OFFSET)
BARTIZAN_METADATA_ACCESSORS(action, 8, BARTIZAN_METADATA_ACTION_OFFSET)
BARTIZAN_METADATA_ACCESSORS(ingress, 8, BARTIZAN_METADATA_INGRESS_OFFSET)
BARTIZAN_METADATA_ACCESSORS(egress, 8, BARTIZAN_METADATA_EGRESS_OFFSET)
BARTIZAN_METADATA_ACCESSORS(tenant, 16, BARTIZAN_METADATA_TENANT_OFFSET)
BARTIZAN_METADATA_ACCESSORS(flags, 16, BARTIZAN_METADATA_FLAGS_OFFSET)
BARTIZAN_METADATA_ACCESSORS(l3, 16, BARTIZAN_METADATA_L3_OFFSET)
BARTIZAN_METADATA_ACCESSORS(l4, 16, BARTIZAN_METADATA_L4_OFFSET)
BARTIZAN_METADATA_ACCESSORS(payload, 16, BARTIZAN_METADATA_PAYLOAD_OFFSET)
BARTIZAN_METADATA_ACCESSORS(length, 16, BARTIZAN_METADATA_LENGTH_OFFSET)
BARTIZAN_METADATA_ACCESSORS(timestamp_us, 32, BARTIZAN_METADATA_TIMESTAMP_US_OFFSET)
BARTIZAN_METADATA_ACCESSORS(timestamp_ns, 64, BARTIZAN_METADATA_TIMESTAMP_NS_OFFSET)

#endif
