"""Node diagnostics for ``moorage agent doctor``: makes the measurements that ``checks`` evaluates.

The measurements query the manager, the operating system, NVML and the Docker Engine, and try a
sandbox as an agent does when it starts. They change nothing else on the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import moorage
from moorage.agent.devices.known import GPUS_FILE, KnownDevices
from moorage.agent.devices.nvidia import NvidiaVendor
from moorage.agent.runtimes import ProcessRuntime, RuntimeFailed, plugins, wireguard
from moorage.agent.runtimes.docker import DockerEngine, engine_socket
from moorage.agent.runtimes.docker.cdi_specifications import known_devices
from moorage.agent.runtimes.heappe.runtime import NAME as HEAPPE
from moorage.agent.runtimes.process.isolation import rules_of
from moorage.agent.runtimes.slurm.runtime import NAME as SLURM
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import is_free
from moorage.common.aio.clock import Clock
from moorage.common.config.settings import AgentSettings, Settings
from moorage.common.link.dial import dialer_for
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_addresses
from moorage.common.model.errors import ConfigError, StartupError
from moorage.server.bootstrap import LocalAgents
from moorage.server.doctor import checks
from moorage.server.doctor.checks import GIB, CheckResult, Status
from moorage.server.doctor.gpus import check_driver
from moorage.server.doctor.heappe import check_heappe
from moorage.server.doctor.shared_disk import check_shared_disk
from moorage.server.doctor.slurm import check_slurm

# Minimum free space: for models and logs in the state directory, for images and layers in Docker's
# directory.
_STATE_BYTES = 10 * GIB
_DOCKER_BYTES = 50 * GIB
_DOCKER_TIMEOUT_S = 5.0
_MANAGER_TIMEOUT_S = 5.0
_CGROUPS = Path("/sys/fs/cgroup")
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


async def check_agents(
    settings: Settings, agents: LocalAgents, home: Path, token: str, *, clock: Clock
) -> list[CheckResult]:
    """Check every agent on this node. Sites are checked concurrently, and their results have their
    agents' ids."""
    found = await asyncio.gather(
        *(
            check_node(settings.model_copy(update={"agent": agent}), home, token, clock)
            for agent in agents.settings
        )
    )
    return [
        replace(result, name=f"{agent.id}: {result.name}") if agents.of_sites else result
        for agent, results in zip(agents.settings, found, strict=True)
        for result in results
    ]


async def check_node(settings: Settings, home: Path, token: str, clock: Clock) -> list[CheckResult]:
    """All check results, most important first. ``settings``: the settings with the registration
    applied."""
    known = KnownDevices(_state_of(settings.agent, home) / GPUS_FILE)
    gpus = await asyncio.to_thread(lambda: NvidiaVendor(known).report())
    results = [*await _manager(settings, home, token, clock), _state_directory(home)]
    results += await asyncio.to_thread(_listening, settings.agent)
    if any(plugins.load(name).site for name in settings.agent.runtimes):
        return results + await _sites(settings.agent, home, clock)
    if (home / "postgres").exists():
        results += check_shared_disk(settings, home)

    results += await _isolation(settings.agent, home)
    results += [_cgroups(), check_driver(gpus, configured=settings.agent.gpus is not None)]
    return results + await _docker(settings.agent, len(gpus.offers))


async def _manager(settings: Settings, home: Path, token: str, clock: Clock) -> list[CheckResult]:
    agent = settings.agent
    common = settings.common
    name = agent.id or socket.gethostname()
    results = []
    targets = split_addresses(agent.manager)

    try:
        file = identity_file(home, "agent", name)
        identity = file.load()
        if identity is not None:
            results.append(
                checks.certificate(identity.ends, clock.now(), identity.name, str(file.path))
            )

        dialer = dialer_for(
            "agent",
            name,
            agent.manager,
            link_tls=common.link_tls,
            token=token,
            home=home,
            manager_home=common.manager_home,
            clock=clock,
        )
    except (ConfigError, StartupError) as error:
        return [*results, _unreachable(error)]

    answers = await asyncio.gather(
        *(dialer.hello(_MANAGER_TIMEOUT_S, target) for target in targets), return_exceptions=True
    )
    one_answers = any(isinstance(answer, tuple) for answer in answers)
    authentication = "mTLS" if dialer.has_tls else "the link token, without TLS"
    if dialer.asks_for_proof:
        authentication = "the link token, over the manager's Unix socket"

    for target, answer in zip(targets, answers, strict=True):
        if isinstance(answer, ConfigError | StartupError):
            results.append(_unreachable(answer, "warn" if one_answers else "fail"))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            version, ahead_s = answer
            results.append(CheckResult("ok", "manager", f"{target}, by {authentication}"))
            results += [checks.clock(ahead_s), checks.versions(version, moorage.__version__)]

    return results


def _unreachable(error: ConfigError | StartupError, status: Status = "fail") -> CheckResult:
    next_step = (
        error.next_step or "check agent.manager, and whether a firewall blocks the connection"
    )
    return CheckResult(status, "manager", error.message, next_step)


def _state_of(agent: AgentSettings, home: Path) -> Path:
    return home / f"agent-{agent.id or socket.gethostname()}"


def _state_directory(home: Path) -> CheckResult:
    try:
        usage = shutil.disk_usage(home)
    except OSError as error:
        return CheckResult(
            "fail", "state directory", f"{home}: {error.strerror}", "set MOORAGE_HOME"
        )
    return checks.disk("state directory", str(home), usage.free, usage.total, needed=_STATE_BYTES)


def _listening(agent: AgentSettings) -> list[CheckResult]:
    if not is_free(agent.address, 0):
        next_step = "set agent.address to an address or host name of this node"
        return [
            CheckResult(
                "fail", "kernels' address", f"cannot listen on {agent.address!r}", next_step
            )
        ]

    low, _, high = agent.port_range.partition("-")
    candidates = range(int(low), int(high) + 1)
    free = sum(is_free(agent.address, port) for port in candidates)
    ephemeral = None
    with contextlib.suppress(OSError, ValueError):
        first, last = _EPHEMERAL_RANGE.read_text().split()
        ephemeral = int(first), int(last)

    return [
        checks.ports(
            agent.port_range, agent.address, total=len(candidates), free=free, ephemeral=ephemeral
        )
    ]


async def _sites(agent: AgentSettings, home: Path, clock: Clock) -> list[CheckResult]:
    """Checks for an agent that submits jobs, whose kernels do not run on this node."""
    state = _state_of(agent, home)
    checks_of = {
        SLURM: lambda: check_slurm(agent, state),
        HEAPPE: lambda: check_heappe(agent, state, clock),
    }
    found = [await checks_of[name]() for name in agent.runtimes if name in checks_of]
    return [result for results in found for result in results]


async def _isolation(agent: AgentSettings, home: Path) -> list[CheckResult]:
    if ProcessRuntime.name not in agent.runtimes:
        return []

    with tempfile.TemporaryDirectory(
        dir=home
    ) as folder:  # on the disk that holds the agent's state
        state = Path(folder)
        limits = {"log_max_bytes": agent.log_max_bytes, "log_keep_files": 1}
        runtime = ProcessRuntime(state, LogStore(state), **limits, isolation=rules_of(agent, home))
        try:
            return [checks.isolation((await runtime.probe()).detail)]
        except RuntimeFailed as error:
            return [CheckResult("fail", "processes", error.message, error.next_step)]
        finally:
            runtime.close()


def _cgroups() -> CheckResult:
    try:
        unified = _CGROUPS / "cgroup.controllers"
        if unified.exists():
            return checks.cgroups(2, frozenset(unified.read_text().split()))
        # Version 1 mounts one directory per controller; some directories hold several, such as
        # "cpu,cpuacct".
        controllers = {name for entry in _CGROUPS.iterdir() for name in entry.name.split(",")}
    except OSError:
        return checks.cgroups(0, frozenset())
    return checks.cgroups(1 if controllers else 0, frozenset(controllers))


async def _docker(agent: AgentSettings, gpu_count: int) -> list[CheckResult]:
    socket_path = engine_socket(agent.docker)
    if socket_path is None:
        detail = "agent.docker is off or names another machine: no containers on this node"
        return [CheckResult("ok", "Docker", detail)]

    engine = DockerEngine(socket_path)
    try:
        info: dict[str, Any] = await engine.call(lambda api: api.info(), _DOCKER_TIMEOUT_S)
        version = (await engine.call(lambda api: api.version(), _DOCKER_TIMEOUT_S))["Version"]
    except RuntimeFailed as error:
        next_step = "start it to run sessions in containers, or set agent.docker to off"
        return [CheckResult("warn", "Docker", error.message, next_step)]
    finally:
        engine.close()

    cdi = await asyncio.to_thread(known_devices, info) if gpu_count else ()
    results = checks.docker(info, version, gpu_count, tuple(cdi))
    if agent.docker_multi_node == "wireguard":
        results.append(
            checks.cluster_networks(await asyncio.to_thread(wireguard.missing_requirement))
        )

    try:
        usage = shutil.disk_usage(info["DockerRootDir"])
    except (OSError, KeyError):
        return results  # the engine's data directory is not visible from here

    root = str(info["DockerRootDir"])
    return [
        *results,
        checks.disk("Docker's data", root, usage.free, usage.total, needed=_DOCKER_BYTES),
    ]
