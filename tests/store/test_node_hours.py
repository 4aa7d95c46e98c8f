"""Node-hours of site jobs: summed from stored jobs, limited in each pass, and counted from zero
each month."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.group_options import GroupOptions, QuotaLimits, QuotaScope
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.scheduling.node_hours import JobSums
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.site_jobs import as_job
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, reconcile_all, schedule
from .test_site_sessions import as_site

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system("t")
ANN = Owner("ann", "vision")
BOB = Owner("bob", "speech")
# Short, because in the last WALLTIME_S of a month a job would not need all of it in that month.
WALLTIME_S = 360.0
SITE = HpcOptions(runtime="fake", walltime_s=WALLTIME_S)


class CalendarClock(StoreClock):
    """The wall clock advances with elapsed durations."""

    def __init__(self) -> None:
        super().__init__()
        self._began_at = self.monotonic()

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.monotonic() - self._began_at)


@pytest.fixture
async def site(store: Store) -> FakeAgent:
    await store.groups.put("hpc", GroupOptions(hpc=SITE), actor="t")
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 9)
    await agent.report()
    return agent


async def limit(store: Store, scope: QuotaScope, name: str, node_hours: float | None) -> None:
    await store.quotas.put(SYSTEM, scope, name, QuotaLimits(node_hours=node_hours))


async def add(store: Store, name: str, owner: Owner = ANN, walltime_s: float | None = None) -> str:
    spec = SessionSpec(command=["x"], resource_group="hpc", name=name, walltime_s=walltime_s)
    return (await store.sessions.create(Scope.system("t", owner), as_job(spec, SITE))).id


async def see(
    agent: FakeAgent, session: str, *states: ObservedState, left_s: float = WALLTIME_S
) -> None:
    """The site reports this about the session's job, of whose walltime ``left_s`` seconds are
    left."""
    [kernel] = (await agent.store.sessions.get(SYSTEM, session)).kernels
    for state in states:
        ends = 0.0 if state is ObservedState.QUEUED else datetime.now(UTC).timestamp() + left_s
        agent.see(
            kernel.id, state, ends_at=ends, exit_code=0 if state is ObservedState.EXITED else None
        )
        await agent.report()
        await reconcile_all(agent.store)


async def use(store: Store, scope: QuotaScope, name: str) -> tuple[float, float]:
    """Used and reserved node-hours, rounded to hundredths."""
    view = await store.quotas.get(SYSTEM, scope, name)
    return round(view.node_hours_used, 2), round(view.node_hours_reserved, 2)


async def status(store: Store, session: str) -> Status:
    return (await store.sessions.get(SYSTEM, session)).status


async def move_back(store: Store, session: str, seconds: float) -> None:
    """Its job started this much earlier."""
    await store.database.fetch(
        "UPDATE kernels SET started_at = started_at - make_interval(secs => $2), "
        "ends_at = ends_at - make_interval(secs => $2) WHERE session_id = $1",
        session,
        seconds,
    )


@pytest.mark.parametrize(
    ("scope", "name"), [("user", "ann"), ("project", "vision"), ("group", "hpc")]
)
async def test_quota_of_node_hours_holds_a_second_job(
    store: Store, site: FakeAgent, scope: QuotaScope, name: str
) -> None:
    await limit(store, scope, name, 0.15)
    first = await add(store, "first")
    second = await add(store, "second")
    assert await schedule(store) == 1
    view = await store.sessions.get(SYSTEM, second)
    assert view.hold is not None
    assert (view.hold.reason, view.hold.attempts) == (Reason.NODE_HOURS, 0)
    assert view.hold.refusals[0].startswith(
        f"{scope} {name}: node-hours: used and reserved 0.1 + at most 0.1 > limit 0.15 a month (resets "
    )
    assert await use(store, scope, name) == (0, 0.1), "the site has not started it"
    explanation = await ExplanationService(store, StoreClock()).why(SYSTEM, second)
    [unmet] = [one for one in explanation.conditions if not one.met]
    assert (unmet.kind, unmet.text) == ("node-hours", view.hold.refusals[0])
    assert explanation.expected_start is not None
    assert explanation.expected_start.day == 1
    assert explanation.basis.startswith("from ")

    await see(site, first, ObservedState.QUEUED, ObservedState.RUNNING)
    assert (await schedule(store), await use(store, scope, name)) == (0, (0, 0.1))
    await see(site, first, ObservedState.EXITED)
    assert await use(store, scope, name) == (0, 0), "it has ended before its walltime"
    assert await schedule(store) == 1


async def test_changed_quota_releases_a_job_and_a_shorter_walltime_fits(
    store: Store, site: FakeAgent
) -> None:
    await limit(store, "user", "ann", 0.05)
    long = await add(store, "long")
    short = await add(store, "short", walltime_s=150)
    assert await schedule(store) == 1
    assert (await status(store, long), await status(store, short)) == (
        Status.PENDING,
        Status.SCHEDULED,
    )
    view = await store.sessions.get(SYSTEM, long)
    assert view.hold is not None
    assert view.hold.refusals[0].endswith(
        "> limit 0.05 a month; it never starts under this limit"
    ), "no month is long enough"
    await limit(store, "user", "ann", 0.2)
    assert await schedule(store) == 1
    await add(store, "third")
    assert await schedule(store) == 0
    await limit(store, "user", "ann", None)
    assert await schedule(store) == 1


async def test_sums_are_of_jobs_and_of_the_month(store: Store, site: FakeAgent) -> None:
    """Other users' jobs count only toward the group, and sessions in other groups are not counted
    at all."""
    for scope, name in (("user", "ann"), ("user", "bob"), ("group", "hpc"), ("group", "default")):
        await limit(store, scope, name, 100)  # type: ignore[arg-type]

    node = FakeAgent(store, "node")
    await node.report()
    plain = SessionSpec(command=["x"], resources={"cpu": 1}, walltime_s=3600)
    await store.sessions.create(Scope.system("t", ANN), plain)
    lives, ended = [await add(store, name, walltime_s=3600) for name in "ab"]
    of_bob = await add(store, "c", BOB, walltime_s=3600)
    assert await schedule(store) == 4
    await see(site, lives, ObservedState.RUNNING, left_s=3600)
    await see(site, ended, ObservedState.RUNNING, ObservedState.EXITED, left_s=3600)
    await see(site, of_bob, ObservedState.RUNNING, left_s=1800)
    now = datetime.now(UTC)
    middle = (now.replace(day=15) if now.day < 15 else now).replace(hour=12)
    for session in (lives, ended, of_bob):
        await store.database.fetch(
            "UPDATE kernels SET ends_at = ends_at + ($2::timestamptz - now()), "
            "started_at = started_at + ($2::timestamptz - now()) WHERE session_id = $1", session, middle,
        )  # fmt: skip

    ran_s = timedelta(seconds=900)
    await store.database.fetch(
        "UPDATE kernels SET status_since = $2::timestamptz WHERE session_id = $1",
        ended,
        middle + ran_s,
    )

    async def sums(at: datetime) -> dict[str, tuple[int, int]]:
        rows = await store.database.fetch(SQL["node_hours"], at, None)
        return {row["owner"]: (round(row["used"], -2), round(row["reserved"], -2)) for row in rows}

    assert await sums(middle + timedelta(seconds=1200)) == {
        "ann": (2100, 2400),
        "bob": (3000, 600),
    }, "a job that its agent saw late started a walltime before its end"
    assert await sums(middle + timedelta(hours=9)) == {"ann": (4500, 0), "bob": (3600, 0)}, (
        "nothing is used after the end of the walltime"
    )
    turn = (middle + timedelta(days=31)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert await sums(turn + timedelta(hours=3)) == {None: (0, 0)}
    back = (middle - turn).total_seconds() + 600 + (datetime.now(UTC) - now).total_seconds()
    await move_back(store, lives, back)
    assert (await sums(turn - timedelta(seconds=300)))["ann"] == (1200, 300), (
        "not what the next month has of it"
    )
    assert (await sums(turn + timedelta(seconds=900))) == {"ann": (900, 2100)}
    view = await store.quotas.get(SYSTEM, "group", "default")
    assert (view.node_hours, view.node_hours_used, view.node_hours_reserved) == (100, 0, 0)


@asynccontextmanager
async def scheduler(store: Store, clock: CalendarClock) -> AsyncIterator[tuple[Leader, Scheduler]]:
    async with Leader(store, clock) as leader:
        yield (
            leader,
            Scheduler(
                store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
            ),
        )


async def test_turn_of_the_month_releases_a_job(store: Store, site: FakeAgent) -> None:
    await limit(store, "project", "vision", 0.1)
    first = await add(store, "first")
    second = await add(store, "second")
    clock = CalendarClock()
    async with scheduler(store, clock) as (leader, loop):
        await loop.run_once()
        await see(site, first, ObservedState.RUNNING)
        await loop.run_once()
        assert await status(store, second) is Status.PENDING
        now = clock.now()
        turn = (now.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
        for at, expected in (
            (turn - timedelta(minutes=1), Status.PENDING),
            (turn, Status.SCHEDULED),
        ):
            clock.advance((at + timedelta(seconds=10) - clock.now()).total_seconds())
            await leader.run_once()
            await loop.run_once()
            assert await status(store, second) is expected


async def test_replica_that_a_quota_holds_is_known_to_its_endpoint(
    store: Store, site: FakeAgent
) -> None:
    await limit(store, "group", "hpc", 0)
    spec = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf", resource_group="hpc")
    made, _ = await store.endpoints.create_once(SYSTEM, spec, [], {}, idempotency_key=None)
    endpoint_id = made.snapshot.endpoint_id
    replica = as_job(spec.session("m-1", "hpc"), SITE)
    await store.sessions.create(SYSTEM, replica, endpoint_id=endpoint_id, endpoint_revision=1)
    assert await schedule(store) == 0
    [found] = await store.replicas.to_reconcile(SYSTEM, [endpoint_id])
    assert [one.held for one in found.replicas] == [Reason.NODE_HOURS]


async def test_jobs_of_the_month_are_kept(store: Store, site: FakeAgent) -> None:
    of_month = await add(store, "of-month")
    older = await add(store, "older")
    await schedule(store)
    for session in (of_month, older):
        await see(site, session, ObservedState.RUNNING, ObservedState.EXITED)

    await move_back(store, older, 32 * 86_400)
    await store.database.fetch(
        "UPDATE sessions SET created_at = created_at - interval '99 days', "
        "status_since = status_since - interval '32 days', status = 'TERMINATED'"
    )
    assert await store.retention.delete_sessions(86_400) == 1
    assert await status(store, of_month) is Status.TERMINATED


async def test_sum_reads_only_the_jobs_of_the_month(store: Store, site: FakeAgent) -> None:
    connection = store.database.dedicated_connection()
    await connection.fetch("SET enable_seqscan = off")
    rows = await connection.fetch("EXPLAIN " + SQL["node_hours"], None, None)
    text = "\n".join(row[0] for row in rows)
    assert "kernels_of_jobs" in text
    assert "sessions_live_jobs" in text


async def test_kept_sum_of_ended_jobs_is_that_of_the_jobs(store: Store, site: FakeAgent) -> None:
    """Jobs that ended before and after the sum was taken, a live one, and the next month."""
    await limit(store, "group", "hpc", 100)
    early, late, lives = [await add(store, name) for name in ("early", "late", "lives")]
    await schedule(store)
    for session in (early, late, lives):
        await see(site, session, ObservedState.RUNNING)

    now = datetime.now(UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    started = max(month, now - timedelta(hours=3))

    async def set_times(session: str, ran: timedelta) -> None:
        await store.database.fetch(
            "UPDATE kernels SET started_at = $2::timestamptz, ends_at = $2::timestamptz + interval '2 days', "
            "status_since = CASE status WHEN 'RUNNING' THEN status_since ELSE $2::timestamptz + $3::interval "
            "END WHERE session_id = $1", session, started, ran,
        )  # fmt: skip

    async def used() -> int:
        rows = await store.database.fetch(SQL["node_hours"], None, None)
        exact = sum(row["used"] for row in rows)
        kept = (await jobs.of_month()).used["group", "hpc"]
        assert abs(exact - kept) < 2
        return kept

    jobs = JobSums(store.database)
    await see(site, early, ObservedState.EXITED)
    for session in (early, late, lives):
        await set_times(session, (now - started) / 2)

    before = await used()
    await see(site, late, ObservedState.EXITED)
    assert 0 <= await used() - before < 60, "the one that ended is counted once, at once"
    turn = (month + timedelta(days=32)).replace(day=1)
    assert (await jobs.of_month(turn + timedelta(hours=1))).month_ends > turn
    assert 0 <= await used() - before < 60


async def test_group_that_is_renamed_has_used_what_it_had(store: Store, site: FakeAgent) -> None:
    """The rename takes effect at once, even for jobs whose sum is kept and that have not yet moved
    to the new name."""
    early, late = [await add(store, name) for name in ("early", "late")]
    await schedule(store)
    for session in (early, late):
        await see(site, session, ObservedState.RUNNING, ObservedState.EXITED)

    await store.database.fetch(
        "UPDATE kernels SET started_at = status_since - interval '3 minutes'"
    )
    await store.database.fetch(
        "UPDATE kernels SET status_since = status_since - interval '2 minutes' WHERE session_id = $1",
        early,
    )
    await limit(store, "group", "hpc", 100)
    assert await use(store, "group", "hpc") == (round(4 / 60, 2), 0)
    await store.group_aliases.rename("hpc", "site", actor="root")
    assert await use(store, "group", "site") == (round(4 / 60, 2), 0)
    while await store.group_aliases.settle():
        pass

    assert await use(store, "group", "site") == (round(4 / 60, 2), 0)


async def test_pass_sums_up_only_what_is_not_settled(store: Store, site: FakeAgent) -> None:
    connection = store.database.dedicated_connection()
    await limit(store, "group", "hpc", 100)
    job = await add(store, "job")
    await schedule(store)
    await see(site, job, ObservedState.RUNNING, ObservedState.EXITED)
    settled = datetime.now(UTC) + timedelta(seconds=1)
    rows = await connection.fetch("EXPLAIN (ANALYZE) " + SQL["node_hours"], None, settled)
    text = "\n".join(row[0] for row in rows)
    assert "CTE Scan on found j" in text
    [scan] = [line for line in text.splitlines() if "CTE Scan on found j" in line]
    assert "rows=0" in scan.partition("actual")[2]
