"""An agent's Docker networks: one shared by all kernels without a cluster, and one per cluster.

On the shared network, traffic between containers is disabled (``enable_icc``): containers reach the
outside, and are reached through their published ports. A cluster's kernels on this node share a
separate bridge, where they resolve each other by hostname. It is removed with its last container.
The kernels of a cluster over several nodes are on the shared network, with an additional interface
for reaching each other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.docker.container_config import ISOLATED, ContainerRules
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.labels import OWNER, LabelSigner
from moorage.common.model.reasons import Reason

log = structlog.get_logger("moorage.agent.docker")
SHARED = "moorage-isolated"
_CLUSTER = "moorage-net-"
_ICC = "com.docker.network.bridge.enable_icc"
_EXISTS = "already exists"
_AMBIGUOUS = "is ambiguous"


def cluster_network(names: Collection[str]) -> str:
    """The cluster network among a container's networks; empty if there is none."""
    return next((name for name in names if name.startswith(_CLUSTER)), "")


class Networks:
    """This agent's networks, which it creates and removes."""

    def __init__(self, engine: DockerEngine, signer: LabelSigner, rules: ContainerRules) -> None:
        self._engine = engine
        self._signer = signer
        self._rules = rules
        self._existing: set[str] = set()
        self._joining: Counter[str] = Counter()
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def joined(self, launch: Launch) -> AsyncIterator[str]:
        """A context with the network for this container, during which the network is not removed.
        Raises ``CreateFailed`` for a cluster that is not permitted here, ``RequestRefused`` and
        ``EngineUnavailable``."""
        name = self._name(launch)
        self._joining[name] += 1

        try:
            await self._ensure(name)
            yield name
        finally:
            self._joining[name] -= 1

    def has_changed(self, name: str, message: str) -> bool:
        """Return whether an engine error message shows that another client has removed this network
        or created one with the same name. If so, it is inspected again before the next
        container."""
        changed = "network" in message and ("not found" in message or _AMBIGUOUS in message)
        if changed := changed and name in self._existing:
            self._existing.discard(name)
        return changed

    async def release(self, name: str) -> None:
        """Remove the network after a container has left it, unless the engine refuses because
        others use it."""
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
                        log.debug("a network is still in use", name=name, reason=str(error))
                        return

            self._existing.discard(name)

    async def collect_garbage(self, used: Collection[str]) -> None:
        """Remove unused networks left behind by a killed agent."""
        query = {"label": f"{OWNER}={self._signer.owner}"}
        for row in await self._engine.call(lambda api: api.networks(filters=query)):
            name = row["Name"]
            if name in used or not name.startswith(_CLUSTER):
                continue
            if self._signer.owns_network(name, row.get("Labels") or {}):
                await self.release(name)

    def _name(self, launch: Launch) -> str:
        if launch.network:
            return f"{_CLUSTER}{launch.network}"
        if launch.overlay is not None or not launch.hosts:
            return SHARED if self._rules.network == ISOLATED else self._rules.network
        if self._rules.multi_node == "host":
            return "host"

        off = self._rules.multi_node == "off"
        problem = (
            "agent.docker_multi_node = off" if off else "the manager sent no key for their network"
        )
        cure = "set agent.docker_multi_node = wireguard there" if off else "start the session again"
        raise CreateFailed(
            f"containers on this node cannot join a cluster on several nodes: {problem}",
            reason=Reason.NO_NETWORK,
            clean=True,
            next_step=f"use --cluster-mode single-node, or {cure}",
        )

    async def _ensure(self, name: str) -> None:
        if name in self._existing or not (name == SHARED or name.startswith(_CLUSTER)):
            return
        async with self._changing:
            if name not in self._existing:
                await self._create(name)
                self._existing.add(name)

    async def _create(self, name: str) -> None:
        shared = name == SHARED
        # The shared network has no owner, because all agents on this engine use it.
        labels = {} if shared else self._signer.network_labels(name)
        options = {_ICC: "false"} if shared else {}
        try:
            await self._engine.call(
                lambda api: api.create_network(
                    name, driver="bridge", check_duplicate=True, labels=labels, options=options
                )
            )
        except RequestRefused as error:
            if _EXISTS not in str(error):
                raise

        if shared:
            await self._remove_duplicates()

        details = await self._engine.call(lambda api: api.inspect_network(name))
        usable = (
            (details.get("Options") or {}).get(_ICC) == "false"
            if shared
            else self._signer.owns_network(name, details.get("Labels") or {})
        )
        if not usable:
            raise CreateFailed(
                f"a network called {name} exists, but this agent did not create it",
                reason=Reason.NO_NETWORK,
                clean=True,
                next_step=f"remove it on that node: docker network rm {name}",
            )

    async def _remove_duplicates(self) -> None:
        """Remove duplicate shared networks. Agents that start simultaneously can create several,
        because the engine compares names before it creates a network. All agents keep the oldest
        network. A younger one has no containers, because its name is ambiguous."""
        rows = await self._engine.call(lambda api: api.networks(names=[SHARED]))
        same = sorted((row["Created"], row["Id"]) for row in rows if row["Name"] == SHARED)
        for _, network_id in same[1:]:
            with suppress(NoSuchObject):
                await self._engine.call(partial(_remove_network, network_id))


def _remove_network(network_id: str, api: Any) -> None:
    api.remove_network(network_id)
