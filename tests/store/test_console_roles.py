"""Roles in console sessions: every route of the table, opened with a password and by single sign-on."""

from __future__ import annotations

from pathlib import Path

from moorage.manager.api.routes import ROUTES
from moorage.manager.secrets import Keyring
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store
from .tenancy_harness import CALLERS, serve
from .test_tenancy import World, expected, subject


async def test_every_route_in_a_console_session_of_every_role(migrated_database: str, tmp_path: Path) -> None:
    """Every other caller has signed in at the OpenID provider, the others with a password. What succeeds as
    with a key is tried by those alone to whom the things belong."""
    wrong, clock = [], StoreClock()
    keyring = Keyring(tmp_path / "secrets-keys", clock)
    async with open_store(migrated_database, clock, keyring=keyring) as store, serve(store) as api:
        await FakeAgent(store).report()
        world = World(api)
        await world.make()
        await api.call("admin", "PUT", "/v1/quotas/project/vision", {"sessions": 100})
        for number, route in enumerate(row for row in ROUTES if subject(row) != "open"):
            await world.make()
            for place, caller in enumerate(sorted(CALLERS, key=lambda one: not expected(route, one))):
                want, by_oidc = expected(route, caller), (number + place) % 2 == 0
                if not want and route.method != "GET" and caller.name not in ("ann", "admin"):
                    continue
                path, body = world.path(route), world.body(route)
                status, text = await api.call_from_console(caller, route.method, path, body, by_oidc=by_oidc)
                allowed = status in want if want else status not in (401, 403) and status < 500
                if not allowed:
                    shown = f"{route.method} {path} as {caller.name}, {by_oidc=}: {status} {text[:200]}"
                    wrong.append(f"{shown}; expected {sorted(want) or 'success'}")
    assert wrong == [], "\n".join(wrong)
