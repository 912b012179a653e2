# SPDX-License-Identifier: Apache-2.0
"""Databases: PostgreSQL (COPY both ways, pgbench) and Redis (a large value, pipelines)."""

import random
import re

from good.case import Case, digest, equal, need


def psql(way, *words, data=None):
    return way.command(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", way.server, "-U", "postgres", *words, "postgres"], data=data)


def postgresql(way):
    """A million numbers out, 200,000 rows in and out again, an error that must come as one, a result of 10 MB in one row."""
    out = psql(way, "-c", "COPY (SELECT generate_series(1, 1000000)) TO STDOUT")
    equal(digest(out), digest(b"".join(b"%d\n" % number for number in range(1, 1_000_001))), "digest of the numbers")
    source = random.Random(6)
    rows = b"".join(b"%d\t%s\n" % (number, source.randbytes(20).hex().encode()) for number in range(200_000))
    table = f"good_{way.path}_{way.version}"
    psql(way, "-c", f"DROP TABLE IF EXISTS {table}", "-c", f"CREATE TABLE {table} (number int, text text)")
    psql(way, "-c", f"COPY {table} FROM STDIN", data=rows)
    equal(digest(psql(way, "-c", f"COPY (SELECT * FROM {table} ORDER BY number) TO STDOUT")), digest(rows), "digest of the rows")
    equal(len(psql(way, "-c", "SELECT repeat('wide', 2500000)").strip()), 10_000_000, "length of the wide row")
    way.command(["psql", "-X", "-h", way.server, "-U", "postgres", "-c", "SELECT 1/0", "postgres"], status=1)
    psql(way, "-c", f"DROP TABLE {table}")


def pgbench(way):
    base = ["pgbench", "-h", way.server, "-U", "postgres"]
    way.command([*base, "-i", "-q", "-s", "1", "postgres"])
    for mode, more in (("prepared", []), ("simple", ["-C", "-t", "20"])):
        said = way.command([*base, "-n", "-S", "-c", "4", "-t", "500", "-M", mode, *more, "postgres"]).decode()
        match = re.search(r"actually processed: (\d+)/(\d+)", said)
        need(match and match[1] == match[2], f"pgbench says: {said}")


def redis(way):
    """A value of 16 MB in and out, and 50,000 commands a kind by 4 clients with 32 each on the way."""
    base = ["redis-cli", "-h", way.server]
    value = random.Random(8).randbytes(16_000_000)
    equal(way.command([*base, "-x", "SET", "large"], data=value), b"OK\n", "answer to SET")
    equal(digest(way.command([*base, "--raw", "GET", "large"])[:-1]), digest(value), "digest of the value")
    commands = b"".join(b"*2\r\n$4\r\nINCR\r\n$7\r\ncounter\r\n" for _ in range(50_000))
    way.command([*base, "DEL", "counter"])
    said = way.command([*base, "--pipe"], data=commands).decode()
    need("errors: 0, replies: 50000" in said, f"redis-cli says: {said}")
    equal(way.command([*base, "GET", "counter"]), b"50000\n", "counter")
    said = way.command(["redis-benchmark", "-h", way.server, "-c", "4", "-P", "32", "-n", "50000", "-q", "-t", "set,get,lpush,lrange_100"])
    need(b"requests per second" in said and b"rror" not in said, f"redis-benchmark says: {said[-200:]!r}")


CASES = [
    Case("postgresql", postgresql, ("postgresql",), (("psql", "postgresql-client"),), timed=True, short=True),
    Case("pgbench", pgbench, ("postgresql",), (("pgbench", "postgresql-contrib"),)),
    Case("redis", redis, ("redis",), (("redis-cli", "redis-tools"), ("redis-benchmark", "redis-tools")), timed=True, short=True),
]
