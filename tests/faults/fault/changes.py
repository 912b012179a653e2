# SPDX-License-Identifier: Apache-2.0
"""Changes by REST all the time, with a book of what was acknowledged; and what an acknowledgement says is looked at with packets."""
import hashlib
import threading
import time

from . import Wrong, until
from .planes import REST
from .rest import Gone, Rest
from .traffic import ALLOWED, MIXED

RULES = 'drop udp any any -> any any (msg:"seven"; content:"seven"; sid:2001; rev:1;)\nalert udp any any -> any any (content:"none of it"; sid:2002; rev:1;)\n'
# Ports that one version of the policy lets go on, and the next one does not.
MARKS = 500


def mark(version):
    return 5_000 + version % MARKS


def policy(version):
    """A version of the policy. Even ones let datagrams for a port go on which detection refuses; odd ones refuse them by the packet filter, and have no detection."""
    even = version % 2 == 0
    ports = [ALLOWED, mark(version)] + ([MIXED] if even else [])
    said = {
        "chain": ["pfw"] + (["sfw"] if version % 3 == 0 else []) + (["ids"] if even else []),
        "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": ports}, {"allow": "udp", "from-ports": [ALLOWED]}]},
    }
    if even:
        said["ids"] = {"level": "web" if version % 4 else "more"}
    return {"order": 10, "policy": said}


class Changes:
    def __init__(self, site):
        self.site, self.version, self.failed = site, 0, None
        # By path: what is there for sure, and what may be there in its place.
        self.sure, self.maybe, self.puts = {}, {}, {}
        self.counts = {"acknowledged": 0, "unanswered": 0, "full": 0, "looked at": 0}
        self.full_said = ""
        self.lock, self.over, self.threads = threading.Lock(), threading.Event(), []

    def client(self):
        return Rest(REST, str(self.site.folder / "certificate.pem"), self.token)

    def begin(self):
        """The first administrator, the tenant, libraries, devices."""
        state = self.site.controller.disk.folder
        (self.site.folder / "certificate.pem").write_bytes((state / "tls-certificate.pem").read_bytes())
        self.token = (state / "bootstrap-token").read_text().strip()
        self.token = self.client().good("POST", "/tokens", {"name": "faults", "scope": "admin"})["token"]
        self.rest = self.client()
        digest = hashlib.sha256(RULES.encode()).hexdigest()
        self.rule_file(digest)
        for path, body in (
            ("/tenants/acme", {"select": {"prefixes": ["192.0.2.0/24"]}, "quotas": {"groups": 1_000_000}}),
            ("/libraries/web", {"files": [digest], "choose": [{"sids": [2001]}]}),
            ("/libraries/more", {"files": [digest]}),
            *((f"/devices/{agent.device}", {"tenants": ["acme"]}) for agent in self.site.agents),
            ("/tenants/acme/policies/all", policy(0)),
        ):
            self.rest.good("PUT", path, body)
            self.sure[path] = body
        for agent in self.site.agents:
            agent.enrol(self.rest.good("POST", f"/devices/{agent.device}/enrolment")["token"])

    def rule_file(self, digest):
        status, answer = self.rest.ask("PUT", f"/rule-files/{digest}", RULES)
        if status >= 300:
            raise Wrong(f"the rule file: {status} {answer}")

    def put(self, rest, path, body, query=""):
        """Puts a document, and keeps the book. The answer's body, or None."""
        with self.lock:
            self.maybe.setdefault(path, []).append(body)
            self.puts[path] = self.puts.get(path, 0) + 1
        try:
            status, answer = rest.ask("PUT", path + query, body)
        except Gone:
            self.counts["unanswered"] += 1
            return None
        if status in (200, 201):
            with self.lock:
                self.sure[path], self.maybe[path] = body, []
            self.counts["acknowledged"] += 1
            return answer
        with self.lock:
            self.maybe[path].remove(body)
        if status == 507:
            self.counts["full"] += 1
            self.full_said = answer.get("detail", "")
            return None
        raise Wrong(f"PUT {path}: {status} {answer}")

    def start(self):
        for work in (self.groups, self.marks):
            thread = threading.Thread(target=self.guard, args=(work,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def guard(self, work):
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.failed = self.failed or error
            if not isinstance(error, Wrong):
                import traceback

                traceback.print_exc()

    def groups(self):
        """Documents that no policy names: much is written."""
        rest, number = self.client(), 0
        while not self.over.wait(0.05):
            number += 1
            self.put(rest, f"/tenants/acme/groups/g{number % 40}", {"members": [f"10.{number >> 8 & 255}.{number & 255}.0/24"]})

    def marks(self):
        """Versions of the policy, one behind the other. Of every third the devices' acknowledgement is waited for, and looked at."""
        rest = self.client()
        while not self.over.wait(0.1):
            self.step(rest, self.version % 3 == 0)

    def step(self, rest, wait, seconds=3, strict=False):
        """The next version. With `wait` the devices' acknowledgement is waited for; `strict`: each has to give it."""
        self.version += 1
        version, starts = self.version, [agent.starts for agent in self.site.agents]
        answer = self.put(rest, "/tenants/acme/policies/all", policy(version), f"?wait={seconds}" if wait else "")
        if not wait or answer is None:
            return
        for agent, before in zip(self.site.agents, starts):
            told = answer["answers"].get(agent.device, {})
            if told.get("state") == "running" and told.get("running", 0) >= answer["generation"]:
                self.look(agent, before, version, f"acknowledged generation {told['running']}")
            elif strict:
                raise Wrong(f"{agent.device} does not run version {version} within {seconds} s: {answer}")

    def look(self, agent, starts, version, what):
        """What an agent says that it runs, it runs: the version's port, and no longer that of the version before, also in a flow that was there."""
        source = 20_000 + version % 10_000
        expected = [(source, mark(version), True), (source, mark(version - 1), False)]
        for source, port, passes in expected:
            seen = agent.traffic.passes(source, port)
            if agent.starts != starts or agent.is_down(time.monotonic()):
                # It was killed meanwhile.
                return
            if seen is not passes:
                raise Wrong(f"{agent.device} has {what}, of version {version}: a datagram to {port} {'passes' if seen else 'does not pass' if seen is False else 'and one that is allowed do not pass'}")
        # The flow is there; the next version refuses it.
        self.counts["looked at"] += 1

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(40)
        if self.failed:
            raise self.failed

    def status(self, agent):
        return self.rest.read(f"/devices/{agent.device}")["status"]

    def converged(self, limit):
        """Waits until all devices are connected and run what is wanted; seconds."""
        said = {}

        def all_do():
            try:
                for agent in self.site.agents:
                    said[agent.device] = status = self.status(agent)
                    if not ((status.get("session") or {}).get("connected") and status["state"] == "running" and status["running"] == status["wanted"]):
                        return False
            except Gone:
                return False
            return True

        return until(lambda: f"devices that run what is wanted: {said}", all_do, limit, 0.05)

    def ready(self):
        """All run the first policy, and traffic passes: from now on none may be lost."""
        self.converged(30)
        for agent in self.site.agents:
            agent.up()

    def check_book(self, which=None):
        """All that was acknowledged is there, or something newer; gives how many documents."""
        with self.lock:
            book = [(path, body, list(self.maybe.get(path, [])), self.puts.get(path, 0)) for path, body in self.sure.items() if which is None or which in path]
        for path, body, others, puts in book:
            found = self.rest.read(path)["spec"]
            # What was put meanwhile may be there as well.
            with self.lock:
                newer = [self.sure[path], *self.maybe.get(path, [])] if self.puts.get(path, 0) > puts else []
            if found != body and found not in others + newer:
                raise Wrong(f"{path} was acknowledged as {body}, and is {found}; not answered were {others}, newer {newer}")
        return len(book)
