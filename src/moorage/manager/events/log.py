"""Bounded log of encoded events, from which every watcher reads at its own position. Pure.

An event is encoded once. Watchers with the same rights at the same position share the same bytes. A
watcher that falls behind the oldest event must read everything again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from moorage.manager.identity.audience import Audience

CAPACITY = 10_000


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """``projects``: only their watchers see the event; None means all do. ``group``: only watchers
    who may name this resource group see it; empty means all do. ``about``: ids that a watcher can
    follow individually. ``user``: the user who sees it in any project, if not empty."""

    kind: str
    data: str
    projects: frozenset[str] | None = None
    group: str = ""
    about: frozenset[str] = frozenset()
    user: str = ""


class EventLog:
    """``epoch`` names this log: positions in another log, such as another manager's, mean nothing
    here."""

    def __init__(self, epoch: str, capacity: int = CAPACITY) -> None:
        self._epoch = epoch
        self._events: deque[tuple[EncodedEvent, bytes]] = deque(maxlen=capacity)
        self._shared: dict[tuple[Audience, int], bytes] = {}
        self.end = 0

    def append(self, events: Iterable[EncodedEvent]) -> None:
        for event in events:
            self.end += 1
            lines = f"id: {self.event_id(self.end)}\nevent: {event.kind}\ndata: {event.data}\n\n"
            self._events.append((event, lines.encode()))
        self._shared.clear()

    def event_id(self, position: int) -> str:
        return f"{self._epoch}-{position}"

    def position_after(self, event_id: str) -> int | None:
        """The position after an event, or None if some later events are no longer known."""
        epoch, _, number = event_id.rpartition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        position = int(number)
        return position if self._oldest <= position <= self.end else None

    def read(self, audience: Audience, position: int) -> bytes | None:
        """The events after ``position`` that ``audience`` sees, or None if some of them are no
        longer known."""
        if position < self._oldest:
            return None
        if position >= self.end:
            return b""

        key = audience, position
        if key not in self._shared:
            newest_first = islice(reversed(self._events), self.end - position)
            seen = [text for event, text in newest_first if _sees(audience, event)]
            self._shared[key] = b"".join(reversed(seen))

        return self._shared[key]

    @property
    def _oldest(self) -> int:
        return self.end - len(self._events)


def _sees(audience: Audience, event: EncodedEvent) -> bool:
    if audience.kinds is not None and event.kind not in audience.kinds:
        return False
    if audience.about and audience.about not in event.about:
        return False
    if event.group in audience.closed:
        return False
    if event.group and audience.groups is not None and event.group not in audience.groups:
        return False

    return (
        event.projects is None
        or audience.projects is None
        or not event.projects.isdisjoint(audience.projects)
        or (event.user != "" and event.user == audience.user)
    )
