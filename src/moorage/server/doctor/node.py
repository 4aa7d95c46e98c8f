"""``moorage agent doctor``: looks at a node as its agent will need it. What that means is in ``checkup``."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from pathlib import Path
from typing import Any

import moorage
from moorage.agent.runtimes import RuntimeFailed
from moorage.agent.runtimes.docker import Engine, engine_socket
from moorage.agent.state.ports import is_free
from moorage.common.aio.clock import Clock
from moorage.common.config.settings import AgentSettings, Settings
from moorage.common.link.dial import caller_of
from moorage.common.link.identity import identity_file
from moorage.common.model.errors import ConfigError, StartupError
from moorage.server.doctor import checks
from moorage.server.doctor.checks import GIB, Line

_STATE_NEEDS, _DOCKER_NEEDS = 10 * GIB, 50 * GIB
_QUESTION_S, _MANAGER_S = 5.0, 5.0
_CGROUPS = Path("/sys/fs/cgroup")
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


async def examine_node(settings: Settings, home: Path, token: str, clock: Clock) -> list[Line]:
    """All lines, in the order in which they matter. ``settings`` as joined (``daemons.as_joined``)."""
    driver, count, error = await asyncio.to_thread(_gpus)
    lines = [*await _manager(settings, home, token, clock), _state(home)]
    lines += await asyncio.to_thread(_listening, settings.agent)
    lines += [_limits(), checks.gpus(driver, count, error, settings.agent.gpus is not None)]
    return lines + await _docker(settings.agent, count)


async def _manager(settings: Settings, home: Path, token: str, clock: Clock) -> list[Line]:
    agent, common = settings.agent, settings.common
    name = agent.id or socket.gethostname()
    lines = []
    try:
        file = identity_file(home, "agent", name)
        identity = file.load()
        if identity is not None:
            lines.append(checks.certificate(identity.ends, clock.now(), identity.name, str(file.path)))
        caller = caller_of(
            "agent", name, agent.manager, link_tls=common.link_tls, token=token, home=home, clock=clock
        )
        version, ahead_s = await caller.hello(_MANAGER_S)
    except (ConfigError, StartupError) as error:
        advice = error.next_step or "see agent.manager, and whether a firewall is in between"
        return [*lines, Line("fail", "manager", error.message, advice)]
    how = "mTLS" if caller.has_tls else "the link token, without TLS"
    lines.append(Line("ok", "manager", f"{agent.manager}, by {how}"))
    return [*lines, checks.clock(ahead_s), checks.versions(version, moorage.__version__)]


def _state(home: Path) -> Line:
    try:
        usage = shutil.disk_usage(home)
    except OSError as error:
        return Line("fail", "state directory", f"{home}: {error.strerror}", "set MOORAGE_HOME")
    return checks.disk("state directory", str(home), usage.free, usage.total, needs=_STATE_NEEDS)


def _listening(agent: AgentSettings) -> list[Line]:
    if not is_free(agent.address, 0):
        advice = "set agent.address to an address or host name of this node"
        return [Line("fail", "kernels' address", f"nothing can listen on {agent.address!r}", advice)]
    low, _, high = agent.port_range.partition("-")
    every = range(int(low), int(high) + 1)
    free = sum(is_free(agent.address, port) for port in every)
    ephemeral = None
    with contextlib.suppress(OSError, ValueError):
        first, last = _EPHEMERAL.read_text().split()
        ephemeral = int(first), int(last)
    return [checks.ports(agent.port_range, agent.address, len(every), free, ephemeral)]


def _limits() -> Line:
    try:
        if (whole := _CGROUPS / "cgroup.controllers").exists():
            return checks.cgroups(2, frozenset(whole.read_text().split()))
        parts = {part for entry in _CGROUPS.iterdir() for part in entry.name.split(",")}
    except OSError:
        return checks.cgroups(0, frozenset())
    return checks.cgroups(1 if parts else 0, frozenset(parts))


def _gpus() -> tuple[str, int, str]:
    """Driver, how many GPUs, and what is wrong."""
    try:
        import pynvml
    except ImportError as error:
        return "", 0, f"{error.name} is not installed"
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion()), int(pynvml.nvmlDeviceGetCount()), ""
    except pynvml.NVMLError as error:
        return "", 0, str(error)


async def _docker(agent: AgentSettings, gpus_here: int) -> list[Line]:
    path = engine_socket(agent.docker)
    if path is None:
        return [Line("ok", "Docker", "agent.docker is off, or on another machine: no containers here")]
    engine = Engine(path)
    try:
        info: dict[str, Any] = await engine.call(lambda api: api.info(), _QUESTION_S)
        version = (await engine.call(lambda api: api.version(), _QUESTION_S))["Version"]
    except RuntimeFailed as error:
        advice = "start it for sessions in containers; or set agent.docker to off"
        return [Line("warn", "Docker", error.message, advice)]
    finally:
        engine.close()
    lines = checks.docker(info, version, gpus_here)
    try:
        usage = shutil.disk_usage(info["DockerRootDir"])
    except (OSError, KeyError):
        return lines  # the engine's data are in a place that we cannot see
    where = str(info["DockerRootDir"])
    return [*lines, checks.disk("Docker's data", where, usage.free, usage.total, needs=_DOCKER_NEEDS)]
