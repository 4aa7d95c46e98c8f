"""Guards of the statement that writes agents' observations: which kernels it changes, and which
columns of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from moorage.common.model.ids import KernelId
from moorage.common.model.spec import EndpointSpec
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL

from .statement_rows import LONG_AGO, SYSTEM, agents, kernel, rows, session
from .test_leader_writes import until_it_waits

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
LATER = SOON + timedelta(hours=1)
# An observation of nothing but the state, in the order of the parameters.
SAYS: Mapping[str, object] = {
    "agent_id": "one",
    "id": "",
    "old": "RUNNING",
    "new": "RUNNING",
    "observed": "RUNNING",
    "host": "",
    "port": 0,
    "exit_code": None,
    "reason": "",
    "detail": "",
    "log_tail": "",
    "stream": 0,
    "unhealthy": "",
    "expected_start": 0.0,
    "ends_at": 0.0,
    "kept_until": 0.0,
}


async def observe(store: Store, *said: dict[str, object]) -> dict[str, dict[str, Any]]:
    """The returned rows, by kernel."""
    given = [{**SAYS, **one} for one in said]
    columns = [[one[name] for one in given] for name in SAYS]
    found = await store.database.fetch(SQL["kernel_observe"], *columns)
    return {str(row["id"]): dict(row) for row in found}


async def changed(store: Store, before: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The changed columns, by kernel."""
    after = await rows(store, "kernels")
    found = {
        key: {name: value for name, value in row.items() if value != before[key][name]}
        for key, row in after.items()
    }
    return {key: columns for key, columns in found.items() if columns}


async def test_a_kernel_is_moved_from_the_state_that_was_seen_by_its_own_agent(
    store: Store,
) -> None:
    await agents(store, "one", "two", stream=5)
    owner = await session(store, "job")
    made = [await kernel(store, owner, number, "CREATING", agent="one") for number in range(1, 6)]
    of_two = await kernel(store, owner, 6, "CREATING", agent="two")
    moves: dict[str, object] = {"old": "CREATING", "new": "RUNNING", "stream": 5}
    before = await rows(store, "kernels")
    written = await observe(
        store,
        {"id": made[0], **moves},
        {"id": made[1], **moves, "old": "PREPARING"},
        {"id": made[2], **moves, "agent_id": "two"},
        {"id": made[3], **moves, "agent_id": "three"},
        {"id": of_two, **moves, "agent_id": "one"},
    )
    assert set(written) == {made[0]}
    found = await changed(store, before)
    assert set(found) == {made[0]}
    assert found[made[0]]["status"] == "RUNNING"
    assert found[made[0]]["status_since"] > LONG_AGO

    # One agent's stream says nothing about another's.
    older = {"id": of_two, **moves, "agent_id": "two", "stream": 4}
    assert set(await observe(store, older, {"id": made[1], **moves})) == {made[1]}
    assert set(await observe(store, older | {"stream": 5})) == {of_two}


@pytest.mark.parametrize("reconnects", [True, False])
async def test_a_stream_that_is_being_replaced_writes_nothing(
    store: Store, migrated_database: str, reconnects: bool
) -> None:
    await agents(store, "one", stream=5)
    made = await kernel(store, await session(store, "job"), 1, "CREATING", agent="one")
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        changes = "stream = 6" if reconnects else "labels = labels"
        await other.execute(f"UPDATE agents SET {changes}")
        observing = asyncio.ensure_future(
            observe(store, {"id": made, "old": "CREATING", "stream": 5, "log_tail": "x"})
        )
        await until_it_waits(other, observing)

    assert set(await observing) == (set() if reconnects else {made})
    await other.close()


async def test_a_kernel_that_is_being_moved_stays_where_it_goes(
    store: Store, migrated_database: str
) -> None:
    await agents(store, "one")
    made = await kernel(store, await session(store, "job"), 1, "RUNNING", agent="one")
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("UPDATE kernels SET status = 'TERMINATING' WHERE id = $1", made)
        observing = asyncio.ensure_future(observe(store, {"id": made, "log_tail": "x"}))
        await until_it_waits(other, observing)

    assert await observing == {}
    await other.close()
    found = (await rows(store, "kernels"))[made]
    assert (found["status"], found["log_tail"]) == ("TERMINATING", "")


@dataclass(frozen=True)
class Change:
    """A kernel's state before, the observation, and the columns that change. It is RUNNING unless
    stated otherwise."""

    was: dict[str, object] = field(default_factory=dict)
    says: dict[str, object] = field(default_factory=dict)
    becomes: dict[str, object] = field(default_factory=dict)


KNOWN: dict[str, object] = {
    "host": "192.0.2.1",
    "port": 21000,
    "exit_code": 3,
    "reason": "oom",
    "log_tail": "boom",
}
ILL: dict[str, object] = {
    "unhealthy_since": LONG_AGO,
    "unhealthy_detail": "slow",
    "kept_until": SOON,
}
QUEUED: dict[str, object] = {"old": "QUEUED", "new": "QUEUED", "observed": "QUEUED"}
STARTING: dict[str, object] = {"old": "CREATING", "new": "CREATING", "observed": "CREATING"}
ENDS: dict[str, object] = {"new": "ERROR", "observed": "EXITED"}
ENDED: dict[str, object] = {"status": "ERROR", "observed": "EXITED"}
# Set to the time of the statement.
NOW = object()
CHANGES = {
    "nothing": Change(was=KNOWN),
    "a port": Change(
        was=KNOWN,
        says={"host": "192.0.2.2", "port": 21001},
        becomes={"host": "192.0.2.2", "port": 21001},
    ),
    "a host without a port": Change(was=KNOWN, says={"host": "192.0.2.2"}),
    "an end": Change(
        says={**ENDS, "exit_code": 7, "reason": "oom", "log_tail": "end"},
        becomes={**ENDED, "exit_code": 7, "reason": "oom", "log_tail": "end"},
    ),
    "another end": Change(
        was=KNOWN,
        says={"exit_code": 0, "reason": "killed", "log_tail": "bang"},
        becomes={"exit_code": 0, "reason": "killed", "log_tail": "bang"},
    ),
    "no detail in the same status": Change(was={"detail": "step 1"}),
    "another detail in the same status": Change(
        was={"detail": "step 1"}, says={"detail": "step 2"}, becomes={"detail": "step 2"}
    ),
    "no detail in another status": Change(
        was={"detail": "step 1"},
        says={"old": "CREATING"},
        becomes={"status": "RUNNING", "detail": ""},
    ),
    "a detail in another status": Change(
        was={"detail": "step 1"},
        says={"old": "CREATING", "detail": "step 2"},
        becomes={"status": "RUNNING", "detail": "step 2"},
    ),
    "not healthy": Change(
        says={"unhealthy": "slow"}, becomes={"unhealthy_since": NOW, "unhealthy_detail": "slow"}
    ),
    "still not healthy": Change(
        was=ILL,
        says={"unhealthy": "dead", "kept_until": SOON.timestamp()},
        becomes={"unhealthy_detail": "dead"},
    ),
    "kept for longer": Change(
        was=ILL,
        says={"unhealthy": "slow", "kept_until": LATER.timestamp()},
        becomes={"kept_until": LATER},
    ),
    "healthy again": Change(
        was=ILL, becomes={"unhealthy_since": None, "unhealthy_detail": "", "kept_until": None}
    ),
    "ended while not healthy": Change(was=ILL, says=ENDS, becomes=ENDED),
    "not healthy while it starts": Change(
        was=ILL, says={**STARTING, "unhealthy": "dead", "kept_until": LATER.timestamp()}
    ),
    "an expected start": Change(
        says={**QUEUED, "expected_start": SOON.timestamp()}, becomes={"expected_start": SOON}
    ),
    "no expected start": Change(
        was={"expected_start": SOON}, says=QUEUED, becomes={"expected_start": None}
    ),
    "nobody speaks of the start": Change(
        was={"expected_start": SOON},
        says={**QUEUED, "observed": "UNKNOWN"},
        becomes={"observed": "UNKNOWN"},
    ),
    "an end of the walltime": Change(
        says={"ends_at": SOON.timestamp()},
        becomes={"ends_at": SOON, "started_at": SOON - timedelta(hours=2)},
    ),
    "another end of the walltime": Change(
        was={"ends_at": SOON, "started_at": LONG_AGO},
        says={"ends_at": LATER.timestamp()},
        becomes={"ends_at": LATER},
    ),
    "no end of the walltime": Change(was={"ends_at": SOON, "started_at": LONG_AGO}),
    "no end of a walltime that is not known": Change(),
}


async def test_what_is_not_said_stays(store: Store) -> None:
    await agents(store, "one")
    owner = await session(store, "job")
    await store.database.fetch("UPDATE sessions SET spec = spec || '{\"walltime_s\": 7200}'")
    made: dict[str, KernelId] = {}
    said: list[dict[str, object]] = []
    for number, (name, change) in enumerate(CHANGES.items(), start=1):
        status = str(change.says.get("old", "RUNNING"))
        # Equal to the observation, so that no columns change except those that the case is about.
        observed = (
            str(change.says.get("new", "RUNNING"))
            if status in ("QUEUED", "CREATING")
            else "RUNNING"
        )
        made[name] = await kernel(
            store, owner, number, status, agent="one", observed=observed, **change.was
        )
        said.append({"id": made[name], **change.says})

    before = await rows(store, "kernels")
    assert set(await observe(store, *said)) == set(made.values())
    found = await changed(store, before)
    for name, change in CHANGES.items():
        columns = found.get(made[name], {})
        moved_at = columns.pop("status_since", None)
        assert (moved_at is not None) == ("status" in change.becomes), name
        columns.pop("running_at", None)  # by a trigger
        assert columns.keys() == change.becomes.keys(), name

        for column, value in change.becomes.items():
            if value is NOW:
                assert columns[column] > LONG_AGO, name
            else:
                assert columns[column] == value, name


async def test_a_walltime_begins_no_later_than_now(store: Store) -> None:
    """Its agent may have been away when it started, and the site's clock may be wrong."""
    await agents(store, "one")
    made: list[KernelId] = []
    for name, walltime_s in (("known", 7200), ("wrong", 60), ("unknown", None)):
        owner = await session(store, name)
        given = {} if walltime_s is None else {"walltime_s": walltime_s}
        await store.database.fetch(
            "UPDATE sessions SET spec = spec || $2 WHERE id = $1", owner, given
        )
        made.append(await kernel(store, owner, 1, "RUNNING", agent="one"))

    await observe(store, *({"id": one, "ends_at": SOON.timestamp()} for one in made))
    found = await rows(store, "kernels")
    known, wrong, unknown = (found[one]["started_at"] for one in made)
    assert known == SOON - timedelta(hours=2)
    [after] = await store.database.fetch("SELECT clock_timestamp() AS now")
    assert known < wrong <= after["now"]
    assert wrong == unknown, "the time of the statement"


async def test_who_is_told(store: Store) -> None:
    await agents(store, "one")
    endpoint = EndpointSpec(name="tiny", engine="vllm", model="m", replicas=0)
    created = await store.endpoints.create(SYSTEM, endpoint)
    owner = await session(store, "replica")
    await store.database.fetch(
        "UPDATE sessions SET endpoint_id = $1 WHERE id = $2", created.snapshot.endpoint_id, owner
    )
    other = await session(store, "other")
    stopping: dict[str, object] = {"old": "TERMINATING", "new": "TERMINATING"}

    # The columns before, the observation, and whether the kernel is in the routes, was stopping,
    # and is a replica whose health changed.
    cases: list[tuple[dict[str, object], dict[str, object], tuple[bool, bool, bool]]] = [
        ({}, {}, (False, False, True)),
        ({"port": 21000}, {}, (True, False, True)),
        ({}, {"port": 21000, "host": "192.0.2.1"}, (True, False, True)),
        (
            {},
            {"old": "QUEUED", "new": "QUEUED", "expected_start": SOON.timestamp()},
            (True, False, False),
        ),
        ({}, {"old": "CREATING"}, (False, False, False)),
        ({}, {"new": "ERROR"}, (False, False, False)),
        ({}, {**stopping, "new": "TERMINATED"}, (False, True, False)),
        ({}, stopping, (False, False, False)),
    ]
    made = [
        await kernel(store, owner, number, str(said.get("old", "RUNNING")), agent="one", **columns)
        for number, (columns, said, _) in enumerate(cases, start=1)
    ]
    outside = await kernel(store, other, 1, "RUNNING", agent="one")
    written = await observe(
        store,
        {"id": outside},
        *({"id": one, **said} for one, (_, said, _) in zip(made, cases, strict=True)),
    )
    for one, (_, said, (in_routes, was_stopping, is_replica)) in zip(made, cases, strict=True):
        row = written[one]
        told = created.snapshot.endpoint_id if is_replica else None
        found = (
            row["in_routes"],
            row["was_stopping"],
            row["endpoint_id"] and str(row["endpoint_id"]),
        )
        assert found == (in_routes, was_stopping, told), said
        assert str(row["session_id"]) == owner

    assert written[outside]["endpoint_id"] is None
