#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a forwarder costs between two hosts, as a share of the kernel bridge in the same run.

Three network namespaces (client, middle, server) joined by veth pairs, all offloads off, MTU 1500. Client (iperf3, wrk) and
server (iperf3, nginx) run on core 0, the forwarder on core 1. In every round and for every case the kernel bridge is
measured first, then each forwarder; the figures are medians over the rounds, ratios are taken within a round.

    sudo benches/inline/inline.py --forwarder 'raw=target/release/examples/forward {a} {b}'

A forwarder command is run in the middle namespace with {a} and {b} replaced by the two interfaces, must begin to forward
by itself and end on SIGTERM. Several may be given. Needs root, iproute2, ethtool, iperf3, wrk, nginx (apt-get install
iproute2 ethtool iperf3 wrk nginx-light).

With --base NAME the ratios to that forwarder are shown, too: what a chain costs beyond an empty one.

After each round the frames of every forwarder that prints its port counters (`N received, N dropped in the ring, N sent`, as the
program does) are compared with what the interfaces' peers sent and received: what does not add up ends the bench.

Another peer is a forwarder like any other: `run` gives Suricata as one, with its part etopen.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {
    # name: (what, unit, higher is better)
    "bulk": ("TCP bulk", "Gbit/s", True),
    "bulk16": ("TCP bulk, 16 connections", "Gbit/s", True),
    "small": ("200 B requests", "req/s", True),
    "large": ("100 KB requests", "req/s", True),
    "single": ("200 B, one connection, p50", "us", False),
    "udp": ("UDP flood 64 B, received", "pps", True),
    "udp256": ("UDP, frames of 256 B, received", "Gbit/s", True),
    "udp512": ("UDP, frames of 512 B, received", "Gbit/s", True),
    "udp1024": ("UDP, frames of 1024 B, received", "Gbit/s", True),
    "udp1500": ("UDP, frames of 1500 B, received", "Gbit/s", True),
    "cps": ("connections, a 200 B request each", "conn/s", True),
    "setup": ("TCP connection set-up, p50", "us", False),
}
# Frames that may come while a forwarder has no rings yet, or none any more. After TCP these are repetitions:
# connections of the case before that nobody carries any more.
STRAYS = {"udp": 20, "tcp": 2000}
# Of a UDP frame: Ethernet, IPv4 and UDP headers.
HEADERS = 42
# Connects so many times and prints the time that 50 % and 80 % of the handshakes took, in microseconds.
SETUP = """
import socket, struct, sys, time
times, end = [], time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    s = socket.socket()
    begin = time.perf_counter_ns()
    s.connect((sys.argv[1], 80))
    times.append(time.perf_counter_ns() - begin)
    # A reset at the end: no port waits in TIME_WAIT.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
times.sort()
print(times[len(times) // 2] / 1e3, times[len(times) * 8 // 10] / 1e3)
"""
DEFAULT_CASES = "bulk,small,large,single"
SERVER = "10.77.0.2"
CLIENT = "10.77.0.1"
PREFIX = "btzi"
OFFLOADS = "rx off tx off sg off tso off gso off gro off"


class Problem(Exception):
    """Something the person at the keyboard can act on."""


def run(command, check=True, timeout=60):
    """Runs a command to its end and returns its standard output."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise Problem(f"`{command}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Net:
    """The three namespaces, and every process started in them."""

    def __init__(self, congestion, realtime):
        self.pid = os.getpid()
        self.children = []
        self.congestion = congestion
        # One class for all, or the hosts starve the forwarder; round robin, so that a busy one cannot hold a
        # core.
        self.priority = "chrt --rr 10" if realtime else ""
        self.a, self.b = "btzm0", "btzm1"

    def name(self, which):
        return f"{PREFIX}-{which}-{self.pid}"

    def inside(self, which, core, command):
        # Not `ip netns exec`: it mounts another /sys.
        return f"nsenter --net=/run/netns/{self.name(which)} {self.priority} taskset -c {core} {command}"

    def set_up(self):
        sweep()
        for which in "cms":
            run(f"ip netns add {self.name(which)}")
            run(f"ip -n {self.name(which)} link set lo up")
            run(self.inside(which, 0, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"))
        c, m, s = (self.name(w) for w in "cms")
        run(f"ip link add btzc0 netns {c} type veth peer name {self.a} netns {m}")
        run(f"ip link add btzs0 netns {s} type veth peer name {self.b} netns {m}")
        run(f"ip -n {c} addr add {CLIENT}/24 dev btzc0")
        run(f"ip -n {s} addr add {SERVER}/24 dev btzs0")
        for which, device in (("c", "btzc0"), ("m", self.a), ("m", self.b), ("s", "btzs0")):
            run(f"ip -n {self.name(which)} link set {device} mtu 1500 up")
            run(self.inside(which, 0, f"ethtool -K {device} {OFFLOADS}"))

    def start(self, which, core, command, output=None):
        child = subprocess.Popen(
            shlex.split(self.inside(which, core, command)),
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self.children.append(child)
        return child

    def stop(self, child):
        """Ends a process that was started here, by its own id."""
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(5)
        self.children.remove(child)

    def tear_down(self):
        for child in list(reversed(self.children)):
            try:
                self.stop(child)
            except (subprocess.TimeoutExpired, OSError) as error:
                print(f"could not end process {child.pid}: {error}", file=sys.stderr)
        for which in "cms":
            run(f"ip netns del {self.name(which)}", check=False)


def sweep():
    """Removes namespaces that a killed run of this script has left."""
    for line in run("ip netns list", check=False).splitlines():
        match = re.match(rf"({PREFIX}-[cms]-(\d+))\b", line)
        if match and not os.path.exists(f"/proc/{match[2]}"):
            run(f"ip netns del {match[1]}", check=False)


def start_servers(net, folder):
    for name, size in (("small", 200), ("large", 102_400)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(os.urandom(size))
    config = os.path.join(folder, "nginx.conf")
    with open(config, "w") as file:
        file.write(
            f"""daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; keepalive_requests 1000000000; server {{ listen {SERVER}:80; root {folder}; }} }}
"""
        )
    net.start("s", 0, f"nginx -e {folder}/nginx.log -c {config}")
    net.start("s", 0, f"iperf3 -s -B {SERVER}")


def wait_until_forwarding(net, child):
    """Asks the web server through the middle until it answers."""
    probe = net.inside("c", 0, f"{sys.executable} -c \"import urllib.request as u; u.urlopen('http://{SERVER}/small', timeout=1)\"")
    # Some read tens of thousands of rules first.
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if child is not None and child.poll() is not None:
            raise Problem(f"the forwarder ended by itself with status {child.returncode}")
        if subprocess.run(shlex.split(probe), capture_output=True, timeout=20).returncode == 0:
            return
        time.sleep(0.1)
    raise Problem("nothing passes: the web server did not answer within 60 s")


def microseconds(text):
    match = re.fullmatch(r"([\d.]+)(us|ms|s)", text)
    if match is None:
        raise Problem(f"wrk reports a latency of `{text}`: hardly a request was answered")
    value, unit = match.groups()
    return float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def wrk(net, connections, path, seconds, header=""):
    text = run(
        net.inside("c", 0, f"wrk -t1 -c{connections} -d{seconds}s --latency {header} http://{SERVER}/{path}"),
        timeout=seconds + 30,
    )
    bad = re.findall(r"(Socket errors:.*|Non-2xx.*)", text)
    if bad:
        raise Problem("wrk reports wrong answers: " + "; ".join(bad))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    p50, p99 = (microseconds(re.search(rf"^\s+{p}%\s+(\S+)", text, re.MULTILINE)[1]) for p in (50, 99))
    return rate, p50, p99


def measure(net, case, seconds):
    """One case: the figure, and what else there is to say about it."""
    if case.startswith("bulk"):
        parallel = f" -P {case[4:]}" if case[4:] else ""
        # Per connection: what a namespace may use as its default, the host decides.
        congestion = "" if net.congestion == "default" else f" -C {net.congestion}"
        text = run(net.inside("c", 0, f"iperf3 -c {SERVER} -t {seconds} -O 1 -l 64K{congestion}{parallel} -J"), timeout=seconds + 30)
        end = json.loads(text)["end"]
        return end["sum_received"]["bits_per_second"] / 1e9, {"retransmits": end["sum_sent"].get("retransmits", 0)}
    if case.startswith("udp"):
        size = int(case[3:]) - HEADERS if case[3:] else 64
        text = run(net.inside("c", 0, f"iperf3 -u -c {SERVER} -b 0 -l {size} -t {seconds} -J"), timeout=seconds + 30)
        end = json.loads(text)["end"]
        total = end["sum"]
        late = sum(stream["udp"].get("out_of_order", 0) for stream in end["streams"])
        if late:
            raise Problem(f"{late} of {total['packets']} datagrams of one flow came out of order")
        rate = (total["packets"] - total["lost_packets"]) / total["seconds"]
        if case[3:]:
            rate *= int(case[3:]) * 8 / 1e9
        return rate, {"sent": total["packets"], "lost %": 100 * total["lost_packets"] / total["packets"]}
    if case == "cps":
        rate, p50, p99 = wrk(net, 32, "small", seconds, "-H 'Connection: close'")
        return rate, {"p50": p50, "p99": p99}
    if case == "setup":
        text = run(net.inside("c", 0, f"{sys.executable} -c {shlex.quote(SETUP)} {SERVER} {seconds}"), timeout=seconds + 30)
        p50, p80 = map(float, text.split())
        return p50, {"p80": p80}
    if case == "single":
        rate, p50, p99 = wrk(net, 1, "small", seconds)
        return p50, {"p99": p99, "rate": rate}
    rate, p50, p99 = wrk(net, 32, case, seconds)
    return rate, {"p50": p50, "p99": p99}


def cpu_seconds(child):
    with open(f"/proc/{child.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def bridge(net):
    """The kernel's bridge in the middle."""
    m = net.name("m")
    run(f"ip -n {m} link add btzbr type bridge mcast_snooping 0")
    try:
        for device in (net.a, net.b):
            run(f"ip -n {m} link set {device} master btzbr")
        run(f"ip -n {m} link set btzbr up")
        wait_until_forwarding(net, None)
        yield
    finally:
        run(f"ip -n {m} link del btzbr")


def bridge_round(net, cases, seconds):
    with bridge(net):
        return {case: measure(net, case, seconds) for case in cases}


def interface_counters(net):
    """Frames that each end of the two links has sent and received: {device: (sent, received)}."""
    counters = {}
    for which in "cms":
        for link in json.loads(run(f"ip -n {net.name(which)} -s -j link show")):
            stats = link["stats64"]
            counters[link["ifname"]] = (stats["tx"]["packets"], stats["rx"]["packets"])
    return counters


def check_sums(before, after, words, strays):
    """Every frame that a forwarder was sent is one that it received or lost in its ring, and what it sent arrived.

    `words` is what it printed, `strays` how many frames may be missing. Frames that came before its rings were there, or after, are few; they are allowed for.
    """
    ports = re.findall(r"^(\w+): (\d+) received, (\d+) dropped in the ring, (\d+) sent", words, re.MULTILINE)
    totals = re.search(r"(\d+) frames, (\d+) forwarded, (\d+) refused", words)
    if not ports or not totals:
        return None
    frames, forwarded, refused = map(int, totals.groups())
    received = sum(int(port[1]) for port in ports)
    unsent = sum(map(int, re.findall(r"(\d+) not sent", words)))
    sent = sum(int(port[3]) for port in ports)
    if frames != forwarded + refused or frames != received or forwarded != sent + unsent:
        raise Problem(f"the forwarder's own sums do not add up:\n{words}")
    lost = {}
    for name, port_received, dropped, port_sent in ports:
        came, went = after[name][1] - before[name][1], after[name][0] - before[name][0]
        missing, extra = came - int(port_received) - int(dropped), went - int(port_sent)
        if not (0 <= missing <= strays and 0 <= extra <= strays):
            raise Problem(f"{name}: the kernel counted {came} in, {went} out; the forwarder says:\n{words}")
        lost[name] = int(dropped)
    return sum(lost.values())


def forwarder_round(net, command, cases, seconds, log):
    command = command.replace("{a}", net.a).replace("{b}", net.b)
    # The kernel counts frames on its own; its sum over all cases is compared with the forwarder's.
    before, begin_of_words = interface_counters(net), log.tell()
    several = re.search(r" --workers \d+ .*--out (\S+)", command)
    # One worker has a processor for itself; several have all that there are, beside the hosts.
    child = net.start("m", "0-%d" % (os.cpu_count() - 1) if several else 1, command, output=log)
    try:
        wait_until_forwarding(net, child)
        results = {}
        for case in cases:
            cpu, begin = cpu_seconds(child), time.monotonic()
            value, extra = measure(net, case, seconds)
            extra["core"] = (cpu_seconds(child) - cpu) / (time.monotonic() - begin)
            results[case] = (value, extra)
        if child.poll() is not None:
            raise Problem(f"the forwarder ended during the measurement with status {child.returncode}")
    finally:
        net.stop(child)
    log.seek(begin_of_words)
    words = log.read()
    if several:
        for case in cases:
            results[case][1][SPREAD] = spread_of_load(several[1])
    udp = any(case.startswith("udp") for case in cases)
    dropped = check_sums(before, interface_counters(net), words, STRAYS["udp" if udp else "tcp"])
    # Windows of 16 connections together are more than a ring holds: then TCP finds its rate by losses.
    if dropped and not udp and "bulk16" not in cases:
        raise Problem(f"{dropped} frames were dropped in a ring though TCP was all there was:\n{words}")
    return results


# How packets are spread over the workers of a row.
SPREAD = "packets by worker, spread %"


def spread_of_load(folder):
    """How far the busiest and the idlest worker of the last run are apart, in percent of the mean: by the last `stats` event."""
    with open(os.path.join(folder, "eve.json")) as file:
        threads = [line for line in file if '"event_type":"stats"' in line.replace(": ", ":")]
    if not threads:
        raise Problem(f"no stats event in {folder}")
    threads = json.loads(threads[-1])["stats"]["threads"]
    packets = [thread["decoder"]["pkts"] for thread in threads.values() if "decoder" in thread]
    return 100 * (max(packets) - min(packets)) / statistics.mean(packets)


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def report(rows, cases, rounds, base):
    """Prints the table and returns the records for the JSON file."""
    records = []
    bridge = rows["bridge"]
    print(f"\nmedians of {rounds} rounds (lowest-highest); ratio to the kernel bridge of the same round")
    for case in cases:
        what, unit, higher = CASES[case]
        digits = 2 if unit == "Gbit/s" else 0
        print(f"\n{what} [{unit}]")
        peer = statistics.median(v for v, _ in (r[case] for r in bridge))
        for name, results in rows.items():
            values = [r[case][0] for r in results]
            pairs = [(v, b[case][0]) for v, b in zip(values, bridge)]
            ratios = [v / b if higher else b / v for v, b in pairs]
            extra = [r[case][1] for r in results]
            notes = [f"{key} {statistics.median(e[key] for e in extra):.4g}" for key in extra[0]]
            share = "" if name == "bridge" else f"  ratio {spread(ratios, 3)}"
            if base in rows and name not in ("bridge", base):
                shares = [v / e[case][0] if higher else e[case][0] / v for v, e in zip(values, rows[base])]
                share += f"  of {base} {spread(shares, 3)}"
            if name != "bridge" and not higher:
                share += f"  over the bridge {statistics.median(v - b for v, b in pairs):+.0f} {unit}"
            print(f"  {name:<24} {spread(values, digits):<28}{share}  {', '.join(notes)}")
            if name != "bridge":
                records.append(record(name, case, values, ("kernel bridge, offloads off", peer), ratios))
                if SPREAD in extra[0]:
                    spreads = [e[SPREAD] for e in extra]
                    records.append(
                        {"name": f"inline/{name}/{case}/{SPREAD}", "value": statistics.median(spreads), "unit": "%", "rounds": len(spreads)}
                    )
                if base in rows and name != base:
                    of = statistics.median(e[case][0] for e in rows[base])
                    records.append(record(f"{name} of {base}", case, values, (f"chain {base}", of), shares))
    return records


def record(name, case, values, peer, ratios):
    return {
        "name": f"inline/{name}/{case}",
        "value": statistics.median(values),
        "unit": CASES[case][1],
        "peer": peer[0],
        "peer_value": peer[1],
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "rounds": len(values),
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--forwarder",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a forwarder, {a} and {b} stand for its interfaces",
    )
    parser.add_argument("--forwarders", metavar="FILE", help="more of them, a line each; `-` is standard input")
    parser.add_argument("--base", default="", metavar="NAME", help="the forwarder to which the others are compared, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--cases", default=DEFAULT_CASES, help="of " + ",".join(CASES) + f" (default {DEFAULT_CASES})")
    parser.add_argument("--congestion", default="default", help="of TCP bulk, for example cubic; else the host's")
    parser.add_argument("--realtime", action="store_true", help="all processes under SCHED_RR: where other work shares the machine")
    parser.add_argument("--json", metavar="FILE", help="write the records there")
    parser.add_argument("--log", metavar="FILE", help="what the forwarders print (default: the last lines are shown)")
    parsed = parser.parse_args()
    parsed.cases = parsed.cases.split(",")
    for case in parsed.cases:
        if case not in CASES:
            parser.error(f"unknown case {case}: of {', '.join(CASES)}")
    if parsed.forwarders:
        with sys.stdin if parsed.forwarders == "-" else open(parsed.forwarders) as file:
            parsed.forwarder += [line.strip() for line in file if line.strip()]
    parsed.forwarders = {}
    for text in parsed.forwarder:
        name, separator, command = text.partition("=")
        if not separator or name == "bridge":
            parser.error(f"--forwarder {text}: NAME=COMMAND is needed, and NAME is not `bridge`")
        parsed.forwarders[name] = command
    return parsed


def check_machine(programs):
    if os.geteuid() != 0:
        raise Problem("needs root (network namespaces): run it with sudo")
    packages = {"ip": "iproute2", "ethtool": "ethtool", "iperf3": "iperf3", "wrk": "wrk", "nginx": "nginx-light"}
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = sorted({packages[tool] for tool in programs if shutil.which(tool) is None})
    if missing:
        raise Problem("missing programs: apt-get install --no-install-recommends " + " ".join(missing))
    if os.cpu_count() < 2:
        raise Problem("needs two processors: one for the hosts, one for the forwarder")


@contextlib.contextmanager
def last_words(path):
    """A problem within is told with the end of a log."""
    try:
        yield
    except Problem as problem:
        with open(path) as log:
            tail = log.read().splitlines()[-12:]
        raise Problem("\n  ".join([str(problem), *tail])) from None


def show_machine():
    with open("/proc/loadavg") as load:
        print(f"{time.strftime('%Y-%m-%d')}, Linux {os.uname().release}, {os.cpu_count()} processors, load {load.read().split()[0]}")


def write_records(path, records):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        json.dump(records, file, indent=1)


def bench(options, folder):
    net = Net(options.congestion, options.realtime)
    # A dictionary of cases for each round.
    rows = {name: [{} for _ in range(options.rounds)] for name in ("bridge", *options.forwarders)}
    log_path = options.log or os.path.join(folder, "forwarders.log")
    try:
        net.set_up()
        start_servers(net, folder)
        with last_words(log_path), open(log_path, "w+") as log:
            for number in range(options.rounds):
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
                # Case by case: what is compared is measured within seconds, as a machine of several owners
                # changes its speed.
                for case in options.cases:
                    rows["bridge"][number] |= bridge_round(net, [case], options.seconds)
                    for name, command in options.forwarders.items():
                        log.write(f"--- {name}, {case}, round {number + 1}\n")
                        log.flush()
                        rows[name][number] |= forwarder_round(net, command, [case], options.seconds, log)
    finally:
        net.tear_down()
    show_machine()
    records = report(rows, options.cases, options.rounds, options.base)
    if not options.log and options.forwarders:
        with open(log_path) as log:
            print("\nlast words of the forwarders:\n  " + "\n  ".join(log.read().splitlines()[-6 * len(options.forwarders) :]))
    if options.json:
        write_records(options.json, records)


def conduct(name, programs, bench, options):
    """Runs bench(options, folder), which cleans up in a `finally`, and ends with what went wrong."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(3))
    try:
        check_machine(programs)
        # Removed with everything in it.
        with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-") as folder:
            # Readable for the web server's worker.
            os.chmod(folder, 0o755)
            return bench(options, folder)
    except Problem as problem:
        sys.exit(f"{name}: {problem}")
    except subprocess.TimeoutExpired as late:
        sys.exit(f"{name}: `{late.cmd}` did not end within {late.timeout} s")
    except KeyboardInterrupt:
        sys.exit(3)


if __name__ == "__main__":
    conduct("inline", ("ip", "ethtool", "iperf3", "wrk", "nginx"), bench, arguments())
