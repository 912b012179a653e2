/* SPDX-License-Identifier: Apache-2.0
 * Generated from crates/functions/src/sfw_table.rs and sfw_messages.rs by `cargo xtask generate`: do not edit.
 *
 * What the stateful firewall decides, by state and class of a segment. What a class is and how it is found:
 * docs/design/0014-header-halves.md. Reasons are those of bartizan_tables.h. */
#ifndef BARTIZAN_SFW_H
#define BARTIZAN_SFW_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* In place of a number: no state follows. The packet goes up to the host. */
#define BARTIZAN_SFW_NONE 255
#define BARTIZAN_SFW_STATES 11
#define BARTIZAN_SFW_CLASSES 48
#define BARTIZAN_SFW_MESSAGES 8

/* States of a connection: rows. */
#define BARTIZAN_SFW_STATE_NONE 0
#define BARTIZAN_SFW_STATE_SYN_SENT 1
#define BARTIZAN_SFW_STATE_SYN_RECV 2
#define BARTIZAN_SFW_STATE_ESTABLISHED 3
#define BARTIZAN_SFW_STATE_FIN_WAIT1 4
#define BARTIZAN_SFW_STATE_FIN_WAIT2 5
#define BARTIZAN_SFW_STATE_TIME_WAIT 6
#define BARTIZAN_SFW_STATE_LAST_ACK 7
#define BARTIZAN_SFW_STATE_CLOSE_WAIT 8
#define BARTIZAN_SFW_STATE_CLOSING 9
#define BARTIZAN_SFW_STATE_CLOSED 10

/* What a segment is by its flags. */
#define BARTIZAN_SFW_KIND_BROKEN 0
#define BARTIZAN_SFW_KIND_SYN 1
#define BARTIZAN_SFW_KIND_SYN_ACK 2
#define BARTIZAN_SFW_KIND_RST 3
#define BARTIZAN_SFW_KIND_ACK 4
#define BARTIZAN_SFW_KIND_FIN 5

/* How a segment that is taken lies in the state before it. */
#define BARTIZAN_SFW_PLACE_UNCHANGED 0
#define BARTIZAN_SFW_PLACE_EXPECTED 1
#define BARTIZAN_SFW_PLACE_MOVES 2

/* Classes of segments that a check has decided. */
#define BARTIZAN_SFW_CLASS_BROKEN 0
#define BARTIZAN_SFW_CLASS_UNREAD 1
#define BARTIZAN_SFW_CLASS_NO_CONNECTION 2
#define BARTIZAN_SFW_CLASS_ONE_SIDED 3
#define BARTIZAN_SFW_CLASS_OUT_OF_WINDOW 4
#define BARTIZAN_SFW_CLASS_UNCHECKED 5
#define BARTIZAN_SFW_CLASS_REFUSED 6
#define BARTIZAN_SFW_CLASS_INJECTED 7

/* What becomes of a packet. */
#define BARTIZAN_SFW_ACTION_ADMIT 0
#define BARTIZAN_SFW_ACTION_SKIP 1
#define BARTIZAN_SFW_ACTION_REFUSE 2

/* Which timeout a flow has. */
#define BARTIZAN_SFW_TIMEOUT_NEW 0
#define BARTIZAN_SFW_TIMEOUT_ESTABLISHED 1
#define BARTIZAN_SFW_TIMEOUT_CLOSED 2

/* What a connection counts for its source. */
#define BARTIZAN_SFW_SHARE_HALF_OPEN 0
#define BARTIZAN_SFW_SHARE_OPEN 1
#define BARTIZAN_SFW_SHARE_NOTHING 2

/* What is known of the flow of a packet that is no segment: rows. */
#define BARTIZAN_SFW_KNOWN_NO_FLOW 0
#define BARTIZAN_SFW_KNOWN_NEW 1
#define BARTIZAN_SFW_KNOWN_ADMITTED 2

/* What such a packet is: columns. */
#define BARTIZAN_SFW_MESSAGE_UNTRACKED 0
#define BARTIZAN_SFW_MESSAGE_PLAIN 1
#define BARTIZAN_SFW_MESSAGE_QUESTION 2
#define BARTIZAN_SFW_MESSAGE_ANSWER 3
#define BARTIZAN_SFW_MESSAGE_ANSWER_OF_ASKER 4
#define BARTIZAN_SFW_MESSAGE_ERROR 5
#define BARTIZAN_SFW_MESSAGE_STRAY_ERROR 6
#define BARTIZAN_SFW_MESSAGE_NEIGHBOUR 7

/* What a type of ICMP is. */
#define BARTIZAN_SFW_ICMP_QUESTION 0
#define BARTIZAN_SFW_ICMP_ANSWER 1
#define BARTIZAN_SFW_ICMP_ERROR 2
#define BARTIZAN_SFW_ICMP_NEIGHBOUR 3

struct bartizan_sfw_cell {
	__u8 next;    /* State after it. */
	__u8 action;
	__u8 reason;
	__u8 timeout; /* That of `next`. */
};

/* Rows by state, columns by class. */
static const struct bartizan_sfw_cell bartizan_sfw_transitions[BARTIZAN_SFW_STATES * BARTIZAN_SFW_CLASSES]
	__attribute__((unused)) = {
	/* NONE */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {0, 0, 255, 0}, {4, 0, 255, 1}, {4, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* SYN_SENT */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {255, 0, 255, 255}, {2, 0, 255, 0}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {255, 0, 255, 255}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{1, 2, 3, 0}, {1, 2, 3, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{1, 2, 3, 0}, {1, 2, 3, 0}, {1, 0, 255, 0}, {1, 0, 255, 0}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* SYN_RECV */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {2, 0, 255, 0}, {8, 0, 255, 1}, {4, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* ESTABLISHED */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {3, 0, 255, 1}, {8, 0, 255, 1}, {4, 0, 255, 1}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* FIN_WAIT1 */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {5, 0, 255, 1}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {4, 0, 255, 1}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* FIN_WAIT2 */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {5, 0, 255, 1}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* TIME_WAIT */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* LAST_ACK */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {10, 0, 255, 2}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {7, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* CLOSE_WAIT */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {8, 0, 255, 1}, {255, 0, 255, 255}, {7, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* CLOSING */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {9, 0, 255, 1}, {6, 0, 255, 2}, {6, 0, 255, 2}, {255, 2, 3, 255}, {255, 2, 3, 255},
	/* CLOSED */
	{255, 2, 3, 255}, {255, 0, 255, 255}, {255, 2, 2, 255}, {255, 1, 255, 255}, {255, 2, 4, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{10, 2, 3, 2}, {10, 2, 3, 2}, {10, 2, 3, 2}, {10, 2, 3, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{10, 2, 3, 2}, {10, 2, 3, 2}, {10, 2, 3, 2}, {10, 2, 3, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{10, 0, 255, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{10, 2, 3, 2}, {10, 2, 3, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
	{10, 2, 3, 2}, {10, 2, 3, 2}, {10, 0, 255, 2}, {10, 0, 255, 2}, {255, 0, 255, 255}, {255, 0, 255, 255}, {255, 2, 3, 255}, {255, 2, 3, 255},
};

/* Kinds by flags: FIN 1, SYN 2, RST 4, ACK 8. */
static const __u8 bartizan_sfw_kinds[16] __attribute__((unused)) = {
	0, 0, 1, 0, 3, 0, 0, 0, 4, 5, 2, 0, 3, 0, 0, 0,
};

/* Packets that are no segments: action and reason; rows by what is known of the flow, columns by message. */
static const __u8 bartizan_sfw_exchanges[3 * BARTIZAN_SFW_MESSAGES][2] __attribute__((unused)) = {
	{2, 2}, {0, 255}, {0, 255}, {0, 255}, {0, 255}, {2, 6}, {2, 6}, {1, 255},
	{0, 255}, {0, 255}, {0, 255}, {0, 255}, {2, 2}, {1, 255}, {2, 6}, {1, 255},
	{0, 255}, {0, 255}, {0, 255}, {0, 255}, {0, 255}, {1, 255}, {2, 6}, {1, 255},
};

/* What a connection counts for its source, by its state. */
static const __u8 bartizan_sfw_shares[BARTIZAN_SFW_STATES] __attribute__((unused)) = {
	0, 0, 0, 1, 1, 1, 2, 1, 1, 1, 2,
};

/* What a segment is, by the flags of its header. */
static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_kind(__u8 flags)
{
	return bartizan_sfw_kinds[(flags & 7) | (flags & 0x10) >> 1];
}

/* The class of a segment that is taken. */
static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_class(__u8 kind, __u8 place, __u8 to_client)
{
	return (__u8)(kind << 3 | place << 1 | to_client);
}

/* The cell, or nothing where numbers are none that a segment has. */
static inline __attribute__((unused, always_inline)) const struct bartizan_sfw_cell *bartizan_sfw_cell(__u8 state, __u8 class)
{
	if (state >= BARTIZAN_SFW_STATES || class >= BARTIZAN_SFW_CLASSES)
		return 0;
	return &bartizan_sfw_transitions[state * BARTIZAN_SFW_CLASSES + class];
}

/* What a type of icmpv4 is. */
static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_icmpv4(__u8 type)
{
	switch (type) {
	case 0: return 1;
	case 3: return 2;
	case 4: return 2;
	case 5: return 2;
	case 11: return 2;
	case 12: return 2;
	case 14: return 1;
	case 16: return 1;
	case 18: return 1;
	case 43: return 1;
	default: return BARTIZAN_SFW_ICMP_QUESTION;
	}
}

/* What a type of icmpv6 is. */
static inline __attribute__((unused, always_inline)) __u8 bartizan_sfw_icmpv6(__u8 type)
{
	switch (type) {
	case 1: return 2;
	case 2: return 2;
	case 3: return 2;
	case 4: return 2;
	case 129: return 1;
	case 130: return 3;
	case 131: return 3;
	case 132: return 3;
	case 133: return 3;
	case 134: return 3;
	case 135: return 3;
	case 136: return 3;
	case 137: return 3;
	case 143: return 3;
	case 161: return 1;
	default: return BARTIZAN_SFW_ICMP_QUESTION;
	}
}

#endif
