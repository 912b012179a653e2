# SPDX-License-Identifier: Apache-2.0
"""The servers of the suite: each with a configuration and a folder of its own, on its well-known port, at all addresses of the
server host. They are started once, and stopped by their process ids. A server whose program is missing is left out, and the
cases that need it say so.
"""

import mailbox
import os
import pwd
import random
import shutil
import socket
import subprocess
import time

from . import Wrong

HERE = os.path.dirname(os.path.abspath(__file__))
# Debian's: the modules of its packages are there for no other.
PYTHON = "/usr/bin/python3"
# Written by `files`.
BULK, TEXT, PAGE, SMALL = "bulk.bin", "text.txt", "page.bin", "small.bin"
SIZES = {BULK: 60_000_000, TEXT: 20_000_000, PAGE: 100_000, SMALL: 200}
POLL_PORT, SOCKET_PORT = 8081, 8082
NGINX = """daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000; client_max_body_size 0; client_body_temp_path {folder}/body;
  gzip on; gzip_types text/plain; gzip_comp_level 1; types {{ text/plain txt; application/octet-stream bin; }}
  server {{
    listen 80 backlog=2048; listen [::]:80 backlog=2048; listen 443 ssl http2; listen [::]:443 ssl http2;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    root {folder}/www;
    location /put/ {{ dav_methods PUT; create_full_put_path on; }}
  }}
}}
"""
DNSMASQ = """no-resolv
no-hosts
keep-in-foreground
local=/good.example/
port=53
user=root
cache-size=0
pid-file={folder}/dnsmasq.pid
{records}
"""
SSHD = """Port 22
AddressFamily any
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile {folder}/sshd.pid
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 100
Subsystem sftp internal-sftp
"""
RECORDS = 500


def record(number):
    """Name, IPv4 and IPv6 address of a record that the name server has."""
    return f"host{number}.good.example", f"10.99.{number // 250}.{number % 250 + 1}", f"fd99::{number + 1:x}"


def long_text():
    """Texts of a name, whose answer does not fit a datagram of 512 bytes, nor one frame."""
    return [f"{number:03d}" + "t" * 240 for number in range(9)]


class Servers:
    """Starts what there is; `lacking` says what is not: {server: what to install}."""

    def __init__(self, net, folder, share=1):
        """Of the large files a share: the short selection takes a quarter."""
        self.net, self.folder = net, folder
        self.sizes = {name: size // share if size > 1_000_000 else size for name, size in SIZES.items()}
        self.lacking = {}
        self.logs = {}
        os.makedirs(os.path.join(folder, "www", "put"))
        os.makedirs(os.path.join(folder, "ftp"))
        os.makedirs(os.path.join(folder, "mail"))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def put(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def files(self):
        """What is transferred; the same bytes in every run."""
        for seed, (name, size) in enumerate(self.sizes.items()):
            source = random.Random(seed)
            if name == TEXT:
                words = [f"word{source.randrange(5000)} " for _ in range(20_000)]
                data = "".join(words).encode()
                data = (data * (size // len(data) + 1))[:size]
            else:
                data = source.randbytes(size)
            for target in (self.path("www", name), self.path("ftp", name)):
                with open(target, "wb") as file:
                    file.write(data)

    def start_all(self):
        self.files()
        for name, (needs, start) in SERVERS.items():
            package = missing(needs)
            if package:
                self.lacking[name] = package
                continue
            ports = start(self)
            for port in ports:
                self.wait(name, port)

    def spawn(self, name, command, which="s", **more):
        self.logs[name] = self.path(f"{name}.log")
        with open(self.logs[name], "w") as log:
            return self.net.start(which, command, log, **more)

    def wait(self, name, port):
        end = time.monotonic() + 30
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            while not self.listens(family, address, port):
                if time.monotonic() > end:
                    with open(self.logs[name]) as log:
                        raise Wrong(f"the server {name} does not listen on {address}, port {port}, after 30 s: {log.read()[-600:]}")
                time.sleep(0.05)

    def listens(self, family, address, port):
        with self.net.socket("s", family, socket.SOCK_STREAM) as sock:
            return sock.connect_ex((address, port)) == 0


def missing(needs):
    """The first Debian package of `needs` whose program, or whose module of Python, is not there."""
    for what, package in needs:
        if what.startswith("python:"):
            done = subprocess.run([PYTHON, "-c", "import " + what.removeprefix("python:")], capture_output=True)
            if done.returncode != 0:
                return package
        elif not (shutil.which(what) or os.path.isdir(what)):
            return package
    return None


def quiet(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Wrong(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-600:]}")


def nginx(self):
    quiet(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=good.example"]
        + ["-addext", "subjectAltName=DNS:good.example", "-keyout", self.path("key.pem"), "-out", self.path("cert.pem")]
    )
    self.put("nginx.conf", NGINX.format(folder=self.folder))
    self.spawn("nginx", ["nginx", "-e", self.path("nginx.log"), "-c", self.path("nginx.conf")])
    return 80, 443


def dnsmasq(self):
    lines = [f"host-record={','.join(record(number))}" for number in range(RECORDS)]
    lines += [f"txt-record=long.good.example,{text}" for text in long_text()]
    self.put("dnsmasq.conf", DNSMASQ.format(folder=self.folder, records="\n".join(lines)))
    self.spawn("dnsmasq", ["dnsmasq", "-C", self.path("dnsmasq.conf")])
    return (53,)


def sshd(self):
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host_key", "client_key"):
        quiet(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)])
    self.put("sshd.conf", SSHD.format(folder=self.folder))
    self.spawn("sshd", [shutil.which("sshd"), "-D", "-e", "-f", self.path("sshd.conf")])
    return (22,)


def smtp(self):
    # Both servers would make it if it were not there, and one of them would fail.
    mailbox.Maildir(self.path("mail", "box"))
    command = [PYTHON, "-m", "aiosmtpd", "-n", "-s", "67108864", "-c", "aiosmtpd.handlers.Mailbox", self.path("mail", "box")]
    self.spawn("smtp", [*command, "-l", ":::25"])
    self.spawn("smtp4", [*command, "-l", "0.0.0.0:25"])
    return (25,)


def ftp(self):
    # Its `::` takes both versions.
    self.spawn("ftp", [PYTHON, "-W", "ignore", "-m", "pyftpdlib", "-i", "::", "-p", "21", "-w", "-d", self.path("ftp")])
    return (21,)


def postgresql(self):
    data, user = self.path("pg"), pwd.getpwnam("postgres")
    os.mkdir(data, 0o700)
    os.chown(data, user.pw_uid, user.pw_gid)
    tools = postgresql_tools()
    be = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    quiet([*be, f"{tools}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"])
    with open(f"{data}/pg_hba.conf", "a") as file:
        file.write("host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")
    options = ["-c", "listen_addresses=*", "-c", "unix_socket_directories=", "-c", "fsync=off"]
    self.spawn("postgresql", [*be, f"{tools}/postgres", "-D", data, *options], cwd="/")
    return (5432,)


def postgresql_tools():
    """The newest version's folder of programs, which Debian keeps out of the path."""
    root = "/usr/lib/postgresql"
    versions = sorted((name for name in os.listdir(root) if name.isdigit()), key=int) if os.path.isdir(root) else []
    return f"{root}/{versions[-1]}/bin" if versions else ""


def redis(self):
    options = ["--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir", self.folder]
    self.spawn("redis", ["redis-server", "--port", "6379", "--bind", "0.0.0.0", "::", *options])
    return (6379,)


def iperf(self):
    self.spawn("iperf3", ["iperf3", "-s", "--rcv-timeout", "3000"])
    return (5201,)


def poll(self):
    self.spawn("poll", [PYTHON, os.path.join(HERE, "poll.py"), str(POLL_PORT)])
    return (POLL_PORT,)


def websocket(self):
    self.spawn("websocket", [PYTHON, os.path.join(HERE, "websocket.py"), "serve", str(SOCKET_PORT)])
    return (SOCKET_PORT,)


# name: ([(program, Debian package)], what starts it and gives the ports that it must listen on)
SERVERS = {
    "nginx": ([("nginx", "nginx-light"), ("openssl", "openssl")], nginx),
    "dnsmasq": ([("dnsmasq", "dnsmasq-base")], dnsmasq),
    "sshd": ([("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")], sshd),
    "smtp": ([("python:aiosmtpd", "python3-aiosmtpd")], smtp),
    "ftp": ([("python:pyftpdlib", "python3-pyftpdlib")], ftp),
    "postgresql": ([("/usr/lib/postgresql", "postgresql")], postgresql),
    "redis": ([("redis-server", "redis-server")], redis),
    "iperf3": ([("iperf3", "iperf3")], iperf),
    "poll": ([(PYTHON, "python3")], poll),
    "websocket": ([("python:websockets", "python3-websockets")], websocket),
}
