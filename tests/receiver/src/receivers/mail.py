#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the mail in Exim's queue as readers of mail do, and removes it: a line of JSON for each, with its client's address and with what its
receiver gets to see: sender, recipients, name of the client, subject, and of each attachment all its names and its content.

usage: mail.py FOLDER
"""
import email
import email.header
import email.policy
import email.utils
import json
import os
import re
import sys
import time


def envelope(text):
    """Address of the client, texts of the envelope, header of the message."""
    head, _, rest = text.partition(b"\n\n")
    lines = head.split(b"\n")
    names, address = [lines[2].decode("latin-1")], ""
    for at, line in enumerate(lines):
        if line.startswith(b"-host_address "):
            address = re.sub(rb"\].*|\[", b"", line.split(b" ", 1)[1]).decode()
        elif line.startswith((b"-helo_name ", b"--helo_name ")):
            names.append(line.split(b" ", 1)[1].decode("latin-1"))
        elif re.fullmatch(rb"\d+", line) and at > 3:
            names += [line.decode("latin-1") for line in lines[at + 1:]]
    header = b""
    while match := re.match(rb"(\d{3,})(.) ", rest):
        length = int(match[1])
        text = rest[match.end():match.end() + length]
        # Marked fields are Exim's own notes.
        header += b"" if match[2] == b"*" else text
        rest = rest[match.end() + length:]
    return address, names, header


def words(text):
    """A name as it stands there, and with encoded words (RFC 2047) decoded."""
    yield text
    try:
        yield str(email.header.make_header(email.header.decode_header(text)))
    except Exception:
        pass


def parts(message):
    names = [str(message.get("Subject", ""))]
    for part in message.walk():
        found = [part.get_filename(), part.get_param("name"), part.get_param("filename", header="content-disposition")]
        for name in filter(None, found):
            names += words(email.utils.collapse_rfc2231_value(name))
        if any(found) or part.get_content_disposition() == "attachment":
            content = part.get_payload(decode=True)
            names.append((content or b"").decode("latin-1"))
    return names


def read(folder, name):
    with open(os.path.join(folder, name + "-H"), "rb") as file:
        address, names, header = envelope(file.read())
    with open(os.path.join(folder, name + "-D"), "rb") as file:
        body = file.read().partition(b"\n")[2]
    message = email.message_from_bytes(header + b"\n" + body, policy=email.policy.compat32)
    return {"address": address, "names": names + parts(message)}


folder = sys.argv[1]
while True:
    for file in sorted(os.listdir(folder)):
        if not file.endswith("-H"):
            continue
        name = file.removesuffix("-H")
        try:
            print(json.dumps(read(folder, name)), flush=True)
        except FileNotFoundError:
            continue
        for end in "HDJ":
            try:
                os.remove(os.path.join(folder, f"{name}-{end}"))
            except FileNotFoundError:
                pass
    time.sleep(0.02)
