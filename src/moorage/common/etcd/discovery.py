"""Discovery of managers that are registered in etcd."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.config.shared_file import replace_shared
from moorage.common.etcd.access import EtcdAccess, EtcdError
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import MemberKind
from moorage.common.etcd.wire import KeyValue
from moorage.common.link.redial import Redial
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import StartupError

log = structlog.get_logger("moorage.etcd")

FIRST_SEARCH_S = 30.0
_PAUSE_S = 1.0


def links_of(values: Iterable[KeyValue]) -> tuple[str, ...]:
    """gRPC addresses in the managers' entries, sorted. Keys written by other programs are
    ignored."""
    found = set()
    for entry in values:
        try:
            link = json.loads(entry.value)["link"]
            split_address(link)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue

        found.add(link)

    return tuple(sorted(found))


async def member_versions(access: EtcdAccess, kind: MemberKind) -> dict[str, str]:
    """Versions of the registered members by name; empty while etcd does not answer."""
    found: dict[str, str] = {}
    try:
        async with EtcdClient(access) as client:
            entries = (await client.read(f"{access.prefix}{kind}/", stale=True)).entries
    except EtcdError as error:
        log.warning("etcd does not answer: versions are unknown", kind=kind, why=str(error))
        return found

    for key, entry in entries.items():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found[key.rpartition("/")[2]] = str(json.loads(entry.value)["version"])

    return found


async def find_managers(access: EtcdAccess) -> tuple[str, ...]:
    """gRPC addresses of the registered managers, even without a quorum. Raises ``EtcdError``."""
    async with EtcdClient(access) as client:
        return links_of(
            (await client.read(f"{access.prefix}managers/", stale=True)).entries.values()
        )


async def wait_for_managers(access: EtcdAccess, memory: Path, clock: Clock) -> tuple[str, ...]:
    """Wait until a manager is registered, and return all of them.

    ``memory``: the file with the managers found before, which are used while etcd does not answer.
    Raises ``StartupError`` if there is none within ``FIRST_SEARCH_S``.
    """
    ends_at = clock.monotonic() + FIRST_SEARCH_S
    problem = ""
    while True:
        try:
            if found := await find_managers(access):
                _remember(memory, found)
                return found

            problem = f"no manager is registered below {access.prefix}managers/"
        except EtcdError as error:
            if known := recall(memory):
                log.warning("etcd does not answer: using the managers found before", why=str(error))
                return known

            problem = str(error)

        if clock.monotonic() > ends_at:
            raise StartupError(
                f"no manager found in etcd: {problem}",
                next_step="set etcd.address at the managers, or name their addresses here",
            )

        await asyncio.sleep(_PAUSE_S)


def _remember(memory: Path, found: tuple[str, ...]) -> None:
    replace_shared(memory, json.dumps(found))


def recall(memory: Path) -> tuple[str, ...]:
    """Addresses in the file ``memory``; empty if the file is unusable."""
    try:
        known = json.loads(memory.read_text())
        for address in known:
            split_address(address)
    except (OSError, ValueError, TypeError, AttributeError):
        return ()
    return tuple(known)


class ManagerDiscovery:
    """Searches etcd while no manager answers. ``memory`` is as in ``wait_for_managers``."""

    def __init__(self, access: EtcdAccess, memory: Path) -> None:
        self._access = access
        self._memory = memory

    async def look(self, failing: Iterable[Redial]) -> None:
        """Report the registered managers to ``failing``."""
        try:
            found = await find_managers(self._access)
        except EtcdError as error:
            log.warning("no manager answers, and neither does etcd", why=str(error))
            return

        learned = [redial.learn(found) for redial in failing]
        if found and any(learned):
            log.info("found managers in etcd", managers=", ".join(found))
            _remember(self._memory, found)
