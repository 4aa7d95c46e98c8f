"""A harness for tests of apps behind a real proxy: routes, access tokens, and a client."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web
from proxy_harness import KEY_GRANT, Client, engine, serving

from moorage.common.link.messages import AccessTokenGrant, AppRoute, RouteTable
from moorage.common.model.ids import SessionId

ID = "01a1fe3c-5331-77ad-8599-a7c43705bf82"
ACCESS_TOKEN = "mga-good"
BEARER = {"Authorization": f"Bearer {ACCESS_TOKEN}"}


def grant(
    access_token: str = ACCESS_TOKEN, app: str = "lab", *, lasts_s: int = 600
) -> AccessTokenGrant:
    digest = hashlib.sha256(access_token.encode()).hexdigest()
    return AccessTokenGrant(digest, SessionId(ID), app, int(time.time()) + lasts_s)


def app_table(
    port: int, *, generation: int = 1, app: str = "lab", protocol: str = "http", **changes: Any
) -> RouteTable:
    fields = {
        "base_path": False,
        "host": "127.0.0.1",
        "port": port,
        "key": "",
        "user": "ann",
        "project": "p",
    }
    route = AppRoute(SessionId(ID), app, protocol, **(fields | changes))  # type: ignore[arg-type]
    return RouteTable(
        generation, (), keys=(KEY_GRANT,), apps=(route,), access_tokens=(grant(app=app),)
    )


def next_table(table: RouteTable, **changes: Any) -> RouteTable:
    """``table`` with ``changes``, as the next generation."""
    return replace(table, generation=table.generation + 1, **changes)


@asynccontextmanager
async def serving_app(
    home: Path,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    route: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Client, str]]:
    """A proxy with one session and its app ``lab``, and the app's address without a trailing
    slash."""
    async with (
        engine(handler) as port,
        serving(home, app_table(port, **(route or {})), **options) as client,
    ):
        yield client, f"{client.url}/apps/{ID}/lab"
