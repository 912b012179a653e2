# SPDX-License-Identifier: Apache-2.0
"""The controller's REST API, as a client sees it that keeps its connection and makes a new one when that breaks."""
import http.client
import json
import ssl

from . import Wrong


class Gone(Exception):
    """There was no answer. Whether the controller has done what it was asked is not known."""


class Rest:
    def __init__(self, port, certificate, token, limit=45.0):
        self.port, self.token, self.limit, self.connection = port, token, limit, None
        self.context = ssl.create_default_context(cafile=certificate)

    def ask(self, method, path, body=None):
        """Status and body of an answer."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPSConnection("localhost", self.port, timeout=self.limit, context=self.context)
            plain = isinstance(body, str)
            data = body if body is None or plain else json.dumps(body)
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "text/plain" if plain else "application/json"}
            self.connection.request(method, "/v1" + path, data, headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Gone(str(error)) from None
        try:
            return answer.status, json.loads(text or b"null")
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def good(self, method, path, body=None):
        """The body of an answer that has to be a good one."""
        status, answer = self.ask(method, path, body)
        if not 200 <= status < 300:
            raise Wrong(f"{method} {path}: {status} {answer}")
        return answer

    def read(self, path):
        """A document, over a new connection if the old one is gone."""
        for attempt in range(3):
            try:
                return self.good("GET", path)
            except Gone:
                if attempt == 2:
                    raise

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
