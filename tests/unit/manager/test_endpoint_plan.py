"""Canaries: replicas of a revision that is tested alongside the stable one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.serving import Rollout
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.manager.serving.endpoint_plan import canary_replicas, is_tried, plan_endpoint
from moorage.manager.serving.replicas import ReplicaPlan
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot, Stable
from moorage.manager.serving.status import rollout_state

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def replica(
    name: str, revision: int, status: Status = Status.RUNNING, **fields: Any
) -> ReplicaSnapshot:
    created_at = NOW - timedelta(seconds=10 if revision == 2 else 100)
    return ReplicaSnapshot(SessionId(name), status, created_at, NOW, revision=revision, **fields)


def old(*names: str, **fields: Any) -> list[ReplicaSnapshot]:
    return [replica(name, 1, **fields) for name in names]


def new(*names: str, status: Status = Status.RUNNING, **fields: Any) -> list[ReplicaSnapshot]:
    return [replica(name, 2, status, **fields) for name in names]


def endpoint(*replicas: ReplicaSnapshot, wanted: int = 4, canary: int = 25) -> EndpointSnapshot:
    """Its revision 2 is tested beside revision 1."""
    spec = EndpointSpec(name="m", engine="vllm", model="two", rollout=Rollout(canary=canary))
    stable = Stable(1, EndpointSpec(name="m", engine="vllm", model="one"))
    changed_at = NOW - timedelta(seconds=60)

    return EndpointSnapshot(
        EndpointId("e"),
        "m",
        spec=spec,
        wanted=wanted,
        changed_at=changed_at,
        deleted=False,
        replicas=replicas,
        revision=2,
        fallback=1,
        stable=stable,
    )


CASES: list[tuple[str, EndpointSnapshot, ReplicaPlan]] = [
    ("it starts beside the stable ones", endpoint(*old("a", "b", "c", "d")), ReplicaPlan(start=1)),
    (
        "at least one",
        endpoint(*old("a"), wanted=1, canary=1),
        ReplicaPlan(start=1),
    ),
    ("it stays so", endpoint(*new("n"), *old("a", "b", "c", "d")), ReplicaPlan()),
    (
        "a stable one that is missing is of the stable revision",
        endpoint(*new("n"), *old("a", "b", "c")),
        ReplicaPlan(start_stable=1),
    ),
    (
        "a smaller share",
        endpoint(*new("n", "o"), *old("a", "b", "c", "d")),
        ReplicaPlan(drain=((SessionId("n"), Reason.SCALED_DOWN),)),
    ),
    (
        "a canary before it leaves",
        endpoint(*new("n"), *old("a", "b", "c", "d"), replica("x", 3)),
        ReplicaPlan(drain=((SessionId("x"), Reason.REVISION_REPLACED),)),
    ),
    ("asleep", endpoint(wanted=0), ReplicaPlan()),
]


@pytest.mark.parametrize(
    ("given", "plan"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_canary(given: EndpointSnapshot, plan: ReplicaPlan) -> None:
    assert plan_endpoint(given, NOW) == plan


def test_a_failing_canary_is_rolled_back() -> None:
    failed = new("n", "o", "p", status=Status.ERROR, reason=Reason.OOM)
    assert plan_endpoint(endpoint(*failed, *old("a", "b", "c", "d")), NOW).roll_back_to == 1
    assert plan_endpoint(endpoint(*failed[1:], *old("a", "b", "c", "d")), NOW).roll_back_to is None


def test_its_state() -> None:
    starting = endpoint(*new("n", status=Status.PENDING), *old("a", "b", "c", "d"))
    assert (is_tried(starting), rollout_state(starting, None)) == (False, "progressing")
    ready = endpoint(*new("n"), *old("a", "b", "c", "d"))
    assert (is_tried(ready), rollout_state(ready, None)) == (True, "canary")
    assert rollout_state(endpoint(wanted=0), None) == "waiting"


@examples(60)
@given(st.integers(0, 8), st.integers(1, 99))
def test_it_comes_to_rest_with_both_at_their_numbers(wanted: int, percent: int) -> None:
    replicas: list[ReplicaSnapshot] = []
    for step in range(40):
        now = endpoint(*replicas, wanted=wanted, canary=percent)
        plan = plan_endpoint(now, NOW)
        if plan == ReplicaPlan():
            break

        replicas += new(*(f"n{step}-{i}" for i in range(plan.start)))
        replicas += old(*(f"o{step}-{i}" for i in range(plan.start_stable)))

    counts = [sum(r.revision == revision for r in replicas) for revision in (1, 2)]
    assert counts == [wanted, canary_replicas(now)]
    assert counts[1] * 100 >= wanted * percent
