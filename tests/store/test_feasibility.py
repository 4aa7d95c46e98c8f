"""Requests that no agent could ever satisfy are reported on submission."""

from __future__ import annotations

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.spec import SessionSpec
from moorage.manager.explain.feasibility import QUOTAS_CACHED_S, FeasibilityCheck
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent, StoreClock, mark_silent, open_store


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


@pytest.mark.usefixtures("owners")
async def test_request_above_a_whole_quota_is_reported(store: Store, clock: StoreClock) -> None:
    ann = Owner("ann", "vision")
    check = FeasibilityCheck(store.scheduling, clock)
    assert await check.exceeded_quotas(ask(), ann) == []
    limits = QuotaLimits(slots={"cuda.device": "2"}, sessions=0)
    await store.quotas.put(Scope.system(), "user", "ann", limits)
    await store.quotas.put(Scope.system(), "project", "vision", QuotaLimits(sessions=1))
    clock.advance(QUOTAS_CACHED_S)
    never = "it never starts under this limit"
    assert await check.exceeded_quotas(ask(), ann) == [
        f"user ann: 0 concurrent sessions of 0; {never}",
        f"user ann: cuda.device: used 0 + requested 3 > limit 2 (over by 1); {never}",
    ]
    assert await check.exceeded_quotas(ask(), Owner("bob", "vision")) == []
    assert await check.exceeded_quotas(ask(resources={"cpu": 1}), ann) == [
        f"user ann: 0 concurrent sessions of 0; {never}"
    ]
