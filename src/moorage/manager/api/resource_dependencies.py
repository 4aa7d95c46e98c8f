"""Interfaces through which the API uses the stores of what runs: sessions, endpoints, agents,
groups.

Methods that return a page take which one, and filters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, Unpack

from moorage.common.model.group_options import PriorityCeilings, QuotaLimits, QuotaScope
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.ids import SessionId
from moorage.common.model.labels import Selector
from moorage.common.model.paging import Paging, SessionMatch
from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import AgentStatus, Result, Status
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.endpoints import (
    EndpointPatch,
    EndpointView,
    RevisionView,
    ScalingDecision,
)
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    ForgottenAgent,
    GroupOptions,
    GroupView,
    HistoryEntry,
    Page,
    QuotaView,
    SessionView,
    SiteNodesView,
    StartTimes,
)
from moorage.common.views.templates import TemplateView
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope


class Sessions(Protocol):
    """A ``ref`` is a session's id, else the name of a live session, else that of the newest
    session."""

    async def create(
        self, scope: Scope, spec: SessionSpec, *, template: str | None = None, forced: bool = False
    ) -> SessionView: ...

    async def create_once(
        self,
        scope: Scope,
        spec: SessionSpec,
        *,
        idempotency_key: IdempotencyKey,
        template: str | None = None,
        forced: bool = False,
    ) -> tuple[SessionView, bool]:
        """As ``create``. A repeated call under ``idempotency_key`` returns the session of the first
        one, and True. Raises ``Conflict`` for another request under the same key."""
        ...

    async def get(self, scope: Scope, ref: str) -> SessionView: ...

    async def names(
        self, scope: Scope, session_ids: Collection[SessionId]
    ) -> dict[SessionId, tuple[str, str]]:
        """Name and status of each session that the caller may see."""
        ...

    async def naming(self, scope: Scope, texts: Iterable[str]) -> Callable[[str], str]:
        """Puts the names of sessions in place of their ids in these messages, for this caller."""
        ...

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        statuses: frozenset[Status],
        results: frozenset[Result],
        selector: Selector,
        endpoint: str | None,
        pipeline: str | None,
        **equal: Unpack[SessionMatch],
    ) -> Page[SessionView]: ...

    async def history(self, scope: Scope, ref: str, paging: Paging) -> Page[HistoryEntry]: ...


class SessionRecords(Protocol):
    """By id. ``rename`` and ``remove`` return whether the session allows it."""

    async def change_labels(
        self, scope: Scope, session_id: str, changes: Mapping[str, str | None]
    ) -> None: ...
    async def rename(self, scope: Scope, session_id: str, name: str) -> bool: ...
    async def remove(self, scope: Scope, session_id: str) -> bool: ...


class Templates(Protocol):
    async def put(
        self,
        scope: Scope,
        name: str,
        template: TemplateSpec,
        bases: list[str],
        *,
        for_all: bool,
        isolated: bool,
        if_match: frozenset[int] | None = None,
    ) -> TemplateView: ...

    async def get(self, scope: Scope, name: str, version: int | None = None) -> TemplateView: ...
    async def page(
        self, scope: Scope, paging: Paging, *, project: str | None
    ) -> Page[TemplateView]: ...
    async def versions(self, scope: Scope, name: str, paging: Paging) -> Page[TemplateView]: ...
    async def delete(self, scope: Scope, name: str, *, for_all: bool) -> TemplateView: ...


class Agents(Protocol):
    async def page(
        self,
        paging: Paging,
        *,
        groups: Collection[str] | None,
        closed: Collection[str],
        resource_group: str | None,
        status: AgentStatus | None,
        cordon: str | None,
    ) -> Page[AgentView]: ...

    async def get(self, agent_id: str) -> AgentView: ...

    async def cordon(
        self, agent_id: str, *, actor: str, drain: bool = False, stop_after_s: float | None = None
    ) -> AgentView: ...

    async def assign(self, agent_id: str, group: str, *, actor: str) -> AgentView: ...
    async def uncordon(self, agent_id: str, *, actor: str) -> AgentView: ...
    async def history(self, agent_id: str, paging: Paging) -> Page[AgentEvent]: ...
    async def forget(
        self, agent_id: str, *, actor: str, destroyed: bool = False
    ) -> ForgottenAgent: ...


class Endpoints(Protocol):
    """``manager.serving.endpoints`` describes the methods."""

    async def create(
        self,
        scope: Scope,
        spec: EndpointSpec,
        *,
        shared_with: Sequence[str] = (),
        user_labels: Mapping[str, str],
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[EndpointView, bool]: ...

    async def update(
        self,
        scope: Scope,
        name: str,
        patch: EndpointPatch,
        *,
        if_match: frozenset[int] | None = None,
        idempotency_key: IdempotencyKey | None = None,
        check: Callable[[EndpointSpec, EndpointSpec, bool], Awaitable[None]],
    ) -> tuple[EndpointView, bool]: ...

    async def get(self, scope: Scope, name: str) -> EndpointView: ...

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        selector: Selector = (),
        user: str | None = None,
        project: str | None = None,
    ) -> Page[EndpointView]: ...

    async def revisions(self, scope: Scope, name: str, paging: Paging) -> Page[RevisionView]: ...
    async def undo(self, scope: Scope, name: str, revision: int | None) -> EndpointView: ...
    async def promote(self, scope: Scope, name: str) -> EndpointView: ...
    async def decisions(self, scope: Scope, name: str, paging: Paging) -> Page[ScalingDecision]: ...
    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointView: ...
    async def delete(self, scope: Scope, name: str) -> EndpointView: ...


class Groups(Protocol):
    async def all(self) -> list[GroupView]: ...

    async def page(
        self,
        paging: Paging,
        *,
        names: Collection[str] | None,
        closed: Collection[str],
        retired: bool | None,
    ) -> Page[GroupView]: ...

    async def get(self, name: str) -> GroupView: ...
    async def start_times(self, name: str) -> StartTimes | None: ...
    async def site_nodes(self, name: str) -> list[SiteNodesView]: ...
    async def site(self, name: str) -> HpcOptions | None: ...
    async def reuse(self, name: str, project: str) -> ReusePolicy: ...
    async def ceilings(self, name: str) -> PriorityCeilings: ...
    async def highest_ceilings(self) -> PriorityCeilings: ...

    async def put(
        self,
        name: str,
        options: GroupOptions,
        *,
        actor: str,
        if_match: frozenset[int] | None = None,
        create: bool = False,
    ) -> GroupView: ...

    async def retire(
        self, name: str, *, actor: str, if_match: frozenset[int] | None = None, drain: bool = False
    ) -> GroupView: ...


class GroupAliases(Protocol):
    async def names(self) -> Mapping[str, str]: ...
    async def current(self, name: str) -> str: ...

    async def rename(
        self, name: str, to: str, *, actor: str, if_match: frozenset[int] | None = None
    ) -> GroupView: ...

    async def release(self, alias: str) -> GroupView: ...


class Quotas(Protocol):
    async def page(
        self, scope: Scope, paging: Paging, *, kind: QuotaScope | None
    ) -> Page[QuotaView]: ...
    async def get(self, scope: Scope, kind: QuotaScope, name: str) -> QuotaView: ...
    async def put(
        self,
        scope: Scope,
        kind: QuotaScope,
        name: str,
        limits: QuotaLimits,
        *,
        if_match: frozenset[int] | None = None,
    ) -> QuotaView: ...
    async def delete(
        self, scope: Scope, kind: QuotaScope, name: str, *, if_match: frozenset[int] | None = None
    ) -> QuotaView: ...
