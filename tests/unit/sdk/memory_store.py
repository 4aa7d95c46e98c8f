"""The fake manager's in-memory store: the parts that tests of the client and the command line
need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from memory_access_tokens import MemoryAccessTokens
from memory_keys import ADMIN_KEY as ADMIN_KEY
from memory_keys import MEMBER_KEY as MEMBER_KEY
from memory_keys import MemoryKeys
from memory_load import MemoryLoadHistory
from memory_pages import page
from memory_secrets import MemorySecrets
from memory_sessions import MemoryEndpoints, MemorySessions
from memory_usage import MemoryBudgets, MemoryLimits, MemoryUsage, MemoryUsageRecords

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import (
    Conflict,
    NotFound,
    PreconditionFailed,
)
from moorage.common.model.group_options import PriorityCeilings, QuotaLimits, QuotaScope
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.paging import Paging
from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.slots import parse_amount, parse_slots
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus
from moorage.common.views.pending import KernelPlaceView, PlanView, WhyView
from moorage.common.views.resources import (
    AgentView,
    ForgottenAgent,
    GroupOptions,
    GroupView,
    Page,
    QuotaView,
    SiteNodesView,
)
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads.idle import StoredIdle
from moorage.manager.workloads.pipeline_steps import Count, StoredPipeline

_V = TypeVar("_V")


class MemoryExplanations:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def exceeded_quotas(self, scope: Scope, spec: SessionSpec) -> list[str]:
        return []

    async def why(self, scope: Scope, ref: str) -> WhyView:
        view = await self._store.sessions.get(scope, ref)
        return WhyView(
            session_id=view.id,
            name=view.name,
            status=view.status,
            since=view.status_since,
            resource_group=view.resource_group,
            text="no scheduler in this test",
        )

    async def plan_session(self, scope: Scope, spec: SessionSpec) -> PlanView:
        await self._store.groups.get(spec.resource_group)
        place = KernelPlaceView(agent_id=self._store.agents.views[0].id, devices=[])
        return PlanView(
            text=f"for {scope.owner.user}",
            fits=True,
            resource_group=spec.resource_group,
            places=[place],
        )

    async def infeasible(self, spec: SessionSpec) -> list[str]:
        gpus = parse_slots(spec.resources).get("cuda.device", 0)
        return [f"1 agent: needs {gpus} cuda.device, has 8 even when empty"] if gpus > 8 else []


class MemoryAgents:
    def __init__(self, clock: Clock) -> None:
        self.views = [_agent("node-1", clock.now())]

    async def page(self, paging: Paging, **_: Any) -> Page[AgentView]:
        return page(self.views, paging)

    async def get(self, agent_id: str) -> AgentView:
        for view in self.views:
            if view.id == agent_id:
                return view
        raise NotFound(f"no agent {agent_id!r}")

    async def forget(self, agent_id: str, *, actor: str, destroyed: bool = False) -> ForgottenAgent:
        view = await self.get(agent_id)
        if view.status is AgentStatus.ALIVE:
            raise Conflict(f"agent {agent_id!r} is ALIVE")
        self.views.remove(view)
        return ForgottenAgent(**dict(view))


class MemoryGroupAliases:
    """No group was ever renamed."""

    async def names(self) -> dict[str, str]:
        return {}

    async def current(self, name: str) -> str:
        return name


class MemoryGroups:
    """``changed_by_others``: whether every edit that names a version comes too late. The node is in
    the group ``default``."""

    def __init__(self, clock: Clock) -> None:
        self._created_at = clock.now()
        self._changed_by: dict[str, str] = {}
        self.changed_by_others = False
        self.options = {"default": GroupOptions()}

    async def all(self) -> list[GroupView]:
        return [await self.get(name) for name in sorted(self.options)]

    async def page(self, paging: Paging, **_: Any) -> Page[GroupView]:
        return page(await self.all(), paging)

    async def get(self, name: str) -> GroupView:
        if name not in self.options:
            raise NotFound(f"no resource group {name!r}")

        is_default = name == "default"
        return GroupView(
            name=name,
            options=self.options[name],
            agents=1 if is_default else 0,
            runtimes=["process"] if is_default else [],
            pending=0,
            running=0,
            changed_at=self._created_at,
            changed_by=self._changed_by.get(name, ""),
        )

    async def site_nodes(self, name: str) -> list[SiteNodesView]:
        return []

    async def start_times(self, name: str) -> None:
        return None

    async def site(self, name: str) -> HpcOptions | None:
        return self.options[name].hpc if name in self.options else None

    async def reuse(self, name: str, project: str) -> ReusePolicy:
        return self.options[name].reuse if name in self.options else "never"

    async def ceilings(self, name: str) -> PriorityCeilings:
        found = self.options.get(name, GroupOptions()).max_priority
        return found or PriorityCeilings()

    async def limits(self, name: str) -> GroupLimits:
        return self.options.get(name, GroupOptions()).limits or GroupLimits()

    async def pending_of(self, user: str) -> dict[str, int]:
        return {}

    async def highest_ceilings(self) -> PriorityCeilings:
        return await self.ceilings("default")

    async def put(
        self, name: str, options: GroupOptions, *, actor: str, **conditions: Any
    ) -> GroupView:
        if self.changed_by_others and conditions.get("if_match") is not None:
            raise PreconditionFailed(f"somebody else has changed resource group {name!r}")
        self.options[name] = options
        self._changed_by[name] = actor
        return await self.get(name)


class MemoryPipelines:
    """There are no pipelines in memory, unless a test adds those that it lists."""

    def __init__(self) -> None:
        self.stored: list[StoredPipeline] = []
        self.numbers: dict[str, list[Count]] = {}

    async def get(self, scope: Scope, ref: str) -> StoredPipeline:
        for one in self.stored:
            if ref in (one.id, one.name):
                return one
        raise NotFound(f"no pipeline {ref!r}", next_step="`moorage pipelines` lists them")

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        project: str | None,
        user: str | None,
        search: str | None,
        live: bool,
    ) -> tuple[list[StoredPipeline], str | None]:
        return self.stored, None

    async def counts(self, ids: Sequence[str]) -> dict[str, list[Count]]:
        return {id_: self.numbers[id_] for id_ in ids}


class MemoryOwnerNames:
    """Every project, user and key exists."""

    async def missing(self, scope: Scope, kind: str, name: str) -> list[str] | None:
        return None


class MemoryQuotas:
    """``used``, ``running``, ``waiting``: the same figures for every quota."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.used: dict[str, int] = {}
        self.running = 0
        self.waiting = 0
        self.node_hours_used = 0.0
        self.views: dict[tuple[str, str], QuotaView] = {}

    async def page(
        self, scope: Scope, paging: Paging, *, kind: QuotaScope | None
    ) -> Page[QuotaView]:
        return page([self.views[key] for key in sorted(self.views)], paging)

    async def get(self, scope: Scope, kind: QuotaScope, name: str) -> QuotaView:
        if (kind, name) not in self.views:
            raise NotFound(f"{kind} {name!r} has no quota")
        return self.views[kind, name]

    async def put(
        self,
        scope: Scope,
        kind: QuotaScope,
        name: str,
        limits: QuotaLimits,
        *,
        if_match: frozenset[int] | None = None,
    ) -> QuotaView:
        now = self.views.get((kind, name))
        if if_match is not None and (now is None or now.version not in if_match):
            raise PreconditionFailed(f"somebody else has changed the quota of {name!r}")

        self.views[kind, name] = QuotaView(
            scope=kind,
            name=name,
            slots={slot: parse_amount(slot, amount) for slot, amount in limits.slots.items()},
            sessions=limits.sessions,
            pending=limits.pending,
            node_hours=limits.node_hours,
            node_hours_used=self.node_hours_used,
            used=self.used,
            running=self.running,
            waiting=self.waiting,
            version=1 if now is None else now.version + 1,
            changed_at=self._clock.now(),
            changed_by=scope.actor,
        )
        return self.views[kind, name]

    async def delete(
        self, scope: Scope, kind: QuotaScope, name: str, *, if_match: frozenset[int] | None = None
    ) -> QuotaView:
        view = await self.get(scope, kind, name)
        del self.views[kind, name]
        return view


class MemoryAudit:
    """``entries``: the action, status and name of each write."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    async def begin(self, scope: Scope, **entry: Any) -> int:
        self.entries.append(entry)
        return len(self.entries) - 1

    async def finish(self, scope: Scope, entry: int, **outcome: Any) -> None:
        self.entries[entry] |= {name: value for name, value in outcome.items() if name != "name"}


class MemoryIdle:
    """Nothing has been observed for any session."""

    async def find(self, scope: Scope, session_id: str) -> StoredIdle | None:
        return None

    async def extend(self, scope: Scope, session_id: str, seconds: float, extensions: int) -> bool:
        return False


class MemoryStore:
    """A test compares its answers with the store's (``tests/store/api/test_fake_manager.py``)."""

    def __init__(self, clock: Clock) -> None:
        self.sessions = MemorySessions(clock)
        self.session_records = self.sessions
        self.endpoints = MemoryEndpoints(self.sessions, clock)
        self.usage = MemoryUsage(self.sessions)
        self.load_history = MemoryLoadHistory()
        self.usage_records = MemoryUsageRecords()
        self.limit_shares = MemoryLimits()
        self.budgets = MemoryBudgets()
        self.agents = MemoryAgents(clock)
        self.groups = MemoryGroups(clock)
        self.group_aliases = MemoryGroupAliases()
        self.quotas = MemoryQuotas(clock)
        self.secrets = MemorySecrets(clock)
        self.pipelines = MemoryPipelines()
        self.keys = MemoryKeys(clock)

        # their tests use the real store
        self.owner_names = MemoryOwnerNames()
        self.users = cast(Any, None)
        self.projects = self.users
        self.console_sessions = self.users
        self.ssh_keys = self.users
        self.access_tokens = MemoryAccessTokens(self.sessions.get, clock)
        self.explanations = MemoryExplanations(self)
        self.audit = MemoryAudit()
        self.idle = MemoryIdle()


def _agent(name: str, now: datetime) -> AgentView:
    return AgentView(
        id=name,
        status=AgentStatus.ALIVE,
        resource_group="default",
        address="127.0.0.1",
        version="0.1.0",
        arch="x86_64",
        runtimes=["process"],
        engines=["custom"],
        labels={},
        draining=False,
        connected_since=now,
        last_seen=now,
        offers=[],
        kernels=0,
    )
