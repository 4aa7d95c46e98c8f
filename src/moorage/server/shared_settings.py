"""A daemon's shared settings, read from etcd when it starts, or from this host's copy while etcd is
down."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Never

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.config.shared_file import replace_shared
from moorage.common.config.sharing import why_local
from moorage.common.etcd.access import EtcdAccess, EtcdError
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.shared_settings import SETTINGS, read_once
from moorage.common.model.errors import StartupError

log = structlog.get_logger("moorage.etcd")

_PAUSE_S = 5.0


def copy_of(home: Path) -> Path:
    return home / "etcd-settings.json"


def fetch(access: EtcdAccess, home: Path) -> dict[str, str]:
    """The JSON text of each shared setting. Raises ``StartupError`` if etcd does not answer and
    there is no copy, because a daemon without its cluster's settings might do what they forbid."""
    try:
        values = asyncio.run(read_once(access))
    except EtcdError as error:
        known = _read_copy(copy_of(home))
        if known is None:
            raise StartupError(
                f"the shared settings cannot be read: {error}",
                next_step="start etcd, or remove etcd.address to run without shared settings",
            ) from error

        print(
            f"moorage: etcd does not answer; using the last known shared settings: {error}",
            file=sys.stderr,
        )
        return known

    keep_copy(copy_of(home), values)
    return values


def keep_copy(path: Path, values: Mapping[str, str]) -> None:
    replace_shared(path, json.dumps(dict(values), indent=2) + "\n")


def _read_copy(path: Path) -> dict[str, str] | None:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return (
        {str(name): str(text) for name, text in values.items()}
        if isinstance(values, dict)
        else None
    )


class SettingsWatch:
    """A watch that keeps this host's copy up to date, and reports which settings a restart would
    change."""

    def __init__(self, access: EtcdAccess, home: Path, clock: Clock) -> None:
        self._access = access
        self._copy = copy_of(home)
        self._clock = clock
        self._values = _read_copy(self._copy) or {}

    async def run(self) -> Never:
        prefix = self._access.prefix + SETTINGS
        async with EtcdClient(self._access) as client:
            while True:
                try:
                    async for snapshot in client.follow(prefix):
                        found = {
                            key.removeprefix(prefix): entry.value
                            for key, entry in snapshot.entries.items()
                        }
                        self.take(found)
                except EtcdError:
                    pass  # the registration reports that etcd is down

                await asyncio.sleep(_PAUSE_S * self._clock.jitter(0.2))

    def take(self, values: Mapping[str, str]) -> None:
        before = self._values
        self._values = dict(values)
        names = {*before, *values}
        changed = sorted(name for name in names if before.get(name) != values.get(name))
        if not changed:
            return

        keep_copy(self._copy, values)
        if applicable := [name for name in changed if not why_local(name)]:
            log.warning(
                "shared settings changed: restart this process to apply them", settings=applicable
            )

        if ignored := [name for name in changed if why_local(name) and name in values]:
            log.warning(
                "etcd has settings that only the host itself may set: daemons ignore them",
                settings=ignored,
            )
