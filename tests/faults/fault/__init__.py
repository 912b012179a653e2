# SPDX-License-Identifier: Apache-2.0
"""The machinery of the fault suite: planes in a network namespace, traffic, changes, faults, and what has to hold meanwhile."""
import time


class Wrong(Exception):
    """Something did not go as it must; the text says what was seen and what was expected."""


def until(what, holds, limit=30.0, every=0.02):
    """Waits until something holds; gives the seconds that it took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > limit:
            raise Wrong(f"waited {limit:.0f} s in vain for {what() if callable(what) else what}")
        time.sleep(every)
    return time.monotonic() - begun
