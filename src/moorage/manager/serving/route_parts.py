"""Route table in parts: each route and each credential as the proxies receive it, encoded once. Pure.

A message consists of the encoded parts one after the other, as protobuf allows: a change encodes what has
changed, and a whole table copies bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from moorage.common.link.messages import RouteTable
from moorage.common.link.pb import routes_pb2
from moorage.common.link.route_codec import routes_to_wire

# The field of the table, and what identifies the part there.
PartKey = tuple[str, str]
_EMPTY = RouteTable(0, (), ())
_IDENTITY: dict[str, Callable[[Any], str]] = {
    "models": attrgetter("name"),
    "keys": attrgetter("sha256"),
    "apps": lambda app: f"{app.session_id}/{app.app}",
    "access_tokens": attrgetter("sha256"),
}


@dataclass(frozen=True, slots=True)
class RouteChanges:
    """``parts``: those added or changed."""

    parts: Mapping[PartKey, bytes]
    removed: Collection[PartKey]

    def __bool__(self) -> bool:
        return bool(self.parts or self.removed)

    def message(self, generation: int, base: int) -> bytes:
        """For a proxy that has the table of generation ``base``."""
        head = routes_pb2.RouteTable(generation=generation, base=base)
        for field, key in self.removed:
            getattr(head, f"removed_{field}").append(key)
        return head.SerializeToString() + b"".join(self.parts.values())


class RouteParts:
    """The newest table."""

    def __init__(self) -> None:
        self._table = _EMPTY
        # By field: each part with its encoding.
        self._parts: dict[str, dict[str, tuple[object, bytes]]] = {field: {} for field in _IDENTITY}

    def message(self, generation: int) -> bytes:
        """The whole table."""
        head = routes_pb2.RouteTable(generation=generation)
        every = chain.from_iterable(parts.values() for parts in self._parts.values())
        return head.SerializeToString() + b"".join(encoded for _, encoded in every)

    def update(self, table: RouteTable) -> RouteChanges:
        """``table``: the whole table now. Routes that have not changed are best the same objects as before:
        these are not even compared."""
        last, self._table = self._table, table
        changed: dict[PartKey, bytes] = {}
        removed: list[PartKey] = []
        for field, identity in _IDENTITY.items():
            parts, known = getattr(table, field), self._parts[field]
            if parts == getattr(last, field):
                continue
            for part in parts:
                key = identity(part)
                before = known.get(key)
                if before is None or (before[0] is not part and before[0] != part):
                    alone: dict[str, Any] = {field: (part,)}
                    encoded = routes_to_wire(replace(_EMPTY, **alone)).SerializeToString()
                    changed[field, key] = encoded
                    known[key] = part, encoded
            if len(known) > len(parts):
                for key in known.keys() - set(map(identity, parts)):
                    del known[key]
                    removed.append((field, key))
        return RouteChanges(changed, removed)
