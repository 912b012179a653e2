#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A web server (that of Python's library) that says which path each client asked for: a line of JSON for each request that it has served.

usage: web.py PORT
"""
import http.server
import json
import socket
import sys
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 4

    def serve(self):
        length = self.headers.get("Content-Length", "")
        if length.isdigit():
            self.rfile.read(min(int(length), 1 << 20))
        path = urllib.parse.unquote(self.path)
        print(json.dumps({"address": self.client_address[0], "port": self.client_address[1], "names": [path]}), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    do_GET = do_HEAD = do_POST = do_PUT = do_FOO = do_PATCH = do_OPTIONS = serve

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
