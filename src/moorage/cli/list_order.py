"""Orders of lists of sessions and endpoints. The manager sorts by columns; the rest is sorted here,
on complete lists. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import parse_slots

# Keys of the command line, with the fields by which the manager sorts; None: it does not.
_SESSIONS: Mapping[str, str | None] = {
    "name": "name",
    "created": "created_at",
    "age": "-created_at",
    "state": "status",
    "user": "user",
    "project": "project",
    "group": "resource_group",
    "priority": "priority",
    "gpus": None,
    "duration": None,
}
_ENDPOINTS = dict.fromkeys(_SESSIONS) | {
    name: _SESSIONS[name] for name in ("name", "created", "age", "user", "project")
}
_ALIASES = {"created_at": "created", "status": "state", "resource_group": "group"}
KEYS = tuple(_SESSIONS)


@dataclass(frozen=True, slots=True)
class ListOrder:
    """``key``: one of ``KEYS``."""

    key: str
    descending: bool = False

    @property
    def of_sessions(self) -> str | None:
        """The order in which the manager returns sessions; None for its default."""
        return self._field(_SESSIONS)

    @property
    def of_endpoints(self) -> str | None:
        return self._field(_ENDPOINTS)

    def sessions(self, views: Sequence[Any]) -> list[Any]:
        """All sessions that the manager returned, in this order; the id breaks ties."""
        return self._sorted(views, _SESSIONS, _OF_SESSION, by_id=lambda view: str(view.id))

    def endpoints(self, views: Sequence[Any]) -> list[Any]:
        return self._sorted(views, _ENDPOINTS, _OF_ENDPOINT, by_id=lambda view: str(view.name))

    def _field(self, fields: Mapping[str, str | None]) -> str | None:
        field = fields[self.key]
        if field is None or not self.descending:
            return field
        return field[1:] if field.startswith("-") else f"-{field}"

    def _sorted(
        self,
        views: Sequence[Any],
        fields: Mapping[str, str | None],
        values: Mapping[str, Callable[[Any], Any]],
        *,
        by_id: Callable[[Any], str],
    ) -> list[Any]:
        if fields[self.key] is not None:
            return list(views)

        value = values[self.key]
        return sorted(views, key=lambda v: (value(v), by_id(v)), reverse=self.descending)


def parse_order(text: str) -> ListOrder:
    """Raises ``InvalidInput``."""
    key = text.removeprefix("-")
    key = _ALIASES.get(key, key)
    if key not in KEYS:
        raise InvalidInput(
            f"--sort {text[:40]!r} is not possible",
            next_step=f"sort by {', '.join(KEYS)}, with - in front for descending order",
        )
    return ListOrder(key, text.startswith("-"))


def _time(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _gpus(slots: Mapping[str, int]) -> int:
    return sum(amount for slot, amount in slots.items() if "." in slot)


_OF_SESSION: Mapping[str, Callable[[Any], Any]] = {
    "gpus": lambda view: _gpus(view.slots),
    # The time in its state: for a session that runs, for how long it has run.
    "duration": lambda view: -_time(view.status_since).timestamp(),
}
_OF_ENDPOINT: Mapping[str, Callable[[Any], Any]] = {
    "state": lambda view: str(view.status),
    "group": lambda view: "" if view.spec is None else view.spec.resource_group,
    "priority": lambda view: 0 if view.spec is None else view.spec.priority,
    "gpus": lambda view: 0 if view.spec is None else _gpus(parse_slots(view.spec.resources)),
    "duration": lambda view: -_time(view.created_at).timestamp(),
}
