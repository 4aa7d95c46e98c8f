"""Shell completion of names, mostly of the manager's objects. It prints nothing if the manager is
slow.

A command completes the names of its own noun with ``names_of``. This module completes the names
that several commands take, and those that do not come from a plain list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import typer

from moorage.common.model.errors import MoorageError
from moorage.common.model.status import LIVE

# After this long, a user who has pressed Tab would rather type the name.
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class _Listing:
    """A list in the REST API. ``path``: the path of one page. ``where``: fields that an item must
    have, with their values. ``has``: a field that must not be null."""

    path: str
    name: str = "name"
    items: str = "items"
    where: Mapping[str, str | None] = field(default_factory=dict)
    has: str | None = None

    def names(self, page: Mapping[str, Any]) -> list[str]:
        found = page[self.items]
        wanted = self.where.items()
        return [
            item[self.name]
            for item in found
            if all(item.get(key) == value for key, value in wanted)
            and (self.has is None or item.get(self.has) is not None)
        ]


def _page(noun: str, field: str = "name") -> _Listing:
    return _Listing(f"/v1/{noun}?limit=500", field)


def _archived(noun: str) -> _Listing:
    return _Listing(f"/v1/{noun}?archived=true&limit=500", has="archived_at")


_SESSIONS = f"/v1/sessions?status={','.join(sorted(LIVE))}&limit=500"
_ENDPOINTS = _page("endpoints")
_AGENTS = _page("agents", "id")
_GROUPS = _page("groups")
_KEYS = _page("keys")
_PROJECTS = _page("projects")
_USERS = _page("users")
# Lists of names by the scopes of budgets, limits and quotas.
_SCOPES = {
    "group": _GROUPS,
    "key": _KEYS,
    "model": _ENDPOINTS,
    "project": _PROJECTS,
    "user": _USERS,
}

Completer = Callable[[typer.Context, str], list[str]]


def names_of(noun: str, field: str = "name") -> Completer:
    """Completes the names in the list ``/v1/NOUN``. ``field``: the field with an item's name."""
    return _names(_page(noun, field))


def _names(*listings: _Listing) -> Completer:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return _complete(ctx, incomplete, *listings)

    return complete


# Live sessions, including replicas.
session_names = _names(_Listing(_SESSIONS))
endpoint_names = _names(_ENDPOINTS)
# Endpoints, and live sessions that are not their replicas.
workload_names = _names(_ENDPOINTS, _Listing(_SESSIONS, where={"endpoint": None}))
agent_ids = _names(_AGENTS)
group_names = _names(_GROUPS)
key_names = _names(_KEYS)
project_names = _names(_PROJECTS)
user_names = _names(_USERS)
archived_project_names = _names(_archived("projects"))
archived_user_names = _names(_archived("users"))
workspace_sessions = _names(_Listing("/v1/workspaces", "session"))


def app_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Service ports of the session named earlier on the command line."""
    return _complete(ctx, incomplete, _Listing(f"{_session(ctx)}/apps"))


def kernel_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kernels of the session named earlier on the command line."""
    return _complete(ctx, incomplete, _Listing(_session(ctx), "hostname", "kernels"))


def _session(ctx: typer.Context) -> str:
    # Arguments are not bound yet if an option's value is missing, as it is here.
    named = ctx.params.get("session") or ctx.params.get("name") or next(iter(ctx.args), "")
    return f"/v1/sessions/{quote(named, safe='')}"


def peer_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Peers of the kind given earlier on the command line."""
    return _complete(
        ctx, incomplete, _Listing("/v1/peers?limit=500", where={"kind": ctx.params.get("kind")})
    )


def scoped_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names within the scope given earlier on the command line."""
    listing = _SCOPES.get(ctx.params.get("scope") or "")
    return [] if listing is None else _complete(ctx, incomplete, listing)


def session_paths(ctx: typer.Context, incomplete: str) -> list[str]:
    """Live sessions, each with the colon that precedes a path in it. The shell itself completes
    local paths."""
    if incomplete.startswith((".", "/", "~")):
        return []
    return [f"{name}:" for name in session_names(ctx, incomplete)]


def context_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Contexts on this machine."""
    from moorage.sdk.installation.contexts import LOCAL
    from moorage.sdk.installation.saved_files import read_contexts, state_directory

    try:
        return _matching({LOCAL, *read_contexts(state_directory(os.environ)).saved}, incomplete)
    except MoorageError:
        return []


def catalogue_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tested models."""
    from moorage.common.catalog import load_models

    return _matching((model.id for model in load_models()), incomplete)


def _complete(ctx: typer.Context, incomplete: str, *listings: _Listing) -> list[str]:
    """Sorted names that start with ``incomplete`` and are not yet among the arguments."""
    given = {
        value
        for values in ctx.params.values()
        if isinstance(values, list | tuple)
        for value in values
    }
    options = {name: ctx.params.get(name) for name in ("url", "key_file", "ca_file")}
    from moorage.cli.plain_reads import FAILURES, PlainReads  # other commands need no completion

    try:
        with PlainReads(options, timeout_s=_TIMEOUT_S) as reads:
            names = {
                name for listing in listings for name in listing.names(reads.get(listing.path))
            }
    except (MoorageError, *FAILURES):
        return []

    return _matching(names - given, incomplete)


def _matching(names: Iterable[str | None], incomplete: str) -> list[str]:
    return sorted({name for name in names if name and name.startswith(incomplete)})
