"""Settings in etcd, shared by all daemons of a cluster.

Each key below ``PREFIX/settings/`` is the name of a setting, and its value is JSON. Each change is
one transaction, which fails if another change came first, and is kept with its number below
``PREFIX/settings-history/``. Keys written by hand bypass both, and daemons ignore invalid values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.common.etcd import wire
from moorage.common.etcd.access import EtcdAccess, EtcdError, EtcdUnavailable
from moorage.common.etcd.client import EtcdClient
from moorage.common.model.errors import Conflict, NotFound

SETTINGS = "settings/"
HISTORY = "settings-history/"
VERSION = "settings-version"
KEPT_CHANGES = 100


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """``number`` counts from 1. ``settings``: all settings after the change, by name, as JSON
    values."""

    number: int
    at: datetime
    by: str
    what: str
    settings: Mapping[str, Any]

    def dump(self) -> str:
        return json.dumps(
            {
                "at": self.at.isoformat(),
                "by": self.by,
                "what": self.what,
                "settings": dict(self.settings),
            }
        )

    @classmethod
    def parse(cls, number: int, text: str) -> SettingsChange:
        value = json.loads(text)
        at = datetime.fromisoformat(value["at"])
        return cls(
            number,
            at,
            str(value["by"]),
            str(value["what"]),
            settings=dict(value["settings"]),
        )


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """``values``: the JSON text of each setting, by name. ``number``: the number of the last
    change; 0 before the first."""

    values: Mapping[str, str]
    number: int
    number_modified: int


async def read(client: EtcdClient) -> SharedSettings:
    prefix = client.access.prefix
    found = (await client.read(f"{prefix}settings")).entries
    values = {
        key.removeprefix(prefix + SETTINGS): entry.value
        for key, entry in found.items()
        if key.startswith(prefix + SETTINGS)
    }
    version = found.get(prefix + VERSION)
    number = int(version.value) if version is not None and version.value.isdigit() else 0

    return SharedSettings(values, number, version.modified if version is not None else 0)


async def read_once(access: EtcdAccess) -> dict[str, str]:
    """JSON text of each setting. Raises ``EtcdError``."""
    async with EtcdClient(access) as client:
        return dict((await read(client)).values)


async def write(
    client: EtcdClient,
    before: SharedSettings,
    after: Mapping[str, Any],
    *,
    at: datetime,
    by: str,
    what: str,
) -> SettingsChange:
    """Replace the settings ``before`` with ``after`` in one transaction.

    Raises ``Conflict`` if they were changed in between, and ``EtcdUnavailable`` if it is not known
    whether the change was made.
    """
    prefix = client.access.prefix
    change = SettingsChange(before.number + 1, at, by=by, what=what, settings=dict(after))
    texts = {name: json.dumps(value) for name, value in after.items()}
    operations = [
        wire.put_operation(prefix + VERSION, str(change.number)),
        wire.put_operation(_history_key(prefix, change.number), change.dump()),
        *(
            wire.put_operation(f"{prefix}{SETTINGS}{name}", text)
            for name, text in texts.items()
            if before.values.get(name) != text
        ),
        *(
            wire.delete_operation(f"{prefix}{SETTINGS}{name}")
            for name in before.values
            if name not in texts
        ),
    ]
    if change.number > KEPT_CHANGES:
        operations.append(wire.delete_operation(_history_key(prefix, change.number - KEPT_CHANGES)))

    try:
        done = await client.commit(
            [wire.unchanged(prefix + VERSION, before.number_modified)], operations
        )
    except EtcdUnavailable as error:
        raise EtcdUnavailable(
            f"it is not known whether the change was made: {error.message}",
            next_step="check `moorage config history --etcd` when etcd answers again",
        ) from error

    if not done:
        raise Conflict("somebody else has changed the shared settings", next_step="try again")

    return change


async def history(client: EtcdClient) -> Sequence[SettingsChange]:
    """The most recent ``KEPT_CHANGES`` changes, oldest first."""
    prefix = client.access.prefix + HISTORY
    found = (await client.read(prefix)).entries
    changes = []
    for key, entry in sorted(found.items()):
        try:
            changes.append(SettingsChange.parse(int(key.removeprefix(prefix)), entry.value))
        except (ValueError, KeyError, TypeError) as error:
            raise EtcdError(
                f"{key} is not a change that Moorage wrote: {error}",
                next_step=f"delete it: etcdctl del {key}",
            ) from error

    return changes


async def find_change(client: EtcdClient, number: int) -> SettingsChange:
    """Find a change by number. Raises ``NotFound``."""
    kept = await history(client)
    for change in kept:
        if change.number == number:
            return change
    numbers = f"{kept[0].number} to {kept[-1].number}" if kept else "none yet"
    raise NotFound(f"there is no change {number}", next_step=f"kept changes: {numbers}")


def _history_key(prefix: str, number: int) -> str:
    return f"{prefix}{HISTORY}{number:010d}"
