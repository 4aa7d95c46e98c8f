"""Revoked agents: their targets are removed from the routes at once, no matter what happens to
their kernels."""

from __future__ import annotations

import pytest

from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all, schedule
from .test_authorities import add_peer
from .test_rollouts import Platform

SYSTEM = Scope.system("test")
APP = SessionSpec.model_validate(
    {"command": ["x"], "type": "interactive", "ports": [{"name": "web"}]}
)
MODEL = SessionSpec.model_validate(
    {"name": "chat", "type": "inference", "engine": "vllm", "model": "m"}
)
WEB = AppPort("web", 21001, protocol="http", base_path=False, inner=21001)


async def serve_on(store: Store, agent: FakeAgent) -> None:
    """An app and a model on this agent."""
    await agent.report()
    for spec in (APP, MODEL):
        made = await store.sessions.create(SYSTEM, spec)
        assert await schedule(store) == 1
        [kernel] = (await store.sessions.get(SYSTEM, made.id)).kernels
        apps = (WEB,) if spec is APP else ()
        agent.see(kernel.id, ObservedState.RUNNING, host="127.0.0.1", port=21000, apps=apps)

    await agent.report()
    await reconcile_all(store)


async def served(store: Store) -> tuple[list[str], list[int]]:
    """All apps in the table, and the number of targets of each model."""
    table = await store.routes.table()
    return [app.app for app in table.apps], [len(model.targets) for model in table.models]


async def test_what_runs_on_a_revoked_agent_leaves_the_routes(store: Store) -> None:
    await add_peer(store, "node-1")
    await serve_on(store, FakeAgent(store))
    assert await served(store) == (["web"], [1])
    await store.routes.changes()
    changed: list[object] = []
    store.notifier.on_routes(lambda ids: changed.extend(ids or ()))
    await store.peers.revoke("agent", "node-1", actor="ann")

    # Without a notification, the next sweep would notice half a minute later.
    sessions = (await store.sessions.page(SYSTEM)).items
    assert set(changed) >= {session.id for session in sessions}
    told = await store.routes.changes()
    assert [app.partition("/")[2] for app in told.removed_apps] == ["web"]
    assert "chat" in told.removed_models or [model.targets for model in told.models] == [()]
    assert await served(store) in (([], []), ([], [0]))
    again = await add_peer(store, "node-1")
    assert await served(store) == (["web"], [1]), "it has joined again"
    table = await store.routes.table()
    [target] = table.models[0].targets
    assert {target.peer_id, *(app.peer_id for app in table.apps)} == {again}


async def test_proxies_learn_which_agents_were_revoked(store: Store) -> None:
    """Open connections to revoked agents end. Nothing else distinguishes such an agent's replica
    from one that finishes its work."""
    peers = {name: await add_peer(store, name) for name in ("node-1", "node-2")}
    await serve_on(store, FakeAgent(store))
    before = await store.routes.table()
    assert before.revoked_agents == ()
    assert [target.peer_id for target in before.models[0].targets] == [peers["node-1"]]
    assert [app.peer_id for app in before.apps] == [peers["node-1"]]
    await store.peers.revoke("agent", "node-1", actor="ann")
    assert (await store.routes.credentials()).revoked_agents == (peers["node-1"],)
    await store.database.fetch(
        "UPDATE link_peers SET certificate_until = now() - interval '2 days'"
    )
    assert (await store.routes.credentials()).revoked_agents == (peers["node-1"],), (
        "a connection may be older"
    )
    await store.database.fetch(
        "UPDATE link_peers SET revoked_at = now() - interval '2 days' WHERE name = 'node-1'"
    )
    assert (await store.routes.credentials()).revoked_agents == ()


@pytest.mark.parametrize("known", [True, False], ids=["joined", "by token"])
async def test_revoking_another_agent_changes_nothing(store: Store, known: bool) -> None:
    """Agents on loopback have a token and no certificate."""
    if known:
        await add_peer(store, "node-1")

    await add_peer(store, "node-2")
    await serve_on(store, FakeAgent(store))
    [target] = (await store.routes.table()).models[0].targets
    assert bool(target.peer_id) is known
    await store.routes.changes()
    await store.peers.revoke("agent", "node-2", actor="ann")
    assert await served(store) == (["web"], [1])


async def test_replicas_of_an_endpoint_leave_the_routes_with_their_agent(store: Store) -> None:
    platform = Platform(store)
    await add_peer(store, platform.agent.name)
    await platform.agent.report()
    await platform.create(replicas=2)
    await platform.until(lambda view: view.ready == 2)
    assert await served(store) == ([], [2])
    await store.peers.revoke("agent", platform.agent.name, actor="ann")
    [route] = (await store.routes.changes()).models
    assert route.targets == ()
