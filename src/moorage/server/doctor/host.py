"""Host diagnostics for ``moorage doctor``: which parts of Moorage can run on this machine.

It works whichever extras are installed. ``node`` checks an agent's node more thoroughly.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import shlex
import shutil
import socket
from pathlib import Path

import aiohttp

from moorage.common.config.settings import Settings
from moorage.common.model.errors import MoorageError
from moorage.common.model.extras import explain_import_error
from moorage.common.model.slots import format_amount
from moorage.server.doctor.checks import GIB, CheckResult
from moorage.server.doctor.shared_disk import check_shared_disk

_MIN_FREE_BYTES = 2 * GIB
_TIMEOUT_S = 2.0


async def check_host(settings: Settings, manager_url: str = "") -> list[CheckResult]:
    """All check results, most important first. ``manager_url``: the manager's address, if it
    differs from the one in the settings."""
    home = settings.common.home.expanduser()
    has_tls = settings.manager.tls_certificate is not None or settings.common.tls == "ca"
    scheme = "https" if has_tls else "http"

    return [
        _python(),
        _home(home),
        _postgres(settings),
        _llamacpp(),
        _vllm(settings),
        await asyncio.to_thread(_gpus),
        await _docker(settings),
        await _endpoint("manager", manager_url or f"{scheme}://{settings.manager.listen}"),
        await _endpoint("proxy", f"http://{settings.proxy.internal_listen}"),
        _agent_address("kernels' address", settings.agent.address),
        *check_shared_disk(settings, home),
    ]


def _python() -> CheckResult:
    return CheckResult("ok", "Python", platform.python_version())


def _home(home: Path) -> CheckResult:
    existing = home
    while not existing.exists():
        existing = existing.parent

    if not os.access(existing, os.W_OK):
        return CheckResult(
            "missing", "state directory", f"{home} is not writable", "set MOORAGE_HOME"
        )

    free = shutil.disk_usage(existing).free
    detail = f"{home}, {format_amount('mem', free)} free"
    if free < _MIN_FREE_BYTES:
        next_step = (
            f"free some space: models and logs need {format_amount('mem', _MIN_FREE_BYTES)} or more"
        )
        return CheckResult("missing", "state directory", detail, next_step)

    return CheckResult("ok", "state directory", detail)


def _postgres(settings: Settings) -> CheckResult:
    if settings.manager.dsn is not None:
        return CheckResult("ok", "Postgres", "configured by manager.dsn")

    try:
        from moorage.manager.postgres.binaries import find_binaries, server_user

        found = find_binaries(settings.manager.postgres_bin, server_user(), major=None)
    except ImportError as error:
        return CheckResult(
            "absent",
            "Postgres",
            f"the manager is not installed ({error.name})",
            "pip install 'moorage[manager]'",
        )
    except MoorageError as error:
        return CheckResult("missing", "Postgres", error.message, error.next_step)

    return CheckResult("ok", "Postgres", f"embedded: version {found.major} in {found.bin_dir}")


def _llamacpp() -> CheckResult:
    try:
        importlib.import_module("xllamacpp")
    except ImportError as error:
        missing, next_step = explain_import_error(error, "llamacpp")
        return CheckResult("absent", "engine llamacpp", f"needs {missing}", next_step)
    return CheckResult("ok", "engine llamacpp", "installed: serves GGUF files without a GPU")


def _vllm(settings: Settings) -> CheckResult:
    program = shlex.split(settings.agent.vllm_command)[0]
    path = shutil.which(program)
    if path is None:
        return CheckResult(
            "absent",
            "engine vllm",
            f"{program!r} is not on PATH",
            "`moorage agent install-engine vllm`; if vLLM has its own environment, set "
            "agent.vllm_command",
        )

    return CheckResult("ok", "engine vllm", path)


def _gpus() -> CheckResult:
    try:
        from moorage.agent.devices.nvidia import NvidiaVendor
        from moorage.server.doctor.gpus import check_host_gpus
    except ImportError as error:
        next_step = "pip install 'moorage[agent]'"
        return CheckResult("absent", "NVIDIA GPUs", f"cannot be detected ({error.name})", next_step)
    return check_host_gpus(NvidiaVendor().report())


async def _docker(settings: Settings) -> CheckResult:
    try:
        from moorage.agent.runtimes import RuntimeFailed
        from moorage.agent.runtimes.docker import DockerEngine, engine_socket
    except ImportError as error:
        return CheckResult(
            "absent",
            "Docker",
            f"the agent is not installed ({error.name})",
            "pip install 'moorage[agent]'",
        )

    socket_path = engine_socket(settings.agent.docker)
    if socket_path is None:
        return CheckResult("absent", "Docker", "agent.docker is off or names another machine")

    engine = DockerEngine(socket_path)
    try:
        version = await engine.call(lambda api: api.version(), 5)
    except RuntimeFailed as error:
        return CheckResult(
            "absent", "Docker", error.message, "not needed: kernels run as processes"
        )
    finally:
        engine.close()

    found = f"engine {version['Version']} at {socket_path}: sessions with an image can run here"
    return CheckResult("ok", "Docker", found)


async def _endpoint(name: str, url: str) -> CheckResult:
    address = url.partition("://")[2].rstrip("/")
    try:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(f"{url.rstrip('/')}/readyz", ssl=False) as response,
        ):
            text = (await response.text())[:200]
            return CheckResult(
                "ok" if response.status == 200 else "missing",
                name,
                f"{address}: {response.status} {text}",
            )
    except (aiohttp.ClientConnectorError, OSError):
        return CheckResult(
            "absent", name, f"nothing listens on {address}", "`moorage up` starts everything"
        )
    except (aiohttp.ClientError, TimeoutError):
        return CheckResult(
            "missing",
            name,
            f"something else listens on {address}",
            "stop that program, or set another address",
        )


def _agent_address(name: str, host: str) -> CheckResult:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return CheckResult(
            "missing", name, f"{host!r}: {error}", "set agent.address to a name or IP of this node"
        )
    return CheckResult("ok", name, host)
