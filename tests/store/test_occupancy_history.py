"""Occupancy over time in Postgres: samples form spans, old spans are deleted, and callers can read
only what they are allowed to."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.views.events import GroupHistory
from moorage.common.views.resources import GroupOptions
from moorage.manager.api.platform.watching import choose_step
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import GarbageCollector, Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent, schedule
from .tenancy_harness import serve

TERM_S = 3600.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOON = timedelta(days=2)


def job(name: str, gpus: int) -> SessionSpec:
    return SessionSpec.model_validate(
        {"name": name, "command": ["x"], "resources": {"cuda.device": gpus}}
    )


async def leading(store: Store) -> int:
    term = await store.leases.acquire("test", TERM_S)
    assert term is not None
    return term


async def history(store: Store, step_s: int, group: str = "default") -> GroupHistory:
    [found] = await store.occupancy_history.of_groups(
        [group], step_s, EPOCH, datetime.now(UTC) + SOON
    )
    return found


async def test_samples_make_means_and_peaks_of_each_span(store: Store) -> None:
    term = await leading(store)
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await store.occupancy_history.record(term)
    await store.sessions.create(Scope.system("t"), job("runs", 2))
    await store.sessions.create(Scope.system("t"), job("waits", 2))
    await schedule(store)
    await store.occupancy_history.record(term)
    day = await history(store, 86_400)
    if len(day.queue.at) > 1:
        pytest.skip("midnight passed between the two samples")

    gpus = day.slots["cuda.device"]
    assert (gpus.capacity, gpus.used, gpus.used_peak) == ([2000], [1000], [2000])
    assert day.slots.keys() == {"cpu", "mem", "cuda.device"}
    assert (day.queue.pending, day.queue.pending_peak, day.queue.running) == ([0.5], [1], [0])
    assert gpus.at == day.queue.at == [int(time.time()) // 86_400 * 86_400]
    for step_s in (60, 3600):
        assert all(at % step_s == 0 for at in (await history(store, step_s)).slots["mem"].at)


async def test_a_former_leader_records_nothing(store: Store) -> None:
    term = await leading(store)
    await FakeAgent(store).report()
    await store.leases.release("test", term)
    await store.occupancy_history.record(term)
    assert (
        await store.occupancy_history.of_groups(["default"], 60, EPOCH, datetime.now(UTC) + SOON)
        == []
    )


async def test_the_leaders_housekeeping_records(store: Store, clock: StoreClock) -> None:
    async with Leader(store, clock) as leader:
        collector = GarbageCollector(store, leader, ManagerMetrics(), clock)
        await FakeAgent(store).report()
        for _ in range(2):
            await collector.run_once()
    rows = await store.database.fetch(
        "SELECT sum(samples) AS n FROM queue_spans WHERE seconds = 86400"
    )
    assert rows[0]["n"] == 1, "a sample in half a minute, not one in every pass"


async def test_a_renamed_group_keeps_its_history(store: Store) -> None:
    term = await leading(store)
    await store.groups.put("lab", GroupOptions(), actor="root")
    await store.occupancy_history.record(term)
    await store.database.fetch("UPDATE resource_groups SET name = 'laboratory' WHERE name = 'lab'")
    assert (await history(store, 60, "laboratory")).queue.pending == [0]


YEAR = """
WITH groups AS (
    INSERT INTO resource_groups (name, options) SELECT 'g' || n, '{}' FROM generate_series(1, 10) n
    RETURNING name
), times AS (
    SELECT 60 AS seconds, now() - n * interval '1 minute' AS at FROM generate_series(1, 4000) n UNION ALL
    SELECT 3600, now() - n * interval '1 hour' FROM generate_series(1, 4000) n UNION ALL
    SELECT 86400, now() - n * interval '1 day' FROM generate_series(1, 4000) n
), queues AS (
    INSERT INTO queue_spans SELECT name, seconds, at, 3, 1, 2, 3 FROM groups, times
)
INSERT INTO occupancy_spans
SELECT name, seconds, at, 3, slot, 8000, 4000, 8000 FROM groups, times, unnest(ARRAY['cpu', 'mem']) slot
"""


async def test_each_length_of_span_has_its_retention(store: Store) -> None:
    await store.database.fetch(YEAR)
    while await store.occupancy_history.delete_old():
        pass

    for table, slots in (("occupancy_spans", 2), ("queue_spans", 1)):
        rows = await store.database.fetch(
            f"SELECT seconds, count(*) AS n FROM {table} GROUP BY 1 ORDER BY 1"
        )
        kept = {row["seconds"]: row["n"] // 10 // slots for row in rows}
        assert kept[3600] in (2159, 2160), "ninety days"
        assert kept[60] in (2878, 2879, 2880), "two days"
        assert kept[86_400] in (3649, 3650), "ten years"


async def test_a_year_of_history_is_read_by_its_index(store: Store) -> None:
    """The amount read depends on the window, no matter how long the history is."""
    await store.database.fetch(YEAR)
    await store.database.fetch("ANALYZE occupancy_spans")
    from moorage.manager.store.database.queries import SQL

    window = ["g1"], 3600, datetime.now(UTC) - timedelta(days=1), datetime.now(UTC)
    rows = await store.database.fetch(
        "EXPLAIN (ANALYZE, FORMAT JSON) " + SQL["occupancy_slots_history"], *window
    )
    plan = rows[0][0] if isinstance(rows[0][0], list) else json.loads(rows[0][0])
    text = json.dumps(plan)
    assert "occupancy_spans_pkey" in text
    assert '"Rows Removed by Filter"' not in text


async def test_callers_read_groups_that_they_may_name(store: Store) -> None:
    term = await leading(store)
    await store.groups.put("lab", GroupOptions(projects=["vision"]), actor="root")
    await FakeAgent(store, group="lab").report()
    await store.occupancy_history.record(term)
    path = "/v1/occupancy/history?step=minute"
    async with serve(store) as api:
        for caller, seen in (("ann", True), ("bob", False), ("auditor", True)):
            for query in ("", "&resource_group=lab"):
                status, text = await api.call(caller, "GET", path + query)
                assert status == 200
                assert ('"lab"' in text) is seen, (caller, query)

        status, text = await api.call(
            "ann", "GET", path + "&from=2026-01-01T00:00:00Z&to=2026-06-01T00:00:00Z"
        )
        assert (status, "longer `step`" in text) == (422, True), text
        status, text = await api.call(
            "ann", "GET", path + "&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
        )
        assert status == 422


@pytest.mark.parametrize(
    ("hours", "ago_days", "step"),
    [
        (1, 0, "minute"),
        (6, 0, "minute"),
        (24, 0, "hour"),
        (1, 3, "hour"),
        (24 * 16, 0, "hour"),
        (24 * 30, 0, "day"),
        (24, 100, "day"),
        (24 * 3000, 0, "day"),
    ],
)
def test_default_step(hours: int, ago_days: int, step: str) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    until = now - timedelta(days=ago_days)
    assert choose_step(until - timedelta(hours=hours), until, now) == step
