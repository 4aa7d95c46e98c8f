"""A pipeline retry that decides again because one of the pipeline's steps has changed in the
meantime."""

from __future__ import annotations

import asyncio

import asyncpg

from moorage.common.model.status import ObservedState, Status
from moorage.manager.lifecycle.reconcile import reconcile_session
from moorage.manager.store import Store

from .conftest import FAILED, FakeAgent, reconcile_all, schedule
from .tenancy_harness import serve
from .test_pipelines import body, get, play, post, states, step

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pipelines'::regclass"


async def reconcile_begun(store: Store) -> None:
    """Reconcile the started sessions until none changes; nothing is skipped."""
    moves = None
    while moves != []:
        facts, now = await store.lifecycle.unsettled()
        begun = [one for one in facts if one.status is not Status.PENDING]
        moves = [move for one in begun if (move := reconcile_session(one, now, 120)) is not None]
        await store.lifecycle.apply_all(moves)


async def test_a_step_that_is_skipped_while_a_retry_begins_runs_again(
    store: Store, migrated_database: str
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(
            api, "admin", "", body(step("train"), step("publish", "train"), step("last", "publish"))
        )
        assert await schedule(store) == 1
        [kernel] = await store.database.fetch("SELECT id FROM kernels WHERE status = 'SCHEDULED'")
        agent.see(kernel["id"], ObservedState.EXITED, **FAILED)
        await agent.report()
        await reconcile_begun(store)
        assert states(await get(api, "admin", "train")) == {
            "train": "failed", "publish": "pending", "last": "pending",
        }  # fmt: skip

        holder = await asyncpg.connect(migrated_database)
        try:
            async with holder.transaction():
                # The retry reads the steps, decides, and waits here before it writes.
                await holder.execute("LOCK TABLE pipelines IN SHARE MODE")
                retry = asyncio.create_task(post(api, "admin", "/train/retry", expected=202))
                async with asyncio.timeout(30):
                    while not await holder.fetchval(BLOCKED):
                        await asyncio.sleep(0.01)

                await reconcile_all(store)
                assert states(await get(api, "admin", "train"))["publish"] == "skipped"

            await retry
        finally:
            await holder.close()

        view = await get(api, "admin", "train")
        assert states(view) == {"train": "pending", "publish": "pending", "last": "pending"}
        assert await play(store, agent) == ["train", "publish", "last"]
        assert (await get(api, "admin", "train"))["state"] == "succeeded"

    assert await store.integrity.check() == []
