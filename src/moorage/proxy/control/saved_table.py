"""Saved route table, by which a proxy can serve if it starts while the manager is down."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any, TypeVar

import structlog

from moorage.common.link.messages import (
    AccessTokenGrant,
    AppRoute,
    BudgetGrant,
    KeyGrant,
    ModelRoute,
    ProjectGrant,
    RequestLimits,
    RouteFallback,
    RouteTable,
    Target,
)

log = structlog.get_logger("moorage.proxy")

_FORMAT = 1
T = TypeVar("T")


class SavedTable:
    """The table in one file, which is replaced atomically. It contains the replicas' keys, so only
    its owner can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A save whose caller has given up continues in its thread.
        self._storing = threading.Lock()
        self._encoded: dict[str, tuple[ModelRoute, str]] = {}  # models as last stored

    def load(self) -> RouteTable | None:
        """Load the saved table. Returns None if there is none, or if it is unusable, which is
        logged with the cause."""
        try:
            return _decode(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning(
                "the saved route table is unusable; waiting for the manager",
                path=str(self.path),
                error=repr(error),
            )
            return None

    @property
    def confirmed_at(self) -> float:
        """The time when the manager last confirmed the table, in seconds since the epoch; 0 if
        there is none."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0

    def confirm(self, unix_now: float) -> None:
        """Record that the table is now current."""
        try:
            os.utime(self.path, (unix_now, unix_now))
        except OSError:
            pass  # the table is not saved yet, or cannot be, so its last time applies

    def store(self, table: RouteTable) -> None:
        """Replace the file. If this fails, raises ``OSError`` and leaves the old file intact."""
        with self._storing:
            self._store(table)

    def _store(self, table: RouteTable) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}.new")  # another worker may also save it
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(self._encode(table).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def remove(self) -> None:
        """Remove the table, which must not be used any more. Raises ``OSError``."""
        with self._storing:
            self.path.unlink(missing_ok=True)

    def _encode(self, table: RouteTable) -> str:
        """Encode the table. Unchanged models are not encoded again, because models are by far the
        largest part."""
        known = self._encoded
        self._encoded = {}
        for route in table.models:
            stored = known.get(route.name)
            if stored is None or stored[0] is not route:
                stored = route, json.dumps(dataclasses.asdict(route))

            self._encoded[route.name] = stored

        parts: dict[str, tuple[Any, ...]] = {
            "keys": table.keys,
            "apps": table.apps,
            "access_tokens": table.access_tokens,
            "projects": table.projects,
        }
        rest: dict[str, Any] = {
            name: [dataclasses.asdict(grant) for grant in part] for name, part in parts.items()
        }
        rest["revoked_agents"] = table.revoked_agents
        models = ", ".join(text for _, text in self._encoded.values())
        head = f'{{"format": {_FORMAT}, "generation": {table.generation}, "models": [{models}], '

        return head + json.dumps(rest)[1:]


def _decode(document: dict[str, Any]) -> RouteTable:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']!r} is not {_FORMAT}")

    generation = document["generation"]
    models = document["models"]
    keys = document["keys"]
    if not (isinstance(generation, int) and isinstance(models, list) and isinstance(keys, list)):
        raise TypeError("generation, models or keys has the wrong type")

    return RouteTable(
        generation,
        tuple(_model(model) for model in models),
        keys=tuple(_key(key) for key in keys),
        # Absent in files from older versions.
        apps=tuple(_made(AppRoute, app) for app in document.get("apps", ())),
        access_tokens=tuple(
            _made(AccessTokenGrant, token) for token in document.get("access_tokens", ())
        ),
        projects=tuple(
            ProjectGrant(project["name"], _limits(project) or RequestLimits())
            for project in document.get("projects", ())
        ),
        revoked_agents=tuple(map(str, document.get("revoked_agents", ()))),
    )


def _model(fields: dict[str, Any]) -> ModelRoute:
    targets = tuple(_made(Target, target) for target in fields["targets"])
    fallbacks = tuple(
        RouteFallback(
            fallback["model"],
            None if fallback["provider"] is None else _made(Target, fallback["provider"]),
        )
        for fallback in fields.get("fallbacks", ())
    )
    return _made(
        ModelRoute, fields | {"targets": targets, "limits": _limits(fields), "fallbacks": fallbacks}
    )


def _key(fields: dict[str, Any]) -> KeyGrant:
    budgets = tuple(_made(BudgetGrant, budget) for budget in fields.get("budgets", ()))
    return _made(KeyGrant, fields | {"limits": _limits(fields), "budgets": budgets})


def _limits(fields: dict[str, Any]) -> RequestLimits | None:
    found = fields.get("limits")
    return None if found is None else _made(RequestLimits, found)


def _made(kind: type[T], fields: dict[str, Any]) -> T:
    """Build an object, ignoring fields from a newer version. Lists become tuples."""
    known: dict[str, Any] = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
            if name in known
        }
    )
