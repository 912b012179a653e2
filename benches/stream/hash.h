// SPDX-License-Identifier: Apache-2.0
// The hash by which every function of this bench reads payload: four lanes of words. The functions of `readers` have the same.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash {
	uint64_t lanes[4];
	uint64_t bytes;
};

static inline uint64_t mixed(uint64_t lane, uint64_t word)
{
	lane = (lane ^ word) * 0x9E3779B97F4A7C15u;
	return lane << 29 | lane >> 35;
}

static inline void hash_bytes(struct hash *hash, const char *bytes, size_t count)
{
	size_t at = 0;
	for (; at + 32 <= count; at += 32) {
		uint64_t words[4];
		memcpy(words, bytes + at, sizeof words);
		for (int lane = 0; lane < 4; lane++)
			hash->lanes[lane] = mixed(hash->lanes[lane], words[lane]);
	}
	for (; at < count; at++)
		hash->lanes[0] = mixed(hash->lanes[0], (unsigned char)bytes[at]);
	hash->bytes += count;
}
