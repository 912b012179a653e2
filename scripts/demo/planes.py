#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All planes in one process, driven by `bartizan ctl`: a tenant, its rules and its policy by REST, an alert that comes out there, and the
block that answers it.

usage: planes.py PROGRAM FOLDER

The same network as inline.py's, with a controller in the program that runs inline. What is allowed has to succeed and what is blocked has to
fail, else the exit status is 1. Needs root.
"""
import json
import os
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
from inline import HERE, SERVER, Network, nginx, wait_for  # noqa: E402

HOST = """links: [{{name: wan, inline: {{a: m0, b: m1}}}}]
workers: 1
outputs: {{eve: {{dir: {folder}/out}}}}
control: {{socket: {folder}/control.socket}}
cache: {folder}/cache
controller:
  here: {{state: {folder}/controller, device: edge}}
  identity: {folder}/identity
  state: {folder}/device
"""


class Operator:
    """Somebody with `bartizan ctl`."""

    def __init__(self, network, program, folder):
        self.network, self.program = network, program
        self.state, self.token = os.path.join(folder, "controller"), os.path.join(folder, "token")

    def ask(self, *words, token=None, shown=True):
        if shown:
            print("$ bartizan ctl", *(os.path.relpath(word) if os.path.exists(word) else word for word in words), flush=True)
        whom = ("--ca", os.path.join(self.state, "tls-certificate.pem"), "--token-file", token or self.token)
        done = self.network.run("middle", self.program, "ctl", *whom, *words)
        if done.returncode:
            sys.exit("failed: " + done.stdout)
        return done.stdout

    def begin(self):
        """An administrator, with the token of the first start."""
        first = os.path.join(self.state, "bootstrap-token")
        made = self.ask("--json", "tokens", "create", "--name", "demo", "--scope", "admin", token=first)
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(json.loads(made)["token"])

    def alerts(self):
        return json.loads(self.ask("--json", "alerts", "acme", shown=False))


def gets(network, path):
    """Whether the client gets a page."""
    done = network.run("client", "curl", "-sS", "-m", "2", "-o", "/dev/null", "http://%s%s" % (SERVER, path))
    return done.returncode == 0


def checks(network, operator):
    """(what, did it go as it should)."""
    yield "without a policy nothing is forwarded", not gets(network, "/")
    operator.begin()
    print(operator.ask("apply", "-f", os.path.join(HERE, "site")).rstrip())
    yield "the device runs the policy", wait_for(lambda: '"state": "running"' in operator.ask("--json", "devices", "get", "edge", shown=False).replace('":"', '": "'))
    yield "curl gets a page", gets(network, "/")
    begun = time.monotonic()
    yield "a request for /etc/passwd gets its page and raises an alert", gets(network, "/search?f=/etc/passwd")
    yield "the alert is at the controller", wait_for(operator.alerts)
    print(operator.ask("alerts", "acme").rstrip())
    print(operator.ask("policies", "put", "acme", "block", os.path.join(HERE, "block.yaml"), "--wait", "10").rstrip())
    print("from the request to the block: %.2f s, including the start of three programs" % (time.monotonic() - begun))
    yield "the blocked client gets no page", not gets(network, "/")
    operator.ask("policies", "delete", "acme", "block", "--wait", "10")
    yield "the block is removed: curl gets a page", gets(network, "/")


def drive(program, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "bartizan.yaml"), "w") as host:
        host.write(HOST.format(folder=folder))
    with Network() as network, open(os.path.join(folder, "said"), "w") as said:
        nginx(network, folder)
        command = [program, "run", "-c", os.path.join(folder, "bartizan.yaml")]
        print("$", " ".join(command), flush=True)
        engine = network.start("middle", *command, stdout=said, stderr=said)
        results = []
        if wait_for(lambda: engine.poll() is not None or "running on" in open(said.name).read(), 30) and engine.poll() is None:
            results = list(checks(network, Operator(network, program, folder)))
            engine.send_signal(signal.SIGTERM)
            engine.wait(20)
    print()
    for what, right in results:
        print("%-6s %s" % ("ok" if right else "FAILED", what))
    if not results or engine.returncode:
        print(open(said.name).read(), file=sys.stderr)
    return 0 if results and engine.returncode == 0 and all(right for _, right in results) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    sys.exit(drive(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
