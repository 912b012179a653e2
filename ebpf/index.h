/* SPDX-License-Identifier: Apache-2.0
 *
 * The slot of a flow, found by its key. The host writes buckets and keys (crates/xdp/src/index.rs, which describes them); the program only reads. */
#ifndef BARTIZAN_INDEX_H
#define BARTIZAN_INDEX_H

#define NO_SLOT 0xffffffffU

/* A place: how many is its slot, plus one, and the tag of its key in the upper half. 0: it is free. */
struct bucket {
	__u64 places[BARTIZAN_INDEX_PLACES];
};

struct key {
	__u64 words[KEY_WORDS];
};

/* The key of a slot's flow: its first line. */
struct key_line {
	struct key key;
	__u64 unused;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: a power of two */
	TYPE(key, __u32);
	TYPE(value, struct bucket);
} buckets SEC(".maps");

/* Buckets less one, and what hashes begin with. The loader writes them. */
const volatile __u32 buckets_mask = 0;
const volatile __u64 hash_seed = 0;

/* One step of the hash; `mix` of crates/xdp/src/index.rs. */
INLINE __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* The hash of a flow's key, for all tables that go by one; `hash` of crates/xdp/src/index.rs. */
INLINE __u64 hash_of(const __u64 *key)
{
	__u64 hash = hash_seed;
#pragma clang loop unroll(full)
	for (int word = 0; word < KEY_WORDS; word++)
		hash = mix(hash, key[word]);
	return mix(hash, hash >> 32);
}

/* The slot of a flow, or `NO_SLOT`. Not static: the verifier looks at it once, and not for each way in which a key can have come about. */
__attribute__((noinline)) __u32 find_flow(const struct key *key, __u64 hash)
{
	if (!key)
		return NO_SLOT;
	__u32 index = (__u32)hash & buckets_mask, tag = (__u32)(hash >> 32) | 1;
	const volatile struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	if (!bucket)
		return NO_SLOT;
	for (__u32 at = 0; at < BARTIZAN_INDEX_PLACES; at++) {
		__u64 place = bucket->places[at], differs = 0;
		__u32 slot = (__u32)place - 1;
		if ((__u32)(place >> 32) != tag || slot == NO_SLOT)
			continue;
		__u32 first = SLOT_LINE(slot, 0) - 1;
		const volatile struct key_line *line = bpf_map_lookup_elem(&slots, &first);
		if (!line)
			continue;
		for (int word = 0; word < KEY_WORDS; word++)
			differs |= line->key.words[word] ^ key->words[word];
		if (!differs)
			return slot;
	}
	return NO_SLOT;
}

#endif
