"""Names of the manager's objects for completion in the shell: quick, and silent when the manager is not."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from moorage.cli.connection import find_connection
from moorage.common.model.errors import MoorageError
from moorage.common.model.status import LIVE

# Longer than that, and who pressed Tab would rather type.
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class _Listing:
    """``path``: of one page. ``replicas``: whether to include the replicas of endpoints."""

    path: str
    name: str = "name"
    replicas: bool = False


_SESSIONS = f"/v1/sessions?status={','.join(sorted(LIVE))}&limit=500"
_ENDPOINTS = _Listing("/v1/endpoints?limit=500")


def session_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Live sessions."""
    return _complete(ctx, incomplete, _Listing(_SESSIONS, replicas=True))


def endpoint_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _ENDPOINTS)


def workload_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Endpoints, and live sessions that are not their replicas."""
    return _complete(ctx, incomplete, _ENDPOINTS, _Listing(_SESSIONS))


def agent_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/agents?limit=500", name="id"))


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/groups?limit=500"))


def pipeline_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/pipelines?limit=500"))


def template_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/templates?limit=500"))


def secret_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/secrets?limit=500"))


def project_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _Listing("/v1/projects?limit=500"))


def _complete(ctx: typer.Context, incomplete: str, *listings: _Listing) -> list[str]:
    """Sorted names that begin with ``incomplete`` and are not among the arguments yet."""
    given = {value for values in ctx.params.values() if isinstance(values, list | tuple) for value in values}
    options = {name: ctx.params.get(name) for name in ("url", "key_file", "ca_file")}
    try:
        pages = _read(options, [listing.path for listing in listings])
        names = {
            item[listing.name]
            for listing, page in zip(listings, pages, strict=True)
            for item in page["items"]
            if listing.replicas or item.get("endpoint") is None
        }
    except (MoorageError, OSError, ValueError, KeyError, TypeError):
        return []
    return sorted(name for name in names - given if name.startswith(incomplete))


def _read(options: dict[str, str | None], paths: Sequence[str]) -> list[Any]:
    """The JSON at ``paths``. Without the client's models, whose import takes longer than the rest."""
    import asyncio

    from yarl import URL

    from moorage.sdk.connections import Connections
    from moorage.sdk.verification import verification

    at = find_connection(os.environ, **options)
    connections = Connections(URL(at.url), verification(at.url, at.ca_file))
    headers = {"Authorization": f"Bearer {at.key}"} if at.key else {}

    async def read() -> list[Any]:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = [await connections.exchange("GET", path, headers, None) for path in paths]
        finally:
            connections.close()
        return [json.loads(body) for _, body in found]

    return asyncio.run(read())
