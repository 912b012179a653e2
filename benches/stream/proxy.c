// SPDX-License-Identifier: Apache-2.0
// A TCP proxy that reads every byte, and does nothing else: what a function costs that ends TCP on both sides.
//
//   proxy ADDRESS PORT TO TO_PORT     prints "ready PID"; after SIGTERM "read BYTES HASH"
#include "hash.h"
#include "socket.h"
#include <signal.h>
#include <sys/epoll.h>

#define CONNECTIONS 4096

/* A connection has two ends, by whose number epoll names them; the other end's number differs in the last bit. */
static int ends[2 * CONNECTIONS];
static int spare[CONNECTIONS], spares;
static volatile sig_atomic_t stops;

static void stop(int signal)
{
	(void)signal;
	stops = 1;
}

static void watch(int poll, int fd, uint64_t number)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = number };
	if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event))
		die("epoll_ctl");
}

static void begin(int poll, int listener, char **to)
{
	int client = accept(listener, NULL, NULL);
	if (client < 0)
		return;
	if (!spares) {
		close(client);
		return;
	}
	int place = spare[--spares];
	without_delay(client);
	ends[2 * place] = client;
	ends[2 * place + 1] = connected(to[0], to[1]);
	for (int side = 0; side < 2; side++)
		watch(poll, ends[2 * place + side], (uint64_t)(2 * place + side));
}

/* Moves what one end has to the other; the end of its bytes as well. */
static void move(int poll, struct hash *hash, uint64_t number)
{
	static char bytes[1 << 16];
	int from = ends[number], to = ends[number ^ 1];
	ssize_t count = read(from, bytes, sizeof bytes);
	if (count > 0) {
		hash_bytes(hash, bytes, (size_t)count);
		if (send_all(to, bytes, (size_t)count))
			return;
	} else {
		shutdown(to, SHUT_WR);
	}
	epoll_ctl(poll, EPOLL_CTL_DEL, from, NULL);
	ends[number] |= 1 << 30;
	if (ends[number ^ 1] & 1 << 30) {
		close(ends[number] & ~(1 << 30));
		close(ends[number ^ 1] & ~(1 << 30));
		spare[spares++] = (int)(number / 2);
	}
}

int main(int count, char **words)
{
	if (count != 5) {
		fprintf(stderr, "proxy ADDRESS PORT TO TO_PORT\n");
		return 2;
	}
	struct hash hash = { { 0 }, 0 };
	int poll = epoll_create1(0), listener = listening(words[1], words[2]);
	if (poll < 0)
		die("epoll_create1");
	for (int place = 0; place < CONNECTIONS; place++)
		spare[spares++] = place;
	struct sigaction action = { .sa_handler = stop };
	sigaction(SIGTERM, &action, NULL);
	watch(poll, listener, UINT64_MAX);
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (!stops) {
		struct epoll_event events[64];
		int found = epoll_wait(poll, events, 64, -1);
		for (int at = 0; at < found; at++) {
			if (events[at].data.u64 == UINT64_MAX)
				begin(poll, listener, words + 3);
			else
				move(poll, &hash, events[at].data.u64);
		}
	}
	uint64_t all = hash.lanes[0] ^ hash.lanes[1] ^ hash.lanes[2] ^ hash.lanes[3];
	printf("read %llu %llx\n", (unsigned long long)hash.bytes, (unsigned long long)all);
	return 0;
}
