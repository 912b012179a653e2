# SPDX-License-Identifier: Apache-2.0
"""QUIC version 1 for the bench of kinds.

Initial packets are encrypted as RFC 9001 has it, so that a program can read the hello in them. Later packets
are random bytes after true headers. AES in Python is slow: make few handshakes, and use them often.
"""

import hashlib
import hmac
import struct

from tls import CLIENT, SERVER, client_hello, extension, server_hello, vector

SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
VERSION = b"\0\0\0\1"


def substitutions():
    """The S-box of AES: the inverse in GF(2**8), then an affine map (FIPS 197, 5.1.1)."""
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p = (p ^ p << 1 ^ (0x11B if p & 0x80 else 0)) & 0xFF
        for shift in (1, 2, 4):
            q ^= q << shift
        q = (q ^ (0x09 if q & 0x80 else 0)) & 0xFF
        turned = q | q << 8
        box[p] = (q ^ turned >> 7 ^ turned >> 6 ^ turned >> 5 ^ turned >> 4) & 0xFF ^ 0x63
        if p == 1:
            return box


BOX = substitutions()
DOUBLE = [value << 1 & 0xFF ^ (0x1B if value & 0x80 else 0) for value in range(256)]
SHIFTED = [0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11]


class Aes:
    """AES-128, encryption only."""

    def __init__(self, key):
        words, round_constant = [list(key[at : at + 4]) for at in range(0, 16, 4)], 1
        while len(words) < 44:
            word = words[-1]
            if len(words) % 4 == 0:
                word = [BOX[byte] for byte in word[1:] + word[:1]]
                word[0] ^= round_constant
                round_constant = DOUBLE[round_constant]
            words.append([a ^ b for a, b in zip(words[-4], word)])
        self.keys = [sum(words[at : at + 4], []) for at in range(0, 44, 4)]

    def block(self, data):
        state = [a ^ b for a, b in zip(data, self.keys[0])]
        for key in self.keys[1:-1]:
            state = [BOX[state[at]] for at in SHIFTED]
            mixed = []
            for at in (0, 4, 8, 12):
                a, b, c, d = state[at : at + 4]
                every = a ^ b ^ c ^ d
                mixed += [
                    a ^ every ^ DOUBLE[a ^ b],
                    b ^ every ^ DOUBLE[b ^ c],
                    c ^ every ^ DOUBLE[c ^ d],
                    d ^ every ^ DOUBLE[d ^ a],
                ]
            state = [a ^ b for a, b in zip(mixed, key)]
        return bytes(BOX[state[at]] ^ key for at, key in zip(SHIFTED, self.keys[-1]))

    def seal(self, nonce, clear, head):
        """AES-GCM (NIST SP 800-38D): the encrypted bytes with their tag."""
        count = (len(clear) + 15) // 16
        stream = b"".join(self.block(nonce + (2 + n).to_bytes(4, "big")) for n in range(count))
        hidden = bytes(a ^ b for a, b in zip(clear, stream))
        secret, total = int.from_bytes(self.block(bytes(16)), "big"), 0
        padded = b"".join(part + bytes(-len(part) % 16) for part in (head, hidden))
        for block in (*blocks(padded), struct.pack("!QQ", len(head) * 8, len(hidden) * 8)):
            total = multiply(total ^ int.from_bytes(block, "big"), secret)
        tag = total ^ int.from_bytes(self.block(nonce + b"\0\0\0\1"), "big")
        return hidden + tag.to_bytes(16, "big")


def blocks(data):
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def multiply(one, other):
    """The product in GF(2**128) of GCM, whose bits run from left to right."""
    product = 0
    for bit in range(127, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (0xE1 << 120 if other & 1 else 0)
    return product


def derive(secret, label, size):
    """HKDF-Expand-Label of TLS 1.3, for at most 32 bytes."""
    text = struct.pack("!H", size) + vector(b"tls13 " + label, 1) + b"\0"
    return hmac.new(secret, text + b"\1", hashlib.sha256).digest()[:size]


def initial(connection, side, target, source, frames, size):
    """An Initial packet, number 0, padded to `size`; `connection` is the first id that the client chose."""
    secret = hmac.new(SALT, connection, hashlib.sha256).digest()
    secret = derive(secret, b"client in" if side == CLIENT else b"server in", 32)
    key, nonce = derive(secret, b"quic key", 16), derive(secret, b"quic iv", 12)
    mask_key = derive(secret, b"quic hp", 16)
    head = b"\xc3" + VERSION + vector(target, 1) + vector(source, 1) + b"\0"
    rest = size - len(head) - 2
    clear = frames + bytes(rest - 4 - 16 - len(frames))
    # The length has two bytes, the packet number four.
    head += struct.pack("!H", 0x4000 | rest) + bytes(4)
    hidden = Aes(key).seal(nonce, clear, head)
    mask = Aes(mask_key).block(hidden[:16])
    number = bytes(mask[1 + at] for at in range(4))
    return bytes([head[0] ^ mask[0] & 0x0F]) + head[1:-4] + number + hidden


def crypto(data):
    """A CRYPTO frame at the beginning of the stream."""
    return b"\6\0" + struct.pack("!H", 0x4000 | len(data)) + data


def handshake(rnd, host):
    """Datagrams of a handshake (side, bytes), and the ids of client and server."""
    first, client, server = rnd.randbytes(8), rnd.randbytes(8), rnd.randbytes(8)
    parameters = b"\x01\x02\x67\x10" + b"\x04\x04\x80\x10\0\0" + b"\x0f" + vector(client, 1)
    hello = client_hello(rnd, host, 0x0304, extension(57, parameters), (b"h3",))
    answer = b"\2\0\0\0\0" + crypto(server_hello(rnd, 0x0304))

    def hidden(source, target, size):
        head = b"\xe0" + VERSION + vector(target, 1) + vector(source, 1)
        return head + struct.pack("!H", 0x4000 | size) + rnd.randbytes(size)

    messages = [
        (CLIENT, initial(first, CLIENT, first, client, crypto(hello), 1200)),
        (SERVER, initial(first, SERVER, client, server, answer, 1200)),
        (SERVER, hidden(server, client, 1150)),
        (CLIENT, hidden(client, server, 1150)),
    ]
    return messages, client, server


def short(rnd, target, size):
    """A packet with a short header."""
    return bytes([0x40 | rnd.getrandbits(5)]) + target + rnd.randbytes(size)
