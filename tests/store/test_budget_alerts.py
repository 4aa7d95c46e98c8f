"""Budget alerts: each time a limit is reached, this is reported, kept and audited once per
period."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from moorage.manager.store import Store

from .tenancy_harness import serve
from .test_budgets import count, measure, put
from .test_ledger import SYSTEM
from .test_watching import watching

pytestmark = pytest.mark.usefixtures("owners")


async def alerts(store: Store) -> list[tuple[Any, ...]]:
    rows = await store.database.fetch(
        "SELECT scope, level, threshold, used FROM budget_alerts ORDER BY id"
    )
    return [tuple(row.values()) for row in rows]


async def test_each_limit_is_told_once_in_a_period(store: Store) -> None:
    await put(store, "project", "vision", "tokens", period="month", soft=30, hard=60)
    await measure(store)
    assert await alerts(store) == []
    await count(store, 1)
    for _ in range(3):
        await measure(store)

    soft = ("project", "soft", 30, 30)
    assert await alerts(store) == [soft]

    # it is no longer reached
    await put(store, "project", "vision", "tokens", period="month", soft=40, hard=60)
    await measure(store)
    await put(
        store, "project", "vision", "tokens", period="month", soft=30, hard=60
    )  # and is again
    await measure(store)
    assert await alerts(store) == [soft], "of the same limit in the same period"

    # lowered below the used amount
    await put(store, "project", "vision", "tokens", period="month", soft=20, hard=25)
    await measure(store)
    assert await alerts(store) == [soft, ("project", "soft", 20, 30), ("project", "hard", 25, 30)]
    await store.database.fetch(
        "UPDATE budget_alerts SET resets_at = resets_at - interval '1 month'"
    )
    await measure(store)
    assert len(await alerts(store)) == 5, "in the next period again"

    with pytest.raises(asyncpg.UniqueViolationError):
        await store.database.fetch(
            "INSERT INTO budget_alerts (scope, name, unit, period, resets_at, level, threshold, used) "
            "SELECT scope, name, unit, period, resets_at, level, threshold, used FROM budget_alerts"
        )

    await store.database.fetch(
        "UPDATE budget_alerts SET at = at - interval '3 years', resets_at = at"
    )
    await store.usage_records.compact(400 * 86_400)
    assert len(await alerts(store)) == 5, "a period that has not ended long ago keeps its own"
    await store.database.fetch("UPDATE budget_alerts SET resets_at = at")
    await store.usage_records.compact(400 * 86_400)
    assert await alerts(store) == []


async def test_payers_and_administrators_get_an_event(store: Store) -> None:
    async with serve(store) as api:
        async with (
            watching(api, "ann", "?kinds=budget") as ann,
            watching(api, "bob", "?kinds=budget") as bob,
            watching(api, "admin", "?kinds=budget") as root,
        ):
            await put(store, "project", "vision", "tokens", period="month", soft=30)
            await put(store, "user", "ann", "tokens", period="month", soft=10, hard=30)
            await count(store, 1)
            await measure(store)

            for watcher in (ann, root):
                told = [(await watcher.next())[1] for _ in range(3)]
                shown = [
                    (one["scope"], one["name"], one["level"], one["threshold"]) for one in told
                ]
                assert shown == [
                    ("project", "vision", "soft", 30),
                    ("user", "ann", "soft", 10),
                    ("user", "ann", "hard", 30),
                ]
                assert {(one["used"], one["unit"], one["period"]) for one in told} == {
                    (30, "tokens", "month")
                }

            await put(store, "user", "bob", "requests", soft=0)
            await measure(store)
            assert (await bob.next())[1]["name"] == "bob", "nothing of others"

        page = await store.audit.page(
            SYSTEM, filters={"resource": "budgets"}, since=None, until=None
        )

    told = {(one.actor, one.action, one.name, one.user, one.project) for one in page.items}
    assert (
        "system:budgets",
        "budget_soft_limit_reached",
        "project/month/tokens/vision",
        "",
        "vision",
    ) in told
    assert (
        "system:budgets",
        "budget_hard_limit_reached",
        "user/month/tokens/ann",
        "ann",
        "",
    ) in told
    assert {one.after["used"] for one in page.items if one.user == "ann" and one.after} == {30}
