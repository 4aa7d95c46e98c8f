"""Audience of a change stream: what a watcher may see and wants to see. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Audience:
    """Projects, resource groups and kinds of events. None means all. ``closed``: resource groups
    that the watcher may not use. ``about``: the session or endpoint that the watcher waits for, or
    empty for any. ``user``: the user whose own budgets are visible."""

    projects: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    about: str = ""
    user: str = ""
