"""A node that only dials out serves a program: ``python examples/dial_out.py URL KEY OPENAI_URL``.

Set `proxy.dialout_listen = "0.0.0.0:8802"` on each proxy, and `agent.reach = "dial-out"` on the
agent. Nothing connects to the node.
"""

import asyncio
import sys
import urllib.error
import urllib.request

from moorage.sdk import Client, SessionSpec, Status

PROGRAM = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from behind NAT")

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SMALL = {"resources": {"cpu": 0.1, "mem": "32MiB"}}


def get(url: str, token: str) -> str:
    """The program's answer, once it listens."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read(), "utf-8")


async def main(url: str, key: str, openai_url: str) -> None:
    async with Client(url, key) as client:
        away = [agent for agent in await client.agents.list() if agent.reach == "dial-out"]
        for agent in away:
            print(agent.id, "is reached over its own connections:", agent.reach_reason)

        spec = SMALL | {
            "name": "away",
            "type": "interactive",
            "command": [sys.executable, "-c", PROGRAM, "{port:web}"],
            "ports": [{"name": "web"}],
            "agents": [away[0].id],
        }
        await client.sessions.create(SessionSpec.model_validate(spec))
        await client.sessions.wait("away", lambda view: view.status is Status.RUNNING, timeout_s=60)
        app = await client.access_tokens.create("away", "web")
        proxy = openai_url.removesuffix("/").removesuffix("/v1")
        for _ in range(100):
            try:
                print(
                    "the proxy answers:",
                    await asyncio.to_thread(get, f"{proxy}{app.path}/", app.access_token),
                )
                break
            except urllib.error.HTTPError:  # it does not listen yet
                await asyncio.sleep(0.2)

        # Kernels on several nodes would have to reach each other.
        cluster = SMALL | {"command": ["true"], "cluster": {"size": 2, "mode": "multi-node"}}
        planned = await client.sessions.plan(SessionSpec.model_validate(cluster))
        for line in planned.refusals:
            print("a cluster over two nodes:", line)

        await client.sessions.stop("away")


asyncio.run(main(*sys.argv[1:4]))
