"""Route table in parts: each route and each credential as proxies receive it, encoded once. Pure.

A message consists of the encoded parts one after the other, as protobuf allows: a change encodes
only the changed parts, and a whole table only concatenates bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from moorage.common.link.messages import RouteTable
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_to_wire

# The field of the table, and the key that identifies the part in it.
PartKey = tuple[str, str]
_EMPTY = RouteTable(0, (), ())
_IDENTITY: dict[str, Callable[[Any], str]] = {
    "models": attrgetter("name"),
    "keys": attrgetter("sha256"),
    "apps": lambda app: f"{app.session_id}/{app.app}",
    "access_tokens": attrgetter("sha256"),
    "projects": attrgetter("name"),
    "revoked_agents": str,
}


@dataclass(frozen=True, slots=True)
class RouteChanges:
    """``parts``: those added or changed."""

    parts: Mapping[PartKey, bytes]
    removed: Collection[PartKey]

    def __bool__(self) -> bool:
        return bool(self.parts or self.removed)

    def message(self, generation: int, base: int) -> bytes:
        """The message for a proxy that has the table with generation ``base``."""
        head = routes_pb2.RouteTable(generation=generation, base=base)
        for field, key in self.removed:
            getattr(head, f"removed_{field}").append(key)
        return head.SerializeToString() + b"".join(self.parts.values())


class RouteParts:
    """The newest table."""

    def __init__(self) -> None:
        # By field: each part, with its encoding.
        self._parts: dict[str, dict[str, tuple[object, bytes]]] = {field: {} for field in _IDENTITY}
        self._last = _EMPTY

    def message(self, generation: int) -> bytes:
        """The message with the whole table."""
        head = routes_pb2.RouteTable(generation=generation)
        return head.SerializeToString() + self.encoded()

    def encoded(self) -> bytes:
        """All parts."""
        every = chain.from_iterable(parts.values() for parts in self._parts.values())
        return b"".join(encoded for _, encoded in every)

    def apply(self, changes: RouteTable) -> RouteChanges:
        """Apply ``changes``: additions, changes and removals since the last call, at a proportional
        cost.

        Parts that are equal to the previous ones are not changes."""
        changed: dict[PartKey, bytes] = {}
        removed: list[PartKey] = []
        for field in _IDENTITY:
            known = self._parts[field]
            for key in getattr(changes, f"removed_{field}"):
                if known.pop(key, None) is not None:
                    removed.append((field, key))

            self._encode(field, getattr(changes, field), changed)

        return RouteChanges(changed, removed)

    def update(self, table: RouteTable) -> RouteChanges:
        """Replace the table. ``table``: the whole new table."""
        last = self._last
        self._last = table
        changed: dict[PartKey, bytes] = {}
        removed: list[PartKey] = []
        for field, identity in _IDENTITY.items():
            parts = getattr(table, field)
            known = self._parts[field]
            if parts == getattr(last, field):
                continue

            self._encode(field, parts, changed)
            if len(known) > len(parts):
                for key in known.keys() - set(map(identity, parts)):
                    del known[key]
                    removed.append((field, key))

        return RouteChanges(changed, removed)

    def _encode(self, field: str, parts: Iterable[object], changed: dict[PartKey, bytes]) -> None:
        known = self._parts[field]
        identity = _IDENTITY[field]
        for part in parts:
            key = identity(part)
            before = known.get(key)
            if before is None or (before[0] is not part and before[0] != part):
                alone: dict[str, Any] = {field: (part,)}
                encoded = routes_to_wire(replace(_EMPTY, **alone)).SerializeToString()
                changed[field, key] = encoded
                known[key] = part, encoded
