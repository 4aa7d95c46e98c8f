"""An agent's Docker runtime, built from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DockerEngine,
    DockerRuntime,
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


def docker_runtime(
    settings: AgentSettings, state: Path, logs: LogStore, clock: Clock
) -> DockerRuntime | None:
    """The runtime, or None if it is off. The engine need not answer, because the kernels of an
    unavailable engine are kept. Blocks. Raises ``OSError`` and ``StartupError``."""
    socket = engine_socket(settings.docker)
    if socket is None:
        return None

    _make_model_cache(settings)
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
        gpus=settings.docker_gpus,
    )
    signer = load_label_signer(state / "docker.key", clock)
    engine = DockerEngine(socket)
    pulled = PulledImages(state / "docker-images.json", clock)
    gc_rules = ImageGcRules(
        mode=settings.docker_gc,
        high=settings.docker_gc_high,
        low=settings.docker_gc_low,
        owners=settings.docker_gc_images,
        min_free=parse_size(settings.docker_min_free),
    )
    image_gc = ImageGarbageCollector(engine, gc_rules, pulled, clock)

    return DockerRuntime(
        engine, signer, logs, rules=rules, address=settings.address, image_gc=image_gc
    )


def _make_model_cache(settings: AgentSettings) -> None:
    """Raises ``StartupError``."""
    if settings.model_cache is None:
        return

    try:
        Path(settings.model_cache).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"agent.model_cache = {settings.model_cache!r}: {error}",
            next_step="use an existing directory, or one that the agent may create",
        ) from None


async def collect_images(runtime: DockerRuntime | None) -> None:
    """Run one pass of the image garbage collection. After a failure, the next pass tries again."""
    try:
        if runtime is not None:
            await runtime.collect_images()
    except RuntimeFailed as error:
        log.debug("cannot collect images", reason=error.message)
