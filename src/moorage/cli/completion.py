"""Names of the manager's objects for completion in the shell: quick, and silent when the manager is not."""

from __future__ import annotations

from dataclasses import dataclass

import typer

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
    from moorage.cli.plain_reads import FAILURES, PlainReads  # other commands need no completion

    try:
        with PlainReads(options, timeout_s=_TIMEOUT_S) as reads:
            pages = [reads.get(listing.path) for listing in listings]
        names = {
            item[listing.name]
            for listing, page in zip(listings, pages, strict=True)
            for item in page["items"]
            if listing.replicas or item.get("endpoint") is None
        }
    except (MoorageError, *FAILURES):
        return []
    return sorted(name for name in names - given if name.startswith(incomplete))
