# SPDX-License-Identifier: Apache-2.0
"""Shell, mail and files: OpenSSH, SMTP, FTP in both modes."""

import base64
import os
import time

from good.case import Case, digest, equal, need, same_file
from good.servers import BULK, TEXT

CURL = (("curl", "curl"),)


def ssh_options(way):
    return [
        "-i", way.servers.path("client_key"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
        "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR", "-F", "none",
    ]  # fmt: skip


def ssh(way):
    """Commands and their exit status, 20 MB each way through a pipe, an interactive exchange in small pieces."""
    base = ["ssh", *ssh_options(way), f"root@{way.server}"]
    equal(way.command([*base, "echo hello"]), b"hello\n", "what the command said")
    way.command([*base, "exit 7"], status=7)
    with open(way.servers.path("www", TEXT), "rb") as file:
        text = file.read()
    equal(way.command([*base, "sha256sum"], data=text).split()[0].decode(), digest(text), "digest at the server")
    equal(digest(way.command([*base, f"cat {way.servers.path('www', TEXT)}"])), digest(text), "digest at the client")
    equal(way.command([*base, "for i in $(seq 150); do echo $i; sleep 0.002; done"]).split()[-1], b"150", "last line")


def sftp(way):
    target, batch = os.path.join(way.folder, "fetched"), os.path.join(way.folder, "batch")
    with open(batch, "w") as file:
        file.write(f"get {way.servers.path('www', BULK)} {target}\n")
    host = f"root@[{way.server}]" if way.version == 6 else f"root@{way.server}"
    way.command(["sftp", *ssh_options(way), "-b", batch, host])
    same_file(target, way.servers.path("www", BULK), "the file")


def mail(way):
    """Fifty short messages and one of 8 MB with an attachment; what arrived is compared."""
    box = way.servers.path("mail", "box", "new")
    before = set(os.listdir(box)) if os.path.isdir(box) else set()
    with open(way.servers.path("www", BULK), "rb") as file:
        data = file.read(6_000_000)
    attachment = base64.encodebytes(data).decode().replace("\n", "\r\n")
    head = "From: a@good.example\r\nTo: b@good.example\r\nSubject: {}\r\nMIME-Version: 1.0\r\n"
    texts = [head.format(f"short {number}") + f"\r\nHello {number}.\r\n.. and dots\r\n" for number in range(50)]
    texts.append(head.format("long") + "Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n" + attachment)
    for number, text in enumerate(texts):
        path = os.path.join(way.folder, "message")
        with open(path, "w", newline="") as file:
            file.write(text)
        way.curl("--mail-from", "a@good.example", "--mail-rcpt", "b@good.example", "-T", path, way.url("client", "smtp"))
    new = sorted(set(os.listdir(box)) - before)
    equal(len(new), len(texts), "messages that arrived")
    expected = sorted(digest("".join(text.split("\r\n\r\n", 1)[1].split()).encode()) for text in texts)
    seen = []
    for name in new:
        with open(os.path.join(box, name), "rb") as file:
            seen.append(digest(b"".join(file.read().replace(b"\r\n", b"\n").split(b"\n\n", 1)[1].split())))
        os.remove(os.path.join(box, name))
    equal(sorted(seen), expected, "digests of the messages")


def ftp(way, *mode):
    """A file down and up, and a listing."""
    target = os.path.join(way.folder, "ftp")
    way.curl(*mode, "-o", target, way.url(BULK, "ftp"))
    same_file(target, way.servers.path("ftp", BULK), "the file that was fetched")
    name = f"up-{time.monotonic_ns()}"
    way.curl(*mode, "-T", target, way.url(name, "ftp"))
    same_file(way.servers.path("ftp", name), target, "the file that was put")
    need(name.encode() in way.curl(*mode, way.url("", "ftp")), "the listing lacks the new file")
    os.remove(way.servers.path("ftp", name))


def ftp_passive(way):
    ftp(way)
    if way.version == 4:
        ftp(way, "--disable-epsv")


def ftp_active(way):
    ftp(way, "--ftp-port", "-")
    if way.version == 4:
        ftp(way, "--ftp-port", "-", "--disable-eprt")


SSH = (("ssh", "openssh-client"),)
CASES = [
    Case("ssh", ssh, ("sshd",), SSH, short=True),
    Case("sftp-60mb", sftp, ("sshd",), (("sftp", "openssh-client"),), timed=True),
    Case("smtp", mail, ("smtp",), CURL, short=True),
    Case("ftp-passive", ftp_passive, ("ftp",), CURL, timed=True, short=True),
    Case("ftp-active", ftp_active, ("ftp",), CURL, timed=True, short=True),
]
