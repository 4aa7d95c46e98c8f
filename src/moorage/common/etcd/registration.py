"""Registration of a daemon in etcd, under a lease that it keeps alive.

A key outlives its daemon by at most ``LEASE_S``. While etcd is unavailable, nothing else changes
for the daemon. Afterwards, a lost lease is replaced, and so is a key that was deleted or changed
from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Never

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.etcd.access import EtcdAccess, EtcdError
from moorage.common.etcd.client import EtcdClient

log = structlog.get_logger("moorage.etcd")

LEASE_S = 15
_LAST_CALL_S = 1.0
MemberKind = Literal["managers", "proxies", "agents"]


def member_key(access: EtcdAccess, kind: MemberKind, name: str) -> str:
    return f"{access.prefix}{kind}/{name}"


class EtcdRegistration:
    """``describe`` returns the published data. It is called whenever the lease is renewed, and a
    change is written. With ``reads_back``, the key is also read and repaired each time."""

    def __init__(
        self,
        client: EtcdClient,
        key: str,
        describe: Callable[[], Mapping[str, Any]],
        clock: Clock,
        *,
        reads_back: bool = True,
    ) -> None:
        self._client = client
        self._key = key
        self._describe = describe
        self._clock = clock
        self._reads_back = reads_back
        self._lease = ""
        self._written = ""
        self._lost = False

    async def run(self) -> Never:
        while True:
            try:
                await self.refresh()
                if self._lost:
                    log.info("registered in etcd again", key=self._key)

                self._lost = False
            except EtcdError as error:
                if not self._lost:
                    log.warning("not registered in etcd, will retry", key=self._key, why=str(error))
                self._lost = True

            await asyncio.sleep(LEASE_S / 3 * self._clock.jitter(0.2))

    async def refresh(self) -> None:
        """Keep the lease alive or get a new one, and write changes. Raises ``EtcdError``."""
        if self._lease and not await self._client.keep_alive(self._lease):
            self._lease = ""

        if not self._lease:
            self._lease = await self._client.grant(LEASE_S)
            self._written = ""
        elif self._reads_back:
            self._written = await self._client.value(self._key)

        value = json.dumps(self._describe(), sort_keys=True)
        if value != self._written:
            # unknown until the write has succeeded, because an earlier write may still be applied
            self._written = ""
            await self._client.put(self._key, value, self._lease)
            self._written = value

    async def end(self) -> None:
        """Remove the key. If etcd is unavailable, it expires."""
        if self._lease:
            with contextlib.suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(_LAST_CALL_S):
                    await self._client.revoke(self._lease)


@asynccontextmanager
async def registered(
    access: EtcdAccess,
    kind: MemberKind,
    name: str,
    describe: Callable[[], Mapping[str, Any]],
    *,
    clock: Clock,
) -> AsyncIterator[None]:
    """Stay registered while inside the context."""
    async with EtcdClient(access) as client:
        # There are many agents, and the addresses that they register are never dialed.
        registration = EtcdRegistration(
            client, member_key(access, kind, name), describe, clock, reads_back=kind != "agents"
        )
        task = SupervisedTask("etcd.registration", registration.run, key=name)
        try:
            yield
        finally:
            await task.close()
            await registration.end()
