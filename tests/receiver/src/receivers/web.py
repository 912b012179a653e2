#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A web server (that of Python's library) that says which path each client asked for, with which body or which files of a form: a line of
JSON for each request that it has served. It is as lenient as servers are: it passes over white space before a request, takes any method, and does without
a version behind one that is a token; a body goes by its length.

usage: web.py PORT
"""
import email.parser
import http.server
import json
import re
import socket
import sys
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 4

    def parse_request(self):
        while not self.raw_requestline.strip():
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline:
                return False
        words = self.raw_requestline.split()
        if len(words) == 2 and re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", words[0]):
            self.raw_requestline = self.raw_requestline.rstrip() + b" HTTP/1.0\r\n"
        return super().parse_request()

    def content(self, body):
        kind = self.headers.get("Content-Type", "")
        if not kind.lower().startswith("multipart/"):
            return [body.decode("latin-1")]
        form = email.parser.BytesParser().parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
        return [part.get_filename() or "" for part in form.walk()]

    def serve(self):
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(min(int(length), 1 << 20)) if length.isdigit() else b""
        names = [urllib.parse.unquote(self.path), *self.content(body)]
        print(json.dumps({"address": self.client_address[0], "port": self.client_address[1], "names": names}), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.serve
        raise AttributeError(name)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 4096
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("::", int(sys.argv[1])), Handler)
print(json.dumps({"ready": True}), flush=True)
server.serve_forever()
