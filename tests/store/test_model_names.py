"""Model names: they belong to a project, and stay with it for 30 days after their last use."""

from __future__ import annotations

import asyncio

import pytest

from moorage.common.model.errors import Conflict
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import stop

ANN = Scope.system("ann", Owner("ann", "vision"))
BOB = Scope.system("bob", Owner("bob", "speech"))


def endpoint(name: str = "m") -> EndpointSpec:
    given = {"name": name, "engine": "custom", "command": ["x"], "probe": {}, "replicas": 0}
    return EndpointSpec.model_validate(given)


def served(name: str = "m") -> SessionSpec:
    given = {"name": name, "type": "inference", "command": ["x"], "probe": {}}
    return SessionSpec.model_validate(given)


async def age(store: Store, days: int) -> None:
    await store.database.fetch(
        "UPDATE model_names SET used_at = used_at - make_interval(days => $1)", days
    )


async def test_freed_name_stays_its_projects_for_30_days(store: Store) -> None:
    await store.endpoints.create(ANN, endpoint())
    with pytest.raises(Conflict, match="belongs to another project"):
        await store.endpoints.create(BOB, endpoint())

    await age(store, 31)
    with pytest.raises(Conflict, match="belongs to another project"):
        await store.endpoints.create(BOB, endpoint())  # in use, however long ago it was claimed

    await store.endpoints.delete(ANN, "m")
    for refused in (store.endpoints.create(BOB, endpoint()), store.sessions.create(BOB, served())):
        with pytest.raises(Conflict):
            await refused

    await store.endpoints.create(ANN, endpoint())
    await store.endpoints.delete(ANN, "m")
    await age(store, 29)
    assert await store.retention.delete_model_names() == 0
    with pytest.raises(Conflict):
        await store.endpoints.create(BOB, endpoint())

    await age(store, 2)
    assert (await store.endpoints.create(BOB, endpoint())).snapshot.owner.project == "speech"
    with pytest.raises(Conflict):
        await store.sessions.create(ANN, served())


async def test_session_without_endpoint_has_a_models_name(store: Store) -> None:
    made = await store.sessions.create(ANN, served())
    await age(store, 31)
    assert await store.retention.delete_model_names() == 0, "it is in use"
    with pytest.raises(Conflict):
        await store.endpoints.create(BOB, endpoint())

    await stop(store, made.id)
    with pytest.raises(Conflict, match="a model of another project"):
        await store.sessions.create(BOB, served())

    await age(store, 31)
    assert await store.retention.delete_model_names() == 1
    await store.sessions.create(BOB, served())


async def test_concurrent_takers_of_one_name_are_of_one_project(store: Store) -> None:
    scopes = [Scope.system("t", Owner("t", f"p{n}")) for n in range(8)]
    takers = [store.endpoints.create(scope, endpoint()) for scope in scopes[:4]]
    takers += [store.sessions.create(scope, served()) for scope in scopes[4:]]  # type: ignore[misc]
    ends = await asyncio.gather(*takers, return_exceptions=True)
    assert sorted(isinstance(end, Conflict) for end in ends) == [False] + [True] * 7


async def test_names_of_sessions_are_unique_within_their_project(store: Store) -> None:
    spec = SessionSpec(name="train", command=["x"])
    mine = await store.sessions.create(ANN, spec)
    theirs = await store.sessions.create(BOB, spec)
    with pytest.raises(Conflict):
        await store.sessions.create(ANN, spec)
    seen = [
        await store.sessions.find(Scope.system("t", scope.owner), "train") for scope in (ANN, BOB)
    ]
    assert seen == [mine.id, theirs.id]
