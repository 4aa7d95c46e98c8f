"""Replica plans and endpoint status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus, Status
from moorage.manager.serving.endpoint_plan import plan_endpoint
from moorage.manager.serving.replicas import FAILURES_MAX, ReplicaPlan, plan_replicas
from moorage.manager.serving.snapshots import BudgetStop, EndpointSnapshot, ReplicaSnapshot
from moorage.manager.serving.status import endpoint_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STOP = BudgetStop("project p in gpu by the month", NOW + timedelta(hours=1))
SPEC = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf")


def replica(
    status: Status,
    age_s: float = 100,
    *,
    ended_s: float = 50,
    ready_s: float | None = None,
    **fields: object,
) -> ReplicaSnapshot:
    """``age_s``, ``ended_s``, ``ready_s``: seconds since it was created, changed its status, and
    became ready."""

    def ago(seconds: float) -> datetime:
        return NOW - timedelta(seconds=seconds)

    ready = None if ready_s is None else ago(ready_s)
    return ReplicaSnapshot(
        SessionId(f"s{age_s}"),
        status,
        created_at=ago(age_s),
        status_since=ago(ended_s),
        ready_at=ready,
        **fields,
    )  # type: ignore[arg-type]


def endpoint(
    *replicas: ReplicaSnapshot,
    wanted: int = 1,
    changed_s: float = 1000,
    deleted: bool = False,
    **fields: object,
) -> EndpointSnapshot:
    changed = NOW - timedelta(seconds=changed_s)
    return EndpointSnapshot(
        EndpointId("e"),
        "m",
        spec=SPEC,
        wanted=wanted,
        changed_at=changed,
        deleted=deleted,
        replicas=replicas,
        proven=True,
        **fields,  # type: ignore[arg-type]
    )


def failed(age_s: float, ended_s: float) -> ReplicaSnapshot:
    return replica(Status.ERROR, age_s, ended_s=ended_s, reason=Reason.EXIT_NONZERO)


CASES = [
    ("no replica yet", endpoint(), 1, [], EndpointStatus.QUEUED),
    ("two wanted", endpoint(replica(Status.RUNNING), wanted=2), 1, [], EndpointStatus.DEGRADED),
    ("enough", endpoint(replica(Status.CREATING)), 0, [], EndpointStatus.LOADING),
    ("ready", endpoint(replica(Status.RUNNING)), 0, [], EndpointStatus.READY),
    ("zero wanted", endpoint(wanted=0), 0, [], EndpointStatus.NOT_LOADED),
    (
        "stopped by a budget",
        endpoint(replica(Status.CREATING), stopped_by=STOP),
        0,
        ["s100"],
        EndpointStatus.NOT_LOADED,
    ),
    (
        "stopped by a budget: none starts",
        endpoint(stopped_by=STOP),
        0,
        [],
        EndpointStatus.NOT_LOADED,
    ),
    ("one is terminating", endpoint(replica(Status.TERMINATING)), 1, [], EndpointStatus.QUEUED),
    (
        "scale down: not ready first",
        endpoint(replica(Status.RUNNING, 10), replica(Status.CREATING, 90), wanted=1),
        0,
        ["s90"],
        EndpointStatus.READY,
    ),
    (
        "scale down: then the youngest",
        endpoint(replica(Status.RUNNING, 10), replica(Status.RUNNING, 90), wanted=1),
        0,
        ["s10"],
        EndpointStatus.READY,
    ),
    (
        "silent agent: replaced",
        endpoint(replica(Status.RUNNING, agent_silent=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    (
        "drained agent: replacement first",
        endpoint(replica(Status.RUNNING, 90, agent_drained=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    (
        "drained agent: replacement not ready",
        endpoint(replica(Status.CREATING, 9), replica(Status.RUNNING, 90, agent_drained=True)),
        0,
        [],
        EndpointStatus.READY,
    ),
    (
        "drained agent: replacement ready",
        endpoint(replica(Status.RUNNING, 9), replica(Status.RUNNING, 90, agent_drained=True)),
        0,
        ["s90"],
        EndpointStatus.READY,
    ),
    (
        "drained agent: one by one as replacements become ready",
        endpoint(
            replica(Status.RUNNING, 9),
            replica(Status.CREATING, 8),
            replica(Status.RUNNING, 90, agent_drained=True),
            replica(Status.RUNNING, 91, agent_drained=True),
            wanted=2,
        ),
        0,
        ["s91"],
        EndpointStatus.READY,
    ),
    (
        "drained agent: a replica that is not ready stops at once",
        endpoint(replica(Status.PREPARING, 9, agent_drained=True)),
        1,
        ["s9"],
        EndpointStatus.LOADING,
    ),
    (
        "drained and silent agent: replaced",
        endpoint(replica(Status.RUNNING, 9, agent_drained=True, agent_silent=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    (
        "deleted",
        endpoint(replica(Status.RUNNING, 7), deleted=True),
        0,
        ["s7"],
        EndpointStatus.STOPPED,
    ),
    ("failed, in backoff", endpoint(failed(10, 4)), 0, [], EndpointStatus.DEGRADED),
    ("failed, backoff over", endpoint(failed(10, 5)), 1, [], EndpointStatus.DEGRADED),
    (
        "failed twice, longer backoff",
        endpoint(failed(10, 9), failed(20, 15)),
        0,
        [],
        EndpointStatus.DEGRADED,
    ),
    (
        "too many failures",
        endpoint(*[failed(100 + n, 99 + n) for n in range(FAILURES_MAX)], changed_s=1e6),
        0,
        [],
        EndpointStatus.DEGRADED,
    ),
    (
        "endpoint changed since the failures",
        endpoint(*[failed(100 + n, 99 + n) for n in range(FAILURES_MAX)], changed_s=50),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "agent lost",
        endpoint(replica(Status.ERROR, 10, ended_s=0, reason=Reason.AGENT_LOST)),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "failed after it was stable",
        endpoint(replica(Status.ERROR, 900, ended_s=0, ready_s=800, reason=Reason.KILLED)),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "failed before it was stable",
        endpoint(replica(Status.ERROR, 20, ended_s=0, ready_s=10, reason=Reason.KILLED)),
        0,
        [],
        EndpointStatus.DEGRADED,
    ),
]


@pytest.mark.parametrize(
    ("endpoint", "start", "stops", "status"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plan_replicas(
    endpoint: EndpointSnapshot, start: int, stops: list[str], status: EndpointStatus
) -> None:
    plan = plan_endpoint(endpoint, NOW)
    assert (plan.start, [one for one, _ in (*plan.stop, *plan.drain)]) == (start, stops)
    if endpoint.stopped_by is not None:
        assert plan.look_at == STOP.until
    assert endpoint_status(endpoint) is status


def ended(plan: ReplicaPlan) -> set[SessionId]:
    return {one for one, _ in (*plan.stop, *plan.drain)}


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Status)), st.integers(1, 500), st.booleans()), max_size=8
    ),
    st.integers(0, 6),
)
def test_draining_stops_no_replica_that_is_needed(
    states: list[tuple[Status, int, bool]], wanted: int
) -> None:
    replicas = [
        replica(s, a + n / 100, ended_s=a / 2, agent_drained=d)
        for n, (s, a, d) in enumerate(states)
    ]
    replicas.sort(key=lambda r: r.created_at, reverse=True)
    plan = plan_replicas(endpoint(*replicas, wanted=wanted), NOW)
    serving = [r for r in replicas if r.status is Status.RUNNING]
    left = [r for r in serving if r.session_id not in ended(plan)]
    assert len(left) >= min(wanted, len(serving))


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Status)), st.integers(1, 500), st.booleans()), max_size=8
    ),
    st.integers(0, 6),
    st.booleans(),
)
def test_plan_never_overshoots(
    states: list[tuple[Status, int, bool]], wanted: int, deleted: bool
) -> None:
    replicas = [
        replica(s, a + n / 100, ended_s=a / 2, agent_silent=quiet)
        for n, (s, a, quiet) in enumerate(states)
    ]
    replicas.sort(key=lambda r: r.created_at, reverse=True)
    plan = plan_replicas(endpoint(*replicas, wanted=wanted, deleted=deleted), NOW)
    live = [
        r for r in replicas if r.status not in {Status.TERMINATING, Status.TERMINATED, Status.ERROR}
    ]
    live = [r for r in live if r.status is not Status.CANCELLED]
    healthy = [r for r in live if not r.agent_silent]
    assert not (plan.start and ended(plan))
    assert ended(plan) <= {r.session_id for r in live}

    if deleted:
        assert len(plan.stop) == len(live)
    else:
        assert len(healthy) + plan.start <= max(wanted, len(healthy))
        assert len(healthy) - len(ended(plan)) == min(len(healthy), wanted)
