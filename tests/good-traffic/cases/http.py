# SPDX-License-Identifier: Apache-2.0
"""The web: long transfers, many requests in one connection, what browsers and proxies do."""

import gzip
import os
import socket
import time

from good.case import Case, digest, equal, need, same_file
from good.servers import BULK, PAGE, POLL_PORT, SMALL, SOCKET_PORT, TEXT

REQUESTS = 20_000
PIPELINED = 2_000
CURL = (("curl", "curl"),)


def source(way, name):
    return way.servers.path("www", name)


def fetch(way, *options, scheme="http", name=BULK):
    target = os.path.join(way.folder, "got")
    way.curl("-o", target, *options, way.url(name, scheme))
    return target


def download(way):
    same_file(fetch(way, "--http1.1"), source(way, BULK), "the file")


def download_http2(way):
    said = way.curl(
        "--http2", "--insecure", "-o", os.path.join(way.folder, "got"), "-w", "%{http_version} %{response_code}", way.url(BULK, "https")
    )
    equal(said, b"2 200", "version and status")
    same_file(os.path.join(way.folder, "got"), source(way, BULK), "the file")


def streams_http2(way):
    """Forty files at once in one HTTP/2 connection."""
    said = way.curl(
        "--http2", "--insecure", "--parallel", "--parallel-max", "40", "-o", os.path.join(way.folder, "got#1"),
        "-w", "%{num_connects}\n", way.url(PAGE, "https") + "?[1-40]",
    )  # fmt: skip
    need(len(said.split()) == 40, f"{len(said.split())} of 40 answers")
    for number in range(1, 41):
        same_file(os.path.join(way.folder, f"got{number}"), source(way, PAGE), f"file {number}")


def ranges(way):
    """A file in six ranges, joined; one answer of several ranges; a download that is continued."""
    with open(source(way, TEXT), "rb") as file:
        whole = file.read()
    size = len(whole)
    step = -(-size // 6)
    parts = [way.curl("-r", f"{at}-{min(at + step, size) - 1}", way.url(TEXT)) for at in range(0, size, step)]
    equal(digest(b"".join(parts)), digest(whole), "digest of the joined ranges")
    several = way.curl("-r", "0-99,1000-1099,500000-599999", way.url(TEXT))
    for first, last in ((0, 99), (1000, 1099), (500_000, 599_999)):
        need(whole[first : last + 1] in several, f"the answer of several ranges lacks {first}-{last}")
    target = os.path.join(way.folder, "continued")
    with open(target, "wb") as file:
        file.write(whole[:1_234_567])
    way.curl("-C", "-", "-o", target, way.url(TEXT))
    same_file(target, source(way, TEXT), "the continued file")


def put(way):
    name = f"put/{way.path}-{way.version}-{time.monotonic_ns()}"
    # Once with `Expect: 100-continue`, as curl does by itself for a large body, once without, in chunks.
    for end, options in (("a", ()), ("b", ("-H", "Expect:", "-H", "Transfer-Encoding: chunked"))):
        status = way.curl("-T", source(way, BULK), "-o", os.devnull, "-w", "%{response_code}", *options, way.url(name + end))
        equal(status, b"201", "status of PUT")
        same_file(source(way, name + end), source(way, BULK), "the file at the server")
        os.remove(source(way, name + end))


def compressed(way):
    plain = way.curl("--compressed", way.url(TEXT))
    with open(source(way, TEXT), "rb") as file:
        equal(digest(plain), digest(file.read()), "digest of the text")
    packed = way.curl("-H", "Accept-Encoding: gzip", way.url(TEXT))
    need(len(packed) < len(plain) // 2, f"the answer was not compressed: {len(packed)} bytes")
    equal(digest(gzip.decompress(packed)), digest(plain), "digest of the unpacked answer")


def keep_alive(way):
    """20,000 requests, one after the other, by curl, which keeps its connection."""
    said = way.curl(f"{way.url(SMALL)}?[1-{REQUESTS}]")
    with open(source(way, SMALL), "rb") as file:
        equal(digest(said), digest(file.read() * REQUESTS), f"digest of {REQUESTS} answers ({len(said)} bytes)")


def keep_alive_one_connection(way):
    """The same over a socket of the suite, so that there is certainly one connection; also answers of 20 KB."""
    with open(source(way, PAGE), "rb") as file:
        page = file.read()
    with way.socket("c") as sock:
        sock.connect((way.server, 80))
        reader = sock.makefile("rb")
        for number in range(REQUESTS // 4):
            sock.sendall(f"GET /{PAGE} HTTP/1.1\r\nHost: good.example\r\nRange: bytes={number}-{number + 19_999}\r\n\r\n".encode())
            status, length = read_head(reader)
            equal((status, length), (206, 20_000), f"status and length of answer {number}")
            body = reader.read(length)
            need(body == page[number : number + 20_000], f"answer {number} has other bytes")


def read_head(reader):
    """Status and length of an answer."""
    line = reader.readline()
    need(line.startswith(b"HTTP/1.1 "), f"instead of an answer: {line[:60]!r}")
    length = 0
    for header in iter(reader.readline, b"\r\n"):
        need(header, "the connection ended within an answer's head")
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return int(line.split()[1]), length


def pipelining(way):
    """2,000 requests sent without waiting, answers in order."""
    with open(source(way, SMALL), "rb") as file:
        small = file.read()
    request = f"GET /{SMALL} HTTP/1.1\r\nHost: good.example\r\n\r\n".encode()
    with way.socket("c") as sock:
        sock.connect((way.server, 80))
        # The answers to so many requests (900 KB) do not fit the buffers: a hundred at a time are on their
        # way.
        reader = sock.makefile("rb")
        for _ in range(0, PIPELINED, 100):
            sock.sendall(request * 100)
            for _ in range(100):
                equal(read_head(reader), (200, len(small)), "status and length")
                equal(reader.read(len(small)), small, "answer")
        sock.shutdown(socket.SHUT_WR)
        equal(reader.read(), b"", "after the last answer")


def many_clients(way):
    """wrk, 32 connections kept alive, pages of 100 KB; it counts errors."""
    said = way.command(["wrk", "-t1", "-c32", "-d2s", way.url(PAGE)]).decode()
    need("Socket errors" not in said and "Non-2xx" not in said, f"wrk says: {said}")


def many_connections(way):
    """wrk, a connection for each request."""
    said = way.command(["wrk", "-t1", "-c16", "-d2s", "-H", "Connection: close", way.url(SMALL)]).decode()
    need("Socket errors" not in said and "Non-2xx" not in said, f"wrk says: {said}")


def long_polling(way):
    """Answers that take their time, one after the other in a connection, and thirty at once."""
    urls = [way.url(f"poll?{seconds}", port=POLL_PORT) for seconds in (1.5, 0, 0.5, 0)]
    equal(way.curl(*urls), b"polled /poll?1.5\npolled /poll?0\npolled /poll?0.5\npolled /poll?0\n", "answers")
    said = way.curl("--parallel", "--parallel-immediate", "--parallel-max", "30", way.url("[1-30]?1", port=POLL_PORT))
    equal(said.count(b"polled"), 30, "answers at once")


def web_socket(way):
    from good.servers import HERE, PYTHON

    way.command([PYTHON, os.path.join(HERE, "websocket.py"), way.server, str(SOCKET_PORT)])


def by_name_of_curl(way):
    """A page by curl under its own name, for which rules exist."""
    with open(source(way, PAGE), "rb") as file:
        equal(digest(way.curl(way.url(PAGE), own_agent=True)), digest(file.read()), "digest of the page")


CASES = [
    Case("curl-agent", by_name_of_curl, ("nginx",), CURL, short=True),
    Case("http1-60mb", download, ("nginx",), CURL, timed=True, short=True),
    Case("http2-60mb", download_http2, ("nginx",), CURL, timed=True, short=True),
    Case("http2-streams", streams_http2, ("nginx",), CURL, short=True),
    Case("http-ranges", ranges, ("nginx",), CURL, short=True),
    Case("http-put", put, ("nginx",), CURL, timed=True, short=True),
    Case("http-gzip", compressed, ("nginx",), CURL, timed=True, short=True),
    Case("keep-alive-20000", keep_alive, ("nginx",), CURL, short=True),
    Case("keep-alive-pages", keep_alive_one_connection, ("nginx",)),
    Case("http-pipelining", pipelining, ("nginx",), short=True),
    Case("http-32-clients", many_clients, ("nginx",), (("wrk", "wrk"),)),
    Case("http-connections", many_connections, ("nginx",), (("wrk", "wrk"),)),
    Case("long-polling", long_polling, ("poll",), CURL, short=True),
    Case("websocket", web_socket, ("websocket",), short=True),
]
