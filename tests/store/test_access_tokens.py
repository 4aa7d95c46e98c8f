"""Service ports of kernels and access tokens to them: written, led to, revoked, and what Postgres refuses."""

from __future__ import annotations

import hashlib
import time

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.access_tokens import AccessTokenSpec
from moorage.manager.store import Store

from .conftest import FakeAgent, schedule, settle, stop

SPEC = SessionSpec(
    command=["x"], type="interactive", ports=[{"name": "jupyter"}, {"name": "db", "protocol": "tcp"}]
)
JUPYTER = AppPort("jupyter", 21001, "http", False, 21001, True)
DB = AppPort("db", 21002, "tcp", False, 21002)


async def placed(store: Store, agent: FakeAgent, spec: SessionSpec = SPEC) -> tuple[str, str]:
    """The ids of a new session and of its kernel, which its agent was told of."""
    made = await store.sessions.create(spec, actor="t")
    await agent.report()
    assert await schedule(store) == 1
    view = await store.sessions.get(made.id)
    return view.id, view.kernels[0].id


async def runs(store: Store, agent: FakeAgent, kernel: str, *apps: AppPort) -> None:
    agent.see(kernel, ObservedState.RUNNING, host="127.0.0.1", port=21000, apps=apps)
    await agent.report()
    await settle(store)


async def test_a_running_kernels_ports_are_led_to_and_a_stopped_ones_are_not(store: Store) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent)
    assert [(a.name, a.ready) for a in await store.access_tokens.service_ports(session)] == [
        ("jupyter", False),
        ("db", False),
    ]
    agent.see(kernel, ObservedState.CREATING, host="127.0.0.1", apps=(JUPYTER, DB))
    await agent.report()
    assert (await store.routes.table()).apps == (), "it does not run yet"
    await runs(store, agent, kernel, JUPYTER, DB)
    routes = (await store.routes.table()).apps
    assert [(r.session_id, r.app, r.protocol, r.host, r.port) for r in routes] == [
        (session, "db", "tcp", "127.0.0.1", 21002),
        (session, "jupyter", "http", "127.0.0.1", 21001),
    ]
    assert [bool(r.key) for r in routes] == [False, True], "only to who asks for it"
    assert all(r.user == "t" and r.project == "default" for r in routes)
    assert {a.name for a in await store.access_tokens.service_ports(session) if a.ready} == {"jupyter", "db"}
    await stop(store, session, actor="t")
    assert (await store.routes.table()).apps == ()


async def test_what_an_image_adds_is_known_once_it_runs(store: Store) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent, SessionSpec(command=["x"], type="interactive"))
    with pytest.raises(NotFound, match="known once it runs"):
        await store.access_tokens.create(session, "lab", AccessTokenSpec(), actor="t")
    await runs(store, agent, kernel, AppPort("lab", 21005, "http", True, 8888))
    assert [(a.name, a.base_path, a.ready) for a in await store.access_tokens.service_ports(session)] == [
        ("lab", True, True)
    ]
    await store.access_tokens.create(session, "lab", AccessTokenSpec(), actor="t")


async def test_a_port_is_one_live_kernels_and_a_dead_one_makes_way(store: Store) -> None:
    agent = FakeAgent(store)
    first, one = await placed(store, agent)
    await runs(store, agent, one, JUPYTER)
    second, other = await placed(store, agent)
    await runs(store, agent, other, JUPYTER, DB)
    assert (await store.sessions.get(second)).status is Status.RUNNING, "it is no reason to refuse a report"
    assert {(r.session_id, r.app) for r in (await store.routes.table()).apps} == {
        (first, "jupyter"),
        (second, "db"),
    }
    with pytest.raises(asyncpg.UniqueViolationError):
        await store.database.fetch("INSERT INTO service_ports SELECT * FROM service_ports LIMIT 1")
    agent.see(one, ObservedState.EXITED, exit_code=0)
    await agent.report()
    await settle(store)
    third, last = await placed(store, agent)
    await runs(store, agent, last, JUPYTER)
    assert (third, "jupyter") in {(r.session_id, r.app) for r in (await store.routes.table()).apps}


async def test_an_access_token_is_kept_as_a_hash_and_ends_when_revoked_or_with_its_session(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent)
    await runs(store, agent, kernel, JUPYTER)
    made = await store.access_tokens.create(
        session, "jupyter", AccessTokenSpec(lifetime_s=60), actor="key:ann"
    )
    kept = await store.database.fetchrow("SELECT access_tokens::text AS row FROM access_tokens")
    assert made.access_token not in kept["row"]
    assert made.path == f"/apps/{session}/jupyter"
    (grant,) = (await store.routes.table()).access_tokens
    assert grant.sha256 == hashlib.sha256(made.access_token.encode()).hexdigest()
    assert (grant.session_id, grant.app) == (session, "jupyter")
    assert 50 < grant.expires_at - time.time() <= 61
    listed = await store.access_tokens.valid(session, "jupyter")
    assert [(p.id, p.created_by, p.prefix) for p in listed] == [(made.id, "key:ann", made.access_token[:8])]
    assert (await store.access_tokens.revoke(session, "jupyter", made.id, actor="t")).id == made.id
    assert await store.access_tokens.valid(session, "jupyter") == []
    assert (await store.routes.table()).access_tokens == ()
    for wrong in (made.id, "no-id", session):
        with pytest.raises(NotFound, match="no access token"):
            await store.access_tokens.revoke(session, "jupyter", wrong, actor="t")
    await store.access_tokens.create(session, "jupyter", AccessTokenSpec(), actor="t")
    assert len((await store.routes.table()).access_tokens) == 1
    await stop(store, session, actor="t")
    agent.see(kernel, ObservedState.EXITED, exit_code=0)
    await agent.report()
    await settle(store)
    assert (await store.routes.table()).access_tokens == ()
    with pytest.raises(Conflict, match="has ended"):
        await store.access_tokens.create(session, "jupyter", AccessTokenSpec(), actor="t")


async def test_an_expired_access_token_is_told_for_a_day_so_that_proxies_can_say_so(store: Store) -> None:
    agent = FakeAgent(store)
    session, _ = await placed(store, agent)
    await store.access_tokens.create(session, "jupyter", AccessTokenSpec(), actor="t")
    for ago, told in (("1 hour", 1), ("25 hours", 0)):
        await store.database.fetch(
            "UPDATE access_tokens SET created_at = now() - interval '3 days', "
            f"expires_at = now() - interval '{ago}'"
        )
        assert len((await store.routes.table()).access_tokens) == told
        assert await store.access_tokens.valid(session, "jupyter") == []


async def test_only_apps_that_there_are(store: Store) -> None:
    session, _ = await placed(store, FakeAgent(store))
    with pytest.raises(NotFound, match="has no service port 'lab': it has db, jupyter"):
        await store.access_tokens.create(session, "lab", AccessTokenSpec(), actor="t")


async def test_what_a_key_opens_goes_with_it(store: Store) -> None:
    await store.keys.create_first()
    (grant,) = (await store.routes.table()).keys
    assert (grant.user, grant.project, grant.admin) == ("admin", "default", True)
