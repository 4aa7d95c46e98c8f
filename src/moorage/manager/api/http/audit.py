"""Audit log: the single place that records administrative writes.

An entry is stored before its write and completed afterwards. If the entry cannot be stored, the
write is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog
from aiohttp import web
from pydantic import BaseModel

from moorage.common.model.errors import (
    MoorageError,
    NeedsNewerManager,
    NotFound,
    StoreUnavailable,
    Unauthenticated,
)
from moorage.manager.api.http.authentication import address_of
from moorage.manager.api.http.route import Answer, Call, Route
from moorage.manager.identity.scope import Scope

log = structlog.get_logger("moorage.audit")
REQUEST_ID = web.RequestKey("moorage.request_id", str)
# The user that a request without credentials signed in, whom its audit entry names.
SIGNED_IN = web.RequestKey("moorage.signed_in", Scope)

# Writes to tenants' workloads, which keep their own history.
_WORK = frozenset({"sessions", "endpoints", "workspaces"})
# Routes that delete that history.
_ENDS_HISTORIES = frozenset({("DELETE", "/v1/sessions/{ref:.+}")})
_HIDDEN = frozenset({"secret", "csrf_token", "password", "certificate", "value", "key"})
_MAX_BYTES = 64 * 1024


def is_audited(row: Route) -> bool:
    if (row.method, row.path) in _ENDS_HISTORIES:
        return True
    return row.method != "GET" and row.tag not in _WORK


def reader_of(row: Route, rows: Sequence[Route]) -> Route | None:
    """Find the route that reads the resource written by ``row``: the route with the same path, or
    with the nearest path above it. None if ``row`` creates a resource."""
    readers = {reader.path: reader for reader in rows if reader.method == "GET"}
    path = row.path
    while "{" in path:
        if path in readers:
            return readers[path]
        path = path.rpartition("/")[0]
    return None


async def run_audited(row: Route, reader: Route | None, call: Call[Any, Any]) -> Answer:
    """Run the handler of ``row`` and record an entry in the audit log."""
    if row.access == "open":
        answer = await _run_open(row, call)
        entry = await _begin(row, call, None)
    else:
        entry = await _begin(row, call, await _read(reader, call) if reader is not None else None)
        try:
            answer = await row.handler(call)
        except MoorageError as error:
            await _finish(call, entry, status=error.http, code=error.code, after=None)
            raise

    after = _shown(answer) if isinstance(answer, BaseModel) and row.method != "DELETE" else None
    await _finish(call, entry, status=row.status, code="", after=after)
    return answer


async def _run_open(row: Route, call: Call[Any, Any]) -> Answer:
    """Run a request without a key. It is recorded if it succeeds, or if a password or key is wrong.

    Wrong passwords and keys are limited per address; other failures are not, so they are not
    recorded."""
    try:
        return await row.handler(call)
    except Unauthenticated as error:
        entry = await _begin(row, call, None, name=getattr(call.body, "user", None) or "")
        await _finish(call, entry, status=error.http, code=error.code, after=None)
        raise


async def note(
    call: Call[Any, Any], action: str, resource: str, name: str, *, after: dict[str, Any]
) -> None:
    """Record an entry for an action that the HTTP method does not mark as a write."""
    entry = await call.deps.store.audit.begin(
        call.scope,
        from_address=address_of(call.request, call.deps.console.trusted),
        request_id=call.request.get(REQUEST_ID) or "",
        action=action,
        resource=resource,
        name=name,
        before=None,
    )
    await _finish(call, entry, status=200, code="", after=after)


async def _begin(
    row: Route, call: Call[Any, Any], before: dict[str, Any] | None, name: str | None = None
) -> int:
    """Write the entry that precedes the write. ``name`` replaces the name in the path."""
    request = call.request
    return await call.deps.store.audit.begin(
        request.get(SIGNED_IN) or call.scope,
        from_address=address_of(request, call.deps.console.trusted),
        request_id=request.get(REQUEST_ID) or "",
        action=getattr(row.handler, "__name__", row.summary),
        resource=row.tag,
        name="/".join(request.match_info.values()) if name is None else name,
        before=before,
    )


async def _finish(
    call: Call[Any, Any], entry: int, *, status: int, code: str, after: dict[str, Any] | None
) -> None:
    found = (after or {}).get("name") or (after or {}).get("id")
    name = found if isinstance(found, str) else ""
    try:
        await call.deps.store.audit.finish(
            call.scope, entry, status=status, code=code, after=after, name=name
        )
    except (
        StoreUnavailable
    ) as error:  # the write has happened; its entry states that the outcome is unknown
        log.warning("audit entry left open", entry=entry, status=status, error=str(error))


async def _read(reader: Route, call: Call[Any, Any]) -> dict[str, Any] | None:
    # A key with scopes may be allowed to write a resource that it may not read.
    scope = call.scope if reader.action is None else replace(call.scope, key=None)
    query = reader.query()
    asked: Call[Any, Any] = Call(
        call.deps,
        scope,
        request=call.request,
        body=None,
        query=query,
        renew=call.renew,
        action=reader.action,
    )
    try:
        answer = await reader.handler(asked)
    except NotFound:
        return None
    except NeedsNewerManager as error:  # a resource that cannot be shown can still be deleted
        return {"needs_newer_manager": error.message}

    return _shown(answer) if isinstance(answer, BaseModel) else None


def _shown(answer: BaseModel) -> dict[str, Any]:
    """The response without secrets, or only its size if it is large."""
    # The size is checked before the response is copied piece by piece.
    if (size := len(answer.model_dump_json().encode())) > _MAX_BYTES:
        return {"omitted_bytes": size}
    shown = _without_secrets(answer.model_dump(mode="json"))
    size = len(json.dumps(shown))
    return {"omitted_bytes": size} if size > _MAX_BYTES else shown


def _without_secrets(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {
            name: "***"
            if name in _HIDDEN and isinstance(value, str) and value
            else _without_secrets(value)
            for name, value in part.items()
        }
    return [_without_secrets(item) for item in part] if isinstance(part, list) else part
