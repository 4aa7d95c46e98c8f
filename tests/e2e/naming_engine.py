"""An engine with vLLM's command line whose answers name its process, its revision and the model."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = {
            "pid": os.getpid(),
            "revision": os.environ.get("REVISION", ""),
            "model": body["model"],
        }
        self._answer(200, found)

    def _answer(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
