"""The engine's networks for containers: one for all that are alone on it, one for each cluster on this node.

On the shared one the engine lets nobody reach anybody (``enable_icc`` off): containers reach what is outside,
and are reached through their published ports. The kernels of a cluster have a bridge of their own, on which
they find each other by name; the engine keeps bridges apart. It goes with the last of its containers.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.docker.container_config import ISOLATED, ContainerRules
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.labels import OWNER, LabelSigner
from moorage.common.model.reasons import Reason

log = structlog.get_logger("moorage.agent.docker")
SHARED = "moorage-isolated"
_CLUSTER = "moorage-net-"
_ICC = "com.docker.network.bridge.enable_icc"
_THERE = "already exists"


def resolved(hosts: Mapping[str, str]) -> dict[str, str]:
    """With addresses for names. Blocks. Raises ``CreateFailed``."""
    found = {}
    for hostname, address in hosts.items():
        try:
            answer = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CreateFailed(
                f"{hostname} of its cluster is at {address!r}, which this node does not know: {error}",
                reason=Reason.NO_NETWORK,
                clean=True,
                next_step="let agent.address of that agent be an address",
            ) from None
        found[hostname] = str(answer[0][4][0])
    return found


def network_of(names: Collection[str]) -> str:
    """Of the networks of a container, that of its cluster; "" for none."""
    return next((name for name in names if name.startswith(_CLUSTER)), "")


class Networks:
    """Those that this agent makes."""

    def __init__(self, engine: Engine, sealer: LabelSigner, rules: ContainerRules) -> None:
        self._engine, self._sealer, self._rules = engine, sealer, rules
        self._known: set[str] = set()
        self._joining: Counter[str] = Counter()
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def joined(self, launch: Launch) -> AsyncIterator[str]:
        """The network for this container; while it is begun, nobody takes it away. Raises ``CreateFailed``
        for a cluster that may not be here, ``RequestRefused``, ``EngineUnavailable``."""
        name = self._name(launch)
        self._joining[name] += 1
        try:
            await self._have(name)
            yield name
        finally:
            self._joining[name] -= 1

    def lost(self, name: str, words: str) -> bool:
        """Whether the engine says that it has not this network of ours any more; somebody tidied up there."""
        gone = name in self._known and "network" in words and "not found" in words
        if gone:
            self._known.discard(name)
        return gone

    async def left(self, name: str) -> None:
        """A container of it is gone. It is removed, unless there are others: that the engine knows best."""
        if not name.startswith(_CLUSTER) or self._joining[name]:
            return
        async with self._changing:
            if self._joining[name]:
                return
            with suppress(NoSuchObject):
                try:
                    await self._engine.call(lambda api: api.remove_network(name))
                except RequestRefused as error:
                    if not isinstance(error, NoSuchObject):
                        log.debug("a network is in use still", name=name, why=str(error))
                        return
            self._known.discard(name)

    async def sweep(self, used: Collection[str]) -> None:
        """Remove those of this agent that none of its containers has: it was killed before it could."""
        query = {"label": f"{OWNER}={self._sealer.owner}"}
        for row in await self._engine.call(lambda api: api.networks(filters=query)):
            name = row["Name"]
            if name in used or not name.startswith(_CLUSTER):
                continue
            if self._sealer.made(name, row.get("Labels") or {}):
                await self.left(name)

    def _name(self, launch: Launch) -> str:
        if launch.network:
            return f"{_CLUSTER}{launch.network}"
        if not launch.hosts:
            return SHARED if self._rules.network == ISOLATED else self._rules.network
        if self._rules.multi_node == "host":
            return "host"
        raise CreateFailed(
            "containers of this node may be in no cluster on several nodes: agent.docker_multi_node = off",
            reason=Reason.NO_NETWORK,
            clean=True,
            next_step="ask for --cluster-mode single-node, or for agent.docker_multi_node = host there",
        )

    async def _have(self, name: str) -> None:
        if name in self._known or not (name == SHARED or name.startswith(_CLUSTER)):
            return
        async with self._changing:
            if name not in self._known:
                await self._make(name)
                self._known.add(name)

    async def _make(self, name: str) -> None:
        shared = name == SHARED
        # The shared one is of all agents on this engine, so it is nobody's.
        labels = {} if shared else self._sealer.network(name)
        options = {_ICC: "false"} if shared else {}
        try:
            await self._engine.call(
                lambda api: api.create_network(
                    name, driver="bridge", check_duplicate=True, labels=labels, options=options
                )
            )
        except RequestRefused as error:
            if _THERE not in str(error):
                raise
        facts = await self._engine.call(lambda api: api.inspect_network(name))
        good = (
            (facts.get("Options") or {}).get(_ICC) == "false"
            if shared
            else self._sealer.made(name, facts.get("Labels") or {})
        )
        if not good:
            raise CreateFailed(
                f"a network called {name} is there already, and not as this agent makes it",
                reason=Reason.NO_NETWORK,
                clean=True,
                next_step=f"remove it on that node: docker network rm {name}",
            )
