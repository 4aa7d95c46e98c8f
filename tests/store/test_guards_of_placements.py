"""Guards of the statement that places sessions: one placement does not affect the others in the
statement, and a placement that was planned from an older state is not written."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.spec import EndpointSpec
from moorage.manager.scheduling import Place
from moorage.manager.scheduling.core.model import Allocation
from moorage.manager.scheduling.core.results import KernelPlace
from moorage.manager.store import Store

from .statement_rows import SYSTEM, agents, rows, session
from .statement_rows import kernel as add_kernel
from .test_leader_writes import until_it_waits

MULTI = {"size": 2, "mode": "multi-node"}
FAR = "far.agent.invalid"


async def placement(store: Store, name: str, *on: str, **more: object) -> Place:
    """The placement of a new session, whose kernels go to these agents."""
    cluster = {} if len(on) == 1 else {"cluster": {"size": len(on), "mode": "multi-node"}}
    return await of_session(store, await session(store, name, **cluster, **more), *on)


async def of_session(store: Store, session_id: str, *on: str) -> Place:
    [found] = await store.database.fetch("SELECT revision FROM sessions WHERE id = $1", session_id)
    pending = await store.database.fetch(
        "SELECT id FROM kernels WHERE session_id = $1 AND status = 'PENDING' ORDER BY hostname",
        session_id,
    )
    main, *subs = [KernelId(str(row["id"])) for row in pending]
    places = zip(subs, on[1:], strict=True)
    sub_kernels = tuple(KernelPlace(kernel_id, AgentId(agent), ()) for kernel_id, agent in places)
    return Place(SessionId(session_id), main, found["revision"], AgentId(on[0]), (), sub_kernels)


async def place(store: Store, *places: Place) -> set[str]:
    """The names of the sessions that were placed."""
    term = await store.leases.acquire("test", 60)
    assert term is not None
    before = await rows(store, "sessions")
    count = await store.scheduling.place(places, term)
    after = await rows(store, "sessions")
    placed = {
        str(row["name"]) for key, row in after.items() if row["status"] != before[key]["status"]
    }
    assert count == len(placed)

    return placed


async def test_a_placement_is_for_its_own_session_and_its_own_agents(store: Store) -> None:
    """If one session cannot be placed, the others in the same statement are still placed."""
    await agents(store, "one", "two", "gone", "far")
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT' WHERE id = 'gone'")
    await store.database.fetch("UPDATE agents SET address = $1 WHERE id = 'far'", FAR)
    found = {
        "alone": await placement(store, "alone", "one"),
        "pair": await placement(store, "pair", "one", "two"),
        "near": await placement(store, "near", "far", "far"),
        "broken": await placement(store, "broken", "one", "gone"),
        "apart": await placement(store, "apart", "one", "far"),
        "lost": await placement(store, "lost", "gone"),
    }
    before = await rows(store, "kernels")
    assert await place(store, *found.values()) == {"alone", "pair", "near"}
    after = await rows(store, "kernels")
    for name, given in found.items():
        for one in given.kernels:
            row = after[one.kernel_id]
            is_placed = name in ("alone", "pair", "near")
            if is_placed:
                assert (row["agent_id"], row["status"]) == (one.agent_id, "SCHEDULED")
            else:
                assert row == before[one.kernel_id]

    story = await store.database.fetch(
        "SELECT s.name, h.detail FROM session_history h JOIN sessions s ON s.id = h.session_id "
        "WHERE h.event = 'placed' ORDER BY 1"
    )
    assert [tuple(row) for row in story] == [
        ("alone", "on one"),
        ("near", "on far"),
        ("pair", "on one, two"),
    ]


@pytest.mark.parametrize("change", ["revision = revision + 1", "status = 'RUNNING'"])
async def test_a_session_that_has_changed_since_is_not_placed(store: Store, change: str) -> None:
    await agents(store, "one")
    stale = await placement(store, "stale", "one")
    fresh = await placement(store, "fresh", "one")
    await store.database.fetch(f"UPDATE sessions SET {change} WHERE name = 'stale'")
    before = (await rows(store, "kernels"))[stale.kernel_id]
    assert await place(store, stale, fresh) == {"fresh"}
    assert (await rows(store, "kernels"))[stale.kernel_id] == before


async def second_attempt(
    store: Store, name: str, earlier: str, *, replica_of: str | None = None, **more: object
) -> Place:
    """The placement of a session whose first attempt has a kernel in the status ``earlier``."""
    owner = await session(store, name, **more)
    await store.database.fetch(
        "UPDATE sessions SET attempt = 2, endpoint_id = $2 WHERE id = $1", owner, replica_of
    )
    await store.database.fetch("UPDATE kernels SET attempt = 2 WHERE session_id = $1", owner)
    main: dict[str, Any] = {"hostname": "main1", "cluster_role": "main", "overlap": True}
    await add_kernel(store, owner, 1, earlier, agent="one", **main)

    return await of_session(store, owner, "one")


async def test_a_session_waits_for_its_own_earlier_attempts(store: Store) -> None:
    """The placement does not wait for other sessions' kernels, nor for other kernels of the same
    attempt."""
    await agents(store, "one")
    endpoint = EndpointSpec(name="tiny", engine="vllm", model="m", replicas=0)
    replica_of = (await store.endpoints.create(SYSTEM, endpoint)).snapshot.endpoint_id
    found = [
        await second_attempt(store, f"ended-{n}", n) for n in ("TERMINATED", "CANCELLED", "ERROR")
    ]
    found += [
        await second_attempt(store, f"live-{n}", n) for n in ("RUNNING", "TERMINATING", "SCHEDULED")
    ]
    found += [
        await second_attempt(store, "overlapping", "RUNNING", overlap="allowed"),
        await second_attempt(store, "replica", "RUNNING", replica_of=replica_of),
        await second_attempt(store, "careful", "RUNNING", replica_of=replica_of, overlap="never"),
    ]
    beside = await second_attempt(store, "beside", "TERMINATED")
    await add_kernel(store, beside.session_id, 2, "RUNNING", agent="one", attempt=2)
    assert await place(store, *found, beside) == {
        "ended-TERMINATED", "ended-CANCELLED", "ended-ERROR", "overlapping", "replica", "beside",
    }  # fmt: skip
    kernels = await rows(store, "kernels")
    overlap = {
        str(row["session_id"]) for row in kernels.values() if row["attempt"] == 2 and row["overlap"]
    }
    assert overlap == {one.session_id for one in found[6:8]}


async def test_placements_lock_in_one_order(store: Store, migrated_database: str) -> None:
    """Placements lock counters in the order in which releases lock them: while another transaction
    holds the first counter, they hold none of the others."""
    names = [f"node-{number:02}" for number in range(20)]
    cpu = Allocation("cpu", DeviceId(""), 1000)
    await agents(store, *names)
    places = [
        (await placement(store, f"on-{name}", name))._replace(allocations=(cpu,))
        for name in reversed(names)
    ]
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("SELECT FROM agent_slots WHERE agent_id = $1 FOR UPDATE", names[0])
        placing = asyncio.ensure_future(place(store, *places))
        await until_it_waits(other, placing)
        await other.execute(
            "SELECT FROM agent_slots WHERE agent_id <> $1 FOR UPDATE NOWAIT", names[0]
        )

    await other.close()
    assert len(await placing) == 20
    [row] = await store.database.fetch("SELECT sum(used)::int AS used FROM agent_slots")
    assert row["used"] == 20_000


async def test_after_a_restore_what_an_agent_may_run_already_is_not_placed(store: Store) -> None:
    """This does not apply if its attempts may overlap, like those of replicas."""
    await agents(store, "one", "restored", "unknown")
    endpoint = EndpointSpec(name="tiny", engine="vllm", model="m", replicas=0)
    made = await store.endpoints.create(SYSTEM, endpoint)

    async def placements(moment: str) -> list[Place]:
        found = [
            await placement(store, f"{moment}-job", "one"),
            await placement(store, f"{moment}-overlapping", "one", overlap="allowed"),
            await placement(store, f"{moment}-replica", "one"),
            await placement(store, f"{moment}-never", "one", overlap="never"),
        ]
        await store.database.fetch(
            "UPDATE sessions SET endpoint_id = $1 WHERE name IN ($2, $3)",
            made.snapshot.endpoint_id,
            f"{moment}-replica",
            f"{moment}-never",
        )
        return found

    before = await placements("before")
    known = await placement(store, "known", "one")
    await store.database.fetch(
        "UPDATE agents SET restored_at = (SELECT max(created_at) FROM sessions) WHERE id = 'restored'"
    )
    after = await placements("after")
    await store.database.fetch(
        "UPDATE agents SET unknown_kernels = jsonb_build_array(jsonb_build_object("
        "'kernel_id', $1::text, 'session_id', $2::uuid)) WHERE id = 'unknown'",
        str(uuid4()),
        after[0].session_id,
    )
    assert await place(store, *before, *after, known) == {
        "before-overlapping", "before-replica",
        "after-overlapping", "after-replica", "after-never",
    }  # fmt: skip
    await store.database.fetch("UPDATE agents SET restored_at = NULL, unknown_kernels = '[]'")
    assert await place(store, before[0], before[3], after[0], known) == {
        "before-job", "before-never", "after-job", "known",
    }  # fmt: skip


async def test_a_lease_is_for_programs_that_run_again_where_agents_hold_leases(
    store: Store,
) -> None:
    await agents(store, "keeps", lease_runtimes=("docker", "process"))
    await agents(store, "other", lease_runtimes=("docker",))
    wanted: dict[str, tuple[tuple[str, ...], dict[str, object], list[float | None]]] = {
        "retried": (("keeps",), {"retries": 1}, [600]),
        "brief": (("keeps",), {"retries": 1, "lease_s": 30}, [30]),
        "requeued": (("keeps",), {"retries": 1, "on_lost_agent": "requeue", "lease_s": 40}, [40]),
        "kept": (("keeps",), {"retries": 1, "on_lost_agent": "wait"}, [None]),
        "once": (("keeps",), {}, [None]),
        "elsewhere": (("other",), {"retries": 1}, [None]),
        "pair": (("keeps", "other"), {"retries": 1}, [600, None]),
    }
    places = [await placement(store, name, *on, **more) for name, (on, more, _) in wanted.items()]
    assert await place(store, *places) == set(wanted)
    found = await rows(store, "kernels")
    for given, (_, _, leases) in zip(places, wanted.values(), strict=True):
        assert [found[one.kernel_id]["lease_s"] for one in given.kernels] == leases
