"""Roles in console sessions, opened with a password or by single sign-on: every route of the table.

A console session becomes the same ``ApiKey`` as a key, so only code that looks at the key itself
behaves differently. The gate tries the routes with such code, and one of the others for each guard.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.manager.api.http.route import Route
from moorage.manager.api.routes import ROUTES
from moorage.manager.secrets import Keyring
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store
from .tenancy_harness import CALLERS, serve
from .test_tenancy import OWN, PLATFORM_PARTS, World, expected, part_of

# Their handlers ask for the caller's key, or for its console session.
LOOK_AT_KEYS = {"keys", "ssh-keys", "session", "events"}
GUARDED = [route for route in ROUTES if part_of(route)]


def guard(route: Route) -> tuple[object, ...]:
    """Equal for routes that refuse the same callers for the same reasons. Writing routes require
    the CSRF token."""
    if route.tag in LOOK_AT_KEYS:
        return (route.method, route.path)
    names_one = "{" in route.path
    is_read = route.method == "GET"
    own = route.tag if route.tag in OWN else ""
    return (route.access, part_of(route) in PLATFORM_PARTS, names_one, own, is_read)


ONE_OF_EACH = list({guard(route): route for route in reversed(GUARDED)}.values())
OTHERS = [route for route in GUARDED if route not in ONE_OF_EACH]


@pytest.mark.parametrize(
    "routes",
    [
        pytest.param(ONE_OF_EACH, id="one-of-each-guard"),
        pytest.param(OTHERS, id="others", marks=pytest.mark.slow),
    ],
)
async def test_every_route_in_a_console_session_of_every_role(
    migrated_database: str, tmp_path: Path, routes: list[Route]
) -> None:
    """Every second caller has signed in through the OpenID provider, the others with a password.
    Requests that succeed just as they do with a key are tried only by the owners of the objects."""
    wrong = []
    clock = StoreClock()
    keyring = Keyring(tmp_path / "secrets-keys", clock)
    async with open_store(migrated_database, clock, keyring=keyring) as store, serve(store) as api:
        await FakeAgent(store).report()
        world = World(api)
        await world.renew()

        for number, route in enumerate(routes):
            for place, caller in enumerate(
                sorted(CALLERS, key=lambda one: not expected(route, one))
            ):
                want = expected(route, caller)
                by_oidc = (number + place) % 2 == 0
                if not want and route.method != "GET" and caller.name not in ("ann", "admin"):
                    continue

                path = world.path(route)
                body = world.body(route)
                status, text = await api.call_from_console(
                    caller, route.method, path, body, by_oidc=by_oidc
                )
                allowed = status in want if want else status not in (401, 403) and status < 500
                if not allowed:
                    shown = (
                        f"{route.method} {path} as {caller.name}, {by_oidc=}: {status} {text[:200]}"
                    )
                    wrong.append(f"{shown}; expected {sorted(want) or 'success'}")

                await world.renew(route, caller)

    assert wrong == [], "\n".join(wrong)
