"""Kernel service ports and their access tokens: storage, routes, revocation and constraints."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from moorage.common.link.messages import AccessTokenGrant
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.roles import MemberRole
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.access_tokens import AccessTokenSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all, schedule, stop
from .tenancy_harness import CALLERS, ROOT, Api, serve

SYSTEM = Scope.system()
ANN = next(one for one in CALLERS if one.name == "ann")
Change = Callable[[Api, Store, str], Awaitable[None]]

SPEC = SessionSpec(
    command=["x"],
    type="interactive",
    ports=[{"name": "jupyter"}, {"name": "db", "protocol": "tcp"}],
)
JUPYTER = AppPort("jupyter", 21001, protocol="http", base_path=False, inner=21001, guarded=True)
DB = AppPort("db", 21002, protocol="tcp", base_path=False, inner=21002)


async def placed(store: Store, agent: FakeAgent, spec: SessionSpec = SPEC) -> tuple[str, str]:
    """The ids of a new session and its kernel, which is in the agent's accepted orders."""
    made = await store.sessions.create(Scope.system("t"), spec)
    await agent.report()
    assert await schedule(store) == 1
    view = await store.sessions.get(SYSTEM, made.id)
    return view.id, view.kernels[0].id


async def runs(store: Store, agent: FakeAgent, kernel: str, *apps: AppPort) -> None:
    agent.see(kernel, ObservedState.RUNNING, host="127.0.0.1", port=21000, apps=apps)
    await agent.report()
    await reconcile_all(store)


async def test_routes_contain_ports_of_running_kernels_only(store: Store) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent)
    assert [
        (a.name, a.ready) for a in await store.access_tokens.service_ports(SYSTEM, session)
    ] == [
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
    assert {
        a.name for a in await store.access_tokens.service_ports(SYSTEM, session) if a.ready
    } == {
        "jupyter",
        "db",
    }
    await stop(store, session, actor="t")
    assert (await store.routes.table()).apps == ()


async def test_service_ports_of_the_image_appear_when_the_session_runs(store: Store) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent, SessionSpec(command=["x"], type="interactive"))
    with pytest.raises(NotFound, match="known once it runs"):
        await store.access_tokens.create(Scope.system("t"), session, "lab", AccessTokenSpec())

    await runs(
        store, agent, kernel, AppPort("lab", 21005, protocol="http", base_path=True, inner=8888)
    )
    assert [
        (a.name, a.base_path, a.ready)
        for a in await store.access_tokens.service_ports(SYSTEM, session)
    ] == [("lab", True, True)]
    await store.access_tokens.create(Scope.system("t"), session, "lab", AccessTokenSpec())


async def test_port_belongs_to_one_live_kernel_and_is_taken_over_from_an_ended_one(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    first, one = await placed(store, agent)
    await runs(store, agent, one, JUPYTER)
    second, other = await placed(store, agent)
    await runs(store, agent, other, JUPYTER, DB)
    assert (await store.sessions.get(SYSTEM, second)).status is Status.RUNNING, (
        "it is no reason to refuse a report"
    )
    assert {(r.session_id, r.app) for r in (await store.routes.table()).apps} == {
        (first, "jupyter"),
        (second, "db"),
    }
    with pytest.raises(asyncpg.UniqueViolationError):
        await store.database.fetch("INSERT INTO service_ports SELECT * FROM service_ports LIMIT 1")

    agent.see(one, ObservedState.EXITED, exit_code=0)
    await agent.report()
    await reconcile_all(store)
    third, last = await placed(store, agent)
    await runs(store, agent, last, JUPYTER)
    assert (third, "jupyter") in {(r.session_id, r.app) for r in (await store.routes.table()).apps}


async def test_access_token_is_stored_as_hash_and_ends_with_revocation_or_its_session(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    session, kernel = await placed(store, agent)
    await runs(store, agent, kernel, JUPYTER)
    before = int(time.time())
    made = await store.access_tokens.create(
        Scope.system("key:ann"), session, "jupyter", AccessTokenSpec(lifetime_s=60)
    )
    after = int(time.time())
    kept = await store.database.fetchrow("SELECT access_tokens::text AS row FROM access_tokens")
    assert made.access_token not in kept["row"]
    assert made.path == f"/apps/{session}/jupyter"
    (grant,) = (await store.routes.table()).access_tokens
    assert grant.sha256 == hashlib.sha256(made.access_token.encode()).hexdigest()
    assert (grant.session_id, grant.app) == (session, "jupyter")
    assert before + 60 <= grant.expires_at <= after + 61
    listed = (await store.access_tokens.valid(SYSTEM, session, "jupyter")).items
    assert [(p.id, p.created_by, p.prefix) for p in listed] == [
        (made.id, "key:ann", made.access_token[:8])
    ]
    assert (
        await store.access_tokens.revoke(Scope.system("t"), session, "jupyter", made.id)
    ).id == made.id
    assert (await store.access_tokens.valid(SYSTEM, session, "jupyter")).items == []
    assert (await store.routes.table()).access_tokens == ()
    for wrong in (made.id, "no-id", session):
        with pytest.raises(NotFound, match="no access token"):
            await store.access_tokens.revoke(Scope.system("t"), session, "jupyter", wrong)

    await store.access_tokens.create(Scope.system("t"), session, "jupyter", AccessTokenSpec())
    assert len((await store.routes.table()).access_tokens) == 1
    await stop(store, session, actor="t")
    agent.see(kernel, ObservedState.EXITED, exit_code=0)
    await agent.report()
    await reconcile_all(store)
    assert (await store.routes.table()).access_tokens == ()
    with pytest.raises(Conflict, match="has ended"):
        await store.access_tokens.create(Scope.system("t"), session, "jupyter", AccessTokenSpec())


async def test_expired_access_token_stays_in_routes_for_a_day(store: Store) -> None:
    agent = FakeAgent(store)
    session, _ = await placed(store, agent)
    await store.access_tokens.create(Scope.system("t"), session, "jupyter", AccessTokenSpec())

    for ago, told in (("1 hour", 1), ("25 hours", 0)):
        await store.database.fetch(
            "UPDATE access_tokens SET created_at = now() - interval '3 days', "
            f"expires_at = now() - interval '{ago}'"
        )
        assert len((await store.routes.table()).access_tokens) == told
        assert (await store.access_tokens.valid(SYSTEM, session, "jupyter")).items == []


async def test_access_token_for_unknown_app_is_rejected(store: Store) -> None:
    session, _ = await placed(store, FakeAgent(store))
    with pytest.raises(NotFound, match="has no service port 'lab': it has db, jupyter"):
        await store.access_tokens.create(Scope.system("t"), session, "lab", AccessTokenSpec())


async def test_key_grants_contain_user_project_and_role(store: Store) -> None:
    await store.keys.create_first()
    (grant,) = (await store.routes.table()).keys
    assert (grant.user, grant.project, grant.admin) == ("admin", "default", True)


async def opened_by(api: Api, store: Store, caller: str, session: str) -> AccessTokenGrant:
    """A token for a session's app, created by a caller."""
    status, text = await api.call(
        caller, "POST", f"/v1/sessions/{session}/apps/jupyter/access-tokens", {}
    )
    assert status == 201, text
    [grant] = await store.access_tokens.grants()
    return grant


async def remove_key(api: Api, store: Store, caller: str) -> None:
    await api.call("admin", "DELETE", f"/v1/keys/{caller}")


async def disable(api: Api, store: Store, caller: str) -> None:
    await api.call("admin", "PATCH", f"/v1/users/{caller}", {"status": "disabled"})


async def remove_member(api: Api, store: Store, caller: str) -> None:
    await store.projects.remove_member(ROOT, "vision", caller)


def lower(role: MemberRole) -> Change:
    async def change(api: Api, store: Store, caller: str) -> None:
        await store.projects.set_member(ROOT, "vision", caller, role)

    return change


async def disable_project(api: Api, store: Store, caller: str) -> None:
    await api.call("admin", "PATCH", "/v1/projects/vision", {"status": "disabled"})


async def change_other(api: Api, store: Store, caller: str) -> None:
    await store.projects.remove_member(ROOT, "vision", "mate")
    await api.call("admin", "DELETE", "/v1/keys/mate")


@pytest.mark.parametrize(
    ("maker", "change", "ends"),
    [
        ("ann", remove_key, True),
        ("ann", disable, True),
        ("ann", remove_member, True),
        ("ann", lower("viewer"), True),
        ("ann", disable_project, True),
        ("ann", change_other, False),
        ("lead", lower("member"), True),
        ("lead", remove_key, True),
        ("admin", change_other, False),
    ],
)
async def test_access_token_ends_with_the_rights_of_its_maker(
    store: Store, maker: str, change: Change, ends: bool
) -> None:
    async with serve(store) as api:
        spec = {"type": "interactive", "command": ["x"], "ports": [{"name": "jupyter"}]}
        status, text = await api.call("ann", "POST", "/v1/sessions", spec)
        assert status == 201, text
        grant = await opened_by(api, store, maker, json.loads(text)["id"])
        await change(api, store, maker)
        assert list(await store.access_tokens.grants()) == ([] if ends else [grant])


async def test_access_token_from_the_console_ends_with_its_user(store: Store) -> None:
    async with serve(store) as api:
        spec = {"type": "interactive", "command": ["x"], "ports": [{"name": "jupyter"}]}
        _, text = await api.call("ann", "POST", "/v1/sessions", spec)
        path = f"/v1/sessions/{json.loads(text)['id']}/apps/jupyter/access-tokens"
        status, text = await api.call_from_console(ANN, "POST", path, {}, by_oidc=False)
        assert status == 201, text
        await remove_key(api, store, "ann")
        assert len(await store.access_tokens.grants()) == 1, (
            "a password opened the session, not the key"
        )
        await disable(api, store, "ann")
        assert await store.access_tokens.grants() == ()
