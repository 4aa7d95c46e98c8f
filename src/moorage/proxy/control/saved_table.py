"""The last route table on disk, so that a proxy that starts while the manager is away still serves."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import structlog

from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId

log = structlog.get_logger("moorage.proxy")

_FORMAT = 1


class SavedTable:
    """One file, readable by its owner only (it holds the replicas' keys), replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> RouteTable | None:
        """None if there is none, or none that can be used; the log says why."""
        try:
            return _from_json(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning(
                "saved routes cannot be used; waiting for the manager", path=str(self.path), error=repr(error)
            )
            return None

    def store(self, table: RouteTable) -> None:
        """Replace the file. Raises ``OSError``; the old file is whole then."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps({"format": _FORMAT, **dataclasses.asdict(table)}).encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _from_json(saved: dict[str, Any]) -> RouteTable:
    if saved["format"] != _FORMAT:
        raise ValueError(f"format {saved['format']!r} is not {_FORMAT}")
    generation, models, keys = saved["generation"], saved["models"], saved["keys"]
    if not (isinstance(generation, int) and isinstance(models, list) and isinstance(keys, list)):
        raise TypeError("generation, models or keys is not what it should be")
    return RouteTable(
        generation,
        tuple(
            ModelRoute(
                model["name"],
                int(model["created"]),
                tuple(_target(target) for target in model["targets"]),
            )
            for model in models
        ),
        tuple(
            KeyGrant(
                key["sha256"],
                int(key["expires_at"]),
                key.get("user", ""),
                key.get("project", ""),
                bool(key.get("admin")),
            )
            for key in keys
        ),
        # A proxy of before that saved none.
        tuple(AppRoute(**app) for app in saved.get("apps", ())),
        tuple(AccessTokenGrant(**access_token) for access_token in saved.get("access_tokens", ())),
    )


def _target(saved: dict[str, str]) -> Target:
    return Target(
        SessionId(saved["session_id"]),
        KernelId(saved["kernel_id"]),
        saved["host"],
        int(saved["port"]),
        saved["key"],
        saved["engine"],
        bool(saved["draining"]),
    )
