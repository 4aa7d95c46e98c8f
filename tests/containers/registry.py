"""Fake image registry on loopback with one small image. It implements the calls that a pull
uses."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import secrets
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LAYER_BYTES = 2_000_000
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


_JSON = "application/json"


def _error(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry:
    """``open``: while cleared, only the first half of the layer is served. ``error_status``: an
    HTTP status for all requests, or 0 for none. ``login``: the required ``user:password``, or ""
    for none."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.error_status = 0
        self.login = ""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            entry = tarfile.TarInfo("file")
            entry.size = LAYER_BYTES

            # Random, so that no two registries serve the same image.
            tar.addfile(entry, io.BytesIO(secrets.token_bytes(LAYER_BYTES)))

        root = {"type": "layers", "diff_ids": [_digest(layer.getvalue())]}
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": root,
            "history": [],
        }
        self.blobs = {
            _digest(data): data for data in (layer.getvalue(), json.dumps(config).encode())
        }
        (layer_id, layer_data), (config_id, config_data) = self.blobs.items()
        kind = "application/vnd.docker."
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {
                "mediaType": f"{kind}container.image.v1+json",
                "size": len(config_data),
                "digest": config_id,
            },
            "layers": [
                {
                    "mediaType": f"{kind}image.rootfs.diff.tar",
                    "size": len(layer_data),
                    "digest": layer_id,
                }
            ],
        }
        self.manifest = json.dumps(manifest).encode()
        self.digest = _digest(self.manifest)
        self.address = ""

    def answer(self, path: str) -> tuple[int, bytes, str]:
        """Status, body and content type."""
        self.requests.append(path)
        if self.error_status:
            return (
                self.error_status,
                b'{"errors": [{"code": "DENIED", "message": "not for you"}]}',
                "application/json",
            )

        if path == "/v2/":
            return 200, b"{}", _JSON

        what, name = path.split("/")[-2:]
        if what == "manifests" and name in ("1", self.digest):
            return 200, self.manifest, _MANIFEST
        if what == "blobs" and name in self.blobs:
            return 200, self.blobs[name], "application/octet-stream"

        return (
            404,
            b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}',
            "application/json",
        )


_NOT_LOGGED_IN = _error("UNAUTHORIZED", "authentication required")


@contextmanager
def registry() -> Iterator[Registry]:
    store = Registry()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            presented = self.headers.get("Authorization", "")
            expected = "Basic " + base64.b64encode(store.login.encode()).decode()
            authorized = not store.login or presented == expected
            status, body, kind = (
                store.answer(self.path) if authorized else (401, _NOT_LOGGED_IN, _JSON)
            )
            self.send_response(status)
            if not authorized:
                self.send_header("WWW-Authenticate", 'Basic realm="tests"')

            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()

            if self.command == "GET":
                half = len(body) // 2 if len(body) > LAYER_BYTES else 0
                self.wfile.write(body[:half])
                if half:
                    store.open.wait(60)

                self.wfile.write(body[half:])

        do_HEAD = do_GET

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.address = f"127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()

    try:
        yield store
    finally:
        store.open.set()
        server.shutdown()
        server.server_close()
        serving.join()
