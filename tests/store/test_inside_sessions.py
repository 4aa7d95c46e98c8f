"""Access to the inside of sessions: manager and proxy decide alike, for each role and kind of session."""

from __future__ import annotations

import json
import time

import pytest

from moorage.common.model.ids import SessionId
from moorage.common.model.roles import Role
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.proxy.apps.address import AppAddress, Credentials
from moorage.proxy.apps.admission import AppGrant, admit
from moorage.proxy.core.routes import IndexedTable

from .conftest import FakeAgent, reconcile_all, schedule
from .tenancy_harness import CALLERS, ROOT, serve

PORT = AppPort("web", 21001, "http", False, 21001)
SPEC = SessionSpec.model_validate({"command": ["x"], "ports": [{"name": "web"}]})
ALLOWED_INSIDE = {"ann": {"ann", "lead", "admin"}, "admin": {"admin"}}
"""By who started a session of the process runtime: who opens its ports, with a key or a token. What an
administrator starts is not isolated: its programs run as the user of the agent."""


async def running(store: Store, starter: str) -> SessionId:
    """A session with a service port in project vision that ``starter`` has started."""
    by_admin = starter == "admin"
    owner = Owner(starter, "vision", isolated=not by_admin)
    role = Role.ADMIN if by_admin else Role.MEMBER
    made = await store.sessions.create(Scope(starter, owner, role, None), SPEC)
    agent = FakeAgent(store, runtimes=("process", "isolated-process"))
    await agent.report()
    assert await schedule(store) == 1
    made = await store.sessions.get(ROOT, made.id)
    agent.see(made.kernels[0].id, ObservedState.RUNNING, host="127.0.0.1", port=21000, apps=(PORT,))
    await agent.report()
    await reconcile_all(store)
    return made.id


def opens(table: IndexedTable, key: str, session: SessionId) -> bool:
    """Whether the proxy admits ``key`` to the port of the session."""
    address = AppAddress(session, PORT.name, f"/apps/{session}/web/", "/")
    return isinstance(admit(Credentials(address, (), key, ()), table, time.time()), AppGrant)


@pytest.mark.parametrize("starter", ALLOWED_INSIDE)
async def test_manager_and_proxy_let_the_same_callers_in(store: Store, starter: str) -> None:
    async with serve(store) as api:
        session = await running(store, starter)
        table = IndexedTable(await store.routes.table())
        by_manager, by_proxy = set(), set()
        for caller in CALLERS:
            status, _ = await api.call(
                caller.name, "POST", f"/v1/sessions/{session}/apps/web/access-tokens", {}
            )
            if status == 201:
                by_manager.add(caller.name)
            if opens(table, api.keys[caller.name], session):
                by_proxy.add(caller.name)
    assert by_manager == by_proxy == ALLOWED_INSIDE[starter]


async def test_log_of_a_shared_run_stays_with_who_ran_it(store: Store) -> None:
    body = {"command": ["train"], "reuse": "both"}
    async with serve(store) as api:
        for caller in ("ann", "mate"):
            status, text = await api.call(caller, "POST", "/v1/sessions", body | {"name": f"of-{caller}"})
            assert status == 201, text
        assert json.loads(text)["adopted_from"] is not None
        read = {
            (caller, of): (await api.call(caller, "GET", f"/v1/sessions/of-{of}/logs"))[0]
            for caller in ("ann", "mate", "lead")
            for of in ("ann", "mate")
        }
        _, refused = await api.call("mate", "GET", "/v1/sessions/of-mate/logs")
    assert "session 'of-ann', whose run this one shares, belongs to user 'ann'" in refused
    assert read == {
        ("ann", "ann"): 200,
        ("ann", "mate"): 403,
        ("mate", "ann"): 403,
        ("mate", "mate"): 403,
        ("lead", "ann"): 200,
        ("lead", "mate"): 200,
    }
