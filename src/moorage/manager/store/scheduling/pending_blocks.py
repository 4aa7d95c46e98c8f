"""Pending blocks: the pending sessions of a resource group, of which each pass gets a snapshot.

A snapshot never changes, and its cost is proportional to the changes since the previous one:
sessions are kept in blocks of limited size, and only changed blocks are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.model import Pending

BLOCK = 512


class PendingSnapshot(Sequence[Pending]):
    """Sessions in no particular order. Equal to any sequence of the same sessions in the same
    order."""

    __slots__ = ("_size", "blocks")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, blocks: tuple[tuple[Pending, ...], ...], size: int) -> None:
        self.blocks = blocks
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Pending]:
        return chain.from_iterable(self.blocks)

    @overload
    def __getitem__(self, index: int) -> Pending: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pending]: ...
    def __getitem__(self, index: int | slice) -> Pending | Sequence[Pending]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence) and len(other) == self._size and tuple(self) == tuple(other)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}{tuple(self)!r}"


EMPTY = PendingSnapshot((), 0)


class PendingBlocks:
    """The sessions themselves. A session stays in its block; new ones go wherever there is room."""

    def __init__(self) -> None:
        self._blocks: list[dict[SessionId, Pending]] = []
        self._block_of: dict[SessionId, int] = {}
        self._with_room: dict[int, None] = {}
        # snapshots of the blocks, except of those that have changed
        self._copies: list[tuple[Pending, ...]] = []
        self._changed: set[int] = set()
        self._snapshot = EMPTY

    def put(self, session: Pending) -> None:
        number = self._block_of.get(session.session_id)
        if number is None:
            number = self._find_room()
            self._block_of[session.session_id] = number
        block = self._blocks[number]
        block[session.session_id] = session
        if len(block) >= BLOCK:
            self._with_room.pop(number, None)
        self._changed.add(number)

    def _find_room(self) -> int:
        for number in self._with_room:
            return number
        self._blocks.append({})
        self._copies.append(())
        number = len(self._blocks) - 1
        self._with_room[number] = None
        return number

    def remove(self, session_id: SessionId) -> None:
        number = self._block_of.pop(session_id)
        del self._blocks[number][session_id]
        self._with_room[number] = None
        self._changed.add(number)

    def snapshot(self) -> PendingSnapshot:
        """A snapshot of all sessions as they are now."""
        if self._changed:
            for number in self._changed:
                self._copies[number] = tuple(self._blocks[number].values())
            self._changed.clear()
            self._snapshot = PendingSnapshot(tuple(self._copies), len(self._block_of))
        return self._snapshot
