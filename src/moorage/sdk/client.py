"""The management API (``/v1``) as typed calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError
from yarl import URL

import moorage
from moorage.common.model.commands import ExecSpec
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resources import (
    AgentView,
    EndpointView,
    GroupOptions,
    GroupView,
    Health,
    HistoryEntry,
    Page,
    QuotaView,
    Scale,
    SessionView,
    View,
    WorkspaceList,
)
from moorage.common.views.usage import AgentStats, SessionStats, SessionUse
from moorage.sdk.errors import ApiError, Unreachable, not_moorage, problem_of, why
from moorage.sdk.execution import RunningCommand, run_command
from moorage.sdk.nodes import Nodes, part

M = TypeVar("M", bound=BaseModel)


class _History(View):
    items: list[HistoryEntry]


class Client(Nodes):
    """Calls one manager; use it as ``async with Client(url, key) as client``.

    ``timeout`` in seconds bounds each call; of followed logs only the connecting. Every call raises
    ``ApiError`` when the manager refuses and ``Unreachable`` when it does not answer.
    """

    def __init__(self, url: str, key: str = "", *, timeout: float = 30.0) -> None:
        try:
            self._base = URL(url.rstrip("/"))
        except ValueError:
            self._base = URL()
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise InvalidInput(
                f"{url!r} is not the address of a manager", next_step="write it like http://127.0.0.1:8700"
            )
        if not all("!" <= letter <= "~" for letter in key):
            raise InvalidInput("the API key has letters that no key has", next_step="copy it again, whole")
        self.url, self._timeout = str(self._base), timeout
        self._headers = {"User-Agent": f"moorage/{moorage.__version__}"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    # -- sessions --

    async def create_session(
        self, spec: SessionSpec, *, idempotency_key: str | None = None, strict: bool = False
    ) -> SessionView:
        """``idempotency_key``: any text of your own (a UUID, say). With it the call may be repeated after
        ``Unreachable``: the same key and spec give the same session. Another spec is refused (409).
        ``strict``: refused (409) is also what no agent could ever hold; else ``warnings`` says so."""
        query = {"strict": "true" if strict else None}
        return await self._call(
            SessionView, "POST", "/v1/sessions", query=query, body=spec, idempotency_key=idempotency_key
        )

    async def get_session(self, ref: str) -> SessionView:
        """By id or name."""
        return await self._call(SessionView, "GET", f"/v1/sessions/{part(ref)}")

    async def list_sessions(
        self,
        *,
        statuses: Collection[Status] = (),
        resource_group: str | None = None,
        type: SessionType | None = None,
        name: str | None = None,
        endpoint: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[SessionView]:
        """One page, newest first; pass its ``next`` as ``cursor`` for the following one.

        ``statuses``: only these; none means all.
        """
        query = {
            "status": ",".join(sorted(statuses)) or None,
            "resource_group": resource_group,
            "type": type,
            "name": name,
            "endpoint": endpoint,
            "cursor": cursor,
            "limit": str(limit),
        }
        return await self._call(Page[SessionView], "GET", "/v1/sessions", query=query)

    async def stop_session(self, ref: str) -> SessionView:
        return await self._call(SessionView, "POST", f"/v1/sessions/{part(ref)}/stop")

    async def why(self, ref: str) -> WhyView:
        """Why it waits, and until when; of one that does not wait, what it is."""
        return await self._call(WhyView, "GET", f"/v1/sessions/{part(ref)}/why")

    async def plan_session(self, spec: SessionSpec) -> PlanView:
        """Where it would go if it were created now, or what is missing. Nothing is written."""
        query = {"dry_run": "true"}
        return await self._call(PlanView, "POST", "/v1/sessions", query=query, body=spec)

    async def history(self, ref: str) -> list[HistoryEntry]:
        """Every move of a session, oldest first."""
        return (await self._call(_History, "GET", f"/v1/sessions/{part(ref)}/history")).items

    async def logs(
        self,
        ref: str,
        *,
        tail: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        kernel: str | None = None,
    ) -> AsyncIterator[bytes]:
        """The log in pieces as they come. ``tail``: only so many last lines. ``follow``: until it ends.
        ``attempt``: not of the newest attempt but of that one. ``kernel``: of a cluster, of that kernel, like
        ``sub1``."""
        query = {
            "tail": None if tail is None else str(tail),
            "follow": "true" if follow else None,
            "attempt": None if attempt is None else str(attempt),
            "kernel": kernel,
        }
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout, sock_read=None if follow else self._timeout
        )
        url = self._address(f"/v1/sessions/{part(ref)}/logs", query)
        try:
            async with self._open().get(url, timeout=timeout) as answer:
                if answer.status >= 300:
                    body = await answer.read()
                    raise ApiError(answer.status, problem_of(self.url, answer.status, body))
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    def exec(self, ref: str, spec: ExecSpec) -> AbstractAsyncContextManager[RunningCommand]:
        """Run a command in a session that runs: ``async with client.exec(...) as command``. Leaving hangs it
        up, if it still runs."""
        url = self._address(f"/v1/sessions/{part(ref)}/exec", {})
        unreachable = self._unreachable
        return run_command(self._open(), url, spec, timeout_s=self._timeout, unreachable=unreachable)

    async def list_workspaces(self) -> WorkspaceList:
        """What sessions have kept on the nodes."""
        return await self._call(WorkspaceList, "GET", "/v1/workspaces")

    async def remove_workspace(self, session: str) -> WorkspaceList:
        """What a session that has ended kept, by its id or name. Returns what it was."""
        return await self._call(WorkspaceList, "DELETE", f"/v1/workspaces/{part(session)}")

    # -- endpoints --

    async def create_endpoint(self, spec: EndpointSpec) -> EndpointView:
        return await self._call(EndpointView, "POST", "/v1/endpoints", body=spec)

    async def get_endpoint(self, name: str) -> EndpointView:
        return await self._call(EndpointView, "GET", f"/v1/endpoints/{part(name)}")

    async def list_endpoints(self, *, cursor: str | None = None, limit: int = 50) -> Page[EndpointView]:
        query = {"cursor": cursor, "limit": str(limit)}
        return await self._call(Page[EndpointView], "GET", "/v1/endpoints", query=query)

    async def scale_endpoint(self, name: str, replicas: int) -> EndpointView:
        body = Scale(replicas=replicas)
        return await self._call(EndpointView, "POST", f"/v1/endpoints/{part(name)}/scale", body=body)

    async def delete_endpoint(self, name: str) -> EndpointView:
        return await self._call(EndpointView, "DELETE", f"/v1/endpoints/{part(name)}")

    # -- agents and resource groups --

    async def list_agents(self) -> list[AgentView]:
        return (await self._call(Page[AgentView], "GET", "/v1/agents")).items

    async def get_agent(self, agent_id: str) -> AgentView:
        return await self._call(AgentView, "GET", f"/v1/agents/{part(agent_id)}")

    async def forget_agent(self, agent_id: str) -> AgentView:
        """Give up an agent that is SUSPECT or LOST, with what ran there. Returns it as it was."""
        return await self._call(AgentView, "DELETE", f"/v1/agents/{part(agent_id)}")

    async def list_groups(self) -> list[GroupView]:
        return (await self._call(Page[GroupView], "GET", "/v1/groups")).items

    async def get_group(self, name: str) -> GroupView:
        return await self._call(GroupView, "GET", f"/v1/groups/{part(name)}")

    async def update_group(self, name: str, options: GroupOptions) -> GroupView:
        return await self._call(GroupView, "PUT", f"/v1/groups/{part(name)}", body=options)

    # -- what is used --

    async def session_stats(self, ref: str, *, spans: str = "none", limit: int = 60) -> SessionStats:
        """``spans``: with the newest ``limit`` of its "minutes" or "hours"."""
        query = {"spans": spans, "limit": str(limit)}
        return await self._call(SessionStats, "GET", f"/v1/sessions/{part(ref)}/stats", query=query)

    async def agent_stats(self, agent_id: str) -> AgentStats:
        return await self._call(AgentStats, "GET", f"/v1/agents/{part(agent_id)}/stats")

    async def top_sessions(self, *, sort: str = "cpu", limit: int = 100) -> list[SessionUse]:
        """Those that use most of ``sort`` first: cpu, memory, rx, tx, gpu, gpu_memory; created_at: the
        newest."""
        query = {"sort": sort, "limit": str(limit)}
        return (await self._call(Page[SessionUse], "GET", "/v1/stats/sessions", query=query)).items

    async def top_agents(self) -> list[AgentStats]:
        return (await self._call(Page[AgentStats], "GET", "/v1/stats/agents")).items

    # -- quotas --

    async def list_quotas(self) -> list[QuotaView]:
        return (await self._call(Page[QuotaView], "GET", "/v1/quotas")).items

    async def get_quota(self, scope: Scope, name: str) -> QuotaView:
        return await self._call(QuotaView, "GET", f"/v1/quotas/{scope}/{part(name)}")

    async def set_quota(self, scope: Scope, name: str, limits: QuotaLimits) -> QuotaView:
        """The whole quota: what is left out of ``limits`` has no limit."""
        return await self._call(QuotaView, "PUT", f"/v1/quotas/{scope}/{part(name)}", body=limits)

    async def delete_quota(self, scope: Scope, name: str) -> QuotaView:
        """Take it away. Returns it as it was."""
        return await self._call(QuotaView, "DELETE", f"/v1/quotas/{scope}/{part(name)}")

    # -- what was decided; for administrators --

    async def list_decisions(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None = None, limit: int = 200
    ) -> DecisionPage:
        """The segments that are needed to read what was decided between the two, oldest first."""
        query = _span(group, since, until, cursor, limit)
        return await self._call(DecisionPage, "GET", "/v1/scheduler/decisions", query=query)

    async def list_runs(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None = None, limit: int = 500
    ) -> Page[RunView]:
        """The kernels that held something between the two, and what."""
        query = _span(group, since, until, cursor, limit)
        return await self._call(Page[RunView], "GET", "/v1/scheduler/runs", query=query)

    # -- apps: the service ports of sessions --

    async def list_apps(self, ref: str) -> list[AppView]:
        return (await self._call(Page[AppView], "GET", f"/v1/sessions/{part(ref)}/apps")).items

    async def create_access_token(
        self, ref: str, app: str, spec: AccessTokenSpec | None = None
    ) -> NewAccessTokenView:
        """The one answer with the access token. Whoever has it reaches this app until it expires."""
        path = f"/v1/sessions/{part(ref)}/apps/{part(app)}/access-tokens"
        return await self._call(NewAccessTokenView, "POST", path, body=spec or AccessTokenSpec())

    async def list_access_tokens(self, ref: str, app: str) -> list[AccessTokenView]:
        path = f"/v1/sessions/{part(ref)}/apps/{part(app)}/access-tokens"
        return (await self._call(Page[AccessTokenView], "GET", path)).items

    async def revoke_access_token(self, ref: str, app: str, access_token_id: str) -> AccessTokenView:
        """It opens nothing more, and what it opened is cut off."""
        path = f"/v1/sessions/{part(ref)}/apps/{part(app)}/access-tokens/{part(access_token_id)}"
        return await self._call(AccessTokenView, "DELETE", path)

    # -- API keys: for administrators --

    async def create_key(self, spec: KeySpec) -> NewKeyView:
        """The one answer with the secret."""
        return await self._call(NewKeyView, "POST", "/v1/keys", body=spec)

    async def list_keys(self) -> list[KeyView]:
        return (await self._call(Page[KeyView], "GET", "/v1/keys")).items

    async def get_key(self, name: str) -> KeyView:
        return await self._call(KeyView, "GET", f"/v1/keys/{part(name)}")

    async def revoke_key(self, name: str) -> KeyView:
        """It works no more, within two seconds everywhere. Returns it as it was."""
        return await self._call(KeyView, "DELETE", f"/v1/keys/{part(name)}")

    async def health(self) -> Health:
        """Whether the manager is ready; needs no key. A manager that is not ready answers too."""
        return await self._call(Health, "GET", "/readyz", also=503)

    # -- the one way out --

    async def _call(
        self,
        answer_type: type[M],
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: BaseModel | None = None,
        idempotency_key: str | None = None,
        also: int = 200,
    ) -> M:
        request: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=self._timeout)}
        if body is not None:
            request["data"] = body.model_dump_json(exclude_unset=True).encode()
            request["headers"] = {"Content-Type": "application/json"}
            if idempotency_key is not None:
                request["headers"]["Idempotency-Key"] = idempotency_key
        try:
            async with self._open().request(method, self._address(path, query or {}), **request) as answer:
                status, raw = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        if not 200 <= status < 300 and status != also:
            raise ApiError(status, problem_of(self.url, status, raw))
        try:
            return answer_type.model_validate_json(raw)
        except ValidationError as error:
            raise ApiError(status, not_moorage(self.url, status, raw)) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("use the client within `async with Client(...) as client`")
        return self._http

    def _address(self, path: str, query: Mapping[str, str | None]) -> URL:
        given = {name: value for name, value in query.items() if value is not None}
        # Encoded by us: a name may hold slashes, which must not become parts of the path.
        return URL(f"{self.url}{path}", encoded=True).with_query(given or None)

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"the manager at {self.url} did not answer within {self._timeout:g} s",
                next_step="see its log; `moorage doctor` looks for what is wrong",
            )
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
            return Unreachable(
                f"the manager at {self.url} broke off its answer", next_step="try again; see its log"
            )
        return Unreachable(
            f"no manager answers at {self.url} ({why(error)})",
            next_step="start one with `moorage up`, or give its address with --url or MOORAGE_URL",
        )


def _span(
    group: str, since: datetime, until: datetime, cursor: str | None, limit: int
) -> dict[str, str | None]:
    span = {"from": since.isoformat(), "to": until.isoformat()}
    return {"group": group, **span, "cursor": cursor, "limit": str(limit)}
