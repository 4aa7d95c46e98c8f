"""Node-seconds that site jobs have used and reserved in a month, for quotas."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL

# Columns of the sessions table, by quota scope.
COLUMNS: Mapping[str, str] = {"user": "owner", "project": "project", "group": "resource_group"}
# A job whose end was written this long ago is settled: no transaction takes longer, so its usage is
# final.
_MARGIN_S = 60.0
_REFRESH_S = 120.0

Name = tuple[str, str]
_NONE: Mapping[Name, Decimal] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MonthSums:
    """A month's node-seconds by quota scope and name: used, and reserved by live jobs."""

    month_ends: datetime
    used: Counter[Name]
    reserved: Counter[Name]


@dataclass(frozen=True, slots=True)
class _Settled:
    """Usage by those of the month's jobs that ended before ``before``. ``aliases``: the aliases of
    resource groups at that time."""

    month_ends: datetime
    aliases: str | None
    before: datetime
    used: Mapping[Name, Decimal]


class JobSums:
    """The month's sums. Most jobs of a month have ended. Their sum is cached and refreshed every
    two minutes, so that a scheduling pass sums up only the others."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._settled: _Settled | None = None

    async def of_month(self, now: datetime | None = None) -> MonthSums:
        """Sums of the month that contains ``now``; None means the current time by the database's
        clock."""
        settled = self._settled or await self._settle(now)
        rows = await self._db.fetch(SQL["node_hours"], now, settled.before)
        now_is = rows[0]["month_ends"], rows[0]["aliases"]
        if now_is != (settled.month_ends, settled.aliases) or rows[0]["settled_s"] > _REFRESH_S:
            settled = await self._settle(now)
            rows = await self._db.fetch(SQL["node_hours"], now, settled.before)
        used = _by_name(rows, "used", settled.used)
        return MonthSums(rows[0]["month_ends"], used, _by_name(rows, "reserved"))

    async def _settle(self, now: datetime | None) -> _Settled:
        rows = await self._db.fetch(SQL["node_hours_settled"], now, _MARGIN_S)
        used = _exact(rows, "used")
        settled = _Settled(rows[0]["month_ends"], rows[0]["aliases"], rows[0]["settled"], used)
        self._settled = settled
        return settled


def _by_name(
    rows: Iterable[Any], amount: str, settled: Mapping[Name, Decimal] = _NONE
) -> Counter[Name]:
    sums = _exact(rows, amount)
    return Counter(
        {name: math.ceil(sums.get(name, 0) + settled.get(name, 0)) for name in {*sums, *settled}}
    )


def _exact(rows: Iterable[Any], amount: str) -> dict[Name, Decimal]:
    sums: defaultdict[Name, Decimal] = defaultdict(Decimal)
    for row in rows:
        for scope, column in COLUMNS.items():
            sums[scope, row[column]] += row[amount]
    return dict(sums)
