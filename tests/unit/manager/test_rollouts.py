"""Rollouts: how replicas of a new revision replace those of the old one, drain, and are rolled
back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.serving import Rollout
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus, Status
from moorage.manager.serving.lifetime import LAST_S, MARGIN_S
from moorage.manager.serving.replicas import (
    BY_CHOICE,
    SETTLE_S,
    UNHEALTHY_S,
    ReplicaPlan,
    plan_replicas,
)
from moorage.manager.serving.snapshots import EndpointSnapshot, EngineLoad, ReplicaSnapshot
from moorage.manager.serving.status import endpoint_status, replica_state, rollout_state

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def replica(
    name: str, revision: int = 1, status: Status = Status.RUNNING, **fields: Any
) -> ReplicaSnapshot:
    """``age_s``, ``ready_s``, ``drains_s``, ``unhealthy_s``: seconds since the event; ``ends_s``:
    seconds until it."""
    for field, given_as in (
        ("created_at", "age_s"),
        ("ready_at", "ready_s"),
        ("draining_since", "drains_s"),
        ("unhealthy_since", "unhealthy_s"),
    ):
        if (seconds := fields.pop(given_as, 100 if given_as == "age_s" else None)) is not None:
            fields[field] = ago(seconds)

    if "ends_s" in fields:
        fields["ends_at"] = ago(-fields.pop("ends_s"))

    fields.setdefault("status_since", ago(50))
    return ReplicaSnapshot(SessionId(name), status, revision=revision, **fields)


def old(name: str, **fields: Any) -> ReplicaSnapshot:
    return replica(name, 1, **fields)


def new(name: str, status: Status = Status.RUNNING, **fields: Any) -> ReplicaSnapshot:
    return replica(name, 2, status, age_s=fields.pop("age_s", 10), **fields)


def job(name: str, walltime_s: float = 3600.0, **fields: Any) -> ReplicaSnapshot:
    return new(name, age_s=walltime_s, ready_s=walltime_s, walltime_s=walltime_s, **fields)


def endpoint(*replicas: ReplicaSnapshot, wanted: int = 2, **fields: Any) -> EndpointSnapshot:
    """An endpoint at revision 2, which has not been complete yet, after revision 1."""
    rollout = Rollout(**{name: fields.pop(name) for name in Rollout.model_fields if name in fields})
    spec = EndpointSpec(name="m", engine="vllm", model="m", rollout=rollout)
    base: dict[str, Any] = {"revision": 2, "proven": False, "fallback": 1} | fields
    return EndpointSnapshot(
        EndpointId("e"),
        "m",
        spec=spec,
        wanted=wanted,
        changed_at=ago(60),
        deleted=False,
        replicas=replicas,
        **base,
    )


def names(pairs: Iterable[tuple[SessionId, Reason]]) -> list[str]:
    return [name for name, _ in pairs]


S = {"max_surge": 1, "max_unavailable": 0}
U = {"max_surge": 0, "max_unavailable": 1}
CASES: list[tuple[str, EndpointSnapshot, ReplicaPlan]] = [
    ("surge: the first new one starts", endpoint(old("a"), old("b"), **S), ReplicaPlan(start=1)),
    (
        "health gate: none goes before the new one is ready",
        endpoint(new("n", Status.CREATING), old("a"), old("b"), **S),
        ReplicaPlan(),
    ),
    (
        "the new one is ready: the old one with the fewest requests drains",
        endpoint(new("n"), old("a", in_flight=3), old("b", in_flight=1), **S),
        ReplicaPlan(drain=((SessionId("b"), Reason.REVISION_REPLACED),)),
    ),
    (
        "one drains: its place is not free yet",
        endpoint(
            new("n"), old("a"), old("b", drains_s=1, drain_reason=Reason.REVISION_REPLACED), **S
        ),
        ReplicaPlan(look_at=ago(1 - SETTLE_S)),
    ),
    ("it is gone: the next one starts", endpoint(new("n"), old("a"), **S), ReplicaPlan(start=1)),
    (
        "all are ready: the last one drains",
        endpoint(new("n"), new("o"), old("a"), **S),
        ReplicaPlan(drain=((SessionId("a"), Reason.REVISION_REPLACED),)),
    ),
    ("complete", endpoint(new("n"), new("o"), **S), ReplicaPlan(is_complete=True)),
    ("complete before", endpoint(new("n"), new("o"), proven=True), ReplicaPlan()),
    (
        "without surge, one goes first",
        endpoint(old("a"), old("b"), **U),
        ReplicaPlan(drain=((SessionId("a"), Reason.REVISION_REPLACED),)),
    ),
    (
        "without surge, a new one waits for its place",
        endpoint(old("a"), old("b", drains_s=1, drain_reason=Reason.REVISION_REPLACED), **U),
        ReplicaPlan(look_at=ago(1 - SETTLE_S)),
    ),
    ("without surge, the place is free", endpoint(old("a"), **U), ReplicaPlan(start=1)),
    (
        "an old one that is not ready is of no use",
        endpoint(old("a"), replica("b", 1, Status.PENDING), **S),
        ReplicaPlan(start=2, stop=((SessionId("b"), Reason.REVISION_REPLACED),)),
    ),
    (
        "scaled to zero meanwhile",
        endpoint(new("n"), old("a"), wanted=0),
        ReplicaPlan(
            drain=((SessionId("a"), Reason.REVISION_REPLACED), (SessionId("n"), Reason.SCALED_DOWN))
        ),
    ),
    (
        "scaled up again: one that drains serves again",
        endpoint(
            new("n"),
            new("o", drains_s=1, drain_reason=Reason.SCALED_DOWN, in_flight=1),
            proven=True,
        ),
        ReplicaPlan(revive=(SessionId("o"),), look_at=ago(-119)),
    ),
    (
        "unhealthy: replaced beyond the wanted number",
        endpoint(new("n", unhealthy_s=1), new("o"), proven=True, **U),
        ReplicaPlan(start=1, look_at=ago(1 - UNHEALTHY_S)),
    ),
    (
        "unhealthy: goes when its replacement is ready",
        endpoint(new("p"), new("n", unhealthy_s=1), new("o"), proven=True),
        ReplicaPlan(drain=((SessionId("n"), Reason.UNHEALTHY),)),
    ),
    (
        "unhealthy, and no place for a replacement",
        endpoint(
            new("p", Status.PENDING), new("n", unhealthy_s=UNHEALTHY_S), wanted=1, proven=True
        ),
        ReplicaPlan(stop=((SessionId("n"), Reason.UNHEALTHY),)),
    ),
    (
        "walltime: no successor is ready, and it serves on",
        endpoint(new("p", Status.CREATING), job("n", ends_s=LAST_S + 1), wanted=1, proven=True),
        ReplicaPlan(look_at=ago(-1)),
    ),
    (
        "walltime: no successor is ready, and what it has may end before it",
        endpoint(new("p", Status.CREATING), job("n", ends_s=LAST_S), wanted=1, proven=True),
        ReplicaPlan(drain=((SessionId("n"), Reason.WALLTIME),)),
    ),
    (
        "walltime: a short one drains for a tenth of it at most",
        endpoint(job("n", walltime_s=120.0, ends_s=12.5), wanted=1, proven=True),
        ReplicaPlan(look_at=ago(-0.5)),
    ),
    (
        "walltime: drained for no longer than others",
        endpoint(
            new("p", Status.CREATING), job("n", ends_s=10), wanted=1, proven=True, drain_timeout_s=5
        ),
        ReplicaPlan(look_at=ago(-5)),
    ),
    (
        "fails everybody: replaced beyond the wanted number, and never stopped before",
        endpoint(new("n", failing_since=ago(10 * UNHEALTHY_S)), wanted=1, proven=True, **U),
        ReplicaPlan(start=1),
    ),
    (
        "fails everybody: drained when its replacement is ready",
        endpoint(new("p"), new("n", failing_since=ago(1), in_flight=3), wanted=1, proven=True),
        ReplicaPlan(drain=((SessionId("n"), Reason.UNHEALTHY),)),
    ),
    (
        "fails everybody as its way is gone: kept",
        endpoint(
            new("n", failing_since=ago(1), unhealthy_s=5, kept_until=ago(-100)),
            wanted=1,
            proven=True,
        ),
        ReplicaPlan(look_at=ago(-100)),
    ),
    (
        "out of reach: no second job while it may come back",
        endpoint(new("n", unhealthy_s=500, kept_until=ago(-100)), wanted=1, proven=True),
        ReplicaPlan(look_at=ago(-100)),
    ),
    (
        "out of reach for longer than it is kept: replaced",
        endpoint(new("n", unhealthy_s=500, kept_until=ago(0)), wanted=1, proven=True),
        ReplicaPlan(start=1, look_at=ago(-UNHEALTHY_S)),
    ),
    (
        "out of reach, and too many: it goes first",
        endpoint(new("n", unhealthy_s=5, kept_until=ago(-100)), new("o"), wanted=1, proven=True),
        ReplicaPlan(drain=((SessionId("n"), Reason.SCALED_DOWN),), look_at=ago(-100)),
    ),
    (
        "lifetime: the successor starts in time",
        endpoint(
            new("n", age_s=1000, ready_s=900, ends_s=100 + MARGIN_S),
            wanted=1,
            proven=True,
            max_surge=1,
        ),
        ReplicaPlan(start=1),
    ),
    (
        "lifetime: not yet",
        endpoint(new("n", age_s=1000, ready_s=900, ends_s=101 + MARGIN_S), wanted=1, proven=True),
        ReplicaPlan(look_at=ago(-1)),
    ),
    (
        "lifetime: the successor is ready",
        endpoint(new("o"), new("n", age_s=1000, ready_s=900, ends_s=60), wanted=1, proven=True),
        ReplicaPlan(drain=((SessionId("n"), Reason.MAX_LIFETIME),)),
    ),
]


@pytest.mark.parametrize(("given", "plan"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_rollout(given: EndpointSnapshot, plan: ReplicaPlan) -> None:
    assert plan_replicas(given, NOW) == plan


DRAINS = {"drains_s": 10, "drain_reason": Reason.SCALED_DOWN}
DRAINED = [
    ("a proxy has requests there", {"in_flight": 1, "is_confirmed": True}, False),
    ("no proxy has", {"in_flight": 0, "is_confirmed": True}, True),
    ("a proxy does not know yet that it drains", {"in_flight": 0}, False),
    ("nobody says", {}, True),
    ("nobody says, and it began just now", {"drains_s": SETTLE_S - 1}, False),
    ("its engine has requests", {"load": EngineLoad(running=1)}, False),
    ("its engine has none", {"load": EngineLoad()}, True),
    ("its time is over", {"drains_s": 120, "in_flight": 1}, True),
    ("it is not ready any more", {"in_flight": 1, "status": Status.CREATING}, True),
]


@pytest.mark.parametrize(("fields", "ends"), [c[1:] for c in DRAINED], ids=[c[0] for c in DRAINED])
def test_drained(fields: dict[str, Any], ends: bool) -> None:
    made = endpoint(new("n", **(DRAINS | fields)), wanted=0, proven=True)
    assert names(plan_replicas(made, NOW).stop) == (["n"] if ends else [])


def failures(number: int, revision: int = 2) -> list[ReplicaSnapshot]:
    return [
        replica(f"f{n}", revision, Status.ERROR, age_s=20 + n, reason=Reason.EXIT_NONZERO)
        for n in range(number)
    ]


def test_failed_revision_is_rolled_back() -> None:
    assert plan_replicas(endpoint(*failures(2), old("a"), old("b")), NOW).roll_back_to is None
    plan = plan_replicas(endpoint(*failures(3), old("a"), old("b")), NOW)
    assert plan == ReplicaPlan(failures=3, roll_back_to=1)


@pytest.mark.parametrize(
    ("why", "fields"),
    [
        ("there is no other revision", {"fallback": None}),
        ("it has worked before", {"proven": True}),
        ("the failures are of another revision", {"revision": 3}),
        ("a replica of it serves", {"replicas": (new("n"), *failures(3))}),
    ],
)
def test_revision_is_not_rolled_back(why: str, fields: dict[str, Any]) -> None:
    plan = plan_replicas(replace(endpoint(*failures(3), old("a")), **fields), NOW)
    assert plan.roll_back_to is None, why


def test_served_states() -> None:
    waiting = new("n", load=EngineLoad(4, 1, 0.9))
    assert endpoint_status(endpoint(waiting, wanted=1)) is EndpointStatus.BUSY
    assert endpoint_status(endpoint(new("n"), wanted=1, waiting=1)) is EndpointStatus.BUSY
    assert endpoint_status(endpoint(new("n", unhealthy_s=1), wanted=1)) is EndpointStatus.LOADING
    assert endpoint_status(endpoint(new("n", **DRAINS), wanted=0)) is EndpointStatus.NOT_LOADED
    states = [
        replica_state(r) for r in (new("n"), waiting, new("n", **DRAINS), new("n", unhealthy_s=1))
    ]
    assert states == ["ready", "busy", "draining", "loading"]
    assert [
        replica_state(new("n", s)) for s in (Status.PENDING, Status.CREATING, Status.ERROR)
    ] == [
        "queued",
        "loading",
        "",
    ]


def test_rollout_states() -> None:
    progressing = endpoint(new("n"), old("a"))
    assert rollout_state(progressing, None) == "progressing"
    assert rollout_state(replace(progressing, wanted=0), None) == "waiting"
    assert rollout_state(endpoint(new("n"), proven=True), None) == "complete"
    assert rollout_state(endpoint(old("a"), revision=1, proven=True), 2) == "failed"
    assert rollout_state(endpoint(old("a"), revision=1, proven=True), None) == "complete"


STATES = st.sampled_from(
    (Status.PENDING, Status.CREATING, Status.RUNNING, Status.TERMINATING, Status.ERROR)
)
REPLICAS = st.lists(
    st.tuples(
        STATES,
        st.integers(1, 2),
        st.sampled_from(("", "", "", "silent", "agent", "unhealthy", "drains")),
        st.integers(0, 5),
    ),
    max_size=9,
)


def build(states: list[tuple[Status, int, str, int]]) -> list[ReplicaSnapshot]:
    made = []
    for number, (status, revision, trouble, in_flight) in enumerate(states):
        fields: dict[str, Any] = {
            "agent_silent": trouble == "silent",
            "agent_drained": trouble == "agent",
        }
        if trouble == "unhealthy":
            fields["unhealthy_s"] = 1

        if trouble == "drains" and status is Status.RUNNING:
            fields |= {
                "drains_s": 10,
                "drain_reason": Reason.REVISION_REPLACED,
                "is_confirmed": True,
            }

        made.append(
            replica(
                f"r{number}", revision, status, age_s=10 + number, in_flight=in_flight, **fields
            )
        )

    return made


@given(REPLICAS, st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))
def test_plan_keeps_its_bounds(
    states: list[tuple[Status, int, str, int]], wanted: int, surge: int, unavailable: int
) -> None:
    """The rollout's own decisions never leave fewer ready replicas than wanted - max_unavailable,
    or more replicas than wanted + max_surge."""
    rollout = {"max_surge": surge, "max_unavailable": unavailable if surge else max(1, unavailable)}
    made = endpoint(*build(states), wanted=wanted, **rollout)
    plan = plan_replicas(made, NOW)
    gone = {*names(plan.stop), *names(plan.drain)}
    live = [r for r in made.replicas if r.status not in (Status.TERMINATING, Status.ERROR)]
    ready = [r for r in live if r.serves]
    left = [r for r in ready if r.session_id not in gone]
    assert len(left) >= min(len(ready), wanted - rollout["max_unavailable"])
    assert not set(plan.revive) & gone
    usable = [
        r for r in live
        if not (r.agent_silent or r.agent_drained or (r.unhealthy_since and r.status is Status.RUNNING))
        and (r.draining_since is None or r.drain_reason in BY_CHOICE)
        and r.session_id not in names(plan.stop)
    ]  # fmt: skip
    assert not plan.start or len(usable) + plan.start <= wanted + surge
    assert names(plan.stop) == list(dict.fromkeys(names(plan.stop)))


@given(REPLICAS, st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))
def test_rollouts_come_to_an_end(
    states: list[tuple[Status, int, str, int]], wanted: int, surge: int, unavailable: int
) -> None:
    """If everything starts and everything drains, exactly the wanted replicas of the revision
    remain."""
    rollout = {"max_surge": surge, "max_unavailable": unavailable if surge else max(1, unavailable)}
    made = endpoint(*build(states), wanted=wanted, fallback=None, **rollout)
    numbers = count(100)
    now = NOW
    for _ in range(100):
        plan = plan_replicas(made, now)
        if plan.is_complete:
            made = replace(made, proven=True)

        ended = set(names(plan.stop))
        drained = dict(plan.drain)
        revived = set(plan.revive)
        replicas = []
        for r in made.replicas:
            if r.session_id in ended or r.status in (Status.TERMINATING, Status.ERROR):
                continue

            if r.session_id in drained:
                r = replace(
                    r, draining_since=now, drain_reason=drained[r.session_id], is_confirmed=True
                )
            elif r.session_id in revived:
                r = replace(r, draining_since=None, drain_reason=Reason.NONE)

            if r.draining_since is not None:
                r = replace(r, in_flight=max(0, (r.in_flight or 0) - 1))

            replicas.append(replace(r, status=Status.RUNNING, agent_silent=False))

        started = (
            replica(f"s{next(numbers)}", 2, Status.CREATING, age_s=0) for _ in range(plan.start)
        )
        made = replace(made, replicas=(*started, *replicas))
        now += timedelta(seconds=10)

    assert [(r.revision, r.serves) for r in made.replicas] == [(2, True)] * wanted
