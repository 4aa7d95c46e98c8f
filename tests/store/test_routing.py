"""Endpoint routing in Postgres: what the proxies receive, including the keys of outside
providers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.common.link.messages import ModelRoute, RouteFallback, Target
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.keys import KeyLimits, KeySpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets import Keyring
from tests.clocks import StoreClock

from .conftest import open_store
from .test_rollouts import SYSTEM, Platform, complete, spec

pytestmark = pytest.mark.usefixtures("owners")

PROVIDER = {"model": "gpt", "url": "https://api.example.com/openai/v1/", "secret": "their-key"}


@pytest.fixture
async def platform(migrated_database: str, tmp_path: Path) -> AsyncIterator[Platform]:
    keyring = Keyring(tmp_path / "secrets-keys", StoreClock())
    async with open_store(migrated_database, keyring=keyring) as store:
        yield Platform(store)


async def route(platform: Platform) -> ModelRoute:
    [one] = (await platform.store.routes.table()).models
    return one


async def told(platform: Platform) -> tuple[ModelRoute, ...]:
    return (await platform.store.routes.changes()).models


def fallbacks(*given: dict[str, str], **more: object) -> dict[str, object]:
    return {"routing": {"fallbacks": list(given), **more}}


async def test_fallbacks_reach_the_proxies_with_the_keys_of_providers(platform: Platform) -> None:
    await platform.store.secrets.put(SYSTEM, "their-key", "sk-1")
    await platform.create(**fallbacks({"model": "small"}, PROVIDER, fallback_after_s=2))
    found = await route(platform)
    outside = Target(
        SessionId(""),
        KernelId("provider-1/m"),
        host="api.example.com",
        port=443,
        key="sk-1",
        engine="provider",
        tls=True,
        prefix="/openai/v1",
    )
    assert found.fallbacks == (RouteFallback("small"), RouteFallback("gpt", outside))
    assert found.fallback_after_s == 2
    rows = await platform.store.database.fetch("SELECT spec::text, serving::text FROM endpoints")
    assert "sk-1" not in str([dict(row) for row in rows])


async def test_a_new_value_of_a_secret_reaches_them_at_once(platform: Platform) -> None:
    await platform.store.secrets.put(SYSTEM, "their-key", "sk-1")
    await platform.create(**fallbacks(PROVIDER))
    await platform.create(name="other")
    await told(platform)
    assert await told(platform) == ()
    await platform.store.secrets.put(SYSTEM, "their-key", "sk-2")
    [changed] = await told(platform)
    [fallback] = changed.fallbacks
    assert fallback.provider is not None
    assert (changed.name, fallback.provider.key) == ("m", "sk-2")


async def test_a_secret_stays_for_the_endpoint_that_refers_to_it(platform: Platform) -> None:
    store = platform.store
    await store.secrets.put(SYSTEM, "their-key", "sk-1")
    await platform.create(**fallbacks(PROVIDER))
    await store.secrets.delete(SYSTEM, "their-key")
    await store.database.fetch("UPDATE secrets SET deleted_at = deleted_at - interval '2 hours'")
    assert await store.secrets.delete_unused() == 0
    assert (await route(platform)).fallbacks
    await platform.update(fallbacks())
    assert await store.secrets.delete_unused() == 1


async def test_a_provider_whose_key_is_lost_is_left_out(platform: Platform) -> None:
    await platform.store.secrets.put(SYSTEM, "their-key", "sk-1")
    await platform.create(**fallbacks(PROVIDER, {"model": "small"}))
    await platform.store.database.fetch(
        "UPDATE secrets SET sealed = decode(repeat('00', 40), 'hex')"
    )
    assert (await route(platform)).fallbacks == (RouteFallback("small"),)


async def test_routing_is_no_part_of_a_revision(platform: Platform) -> None:
    await platform.create(**fallbacks({"model": "small"}))
    assert (await platform.update(fallbacks({"model": "other"}))).revision == 1
    assert (await route(platform)).fallbacks == (RouteFallback("other"),)
    await platform.update({"model": "two"})
    for revision in (await platform.service.revisions(SYSTEM, "m")).items:
        assert "routing" not in revision.spec

    view = await platform.service.undo(SYSTEM, "m", 1)
    assert view.spec is not None
    assert (view.spec.model, view.spec.routing.fallbacks[0].model) == ("one", "other")
    await platform.update({"routing": None})
    assert (await route(platform)).fallbacks == ()


async def test_limits_of_bodies_reach_the_proxies(platform: Platform) -> None:
    await platform.create(routing={"max_body_bytes": 5000})
    assert (await route(platform)).max_body_bytes == 5000
    assert (await platform.update({"routing": {"max_body_bytes": None}})).revision == 1
    assert (await route(platform)).max_body_bytes == 0

    keys = platform.store.keys
    await keys.create(SYSTEM, KeySpec(name="small", max_body_bytes=3000))
    [grant] = (await platform.store.routes.table()).keys
    assert grant.max_body_bytes == 3000
    await keys.update(SYSTEM, "small", KeyLimits())
    [grant] = (await platform.store.routes.table()).keys
    assert grant.max_body_bytes == 0


ADAPTERS = [{"name": "sql", "source": "/loras/sql"}]


async def test_adapters_are_part_of_a_revision(platform: Platform) -> None:
    await platform.agent.report()
    await platform.create(adapters=ADAPTERS)
    await platform.until(complete)
    found = await route(platform)
    assert found.adapters == ("m:sql",)
    assert {target.adapters for target in found.targets} == {("m:sql",)}
    view = await platform.update(
        {"adapters": [*ADAPTERS, {"name": "chat", "source": "/loras/chat"}]}
    )
    assert view.revision == 2
    await platform.until(complete)
    assert {target.adapters for target in (await route(platform)).targets} == {("m:sql", "m:chat")}
    view = await platform.service.undo(SYSTEM, "m", 1)
    assert view.spec is not None
    assert [one.name for one in view.spec.adapters] == ["sql"]
    assert (await platform.update({"adapters": None})).revision == 3
    assert (await route(platform)).adapters == ()


async def test_the_name_of_an_adapter_belongs_to_its_project(platform: Platform) -> None:
    other = Scope.system("t", Owner("bob", "other"))
    await platform.create(adapters=ADAPTERS)
    for name in ("m:sql", "m"):
        with pytest.raises(Conflict, match=rf"'{name}'.* belongs to another project"):
            await platform.service.create(other, spec(name=name))

    await platform.service.create(other, spec(name="m:chat"))
    with pytest.raises(Conflict, match=r"'m:chat'.* belongs to another project"):
        await platform.update({"adapters": [{"name": "chat", "source": "x"}]})

    assert (await route_of(platform, "m")).adapters == ("m:sql",)
    await platform.update({"adapters": None})
    await platform.store.database.fetch(
        "UPDATE model_names SET used_at = used_at - interval '31 days'"
    )
    await platform.service.create(other, spec(name="m:sql"))


async def route_of(platform: Platform, name: str) -> ModelRoute:
    return next(one for one in (await platform.store.routes.table()).models if one.name == name)


def stays(view: EndpointView) -> bool:
    return view.rollout is not None and view.rollout.state == "canary"


async def test_a_canary_gets_its_share_until_it_is_promoted(platform: Platform) -> None:
    await platform.agent.report()
    await platform.create(rollout={"canary": 10})
    first = (await platform.until(complete))[-1].rollout
    assert first is not None
    assert first.canary == 0, "there is no stable revision beside it"
    await platform.update({"model": "two"})
    view = (await platform.until(stays))[-1]
    assert sorted(one.revision for one in view.sessions) == [1, 1, 2]
    found = await route(platform)
    assert (found.canary, sorted(one.canary for one in found.targets)) == (10, [False, False, True])
    assert (await platform.update({"rollout": {"canary": 60}})).revision == 2
    view = (
        await platform.until(lambda view: len([one for one in view.sessions if one.state]) == 4)
    )[-1]
    assert (await route(platform)).canary == 60
    promoted = await platform.service.promote(SYSTEM, "m")
    assert (promoted.revision, (await route(platform)).canary) == (2, 0)
    view = (await platform.until(complete))[-1]
    assert {one.revision for one in view.sessions if one.state} == {2}
    with pytest.raises(Conflict, match="no canary"):
        await platform.service.promote(SYSTEM, "m")


async def test_a_canary_is_undone_or_rolls_back_itself(platform: Platform) -> None:
    await platform.agent.report()
    await platform.create(rollout={"canary": 10})
    await platform.until(complete)
    await platform.update({"model": "two"})
    await platform.until(stays)
    undone = await platform.service.undo(SYSTEM, "m", None)
    assert (undone.revision, (await route(platform)).canary) == (1, 0)
    await platform.until(complete)
    await platform.update({"model": "bad"})
    views = await platform.until(
        lambda view: view.rollout is not None and view.rollout.state == "failed",
        broken=frozenset({"bad"}),
    )
    assert (views[-1].revision, {view.ready for view in views}) == (1, {2}), (
        "the stable ones serve on"
    )
    assert (await route(platform)).canary == 0


async def test_a_replica_that_finds_no_room_goes_to_the_next_group(platform: Platform) -> None:
    store = platform.store
    with pytest.raises(NotFound, match="'empty', 'default'"):
        await platform.create(replicas=1, resource_groups=["empty", "default"])

    await store.groups.put("empty", GroupOptions(), actor="root")
    await platform.agent.report()
    await platform.create(replicas=1, resource_groups=["empty", "default"])
    [waiting] = (await platform.run()).sessions
    await store.database.fetch("UPDATE sessions SET status_since = status_since - interval '6 s'")
    for _ in range(3):
        view = await platform.run()

    assert complete(view)
    [serving] = [one for one in view.sessions if one.state]
    ended = {one.session_id: one.reason for one in view.sessions if not one.state}
    assert ended == {waiting.session_id: Reason.GROUP_FULL}
    rows = await store.database.fetch(
        "SELECT resource_group FROM sessions WHERE id = $1", serving.session_id
    )
    assert [row["resource_group"] for row in rows] == ["default"]
    assert (
        view.revision
        == (await platform.update({"resource_groups": ["default", "empty"]})).revision - 1
    )
    assert (await platform.update({"resource_groups": ["default"]})).revision == view.revision + 1
