"""How many replicas to start and stop, and when to stop trying."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus, Status
from moorage.manager.serving.replicas import (
    FAILURES_MAX,
    EndpointFacts,
    ReplicaFacts,
    endpoint_status,
    plan_replicas,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf")


def replica(
    status: Status, age_s: float = 100, *, ended_s: float = 50, ready_s: float | None = None, **more: object
) -> ReplicaFacts:
    """``age_s``, ``ended_s``, ``ready_s``: how long ago it was made, moved last, and was ready."""

    def ago(seconds: float) -> datetime:
        return NOW - timedelta(seconds=seconds)

    ready = None if ready_s is None else ago(ready_s)
    return ReplicaFacts(SessionId(f"s{age_s}"), status, ago(age_s), ago(ended_s), ready, **more)  # type: ignore[arg-type]


def endpoint(
    *replicas: ReplicaFacts, wanted: int = 1, changed_s: float = 1000, deleted: bool = False
) -> EndpointFacts:
    changed = NOW - timedelta(seconds=changed_s)
    return EndpointFacts(EndpointId("e"), "m", SPEC, wanted, changed, deleted, replicas)


def failed(age_s: float, ended_s: float) -> ReplicaFacts:
    return replica(Status.ERROR, age_s, ended_s=ended_s, reason=Reason.EXIT_NONZERO)


CASES = [
    ("none yet", endpoint(), 1, [], EndpointStatus.QUEUED),
    ("two wanted", endpoint(replica(Status.RUNNING), wanted=2), 1, [], EndpointStatus.DEGRADED),
    ("enough", endpoint(replica(Status.CREATING)), 0, [], EndpointStatus.LOADING),
    ("ready", endpoint(replica(Status.RUNNING)), 0, [], EndpointStatus.READY),
    ("zero wanted", endpoint(wanted=0), 0, [], EndpointStatus.NOT_LOADED),
    ("one is ending", endpoint(replica(Status.TERMINATING)), 1, [], EndpointStatus.QUEUED),
    (
        "the unready one goes first",
        endpoint(replica(Status.RUNNING, 10), replica(Status.CREATING, 90), wanted=1),
        0,
        ["s90"],
        EndpointStatus.READY,
    ),
    (
        "then the youngest",
        endpoint(replica(Status.RUNNING, 10), replica(Status.RUNNING, 90), wanted=1),
        0,
        ["s10"],
        EndpointStatus.READY,
    ),
    (
        "a silent agent's is replaced",
        endpoint(replica(Status.RUNNING, agent_silent=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    (
        "on an agent that is emptied: first another one",
        endpoint(replica(Status.RUNNING, 90, agent_drained=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    (
        "which is not ready yet",
        endpoint(replica(Status.CREATING, 9), replica(Status.RUNNING, 90, agent_drained=True)),
        0,
        [],
        EndpointStatus.READY,
    ),
    (
        "and then it goes",
        endpoint(replica(Status.RUNNING, 9), replica(Status.RUNNING, 90, agent_drained=True)),
        0,
        ["s90"],
        EndpointStatus.READY,
    ),
    (
        "one by one, as the others come",
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
        "one that serves nobody goes at once",
        endpoint(replica(Status.PREPARING, 9, agent_drained=True)),
        0,
        ["s9"],
        EndpointStatus.LOADING,
    ),
    (
        "silent, it is replaced as always",
        endpoint(replica(Status.RUNNING, 9, agent_drained=True, agent_silent=True)),
        1,
        [],
        EndpointStatus.READY,
    ),
    ("deleted", endpoint(replica(Status.RUNNING, 7), deleted=True), 0, ["s7"], EndpointStatus.STOPPED),
    ("failed just now", endpoint(failed(10, 4)), 0, [], EndpointStatus.DEGRADED),
    ("failed a while ago", endpoint(failed(10, 5)), 1, [], EndpointStatus.DEGRADED),
    ("failed twice", endpoint(failed(10, 9), failed(20, 15)), 0, [], EndpointStatus.DEGRADED),
    (
        "failed too often",
        endpoint(*[failed(100 + n, 99 + n) for n in range(FAILURES_MAX)], changed_s=1e6),
        0,
        [],
        EndpointStatus.DEGRADED,
    ),
    (
        "changed since",
        endpoint(*[failed(100 + n, 99 + n) for n in range(FAILURES_MAX)], changed_s=50),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "its node went away",
        endpoint(replica(Status.ERROR, 10, ended_s=0, reason=Reason.AGENT_LOST)),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "failed after a long good run",
        endpoint(replica(Status.ERROR, 900, ended_s=0, ready_s=800, reason=Reason.KILLED)),
        1,
        [],
        EndpointStatus.QUEUED,
    ),
    (
        "failed soon after it was ready",
        endpoint(replica(Status.ERROR, 20, ended_s=0, ready_s=10, reason=Reason.KILLED)),
        0,
        [],
        EndpointStatus.DEGRADED,
    ),
]


@pytest.mark.parametrize(
    ("facts", "start", "stops", "status"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plan(facts: EndpointFacts, start: int, stops: list[str], status: EndpointStatus) -> None:
    plan = plan_replicas(facts, NOW)
    assert (plan.start, list(plan.stop)) == (start, stops)
    assert endpoint_status(facts) is status


@given(
    st.lists(st.tuples(st.sampled_from(list(Status)), st.integers(1, 500), st.booleans()), max_size=8),
    st.integers(0, 6),
)
def test_emptying_an_agent_costs_no_replica_that_serves(
    some: list[tuple[Status, int, bool]], wanted: int
) -> None:
    replicas = [replica(s, a + n / 100, ended_s=a / 2, agent_drained=d) for n, (s, a, d) in enumerate(some)]
    replicas.sort(key=lambda r: r.created_at, reverse=True)
    plan = plan_replicas(endpoint(*replicas, wanted=wanted), NOW)
    serving = [r for r in replicas if r.status is Status.RUNNING]
    left = [r for r in serving if r.session_id not in plan.stop]
    assert len(left) >= min(wanted, len(serving))


@given(
    st.lists(st.tuples(st.sampled_from(list(Status)), st.integers(1, 500), st.booleans()), max_size=8),
    st.integers(0, 6),
    st.booleans(),
)
def test_the_plan_never_overshoots(some: list[tuple[Status, int, bool]], wanted: int, deleted: bool) -> None:
    replicas = [
        replica(s, a + n / 100, ended_s=a / 2, agent_silent=quiet) for n, (s, a, quiet) in enumerate(some)
    ]
    replicas.sort(key=lambda r: r.created_at, reverse=True)
    plan = plan_replicas(endpoint(*replicas, wanted=wanted, deleted=deleted), NOW)
    live = [r for r in replicas if r.status not in {Status.TERMINATING, Status.TERMINATED, Status.ERROR}]
    live = [r for r in live if r.status is not Status.CANCELLED]
    healthy = [r for r in live if not r.agent_silent]
    assert not (plan.start and plan.stop)
    assert set(plan.stop) <= {r.session_id for r in live}
    if deleted:
        assert len(plan.stop) == len(live)
    else:
        assert len(healthy) + plan.start <= max(wanted, len(healthy))
        assert len(healthy) - len(plan.stop) == min(len(healthy), wanted)
