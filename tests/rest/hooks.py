# SPDX-License-Identifier: Apache-2.0
"""What schemathesis is told beyond the OpenAPI document (scripts/schemathesis.sh)."""
import re
import zlib

import schemathesis
from schemathesis.specs.openapi import checks

# Beyond ten failures of an address at once unknown tokens are answered 429 (docs/controller.md): they are
# refused, which is what `ignored_auth` asks for.
assert 401 in checks.AUTH_REJECTION_STATUSES
checks.AUTH_REJECTION_STATUSES = frozenset({*checks.AUTH_REJECTION_STATUSES, 429})

# Names that are there; made up ones meet nothing but 404.
THERE = {"tenant": "acme", "policy": "web", "group": "lan", "device": "edge", "library": "open", "setting": "default", "function": "ids"}
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the good names become names that are there. Bad ones stay: how they are refused is looked at as well."""
    for key, value in (path_parameters or {}).items():
        if key in THERE and isinstance(value, str) and NAME.fullmatch(value) and zlib.crc32(value.encode()) % 2:
            path_parameters[key] = THERE[key]
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    """Good times to wait become short: nobody answers for the device that is there, and whoever asks waits ten seconds at most."""
    wait = (query or {}).get("wait")
    if str(wait).isdecimal() and int(wait) > 2:
        # What is out of range stays so.
        query["wait"] = 2 if int(wait) <= 60 else wait
    return query
