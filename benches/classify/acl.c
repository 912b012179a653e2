// SPDX-License-Identifier: Apache-2.0
/*
 * The other side of the bench: DPDK's access control library (librte_acl, BSD-3-Clause), as a process of its own.
 *
 * acl RULES HEADERS CORE: RULES is text, a rule a line: "sip len dip len sport-first sport-last dport-first dport-last
 * proto mask", numbers in decimal and host order, the first line wins. HEADERS is binary, 16 bytes a header in network
 * order: protocol, 3 bytes of nothing, source, destination, source port, destination port.
 * Answers on stdout: first "ready BUILD-SECONDS MEMORY-BYTES TRIES-UNKNOWN"; then, for each line of stdin
 * "METHOD CALL", one pass over all headers by calls of CALL headers: "NANOSECONDS" of thread CPU time (or "none" where
 * the method does not exist here); "answers METHOD FILE" writes one int32 a header (0-based rule, -1 none).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_malloc.h>

struct header { uint8_t proto, none[3]; uint32_t sip, dip; uint16_t sport, dport; };

static struct rte_acl_field_def fields[5] = {
	{ RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, 0 },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, 4 },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, 8 },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, 12 },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, 14 },
};
RTE_ACL_RULE_DEF(rule, 5);

static const struct { const char *name; enum rte_acl_classify_alg alg; } methods[] = {
	{ "scalar", RTE_ACL_CLASSIFY_SCALAR },
	{ "sse", RTE_ACL_CLASSIFY_SSE },
	{ "avx2", RTE_ACL_CLASSIFY_AVX2 },
	{ "avx512x16", RTE_ACL_CLASSIFY_AVX512X16 },
	{ "avx512x32", RTE_ACL_CLASSIFY_AVX512X32 },
};

static void fail(const char *what)
{
	fprintf(stderr, "acl: %s\n", what);
	exit(1);
}

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static size_t heap(void)
{
	struct rte_malloc_socket_stats s;
	return rte_malloc_get_socket_stats(0, &s) ? 0 : s.heap_allocsz_bytes;
}

static struct rte_acl_ctx *build(const char *path)
{
	FILE *f = fopen(path, "r");
	if (!f)
		fail("cannot read the rules");
	struct rte_acl_param param = {
		.name = "bench", .socket_id = 0, .rule_size = RTE_ACL_RULE_SZ(5), .max_rule_num = 1 << 20,
	};
	struct rte_acl_ctx *ctx = rte_acl_create(&param);
	if (!ctx)
		fail("rte_acl_create");
	unsigned v[10], line = 0;
	while (fscanf(f, "%u %u %u %u %u %u %u %u %u %u", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8,
		      v + 9) == 10) {
		struct rule r;
		memset(&r, 0, sizeof(r));
		r.data.category_mask = 1;
		r.data.priority = RTE_ACL_MAX_PRIORITY - line;
		r.data.userdata = line + 1;
		r.field[0].value.u8 = v[8];
		r.field[0].mask_range.u8 = v[9];
		r.field[1].value.u32 = v[0];
		r.field[1].mask_range.u32 = v[1];
		r.field[2].value.u32 = v[2];
		r.field[2].mask_range.u32 = v[3];
		r.field[3].value.u16 = v[4];
		r.field[3].mask_range.u16 = v[5];
		r.field[4].value.u16 = v[6];
		r.field[4].mask_range.u16 = v[7];
		if (rte_acl_add_rules(ctx, (struct rte_acl_rule *)&r, 1))
			fail("rte_acl_add_rules");
		line++;
	}
	fclose(f);
	struct rte_acl_config config = { .num_categories = 1, .num_fields = 5, .max_size = 0 };
	memcpy(config.defs, fields, sizeof(fields));
	size_t before = heap();
	double start = seconds(CLOCK_THREAD_CPUTIME_ID);
	if (rte_acl_build(ctx, &config))
		fail("rte_acl_build");
	printf("ready %.6f %zu\n", seconds(CLOCK_THREAD_CPUTIME_ID) - start, heap() - before);
	fflush(stdout);
	return ctx;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		fail("usage: acl RULES HEADERS CORE");
	char *eal[] = { "acl", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-l", argv[3], "-m", "5120",
			"--force-max-simd-bitwidth=512", "--log-level=3", NULL };
	if (rte_eal_init(11, eal) < 0)
		fail("rte_eal_init");
	FILE *f = fopen(argv[2], "rb");
	if (!f)
		fail("cannot read the headers");
	fseek(f, 0, SEEK_END);
	size_t count = ftell(f) / sizeof(struct header);
	rewind(f);
	struct header *headers = malloc(count * sizeof(*headers));
	const uint8_t **data = malloc(count * sizeof(*data));
	uint32_t *results = malloc(count * sizeof(*results));
	if (!headers || !data || !results || fread(headers, sizeof(*headers), count, f) != count)
		fail("cannot read the headers");
	fclose(f);
	for (size_t i = 0; i < count; i++)
		data[i] = (const uint8_t *)&headers[i];
	struct rte_acl_ctx *ctx = build(argv[1]);

	char line[4096], name[64], path[4000];
	while (fgets(line, sizeof(line), stdin)) {
		unsigned call = 64;
		int write = sscanf(line, "answers %63s %3999s", name, path) == 2;
		if (!write && sscanf(line, "%63s %u", name, &call) != 2)
			fail("unknown command");
		int found = -1;
		for (unsigned m = 0; m < sizeof(methods) / sizeof(*methods); m++)
			if (!strcmp(methods[m].name, name))
				found = m;
		if (found < 0 || rte_acl_set_ctx_classify(ctx, methods[found].alg)) {
			printf("none\n");
			fflush(stdout);
			continue;
		}
		double start = seconds(CLOCK_THREAD_CPUTIME_ID);
		for (size_t i = 0; i < count; i += call)
			rte_acl_classify(ctx, data + i, results + i, count - i < call ? count - i : call, 1);
		double took = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
		if (write) {
			FILE *out = fopen(path, "wb");
			for (size_t i = 0; out && i < count; i++) {
				int32_t answer = (int32_t)results[i] - 1;
				fwrite(&answer, sizeof(answer), 1, out);
			}
			if (!out || fclose(out))
				fail("cannot write the answers");
		}
		printf("%.0f\n", took * 1e9);
		fflush(stdout);
	}
	return 0;
}
