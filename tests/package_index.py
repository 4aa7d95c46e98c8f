"""A package index on loopback, with wheels made here, from which pip installs engines."""

from __future__ import annotations

import io
import os
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ENGINE = Path(__file__).parent / "e2e" / "naming_engine.py"
_MAIN = """import runpy, sys
def main():
    if "--version" in sys.argv:
        print("{version}")
    else:
        runpy.run_module("vllm.engine", run_name="__main__")
"""


def vllm_wheel(version: str = "0.33.0") -> tuple[str, bytes]:
    """The file name and the bytes of a wheel whose ``vllm`` command is the scripted engine."""
    info = f"vllm-{version}.dist-info"
    files = {
        "vllm/__init__.py": _MAIN.format(version=version),
        "vllm/engine.py": ENGINE.read_text(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nvllm = vllm:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            wheel.writestr(name, text)

    return f"vllm-{version}-py3-none-any.whl", packed.getvalue()


class PackageIndex:
    """An index in the layout of PEP 503. ``released``: wheels are sent only while it is set.
    ``asked`` is set by the first request for a wheel. ``downloads``: how many times a wheel was
    sent."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked = threading.Event()
        self.downloads = 0
        self.released.set()
        index = self
        (name, wheel) = vllm_wheel()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(name):
                    index.asked.set()
                    index.released.wait(60)
                    index.downloads += 1
                    self._answer(200, wheel, "application/zip")
                elif self.path.rstrip("/").endswith("/simple/vllm"):
                    self._answer(200, f'<a href="/files/{name}">{name}</a>'.encode(), "text/html")
                else:
                    self._answer(404, b"", "text/html")

            def _answer(self, status: int, data: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # it was killed during the download

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> PackageIndex:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def env(self) -> dict[str, str]:
        """The variables with which pip uses only this index."""
        return pip_env(f"http://127.0.0.1:{self._server.server_port}/simple")


def pip_env(url: str) -> dict[str, str]:
    return {
        "PIP_INDEX_URL": url, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1",
        "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
