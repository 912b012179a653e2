# SPDX-License-Identifier: Apache-2.0
"""Messages of the flows of the bench of kinds: HTTP, DNS, SMTP, SMB and SSH. They follow from a seed."""

import random
import struct
import zlib

from tls import CLIENT, SERVER, vector

WORDS = (
    "account album basket blog board book card chart chat city client code count data detail draft "
    "event feed file form gallery group guide help home image index item label list login mail map "
    "media member menu news note order page panel photo plan post price profile query report review "
    "search section shop sign site start stock store style table team ticket topic tour track travel "
    "user video view week wiki"
).split()
AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/18.1 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
)
# In one of a hundred: published rules have names for them, so that the programs' alerts can be compared.
NOTED_AGENTS = ("curl/8.14.1", "python-requests/2.32.3", "Wget/1.25.0", "Go-http-client/1.1")
NOTED_ENDS = ("duckdns.org", "ngrok.io", "top", "xyz", "onion.to")


def host(rnd):
    """A host's name."""
    if rnd.random() < 0.01:
        return f"{rnd.choice(WORDS)}{rnd.randrange(5000)}.{rnd.choice(NOTED_ENDS)}"
    return f"{rnd.choice(WORDS)}{rnd.randrange(5000)}.example.{rnd.choice(('com', 'net', 'org'))}"


def path(rnd):
    parts = "/".join(f"{rnd.choice(WORDS)}{rnd.randrange(100)}" for _ in range(rnd.randrange(1, 4)))
    return f"/{parts}{rnd.choice(('', '.html', '.js', '.png', '.css', f'?id={rnd.randrange(9999)}&page=2'))}"


def make_pages():
    """Half a megabyte of words and a little markup, the same in every run."""
    rnd, ends = random.Random(7), (" ", " ", ", ", ".\n", "</p>\n<p>")
    return "".join(rnd.choice(WORDS) + rnd.choice(ends) for _ in range(80_000)).encode()


PAGES = make_pages()


def text(rnd, size):
    """So many bytes of words, from anywhere in the pages."""
    at = rnd.randrange(len(PAGES) - size)
    return PAGES[at : at + size]


def request(rnd, method="GET", body=b""):
    agent = rnd.choice(NOTED_AGENTS if rnd.random() < 0.01 else AGENTS)
    name = host(rnd)
    lines = [
        f"{method} {path(rnd)} HTTP/1.1",
        f"Host: {name}",
        f"User-Agent: {agent}",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "Accept-Language: en-US,en;q=0.5",
        "Accept-Encoding: gzip, deflate",
        f"Referer: http://{name}{path(rnd)}",
        f"Cookie: session={rnd.getrandbits(128):032x}; lang=en",
        "Connection: keep-alive",
    ]
    if body:
        lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answer(rnd, size, kind="text/html; charset=utf-8", packed=False):
    body, lines = text(rnd, size) if kind.startswith("text") else rnd.randbytes(size), []
    if packed:
        pack = zlib.compressobj(6, zlib.DEFLATED, 31)
        body, lines = pack.compress(body) + pack.flush(), ["Content-Encoding: gzip"]
    head = [
        "HTTP/1.1 200 OK",
        "Date: Mon, 24 Nov 2025 16:00:00 GMT",
        "Server: nginx",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *lines,
        "Connection: keep-alive",
        f'ETag: "{rnd.getrandbits(40):x}"',
    ]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def dns(rnd, address):
    """A question for an address, and its answer."""
    name = b"".join(vector(label.encode(), 1) for label in host(rnd).split(".")) + b"\0"
    ident, question = rnd.randbytes(2), name + b"\0\1\0\1"
    query = ident + b"\1\0\0\1\0\0\0\0\0\0" + question
    reply = ident + b"\x81\x80\0\1\0\1\0\0\0\0" + question + b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4" + address
    return query, reply


def mail(rnd):
    """A session of SMTP with one message: (side, bytes)."""
    sender, taker = f"{rnd.choice(WORDS)}{rnd.randrange(999)}@example.net", f"{rnd.choice(WORDS)}@example.com"
    head = [
        f"From: <{sender}>",
        f"To: <{taker}>",
        f"Subject: {rnd.choice(WORDS)} {rnd.choice(WORDS)} {rnd.randrange(9999)}",
        f"Message-ID: <{rnd.getrandbits(60):x}@example.net>",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
    ]
    body = text(rnd, rnd.randrange(500, 5000)).replace(b"\n", b"\r\n")
    message = ("\r\n".join(head) + "\r\n\r\n").encode() + body + b"\r\n.\r\n"
    lines = [
        (SERVER, "220 mx.example.com ESMTP"),
        (CLIENT, "EHLO relay.example.net"),
        (SERVER, "250-mx.example.com\r\n250-SIZE 10240000\r\n250 8BITMIME"),
        (CLIENT, f"MAIL FROM:<{sender}>"),
        (SERVER, "250 2.1.0 Ok"),
        (CLIENT, f"RCPT TO:<{taker}>"),
        (SERVER, "250 2.1.5 Ok"),
        (CLIENT, "DATA"),
        (SERVER, "354 End data with <CR><LF>.<CR><LF>"),
    ]
    ends = [(SERVER, "250 2.0.0 Ok: queued"), (CLIENT, "QUIT"), (SERVER, "221 2.0.0 Bye")]
    wire = lambda pairs: [(side, line.encode() + b"\r\n") for side, line in pairs]
    return [*wire(lines), (CLIENT, message), *wire(ends)]


# Commands of SMB 2, a status, and a time as Windows counts it.
NEGOTIATE, SETUP, LOGOFF, TREE, TREE_END, CREATE, CLOSE, READ, WRITE = 0, 1, 2, 3, 4, 5, 6, 8, 9
MORE_PROCESSING, TIME = 0xC0000016, bytes.fromhex("00e0e8a0a45ddc01")


class Smb:
    """A session of SMB 2.1 as messages: (side, bytes)."""

    def __init__(self, rnd):
        self.rnd, self.number, self.messages = rnd, 0, []
        self.session, self.tree, self.file = 0, 0, rnd.randbytes(16)

    def message(self, side, command, body, status=0):
        flags = 1 if side == SERVER else 0
        head = b"\xfeSMB" + struct.pack("<HHIHHII", 64, 1, status, command, 31, flags, 0)
        head += struct.pack("<QIIQ", self.number, 0xFEFF, self.tree, self.session) + bytes(16)
        self.messages.append((side, struct.pack("!I", len(head) + len(body)) + head + body))
        self.number += side == SERVER

    def exchange(self, command, query, reply, status=0):
        self.message(CLIENT, command, query)
        self.message(SERVER, command, reply, status)

    def open(self):
        """Negotiation, NTLM authentication and the connection to a share."""
        rnd = self.rnd
        query = struct.pack("<HHHHI", 36, 2, 1, 0, 0x7F) + rnd.randbytes(16) + bytes(8) + b"\x02\x02\x10\x02"
        reply = struct.pack("<HHHH", 65, 1, 0x0210, 0) + rnd.randbytes(16)
        reply += struct.pack("<IIII", 7, 0x800000, 0x800000, 0x800000) + TIME + bytes(8)
        self.exchange(NEGOTIATE, query, reply + struct.pack("<HHI", 128, 0, 0))
        self.session = rnd.getrandbits(40)
        release, domain = b"\x0a\0\x63\x45\0\0\0\x0f", "EXAMPLE".encode("utf-16-le")
        negotiate = b"NTLMSSP\0" + struct.pack("<II", 1, 0xE2088297) + bytes(16) + release
        # Attributes: the domain's name, and the end.
        known = struct.pack("<HH", 2, len(domain)) + domain + bytes(4)
        challenge = b"NTLMSSP\0" + struct.pack("<IHHII", 2, len(domain), len(domain), 56, 0xE2898215)
        challenge += rnd.randbytes(8) + bytes(8)
        challenge += struct.pack("<HHI", len(known), len(known), 56 + len(domain)) + release + domain + known
        setup = lambda blob: struct.pack("<HBBIIHHQ", 25, 0, 1, 1, 0, 88, len(blob), 0) + blob
        granted = lambda blob: struct.pack("<HHHH", 9, 0, 72, len(blob)) + blob
        self.exchange(SETUP, setup(negotiate), granted(challenge), MORE_PROCESSING)
        user, station = (f"{rnd.choice(WORDS)}{rnd.randrange(99)}".encode("utf-16-le") for _ in range(2))
        proof = rnd.randbytes(16) + b"\1\1" + bytes(6) + TIME + rnd.randbytes(8) + bytes(4) + known + bytes(4)
        parts, at, fields = (bytes(24), proof, domain, user, station, b""), 72, b""
        for part in parts:
            fields += struct.pack("<HHI", len(part), len(part), at)
            at += len(part)
        blob = b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I", 0xE2888215) + release
        self.exchange(SETUP, setup(blob + b"".join(parts)), granted(b""))
        share = f"\\\\files.example.com\\{rnd.choice(WORDS)}".encode("utf-16-le")
        self.tree = rnd.randrange(1, 1 << 16)
        query = struct.pack("<HHHH", 9, 0, 72, len(share)) + share
        self.exchange(TREE, query, struct.pack("<HBBIII", 16, 1, 0, 0x30, 0, 0x1F01FF))

    def use(self):
        """A file is opened, read or written in pieces, and closed."""
        rnd = self.rnd
        label = f"{rnd.choice(WORDS)}\\{rnd.choice(WORDS)}{rnd.randrange(999)}.dat".encode("utf-16-le")
        query = struct.pack("<HBBIQQIII", 57, 0, 0, 2, 0, 0, 0x12019F, 0, 7)
        query += struct.pack("<IIHHII", 1, 0x40, 120, len(label), 0, 0)
        pieces = [rnd.randrange(500, 16384) for _ in range(3)]
        made = struct.pack("<HBBI", 89, 0, 0, 1) + TIME * 4
        made += struct.pack("<QQII", sum(pieces), sum(pieces), 0x20, 0)
        self.exchange(CREATE, query + label, made + self.file + bytes(8))
        offset, writes = 0, rnd.random() < 0.5
        for piece in pieces:
            data = rnd.randbytes(piece)
            if writes:
                query = struct.pack("<HHIQ", 49, 112, piece, offset) + self.file + bytes(16)
                self.exchange(WRITE, query + data, struct.pack("<HHIIHH", 17, 0, piece, 0, 0, 0))
            else:
                query = struct.pack("<HBBIQ", 49, 80, 0, piece, offset) + self.file
                query += struct.pack("<IIIHHB", 1, 0, 0, 0, 0, 0)
                self.exchange(READ, query, struct.pack("<HBBIII", 17, 80, 0, piece, 0, 0) + data)
            offset += piece
        closed = struct.pack("<HHI", 60, 0, 0) + bytes(52)
        self.exchange(CLOSE, struct.pack("<HHI", 24, 0, 0) + self.file, closed)

    def end(self):
        self.exchange(TREE_END, struct.pack("<HH", 4, 0), struct.pack("<HH", 4, 0))
        self.exchange(LOGOFF, struct.pack("<HH", 4, 0), struct.pack("<HH", 4, 0))


def smb(rnd):
    session = Smb(rnd)
    session.open()
    for _ in range(rnd.randrange(1, 5)):
        session.use()
    session.end()
    return session.messages


def ssh_packet(rnd, payload):
    """A packet before encryption (RFC 4253, section 6)."""
    padding = 8 - (len(payload) + 5) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack("!IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def ssh(rnd):
    """A session of SSH: banners, key exchange, then encrypted bytes of a shell."""
    lists = (
        b"curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group16-sha512",
        b"ssh-ed25519,rsa-sha2-512,rsa-sha2-256",
        *[b"chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,aes128-ctr"] * 2,
        *[b"umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-256"] * 2,
        *[b"none,zlib@openssh.com"] * 2,
        *[b""] * 2,
    )
    offer = lambda: b"\x14" + rnd.randbytes(16) + b"".join(vector(part, 4) for part in lists) + bytes(5)
    key = vector(b"ssh-ed25519", 4) + vector(rnd.randbytes(32), 4)
    signature = vector(vector(b"ssh-ed25519", 4) + vector(rnd.randbytes(64), 4), 4)
    reply = b"\x1f" + vector(key, 4) + vector(rnd.randbytes(32), 4) + signature
    messages = [
        (CLIENT, b"SSH-2.0-OpenSSH_9.%d\r\n" % rnd.randrange(2, 10)),
        (SERVER, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7\r\n"),
        (CLIENT, ssh_packet(rnd, offer())),
        (SERVER, ssh_packet(rnd, offer())),
        (CLIENT, ssh_packet(rnd, b"\x1e" + vector(rnd.randbytes(32), 4))),
        (SERVER, ssh_packet(rnd, reply) + ssh_packet(rnd, b"\x15")),
        (CLIENT, ssh_packet(rnd, b"\x15")),
    ]
    for _ in range(rnd.randrange(10, 60)):
        messages.append((CLIENT, rnd.randbytes(rnd.choice((36, 36, 44, 68)))))
        messages.append((SERVER, rnd.randbytes(rnd.choice((36, 44, 100, 500, 1200)))))
    return messages
