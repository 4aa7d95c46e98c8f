"""A small server that plays the REST contract and the OpenAI API, on a loop of its own in a thread.

All answers are made of ``common.api`` models, so it cannot drift from the contract's shapes. A session's
life is a script of moves: each look at it (or at its endpoint) plays the next one.
"""

import asyncio
import json
import threading
from typing import Any, Self

from aiohttp import web
from played import BORN, Played
from played_apps import PlayedApps
from played_keys import routes as key_routes
from played_stats import routes as stats_routes
from pydantic import BaseModel, ValidationError

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.reasons import Reason
from moorage.common.model.slots import parse_amount
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import (
    AgentStatus,
    EndpointStatus,
    Status,
)
from moorage.common.views.keys import KeyView
from moorage.common.views.resources import (
    AgentView,
    EndpointView,
    GroupOptions,
    GroupView,
    Health,
    HistoryEntry,
    OfferView,
    Page,
    Problem,
    QuotaView,
    Scale,
    SessionView,
)

KEY = "test-key"


class RestManager:
    """``with RestManager() as manager``: ``manager.url`` and ``manager.openai_url`` answer.

    ``next_session`` holds fields of the sessions that are created next.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, Played] = {}
        self.endpoints: dict[str, EndpointSpec] = {}
        self.next_session: dict[str, Any] = {}
        self.made_once: dict[str, Played] = {}
        self.lose_answers = 0  # creates that happen and are not answered
        self.refuse: dict[tuple[str, str], tuple[int, BaseModel | str]] = {}
        self._refusals_left: dict[tuple[str, str], int] = {}
        self.answer: list[str | dict[str, Any]] = [" the sea", " and the moon", "."]
        self.done_event = True
        self.asked: list[Any] = []
        self.seen: list[str] = []
        self.groups = {"default": GroupOptions()}
        self.quotas: dict[tuple[str, str], QuotaView] = {}
        self.keys: dict[str, KeyView] = {}
        self.offered = PlayedApps()
        self.offers: list[OfferView] = []
        self.url = self.openai_url = ""

    # -- running --

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)), daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _main(self, started: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(middlewares=[self._guard])
        session, endpoint = "/v1/sessions/{ref}", "/v1/endpoints/{name}"
        app.add_routes(
            [
                web.post("/v1/sessions", self._create_session),
                web.get("/v1/sessions", self._list_sessions),
                web.get(session, self._get_session),
                web.post(session + "/stop", self._stop),
                web.get(session + "/history", self._history),
                web.get(session + "/logs", self._logs),
                web.post("/v1/endpoints", self._create_endpoint),
                web.get("/v1/endpoints", self._list_endpoints),
                web.get(endpoint, self._get_endpoint),
                web.post(endpoint + "/scale", self._scale),
                web.delete(endpoint, self._delete_endpoint),
                web.get("/v1/agents", self._agents),
                web.get("/v1/agents/{id}", self._agent),
                web.delete("/v1/agents/{id}", self._forget),
                web.get("/v1/groups", self._groups),
                web.get("/v1/groups/{name}", self._group),
                web.put("/v1/groups/{name}", self._put_group),
                web.get("/v1/quotas", self._quotas),
                web.get("/v1/quotas/{scope}/{name}", self._quota),
                web.put("/v1/quotas/{scope}/{name}", self._put_quota),
                web.delete("/v1/quotas/{scope}/{name}", self._delete_quota),
                *key_routes(self.keys),
                *stats_routes(self),
                *self.offered.routes(),
                web.get("/readyz", self._ready),
                web.post("/openai/v1/chat/completions", self._chat),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.openai_url = f"{self.url}/openai/v1"
        started.set()
        await self._end.wait()
        await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.raw_path}")
        if request.path != "/readyz" and request.headers.get("Authorization") != f"Bearer {KEY}":
            return problem(401, "unauthenticated", "no valid API key was given")
        if refusal := self.refuse.get((request.method, request.path)):
            status, body = refusal
            self._count_refusal(request.method, request.path)
            text = body if isinstance(body, str) else body.model_dump_json()
            return web.Response(status=status, text=text)
        try:
            answer = await handler(request)
        except ValidationError as error:
            return problem(422, "invalid-input", str(error.errors()[0]["msg"]))
        assert isinstance(answer, web.StreamResponse)
        return answer

    def lift_after(self, method: str, path: str, times: int) -> None:
        """That refusal happens only so often."""
        self._refusals_left[method, path] = times

    def _count_refusal(self, method: str, path: str) -> None:
        left = self._refusals_left.get((method, path))
        if left is not None:
            self._refusals_left[method, path] = left - 1
            if left <= 1:
                del self.refuse[method, path]

    # -- sessions --

    def add_session(self, spec: SessionSpec, endpoint: str | None = None, **fields: Any) -> Played:
        number = len(self.sessions) + 1
        session_id = f"session-{number:04}"
        name = spec.name or f"{spec.type}-{number}"
        made = Played(session_id, name, spec, endpoint, **(self.next_session | fields))
        self.sessions[session_id] = made
        return made

    def _session(self, request: web.Request) -> Played | None:
        ref = request.match_info["ref"]
        return next((s for s in self.sessions.values() if ref in (s.id, s.name)), None)

    async def _create_session(self, request: web.Request) -> web.Response:
        spec = SessionSpec.model_validate_json(await request.read())
        key = request.headers.get("Idempotency-Key", "")
        if (made := self.made_once.get(key)) is None:
            made = self.add_session(spec)
            if key:
                self.made_once[key] = made
        if self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return shown(made.view(), 201)

    async def _list_sessions(self, request: web.Request) -> web.Response:
        wanted = {Status(s) for s in request.query.get("status", "").split(",") if s} or set(Status)
        endpoint = request.query.get("endpoint")
        found = [s for s in self.sessions.values() if s.status in wanted and endpoint in (None, s.endpoint)]
        newest = [s.view() for s in reversed(found)]
        start, limit = int(request.query.get("cursor", "0")), int(request.query["limit"])
        following = str(start + limit) if start + limit < len(newest) else None
        return shown(Page[SessionView](items=newest[start : start + limit], next=following))

    async def _get_session(self, request: web.Request) -> web.Response:
        if (found := self._session(request)) is None:
            return problem(404, "not-found", f"no session {request.match_info['ref']!r}")
        if found.endpoint is None or found.status is Status.TERMINATING:
            found.look()
        return shown(found.view())

    async def _stop(self, request: web.Request) -> web.Response:
        if (found := self._session(request)) is None:
            return problem(404, "not-found", "no such session")
        found.end(Reason.USER_REQUESTED)
        return shown(found.view(), 202)

    async def _history(self, request: web.Request) -> web.Response:
        found = self._session(request)
        assert found is not None
        return shown(Page[HistoryEntry](items=found.history))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        if (found := self._session(request)) is None:
            return problem(404, "not-found", "no such session")
        lines = b"".join(found.log).splitlines(keepends=True)
        tail = int(request.query.get("tail", "0"))
        pieces = found.log if not tail else lines[-tail:]
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if found.log_breaks and request.transport is not None:
            request.transport.abort()
            return response
        await response.write_eof()
        return response

    # -- endpoints --

    def add_endpoint(self, spec: EndpointSpec, **fields: Any) -> None:
        self.endpoints[spec.name] = spec
        for _ in range(spec.replicas):
            name = f"{spec.name}-r{len(self.sessions) + 1}"
            self.add_session(spec.session(name), endpoint=spec.name, **fields)

    def _view(self, name: str) -> EndpointView:
        spec = self.endpoints[name]
        replicas = [s for s in self.sessions.values() if s.endpoint == name]
        ready = sum(s.status is Status.RUNNING for s in replicas)
        failed = [s for s in replicas if s.status is Status.ERROR]
        status = EndpointStatus.READY if ready else EndpointStatus.LOADING
        return EndpointView(
            id="endpoint-1",
            name=name,
            status=EndpointStatus.DEGRADED if failed else status,
            replicas=spec.replicas,
            ready=ready,
            reason=failed[-1].reason if failed else Reason.NONE,
            detail=failed[-1].detail if failed else "",
            failures=len(failed),
            revision=1,
            created_at=BORN,
            spec=spec,
            sessions=[s.replica() for s in replicas],
        )

    async def _create_endpoint(self, request: web.Request) -> web.Response:
        spec = EndpointSpec.model_validate_json(await request.read())
        if spec.name in self.endpoints:
            return problem(409, "conflict", f"an endpoint is already called {spec.name!r}", "choose another")
        self.add_endpoint(spec)
        return shown(self._view(spec.name), 201)

    async def _list_endpoints(self, request: web.Request) -> web.Response:
        return shown(Page[EndpointView](items=[self._view(name) for name in self.endpoints]))

    async def _get_endpoint(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.endpoints:
            return problem(404, "not-found", f"no endpoint {name!r}")
        for session in self.sessions.values():
            if session.endpoint == name:
                session.look()
        return shown(self._view(name))

    async def _scale(self, request: web.Request) -> web.Response:
        name, scale = request.match_info["name"], Scale.model_validate_json(await request.read())
        if name not in self.endpoints:
            return problem(404, "not-found", f"no endpoint {name!r}")
        self.endpoints[name] = self.endpoints[name].model_copy(update={"replicas": scale.replicas})
        return shown(self._view(name))

    async def _delete_endpoint(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        view = self._view(name)
        for session in self.sessions.values():
            if session.endpoint == name:
                session.end(Reason.ENDPOINT_DELETED)
        del self.endpoints[name]
        return shown(view.model_copy(update={"status": EndpointStatus.STOPPED}), 202)

    # -- the rest --

    def _agent_view(self) -> AgentView:
        return AgentView(
            id="agent-1",
            status=AgentStatus.ALIVE,
            resource_group="default",
            address="127.0.0.1",
            version="0.1.0",
            arch="x86_64",
            runtimes=["process"],
            engines=["llamacpp"],
            labels={"room": "[red]north[/red]"},
            draining=False,
            connected_since=BORN,
            last_seen=BORN,
            offers=self.offers,
            kernels=1,
        )

    async def _agents(self, request: web.Request) -> web.Response:
        return shown(Page[AgentView](items=[self._agent_view()]))

    async def _agent(self, request: web.Request) -> web.Response:
        if request.match_info["id"] != "agent-1":
            return problem(404, "not-found", "no such agent", "`moorage agents` lists them")
        return shown(self._agent_view())

    async def _forget(self, request: web.Request) -> web.Response:
        if request.match_info["id"] == "agent-1":
            return problem(409, "conflict", "agent 'agent-1' is ALIVE", "stop it first")
        gone = {"id": request.match_info["id"], "status": AgentStatus.LOST}
        return shown(self._agent_view().model_copy(update=gone))

    def _group_view(self, name: str) -> GroupView:
        return GroupView(name=name, options=self.groups[name], agents=1, pending=0, running=2)

    async def _groups(self, request: web.Request) -> web.Response:
        return shown(Page[GroupView](items=[self._group_view(name) for name in self.groups]))

    async def _group(self, request: web.Request) -> web.Response:
        if (name := request.match_info["name"]) not in self.groups:
            return problem(404, "not-found", f"no resource group {name!r}")
        return shown(self._group_view(name))

    async def _put_group(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.groups[name] = GroupOptions.model_validate_json(await request.read())
        return shown(self._group_view(name))

    async def _quotas(self, request: web.Request) -> web.Response:
        return shown(Page[QuotaView](items=list(self.quotas.values())))

    async def _quota(self, request: web.Request) -> web.Response:
        name = request.match_info["scope"], request.match_info["name"]
        return shown(self.quotas[name]) if name in self.quotas else problem(404, "not-found", "no quota")

    async def _put_quota(self, request: web.Request) -> web.Response:
        scope, name = request.match_info["scope"], request.match_info["name"]
        given = QuotaLimits.model_validate_json(await request.read())
        slots = {slot: parse_amount(slot, amount) for slot, amount in given.slots.items()}
        self.quotas[scope, name] = QuotaView.model_validate(
            {
                "scope": scope,
                "name": name,
                "slots": slots,
                "sessions": given.sessions,
                "pending": given.pending,
            }
            | {"used": {"cpu": 1500}, "running": 2, "waiting": 3, "changed_at": BORN, "changed_by": "root"}
        )
        return shown(self.quotas[scope, name])

    async def _delete_quota(self, request: web.Request) -> web.Response:
        return shown(self.quotas.pop((request.match_info["scope"], request.match_info["name"])))

    async def _ready(self, request: web.Request) -> web.Response:
        return shown(Health(status="starting", checks={"postgres": "not yet"}), 503)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = await request.json()
        self.asked.append(ask)
        if not ask["stream"]:
            whole = "".join(part for part in self.answer if isinstance(part, str))
            return web.json_response({"choices": [{"message": {"role": "assistant", "content": whole}}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": ping\r\n\r\n" + event({"choices": [{"delta": {"role": "assistant"}}]}))
        for part in self.answer:
            whole = event({"choices": [{"delta": {"content": part}}]} if isinstance(part, str) else part)
            for half in (whole[:9], whole[9:]):  # events cut anywhere
                await response.write(half)
                await asyncio.sleep(0.001)
        if self.done_event:
            await response.write(event({"choices": [], "usage": {}}) + b"data: [DONE]\n\n")
        return response


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def shown(model: BaseModel, status: int = 200) -> web.Response:
    return web.Response(status=status, text=model.model_dump_json(), content_type="application/json")


def problem(status: int, code: str, detail: str, next_step: str = "") -> web.Response:
    body = Problem(title=code, status=status, detail=detail, code=code, next_step=next_step)
    return web.Response(status=status, text=body.model_dump_json(), content_type="application/problem+json")
