"""Partial edits: merge the fields of a request into the stored resource as one change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel

from moorage.common.model.errors import PreconditionFailed
from moorage.manager.api.http.route import Call, Versioned

_ATTEMPTS = 20


P = TypeVar("P", bound=BaseModel)
V = TypeVar("V", bound=Versioned)


async def edit(
    call: Call[P, Any],
    what: str,
    read: Callable[[], Awaitable[V]],
    write: Callable[[P, frozenset[int]], Awaitable[V]],
) -> V:
    """Merge the body into the result of ``read``, and ``write`` it if the stored resource is
    unchanged.

    With If-Match, a different version is an error. Without it, the body is merged into the changed
    resource, so that two edits of different fields both take effect. Raises ``PreconditionFailed``,
    ``InvalidInput`` and the errors of ``read`` and ``write``."""
    asked = call.if_match(what)
    attempts = 0
    while True:
        attempts += 1
        stored: Any = await read()
        expected = asked if asked is not None else frozenset({stored.version})
        try:
            return call.tagged(await write(_merged(call.body, stored), expected))
        except PreconditionFailed:
            if asked is not None or attempts == _ATTEMPTS:
                raise


def _merged(patch: P, stored: BaseModel) -> P:
    """``patch``, completed with the fields of ``stored`` that are missing from the request."""
    kept = {name: getattr(stored, name) for name in type(patch).model_fields}
    return patch.model_validate(
        kept | {name: getattr(patch, name) for name in patch.model_fields_set}
    )
