"""Rows that this release cannot read: a manager of a newer release has stored them during an
upgrade or before a downgrade, or someone has changed them by hand.

Such a row affects nothing else. A reader of several rows omits it and reports the omission; a
reader that only displays the row shows the part that it understands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import InvalidInput, NeedsNewerManager
from moorage.common.model.newer_values import why_unreadable
from moorage.common.views.resources import Page, UnreadableRow

log = structlog.get_logger("moorage.store.rows")

S = TypeVar("S")
T = TypeVar("T")
Row = Mapping[str, Any]

# Errors that reading a row can raise if its values differ from those that this release writes.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, InvalidInput)
# A row that has not been encountered for this long has since been read, or is gone.
FORGOTTEN_S = 300.0
# Rows beyond this number are neither counted nor logged.
MOST = 10_000


def read_page(
    view: type[T],
    kind: str,
    rows: Iterable[Row],
    read: Callable[[Row], T],
    *,
    following: str | None,
    name: str = "name",
) -> Page[T]:
    """Read a page of a listing, including its unreadable rows. ``name``: the column by which people
    identify a row."""
    shown = []
    unreadable = []
    for row in rows:
        try:
            shown.append(read(row))
        except UNREADABLE as error:
            found = UnreadableRow(kind=kind, name=str(row[name]), detail=why_unreadable(error))
            unreadable.append(found)

    return Page[view](items=shown, next=following, unreadable=unreadable)  # type: ignore[valid-type]


def read_one(kind: str, name: str, stored: S, read: Callable[[S], T], *, done: str = "") -> T:
    """Read a row. Raises ``NeedsNewerManager`` if it cannot be read. ``done``: what has
    nevertheless been done to the row, such as "was revoked"."""
    try:
        return read(stored)
    except UNREADABLE as error:
        why = why_unreadable(error)
        raise needs_newer(kind, name, f"{done}, but {why}" if done else why) from error


def needs_newer(kind: str, name: str, why: str) -> NeedsNewerManager:
    return NeedsNewerManager(
        f"{kind} {name!r} {why}",
        next_step=(
            "ask a manager of the release that stored it: `moorage managers` shows their "
            "versions; after an upgrade, restart the managers of the previous release"
        ),
    )


class UnreadableRows:
    """Unreadable rows that this manager has recently encountered, except those that it only
    displayed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._met: dict[
            tuple[str, str], tuple[str, float]
        ] = {}  # the reason, and when the row was last encountered

    def each(
        self, kind: str, rows: Iterable[Row], read: Callable[[Row], T], *, key: str = "id"
    ) -> list[T]:
        """The result of ``read`` for each row; unreadable rows are omitted. ``key``: the column
        that identifies a row."""
        found = []
        for row in rows:
            try:
                found.append(read(row))
            except UNREADABLE as error:
                self.met(kind, str(row[key]), why_unreadable(error))
            else:
                if self._met:
                    self._met.pop((kind, str(row[key])), None)

        return found

    def met(self, kind: str, key: str, why: str) -> None:
        """Record that a row cannot be read and has been omitted."""
        before = self._met.get((kind, key))
        if before is None and len(self._met) >= MOST:
            return
        if before is None or before[0] != why:
            log.error("omitting a row that this release does not know", kind=kind, row=key, why=why)
        self._met[kind, key] = why, self._clock.monotonic()

    def counts(self) -> dict[str, int]:
        """Number of rows by kind."""
        self._forget()
        return dict(Counter(kind for kind, _ in self._met))

    def problems(self) -> dict[str, str]:
        """For the manager's health: the number of unreadable rows by kind, and one of the rows with
        the reason."""
        counts = self.counts()
        found = {}
        for (kind, key), (why, _) in self._met.items():
            found[f"rows of {kind}"] = f"{counts[kind]} omitted, such as {key}: {why}"
        return found

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - FORGOTTEN_S
        self._met = {key: met for key, met in self._met.items() if met[1] >= oldest}
