# SPDX-License-Identifier: Apache-2.0
"""All cases. A new family is a file here and a line in the table."""

from . import bulk, close, databases, http, names, packets, programs

FAMILIES = {
    "http": http.CASES,
    "close": close.CASES,
    "packets": packets.CASES,
    "names": names.CASES,
    "programs": programs.CASES,
    "databases": databases.CASES,
    "bulk": bulk.CASES,
}
CASES = [case for cases in FAMILIES.values() for case in cases]
