# SPDX-License-Identifier: Apache-2.0
"""What requests wait for while encrypted flows and elephants are there, inline with Emerging Threats Open, beside Suricata.

Two hosts, as in the bench of inline chains. Two flows of steady rate are open all the time: an iperf3 stream, which a rule with `bypass` lets go on, and a download over TLS, which is encrypted behind its
handshake. Both are steady at their senders: a reader of large pieces (`curl --limit-rate`) lets its server send many megabytes in one go, and whoever waits for the same server, or shares its core, waits for
that. wrk asks for 100 KB over 32 connections. First its highest rate through Suricata as it is shipped is found; then all are asked at half of that rate: before each request a connection waits
(wrk's `delay`) for a time between none and twice the mean, by chance, so that connections do not keep step, and the mean is such that the rate comes out. The figure is the 99th percentile of the time from a request to the end of its answer. Programs take turns; ratios are of one round.
The kernel's bridge, which inspects nothing, takes its turn as well: what requests wait for the hosts alone, below which no program can come.

Where flows are bypassed (`bypass`, and the XDP level), `encryption-handling` and `stream.bypass` say so, for both programs: streams that have reached their depth go on uninspected, among them
connections of requests.
"""

import contextlib
import json
import statistics
import sys
import time

import engines
from engines import inline, peer

BRIDGE = "kernel bridge"
CONNECTIONS = 32
# Of the two elephants. The hosts share a core: together they leave most of it to the requests.
IPERF = "200M"
TLS_BYTES = 12_500_000
# Off the rate that was asked for, at most; looked for in so many runs, of which the nearest counts.
NEAR = 0.1
GOOD = 0.03
TRIES = 6
RULE = 'pass tcp any any <> any 5201 (msg:"backup"; bypass; sid:1000001; rev:1;)\n'
DELAY = """
local most = math.floor(2 * {mean})
-- One state for all connections: with a time that is always the same those that once ask together would go on to.
function delay() return math.random(0, most) end
"""


class Lets:
    """Settings and rules of a program here, mixed into an engine of the bench of bypassed flows."""

    def __init__(self, net, of, bypass):
        super().__init__(net, of)
        self.bypass = bypass

    def rules(self, action, share):
        path = self.folder / "bypass.rules"
        path.write_text(RULE if self.bypass else "\n")
        return path

    def settings(self):
        path = super().settings()
        if self.bypass:
            text = path.read_text()
            for old, new in (("    tls:\n", "    tls:\n      encryption-handling: bypass\n"), ("stream:\n", "stream:\n  bypass: yes\n")):
                if text.count(old) != 1:
                    raise inline.Problem(f"the inline settings of the shared data have not one `{old.strip()}`: this bench does not know them")
                text = text.replace(old, new)
            path.write_text(text)
        return path


class Bartizan(Lets, engines.Bartizan):
    pass


class Suricata(Lets, engines.Suricata):
    pass


def start_servers(net, folder):
    """A web server with and without TLS, whose largest file has no end within a measurement."""
    inline.run(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={inline.SERVER} -keyout {folder}/key.pem -out {folder}/cert.pem")
    for name, size in (("small", 200), ("large", 102_400)):
        (folder / name).write_bytes(bytes(range(256)) * (size // 256 + 1))
        with open(folder / name, "r+b") as file:
            file.truncate(size)
    with open(folder / "endless", "wb") as file:
        file.truncate(1 << 40)
    server = inline.SERVER
    (folder / "nginx.conf").write_text(
        f"""daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; keepalive_requests 1000000000; root {folder}; ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
server {{ listen {server}:80; }} server {{ listen {server}:443 ssl; limit_rate {TLS_BYTES}; output_buffers 1 32k; }} }}
"""
    )
    net.start("s", 0, f"nginx -e {folder}/nginx.log -c {folder}/nginx.conf")


@contextlib.contextmanager
def elephants(net):
    """The two flows, from before the requests until behind them."""
    # One that ends with its client: what is left of a client whose end was lost keeps the next one out.
    server = net.start("s", 0, f"iperf3 -s -1 -B {inline.SERVER}")
    time.sleep(0.2)
    both = [
        net.start("c", 0, f"iperf3 -c {inline.SERVER} -t 3600 -b {IPERF}"),
        net.start("c", 0, f"curl -sk -o /dev/null https://{inline.SERVER}/endless"),
    ]
    try:
        # Until both are past their handshakes.
        time.sleep(1.5)
        yield
        for child in both:
            if child.poll() is not None:
                raise inline.Problem(f"an elephant ended by itself with status {child.returncode}: {' '.join(child.args)}")
    finally:
        for child in (*both, server):
            net.stop(child)


def at_rate(net, rate, seconds, folder):
    """Requests at a rate: that which came out, p50 and p99 in microseconds."""
    script = folder / "delay.lua"
    mean, runs = 1000 * CONNECTIONS / rate, []
    for _ in range(TRIES):
        script.write_text(DELAY.format(mean=mean))
        got, p50, p99 = inline.wrk(net, CONNECTIONS, "large", seconds, f"-s {script}")
        runs.append((abs(got / rate - 1), got, p50, p99))
        if runs[-1][0] < GOOD:
            break
        # A request takes its own time, too.
        mean = max(0.5, mean + 1000 * CONNECTIONS * (1 / rate - 1 / got))
    off, got, p50, p99 = min(runs)
    if off > NEAR:
        raise inline.Problem(f"{rate:.0f} requests a second were asked for, {got:.0f} came at best")
    return got, p50, p99


def through(net, engine, offload, measure):
    """One measurement through a program, with what it says of itself at its end."""
    engine.start(None, 0, offload)
    try:
        inline.wait_until_forwarding(net, engine.child)
        with elephants(net):
            figures = measure()
        engine.stop()
    finally:
        engine.abandon()
    with open(engine.folder / "out/eve.json", encoding="utf-8") as events:
        stats = [line for line in events if '"event_type":"stats"' in line]
    return figures, json.loads(stats[-1])


def over_bridge(net, measure):
    """One measurement with nothing between the hosts that inspects."""
    with inline.bridge(net), elephants(net):
        return measure()


def below(stats):
    """The share of packets that the XDP level handled, of those that came to the program's links."""
    forwarded = stats.get("bartizan", {}).get("stats", {}).get("offload", {}).get("forwarded_pkts", 0)
    return forwarded / max(forwarded + stats["stats"]["decoder"]["pkts"], 1)


def measure(folder, rounds, seconds):
    """The rate, and by program a list of rounds: rate, p50, p99, share below. Nothing without the peer."""
    found = peer.Suricata.find()
    if found is None:
        return None
    net = inline.Net("default", True)
    folder.chmod(0o755)
    try:
        net.set_up()
        for device in (net.a, net.b):
            inline.run(net.inside("m", 0, f"ethtool -K {device} rxvlan off"))
        for which, device in (("c", "btzc0"), ("s", "btzs0")):
            # A veth takes redirected frames only where its far end polls.
            inline.run(net.inside(which, 0, f"ethtool -K {device} txvlan off gro on"))
        start_servers(net, folder)
        shipped, asks = Suricata(net, found, False), lambda: inline.wrk(net, CONNECTIONS, "large", seconds)
        highest = max(through(net, shipped, False, asks)[0][0] for _ in range(3))
        programs = {
            f"suricata {found.version}": (shipped, False),
            f"suricata {found.version}, bypass": (Suricata(net, found, True), False),
            "bartizan": (Bartizan(net, folder, False), False),
            "bartizan, xdp": (Bartizan(net, folder, True), True),
        }
        rows = {name: [] for name in programs}
        rows[BRIDGE] = []

        def asks_half():
            return at_rate(net, highest / 2, 2 * seconds, folder)

        for number in range(rounds):
            for name, (engine, offload) in programs.items():
                try:
                    figures, stats = through(net, engine, offload, asks_half)
                except inline.Problem as problem:
                    raise inline.Problem(f"{name}: {problem}") from None
                rows[name].append((*figures, below(stats)))
            rows[BRIDGE].append((*over_bridge(net, asks_half), 0))
            print(f"elephants: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        return highest, rows
    finally:
        net.tear_down()
        found.close()


def show(found):
    """The table, and the records."""
    highest, rows = found
    first = next(iter(rows))
    print(f"\n100 KB requests beside two elephants, at half of {highest:.0f} requests/s, the highest of {first}")
    print(f"{'program':<28}{'requests/s':>12}{'p50, us':>10}{'p99, us':>10}{'below':>8}  p99 against {first} of the same round")
    records = []
    for name, rounds in rows.items():
        rate, p50, p99, share = (statistics.median(one[at] for one in rounds) for at in range(4))
        ratios = [one[2] / other[2] for one, other in zip(rounds, rows[first])]
        ratio = statistics.median(ratios)
        print(f"{name:<28}{rate:>12.0f}{p50:>10.0f}{p99:>10.0f}{100 * share:>7.1f}%  {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        record = {"name": f"elephants: {name}", "value": p99, "unit": "us", "p50": p50, "rate": rate, "below": share, "rounds": len(rounds)}
        if name != first:
            record |= {"peer": first, "peer_value": statistics.median(one[2] for one in rows[first]), "ratio": ratio, "ratio_min": min(ratios), "ratio_max": max(ratios)}
        if name == "bartizan, xdp":
            record["aim"] = 1 / 3
        records.append(record)
    return records
