"""Usage records and shares of limits: what Postgres keeps of what the proxies report."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.link.messages import RequestLimits
from moorage.common.link.proxy_messages import LimitNeed, LimitShare, RecordsAck, UsageBatch, UsageRecord
from moorage.common.views.identity import ProjectPatch, ProjectSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.limit_shares import StoredShares, share_of
from moorage.manager.store import Store

SYSTEM = Scope.system("t")
NOW = datetime.now(UTC)
NOW_MS = round(NOW.timestamp() * 1000)
RECORD = UsageRecord(1, NOW_MS - 2000, NOW_MS, "vision", "ann", "k", "m", 3, 10, 20, 5)


def batch(*records: UsageRecord, epoch: str = "e") -> UsageBatch:
    return UsageBatch(epoch, records)


async def totals(store: Store, scope: Scope = SYSTEM) -> list[tuple[str, int, int]]:
    found = await store.usage_records.totals(scope, NOW - timedelta(hours=1), NOW + timedelta(hours=1))
    return [(one.project, one.requests, one.tokens_out) for one in found]


async def test_record_that_comes_twice_counts_once(store: Store) -> None:
    first, second = batch(RECORD), batch(replace(RECORD, sequence=2, requests=4))
    assert await store.usage_records.put("p", [first]) == (RecordsAck("e", 1),)
    again = await asyncio.gather(*(store.usage_records.put("p", [first, second]) for _ in range(5)))
    assert set(again) == {(RecordsAck("e", 1), RecordsAck("e", 2))}
    assert await totals(store) == [("vision", 7, 40)]
    await store.usage_records.put("other", [first])
    await store.usage_records.put("p", [batch(RECORD, epoch="f")])
    assert await totals(store) == [("vision", 13, 80)]


async def test_unusable_records_are_acknowledged_and_left_out(store: Store) -> None:
    wrong = [
        replace(RECORD, sequence=2, requests=-1),
        replace(RECORD, sequence=3, tokens_out=1 << 60),
        replace(RECORD, sequence=4, model="a\0b"),
        replace(RECORD, sequence=5, ended_ms=0),
        replace(RECORD, sequence=6, tokens_cached=11),
    ]
    assert await store.usage_records.put("p", [batch(RECORD, *wrong)]) == (RecordsAck("e", 6),)
    assert await totals(store) == [("vision", 3, 20)]


async def test_records_are_never_changed(store: Store) -> None:
    await store.usage_records.put("p", [batch(RECORD)])
    with pytest.raises(asyncpg.RaiseError, match="never changed"):
        await store.database.fetch("UPDATE usage_records SET requests = 0")
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(
            "INSERT INTO usage_records SELECT 'x', 'x', 1, now(), now(), '', '', '', '', -1, 0, 0, 0"
        )


async def test_usage_is_seen_within_the_scope(store: Store) -> None:
    await store.usage_records.put("p", [batch(RECORD, replace(RECORD, sequence=2, project="speech"))])
    for project in ("vision", "speech"):
        scope = Scope.system("t", Owner("ann", project))
        assert await totals(store, replace(scope, projects=(project,))) == [(project, 3, 20)]
    assert len(await totals(store)) == 2


async def test_proxies_together_hold_no_more_than_the_limit(store: Store) -> None:
    need = LimitNeed("key/a", limit_requests=100, used_requests=0, wanted_requests=60)
    granted: dict[str, LimitShare] = {}

    async def ask(proxy: str) -> None:
        def decide(stored: StoredShares) -> StoredShares:
            granted[proxy], decided = share_of(need, proxy, stored, 2)
            return decided

        while not await store.limit_shares.change(["key/a"], decide):
            pass

    await asyncio.gather(*(ask(proxy) for proxy in "abcdef"))
    assert sum(share.requests for share in granted.values()) <= 100
    assert max(share.requests for share in granted.values()) >= 60


async def test_grants_have_their_limits_and_priority(store: Store) -> None:
    await store.projects.create(SYSTEM, ProjectSpec(name="vision", max_priority=20))
    patch = ProjectPatch(max_priority=20, tokens_per_minute=1000)
    view = await store.projects.update(SYSTEM, "vision", patch)
    assert (view.tokens_per_minute, view.requests_per_minute) == (1000, None)
    spec = KeySpec(name="k", user="ann", project="vision", max_priority=40, requests_per_minute=7)
    made = await store.keys.create(SYSTEM, spec)
    table = await store.routes.credentials()
    (grant,) = table.keys
    assert (grant.id, grant.owner, grant.priority) == (made.id, "ann", 20)
    assert grant.limits == RequestLimits(requests_per_minute=7)
    assert [(one.name, one.limits) for one in table.projects] == [
        ("vision", RequestLimits(tokens_per_minute=1000))
    ]
