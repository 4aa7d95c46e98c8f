"""The decision log in Postgres: recording, reading, gaps after outages, and retention."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import asyncpg
import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.errors import InvalidInput, StoreUnavailable
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager.decision_log import RecordedPass, Segment, SegmentReader
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import DecisionRecorder, GarbageCollector, Leader, Scheduler
from moorage.manager.loops import decision_recorder as recording
from moorage.manager.loops.garbage_collector import Retention
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Plan, Policy, Snapshot, plan
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, reconcile_all
from .tenancy_harness import serve

SYSTEM = Scope.system()

CLOCK = StoreClock()
ANN = Owner("ann")
EVER = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


async def create(store: Store, name: str, gpus: int = 1) -> str:
    spec = SessionSpec(name=name, command=["x"], resources={"cuda.device": gpus})
    return (await store.sessions.create(Scope.system("key:ann", ANN), spec)).id


async def kept(store: Store, group: str = "default") -> list[RecordedPass]:
    reader = SegmentReader()
    found = []
    cursor = None
    while True:
        page = await store.decisions.page(SYSTEM, group, *EVER, cursor=cursor, limit=3)
        if page.next is None:
            return found
        found += [one for segment in page.items for one in reader.read(b64decode(segment.body))]
        cursor = page.next


class Passes:
    """Passes of a real scheduler, with a real recorder."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.metrics = ManagerMetrics()
        self.leader = Leader(store, CLOCK)
        self.recorder = DecisionRecorder(store, self.metrics, CLOCK)
        terminator = SessionTerminator(store, LOST_GRACE_S)
        self.scheduler = Scheduler(
            store, self.leader, terminator, self.metrics, clock=CLOCK, recorder=self.recorder
        )

    async def one(self) -> None:
        if self.leader.term is None:
            await self.leader.run_once()
        await self.scheduler.run_once()

    def count(self, record: str) -> float:
        for line in self.metrics.render().decode().splitlines():
            if line.startswith(f'moorage_scheduler_decisions_total{{record="{record}"}}'):
                return float(line.split()[-1])
        return 0.0


async def placed(store: Store) -> dict[str, str]:
    rows = await store.database.fetch(
        "SELECT session_id, agent_id FROM kernels WHERE agent_id IS NOT NULL"
    )
    return {row["session_id"]: row["agent_id"] for row in rows}


async def test_recorded_passes_replan_to_the_same_places(store: Store) -> None:
    agents = [FakeAgent(store, name) for name in ("node-1", "node-2")]
    for agent in agents:
        await agent.report()

    passes = Passes(store)
    names = [await create(store, f"s{n}", 1 + n % 2) for n in range(5)]
    await passes.one()
    await passes.recorder.write()
    first = await placed(store)
    assert 1 <= len(first) < len(names), "some wait"

    # One of them runs and ends, and another takes its place.
    for agent in agents:
        agent.generation += 1
        for row in await store.database.fetch(
            "SELECT id FROM kernels WHERE agent_id = $1", agent.name
        ):
            agent.see(row["id"], ObservedState.RUNNING, **RUNNING)

        await agent.report()

    await reconcile_all(store)
    for agent in agents:
        for kernel in list(agent.seen):
            agent.see(kernel, ObservedState.EXITED, exit_code=0)
        await agent.report()

    await reconcile_all(store)
    for agent in agents:
        await agent.report()

    await passes.one()
    await passes.recorder.write()
    decisions = await kept(store)
    assert len(decisions) == 2
    told = {place.session_id: place.agent_id for one in decisions for place in one.places}
    assert told == await placed(store)
    assert len(told) > len(first)
    for one in decisions:
        assert set(plan(one.snapshot, one.policy, one.at).places) == set(one.places)
        assert one.placed == len(one.places)

    assert decisions[0].held == {"insufficient-resources": len(names) - len(first)}
    assert passes.count("kept") == 2

    runs = await store.decisions.runs(SYSTEM, "default", *EVER, cursor=None, limit=2)
    assert len(runs.items) == 2
    more = await store.decisions.runs(SYSTEM, "default", *EVER, cursor=runs.next, limit=500)
    assert (more.next, {run.session_id: run.agent_id for run in (*runs.items, *more.items)}) == (
        None,
        told,
    )
    ended = {run.session_id for run in (*runs.items, *more.items) if run.released_at is not None}
    assert ended == set(first)
    held = {run.session_id: [(t.slot, t.amount) for t in run.takes] for run in more.items}
    assert all(("cuda.device", 1000) in takes for takes in held.values())
    later = datetime.now(UTC) + timedelta(hours=1)
    still = await store.decisions.runs(SYSTEM, "default", later, later, cursor=None, limit=500)
    assert {run.session_id for run in still.items} == told.keys() - ended


async def test_unchanged_pass_is_only_counted(store: Store) -> None:
    await FakeAgent(store).report()
    passes = Passes(store)
    for n in range(3):
        await create(store, f"s{n}", 2)
    for _ in range(6):
        await passes.one()

    await create(store, "s3", 2)
    await passes.one()
    await passes.recorder.write()
    decisions = await kept(store)
    assert len(decisions) < 7
    assert len(decisions) + sum(one.idle_passes for one in decisions) == 7
    assert decisions[-1].idle_passes >= 2
    rows = await store.database.fetch(
        "SELECT passes, size, octet_length(body) AS length FROM decisions"
    )
    assert [(row["passes"], row["size"]) for row in rows] == [(len(decisions), rows[0]["length"])]
    await passes.recorder.write()
    assert len(await store.database.fetch("SELECT FROM decisions")) == 1, (
        "nothing new, nothing written"
    )


def world(number: int) -> tuple[Snapshot, Policy, Plan]:
    snapshot = Snapshot("default", (), pending=(), quotas=(), cursors={"": f"agent-{number}"})  # type: ignore[dict-item]
    return snapshot, Policy(), plan(snapshot, Policy())


def note(recorder: DecisionRecorder, number: int, term: int = 1) -> None:
    recorder.note(*world(number), at=number * 1_000_000, took=1, placed=0, term=term)


async def test_new_term_begins_with_a_full_segment(store: Store) -> None:
    recorder = DecisionRecorder(store, ManagerMetrics(), CLOCK)
    for number, term in ((1, 1), (2, 1), (3, 2), (4, 2)):
        note(recorder, number, term)

    await recorder.write()
    note(recorder, 5, 2)
    await recorder.write()
    rows = await store.database.fetch(
        "SELECT term, whole, passes, number FROM decisions ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [(1, True, 2, 0), (2, True, 2, 1), (2, False, 1, 2)]

    # A reader who asks for the entry at 4 s gets the one that began with the second term.
    since = datetime.fromtimestamp(4, UTC)
    page = await store.decisions.page(SYSTEM, "default", since, since, cursor=None, limit=50)
    assert [(item.whole, item.term) for item in page.items] == [(True, 2)]
    assert page.kept_since == datetime.fromtimestamp(1, UTC)
    assert page.kept_until == datetime.fromtimestamp(5, UTC)
    assert (
        await store.decisions.page(SYSTEM, "default", since, since, cursor=page.next, limit=50)
    ).items == []
    other = await store.decisions.page(SYSTEM, "other", since, since, cursor=None, limit=50)
    assert (other.items, other.next, other.kept_since) == ([], None, None)


async def test_invalid_cursor_is_refused(store: Store) -> None:
    for cursor in ("-1", "x", "9" * 40):
        with pytest.raises(InvalidInput, match="is not valid"):
            await store.decisions.page(SYSTEM, "default", *EVER, cursor=cursor, limit=5)
        with pytest.raises(InvalidInput, match="is not valid"):
            await store.decisions.runs(SYSTEM, "default", *EVER, cursor=cursor, limit=5)


async def locked(dsn: str) -> asyncpg.Connection:
    """A connection that holds a lock on the table of decisions."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN; LOCK TABLE decisions IN SHARE MODE")
    return connection


async def until_waiting(store: Store) -> int:
    """The backend that waits for the lock."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'INTO decisions'"
    async with asyncio.timeout(10):
        while not (
            found := await store.database.fetch(f"{waiting} AND datname = current_database()")
        ):
            await asyncio.sleep(0.01)
    return int(found[0]["pid"])


async def test_failed_append_is_repeated_and_stored_once(
    store: Store, migrated_database: str
) -> None:
    recorder = DecisionRecorder(store, ManagerMetrics(), CLOCK)
    note(recorder, 1)
    lock = await locked(migrated_database)
    writing = asyncio.create_task(recorder.write())
    await lock.execute(f"SELECT pg_terminate_backend({await until_waiting(store)})")
    with pytest.raises(StoreUnavailable):
        await writing

    await lock.close()
    note(recorder, 2)
    await recorder.write()
    assert [one.at for one in await kept(store)] == [1_000_000, 2_000_000]
    segment = Segment(1, 2, whole=True, passes=1, dropped=0, body=b"x")
    for _ in range(2):
        await store.decisions.append("other", segment, term=1, run=CLOCK.new_id(), number=0)

    again = CLOCK.new_id()
    for _ in range(2):
        await store.decisions.append("third", segment, term=1, run=again, number=0)

    rows = await store.database.fetch(
        "SELECT resource_group, count(*) AS n FROM decisions GROUP BY 1"
    )
    assert {row["resource_group"]: row["n"] for row in rows} == {
        "default": 2,
        "other": 2,
        "third": 1,
    }


async def test_stalled_database_drops_passes_and_records_the_gap(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_ITEMS", 4)
    passes = Passes(store)
    recorder = passes.recorder
    note(recorder, 1)
    lock = await locked(migrated_database)
    writing = asyncio.create_task(recorder.write())
    await until_waiting(store)
    for number in range(2, 9):  # each has a weight of one, and no writer waits here
        note(recorder, number)

    await lock.close()
    await writing
    await recorder.write()
    decisions = await kept(store)
    dropped = int(passes.count("dropped"))
    assert dropped >= 5
    assert len(decisions) == 8 - dropped
    assert decisions[-1].at == 8_000_000
    rows = await store.database.fetch("SELECT whole, dropped, passes FROM decisions ORDER BY id")
    assert (rows[-1]["whole"], rows[-1]["dropped"]) == (True, dropped)
    assert sum(row["passes"] for row in rows) == len(decisions)


async def test_encoded_segments_are_dropped_when_not_written(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_UNSENT_BYTES", 10)
    passes = Passes(store)
    note(passes.recorder, 1)
    lock = await locked(migrated_database)
    writing = asyncio.create_task(passes.recorder.write())
    await lock.execute(f"SELECT pg_terminate_backend({await until_waiting(store)})")
    with pytest.raises(StoreUnavailable):
        await writing

    await lock.close()
    note(passes.recorder, 2)
    await passes.recorder.write()
    assert [one.at for one in await kept(store)] == [2_000_000]
    (row,) = await store.database.fetch("SELECT whole, dropped FROM decisions")
    assert (row["whole"], row["dropped"], passes.count("dropped")) == (True, 1, 1)


async def test_segment_in_flight_is_dropped_with_the_others(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_ITEMS", 4)
    passes = Passes(store)
    note(passes.recorder, 1)
    lock = await locked(migrated_database)
    writing = asyncio.create_task(passes.recorder.write())
    pid = await until_waiting(store)
    for number in range(2, 8):
        note(passes.recorder, number)

    await lock.execute(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(StoreUnavailable):
        await writing

    await lock.close()
    await passes.recorder.write()
    assert [one.at for one in await kept(store)] == [7_000_000]
    (row,) = await store.database.fetch("SELECT whole, dropped FROM decisions")
    assert (row["whole"], row["dropped"], passes.count("dropped"), passes.count("kept")) == (
        True,
        6,
        6,
        1,
    )


async def test_drop_during_encoding_leaves_a_readable_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_ITEMS", 4)
    monkeypatch.setattr(recording, "YIELD_AFTER_S", -1.0)  # after each chunk
    passes = Passes(store)
    note(passes.recorder, 1)
    await passes.recorder.write()
    note(passes.recorder, 2)
    writing = asyncio.create_task(passes.recorder.write())
    await asyncio.sleep(0)  # it has started, and yields
    for number in range(3, 10):
        note(passes.recorder, number)

    await writing
    await passes.recorder.write()
    found = [one.at // 1_000_000 for one in await kept(store)]
    assert found == [1, 8, 9]
    assert passes.count("dropped") == 6
    rows = await store.database.fetch("SELECT whole, dropped FROM decisions ORDER BY id")
    assert [tuple(row) for row in rows] == [(True, 0), (True, 6)]


async def test_last_passes_are_written_at_shutdown(store: Store) -> None:
    async with DecisionRecorder(store, ManagerMetrics(), CLOCK) as recorder:
        await recorder.loop.ticked()
        note(recorder, 7)
    assert [one.at for one in await kept(store)] == [7_000_000]


async def test_retention_by_age_and_size(store: Store) -> None:
    now = round(datetime.now(UTC).timestamp() * 1_000_000)
    run = CLOCK.new_id()
    day = 86_400_000_000
    for number, age in enumerate((9, 8, 3, 2, 1)):
        segment = Segment(
            now - age * day, now - age * day, whole=True, passes=1, dropped=0, body=b"x" * 100
        )
        await store.decisions.append("default", segment, term=1, run=run, number=number)

    async def numbers() -> list[int]:
        return [
            row["number"]
            for row in await store.database.fetch("SELECT number FROM decisions ORDER BY id")
        ]

    assert await store.decisions.trim(7 * 86_400, 10_000) == 2
    assert await numbers() == [2, 3, 4]
    assert await store.decisions.trim(7 * 86_400, 250) == 1
    assert await numbers() == [3, 4], "the oldest goes first"
    leader = Leader(store, CLOCK)
    clock = ManualClock()
    collector = GarbageCollector(
        store,
        leader,
        ManagerMetrics(),
        clock,
        kept=Retention(decisions_s=86_400 * 1.5, decisions_bytes=10_000),
    )
    clock.advance(1000)
    await collector.run_once()
    assert await numbers() == [3, 4], "only the leader trims"
    await leader.run_once()
    await collector.run_once()
    assert await numbers() == [4]


async def test_rows_are_deleted_in_bounded_batches(store: Store) -> None:
    await store.database.fetch(
        "INSERT INTO decisions (resource_group, from_at, to_at, term, run, number, format, whole, passes, "
        "dropped, size, body) SELECT 'default', now(), now(), 1, gen_random_uuid(), n, 1, true, 1, 0, 1, 'x' "
        "FROM generate_series(1, 1203) n"
    )
    assert await store.decisions.trim(1e9, 3) == 1200
    rows = await store.database.fetch("SELECT number FROM decisions ORDER BY number")
    assert [row["number"] for row in rows] == [1201, 1202, 1203]


@pytest.mark.parametrize("change", ["size = 99", "to_at = from_at - interval '1 s'", "passes = 0"])
async def test_postgres_refuses_invalid_segments(store: Store, change: str) -> None:
    await store.decisions.append(
        "default",
        Segment(1, 2, whole=True, passes=1, dropped=0, body=b"x"),
        term=1,
        run=CLOCK.new_id(),
        number=0,
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await store.database.fetch(f"UPDATE decisions SET {change}")


async def test_passes_are_listed_newest_first_page_by_page(store: Store) -> None:
    """Over two terms, each with its own full segment, and a gap."""
    agent = FakeAgent(store)
    await agent.report()
    passes = Passes(store)
    first, waits = [await create(store, name, 2) for name in ("first", "waits")]
    await passes.one()
    await passes.recorder.write()
    # Another manager, which has lost some passes.
    again = DecisionRecorder(store, ManagerMetrics(), CLOCK)
    at = round(datetime.now(UTC).timestamp() * 1_000_000)
    for number in range(3):
        snapshot, policy, made = world(number)
        again.note(snapshot, policy, made, at=at + number, took=1500, placed=0, term=7)

    await again.write()
    await store.database.fetch("UPDATE decisions SET dropped = 4 WHERE term = 7")
    async with serve(store) as api:
        span = {"from": EVER[0].isoformat(), "to": EVER[1].isoformat()}

        async def read(**query: str) -> dict[str, Any]:
            path = f"/v1/scheduler/passes?{urlencode(span | query)}"
            status, text = await api.call("admin", "GET", path)
            assert status == 200, text
            found: dict[str, Any] = json.loads(text)
            return found

        found: list[dict[str, Any]] = []
        page = await read(limit="2")
        sizes = [len(page["items"])]
        found += page["items"]
        while page["next"]:
            page = await read(limit="2", cursor=page["next"])
            sizes.append(len(page["items"]))
            found += page["items"]

        times = [one["at"] for one in found]
        assert times == sorted(set(times), reverse=True), "each once, newest first"
        assert len(found) == 4
        assert sizes == [2, 1, 1], "a page per term at most, and no empty one at the end"
        assert [one["not_recorded_before"] for one in found] == [0, 0, 4, 0]
        last = found[-1]
        assert [place["session_id"] for place in last["places"]] == [first]
        assert last["places"][0]["agents"] == [agent.name]
        assert (last["pending"], last["placed"], last["held"]) == (
            2,
            1,
            {"insufficient-resources": 1},
        )

        for session, outcome in ((first, "placed"), (waits, "waited")):
            [one] = await all_of(read, session=session)
            assert (one["at"], one["session"]) == (last["at"], outcome)

        assert await all_of(read, session="no-such-session") == []
        for wrong in ("-1", "x", "9" * 40):
            path = f"/v1/scheduler/passes?{urlencode(span | {'cursor': wrong})}"
            assert (await api.call("admin", "GET", path))[0] == 422
        assert (await read(cursor="9" * 18))["items"], "from the end of the range"


async def all_of(read: Callable[..., Awaitable[dict[str, Any]]], **query: str) -> list[Any]:
    """The items of all pages."""
    page = await read(**query)
    found = list(page["items"])
    while page["next"]:
        page = await read(**query, cursor=page["next"])
        found += page["items"]
    return found


async def test_damaged_segment_is_reported(store: Store) -> None:
    segment = Segment(1, 2, whole=True, passes=1, dropped=0, body=b"x")
    await store.decisions.append("default", segment, term=1, run=CLOCK.new_id(), number=0)
    span = urlencode({"from": EVER[0].isoformat(), "to": EVER[1].isoformat()})
    async with serve(store) as api:
        status, text = await api.call("admin", "GET", f"/v1/scheduler/passes?{span}")
        assert (status, json.loads(text)["code"]) == (409, "conflict")
        assert "cannot be read" in text
