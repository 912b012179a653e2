/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether an interface takes what is redirected to it. The host runs `bartizan_probe` on frames of its own, which are really sent
 * (BPF_F_TEST_XDP_LIVE_FRAMES); `bartizan_sent` hears from the kernel what became of them. Neither is attached to an interface.
 *
 * Programs that redirect are told of nothing that goes wrong behind them, and counters of devices differ from driver to driver: a
 * virtual Ethernet device whose other end does not poll counts nothing at all.
 */
#include "bpf.h"
#include "bartizan_slots.h"

char licence[] SEC("license") = "Apache-2.0";

struct {
	NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct bpf_devmap_val);
} target SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct bartizan_probe);
} outcome SEC(".maps");

SEC("xdp")
int bartizan_probe(struct xdp_md *context)
{
	(void)context;
	__u32 zero = 0;
	struct bartizan_probe *seen = bpf_map_lookup_elem(&outcome, &zero);
	if (!seen)
		return XDP_ABORTED;
	/* Frames wait in a list of this processor, which is sent before it does anything else. */
	seen->processor = bpf_get_smp_processor_id() + 1;
	return bpf_redirect_map(&target, 0, XDP_ABORTED);
}

/* xdp_devmap_xmit(from, to, sent, drops, error) */
SEC("raw_tp/xdp_devmap_xmit")
int bartizan_sent(struct bpf_raw_tracepoint_args *context)
{
	__u32 zero = 0;
	struct bartizan_probe *seen = bpf_map_lookup_elem(&outcome, &zero);
	/* Other traffic goes on, on other processors or before. */
	if (!seen || seen->processor != (__u64)bpf_get_smp_processor_id() + 1)
		return 0;
	seen->processor = 0;
	seen->device = context->args[1];
	seen->sent += (__u32)context->args[2];
	seen->dropped += (__u32)context->args[3];
	if ((__s32)context->args[4] < 0)
		seen->error = -(__s32)context->args[4];
	return 0;
}
