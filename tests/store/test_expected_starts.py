"""Expected starts: every reported start is kept with its outcome, and their errors are
published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, StartCalibrator
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.scheduling.expected_starts import (
    KEPT_PER_ATTEMPT,
    MIN_CORRECTED,
    ExpectedStart,
)
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()

DAY_S = 86_400


async def add(store: Store, name: str, gpus: int = 1, **more: object) -> SessionId:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": gpus}, "name": name}
    created = await store.sessions.create(
        Scope.system("t"), SessionSpec.model_validate(base | more)
    )
    return SessionId(created.id)


async def told(store: Store) -> list[dict[str, Any]]:
    rows = await store.database.fetch("SELECT * FROM expected_starts ORDER BY told_at")
    return [dict(row) for row in rows]


async def end(store: Store, agent: FakeAgent, name: str) -> None:
    kernel = (await store.sessions.get(SYSTEM, name)).kernels[-1].id
    agent.see(kernel, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)


async def waiting(store: Store) -> FakeAgent:
    """``first`` runs with a limit, and ``next`` waits for it to end."""
    agent = FakeAgent(store, gpus=1)
    await agent.report()
    await add(store, "first", timeout_s=1200, stop_grace_s=0)
    await schedule(store)
    agent.see((await store.sessions.get(SYSTEM, "first")).kernels[-1].id, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    await add(store, "next")
    await schedule(store)

    return agent


async def test_what_came_of_an_expected_start(store: Store) -> None:
    agent = await waiting(store)
    explain = ExplanationService(store, StoreClock())
    view = await explain.why(SYSTEM, "next")
    assert (view.expected_kind, view.calibration) == ("reserved", None)
    await explain.why(SYSTEM, "next")  # the same answer
    (row,) = await told(store)
    assert (str(row["session_id"]), row["attempt"], row["kind"]) == (view.session_id, 1, "reserved")
    assert row["expected_at"] == view.expected_start
    assert (await store.expected_starts.resolve())[0] == 0, "it still waits"

    await end(store, agent, "first")
    await schedule(store)
    assert (await store.expected_starts.resolve())[0] == 1
    assert (await store.expected_starts.resolve())[0] == 0
    (row,) = await told(store)
    placed = next(
        e for e in (await store.sessions.history(SYSTEM, "next")).items if e.event == "placed"
    )
    assert (row["outcome"], row["started_at"]) == ("started", placed.at)
    (calibration,) = await store.expected_starts.calibration()
    assert (calibration.resource_group, calibration.kind, calibration.starts) == (
        "default",
        "reserved",
        1,
    )
    error = abs((placed.at - row["expected_at"]).total_seconds())
    assert calibration.error_p50_s == calibration.error_p90_s == pytest.approx(error)

    agent.see((await store.sessions.get(SYSTEM, "next")).kernels[-1].id, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    await add(store, "last")
    await schedule(store)
    view = await explain.why(SYSTEM, "last")
    assert (view.expected_start, view.calibration) == (None, None), "next has no limit"


async def test_session_that_never_starts(store: Store) -> None:
    await waiting(store)
    await ExplanationService(store, StoreClock()).why(SYSTEM, "next")
    await SessionTerminator(store, LOST_GRACE_S).stop(Scope.system("t"), "next")
    assert (await store.sessions.get(SYSTEM, "next")).status is Status.CANCELLED
    assert (await store.expected_starts.resolve())[0] == 1
    (row,) = await told(store)
    assert (row["outcome"], row["started_at"]) == ("not-started", None)
    assert await store.expected_starts.calibration() == []


async def test_only_new_answers_about_pending_sessions_are_kept(store: Store) -> None:
    await waiting(store)
    now = datetime.now(UTC)
    ids = {
        name: SessionId((await store.sessions.get(SYSTEM, name)).id) for name in ("first", "next")
    }
    for name, seconds in (
        ("first", 0.0),
        ("next", 0.0),
        ("next", 0.9),
        ("next", -0.9),
        ("next", 1.1),
    ):
        at = now + timedelta(seconds=seconds)
        await store.expected_starts.record(ExpectedStart(ids[name], at, "earliest"))

    assert [row["expected_at"] - now for row in await told(store)] == [
        timedelta(0),
        timedelta(seconds=1.1),
    ]
    for number in range(KEPT_PER_ATTEMPT + 5):
        at = now + timedelta(seconds=10 + 2 * number)
        await store.expected_starts.record(ExpectedStart(ids["next"], at, "earliest"))

    assert len(await told(store)) == KEPT_PER_ATTEMPT


async def test_estimates_are_corrected_by_what_was_measured(store: Store) -> None:
    """Ten sessions started after about a quarter of the predicted time."""
    await waiting(store)
    explain = ExplanationService(store, StoreClock())
    raw = (await explain.why(SYSTEM, "next")).expected_start
    assert raw is not None

    for number in range(MIN_CORRECTED):
        (before,) = await store.expected_starts.calibration("default", "reserved") or [None]
        assert before is None or before.share_p50 == 1.0, "too few are no measure"
        await store.database.fetch(
            "INSERT INTO expected_starts (session_id, attempt, expected_at, told_at, kind, resource_group, "
            "outcome, started_at) SELECT gen_random_uuid(), 1, t + interval '1000 s', t, 'reserved', "
            "'default', 'started', t + make_interval(secs => $1) "
            "FROM (SELECT now() - interval '1 hour' AS t) times",
            250.0 + number % 2,
        )

    view = await explain.why(SYSTEM, "next")
    assert view.calibration is not None
    assert view.expected_start is not None
    assert view.calibration.share_p50 == pytest.approx(0.2505)
    assert view.calibration.error_p90_s == pytest.approx(0.5, abs=0.01)
    left = (raw - datetime.now(UTC)).total_seconds()
    assert (view.expected_start - datetime.now(UTC)).total_seconds() == pytest.approx(
        0.2505 * left, abs=5
    )
    assert "started after 25% of that time" in view.basis
    assert [row["expected_at"] for row in await told(store) if not row["outcome"]] == [raw], (
        "what is kept is not corrected, or each correction would be undone by the next one"
    )


async def test_metrics_and_retention(store: Store) -> None:
    agent = await waiting(store)
    explain = ExplanationService(store, StoreClock())
    expected = (await explain.why(SYSTEM, "next")).expected_start
    assert expected is not None
    metrics = ManagerMetrics()
    clock = StoreClock()
    await end(store, agent, "first")
    await schedule(store)
    placed = next(
        e for e in (await store.sessions.history(SYSTEM, "next")).items if e.event == "placed"
    ).at
    error = pytest.approx(abs((placed - expected).total_seconds()))
    await store.database.fetch("DELETE FROM leases")  # from the pass above

    async with Leader(store, clock) as leader:
        calibrator = StartCalibrator(store, leader, metrics, clock, kept_s=DAY_S)
        await calibrator.run_once()
        assert errors(metrics) == {("default", "reserved", p): error for p in ("0.5", "0.9")}
        await store.database.fetch(
            "UPDATE expected_starts SET told_at = told_at - interval '2 days'"
        )
        await calibrator.run_once()
        assert await told(store) == []


def errors(metrics: ManagerMetrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (
            sample.labels["resource_group"],
            sample.labels["kind"],
            sample.labels["quantile"],
        ): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "moorage_expected_start_error_seconds"
    }
