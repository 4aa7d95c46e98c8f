"""Changes of sessions by people: which are allowed, and what each of them writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, Result, SessionType, Status
from moorage.common.views.resources import SessionPatch, SessionView, UserHold
from moorage.manager.workloads.session_changes import (
    change_of,
    changed_spec,
    find_refusal,
    time_limit_s,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN, LEAD, MEMBER = Role.ADMIN, Role.PROJECT_ADMIN, Role.MEMBER
P, R, T = Status.PENDING, Status.RUNNING, Status.TERMINATED


def view(status: Status = P, spec: dict[str, Any] | None = None, **fields: Any) -> SessionView:
    made = SessionSpec(**({"command": ["true"]} | (spec or {})))
    return SessionView(
        id="s",
        name="train",
        type=made.type,
        status=status,
        result=Result.UNDEFINED,
        reason=Reason.NONE,
        detail="",
        resource_group=made.resource_group,
        priority=made.priority,
        attempt=1,
        revision=1,
        created_at=NOW,
        status_since=NOW,
        user="ann",
        slots={},
        spec=made,
        **fields,
    )


def held(role: str) -> UserHold:
    return UserHold.model_validate({"by": "key:ops", "role": role, "since": NOW})


LIMIT = {"timeout_s": 100}
DESK = {"type": "interactive", "max_lifetime_s": 100}
JOB = {"timeout_s": 100, "walltime_s": 100, "job": {"partition": "gpu"}}


@pytest.mark.parametrize(
    ("session", "patch", "role", "refused"),
    [
        (view(), {"priority": 20}, MEMBER, ""),
        (view(R), {"priority": 20}, MEMBER, "priority of session 'train' cannot be changed: it is RUNNING"),
        (view(R), {"priority": 20}, ADMIN, "it is RUNNING, not PENDING"),
        (view(R), {"priority": 10}, MEMBER, ""),  # as it is
        (view(R), {"resource_group": "big"}, ADMIN, "resource_group of session 'train'"),
        (view(R), {"held": True}, ADMIN, "held of session 'train'"),
        (view(T), {"held": True}, ADMIN, "it is TERMINATED, not PENDING"),
        (view(T), {"name": "b", "user_labels": {"a": "1"}}, MEMBER, ""),
        (view(P, LIMIT), {"time_limit_s": 500}, MEMBER, ""),
        (view(R, LIMIT), {"time_limit_s": 50}, MEMBER, ""),
        (view(R, LIMIT), {"time_limit_s": 500}, MEMBER, "time_limit_s = 500 is above 100"),
        (view(R, LIMIT), {"time_limit_s": 500}, LEAD, "time_limit_s = 500 is above 100"),
        (view(R, LIMIT), {"time_limit_s": 500}, ADMIN, ""),
        (view(Status.CREATING, LIMIT), {"time_limit_s": 500}, MEMBER, "is above 100"),
        (view(R), {"time_limit_s": 50}, MEMBER, ""),  # without a limit, any limit is shorter
        (view(R, DESK), {"time_limit_s": 50}, MEMBER, ""),
        (view(T, LIMIT), {"time_limit_s": 50}, ADMIN, "it is TERMINATED"),
        (view(Status.TERMINATING, LIMIT), {"time_limit_s": 50}, ADMIN, "it is TERMINATING"),
        (view(R, JOB), {"time_limit_s": 50}, ADMIN, "the site of its resource group"),
        (view(R, {"type": "inference", "engine": "custom", "probe": {"path": "/"}}),
         {"time_limit_s": 50}, ADMIN, "it is of type inference"),
        (view(R, endpoint="tiny"), {"priority": 1}, ADMIN, "it is a replica of endpoint 'tiny'"),
        (view(endpoint="tiny"), {"user_labels": {"a": "1"}}, MEMBER, ""),
        (view(adopted_from="other"), {"held": True}, MEMBER, "it shares the run of session other"),
        (view(needs_newer_manager="`x`"), {"priority": 1}, ADMIN, "cannot be changed: `x`"),
        (view(held=held("owner")), {"held": False}, MEMBER, ""),
        (view(held=held("project-admin")), {"held": False}, MEMBER, "an administrator of its project"),
        (view(held=held("project-admin")), {"held": False}, LEAD, ""),
        (view(held=held("admin")), {"held": False}, MEMBER, "its owner cannot release it"),
        (view(held=held("admin")), {"held": False}, LEAD, "is held by key:ops, an administrator"),
        (view(held=held("admin")), {"held": False}, ADMIN, ""),
        (view(held=held("admin")), {"priority": 1}, MEMBER, ""),
        (view(), {"held": False}, MEMBER, ""),
    ],
)  # fmt: skip
def test_who_may_change_what(
    session: SessionView, patch: dict[str, Any], role: Role, refused: str
) -> None:
    error = find_refusal(session, SessionPatch(**patch), role)
    assert (error is None) == (refused == ""), error
    if error is not None:
        assert refused in error.message
        assert error.next_step


@pytest.mark.parametrize(
    ("before", "user", "role", "hold"),
    [
        (None, "ann", MEMBER, "owner"),
        (None, "ann", ADMIN, "owner"),  # its own session
        (None, "lead", LEAD, "project-admin"),
        (None, "root", ADMIN, "admin"),
        ("owner", "root", ADMIN, "admin"),  # takes it over
        ("admin", "ann", MEMBER, None),  # and its owner does not
        ("admin", "lead", LEAD, None),
        ("owner", "ann", MEMBER, None),
    ],
)
def test_the_hold_of_an_administrator_comes_before_that_of_the_owner(
    before: str | None, user: str, role: Role, hold: str | None
) -> None:
    session = view(held=held(before) if before else None)
    change = change_of(session, SessionPatch(held=True), user=user, role=role)
    assert change.hold == hold
    assert change.event == ("held" if hold else "updated")


def test_a_change_says_what_it_changes() -> None:
    session = view(P, LIMIT)
    patch = SessionPatch(priority=20, resource_group="big", time_limit_s=7200, name="b")
    change = change_of(session, patch, user="ann", role=MEMBER)
    assert change.detail == (
        "name train to b; priority 10 to 20; group default to big; time limit 1m40s to 2h00m"
    )
    assert change.fields == {"priority": 20, "resource_group": "big", "timeout_s": 7200.0}
    assert (change.limit_s, change.old_limit_s, change.event) == (7200, 100, "updated")
    same = change_of(session, SessionPatch(priority=10), user="ann", role=MEMBER)
    assert (same.fields, same.detail) == (None, "")


LIMITS = st.none() | st.integers(1, 1000).map(float)


@given(
    st.sampled_from([SessionType.BATCH, SessionType.INTERACTIVE]),
    LIMITS,
    LIMITS,
    st.integers(1, 1000).map(float),
)
def test_the_limit_asked_for_is_the_one_that_ends_it(
    kind: SessionType, timeout: float | None, lifetime: float | None, asked: float
) -> None:
    spec: dict[str, Any] = {"type": kind, "max_lifetime_s": lifetime}
    if kind is SessionType.BATCH:
        spec["timeout_s"] = timeout
    session = view(P, spec)
    assert time_limit_s(changed_spec(session.spec, SessionPatch(time_limit_s=asked))) == asked


@given(st.sampled_from(sorted(LIVE)), st.sampled_from([MEMBER, LEAD]), st.integers(1, 500))
def test_only_administrators_extend_what_has_started(status: Status, role: Role, by: int) -> None:
    error = find_refusal(view(status, LIMIT), SessionPatch(time_limit_s=100.0 + by), role)
    assert (error is None) == (status is P)
