"""Docker runtime: each kernel is a container.

The engine is the only source of state, and nothing is stored (decision 9). If the engine does not
answer, a kernel is UNKNOWN, never GONE.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from moorage.agent.runtimes import procfs, wireguard
from moorage.agent.runtimes.base import (
    Capabilities,
    Counters,
    CreateFailed,
    Handle,
    Isolation,
    Launch,
    OnProgress,
    RuntimeFailed,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.docker.cdi_specifications import known_devices
from moorage.agent.runtimes.docker.container_config import (
    ContainerRules,
    container_config,
    container_name,
    host_config,
    parse_state,
)
from moorage.agent.runtimes.docker.container_logs import ContainerLogs
from moorage.agent.runtimes.docker.container_usage import ContainerMeter
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.agent.runtimes.docker.errors import (
    EngineUnavailable,
    NoSuchObject,
    RequestRefused,
    as_create_failed,
)
from moorage.agent.runtimes.docker.events import ContainerEvents
from moorage.agent.runtimes.docker.execution import execute
from moorage.agent.runtimes.docker.files import (
    copy_into_container,
    name_user,
    unnamed_user,
    unset_in_image,
)
from moorage.agent.runtimes.docker.image_gc import ImageGarbageCollector
from moorage.agent.runtimes.docker.images import ImageStore
from moorage.agent.runtimes.docker.labels import OWNER, ContainerIdentity, LabelSigner
from moorage.agent.runtimes.docker.networks import Networks, cluster_network
from moorage.agent.runtimes.docker.signals import deliver
from moorage.agent.runtimes.docker.validation import validate
from moorage.agent.runtimes.execution import Command, Execution
from moorage.agent.runtimes.host_names import resolve_hosts
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.docker")
_INSPECT_TIMEOUT_S = 5.0
_ACTION_TIMEOUT_S = 40.0
_KILL_TIMEOUT_S = 5
_NAME_TAKEN = "is already in use by container"
_ENDED = (ObservedState.EXITED, ObservedState.GONE)


class DockerRuntime:
    """The runtime. ``address``: where kernels' ports are published. It must be closed."""

    name = "docker"
    silence_grace_s = 0.0

    def __init__(
        self,
        engine: DockerEngine,
        signer: LabelSigner,
        logs: LogStore,
        *,
        rules: ContainerRules,
        address: str,
        image_gc: ImageGarbageCollector,
    ) -> None:
        self._engine = engine
        self._signer = signer
        self._logs = ContainerLogs(engine, logs)
        self._rules = rules
        self._address = address
        self._events = ContainerEvents(engine, signer.owner)
        self._meter = ContainerMeter(engine)
        self._boot_id = procfs.boot_id()
        self._creating: set[KernelId] = set()
        self._kills: dict[KernelId, asyncio.Task[None]] = {}
        self._unsigned: set[str] = set()
        self._images = ImageStore(engine, rules, image_gc.pulled)
        self._image_gc = image_gc
        self._networks = Networks(engine, signer, rules)
        self.capabilities = Capabilities(
            contained=True,
            code=True,
            images=True,
            model_mounts=True,
            overlay=rules.multi_node == "wireguard",
            signals=True,
            suspension=True,
        )

    async def close(self) -> None:
        await self._events.close()
        await self._logs.close()
        await cancel_and_wait(*self._kills.values())
        self._engine.close()

    async def probe(self) -> Isolation:
        await self._engine.call(lambda api: api.ping(), _INSPECT_TIMEOUT_S)
        await self._image_gc.check_free_space()
        return Isolation()

    async def collect_images(self) -> None:
        """Remove unused images if the disk is full. Raises ``RuntimeFailed``."""
        await self._image_gc.collect()

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        await asyncio.to_thread(validate, launch, self._rules, self._address)
        with as_create_failed():
            await self._image_gc.check_free_space()
            return await self._images.ensure(launch.image, on_progress, guarded=launch.isolated)

    async def create(self, launch: Launch) -> Handle:
        address = await asyncio.to_thread(validate, launch, self._rules, self._address)
        self._creating.add(launch.kernel_id)
        try:
            with as_create_failed():
                return await self._create(launch, address)
        finally:
            self._creating.discard(launch.kernel_id)

    async def observe(self, handle: Handle) -> RuntimeObservation:
        try:
            details = await self._engine.call(
                lambda api: api.inspect_container(_container_id(handle)), _INSPECT_TIMEOUT_S
            )
        except NoSuchObject:
            return self._missing(handle)
        except RuntimeFailed as error:
            return RuntimeObservation(ObservedState.UNKNOWN, detail=error.message)

        observation = parse_state(details["State"])
        copy = self._logs.begin(_kernel_id(handle), _container_id(handle))
        if observation.state in _ENDED:
            copy.look()

        return observation

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        async with self._events.subscribe(_container_id(handle)) as changed:
            state = (await self.observe(handle)).state
            if state is not last_state or state in _ENDED:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._events.poll_s):
                    await changed.wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        container = _container_id(handle)

        def send_stop_signal(api: Any) -> bool:
            details = api.inspect_container(container)
            if parse_state(details["State"]).state in _ENDED:
                return False
            api.kill(container, details["Config"].get("StopSignal") or "SIGTERM")
            return True

        try:
            running = await self._engine.call(send_stop_signal)
        except NoSuchObject:
            return
        except RequestRefused as error:
            if (await self.observe(handle)).state in _ENDED:
                return
            raise RuntimeFailed(f"the container cannot be stopped: {error}") from None

        await cancel_and_wait(self._kills.pop(_kernel_id(handle), None))
        if running:
            self._kills[_kernel_id(handle)] = spawn(
                f"docker.kill.{_kernel_id(handle)}", self._kill_after(handle, grace_s)
            )

    async def suspend(self, handle: Handle) -> None:
        await self._freeze(handle, frozen=True)

    async def resume(self, handle: Handle) -> None:
        await self._freeze(handle, frozen=False)

    async def _freeze(self, handle: Handle, *, frozen: bool) -> None:
        container = _container_id(handle)

        def change(api: Any) -> None:
            state = api.inspect_container(container)["State"]
            if state.get("Running") and bool(state.get("Paused")) is not frozen:
                (api.pause if frozen else api.unpause)(container)

        try:
            await self._engine.call(change)
        except NoSuchObject:
            return
        except RequestRefused as error:
            if (await self.observe(handle)).state not in _ENDED:
                raise RuntimeFailed(f"the container cannot be frozen or thawed: {error}") from None

    async def destroy(self, handle: Handle) -> None:
        container = _container_id(handle)
        await cancel_and_wait(self._kills.pop(_kernel_id(handle), None))
        try:
            await self._kill(handle)
            await self._logs.save(_kernel_id(handle), _container_id(handle))
            await self._remove(container)
        except NoSuchObject:
            await self._logs.forget(_kernel_id(handle))
            missing = self._missing(handle)
            if missing.state is not ObservedState.GONE:
                raise RuntimeFailed(missing.detail) from None
        except RequestRefused as error:
            raise RuntimeFailed(f"the container cannot be removed: {error}") from None

        await self._networks.release(handle.state.get("network", ""))

    async def find(self) -> dict[KernelId, Handle]:
        query = {"label": f"{OWNER}={self._signer.owner}"}
        found: dict[KernelId, Handle] = {}
        for row in await self._engine.call(lambda api: api.containers(all=True, filters=query)):
            name = row["Names"][0].lstrip("/") if row["Names"] else ""
            container = row["Id"]
            identity = self._signer.read(name, row["Labels"])
            if identity is None:
                self._warn_unsigned(container, name)
                continue

            created = row["State"] == "created"
            if not (created and await self._remove_unstarted(identity.kernel_id, container)):
                network = cluster_network((row.get("NetworkSettings") or {}).get("Networks") or ())
                found[identity.kernel_id] = self._handle(identity, container, network)
                self._logs.begin(identity.kernel_id, container)

        await self._networks.collect_garbage({handle.state["network"] for handle in found.values()})
        return found

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        return await self._meter.measure(
            {kernel_id: _container_id(h) for kernel_id, h in handles.items()}
        )

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        return data_of(self.log_range(handle, LogRange(tail_lines, follow)))

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        return self._logs.read(_kernel_id(handle), _container_id(handle), wanted)

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return await self._logs.tail(_kernel_id(handle), _container_id(handle), max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        return await execute(self._engine, _container_id(handle), command)

    async def signal(self, handle: Handle, name: str) -> None:
        await deliver(self._engine, _container_id(handle), name)

    async def _create(self, launch: Launch, address: str) -> Handle:
        async with self._networks.joined(launch) as network:
            try:
                return await self._create_on(network, launch, address)
            except RequestRefused as error:
                if not self._networks.has_changed(network, str(error)):
                    raise
        return await self._create(launch, address)

    async def _create_on(self, network: str, launch: Launch, address: str) -> Handle:
        if network == "host":
            launch = replace(launch, hosts=await asyncio.to_thread(resolve_hosts, launch.hosts))

        endpoints = await wireguard.check(launch)
        labels = self._signer.labels(launch.kernel_id, launch.port, launch.apps)

        def create(api: Any) -> str:
            # Queried each time, because specifications come and go with the driver.
            cdi = known_devices(api.info()) if launch.devices else None
            defaults = unset_in_image(api, launch.image, launch.default_env)
            described = replace(launch, env={**defaults, **launch.env})
            config = container_config(
                described, self._rules, labels=labels, network=network, cdi=cdi
            )
            host = host_config(launch, self._rules, address=address, network=network, cdi=cdi)
            return str(
                api.create_container(**config, host_config=api.create_host_config(**host))["Id"]
            )

        def start(api: Any) -> None:
            name_user(api, container)
            if launch.files:
                copy_into_container(api, container, launch.files)
            api.start(container)
            if launch.overlay is not None:
                sandbox = api.inspect_container(container)["NetworkSettings"]["SandboxKey"]
                wireguard.attach(launch, endpoints, sandbox)

        try:
            try:
                container = await self._engine.call(create, _ACTION_TIMEOUT_S)
            except NoSuchObject:
                # The image was removed after it was prepared.
                self._images.forget(launch.image)
                await self._images.ensure(launch.image, ignore_progress, guarded=launch.isolated)
                container = await self._engine.call(create, _ACTION_TIMEOUT_S)
        except RequestRefused as error:
            if _NAME_TAKEN not in str(error):
                raise
            return await self._existing(launch.kernel_id)

        try:
            if missing := await self._engine.call(
                lambda api: unnamed_user(api, container), _ACTION_TIMEOUT_S
            ):
                # The environment is fixed at creation, and only a container shows the passwd file
                # of its image.
                await self._remove(container)
                launch = replace(launch, env={**missing, **launch.env})
                container = await self._engine.call(create, _ACTION_TIMEOUT_S)

            await self._engine.call(start, _ACTION_TIMEOUT_S)
        except EngineUnavailable as error:
            error.note_effect()  # the container exists, started or not
            raise
        except (RequestRefused, CreateFailed):
            # The container would remain in the state Created forever, or wait for its network.
            with suppress(NoSuchObject):
                await self._remove(container)
            raise

        identity = ContainerIdentity(launch.kernel_id, launch.port, launch.apps)
        self._logs.begin(launch.kernel_id, container)
        return replace(self._handle(identity, container, cluster_network([network])), started=True)

    async def _existing(self, kernel_id: KernelId) -> Handle:
        """The existing kernel whose container has the name for ``kernel_id``."""
        name = container_name(kernel_id)
        details = await self._engine.call(lambda api: api.inspect_container(name))
        identity = self._signer.read(name, details["Config"]["Labels"] or {})
        if identity is None:
            raise CreateFailed(
                f"a container called {name} exists, but this agent did not create it",
                clean=True,
                next_step=f"check `docker inspect {name}` on that node",
            )

        network = cluster_network(details["NetworkSettings"]["Networks"])
        return self._handle(identity, details["Id"], network)

    async def _remove_unstarted(self, kernel_id: KernelId, container: str) -> bool:
        """Remove a container whose agent was killed before starting it. Returns False if this agent
        is starting the container, or if a request from the killed agent is starting it, in which
        case the engine refuses the removal."""
        if kernel_id in self._creating:
            return False

        try:
            await self._engine.call(lambda api: api.remove_container(container, v=True))
        except NoSuchObject:
            return True
        except RequestRefused as error:
            log.info(
                "cannot remove an unstarted container", container=container[:12], reason=str(error)
            )
            return False

        return True

    async def _remove(self, container: str) -> None:
        await self._engine.call(
            lambda api: api.remove_container(container, v=True, force=True), _ACTION_TIMEOUT_S
        )

    async def _kill(self, handle: Handle) -> None:
        container = _container_id(handle)

        def kill(api: Any) -> None:
            if parse_state(api.inspect_container(container)["State"]).state not in _ENDED:
                api.kill(container, "SIGKILL")
                api.wait(container, timeout=_KILL_TIMEOUT_S)

        try:
            await self._engine.call(kill, _ACTION_TIMEOUT_S)
        except NoSuchObject:
            raise
        except RequestRefused:
            if (await self.observe(handle)).state not in _ENDED:
                raise  # otherwise it exited by itself

    async def _kill_after(self, handle: Handle, grace_s: float) -> None:
        await asyncio.sleep(grace_s)
        try:
            await self._engine.call(lambda api: api.kill(_container_id(handle), "SIGKILL"))
        except RequestRefused:
            pass  # it has already exited
        except RuntimeFailed as error:
            log.warning("cannot kill a container", kernel=_kernel_id(handle), error=str(error))
        self._kills.pop(_kernel_id(handle), None)

    def _missing(self, handle: Handle) -> RuntimeObservation:
        """The observation for a container that is unknown to the engine. The kernel is GONE only if
        this is the same engine, or if the node has been rebooted since, which no container
        survives."""
        same_boot = handle.state["boot_id"] == self._boot_id
        if same_boot and handle.state["engine"] != self._engine.id:
            return RuntimeObservation(
                ObservedState.UNKNOWN,
                detail=(
                    "a different Docker Engine answers than the one that runs it: check "
                    "agent.docker"
                ),
            )

        return RuntimeObservation(
            ObservedState.GONE, detail="the Docker Engine has no such container"
        )

    def _handle(self, identity: ContainerIdentity, container: str, network: str) -> Handle:
        state = {"kernel_id": identity.kernel_id, "container": container, "network": network}
        state |= {"engine": self._engine.id, "boot_id": self._boot_id}
        return Handle(self.name, state, port=identity.port, apps=identity.apps)

    def _warn_unsigned(self, container: str, name: str) -> None:
        if container not in self._unsigned:
            self._unsigned.add(container)
            log.warning(
                "ignoring a container with this agent's label but without its signature", name=name
            )


def _container_id(handle: Handle) -> str:
    return str(handle.state["container"])


def _kernel_id(handle: Handle) -> KernelId:
    return KernelId(handle.state["kernel_id"])
