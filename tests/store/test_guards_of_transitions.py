"""Guards of the statement that moves sessions to other statuses: which sessions and kernels it
changes, and which columns of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import asyncpg

from moorage.common.model.ids import KernelId
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL

from .statement_rows import LONG_AGO, agents, kernel, rows, session
from .test_leader_writes import until_it_waits

# One transition that changes as little as possible, in the order of the parameters.
MOVES: Mapping[str, object] = {
    "id": "",
    "old": "RUNNING",
    "revision": 1,
    "new": "RUNNING",
    "event": "degraded",
    "reason": "",
    "detail": "",
    "actor": "manager",
    "result": None,
    "kernel_status": None,
    "deadline_s": None,
    "next_kernel": None,
    "secret": None,
    "backoff_s": None,
}
STOP: dict[str, object] = {
    "new": "TERMINATING",
    "event": "stop",
    "reason": "user-requested",
    "kernel_status": "TERMINATING",
}
NOW = object()


async def move(
    store: Store, *moves: dict[str, object], subs: Sequence[tuple[str, int, str]] = (), **terms: int
) -> list[dict[str, Any]]:
    """The returned rows. ``subs``: the session, number and id of each new sub kernel. ``terms``
    maps a session's id, without hyphens, to the term of the leader that decides."""
    given = [{**MOVES, **one} for one in moves]
    columns = [[one[name] for one in given] for name in MOVES]
    new_subs = [[sub[n] for sub in subs] for n in (0, 1, 2)] + [["sub-secret" for _ in subs]]
    of_leaders = [terms.get(str(one["id"]).replace("-", "")) for one in given]
    found = await store.database.fetch(SQL["session_transition"], *columns, *new_subs, of_leaders)

    return [dict(row) for row in found]


async def running(store: Store, name: str, **columns: object) -> str:
    """A session in a status, with revision 1."""
    made = await session(store, name)
    values = {"status": "RUNNING", "status_since": LONG_AGO} | columns
    changes = ", ".join(f"{column} = ${place}" for place, column in enumerate(values, start=2))
    await store.database.fetch(
        f"UPDATE sessions SET {changes} WHERE id = $1", made, *values.values()
    )
    await store.database.fetch("DELETE FROM kernels WHERE session_id = $1", made)
    return made


async def changed(
    store: Store, table: str, before: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The changed columns by row; for a new row, all of them."""
    after = await rows(store, table)
    found = {
        key: {
            name: value
            for name, value in row.items()
            if key not in before or value != before[key][name]
        }
        for key, row in after.items()
    }
    return {key: columns for key, columns in found.items() if columns}


async def test_a_session_is_moved_from_the_state_in_which_it_was_seen(store: Store) -> None:
    await agents(store, "one")
    names = ("moved", "other status", "other revision", "unnamed")
    made = {name: await running(store, name.replace(" ", "-")) for name in names}
    for owner in made.values():
        await kernel(store, owner, 1, "RUNNING", agent="one")

    # Otherwise the rules for the other columns would apply to these.
    await running(store, "creating", status="CREATING")
    await running(store, "revised", revision=2)
    before = await rows(store, "sessions")
    kernels = await rows(store, "kernels")
    found = await move(
        store,
        {"id": made["moved"], **STOP},
        {"id": made["other status"], **STOP, "old": "CREATING"},
        {"id": made["other revision"], **STOP, "revision": 2},
    )
    assert [str(row["id"]) for row in found] == [made["moved"]]
    assert set(await changed(store, "sessions", before)) == {made["moved"]}
    assert len(await changed(store, "kernels", kernels)) == 1
    story = await store.database.fetch(
        "SELECT session_id, event, from_status, to_status, reason, actor FROM session_history "
        "WHERE revision = 2"
    )
    assert [(str(row[0]), *tuple(row)[1:]) for row in story] == [
        (made["moved"], "stop", "RUNNING", "TERMINATING", "user-requested", "manager")
    ]


async def test_a_session_that_is_being_moved_stays_where_it_goes(
    store: Store, migrated_database: str
) -> None:
    await agents(store, "one")
    made = await running(store, "job")
    one = await kernel(store, made, 1, "RUNNING", agent="one")
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("UPDATE sessions SET revision = 2")
        moving = asyncio.ensure_future(move(store, {"id": made, **STOP}))
        await until_it_waits(other, moving)

    assert await moving == []
    await other.close()
    assert (await rows(store, "sessions"))[made]["status"] == "RUNNING"
    assert (await rows(store, "kernels"))[one]["status"] == "RUNNING"


async def test_only_the_leader_moves_what_only_it_may_decide(store: Store) -> None:
    term = await store.leases.acquire("test", 60)
    assert term is not None
    made = {name: await running(store, name) for name in ("anybody", "leader", "former")}
    key = {name: one.replace("-", "") for name, one in made.items()}
    terms = {key["leader"]: term, key["former"]: term - 1}
    found = await move(store, *({"id": one} for one in made.values()), **terms)
    assert {str(row["id"]) for row in found} == {made["anybody"], made["leader"]}


@dataclass(frozen=True)
class Change:
    """A session's state before, the decision, and the columns that change besides the revision. It
    is RUNNING unless decided otherwise."""

    was: dict[str, object] = field(default_factory=dict)
    decided: dict[str, object] = field(default_factory=dict)
    becomes: dict[str, object] = field(default_factory=dict)


AGAIN: dict[str, object] = {"new": "PENDING", "event": "retry", "secret": "s"}
PENDING: dict[str, object] = {"status": "PENDING", "attempt": 2}
READY: dict[str, object] = {"old": "CREATING", "event": "ready"}
CHANGES = {
    "nothing": Change(was={"ready_at": LONG_AGO, "retries": 3, "bypassed": 2, "result": "FAILED"}),
    "another status": Change(decided={"new": "TERMINATING"}, becomes={"status": "TERMINATING"}),
    "ready": Change(decided=READY, becomes={"status": "RUNNING", "ready_at": NOW}),
    "ready once more": Change(
        was={"ready_at": LONG_AGO}, decided=READY, becomes={"status": "RUNNING", "ready_at": NOW}
    ),
    "starting": Change(
        was={"ready_at": LONG_AGO, "retries": 3, "bypassed": 2},
        decided={"old": "SCHEDULED", "new": "CREATING", "event": "creating"},
        becomes={"status": "CREATING"},
    ),
    "a reason": Change(
        was={"reason": "oom", "detail": "x"},
        decided={"reason": "killed", "detail": "y"},
        becomes={"reason": "killed", "detail": "y"},
    ),
    "no reason": Change(was={"reason": "oom", "detail": "x"}, becomes={"reason": "", "detail": ""}),
    "a result": Change(decided={"result": "SUCCESS"}, becomes={"result": "SUCCESS"}),
    "a deadline": Change(decided={"deadline_s": 60.0}, becomes={"deadline_at": NOW}),
    "no deadline": Change(was={"deadline_at": LONG_AGO}, becomes={"deadline_at": None}),
    "no hold": Change(was={"hold": {"reason": "quota"}}, becomes={"hold": None}),
    "retried": Change(
        was={"retries": 3, "bypassed": 2},
        decided=AGAIN,
        becomes={**PENDING, "retries": 0, "bypassed": 0},
    ),
    "requeued": Change(
        was={"requeues": 4, "requeued_from": 0},
        decided={**AGAIN, "event": "requeue", "backoff_s": 30.0},
        becomes={**PENDING, "requeues": 5, "requeued_from": 1, "not_before": NOW},
    ),
    "preempted": Change(
        was={"requeues": 4, "requeued_from": 0},
        decided={**AGAIN, "event": "preempt"},
        becomes={**PENDING, "requeued_from": 1},
    ),
    "no pause": Change(
        was={"status": "PENDING", "not_before": LONG_AGO},
        decided={"old": "PENDING", "new": "CANCELLED", "event": "stop"},
        becomes={"status": "CANCELLED", "not_before": None},
    ),
}


async def test_what_is_not_decided_stays(store: Store) -> None:
    made: dict[str, str] = {}
    moves: list[dict[str, object]] = []
    for name, change in CHANGES.items():
        old = str(change.decided.get("old", "RUNNING"))
        made[name] = await running(store, name.replace(" ", "-"), **({"status": old} | change.was))
        is_again = change.decided.get("new") == "PENDING"
        moves.append(
            {"id": made[name], "next_kernel": str(uuid4()) if is_again else None, **change.decided}
        )

    before = await rows(store, "sessions")
    assert {str(row["id"]) for row in await move(store, *moves)} == set(made.values())
    found = await changed(store, "sessions", before)
    for name, change in CHANGES.items():
        columns = found[made[name]]
        assert columns.pop("revision") == 2
        moved_at = columns.pop("status_since", None)
        assert (moved_at is not None) == ("status" in change.becomes), name
        assert columns.keys() == change.becomes.keys(), name

        for column, value in change.becomes.items():
            if value is NOW:
                assert columns[column] > LONG_AGO, name
            else:
                assert columns[column] == value, name


async def test_kernels_of_the_attempt_end_and_no_others(store: Store) -> None:
    await agents(store, "one", "two")
    stopped = await running(store, "stopped", attempt=2)
    beside = await running(store, "beside", attempt=2)
    ready = await running(store, "ready", status="CREATING")
    of_attempt: dict[str, object] = {"attempt": 2}
    made = {
        "waiting": await kernel(store, stopped, 1, "PENDING", agent=None, **of_attempt),
        "running": await kernel(store, stopped, 2, "RUNNING", agent="one", **of_attempt),
        "failing": await kernel(
            store, stopped, 3, "RUNNING", agent="two", reason="oom", **of_attempt
        ),
        "before": await kernel(
            store, stopped, 2, "TERMINATING", agent="one", attempt=1, overlap=True
        ),
        "beside": await kernel(store, beside, 1, "RUNNING", agent="one", **of_attempt),
        "started": await kernel(store, ready, 1, "CREATING", agent="one"),
        "left": await kernel(store, ready, 2, "PENDING", agent=None),
    }
    for number, status in enumerate(("TERMINATED", "CANCELLED", "ERROR"), start=4):
        made[status] = await kernel(store, stopped, number, status, agent="one", **of_attempt)

    before = await rows(store, "kernels")
    found = await move(
        store, {"id": stopped, **STOP}, {"id": ready, **READY, "reason": "x"}, {"id": beside}
    )
    after = await changed(store, "kernels", before)
    names = {key: name for name, key in made.items()}
    ended = {
        "waiting": {"status": "CANCELLED", "reason": "user-requested"},
        "running": {"status": "TERMINATING", "reason": "user-requested"},
        "failing": {"status": "TERMINATING"},
        "left": {"status": "CANCELLED", "reason": "x"},
    }
    assert {names[KernelId(key)] for key in after} == set(ended)

    for name, columns in ended.items():
        changes = after[made[name]]
        assert changes.pop("status_since") > LONG_AGO
        assert changes == columns, name

    told = {
        (str(row["id"]), row["kernel_id"] and str(row["kernel_id"]), row["agent_id"])
        for row in found
    }
    assert told == {
        (stopped, made["waiting"], None),
        (stopped, made["running"], "one"),
        (stopped, made["failing"], "two"),
        (ready, made["left"], None),
        (beside, None, None),
    }


async def test_a_new_attempt_has_kernels_of_its_own(store: Store) -> None:
    again, stale, other = [await running(store, name) for name in ("again", "stale", "other")]
    ids = [str(uuid4()) for _ in range(6)]
    before = await rows(store, "kernels")
    await move(
        store,
        {"id": again, **AGAIN, "next_kernel": ids[0]},
        {"id": stale, **AGAIN, "next_kernel": ids[1], "revision": 7},
        {"id": other},
        subs=[(again, 1, ids[2]), (again, 2, ids[3]), (stale, 1, ids[4])],
    )
    found = await changed(store, "kernels", before)
    shown = {
        key: (str(row["session_id"]), row["attempt"], row["status"], row["secret"], row["hostname"])
        for key, row in found.items()
    }
    assert shown == {
        ids[0]: (again, 2, "PENDING", "s", "main1"),
        ids[2]: (again, 2, "PENDING", "sub-secret", "sub1"),
        ids[3]: (again, 2, "PENDING", "sub-secret", "sub2"),
    }


async def test_who_is_told_of_an_end(store: Store) -> None:
    """Sessions that depend on it, once it has ended."""
    made = {
        name: await running(store, name) for name in ("ended", "cancelled", "failed", "stopping")
    }
    waiting = {name: await session(store, f"after-{name}", depends_on=[name]) for name in made}
    await store.database.fetch(
        "UPDATE sessions SET spec = spec || '{\"ports\": {\"a\": 1}}' WHERE name = 'ended'"
    )
    news = {
        "ended": "TERMINATED",
        "cancelled": "CANCELLED",
        "failed": "ERROR",
        "stopping": "TERMINATING",
    }
    found = await move(store, *({"id": made[name], "new": new} for name, new in news.items()))
    told = {str(row["id"]): row for row in found}
    for name, owner in made.items():
        dependents = told[owner]["dependents"]
        shown = None if dependents is None else [str(one) for one in dependents]
        assert shown == (None if name == "stopping" else [waiting[name]]), name
        assert told[owner]["offers"] == (name == "ended")
        assert told[owner]["type"] == "batch"
