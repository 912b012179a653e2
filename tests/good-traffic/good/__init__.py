# SPDX-License-Identifier: Apache-2.0
"""The machinery of the good-traffic suite: hosts, servers, the program under test, and what is compared."""


class Wrong(Exception):
    """A case did not go as it must; the text says what was seen and what was expected."""


class Missing(Exception):
    """Something that the suite needs is not on this machine; the text says what, and what to install."""
