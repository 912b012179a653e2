// SPDX-License-Identifier: Apache-2.0
// One request and one response of SIZE bytes at a time over a TCP connection, or a proxy between both that reads every byte.
//
//   exchange server ADDRESS PORT SIZE
//   exchange client ADDRESS PORT SIZE COUNT     prints p50 and p99 in nanoseconds
//   exchange proxy ADDRESS PORT TO TO_PORT      prints a hash of all bytes at its end
//
// Each prints "ready PID" or "connected PID" first, and serves one connection.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	if (inet_pton(AF_INET, host, &at.sin_addr) != 1)
		die(host);
	return at;
}

static int made(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (fd < 0)
		die("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	return fd;
}

static int accepted(const char *host, const char *port)
{
	struct sockaddr_in at = address(host, port);
	int fd = made(), one = 1;
	if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8))
		die("listen");
	printf("ready %d\n", getpid());
	fflush(stdout);
	int connection = accept(fd, NULL, NULL);
	if (connection < 0)
		die("accept");
	setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return connection;
}

static int connected(const char *host, const char *port)
{
	struct sockaddr_in at = address(host, port);
	int fd = made();
	if (connect(fd, (struct sockaddr *)&at, sizeof at))
		die("connect");
	return fd;
}

/* 0: the peer has ended. */
static int receive_all(int fd, char *bytes, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t count = read(fd, bytes + got, size - got);
		if (count <= 0)
			return 0;
		got += (size_t)count;
	}
	return 1;
}

static void send_all(int fd, const char *bytes, size_t size)
{
	for (size_t sent = 0; sent < size;) {
		ssize_t count = write(fd, bytes + sent, size - sent);
		if (count <= 0)
			die("write");
		sent += (size_t)count;
	}
}

static uint64_t nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

static void proxy(int client, int server)
{
	static char bytes[1 << 16];
	uint64_t hash = 1469598103934665603u;
	struct pollfd ends[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
	for (;;) {
		if (poll(ends, 2, -1) < 0)
			die("poll");
		for (int side = 0; side < 2; side++) {
			if (!(ends[side].revents & (POLLIN | POLLHUP)))
				continue;
			ssize_t count = read(ends[side].fd, bytes, sizeof bytes);
			if (count <= 0) {
				printf("hash %llx\n", (unsigned long long)hash);
				return;
			}
			for (ssize_t at = 0; at < count; at++)
				hash = (hash ^ (unsigned char)bytes[at]) * 1099511628211u;
			send_all(ends[1 - side].fd, bytes, (size_t)count);
		}
	}
}

int main(int count, char **words)
{
	if (count == 5 && !strcmp(words[1], "server")) {
		size_t size = (size_t)atol(words[4]);
		char *bytes = malloc(size);
		int fd = accepted(words[2], words[3]);
		while (receive_all(fd, bytes, size))
			send_all(fd, bytes, size);
	} else if (count == 6 && !strcmp(words[1], "proxy")) {
		int client = accepted(words[2], words[3]);
		proxy(client, connected(words[4], words[5]));
	} else if (count == 6 && !strcmp(words[1], "client")) {
		size_t size = (size_t)atol(words[4]), rounds = (size_t)atol(words[5]);
		char *bytes = calloc(size, 1), *back = malloc(size);
		uint64_t *times = malloc(rounds * sizeof *times);
		int fd = connected(words[2], words[3]);
		printf("connected %d\n", getpid());
		fflush(stdout);
		for (size_t round = 0; round < rounds; round++) {
			memset(bytes, (int)(round & 0x7f), size);
			uint64_t begin = nanoseconds();
			send_all(fd, bytes, size);
			if (!receive_all(fd, back, size))
				die("read");
			times[round] = nanoseconds() - begin;
			if (memcmp(bytes, back, size)) {
				fprintf(stderr, "the response is not the request\n");
				return 1;
			}
		}
		qsort(times, rounds, sizeof *times, ascending);
		printf("times %llu %llu\n", (unsigned long long)times[rounds / 2],
		       (unsigned long long)times[rounds - 1 - rounds / 100]);
	} else {
		fprintf(stderr, "usage: exchange server|client|proxy ...\n");
		return 2;
	}
	return 0;
}
