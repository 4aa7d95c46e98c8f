"""An endpoint's resource groups: where its replicas start, and when they try the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.manager.serving.groups import FULL_S, SETTLED_S, WAIT_S, start_group
from moorage.manager.serving.replicas import plan_replicas
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def replica(
    group: str, status: Status, since_s: float, reason: Reason = Reason.NONE
) -> ReplicaSnapshot:
    since = NOW - timedelta(seconds=since_s)
    name = SessionId(f"{group}-{status}")
    return ReplicaSnapshot(name, status, since, since, reason=reason, group=group)


def waiting(group: str, since_s: float = WAIT_S + 1) -> ReplicaSnapshot:
    return replica(group, Status.PENDING, since_s)


def left(group: str, since_s: float = 10) -> ReplicaSnapshot:
    return replica(group, Status.CANCELLED, since_s, Reason.GROUP_FULL)


def endpoint(
    *replicas: ReplicaSnapshot, groups: tuple[str, ...] = ("a", "b", "c")
) -> EndpointSnapshot:
    fields: dict[str, Any] = {
        "name": "m",
        "engine": "vllm",
        "model": "m",
        "resource_groups": list(groups),
    }
    spec = EndpointSpec.model_validate(fields)
    changed_at = NOW - timedelta(hours=1)
    return EndpointSnapshot(
        EndpointId("e"),
        "m",
        spec=spec,
        wanted=1,
        changed_at=changed_at,
        deleted=False,
        replicas=replicas,
    )


@pytest.mark.parametrize(
    ("given", "moves", "starts_in"),
    [
        ((), False, "a"),
        ((waiting("a"),), True, "b"),
        ((waiting("a", WAIT_S - 1),), False, "a"),
        ((waiting("b"), left("a")), True, "c"),
        ((waiting("c"), left("b"), left("a")), False, "a"),
        ((waiting("c"), left("b"), left("a", FULL_S + 1)), True, "a"),
        ((left("c"), left("b"), left("a")), False, "a"),
        ((replica("b", Status.RUNNING, 900), left("a")), False, "b"),
    ],
)
def test_groups(given: tuple[ReplicaSnapshot, ...], moves: bool, starts_in: str) -> None:
    found = endpoint(*given)
    plan = plan_replicas(found, NOW)
    assert [reason for _, reason in plan.stop] == [Reason.GROUP_FULL] * moves
    assert plan.start == (moves or not any(r.status is not Status.CANCELLED for r in given))
    assert start_group(found, NOW) == starts_in


def test_the_plan_looks_again_in_time() -> None:
    plan = plan_replicas(endpoint(waiting("a", 1)), NOW)
    assert plan.look_at == NOW + timedelta(seconds=WAIT_S - 1)


def test_one_group_is_waited_for() -> None:
    plan = plan_replicas(endpoint(waiting("a", 3600), groups=("a",)), NOW)
    assert (plan.stop, plan.look_at) == ((), None)


def test_the_first_group_is_the_one_of_the_spec() -> None:
    spec = endpoint().spec
    assert (spec.resource_group, spec.groups) == ("a", ["a", "b", "c"])
    assert spec.session("m-1").resource_group == "a"
    assert spec.session("m-1", "b").resource_group == "b"
    assert [one.resource_group for one in spec.in_groups()] == ["a", "b", "c"]
    assert "resource_groups" not in spec.template()


def serving(group: str, since_s: float = SETTLED_S + 1) -> ReplicaSnapshot:
    found = replica(group, Status.RUNNING, since_s)
    return replace(found, ready_at=found.created_at)


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ((serving("a"),), 0),
        ((serving("b"),), 1),
        ((serving("b", SETTLED_S - 1),), 0),
        ((serving("b"), left("a")), 0),
        ((serving("c"), left("a")), 1),
        ((serving("b"), left("a", FULL_S + 1)), 1),
        ((serving("b"), replica("a", Status.CREATING, 3)), 0),
    ],
)
def test_replica_returns_once_a_preferred_group_is_not_full(
    given: tuple[ReplicaSnapshot, ...], starts: int
) -> None:
    plan = plan_replicas(endpoint(*given), NOW)
    assert (plan.start, plan.stop, plan.drain) == (starts, (), ()), (
        "it serves until the new one does"
    )


def test_replica_that_returned_is_drained_once_the_new_one_serves() -> None:
    new = serving("a", 1)
    old = serving("b")
    plan = plan_replicas(endpoint(new, old), NOW)
    assert (plan.start, plan.drain) == (0, ((old.session_id, Reason.PREFERRED_GROUP),))


def test_replica_stays_where_it_is_if_the_preferred_group_has_no_room_after_all() -> None:
    old = serving("b")
    plan = plan_replicas(endpoint(waiting("a"), old, groups=("a", "b")), NOW)
    assert plan.stop == ((SessionId("a-PENDING"), Reason.GROUP_FULL),) or plan.stop == (
        (SessionId("a-PENDING"), Reason.SCALED_DOWN),
    )
    assert (plan.start, plan.drain) == (0, ())
