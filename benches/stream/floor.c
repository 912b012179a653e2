// SPDX-License-Identifier: Apache-2.0
// The wake-ups of an exchange between two guests and nothing else: client, engine, server and engine again, three processes that wake each other as
// they do on the stream path (an eventfd that the engine finds by epoll, a futex in shared memory), and move no payload.
//
//   floor COUNT     prints "floor P50" in nanoseconds
#include "socket.h"
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* Words that change when a side is woken; the parts lie in lines of their own. */
static volatile uint32_t *words;
static int bells[2];

/* Waits until a side's word differs from `seen`. */
static void wait_for(int side, uint32_t seen)
{
	while (words[16 * side] == seen)
		syscall(SYS_futex, &words[16 * side], FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void ring(int side)
{
	uint64_t one = 1;
	if (write(bells[side], &one, sizeof one) != sizeof one)
		die("write");
}

static void engine(void)
{
	int poll = epoll_create1(0);
	for (int side = 0; side < 2; side++) {
		struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)side };
		if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, bells[side], &event))
			die("epoll");
	}
	for (;;) {
		struct epoll_event events[8];
		int found = epoll_wait(poll, events, 8, -1);
		for (int at = 0; at < found; at++) {
			volatile uint32_t *word = &words[16 * (1 - events[at].data.u32)];
			*word += 1;
			syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
		}
	}
}

static void server(void)
{
	for (uint32_t seen = 0;; seen++) {
		wait_for(1, seen);
		ring(1);
	}
}

int main(int count, char **arguments)
{
	size_t rounds = count == 2 ? (size_t)atol(arguments[1]) : 0;
	uint64_t *times = calloc(rounds + 1, sizeof *times);
	words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!rounds || !times || words == MAP_FAILED)
		die("floor COUNT");
	for (int side = 0; side < 2; side++)
		bells[side] = eventfd(0, EFD_NONBLOCK);
	pid_t others[2];
	for (int which = 0; which < 2; which++) {
		others[which] = fork();
		if (!others[which])
			which ? server() : engine();
	}
	for (size_t round = 0; round < rounds; round++) {
		uint64_t begin = nanoseconds();
		uint32_t seen = words[0];
		ring(0);
		wait_for(0, seen);
		times[round] = nanoseconds() - begin;
	}
	qsort(times, rounds, sizeof *times, ascending);
	printf("floor %llu\n", (unsigned long long)times[rounds / 2]);
	for (int which = 0; which < 2; which++) {
		kill(others[which], SIGTERM);
		waitpid(others[which], NULL, 0);
	}
	return 0;
}
