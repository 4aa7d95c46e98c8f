"""Releasing allocations: only for ended kernels, through a report on their own agent's newest
stream."""

from __future__ import annotations

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL

from .conftest import FakeAgent, schedule

AGENT = "a"
OTHER = "b"
STREAMS = {AGENT: 2, OTHER: 5}
# Where each kernel was placed, and how it is stored.
KERNELS = {
    "ended": (AGENT, "TERMINATED"),
    "failed": (AGENT, "ERROR"),
    "cancelled": (AGENT, "CANCELLED"),
    "runs": (AGENT, "RUNNING"),
    "there": (OTHER, "TERMINATED"),
}
Reported = list[tuple[str, str, int]]  # kernel, agent, stream


@pytest.mark.parametrize(
    ("reported", "freed"),
    [
        ([("ended", AGENT, 2)], {"ended"}),
        ([("failed", AGENT, 2)], {"failed"}),
        ([("cancelled", AGENT, 2)], {"cancelled"}),
        ([("runs", AGENT, 2)], set()),
        ([("runs", AGENT, 2), ("ended", AGENT, 2)], {"ended"}),
        ([("ended", AGENT, 1)], set()),
        ([("ended", OTHER, 5)], set()),
        # A report on one agent's newest stream does not make another agent's stream the newest one.
        ([("ended", AGENT, 1), ("there", OTHER, 5)], {"there"}),
        ([("ended", AGENT, 1), ("there", OTHER, 2)], set()),
        ([("ended", AGENT, 2), ("there", OTHER, 5)], {"ended", "there"}),
    ],
)
async def test_only_what_its_agent_has_ended_is_freed(
    store: Store, reported: Reported, freed: set[str]
) -> None:
    for name in STREAMS:
        await FakeAgent(store, name).report()
    for name, (agent, _) in KERNELS.items():
        spec = SessionSpec(name=name, command=["x"], resources={"cpu": 1}, agents=[agent])
        await store.sessions.create(Scope.system("t"), spec)

    assert await schedule(store) == len(KERNELS)
    ids = await _by_name(
        store, "SELECT s.name, k.id FROM kernels k JOIN sessions s ON s.id = k.session_id"
    )
    for name, stream in STREAMS.items():
        await store.database.fetch("UPDATE agents SET stream = $2 WHERE id = $1", name, stream)

    for name, (_, status) in KERNELS.items():
        await store.database.fetch(
            "UPDATE kernels SET status = $2 WHERE id = $1", ids[name], status
        )

    columns = zip(
        *((ids[kernel], agent, stream) for kernel, agent, stream in reported), strict=True
    )
    rows = await store.database.fetch(SQL["allocation_release"], *map(list, columns))
    released = await _by_name(
        store,
        "SELECT DISTINCT s.name, a.kernel_id AS id FROM allocations a JOIN kernels k ON k.id = a.kernel_id "
        "JOIN sessions s ON s.id = k.session_id WHERE a.released_at IS NOT NULL",
    )
    assert set(released) == freed
    assert {row["agent_id"] for row in rows} == {KERNELS[name][0] for name in freed}


async def _by_name(store: Store, statement: str) -> dict[str, str]:
    return {row["name"]: row["id"] for row in await store.database.fetch(statement)}
