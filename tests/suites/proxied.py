"""A data plane in front of one engine, for suites that know no proxy."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable
from tests.conformance.planes.harness import MakePlane, serving, table, target


def route_to(
    port: int, names: Sequence[str], *, key: str, engine: str, apis: Sequence[str] = ()
) -> RouteTable:
    """One replica that serves all these models. ``key``: of clients, and of the replica. ``apis``:
    what its endpoint lists."""
    routes = table()
    replica = replace(target("k", port), key=key, engine=engine)
    created = routes.models[0].created
    models = tuple(ModelRoute(name, created, (replica,), apis=tuple(apis)) for name in names)
    grant = KeyGrant(hashlib.sha256(key.encode()).hexdigest())
    return replace(routes, models=models, keys=(grant,))


@asynccontextmanager
async def proxied(plane: MakePlane, routes: RouteTable, **settings: Any) -> AsyncIterator[str]:
    """The address of a proxy with these routes, whose answers all pages may read."""
    async with serving(plane, routes, cors_origins=("*",), **settings) as served:
        yield "http://{}:{}".format(*served.address)
