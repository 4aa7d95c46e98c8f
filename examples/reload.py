"""Programs that read their settings again, without a restart: ``python examples/reload.py URL
KEY``.

``gateway`` is a cluster whose programs have a handler for SIGHUP and acknowledge through their
progress. ``web`` has a path for reloads on a service port. The settings are in a file that the
programs' node can read.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from moorage.common.views.resources import SessionView
from moorage.sdk import Client, SessionSpec

BY_SIGNAL = """
import json, os, signal, sys

def report(**line):
    with open(os.environ["MOORAGE_PROGRESS"], "a") as file:
        print(json.dumps(line), file=file)

def load(*_):
    try:
        settings = json.load(open(sys.argv[1]))
    except ValueError as error:
        report(reloaded=False, message=str(error))
    else:
        report(reloaded=True)

signal.signal(signal.SIGHUP, load)
report(message="serving")
while True:
    signal.pause()
"""
BY_REQUEST = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        try:
            json.load(open(sys.argv[1]))
        except ValueError as error:
            self.send_error(422, str(error))
        else:
            self.send_response(204)
            self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
with open(os.environ["MOORAGE_PROGRESS"], "a") as file:
    print(json.dumps({"message": "serving"}), file=file)
server.serve_forever()
"""


def is_serving(view: SessionView) -> bool:
    return bool(view.kernels) and all(kernel.progress is not None for kernel in view.kernels)


async def main(url: str, key: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings.json")
        small = {"type": "interactive", "resources": {"cpu": 0.1, "mem": "16MiB"}}
        gateway = {
            "name": "gateway",
            "command": [sys.executable, "-c", BY_SIGNAL, str(settings)],
            "cluster": {"size": 2},
            "reload": {"signal": "HUP", "acknowledge": "progress"},
        }
        web = {
            "name": "web",
            "command": [sys.executable, "-c", BY_REQUEST, str(settings), "{port:admin}"],
            "ports": [{"name": "admin"}],
            "reload": {"http": "/-/reload", "port": "admin"},
        }
        async with Client(url, key) as client:
            for spec in (gateway, web):
                await client.sessions.create(SessionSpec.model_validate(small | spec))
            for name in ("gateway", "web"):
                await client.sessions.wait(name, is_serving, timeout_s=60)

            for text in ('{"workers": 2}', '{"workers"'):
                settings.write_text(text)
                for name in ("gateway", "web"):
                    asked = await client.sessions.reload(name)
                    view = await client.sessions.wait_reloaded(asked, timeout_s=60)
                    for kernel in view.kernels:
                        if kernel.reload is not None:
                            print(name, kernel.hostname, kernel.reload.state, kernel.reload.detail)

            for name in ("gateway", "web"):
                await client.sessions.stop(name)


asyncio.run(main(*sys.argv[1:3]))
