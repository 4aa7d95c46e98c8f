"""Requests that no agent could ever satisfy are reported on submission."""

from __future__ import annotations

from moorage.common.aio.clock import ManualClock
from moorage.common.model.spec import SessionSpec
from moorage.manager.explain.feasibility import FeasibilityCheck

from .conftest import FakeAgent, mark_silent, open_store


def ask(**more: object) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "resources": {"cuda.device": 3}} | more)


async def test_infeasible_request_is_reported(migrated_database: str) -> None:
    clock = ManualClock()
    async with open_store(migrated_database, clock) as store:
        check = FeasibilityCheck(store.scheduling, clock)
        assert await check.refusals(ask()) == [], "there is nobody to ask yet"
        await FakeAgent(store, "small", gpus=2).report()
        clock.advance(6)
        assert await check.refusals(ask()) == [
            "1 agent: needs 3 cuda.device, has 2 even when empty"
        ]
        assert await check.refusals(ask(resources={"cuda.device": 2})) == []
        assert await check.refusals(ask(resource_group="nowhere")) == []
        await FakeAgent(store, "large", gpus=4, arch="aarch64").report()
        clock.advance(6)
        assert await check.refusals(ask()) == [], "a refusal is looked at again"
        assert await check.refusals(ask(arch="x86_64")) != []
        assert await check.refusals(ask(agents=["small"])) != []
        assert await mark_silent(store, "large") == ["large"]
        clock.advance(6)
        assert await check.refusals(ask()) == [], "it may come back"
