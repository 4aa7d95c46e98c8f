"""In-memory usage statistics: the same usage for all running sessions, and different usage for each
agent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memory_sessions import MemorySessions

from moorage.common.model.errors import BudgetExhausted, NotFound
from moorage.common.model.spec import Workload
from moorage.common.model.status import AgentStatus, Status
from moorage.common.views.budgets import (
    BudgetSpec,
    BudgetView,
    CorrectionSpec,
    CorrectionView,
    PriceSpec,
    PriceView,
)
from moorage.common.views.metering import LimitView, ModelUsage, UsageSplit
from moorage.common.views.resource_usage import (
    AgentStats,
    DeviceStats,
    KernelStats,
    LatestUsage,
    SessionStats,
    SessionUsage,
)
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope

GIB = 1024**3
AT = datetime(2026, 1, 1, tzinfo=UTC)
USED = LatestUsage(at=AT, cpu=1500, memory=2 * GIB, rx=2048, tx=1024, gpu=750, gpu_memory=40 * GIB)


class MemoryUsage:
    def __init__(self, sessions: MemorySessions) -> None:
        self._sessions = sessions

    async def of_session(self, scope: Scope, ref: str, *, seconds: int, limit: int) -> SessionStats:
        view = await self._sessions.get(scope, ref)
        kernels = [
            KernelStats(
                id=k.id,
                hostname=k.hostname,
                attempt=k.attempt,
                status=k.status,
                agent_id=k.agent_id,
                latest=USED,
            )
            for k in view.kernels
        ]
        return SessionStats(
            id=view.id, name=view.name, status=view.status, slots=view.slots, kernels=kernels
        )

    async def of_agent(self, agent_id: str) -> AgentStats:
        return _agent(agent_id, 2000)

    async def top_sessions(self, scope: Scope, *, sort: str, limit: int) -> list[SessionUsage]:
        found = [
            SessionUsage(
                id=view.id,
                name=view.name,
                type=view.type,
                status=view.status,
                resource_group=view.resource_group,
                user=view.user,
                agents=["node-1"],
                slots={"cpu": 3000, "mem": 8 * GIB},
                created_at=view.created_at,
                latest=USED,
            )
            for view in self._sessions.views
            if view.status is Status.RUNNING and scope.reads(view.project)
        ]
        return found[:limit]

    async def top_agents(self) -> list[AgentStats]:
        return [_agent("node-1", 1000), _agent("node-2", 3000)]


class MemoryUsageRecords:
    """``items``: the items, which are returned on two pages. ``asked``: the interval and the split
    of each request."""

    def __init__(self) -> None:
        self.items: list[ModelUsage] = []
        self.asked: list[tuple[datetime, datetime, UsageSplit]] = []

    async def page(
        self,
        scope: Scope,
        since: datetime,
        until: datetime,
        split: UsageSplit,
        *,
        cursor: str | None,
        limit: int,
    ) -> Page[ModelUsage]:
        self.asked.append((since, until, split))
        if cursor is None and len(self.items) > 1:
            return Page[ModelUsage](items=self.items[:1], next="1")

        return Page[ModelUsage](items=self.items[1:] if cursor else self.items)


class MemoryBudgets:
    """``exhausted``: why no one may create anything. ``reached``: everyone's warnings. ``gaps``,
    ``doubted``: rows of the statements about prices and budgets that charge nobody."""

    def __init__(self) -> None:
        self.views: dict[tuple[str, str, str, str], BudgetView] = {}
        self.price_views: list[PriceView] = []
        self.corrections: list[CorrectionSpec] = []
        self.exhausted: BudgetExhausted | None = None
        self.reached: list[str] = []
        self.gaps: list[dict[str, Any]] = []
        self.doubted: list[dict[str, Any]] = []

    async def price_gaps(self) -> list[dict[str, Any]]:
        return self.gaps

    async def doubts(self) -> list[dict[str, Any]]:
        return self.doubted

    async def warnings(self, scope: Scope) -> list[str]:
        return self.reached

    async def check(self, scope: Scope, spec: Workload) -> None:
        if self.exhausted is not None:
            raise self.exhausted

    async def visible(self, scope: Scope) -> Page[BudgetView]:
        return Page[BudgetView](items=[self.views[key] for key in sorted(self.views)])

    async def put(
        self, scope: Scope, kind: str, name: str, unit: str, *, period: str, spec: BudgetSpec
    ) -> BudgetView:
        given = {"scope": kind, "name": name, "unit": unit, "period": period, **spec.model_dump()}
        given |= {"used": 0, "level": "ok", "resets_at": AT, "measured_at": None, "changed_at": AT}
        view = BudgetView.model_validate(given | {"changed_by": scope.actor})
        self.views[kind, name, unit, period] = view
        return view

    async def delete(
        self, scope: Scope, kind: str, name: str, unit: str, *, period: str
    ) -> BudgetView:
        if (kind, name, unit, period) not in self.views:
            raise NotFound(
                f"{kind} {name!r} has no budget of {unit} by the {period}", next_step="list them"
            )
        return self.views.pop((kind, name, unit, period))

    async def prices(self) -> Page[PriceView]:
        return Page[PriceView](items=self.price_views)

    async def put_price(self, scope: Scope, spec: PriceSpec) -> PriceView:
        given = spec.model_dump() | {
            "since": spec.since or AT,
            "changed_at": AT,
            "changed_by": scope.actor,
        }
        self.price_views.append(PriceView.model_validate(given))
        return self.price_views[-1]

    async def correct(self, scope: Scope, spec: CorrectionSpec) -> CorrectionView:
        self.corrections.append(spec)
        return CorrectionView(id=len(self.corrections))


class MemoryLimits:
    def __init__(self) -> None:
        self.views: list[LimitView] = []

    async def in_use(self, scope: Scope) -> list[LimitView]:
        return [view for view in self.views if scope.reads(view.project)]


def _agent(name: str, cpu: int) -> AgentStats:
    device = DeviceStats(
        device_id=f"GPU-{name}",
        slot="cuda.device",
        model="H100",
        memory_bytes=80 * GIB,
        memory=20 * GIB,
        gpu=420,
        temperature=55,
        power=70_000,
    )
    return AgentStats(
        id=name,
        status=AgentStatus.ALIVE,
        resource_group="default",
        at=AT,
        cpu=cpu,
        memory=4 * GIB,
        offered_cpu=4000,
        offered_memory=16 * GIB,
        devices=[device],
    )
