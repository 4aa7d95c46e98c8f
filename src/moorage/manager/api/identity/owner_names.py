"""Refuses limits and keys for names that do not exist."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import NotFound
from moorage.manager.api.http.problems import did_you_mean
from moorage.manager.api.http.route import Call


async def require_owner(call: Call[Any, Any], kind: str, name: str, *, or_else: str = "") -> None:
    """Raise ``NotFound`` for an unknown name: a limit with a typing error would limit nobody.

    ``or_else``: appended to the next step.
    """
    names = await call.deps.store.owner_names.missing(call.scope, kind, name)
    if names is not None:
        raise NotFound(
            f"there is no {kind} {name!r}{did_you_mean(name, names)}",
            next_step=(
                f"`moorage {kind}s` lists them, `moorage {kind}s create` creates one{or_else}"
            ),
        )
