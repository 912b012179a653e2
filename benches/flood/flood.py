#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What connections of others notice of a SYN flood: through the kernel bridge, and through the program.

Client, middle and server as in benches/inline, IPv4 and IPv6. The generator runs on core 0 and sends first segments from spoofed
sources to the server's port 80; all else (the program, the web server, the client) runs on core 1. Meanwhile the client opens connections at a
stated rate, IPv4 and IPv6 in turn: connect, a request, its answer of 200 bytes, close. One that is not through after TIMEOUT seconds has failed.

    sudo benches/flood/flood.py --generator target/release/examples/flood --forwarder 'one=bartizan run --inline {a} {b} ...'

The server has SYN cookies as Linux ships them, and answers the flood: its answers go to the client's Ethernet address (a static
neighbour is the default route), so they pass the middle as on a real link, and the client's host drops them without a word, since it does not route.
No host asks for addresses: all neighbours are static.

Rows in turn: the bridge without flood, the bridge, then each forwarder. What the forwarder's own counters say is compared with those of the interfaces.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "inline"))
sys.dont_write_bytecode = True
import inline  # noqa: E402

inline.PREFIX = "btzf"
Problem, run = inline.Problem, inline.run
SERVER6, CLIENT6 = "fd77::2", "fd77::1"
METRICS = "127.0.0.1:9177"
TIMEOUT = 5
THREADS = 16
# The client: prints a list of [family, seconds until connected or null, whether the answer came] as JSON.
CLIENT = """
import json, socket, sys, threading, time
hosts, rate, seconds, timeout, threads = sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
done, lock, begin, number = [], threading.Lock(), time.monotonic(), 0
def once(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock, start, connected = socket.socket(family), time.monotonic(), None
    try:
        sock.settimeout(timeout)
        sock.connect((host, 80))
        connected = time.monotonic() - start
        sock.sendall(b"GET /small HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        answer = b""
        while True:
            left = timeout - (time.monotonic() - start)
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
            data = sock.recv(65536)
            if not data:
                break
            answer += data
        return family == socket.AF_INET6, connected, answer.startswith(b"HTTP/1.1 200") and len(answer.partition(b"\\r\\n\\r\\n")[2]) == 200
    except OSError:
        return family == socket.AF_INET6, connected, False
    finally:
        sock.close()
def work():
    global number
    while True:
        with lock:
            mine, number = number, number + 1
        at = begin + mine / rate
        if at - begin >= seconds:
            return
        time.sleep(max(0, at - time.monotonic()))
        result = once(hosts[mine % 2])
        with lock:
            done.append(result)
crew = [threading.Thread(target=work) for _ in range(threads)]
[t.start() for t in crew]
[t.join() for t in crew]
print(json.dumps(done))
"""


class Net(inline.Net):
    """The three hosts with IPv6, static neighbours, and a way for answers to spoofed addresses."""

    def set_up(self):
        super().set_up()
        ends = {
            "c": ("btzc0", CLIENT6, inline.SERVER, SERVER6),
            "s": ("btzs0", SERVER6, inline.CLIENT, CLIENT6),
        }
        for which, (device, own6, _, _) in ends.items():
            knobs = f"net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.{device}.disable_ipv6=0 net.ipv6.conf.{device}.accept_dad=0"
            run(self.inside(which, 0, f"sysctl -qw {knobs} net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{device}.rp_filter=0"))
            run(f"ip -n {self.name(which)} -6 addr add {own6}/64 dev {device} nodad")
        macs = {which: self.mac(which, ends[which][0]) for which in ends}
        for which, (device, _, peer4, peer6) in ends.items():
            other = macs["s" if which == "c" else "c"]
            for peer in (peer4, peer6):
                run(f"ip -n {self.name(which)} neigh replace {peer} lladdr {other} dev {device} nud permanent")
        run(f"ip -n {self.name('s')} route add default via {inline.CLIENT}")
        run(f"ip -n {self.name('s')} -6 route add default via {CLIENT6}")
        self.server_mac = macs["s"]

    def mac(self, which, device):
        return json.loads(run(f"ip -n {self.name(which)} -j link show {device}"))[0]["address"]


def start_server(net, folder):
    with open(os.path.join(folder, "small"), "wb") as file:
        file.write(os.urandom(200))
    config = os.path.join(folder, "nginx.conf")
    with open(config, "w") as file:
        file.write(
            f"""daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{ access_log off; server {{ listen {inline.SERVER}:80; listen [{SERVER6}]:80; root {folder}; }} }}
"""
        )
    net.start("s", 1, f"nginx -e {folder}/nginx.log -c {config}")


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def measure(net, options, flood=True):
    """Flood and connections at the same time. What the connections saw."""
    seconds = options.seconds
    # Connections begin a second later and end within the flood.
    command = (
        f"{options.generator} btzc0 --to-mac {net.server_mac} --to4 {inline.SERVER} --to6 {SERVER6}"
        f" --rate {options.rate} --seconds {seconds + 2} --seed {options.seed}"
    )
    generator = None
    if flood:
        generator = subprocess.Popen(shlex.split(net.inside("c", 0, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        net.children.append(generator)
        time.sleep(1)
    arguments = f"{inline.SERVER} {SERVER6} {options.connections} {seconds} {TIMEOUT} {THREADS}"
    text = run(net.inside("c", 1, f"{sys.executable} -c {shlex.quote(CLIENT)} {arguments}"), timeout=seconds + 60)
    sent, words = 0, "no flood"
    if flood:
        words = generator.communicate(timeout=30)[0].strip()
        net.children.remove(generator)
        match = re.match(r"(\d+) SYNs sent", words)
        if generator.returncode != 0 or not match:
            raise Problem(f"the generator failed: {words}")
        sent = int(match[1])
    done = json.loads(text)
    result = {"tried": len(done), "succeeded": sum(ok for _, _, ok in done), "sent": sent, "generator": words}
    for name, v6 in (("IPv4", False), ("IPv6", True)):
        result[name] = [sum(ok for six, _, ok in done if six == v6), sum(six == v6 for six, _, _ in done)]
    # A connection that was never set up counts as one that took for ever.
    times = sorted(float("inf") if took is None else took * 1e3 for _, took, _ in done)
    result |= {"p50": percentile(times, 0.50), "p99": percentile(times, 0.99)}
    return result


def server_frames(net):
    return inline.interface_counters(net)["btzs0"]


def with_server(net, options, result_of):
    """Frames that reached the server meanwhile, and left it."""
    sent, received = server_frames(net)
    result = result_of()
    after = server_frames(net)
    result |= {"arrived": after[1] - received, "answers": after[0] - sent}
    return result


def bridge(net, options, flood):
    m = net.name("m")
    run(f"ip -n {m} link add btzbr type bridge mcast_snooping 0")
    try:
        for device in (net.a, net.b):
            run(f"ip -n {m} link set {device} master btzbr")
        run(f"ip -n {m} link set btzbr up")
        inline.wait_until_forwarding(net, None)
        return with_server(net, options, lambda: measure(net, options, flood))
    finally:
        run(f"ip -n {m} link del btzbr")


def metrics(net):
    """The program's metrics: {name with labels: value}."""
    probe = f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics', timeout=5).read().decode())"
    text = run(net.inside("m", 0, f"{sys.executable} -c {shlex.quote(probe)}"), check=False, timeout=20)
    return {key: float(value) for key, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}


def memory(child):
    with open(f"/proc/{child.pid}/status") as file:
        fields = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB", file.read(), re.MULTILINE))
    return int(fields["VmRSS"]) / 1024, int(fields["VmHWM"]) / 1024


def forwarder(net, options, command, log):
    command = command.replace("{a}", net.a).replace("{b}", net.b)
    before, begin_of_words = inline.interface_counters(net), log.tell()
    child = net.start("m", 1, command, output=log)
    try:
        inline.wait_until_forwarding(net, child)
        idle, _ = memory(child)
        cpu, begin = inline.cpu_seconds(child), time.monotonic()
        result = with_server(net, options, lambda: measure(net, options))
        result["core"] = (inline.cpu_seconds(child) - cpu) / (time.monotonic() - begin)
        result["idle MiB"], (result["RSS MiB"], result["peak MiB"]) = idle, memory(child)
        result["metrics"] = metrics(net)
        if child.poll() is not None:
            raise Problem(f"the forwarder ended during the measurement with status {child.returncode}")
    finally:
        net.stop(child)
    log.seek(begin_of_words)
    words = log.read()
    dropped = inline.check_sums(before, inline.interface_counters(net), words, options.rate)
    result["ring drops"], result["words"] = dropped, words
    return result


def show(rows):
    print(
        f"{'':<22} {'succeeded':>15} {'set-up p50':>11} {'p99 ms':>9} {'SYNs sent':>10} {'to server':>10} {'answers':>9}"
        f" {'ring drops':>10} {'core':>5} {'flows':>8} {'evicted':>9} {'RSS MiB':>8}"
    )
    for name, r in rows.items():
        line = (
            f"{name:<22} {r['succeeded']:>6} of {r['tried']:>5} {r['p50']:>11.2f} {r['p99']:>9.2f} {r['sent']:>10}"
            f" {r['arrived']:>10} {r['answers']:>9}"
        )
        if "core" in r:
            stats = r["metrics"]
            flows = sum(v for k, v in stats.items() if k.startswith("bartizan_flows_active"))
            evicted = sum(v for k, v in stats.items() if k.startswith("bartizan_flows_ended_total") and 'reason="forced"' in k)
            line += f" {r['ring drops'] if r['ring drops'] is not None else '':>10} {r['core']:>5.2f} {flows:>8.0f} {evicted:>9.0f} {r['RSS MiB']:>8.0f}"
        print(line)
        print(f"{'':<22} IPv4 {r['IPv4'][0]} of {r['IPv4'][1]}, IPv6 {r['IPv6'][0]} of {r['IPv6'][1]}; {r['generator']}")


def verdicts(rows, options):
    """What must hold, for each forwarder; returns what does not."""
    failed = []
    base = rows["bridge, flood"]
    for name, r in rows.items():
        if "core" not in r:
            continue
        beyond, share = r["p50"] - base["p50"], r["succeeded"] / max(1, r["tried"])
        good = share >= 0.99 and beyond <= 5
        print(f"{name}: {100 * share:.2f} % succeeded, set-up p50 {beyond:+.2f} ms beyond the bridge's: {'holds' if good else 'FAILS'}")
        if not good:
            failed.append(name)
    short = [name for name, r in rows.items() if r["sent"] and r["sent"] < 0.97 * options.rate * (options.seconds + 2)]
    if short:
        print(f"the generator sent less than asked for in: {', '.join(short)}; the machine was busy, the row says less")
    return failed


def records(rows):
    # More than half of them may have failed: no figure then.
    rows = {name: r | {p: r[p] if r[p] < float("inf") else None for p in ("p50", "p99")} for name, r in rows.items()}
    base = rows["bridge, flood"]
    out = []
    for name, r in rows.items():
        for figure, unit in (("p50", "ms"), ("p99", "ms")):
            out.append(
                {"name": f"flood/{name}/set-up {figure}", "value": r[figure], "unit": unit, "peer": "kernel bridge, same flood", "peer_value": base[figure]}
            )
        share = r["succeeded"] / max(1, r["tried"])
        peer = base["succeeded"] / max(1, base["tried"])
        out.append({"name": f"flood/{name}/succeeded", "value": share, "unit": "of all", "peer": "kernel bridge, same flood", "peer_value": peer})
    return out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", required=True, help="the program that floods (crates/ports/examples/flood.rs)")
    parser.add_argument("--forwarder", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rate", type=int, default=50_000, help="SYNs per second")
    parser.add_argument("--seconds", type=int, default=60, help="of each row")
    parser.add_argument("--connections", type=int, default=50, help="connections per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--realtime", action="store_true", help="all processes under SCHED_RR: where other work shares the machine")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--log", metavar="FILE", help="what the forwarders print")
    parsed = parser.parse_args()
    parsed.forwarders = dict(text.split("=", 1) for text in parsed.forwarder)
    return parsed


def bench(options, folder):
    net = Net("default", options.realtime)
    rows = {}
    log_path = options.log or os.path.join(folder, "forwarders.log")
    try:
        net.set_up()
        start_server(net, folder)
        with inline.last_words(log_path), open(log_path, "w+") as log:
            rows["bridge, no flood"] = bridge(net, options, False)
            rows["bridge, flood"] = bridge(net, options, True)
            for name, command in options.forwarders.items():
                print(f"row {name}", file=sys.stderr, flush=True)
                rows[name] = forwarder(net, options, command, log)
                log.seek(0, os.SEEK_END)
    finally:
        net.tear_down()
    inline.show_machine()
    print(f"{options.rate} SYNs a second for {options.seconds} s, {options.connections} connections a second, timeout {TIMEOUT} s")
    show(rows)
    for name, row in rows.items():
        if "words" in row:
            print(f"\n{name}, last words:\n  " + "\n  ".join(row["words"].splitlines()[-10:]))
    print()
    failed = verdicts(rows, options)
    if options.json:
        inline.write_records(options.json, records(rows))
    return failed


if __name__ == "__main__":
    if inline.conduct("flood", ("ip", "ethtool", "nginx"), bench, arguments()):
        sys.exit("flood: what must hold does not; see above")
