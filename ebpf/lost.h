/* SPDX-License-Identifier: Apache-2.0
 *
 * What is lost behind a redirect, for flows.bpf.c, of which this is a part. The program that redirects is told of nothing that goes wrong behind it, and a driver may count nothing (a virtual
 * Ethernet device whose other end does not poll). So the kernel's reports are listened to: of frames that a device did not take (xdp_devmap_xmit, for each batch), and of those
 * that the kernel did not give it (xdp_redirect_err: it is down). They are counted by port.
 *
 * A port whose device gives an error takes nothing: what may leave by it is taken away at once, so that what would leave goes up, until the host has tried the port again. A device that has taken a part
 * of a batch has its ring full, as happens. */
#ifndef BARTIZAN_LOST_H
#define BARTIZAN_LOST_H

/* Number of the table `egress`. The loader writes it once that is there. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, __u64);
} own SEC(".maps");

/* Ports by their devices, as the kernel's reports name these: by where they are in its memory. That is a name here, and nothing is read there. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, BARTIZAN_PORTS);
	TYPE(key, __u64);
	TYPE(value, __u64);
} devices SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1); /* the loader says how many: ports * processors */
	TYPE(key, __u32);
	TYPE(value, struct bartizan_lost);
} lost SEC(".maps");

/* So many frames that were to leave by a port are lost. `error`: it takes none. */
INLINE void count_lost(__u32 port, __u32 frames, __s32 error)
{
	__u32 processor = bpf_get_smp_processor_id(), index = port * processors + processor;
	struct bartizan_lost *line = bpf_map_lookup_elem(&lost, &index);
	if (!line || processor >= processors)
		return;
	line->frames += frames;
	if (error >= 0)
		return;
	line->error = -error;
	volatile __u64 *exit = bpf_map_lookup_elem(&exits, &port);
	if (exit)
		*exit = 0;
}

/* xdp_devmap_xmit(from, to, sent, drops, error) */
SEC("raw_tp/xdp_devmap_xmit")
int bartizan_lost(struct bpf_raw_tracepoint_args *context)
{
	__u32 drops = context->args[3];
	if (!drops)
		return 0;
	__u64 device = context->args[1];
	const __u64 *port = bpf_map_lookup_elem(&devices, &device);
	if (port)
		count_lost(*port, drops, context->args[4]);
	return 0;
}

/* xdp_redirect_err(from, program, to, error, kind of table, its number, index) */
SEC("raw_tp/xdp_redirect_err")
int bartizan_refused(struct bpf_raw_tracepoint_args *context)
{
	__u32 zero = 0;
	const __u64 *number = bpf_map_lookup_elem(&own, &zero);
	if (number && *number == (__u32)context->args[5])
		count_lost(context->args[6], 1, context->args[3]);
	return 0;
}

#endif
