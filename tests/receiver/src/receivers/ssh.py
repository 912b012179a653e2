#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts OpenSSH's server for each connection, and says what it has read of the client's identification: a line of JSON with the client's
address and the software that the client has named.

usage: ssh.py PORT SSHD SETTINGS
"""
import json
import re
import socket
import subprocess
import sys
import threading

SAYS = re.compile(r"[Rr]emote protocol version \S+, remote software version (.*)")


def serve(sock, address):
    command = [sys.argv[2], "-i", "-e", "-f", sys.argv[3], "-o", "LogLevel=DEBUG1"]
    sshd = subprocess.Popen(command, stdin=sock, stdout=sock, stderr=subprocess.PIPE, text=True, errors="replace")
    sock.close()
    for line in sshd.stderr:
        if found := SAYS.search(line):
            print(json.dumps({"address": address.removeprefix("::ffff:"), "names": [found[1]]}), flush=True)
    sshd.wait()


listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
listener.bind(("::", int(sys.argv[1])))
listener.listen(4096)
while True:
    sock, peer = listener.accept()
    threading.Thread(target=serve, args=(sock, peer[0]), daemon=True).start()
