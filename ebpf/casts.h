/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of ports by the kind of their destination (RFC 2863), where they come and where they leave, for flows.bpf.c, of which this is a part. */
#ifndef BARTIZAN_CASTS_H
#define BARTIZAN_CASTS_H

/* Kinds of destinations: one station, a group of them, all. */
#define UNICAST 0
#define MULTICAST 1
#define BROADCAST 2

INLINE __u32 cast_of(const struct frame *frame)
{
	HEADER(ethernet, ethernet, frame, 0, UNICAST)
	if (!(ethernet->addresses[0] & BE16(0x0100)))
		return UNICAST;
	return (ethernet->addresses[0] & ethernet->addresses[1] & ethernet->addresses[2]) == 0xffff ? BROADCAST : MULTICAST;
}

/* Counts a frame that has come. */
INLINE void count_cast(struct bartizan_counts *line, __u32 cast)
{
	if (cast == MULTICAST)
		line->multicast++;
	else if (cast == BROADCAST)
		line->broadcast++;
}

/* Counts a frame that is to leave by a port, in this processor's line of that port. Not inlined: as `find_flow`. */
static __attribute__((noinline)) void count_out(const struct frame *frame, __u32 out, __u32 processor)
{
	__u32 index = out * processors + processor;
	struct bartizan_counts *line = bpf_map_lookup_elem(&counts, &index);
	if (!line)
		return;
	line->out++;
	line->out_bytes += frame->length;
	if (frame->cast == MULTICAST)
		line->out_multicast++;
	else if (frame->cast == BROADCAST)
		line->out_broadcast++;
}

#endif
