"""A fake manager for tests of the SDK and the command line: the real API over the in-memory store.

It runs on its own loop in a thread, so that tests and subprocesses can call it. Faults are injected
in front of the API: canned responses, and creations whose response is lost.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from typing import Any, Self, cast

import structlog
from aiohttp import web
from fake_openai import FakeOpenAi
from memory_events import MemoryEvents
from memory_store import ADMIN_KEY, MemoryStore
from pydantic import BaseModel
from scripted_session import START, ScriptedSession
from tests.scripted_agents import ScriptedCommands, ScriptedWorkspaces

from moorage.common.aio.clock import SystemClock
from moorage.common.http.head import HeadGuard
from moorage.common.http.server import DEFAULT_LIMITS
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import Status
from moorage.manager.api import ApiServices, build_runner, serve_locally

KEY = ADMIN_KEY


class FakeManager:
    """``with FakeManager() as manager``: ``manager.url`` and ``manager.openai_url`` are served.

    Reading drives the scripts: it advances a session or an endpoint by one status, and the event
    stream reports it. ``canned``: responses in place of the API's, by method and path.
    ``lost_responses``: creations that take effect but get no response. ``requests``: the method and
    path of every request. ``unanswered``: the request that gets no response.
    """

    def __init__(self) -> None:
        clock = SystemClock()
        self.store = MemoryStore(clock)
        self.store.sessions.next = {"script": list(START)}
        self.store.endpoints.starts_replicas = True
        self.openai = FakeOpenAi()
        self.canned: dict[tuple[str, str], tuple[int, BaseModel | str]] = {}
        self.canned_times: Counter[tuple[str, str]] = Counter()
        self.lost_responses = 0
        self.unanswered = ""
        self.requests: list[str] = []
        self.url = ""
        self.openai_url = ""
        self.events = MemoryEvents()
        self.execs = ScriptedCommands()

        # A test compares the methods that the API calls with those of the store.
        memory: Any = self.store
        self.services = ApiServices(
            store=memory,
            endpoints=memory.endpoints,
            terminator=memory.sessions,
            explanations=memory.explanations,
            logs=self.store.sessions,
            execs=self.execs,
            workspaces=ScriptedWorkspaces(),
            events=cast(Any, self.events),
            checks=_starting,
            metrics=_no_metrics,
            max_body_bytes=64 * 1024,
            version="1.2.3",
            clock=clock,
        )

    @property
    def sessions(self) -> list[ScriptedSession]:
        return self.store.sessions.scripted

    @property
    def endpoints(self) -> dict[str, EndpointSpec]:
        return self.store.endpoints.specs

    def next_session(self, **fields: Any) -> None:
        """Fields for sessions created from here on."""
        self.store.sessions.next = {"script": list(START)} | fields

    def add_session(self, spec: SessionSpec, **fields: Any) -> ScriptedSession:
        return self.store.sessions.add(spec, **fields)

    def add_endpoint(self, spec: EndpointSpec, **fields: Any) -> None:
        self.store.endpoints.add(spec, **fields)

    def set_agent(self, **fields: Any) -> None:
        """Replace fields of the only agent, such as its ``offers``."""
        [view] = self.store.agents.views
        self.store.agents.views = [view.model_copy(update=fields)]

    def can(
        self, method: str, path: str, status: int, body: BaseModel | str, *, times: int = 1_000
    ) -> None:
        """Respond to that request ``times`` times with ``status`` and ``body``, in place of the
        API."""
        self.canned[method, path] = (status, body)
        self.canned_times[method, path] = times

    def __enter__(self) -> Self:
        # The command line under test shares this process's stdout: the manager's log must not
        # appear there.
        self._captured_log = structlog.testing.capture_logs()
        self._captured_log.__enter__()
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started)), daemon=True
        )
        self._thread.start()
        assert started.wait(10)

        return self

    def listen_on(self, listening: socket.socket) -> None:
        """Also serve the API on a listening Unix socket."""
        serving = serve_locally(self._api, listening, DEFAULT_LIMITS)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._captured_log.__exit__(None, None, None)

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        api = build_runner(self.services, HeadGuard("127.0.0.1", setting="manager.allowed_hosts"))
        self._api = api
        assert api.app is not None
        api.app.middlewares.insert(0, self._inject_faults)
        openai = web.Application(middlewares=[self._inject_faults])
        openai.add_routes(
            [
                web.post("/v1/chat/completions", self.openai.chat),
                web.get("/v1/models/{name}", self.openai.model),
            ]
        )
        runners = api, web.AppRunner(openai, shutdown_timeout=0.1)
        try:
            for runner in runners:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()

            self.url, openai_url = (
                f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in runners
            )
            self.openai_url = f"{openai_url}/v1"
            started.set()
            await self._stopped.wait()
        finally:
            for runner in runners:
                await runner.cleanup()

    @web.middleware
    async def _inject_faults(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.raw_path}")
        if self.requests[-1] == self.unanswered:
            await self._stopped.wait()

        place = request.method, request.path
        if self.canned_times[place]:
            self.canned_times[place] -= 1
            status, body = self.canned[place]
            return web.Response(
                status=status, text=body if isinstance(body, str) else body.model_dump_json()
            )

        if request.method == "GET":
            self._advance(request)

        response: web.StreamResponse = await handler(request)
        if place == ("POST", "/v1/sessions") and self.lost_responses:
            self.lost_responses -= 1
            assert request.transport is not None
            request.transport.abort()

        return response

    def _advance(self, request: web.Request) -> None:
        resource = request.match_info.route.resource
        match resource.canonical if resource is not None else "":
            case "/v1/sessions/{ref}":
                session = self.store.sessions.find(request.match_info["ref"])
                if session is not None and (
                    session.endpoint is None or session.status is Status.TERMINATING
                ):
                    self._advance_one(session)
            case "/v1/endpoints/{name}":
                for replica in self.store.endpoints.replicas(request.match_info["name"]):
                    self._advance_one(replica)

    def _advance_one(self, session: ScriptedSession) -> None:
        if session.script:
            session.advance()
            self.events.parts.put_nowait(b"event: session\ndata: {}\n\n")


async def _no_metrics() -> bytes:
    return b""


async def _starting() -> dict[str, str]:
    return {"postgres": "not yet"}
