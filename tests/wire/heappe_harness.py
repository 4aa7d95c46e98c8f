"""A job on the HEAppE test server and the path to its engine, for tests of the tunnel and the
relay."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.addresses import free_port
from tests.heappe import HeappeServer, Script, Site, Template

from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.relay import PATIENCE_S, Relay
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper, TunnelTarget
from moorage.common.aio.clock import Clock, ManualClock, SystemClock

JOB_SCRIPT = Path(__file__).parents[2] / "deploy" / "heappe" / "run.sh"
# An engine without dependencies: it echoes, refuses, streams on request, or returns the requested
# status.
ENGINE = """
import http.server, json, sys, threading, time

next_piece = threading.Semaphore(0)  # the stream continues when it is asked to

class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def say(self, status, body, kind="application/json", **more):
        self.send_response(status); self.send_header("Content-Type", kind)
        for n, v in more.items(): self.send_header(n.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/stream" or self.path == "/cut":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for n in range(3):
                piece = b"data: %d\\n\\n" % n
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(piece), piece))
                self.wfile.flush()
                if n < 2: next_piece.acquire()
            if self.path == "/cut":
                self.connection.shutdown(2); self.close_connection = True; return
            self.wfile.write(b"0\\r\\n\\r\\n"); return
        if self.path == "/next":
            next_piece.release()
            return self.say(200, b"{}")
        if self.path == "/hang":
            self.send_response(200); self.end_headers()
            try:
                while True: self.wfile.write(b"x"); self.wfile.flush(); time.sleep(0.05)
            except OSError:
                open("hung-up", "w").close(); self.close_connection = True; return
        if self.path.startswith("/status/"):
            return self.say(int(self.path[8:]), b'{"x": "\\xc3\\xa4"}', x_engine="mine", Retry_After="7")
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers)}
        self.say(200, json.dumps({**seen, "body": body.decode()}).encode())
    do_GET = do_POST = do_PUT = do_DELETE = handle_any
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


@dataclass
class Running:
    """``url``: the engine's URL, as seen by the proxy."""

    server: HeappeServer
    client: HeappeClient
    job: wire.HeappeJob
    keeper: TunnelKeeper
    url: str
    http: aiohttp.ClientSession
    clock: Clock

    async def advance(self, seconds: float) -> None:
        await self.server.advance(seconds)

    @property
    def engine(self) -> Any:
        return self.server.cluster.engine(self.job.name)


def specification(name: str, arguments: dict[str, str], walltime_s: int = 3600) -> dict[str, Any]:
    values = [{"CommandParameterIdentifier": n, "ParameterValue": v} for n, v in arguments.items()]
    task = {
        "Name": "engine", "MinCores": 1, "MaxCores": 1, "WalltimeLimit": walltime_s,
        "ProgressFile": "progress.txt", "LogFile": "log.txt", "ClusterNodeTypeId": 7,
        "CommandTemplateId": 11, "TemplateParameterValues": values,
    }  # fmt: skip
    return {
        "Name": name,
        "ProjectId": 1,
        "ClusterId": 2,
        "FileTransferMethodId": 3,
        "Tasks": [task],
    }


def blank(**values: str) -> dict[str, str]:
    names = ("args_b64", "args_b64_2", "args_b64_3", "args_b64_4")
    return {name: values.get(name, "-") for name in names}


@asynccontextmanager
async def plain(
    profile: str = "6.3.2", auth: str = "api-key", patience_s: float = PATIENCE_S
) -> AsyncIterator[Running]:
    """A job whose engine is reached by HEAppE without a relay in the job, in virtual time."""
    async with HeappeServer(profile, clock=ManualClock()) as server:
        client = HeappeClient(Account(server.url, "agent", "secret-agent", auth), server.clock)
        job = await client.create_job(specification("mg-test", blank()))
        await client.submit_job(job.id, 2)
        await server.advance(31)
        job = await client.job(job.id)
        (node,) = await client.node_ips(job.task.id)
        target = TunnelTarget(node, server.cluster.engine("mg-test").port)
        async with _relay(
            server, client, job, target, clock=server.clock, patience_s=patience_s
        ) as running:
            yield running


@asynccontextmanager
async def framed(profile: str = "6.3.2", heartbeat_s: float = 0) -> AsyncIterator[Running]:
    """A job that runs our job script with a real engine."""
    site = Site(templates=(Template(11, "engine", 7, command=str(JOB_SCRIPT)),))
    async with HeappeServer(profile, clock=SystemClock(), site=site) as server:
        server.cluster.script = lambda job: Script(engine="program")
        client = HeappeClient(Account(server.url, "agent", "secret-agent"), server.clock)
        job = await client.create_job(specification("mg-test", blank()))
        argv = [sys.executable, "-S", "-c", ENGINE, "@MOORAGE_PORT@"]
        launch = {"argv": argv, "env": {}, "serves": True, "heartbeat_s": heartbeat_s, "grace_s": 1}
        await client.upload(job.id, job.task.id, "launch.json", json.dumps(launch).encode())
        await client.submit_job(job.id, 2)
        told = await _progress(client, job)
        server.database.jobs[job.id].state = 8
        server.database.jobs[job.id].tasks[0].state = 8
        target = TunnelTarget("127.0.0.1", told["port"], told["key"])
        async with _relay(server, client, job, target, clock=server.clock) as running:
            async with asyncio.timeout(10):
                while (await running.http.get(f"{running.url}/x")).status != 200:
                    await asyncio.sleep(0.05)

            yield running


async def _progress(client: HeappeClient, job: wire.HeappeJob) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            parts = await client.file_parts(job.id, {(job.task.id, wire.PROGRESS_FILE): 0})
            for line in parts[0].content.splitlines() if parts else ():
                return json.loads(line)
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _relay(
    server: HeappeServer,
    client: HeappeClient,
    job: wire.HeappeJob,
    target: TunnelTarget,
    *,
    clock: Clock,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Running]:
    keeper = TunnelKeeper(client, job.task.id, target, clock)
    relay = Relay(client, lambda: keeper, patience_s)
    port = free_port()
    await relay.listen("127.0.0.1", port)

    try:
        async with aiohttp.ClientSession() as http:
            yield Running(
                server,
                client,
                job=job,
                keeper=keeper,
                url=f"http://127.0.0.1:{port}",
                http=http,
                clock=clock,
            )
    finally:
        await relay.close()
        await client.close()
