# SPDX-License-Identifier: Apache-2.0
"""TLS for the bench of kinds: handshakes of versions 1.2 and 1.3 record by record, with a certificate in DER.

Keys and everything encrypted are random bytes: nobody can read them, and no program under test tries.
"""

import struct

CLIENT, SERVER = 0, 1
SUITES = [0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0x009C, 0x009D]
HANDSHAKE, CHANGE, DATA = 22, 20, 23


def vector(data, size):
    """Data after its length in so many bytes."""
    return len(data).to_bytes(size, "big") + data


def record(kind, data, version=0x0303):
    return struct.pack("!BH", kind, version) + vector(data, 2)


def message(kind, data):
    return bytes([kind]) + vector(data, 3)


def extension(kind, data):
    return struct.pack("!H", kind) + vector(data, 2)


def client_hello(rnd, host, newest, more=b"", alpn=(b"h2", b"http/1.1")):
    """The message; `newest` is the highest version, `more` are further extensions."""
    groups = struct.pack("!HHH", 29, 23, 24)
    signatures = struct.pack("!8H", 0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601)
    extensions = extension(0, vector(b"\0" + vector(host, 2), 2))
    extensions += extension(23, b"") + extension(0xFF01, b"\0")
    extensions += extension(10, vector(groups, 2)) + extension(11, b"\1\0") + extension(35, b"")
    extensions += extension(16, vector(b"".join(vector(name, 1) for name in alpn), 2))
    extensions += extension(5, b"\1\0\0\0\0") + extension(13, vector(signatures, 2))
    if newest >= 0x0304:
        share = struct.pack("!H", 29) + vector(rnd.randbytes(32), 2)
        extensions += extension(51, vector(share, 2)) + extension(45, b"\1\1") + extension(43, b"\4\3\4\3\3")
    offered = (suite for suite in SUITES if newest >= 0x0304 or suite >> 8 != 0x13)
    suites = b"".join(struct.pack("!H", suite) for suite in offered)
    body = b"\3\3" + rnd.randbytes(32) + vector(rnd.randbytes(32), 1) + vector(suites, 2) + b"\1\0"
    return message(1, body + vector(extensions + more, 2))


def server_hello(rnd, version):
    if version == 0x0304:
        share = struct.pack("!H", 29) + vector(rnd.randbytes(32), 2)
        suite, extensions = 0x1301, extension(43, b"\3\4") + extension(51, share)
    else:
        suite, extensions = 0xC02F, extension(0xFF01, b"\0") + extension(11, b"\1\0") + extension(23, b"")
    body = b"\3\3" + rnd.randbytes(32) + vector(rnd.randbytes(32), 1)
    return message(2, body + struct.pack("!HB", suite, 0) + vector(extensions, 2))


def der(tag, *parts):
    """A value of ASN.1 in DER."""
    data = b"".join(parts)
    if len(data) < 128:
        return bytes([tag, len(data)]) + data
    length = len(data).to_bytes((len(data).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + data


def name(*attributes):
    """A distinguished name: (last byte of the attribute's identifier 2.5.4.x, text)."""
    # A country is a PrintableString, the others are UTF8Strings.
    tags = {6: 19}
    values = ((der(6, b"\x55\4" + bytes([kind])), der(tags.get(kind, 12), text)) for kind, text in attributes)
    return der(0x30, *(der(0x31, der(0x30, *value)) for value in values))


def certificate(rnd, host):
    """An X.509 certificate for a host, whose key and signature are rnd."""
    algorithm = der(0x30, bytes.fromhex("06092a864886f70d01010b"), der(5))
    modulus = b"\0" + bytes([0x80 | rnd.getrandbits(7)]) + rnd.randbytes(255)
    key = der(0x30, der(2, modulus), der(2, b"\1\0\1"))
    public = der(0x30, der(0x30, bytes.fromhex("06092a864886f70d010101"), der(5)), der(3, b"\0", key))
    names = der(0x30, bytes.fromhex("0603551d11"), der(4, der(0x30, der(0x82, host))))
    validity = der(0x30, der(23, b"250101000000Z"), der(23, b"350101000000Z"))
    to_sign = der(
        0x30,
        der(0xA0, der(2, b"\2")),
        der(2, b"\1" + rnd.randbytes(15)),
        algorithm,
        name((6, b"US"), (10, b"Example Trust"), (3, b"Example Issuing CA 7")),
        validity,
        name((3, host)),
        public,
        der(0xA3, der(0x30, names)),
    )
    return der(0x30, to_sign, algorithm, der(3, b"\0", rnd.randbytes(256)))


def handshake(rnd, host):
    """Messages up to the first application data, of version 1.2 or 1.3: (side, bytes)."""
    version = rnd.choice((0x0303, 0x0304))
    hello = record(HANDSHAKE, client_hello(rnd, host, version), 0x0301)
    answer = record(HANDSHAKE, server_hello(rnd, version))
    change = record(CHANGE, b"\1")
    if version == 0x0304:
        # What follows the server's hello is encrypted, and looks like application data.
        sizes = (42, 32 + 900 + rnd.randrange(1200), 281, 69)
        hidden = b"".join(record(DATA, rnd.randbytes(size)) for size in sizes)
        finished = change + record(DATA, rnd.randbytes(69))
        return [(CLIENT, hello), (SERVER, answer + change + hidden), (CLIENT, finished)]
    chain = vector(certificate(rnd, host), 3) + vector(certificate(rnd, b"ca.example.com"), 3)
    exchange = b"\3" + struct.pack("!H", 29) + vector(rnd.randbytes(32), 1)
    exchange += b"\4\1" + vector(rnd.randbytes(256), 2)
    answer += record(HANDSHAKE, message(11, vector(chain, 3))) + record(HANDSHAKE, message(12, exchange))
    answer += record(HANDSHAKE, message(14, b""))
    done = change + record(HANDSHAKE, rnd.randbytes(40))
    key = record(HANDSHAKE, message(16, vector(rnd.randbytes(32), 1)))
    return [(CLIENT, hello), (SERVER, answer), (CLIENT, key + done), (SERVER, done)]


def data(rnd, size):
    """Application data: a record for each 16 KiB."""
    return b"".join(record(DATA, rnd.randbytes(min(16384, size - at))) for at in range(0, size, 16384))
