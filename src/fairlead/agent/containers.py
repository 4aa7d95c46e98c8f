"""The node's Docker Engine: the runtime on it, and whether sessions in containers may come here now."""

from __future__ import annotations

from pathlib import Path

import structlog

from fairlead.agent.logs import LogStore
from fairlead.agent.runtimes import Runtime, RuntimeFailed
from fairlead.agent.runtimes.docker import DockerRuntime, Engine, Rules, engine_socket
from fairlead.agent.runtimes.docker.seal import load_sealer
from fairlead.common.clock import Clock
from fairlead.common.settings import AgentSettings
from fairlead.common.slots import parse_size

log = structlog.get_logger("fairlead.agent.docker")
# An engine that is upgraded is away for seconds; new work may wait for it as well as go elsewhere.
AWAY_S = 60.0


def docker_runtime(
    settings: AgentSettings, state: Path, logs: LogStore, clock: Clock
) -> DockerRuntime | None:
    """None where it is off. Whether an engine answers plays no part: kernels of an engine that is away are
    kept. Blocks. Raises ``OSError``."""
    socket = engine_socket(settings.docker)
    if socket is None:
        return None
    rules = Rules(
        images=settings.docker_images,
        pull=settings.docker_pull,
        mounts=settings.docker_mounts,
        user=settings.docker_user,
        network=settings.docker_network,
        capabilities=settings.docker_capabilities,
        pids=settings.docker_pids,
        shm_bytes=parse_size(settings.docker_shm),
        log_max_bytes=settings.log_max_bytes,
        log_keep_files=settings.log_keep_files,
    )
    sealer = load_sealer(state / "docker.key", clock)
    return DockerRuntime(Engine(socket), sealer, logs, rules=rules, address=settings.address)


class Presence:
    """Whether a runtime that may come and go is offered: while it answers, and for ``AWAY_S`` after."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._answered_at: float | None = None
        self.offered = False

    async def look(self) -> None:
        now = self._clock.monotonic()
        try:
            await self._runtime.probe()
        except RuntimeFailed as error:
            if self._answered_at is None or now - self._answered_at < AWAY_S:
                return
            self._answered_at, self.offered = None, False
            log.warning("no containers here until it answers again", why=error.message)
        else:
            if not self.offered:
                log.info("containers can run here")
            self._answered_at, self.offered = now, True
