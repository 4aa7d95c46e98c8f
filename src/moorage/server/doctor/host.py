"""``moorage doctor``: what this machine has and lacks, and how to get it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shlex
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from moorage.common.config.settings import Settings
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import MoorageError
from moorage.common.model.slots import show_amount


@dataclass(frozen=True)
class Finding:
    """``mark``: ok, missing (something cannot work), or absent (something optional is not there)."""

    mark: str
    name: str
    found: str
    advice: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """All findings, in the order in which they matter."""
    home = settings.common.home.expanduser()
    return [
        _python(),
        _home(home),
        _postgres(settings),
        _llamacpp(),
        _vllm(settings),
        await asyncio.to_thread(_gpus),
        await _docker(settings),
        await _answers("manager", settings.manager.listen, "/readyz"),
        await _answers("proxy", settings.proxy.internal_listen, "/readyz"),
        _address("kernels' address", settings.agent.address),
    ]


def _python() -> Finding:
    return Finding("ok", "Python", platform.python_version())


def _home(home: Path) -> Finding:
    there = home
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK):
        return Finding("missing", "state directory", f"{home} cannot be written", "set MOORAGE_HOME")
    free = shutil.disk_usage(there).free
    low = free < 2 * 1024**3
    advice = "less than 2 GiB: models and logs need room" if low else ""
    return Finding(
        "missing" if low else "ok", "state directory", f"{home}, {show_amount('mem', free)} free", advice
    )


def _postgres(settings: Settings) -> Finding:
    if settings.manager.dsn is not None:
        return Finding("ok", "Postgres", "as manager.dsn says")
    try:
        from moorage.manager.postgres.binaries import find, server_user

        found = find(settings.manager.postgres_bin, server_user(), major=None)
    except ImportError as error:
        return Finding(
            "absent", "Postgres", f"no manager here ({error.name})", "pip install 'moorage[manager]'"
        )
    except MoorageError as error:
        return Finding("missing", "Postgres", error.message, error.next_step)
    return Finding("ok", "Postgres", f"embedded: version {found.major} in {found.bin_dir}")


def _llamacpp() -> Finding:
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding("absent", "engine llamacpp", "not installed", "pip install 'moorage[llamacpp]'")
    return Finding("ok", "engine llamacpp", "installed: serves GGUF files, needs no GPU")


def _vllm(settings: Settings) -> Finding:
    program = shlex.split(settings.agent.vllm_command)[0]
    path = shutil.which(program)
    if path is None:
        return Finding(
            "absent",
            "engine vllm",
            f"{program!r} is not on PATH",
            "install vLLM, and set agent.vllm_command if it lives in its own environment",
        )
    return Finding("ok", "engine vllm", path)


def _gpus() -> Finding:
    try:
        import pynvml
    except ImportError:
        return Finding("absent", "NVIDIA GPUs", "cannot be looked for", "pip install 'moorage[agent]'")
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        names = {str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)}
    except pynvml.NVMLError as error:
        return Finding("absent", "NVIDIA GPUs", f"none ({error})", "sessions without GPUs use CPU slots")
    return Finding("ok", "NVIDIA GPUs", f"{count} × {', '.join(sorted(names))}")


async def _docker(settings: Settings) -> Finding:
    try:
        from moorage.agent.runtimes import RuntimeFailed
        from moorage.agent.runtimes.docker import Engine, engine_socket
    except ImportError as error:
        return Finding("absent", "Docker", f"no agent here ({error.name})", "pip install 'moorage[agent]'")
    socket_path = engine_socket(settings.agent.docker)
    if socket_path is None:
        return Finding("absent", "Docker", "agent.docker: off, or not on this node", "")
    engine = Engine(socket_path)
    try:
        version = await engine.call(lambda api: api.version(), 5)
    except RuntimeFailed as error:
        return Finding("absent", "Docker", error.message, "not needed: kernels run as processes")
    finally:
        engine.close()
    found = f"engine {version['Version']} at {socket_path}: sessions with an image can run here"
    return Finding("ok", "Docker", found)


async def _answers(name: str, address: str, path: str) -> Finding:
    host, port = split_address(address)
    try:
        timeout = aiohttp.ClientTimeout(total=2)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(f"http://{host}:{port}{path}") as answer,
        ):
            text = (await answer.text())[:200]
            return Finding(
                "ok" if answer.status == 200 else "missing", name, f"{address}: {answer.status} {text}"
            )
    except (aiohttp.ClientConnectorError, OSError):
        return Finding("absent", name, f"nothing listens on {address}", "`moorage up` starts everything")
    except (aiohttp.ClientError, TimeoutError):
        return Finding(
            "missing",
            name,
            f"something else listens on {address}",
            "stop it, or choose another address in the settings",
        )


def _address(name: str, host: str) -> Finding:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return Finding(
            "missing", name, f"{host!r}: {error}", "set agent.address to a name or IP of this node"
        )
    return Finding("ok", name, host)
