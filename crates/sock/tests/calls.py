#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls and orders of calls on TCP sockets, each with what it returned: return values, errno, bytes.

Run twice, with plain sockets and as a guest; the outputs have to be equal (calls.rs). A line for each case:
name, a tab, what happened. Addresses and ports are left out of the results, except where they are compared
within a case.
"""

import signal
import socket
import sys

import calls_common as common
import calls_open  # noqa: F401: registers its cases
import calls_ends  # noqa: F401: registers its cases


def main():
    chosen = sys.argv[1:]
    for common.FAMILY, common.HOST, label in ((socket.AF_INET, "127.0.0.1", "4"), (socket.AF_INET6, "::1", "6")):
        for function in common.CASES:
            if chosen and function.__name__ not in chosen:
                continue

            def late(*_):
                raise RuntimeError("it hangs")

            signal.signal(signal.SIGALRM, late)
            signal.alarm(20)
            try:
                result = function()
            except Exception as error:  # what a case throws is its result
                result = f"{type(error).__name__}: {error}"
            signal.alarm(0)
            print(f"{function.__name__}/{label}\t{result}", flush=True)


main()
