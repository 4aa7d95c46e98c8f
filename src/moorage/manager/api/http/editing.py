"""Partial edits: the fields of a request over those that are stored, as one change."""

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
    """Merge the body into what ``read`` returns, and ``write`` it if that is still there. With
    If-Match, another version is an error; without, the body is merged anew, so that of two edits of
    different fields neither is lost.

    Raises ``PreconditionFailed``, ``InvalidInput`` and the errors of ``read`` and ``write``."""
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
    """``patch`` with the fields of ``stored`` that the request does not have."""
    kept = {name: getattr(stored, name) for name in type(patch).model_fields}
    return patch.model_validate(
        kept | {name: getattr(patch, name) for name in patch.model_fields_set}
    )
