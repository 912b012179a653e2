# SPDX-License-Identifier: Apache-2.0
"""A web server that answers `/poll?SECONDS` after so long a time: poll.py PORT."""

import http.server
import socket
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(float(self.path.partition("?")[2] or 0))
        body = f"polled {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


Server(("::", int(sys.argv[1])), Handler).serve_forever()
