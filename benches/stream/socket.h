// SPDX-License-Identifier: Apache-2.0
// Sockets of TCP for the programs of this bench; each ends the program with a message where it fails.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	if (inet_pton(AF_INET, host, &at.sin_addr) != 1)
		die(host);
	return at;
}

static inline void without_delay(int fd)
{
	int one = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		die("TCP_NODELAY");
}

static inline int made(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket");
	without_delay(fd);
	return fd;
}

static inline int listening(const char *host, const char *port)
{
	struct sockaddr_in at = address(host, port);
	int fd = made(), one = 1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
		die("SO_REUSEADDR");
	if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096))
		die("listen");
	return fd;
}

static inline int connected(const char *host, const char *port)
{
	struct sockaddr_in at = address(host, port);
	int fd = made();
	if (connect(fd, (struct sockaddr *)&at, sizeof at))
		die("connect");
	return fd;
}

static inline uint64_t nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int ascending(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

/* 0: the peer has ended. */
static inline int receive_all(int fd, char *bytes, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t count = read(fd, bytes + got, size - got);
		if (count <= 0)
			return 0;
		got += (size_t)count;
	}
	return 1;
}

/* 0: the peer takes no more. */
static inline int send_all(int fd, const char *bytes, size_t size)
{
	for (size_t sent = 0; sent < size;) {
		ssize_t count = write(fd, bytes + sent, size - sent);
		if (count <= 0)
			return 0;
		sent += (size_t)count;
	}
	return 1;
}
