/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a TCP segment plainly goes on with its connection, by numbers that all processors and the host share: the rule of
 * crates/packet/src/windows.rs, which says why it is so. What is not plain is not refused here, but goes up.
 *
 * A number goes forward only, and is changed by compare and exchange, a word of two numbers at a time. Nothing is locked. */
#ifndef BARTIZAN_WINDOWS_H
#define BARTIZAN_WINDOWS_H

#include "bpf.h"
#include "bartizan_slots.h"

/* What is looked at of a segment that has ACK, and none of SYN and RST. `end` lies behind its FIN, if it has one. */
struct segment {
	__u32 sequence, end, acknowledged, timestamp;
	__u16 window;
	__u8 stamped, urgent, fin;
};

/* The words of a connection, as one of its segments meets them: its sender's and the other endpoint's. */
struct numbers {
	__u64 *own_progress, *own_offer, *other_progress, *other_offer;
	__u32 rules;
	/* What becomes of the sender's timestamp. */
	__u32 timestamp;
	/* It ends before what is acknowledged: it says nothing new. */
	int old;
};

INLINE int is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* Not the same as the other one's being after: half the circle away each is before the other one, and no bound holds. */
INLINE int is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

INLINE __u64 read_once(const __u64 *word)
{
	return *(const volatile __u64 *)word;
}

INLINE void find_numbers(struct bartizan_windows *line, int from_high, struct numbers *numbers)
{
	numbers->rules = read_once(&line->numbers);
	numbers->own_progress = from_high ? &line->progress_high : &line->progress_low;
	numbers->own_offer = from_high ? &line->offer_high : &line->offer_low;
	numbers->other_progress = from_high ? &line->progress_low : &line->progress_high;
	numbers->other_offer = from_high ? &line->offer_low : &line->offer_high;
}

/* Whether a segment is acceptable; changes nothing. Upper bounds are read before lower ones: so there is a moment at which all of it held. */
INLINE int is_plain(struct numbers *numbers, const struct segment *segment)
{
	__u64 other_progress = read_once(numbers->other_progress);
	__u32 own_sent = BARTIZAN_PROGRESS_SENT(read_once(numbers->own_progress));
	__u64 own_offer = read_once(numbers->own_offer);
	__u64 other_offer = read_once(numbers->other_offer);
	__u64 own_progress = read_once(numbers->own_progress);
	__u32 acknowledged = BARTIZAN_OFFER_ACKNOWLEDGED(own_offer);
	if (segment->urgent || is_after(segment->acknowledged, BARTIZAN_PROGRESS_SENT(other_progress)) ||
	    (segment->sequence == segment->end && is_after(segment->end, own_sent)) ||
	    is_after(segment->end, BARTIZAN_OFFER_EDGE(own_offer)) ||
	    is_before(segment->end, acknowledged - BARTIZAN_FLIGHT_MAX) ||
	    is_before(segment->acknowledged, BARTIZAN_OFFER_ACKNOWLEDGED(other_offer)))
		return 0;
	numbers->old = is_before(segment->end, acknowledged);
	numbers->timestamp = BARTIZAN_PROGRESS_TIMESTAMP(own_progress);
	if (!(BARTIZAN_NUMBERS_FLAGS(numbers->rules) & BARTIZAN_NUMBERS_FLAG_TIMESTAMPS))
		return 1;
	if (!segment->stamped || segment->timestamp == 0 ||
	    segment->timestamp - numbers->timestamp > BARTIZAN_TIMESTAMP_FAR_AHEAD)
		return 0;
	if (!is_after(segment->sequence, acknowledged))
		numbers->timestamp = segment->timestamp;
	return 1;
}

/* Moves both numbers of a word forward to these. 0: others were faster, so often as it is tried. */
INLINE int move_on(__u64 *word, __u32 low, __u32 high)
{
#pragma clang loop unroll(full)
	for (__u32 number = 0; number < BARTIZAN_WINDOW_TRIES; number++) {
		__u64 had = read_once(word);
		__u32 had_low = had, had_high = had >> 32;
		__u32 next_low = is_after(low, had_low) ? low : had_low;
		__u32 next_high = is_after(high, had_high) ? high : had_high;
		__u64 next = next_low | (__u64)next_high << 32;
		if (next == had || __sync_val_compare_and_swap(word, had, next) == had)
			return 1;
	}
	return 0;
}

/* Moves a connection on by a segment that is plain, before it leaves. 0: it goes up all the same. */
INLINE int move_connection(const struct numbers *numbers, const struct segment *segment, int from_high)
{
	if (numbers->old)
		return 1;
	__u8 scale = from_high ? BARTIZAN_NUMBERS_SCALE_HIGH(numbers->rules) : BARTIZAN_NUMBERS_SCALE_LOW(numbers->rules);
	__u32 edge = segment->acknowledged + ((__u32)segment->window << (scale & 15));
	return move_on(numbers->own_progress, segment->end, numbers->timestamp) &&
	       move_on(numbers->other_offer, segment->acknowledged, edge);
}

#endif
