"""Versions of resources that people edit: a change that was based on another version is refused."""

from __future__ import annotations

from collections.abc import Collection

from moorage.common.model.errors import PreconditionFailed

Versions = frozenset[int] | None


def sent(versions: Versions) -> list[int] | None:
    """Versions as statements accept them; None means any version."""
    return None if versions is None else sorted(versions)


def check_version(what: str, found: int | None, allowed: Collection[int] | None) -> None:
    """Raise ``PreconditionFailed`` if the version is not allowed.

    ``found``: the current version of ``what``; None if it does not exist."""
    if allowed is None or found in allowed:
        return

    now = "does not exist" if found is None else f"has version {found}"
    raise PreconditionFailed(
        f"{what} {now}: somebody else has changed it",
        next_step="read it again, and repeat the change on the current version",
    )
