"""Budgets, prices and ledger corrections in Postgres."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import BudgetExhausted, InvalidInput, NotFound
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.slots import parse_slots
from moorage.common.model.spec import SessionSpec, Workload
from moorage.common.views import budgets as views
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows, read_page
from moorage.manager.store.sessions.spec_kernels import total_slots

# Seconds for which budget levels are cached, first for refusals and then for warnings. A change of
# level is announced immediately.
_READ_S = 1.0
_WARNED_S = 10.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A budget that has changed its level, that stops running work, or that will soon be used up.

    ``alerts``: ids of limits that it has reached for the first time in its period. ``left_s``:
    seconds until it is exhausted, at the current rate; None if it is exhausted, or nothing counts
    against it now."""

    budget: views.BudgetView
    old: str
    left_s: float | None = None
    alerts: Sequence[str] = ()


class BudgetStore:
    def __init__(
        self, db: Database, notifier: Notifier, clock: Clock, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._unreadable = unreadable
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)
        self._reached: Sequence[Row] = ()
        self._read_at = -_WARNED_S
        notifier.on(Topic.KEYS, self._forget)

    def _forget(self) -> None:
        self._read_at = self._clock.monotonic() - _WARNED_S

    async def _read(self, within_s: float) -> Sequence[Row]:
        """Budgets at a limit, those that reset last first, at most ``within_s`` old."""
        if (read_at := self._clock.monotonic()) - self._read_at >= within_s:
            self._reached = await self._db.fetch(SQL["budgets_reached"])
            self._read_at = read_at
        return self._reached

    async def warnings(self, scope: Scope) -> list[str]:
        """Limits that the caller's project, user or key has reached, in prose."""
        payers = _payers(scope)
        now = self._clock.now()
        return [
            f"the {row['level']} limit of the budget of {row['scope']} {row['name']} in "
            f"{row['unit']} by the "
            f"{row['period']} is reached, until {row['resets_at']:%Y-%m-%dT%H:%M:%SZ}"
            for row in await self._read(_WARNED_S)
            if (row["scope"], row["name"]) in payers and row["resets_at"] > now
        ]

    async def check(self, scope: Scope, spec: Workload) -> None:
        """Raise ``BudgetExhausted`` if a budget of the caller's project, user or key that counts
        this new work is exhausted."""
        payers = _payers(scope)
        for row in await self._read(_READ_S):
            reached = row["level"] == "hard" and (row["scope"], row["name"]) in payers
            if reached and (row["unit"] != "gpu" or _uses_gpus(spec)):
                until = row["resets_at"].isoformat()
                raise BudgetExhausted(
                    f"the budget of {row['scope']} {row['name']!r} is exhausted until {until}",
                    next_step="wait until then, or ask an administrator for a larger one "
                    "(`moorage budgets` shows them)",
                    resets_at=until,
                )

    async def visible(self, scope: Scope) -> Page[views.BudgetView]:
        """Budgets of the projects that the scope can read, and of the caller."""
        rows = await self._db.fetch(SQL["budget_list"], scope.projects, scope.owner.user)
        return read_page(views.BudgetView, "budget", rows=rows, read=_view, following=None)

    async def most_used(self, limit: int) -> list[tuple[tuple[str, str, str, str], float]]:
        """Scope, name, unit and period of the most used budgets, with the used share; 1 means
        exhausted."""
        rows = await self._db.fetch(SQL["budgets_most_used"], limit)
        return [
            ((row["scope"], row["name"], row["unit"], row["period"]), row["ratio"]) for row in rows
        ]

    async def put(
        self, scope: Scope, kind: str, name: str, unit: str, *, period: str, spec: views.BudgetSpec
    ) -> views.BudgetView:
        """Set a budget. Once aggregated, all usage since the start of the current period counts
        against it."""
        scope.require_all("budgets")
        args = kind, name, unit, period, spec.soft, spec.hard, spec.policy, scope.actor
        rows = await self._connection.fetch(SQL["budget_put"], *args)
        await self._announce([(kind, name)])
        self._notifier.notify([Topic.BUDGETS])
        return _view(rows[0])

    async def delete(
        self, scope: Scope, kind: str, name: str, unit: str, *, period: str
    ) -> views.BudgetView:
        """Delete a budget and return its last state. Raises ``NotFound``."""
        scope.require_all("budgets")
        rows = await self._connection.fetch(SQL["budget_delete"], kind, name, unit, period)
        if not rows:
            raise NotFound(
                f"{kind} {name!r} has no budget of {unit} by the {period}",
                next_step="`moorage budgets` lists them",
            )

        await self._announce([(kind, name)])
        self._notifier.notify([Topic.BUDGETS])
        return _view(rows[0])

    async def _announce(self, payers: Collection[tuple[str, str]]) -> None:
        """Announce, also to the affected endpoints, that the budgets of these projects, users and
        keys now allow more or less."""
        self._notifier.notify([Topic.KEYS])
        for kind, name in payers:
            rows = await self._db.fetch(SQL["budget_endpoints"], kind, name)
            endpoints = {EndpointId(row["id"]) for row in rows}
            self._notifier.notify_endpoints(endpoints)
            self._notifier.notify_routes(endpoints)

    async def measure(self, term: int, soon_s: float = 0.0) -> Sequence[Reached]:
        """Aggregate the usage of each budget, as the leader of ``term``. Returns budgets that have
        changed their level, exhausted ones that stop running work, and those that will be exhausted
        within ``soon_s`` seconds."""
        if not await self._db.fetch(SQL["budgets_any"]):
            return []

        rows = await self._connection.fetch(SQL["budgets_measure"], term, soon_s)
        if changed := {(row["scope"], row["name"]) for row in rows if row["level"] != row["old"]}:
            await self._announce(changed)

        self._notifier.notify_budget_alerts([alert for row in rows for alert in row["alerts"]])
        return self._unreadable.each("budget", rows, _reached, key="name")

    async def sessions(self, kind: str, name: str, unit: str) -> list[SessionId]:
        """Running or waiting sessions of a project, a user or a key that its budget in ``unit``
        holds. Replicas are omitted: the replica controller stops them."""
        rows = await self._db.fetch(SQL["budget_sessions"], kind, name, unit)
        return [SessionId(row["id"]) for row in rows]

    async def prices(self) -> Page[views.PriceView]:
        rows = await self._db.fetch(SQL["price_list"])
        return read_page(
            views.PriceView, "price", rows=rows, read=_price, following=None, name="unit"
        )

    async def price_gaps(self) -> Sequence[Row]:
        """What agents offer that costs nothing, although its unit has prices."""
        return await self._db.fetch(SQL["price_gaps"])

    async def doubts(self) -> Sequence[Row]:
        """Budgets against which nothing can count now, with the causes."""
        return await self._db.fetch(SQL["budget_doubts"])

    async def put_price(self, scope: Scope, spec: views.PriceSpec) -> views.PriceView:
        """Set a price. Raises ``InvalidInput`` for a time that is not a full hour or has passed."""
        scope.require_all("prices")
        hour = self._clock.now().replace(minute=0, second=0, microsecond=0)
        since = spec.since or hour
        if since != since.replace(minute=0, second=0, microsecond=0):
            raise InvalidInput(
                f"since = {since.isoformat()} is not a full hour",
                field="since",
                next_step="set a full hour",
            )

        args = spec.unit, spec.device, spec.resource_group, since, spec.price, scope.actor
        rows = await self._connection.fetch(SQL["price_put"], *args)
        if not rows:
            raise InvalidInput(
                f"since = {since.isoformat()} is in the past: prices of past hours cannot change",
                field="since",
                next_step=f"set {hour.isoformat()} or later; adjust past charges with a correction",
            )

        return _price(rows[0])

    async def correct(self, scope: Scope, spec: views.CorrectionSpec) -> views.CorrectionView:
        """Add a correction. Raises ``InvalidInput`` for a time in the future, and for an amount of
        0."""
        scope.require_all("corrections")
        if spec.amount == 0:
            raise InvalidInput(
                "amount = 0 corrects nothing", field="amount", next_step="set another amount"
            )

        if spec.at > self._clock.now():
            raise InvalidInput(
                f"at = {spec.at.isoformat()} is in the future",
                field="at",
                next_step="set a past time",
            )

        rows = await self._connection.fetch(
            SQL["ledger_correct"],
            spec.unit,
            spec.device,
            spec.amount,
            spec.at,
            spec.project,
            spec.user,
            spec.key,
            spec.model,
            spec.session_id,
            spec.resource_group,
            spec.reason,
            scope.actor,
        )
        return views.CorrectionView(id=rows[0]["id"])


def _view(row: Row) -> views.BudgetView:
    return views.BudgetView.model_validate(dict(row))


def _price(row: Row) -> views.PriceView:
    return views.PriceView.model_validate(dict(row))


def _reached(row: Row) -> Reached:
    budget = {name: value for name, value in row.items() if name not in ("old", "left_s", "alerts")}
    return Reached(
        old=row["old"],
        left_s=row["left_s"],
        alerts=row["alerts"],
        budget=views.BudgetView.model_validate(budget),
    )


def _payers(scope: Scope) -> list[tuple[str, str]]:
    """Owners of the budgets that apply to a caller. A console session's key has none."""
    payers = [("project", scope.owner.project), ("user", scope.owner.user)]
    return payers + (
        [("key", scope.key.name)] if scope.key is not None and scope.key.console is None else []
    )


def _uses_gpus(spec: Workload) -> bool:
    """Whether the work uses devices, which the ledger counts in the unit gpu."""
    slots = total_slots(spec) if isinstance(spec, SessionSpec) else parse_slots(spec.resources)
    return any(amount and "." in slot for slot, amount in slots.items())
