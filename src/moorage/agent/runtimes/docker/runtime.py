"""Kernels as containers. What is true is asked of the engine; an engine that does not answer makes a kernel
UNKNOWN, never GONE."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import structlog

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import (
    Capabilities,
    Counters,
    CreateFailed,
    Handle,
    Launch,
    OnProgress,
    RuntimeFailed,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.docker.container_config import (
    ContainerRules,
    container_config,
    container_name,
    host_config,
    look,
)
from moorage.agent.runtimes.docker.disk import ImageGarbageCollector
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.events import Watch
from moorage.agent.runtimes.docker.execution import execute
from moorage.agent.runtimes.docker.files import put_inside
from moorage.agent.runtimes.docker.images import ImageStore
from moorage.agent.runtimes.docker.labels import OWNER, ContainerIdentity, LabelSigner
from moorage.agent.runtimes.docker.networks import Networks, network_of, resolved
from moorage.agent.runtimes.docker.usage import Meter
from moorage.agent.runtimes.docker.validation import as_create_failed, check
from moorage.agent.runtimes.execution import Command, Execution
from moorage.agent.state.logs import LogStore, tail_text
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.docker")
_LOOK_S, _ACT_S, _DIE_S = 5.0, 40.0, 5
_NAME_TAKEN = "is already in use by container"
_TAIL_LINES = 400
_ENDED = (ObservedState.EXITED, ObservedState.GONE)


class DockerRuntime:
    """``address``: where kernels' ports are published. ``sealer`` makes and knows the labels of this agent.

    Close it: it listens to the engine's events."""

    name = "docker"

    def __init__(
        self,
        engine: Engine,
        sealer: LabelSigner,
        logs: LogStore,
        *,
        rules: ContainerRules,
        address: str,
        house: ImageGarbageCollector,
    ) -> None:
        self._engine, self._sealer, self._logs = engine, sealer, logs
        self._rules, self._address = rules, address
        self._watch = Watch(engine, sealer.owner)
        self._meter = Meter(engine)
        self._boot_id = procfs.boot_id()
        self._beginning: set[KernelId] = set()
        self._kills: dict[KernelId, asyncio.Task[None]] = {}
        self._strangers: set[str] = set()
        self._images, self._house = ImageStore(engine, rules, house.pulled), house
        self._networks = Networks(engine, sealer, rules)

    async def close(self) -> None:
        await self._watch.close()
        await cancel_and_wait(*self._kills.values())
        self._engine.close()

    async def probe(self) -> Capabilities:
        await self._engine.call(lambda api: api.ping(), _LOOK_S)
        await self._house.check()
        return Capabilities(runs_engines=True, contained=True)

    async def tidy(self) -> None:
        """Remove images while the disk is too full. Raises ``RuntimeFailed``."""
        await self._house.tidy()

    async def prepare(self, launch: Launch, tell: OnProgress = ignore_progress) -> tuple[ServicePort, ...]:
        await asyncio.to_thread(check, launch, self._rules, self._address)
        with as_create_failed():
            await self._house.check()
            return await self._images.have(launch.image, tell)

    async def create(self, launch: Launch) -> Handle:
        address = await asyncio.to_thread(check, launch, self._rules, self._address)
        self._beginning.add(launch.kernel_id)
        try:
            with as_create_failed():
                return await self._begin(launch, address)
        finally:
            self._beginning.discard(launch.kernel_id)

    async def observe(self, handle: Handle) -> RuntimeObservation:
        try:
            facts = await self._engine.call(lambda api: api.inspect_container(_container(handle)), _LOOK_S)
        except NoSuchObject:
            return self._missing(handle)
        except RuntimeFailed as error:
            return RuntimeObservation(ObservedState.UNKNOWN, detail=error.message)
        return look(facts["State"])

    async def wait(self, handle: Handle, seen: ObservedState) -> None:
        async with self._watch.expecting(_container(handle)) as changed:
            now = (await self.observe(handle)).state
            if now is not seen or now in _ENDED:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch.patience_s):
                    await changed.wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        container = _container(handle)

        def ask(api: Any) -> bool:
            facts = api.inspect_container(container)
            if look(facts["State"]).state in _ENDED:
                return False
            api.kill(container, facts["Config"].get("StopSignal") or "SIGTERM")
            return True

        try:
            lives = await self._engine.call(ask)
        except NoSuchObject:
            return
        except RequestRefused as error:
            if (await self.observe(handle)).state in _ENDED:
                return
            raise RuntimeFailed(f"it cannot be stopped: {error}") from None
        await cancel_and_wait(self._kills.pop(_id(handle), None))
        if lives:
            self._kills[_id(handle)] = spawn(f"docker.kill.{_id(handle)}", self._kill_after(handle, grace_s))

    async def destroy(self, handle: Handle) -> None:
        container = _container(handle)
        await cancel_and_wait(self._kills.pop(_id(handle), None))
        try:
            await self._end(handle)
            await self._keep_log(handle)
            await self._engine.call(lambda api: api.remove_container(container, v=True, force=True), _ACT_S)
        except NoSuchObject:
            seen = self._missing(handle)
            if seen.state is not ObservedState.GONE:
                raise RuntimeFailed(seen.detail) from None
        except RequestRefused as error:
            raise RuntimeFailed(f"the container is not removed yet: {error}") from None
        await self._networks.left(handle.state.get("network", ""))

    async def find(self) -> dict[KernelId, Handle]:
        query = {"label": f"{OWNER}={self._sealer.owner}"}
        found: dict[KernelId, Handle] = {}
        for row in await self._engine.call(lambda api: api.containers(all=True, filters=query)):
            name, container = row["Names"][0].lstrip("/") if row["Names"] else "", row["Id"]
            marks = self._sealer.read(name, row["Labels"])
            if marks is None:
                self._warn_of(container, name)
            elif not (row["State"] == "created" and await self._never_begun(marks.kernel_id, container)):
                network = network_of((row.get("NetworkSettings") or {}).get("Networks") or ())
                found[marks.kernel_id] = self._handle(marks, container, network)
        await self._networks.sweep({handle.state["network"] for handle in found.values()})
        return found

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        return await self._meter.measure({kernel_id: _container(h) for kernel_id, h in handles.items()})

    async def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        kept = self._logs.exists(_id(handle))
        source = (
            self._logs.read(_id(handle), tail_lines, False, lambda: False)
            if kept
            else self._engine.logs(_container(handle), tail_lines, follow)
        )
        async with aclosing(source) as pieces:
            async for data in pieces:
                yield data

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        if self._logs.exists(_id(handle)):
            return await asyncio.to_thread(self._logs.tail, _id(handle), max_bytes)
        end = b""
        try:
            async with aclosing(self._engine.logs(_container(handle), _TAIL_LINES)) as pieces:
                async for data in pieces:
                    end = (end + data)[-max_bytes - 1 :]
        except RuntimeFailed as error:
            log.warning("cannot read a container's log", kernel=_id(handle), error=str(error))
        return tail_text(end, max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        return await execute(self._engine, _container(handle), command)

    # Beginning.

    async def _begin(self, launch: Launch, address: str) -> Handle:
        async with self._networks.joined(launch) as network:
            try:
                return await self._begin_on(network, launch, address)
            except RequestRefused as error:
                if not self._networks.lost(network, str(error)):
                    raise
        return await self._begin(launch, address)

    async def _begin_on(self, network: str, launch: Launch, address: str) -> Handle:
        if network == "host":
            launch = replace(launch, hosts=await asyncio.to_thread(resolved, launch.hosts))
        labels = self._sealer.labels(launch.kernel_id, launch.port, launch.apps)

        def make(api: Any) -> str:
            cdi = self._engine.cdi
            rest = container_config(launch, self._rules, labels, network, cdi)
            host = host_config(launch, self._rules, address, network, cdi)
            return str(api.create_container(**rest, host_config=api.create_host_config(**host))["Id"])

        def start(api: Any) -> None:
            if launch.files:
                put_inside(api, container, launch.files)
            api.start(container)

        try:
            try:
                container = await self._engine.call(make, _ACT_S)
            except NoSuchObject:
                # Of the image: it was here before, and was removed.
                self._images.forget(launch.image)
                await self._images.have(launch.image, ignore_progress)
                container = await self._engine.call(make, _ACT_S)
        except RequestRefused as error:
            if _NAME_TAKEN not in str(error):
                raise
            return await self._there(launch.kernel_id)
        try:
            await self._engine.call(start, _ACT_S)
        except EngineUnavailable as error:
            error.unsent = False  # it is there, begun or not
            raise
        except RequestRefused:
            # It would stay for ever, in the state Created.
            await self._engine.call(lambda api: api.remove_container(container, v=True, force=True), _ACT_S)
            raise
        marks = ContainerIdentity(launch.kernel_id, launch.port, launch.apps)
        return replace(self._handle(marks, container, network_of([network])), started=True)

    async def _there(self, kernel_id: KernelId) -> Handle:
        """The kernel that has the name already."""
        name = container_name(kernel_id)
        facts = await self._engine.call(lambda api: api.inspect_container(name))
        marks = self._sealer.read(name, facts["Config"]["Labels"] or {})
        if marks is None:
            raise CreateFailed(
                f"a container called {name} is there already, and not of this agent's making",
                clean=True,
                next_step=f"see `docker inspect {name}` on that node",
            )
        network = network_of(facts["NetworkSettings"]["Networks"])
        return self._handle(marks, facts["Id"], network)

    async def _never_begun(self, kernel_id: KernelId, container: str) -> bool:
        """A container whose agent was killed before it started it is removed. The engine itself refuses that
        for one that has been started meanwhile."""
        if kernel_id in self._beginning:
            return False
        try:
            await self._engine.call(lambda api: api.remove_container(container, v=True))
        except NoSuchObject:
            return True
        except RequestRefused as error:
            log.info("a container that was not started is there", container=container[:12], why=str(error))
            return False
        return True

    # Ending.

    async def _end(self, handle: Handle) -> None:
        container = _container(handle)

        def end(api: Any) -> None:
            if look(api.inspect_container(container)["State"]).state not in _ENDED:
                api.kill(container, "SIGKILL")
                api.wait(container, timeout=_DIE_S)

        try:
            await self._engine.call(end, _ACT_S)
        except NoSuchObject:
            raise
        except RequestRefused:
            if (await self.observe(handle)).state not in _ENDED:
                raise  # else it ended by itself, just then

    async def _kill_after(self, handle: Handle, grace_s: float) -> None:
        await asyncio.sleep(grace_s)
        try:
            await self._engine.call(lambda api: api.kill(_container(handle), "SIGKILL"))
        except RequestRefused:
            pass  # it has ended
        except RuntimeFailed as error:
            log.warning("cannot kill it yet", kernel=_id(handle), error=str(error))
        self._kills.pop(_id(handle), None)

    async def _keep_log(self, handle: Handle) -> None:
        """Before the engine forgets it, its log goes where those of all kernels are kept."""
        folder = self._logs.folder(_id(handle))
        if self._logs.exists(_id(handle)):
            return
        part = folder / f"part.{os.getpid()}"
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
            with part.open("wb") as file:
                async with aclosing(self._engine.logs(_container(handle))) as pieces:
                    async for data in pieces:
                        await asyncio.to_thread(file.write, data)
            part.replace(folder / "kernel.log")
        except (OSError, RequestRefused) as error:
            # A full disk, or a log driver that cannot read: no reason to keep the container.
            log.warning("the log of a container is lost", kernel=_id(handle), error=str(error))
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _missing(self, handle: Handle) -> RuntimeObservation:
        """The engine that answers does not know it. That is an answer only if it is the same engine, or if
        the node was restarted since: no container survives that."""
        same_boot = handle.state["boot_id"] == self._boot_id
        if same_boot and handle.state["engine"] != self._engine.id:
            return RuntimeObservation(
                ObservedState.UNKNOWN,
                detail="another Docker Engine answers than the one that runs it: see agent.docker",
            )
        return RuntimeObservation(
            ObservedState.GONE, detail="the Docker Engine knows no such container any more"
        )

    def _handle(self, marks: ContainerIdentity, container: str, network: str) -> Handle:
        state = {"kernel_id": marks.kernel_id, "container": container, "network": network}
        state |= {"engine": self._engine.id, "boot_id": self._boot_id}
        return Handle(self.name, state, port=marks.port, apps=marks.apps)

    def _warn_of(self, container: str, name: str) -> None:
        if container not in self._strangers:
            self._strangers.add(container)
            log.warning("a container carries this agent's label without its seal: left alone", name=name)


def _container(handle: Handle) -> str:
    return str(handle.state["container"])


def _id(handle: Handle) -> KernelId:
    return KernelId(handle.state["kernel_id"])
