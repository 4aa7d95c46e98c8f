"""The node's Docker Engine: the runtime on it, and whether sessions in containers may come here now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from moorage.agent.runtimes import Runtime, RuntimeFailed
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DiskFull,
    DockerRuntime,
    Engine,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
    engine_socket,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StartupError
from moorage.common.model.slots import parse_size

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

log = structlog.get_logger("moorage.agent.docker")
# An engine that is upgraded is away for seconds; new work may wait for it as well as go elsewhere.
AWAY_S = 60.0


def docker_runtime(
    settings: AgentSettings, state: Path, logs: LogStore, clock: Clock
) -> DockerRuntime | None:
    """None where it is off. Whether an engine answers plays no part: kernels of an engine that is away are
    kept. Blocks. Raises ``OSError``, ``StartupError``."""
    socket = engine_socket(settings.docker)
    if socket is None:
        return None
    rules = ContainerRules(
        images=settings.docker_images,
        pull=settings.docker_pull,
        mounts=settings.docker_mounts,
        user=settings.docker_user,
        network=settings.docker_network,
        multi_node=settings.docker_multi_node,
        capabilities=settings.docker_capabilities,
        pids=settings.docker_pids,
        shm_bytes=parse_size(settings.docker_shm),
        log_max_bytes=settings.log_max_bytes,
        log_keep_files=settings.log_keep_files,
        model_cache=_model_cache(settings),
        cache_writable=settings.model_cache_mode == "read-write",
        gpus=settings.docker_gpus,
    )
    sealer = load_label_signer(state / "docker.key", clock)
    engine, pulled = Engine(socket), PulledImages(state / "docker-images.json", clock)
    gc = ImageGcRules(
        mode=settings.docker_gc,
        high=settings.docker_gc_high,
        low=settings.docker_gc_low,
        whose=settings.docker_gc_images,
        min_free=parse_size(settings.docker_min_free),
    )
    house = ImageGarbageCollector(engine, gc, pulled, clock)
    return DockerRuntime(engine, sealer, logs, rules=rules, address=settings.address, house=house)


def _model_cache(settings: AgentSettings) -> str:
    """Made where it is not there. Raises ``StartupError``."""
    if settings.model_cache is None:
        return ""
    try:
        Path(settings.model_cache).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"agent.model_cache = {settings.model_cache!r}: {error}",
            next_step="name a directory of this node, or one that the agent may make",
        ) from None
    return settings.model_cache


async def tidy(runtime: DockerRuntime | None) -> None:
    """One look at how full its disk is; an engine that does not answer is asked again the next time."""
    try:
        if runtime is not None:
            await runtime.tidy()
    except RuntimeFailed as error:
        log.debug("cannot look after the images", why=error.message)


class RuntimeAvailability:
    """Whether a runtime that may come and go is offered: while it answers, and for ``AWAY_S`` after. Not
    while its disk is full."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._answered_at: float | None = None
        self.offered, self._said = False, ""

    async def look(self) -> None:
        now = self._clock.monotonic()
        try:
            await self._runtime.probe()
        except DiskFull as error:
            if self.offered or error.message != self._said:
                log.warning("no new containers here until there is space again", why=error.message)
            self._answered_at, self.offered, self._said = now, False, error.message
        except RuntimeFailed as error:
            if self._answered_at is None or now - self._answered_at < AWAY_S:
                return
            self._answered_at, self.offered = None, False
            log.warning("no containers here until it answers again", why=error.message)
        else:
            if not self.offered:
                log.info("containers can run here")
            self._answered_at, self.offered = now, True
