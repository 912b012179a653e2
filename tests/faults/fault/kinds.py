# SPDX-License-Identifier: Apache-2.0
"""The faults. Each is a function of the site, the changes and a source of chance; it begins, lasts, and is over when it returns. In `draw` times are seconds."""
import time

from . import Wrong, until
from .rest import Gone

# A session's threads may take this share of a processor while nobody is at the other end: a debug program on
# a busy machine.
IDLE_SHARE = 0.10
DAY = 86_400
# Who was told that its certificate has expired, by a controller with a wrong clock, comes again after so many
# seconds (docs/southbound.md).
EXPIRED = 60
# A device is told of changes, and the controller of its disk, after so many seconds, also when the
# controller's clock jumps at the same time.
TOLD = 20 + EXPIRED


class Idle:
    """The agents' sessions do not spin meanwhile."""

    def __init__(self, agents):
        self.agents, self.begun = agents, time.monotonic()
        self.before = [(agent.starts, agent.seconds("southbound"), agent.wire.accepted) for agent in agents]

    def check(self):
        span = time.monotonic() - self.begun
        for agent, (starts, before, accepted) in zip(self.agents, self.before):
            if agent.starts != starts or agent.child.poll() is not None:
                continue
            took, dials = agent.seconds("southbound") - before, agent.wire.accepted - accepted
            if took > 0.3 + span * IDLE_SHARE:
                raise Wrong(f"{agent.device}'s session took {took:.2f} s of a processor in {span:.1f} s without a controller")
            # 0.25 s at least before the second attempt, then twice as long each time.
            if dials > 4 + span:
                raise Wrong(f"{agent.device} has dialled {dials} times in {span:.1f} s")


def kill_controller(site, changes, draw):
    """kill -9; started again after a while, now and then killed in its start as well."""
    site.controller.kill()
    idle = Idle(site.agents)
    time.sleep(draw.uniform(0, 1.5))
    if draw.random() < 0.25:
        site.controller.start(wait=False)
        time.sleep(draw.uniform(0, 0.5))
        site.controller.kill()
    site.controller.start()
    idle.check()
    changes.check_book("/g1")


def kill_agent(site, changes, draw):
    agent = draw.choice(site.agents)
    agent.kill()
    time.sleep(draw.uniform(0, 1.5))
    if draw.random() < 0.25:
        agent.start(wait=False)
        time.sleep(draw.uniform(0, 0.8))
        agent.down.append([time.monotonic() - 0.2, float("inf")])
        agent.child.kill()
        agent.child.wait()
        agent.down[-2][1] = time.monotonic()
    agent.start()


def hang_controller(site, changes, draw):
    """It stands still, with its connections."""
    site.controller.signal("STOP")
    idle = Idle(site.agents)
    time.sleep(draw.uniform(0.5, 4))
    idle.check()
    site.controller.signal("CONT")


def partition(site, changes, draw, longest=4.0):
    """Nothing comes through, and nobody is told."""
    agent = draw.choice(site.agents)
    idle = Idle([agent])
    agent.wire.hold_up = agent.wire.hold_down = True
    time.sleep(draw.uniform(0.5, longest))
    idle.check()
    agent.wire.heal()


def long_partition(site, changes, draw):
    """Until both ends have given the connection up."""
    partition(site, changes, draw, 50.0)


def half_open(site, changes, draw):
    """One direction only."""
    agent = draw.choice(site.agents)
    idle = Idle([agent])
    if draw.random() < 0.5:
        agent.wire.hold_up = True
    else:
        agent.wire.hold_down = True
    time.sleep(draw.uniform(0.5, 4))
    idle.check()
    agent.wire.heal()


def refused(site, changes, draw):
    """Connections are reset, and new ones refused."""
    agent = draw.choice(site.agents)
    idle = Idle([agent])
    agent.wire.refuse()
    time.sleep(draw.uniform(0.2, 3))
    idle.check()
    agent.wire.heal()


def slow(site, changes, draw):
    """Late, and few bytes a second."""
    agent = draw.choice(site.agents)
    agent.wire.delay, agent.wire.rate = draw.uniform(0.05, 0.4), draw.uniform(4_000, 40_000)
    time.sleep(draw.uniform(1, 4))
    agent.wire.heal()


def full_controller(site, changes, draw):
    """Its disk is full: changes are refused with what to do, what was acknowledged can be read, also by a controller that starts there."""
    before = changes.counts["full"]
    disk = site.controller.disk
    disk.fill()

    def is_refused():
        disk.fill()
        return changes.counts["full"] > before

    until("a change that is refused since the disk is full", is_refused, 20, 0.05)
    if "make room" not in changes.full_said:
        raise Wrong(f"a full disk is said so: {changes.full_said}")
    if draw.random() < 0.5:
        site.controller.kill()
        site.controller.start()
    changes.check_book("/g2")
    time.sleep(draw.uniform(0, 1))
    disk.free()
    taken = changes.counts["acknowledged"]
    until("a change that is taken once there is room", lambda: changes.counts["acknowledged"] > taken, 20)


def full_agent(site, changes, draw):
    """A device's disk is full: it goes on with what it runs, says so in its log and to the controller, and runs what is wanted once there is room."""
    agent = draw.choice(site.agents)
    at = len(agent.said())

    def is_said():
        agent.disk.fill()
        return "cannot be stored" in agent.said()[at:]

    agent.disk.fill()
    until(lambda: f"{agent.device}'s word that its disk is full: {agent.said()[-500:]}", is_said, TOLD, 0.05)

    def is_told():
        agent.disk.fill()
        try:
            return "disk full" in str(changes.client().good("GET", f"/devices/{agent.device}")["status"])
        except Gone:
            return False

    until("the controller's word that the device's disk is full", is_told, TOLD, 0.1)
    if draw.random() < 0.3:
        agent.kill()
        agent.start()
    time.sleep(draw.uniform(0, 2))
    agent.disk.free()


def restart_functions(site, changes, draw):
    """Functions begin anew, by orders over REST, between two packets: no datagram is lost for it."""
    rest = changes.client()
    for _ in range(10):
        agent, name = draw.choice(site.agents), draw.choice(["pfw", "sfw", "ids"])
        starts = agent.starts
        try:
            status, answer = rest.ask("POST", f"/devices/{agent.device}/functions/{name}", {"order": "restart"})
            if status == 409:
                # The device is away, by another fault.
                continue
            if status >= 300:
                raise Wrong(f"an order: {status} {answer}")
            # One that no chain has now is not there.
            told = lambda: changes.client().read(f"/devices/{agent.device}")["status"].get("functions", {}).get(name)  # noqa: B023, E731
            until(f"{agent.device}'s word on {name}", lambda: told() or agent.starts != starts, 10, 0.05)  # noqa: B023
        except Gone:
            # The controller is killed at the same time: orders are not kept.
            return
        time.sleep(draw.uniform(0, 0.1))


def clock_controller(site, changes, draw):
    jump(site.controller, draw)


def clock_agent(site, changes, draw):
    jump(draw.choice(site.agents), draw)


def jump(process, draw):
    """Its wall clock jumps, and some seconds later back."""
    process.turn(draw.choice([-30 * DAY, -3_600, -30, 30, 3_600, 30 * DAY, 300 * DAY, 4_000 * DAY]))
    time.sleep(draw.uniform(2, 5))
    process.turn(0)


ALL = [kill_controller, kill_agent, hang_controller, partition, half_open, refused, slow, full_controller, full_agent, restart_functions]
CLOCKS = [clock_controller, clock_agent]
LONG = [long_partition]
