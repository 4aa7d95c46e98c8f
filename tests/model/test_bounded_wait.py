"""The bound of ``docs/scheduling.md`` ("Bounded wait"), under every strategy and option, in virtual time."""

from __future__ import annotations

from itertools import cycle

from hypothesis import event, given
from hypothesis import strategies as st
from tests.examples import examples
from waiting_worlds import Work, World, arrivals, large_work, longest_wait, machines, overdue

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling import Policy

WORLDS = examples(120)
NAME = SessionId("waits")
PATIENCE = 40  # ticks: with a bound on bypasses only, it may never be overtaken
CROWD = 12  # pending sessions at which no more arrive


@st.composite
def bounded_policies(draw: st.DrawFn) -> Policy:
    bypasses, age = draw(st.sampled_from([(None, 6), (None, 0), (3, None), (0, None), (4, 6), (None, 15)]))
    return Policy(
        hol=draw(st.sampled_from(["skip", "backfill", "backfill", "strict"])),
        num_retries_to_skip=draw(st.integers(0, 2)),
        agent_selection=draw(st.sampled_from(["concentrated", "dispersed", "round-robin"])),
        strategy=draw(st.sampled_from(["fifo", "lifo", "drf"])),
        max_bypasses=bypasses,
        max_skip_age=age,
    )


def start_within_bound(world: World, stream: list[list[Work]]) -> None:
    """Play the world until the session ``NAME`` has started, and hold it to the bound as of the tick in which
    it became overdue."""
    latest: int | None = None
    for later in cycle(stream):
        became_overdue = latest is None and NAME in world.pending
        world.tick(later if len(world.pending) < CROWD else [])
        if NAME not in world.pending:
            event("started overdue" if latest is not None else "started earlier")
            return
        if became_overdue and overdue(world, NAME):
            latest = longest_wait(world, NAME)
            if latest is None:
                event("nobody can help it")
                return
        assert latest is None or world.now < latest, f"it waits longer than until {latest}"
        if latest is None and world.now > PATIENCE:
            event("never overdue")
            return


@WORLDS
@given(st.data(), bounded_policies(), st.booleans())
def test_overdue_session_starts_within_the_bound(data: st.DataObject, policy: Policy, far: bool) -> None:
    """Whatever arrives, whatever ends are known, and behind heads that nobody can help."""
    fleet = data.draw(st.lists(machines(far), min_size=1, max_size=3))
    world = World(fleet, policy)
    for _ in range(data.draw(st.integers(0, 2))):
        world.submit(data.draw(large_work(fleet)))
    world.now += 1
    world.submit(data.draw(large_work(fleet)), NAME)
    start_within_bound(world, data.draw(st.lists(arrivals(), min_size=1, max_size=6)))
