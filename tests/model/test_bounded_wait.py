"""The bound of ``docs/scheduling.md`` ("Bounded wait"), under every strategy and option, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any, Literal

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.examples import examples
from waiting_worlds import (
    FAR,
    LONGEST,
    Limits,
    Machine,
    Work,
    World,
    arrivals,
    large_work,
    longest_wait,
    machines,
    overdue,
    service,
)

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling import Policy

WORLDS = examples(120)
NAME = SessionId("waits")
PATIENCE = 40  # ticks: with a bound on bypasses only, it may never be overtaken
CROWD = 12  # pending sessions at which no more arrive


@st.composite
def bounded_policies(draw: st.DrawFn) -> Policy:
    bypasses, age = draw(st.sampled_from([(None, 6), (None, 0), (3, None), (0, None), (4, 6), (None, 3)]))
    return Policy(
        hol=draw(st.sampled_from(["skip", "backfill", "backfill", "strict"])),
        num_retries_to_skip=draw(st.integers(0, 2)),
        agent_selection=draw(st.sampled_from(["concentrated", "dispersed", "round-robin"])),
        strategy=draw(st.sampled_from(["fifo", "lifo", "drf"])),
        max_bypasses=bypasses,
        max_skip_age=age,
    )


def start_within_bound(world: World, stream: list[list[Work]]) -> str:
    """Play the world until the session ``NAME`` has started, and hold it to the bound as of the tick in which
    it became overdue."""
    latest: int | None = None
    for later in cycle(stream):
        became_overdue = latest is None and NAME in world.pending
        world.tick(later if len(world.pending) < CROWD else [])
        if NAME not in world.pending:
            return "started overdue" if latest is not None else "started earlier"
        if became_overdue and overdue(world, NAME):
            latest = longest_wait(world, NAME)
            if latest is None:
                return "nobody can help it"
        assert latest is None or world.now < latest, f"it waits longer than until {latest}"
        if latest is None and world.now > PATIENCE:
            return "never overdue"
    raise AssertionError("the stream has ended")


@WORLDS
@given(
    st.data(), bounded_policies(), st.booleans(), st.sampled_from(["known", "unknown", "unknown", "mixed"])
)
def test_overdue_session_starts_within_the_bound(
    data: st.DataObject, policy: Policy, far: bool, limits: Limits
) -> None:
    """Whatever arrives, whatever ends are known, and behind heads that nobody can help."""
    fleet = data.draw(st.lists(machines(limits, far), min_size=1, max_size=3))
    world = World(fleet, policy)
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]))):
        world.submit(data.draw(large_work(limits, fleet)))
    world.now += 1
    world.submit(data.draw(large_work(limits, fleet)), NAME)
    event(start_within_bound(world, data.draw(st.lists(arrivals(limits), min_size=1, max_size=4))))


UNKNOWN = tuple(Work(1, runs) for runs in (LONGEST, 3))
KNOWN = tuple(Work(1, runs, LONGEST) for runs in (LONGEST, 3))
# One session more in each tick than can start, so that there is always one that would take what comes free.
STREAM = [[Work(1, LONGEST, None, 10, "bob"), Work(1, LONGEST, None, 10, "bob")]]
IMPORTANT = [[replace(work, priority=90) for work in STREAM[0]]]
LIMITED = [[replace(work, limit=LONGEST) for work in STREAM[0]]]
ENDLESS = [[service(), Work(1, LONGEST, LONGEST, 10, "bob")]]
WAITS, SHORT = Work(2, 2, 2, 0), Work(1, 2, 2)
AGED: dict[str, Any] = {"max_bypasses": None, "max_skip_age": 6}
BYPASSED: dict[str, Any] = {"max_bypasses": 2, "max_skip_age": None}
AT_ONCE: dict[str, Any] = {"max_bypasses": 0, "max_skip_age": None}
FIRST = frozenset({AgentId("a0")})


@pytest.mark.parametrize(
    ("options", "fleet", "ahead", "work", "stream"),
    [
        pytest.param(AGED, [Machine(2, UNKNOWN)], [], WAITS, STREAM, id="no end is known"),
        pytest.param(AGED, [Machine(2, KNOWN)], [], WAITS, LIMITED, id="all ends are known"),
        pytest.param(AGED, [Machine(2, UNKNOWN)], [], WAITS, IMPORTANT, id="a stream of higher priority"),
        pytest.param(
            AGED, [Machine(2, (Work(1, FAR, FAR),) * 2), Machine(2, UNKNOWN)], [], WAITS, STREAM,
            id="the only known end is far away",
        ),
        pytest.param(
            BYPASSED, [Machine(2, (service(), service())), Machine(2, UNKNOWN)], [],
            replace(WAITS, priority=10), STREAM, id="an agent with services",
        ),
        pytest.param(
            AGED, [Machine(2, (Work(1, 999),) * 2), Machine(2, UNKNOWN)], [], WAITS, STREAM,
            id="an agent with work that stays although it has no endpoint",
        ),
        pytest.param(
            AGED, [Machine(3, (SHORT, Work(1, FAR, FAR), SHORT), unhealthy=1), Machine(2, KNOWN)], [], WAITS,
             LIMITED, id="an unhealthy device in use",
        ),
        pytest.param(
            AGED, [Machine(2, (service(), service())), Machine(2, KNOWN)], [replace(WAITS, designated=FIRST)],
            WAITS, LIMITED, id="behind a head that nobody can help",
        ),
        pytest.param(
            AGED, [Machine(2, UNKNOWN, draining=True), Machine(2, KNOWN)], [replace(WAITS, designated=FIRST)],
            WAITS, LIMITED, id="behind a head whose agent drains",
        ),
        pytest.param(
            AGED, [Machine(2, (Work(1, FAR, FAR),) * 2), Machine(2, UNKNOWN)],
            [replace(WAITS, designated=FIRST)], replace(WAITS, designated=frozenset({AgentId("a1")})), STREAM,
            id="behind a head that waits long for another agent",
        ),
        pytest.param(
            AT_ONCE, [Machine(4, KNOWN * 2)], [Work(3, 3, LONGEST)], replace(WAITS, gpus=4), ENDLESS,
            id="services that would fit beside a session ahead",
        ),
        pytest.param(
            AGED, [Machine(2, UNKNOWN), Machine(2, UNKNOWN)], [], replace(WAITS, kernels=2), STREAM,
            id="a cluster on two agents",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strategy", ["fifo", "lifo", "drf"])
@pytest.mark.parametrize("hol", ["skip", "backfill", "strict"])
def test_named_worlds(
    hol: Literal["skip", "backfill", "strict"],
    strategy: Literal["fifo", "lifo", "drf"],
    options: dict[str, Any],
    fleet: list[Machine],
    ahead: list[Work],
    work: Work,
    stream: list[list[Work]],
) -> None:
    """Each would starve, or nearly, if one of the rules were left out."""
    if hol == "strict" and options is BYPASSED:
        return  # nobody is overtaken
    world = World(fleet, Policy(hol=hol, strategy=strategy, **options))
    for one in ahead:
        world.submit(one)
    world.now += bool(ahead)
    world.submit(work, NAME)
    assert start_within_bound(world, stream) in ("started overdue", "started earlier")
