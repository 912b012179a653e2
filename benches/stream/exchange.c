// SPDX-License-Identifier: Apache-2.0
// Clients and servers of requests and responses of SIZE bytes over TCP.
//
//   exchange server ADDRESS PORT SIZE                 serves one connection, by calls that wait
//   exchange serve ADDRESS PORT SIZE                  serves any number of connections, by epoll, until SIGTERM
//   exchange sink ADDRESS PORT SIZE                   reads one connection to its end, closes it, and waits for SIGTERM
//   exchange client ADDRESS PORT SIZE COUNT STREAMS   one exchange at a time, over the streams in turn
//   exchange connect ADDRESS PORT SIZE COUNT          a connection for each exchange
//   exchange hold ADDRESS PORT SIZE STREAMS           an exchange on each stream, then they are idle
//   exchange bulk ADDRESS PORT SIZE COUNT             writes of SIZE bytes, until the peer has read all
//
// A server prints "ready PID". A client prints "connected PID", and after each line of standard input goes on: "warm" after a tenth of the
// exchanges; its result ("times P50 P99 ALL", in nanoseconds) after the rest. With HTTP in the environment a request and a response are
// messages of HTTP with this number of bytes. A response that is not the expected one ends the client with 1.
#include "socket.h"
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define STREAMS_MOST 20000
/* Bytes of the head of a response of HTTP. */
#define HEAD 66u

static size_t size;
static char *request, *response, *got;

/* A message of HTTP of the size: its head, padding, and the end. */
static void fill_http(char *into, const char *head, const char *end)
{
	size_t used = strlen(head), last = strlen(end);
	if (used + last > size) {
		fprintf(stderr, "a message of HTTP has at least %zu bytes here\n", used + last);
		exit(2);
	}
	memset(into, 'x', size);
	memcpy(into, head, used);
	memcpy(into + size - last, end, last);
}

static void make_messages(const char *bytes)
{
	size = (size_t)atol(bytes);
	request = calloc(size + 1, 1), response = calloc(size + 1, 1), got = calloc(size + 1, 1);
	if (!request || !response || !got)
		die("calloc");
	if (getenv("HTTP")) {
		char head[160];
		fill_http(request, "GET /index.html HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: exchange/1\r\nX-Fill: ", "\r\n\r\n");
		snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %03zu\r\n\r\n", size - HEAD);
		if (strlen(head) != HEAD) {
			fprintf(stderr, "a response of %zu bytes has a longer head\n", size);
			exit(2);
		}
		fill_http(response, head, "");
		return;
	}
	for (size_t at = 0; at < size; at++)
		request[at] = (char)(at * 31 + 7);
	memcpy(response, request, size);
}

static void tell(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
	char word[8];
	if (!fgets(word, sizeof word, stdin))
		exit(1);
}

static void tell_number(const char *what)
{
	char line[64];
	snprintf(line, sizeof line, "%s %d", what, getpid());
	tell(line);
}

static void exchange(int fd)
{
	if (!send_all(fd, request, size) || !receive_all(fd, got, size))
		die("exchange");
	if (memcmp(got, response, size)) {
		fprintf(stderr, "the response is not the expected one\n");
		exit(1);
	}
}

static void client(char **words, size_t rounds, size_t streams)
{
	static int fds[STREAMS_MOST];
	uint64_t *times = calloc(rounds + 1, sizeof *times);
	if (streams > STREAMS_MOST || !streams || !times)
		die("streams");
	for (size_t at = 0; at < streams; at++)
		fds[at] = connected(words[0], words[1]);
	tell_number("connected");
	size_t warm = rounds / 10 > streams ? rounds / 10 : streams;
	for (size_t round = 0; round < warm; round++)
		exchange(fds[round % streams]);
	tell("warm");
	uint64_t begin = nanoseconds(), last = begin;
	for (size_t round = 0; round < rounds; round++) {
		exchange(fds[round % streams]);
		uint64_t now = nanoseconds();
		times[round] = now - last;
		last = now;
	}
	uint64_t all = last - begin;
	qsort(times, rounds, sizeof *times, ascending);
	char line[128];
	snprintf(line, sizeof line, "times %llu %llu %llu", (unsigned long long)times[rounds / 2],
		 (unsigned long long)times[rounds - 1 - rounds / 100], (unsigned long long)all);
	tell(line);
}

static void connections(char **words, size_t rounds)
{
	tell_number("connected");
	uint64_t begin = 0;
	for (size_t round = 0; round < rounds + rounds / 10; round++) {
		if (round == rounds / 10) {
			tell("warm");
			begin = nanoseconds();
		}
		int fd = connected(words[0], words[1]);
		exchange(fd);
		close(fd);
	}
	char line[64];
	snprintf(line, sizeof line, "times 0 0 %llu", (unsigned long long)(nanoseconds() - begin));
	tell(line);
}

static void hold(char **words, size_t streams)
{
	tell_number("connected");
	for (size_t at = 0; at < streams; at++)
		exchange(connected(words[0], words[1]));
	tell("held");
}

static void bulk(char **words, size_t rounds)
{
	int fd = connected(words[0], words[1]);
	tell_number("connected");
	for (size_t round = 0; round < rounds / 10; round++)
		if (!send_all(fd, request, size))
			die("write");
	tell("warm");
	uint64_t begin = nanoseconds();
	for (size_t round = 0; round < rounds; round++)
		if (!send_all(fd, request, size))
			die("write");
	shutdown(fd, SHUT_WR);
	if (read(fd, got, 1) != 0)
		die("the peer's end");
	char line[64];
	snprintf(line, sizeof line, "times 0 0 %llu", (unsigned long long)(nanoseconds() - begin));
	tell(line);
}

static int server(char **words)
{
	int fd = listening(words[0], words[1]);
	printf("ready %d\n", getpid());
	fflush(stdout);
	return fd;
}

static int accepted(int listener)
{
	int fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	without_delay(fd);
	return fd;
}

static void serve(int listener)
{
	int poll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = listener };
	if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event))
		die("epoll");
	for (;;) {
		struct epoll_event events[64];
		int found = epoll_wait(poll, events, 64, -1);
		for (int at = 0; at < found; at++) {
			int fd = events[at].data.fd;
			if (fd == listener) {
				struct epoll_event one = { .events = EPOLLIN, .data.fd = accepted(listener) };
				if (epoll_ctl(poll, EPOLL_CTL_ADD, one.data.fd, &one))
					die("epoll_ctl");
			} else if (!receive_all(fd, got, size) || !send_all(fd, response, size)) {
				close(fd);
			}
		}
	}
}

int main(int count, char **words)
{
	const char *what = count > 4 ? words[1] : "?";
	if (count > 4)
		make_messages(words[4]);
	if (!strcmp(what, "server") && count == 5) {
		int fd = accepted(server(words + 2));
		while (receive_all(fd, got, size) && send_all(fd, response, size))
			;
	} else if (!strcmp(what, "serve") && count == 5) {
		serve(server(words + 2));
	} else if (!strcmp(what, "sink") && count == 5) {
		static char bytes[1 << 16];
		int fd = accepted(server(words + 2));
		while (read(fd, bytes, sizeof bytes) > 0)
			;
		close(fd);
		/* Its time on a processor is read from outside. */
		pause();
	} else if (!strcmp(what, "client") && count == 7) {
		client(words + 2, (size_t)atol(words[5]), (size_t)atol(words[6]));
	} else if (!strcmp(what, "connect") && count == 6) {
		connections(words + 2, (size_t)atol(words[5]));
	} else if (!strcmp(what, "hold") && count == 6) {
		hold(words + 2, (size_t)atol(words[5]));
	} else if (!strcmp(what, "bulk") && count == 6) {
		bulk(words + 2, (size_t)atol(words[5]));
	} else {
		fprintf(stderr, "exchange server|serve|sink|client|connect|hold|bulk ADDRESS PORT ...\n");
		return 2;
	}
	return 0;
}
