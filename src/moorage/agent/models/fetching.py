"""Model download step: whether a kernel needs it, the program that performs it, and its progress.

This step is the only writer of a cache that several tenants read. Their kernels choose neither
where it writes nor which hub and token are used to fill such a cache.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.agent.runtimes.base import MODELS, CreateFailed
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.hub import HubSettings, is_hub_id
from moorage.common.hub.cache import cached_snapshot, repository_folder, weight_files
from moorage.common.hub.selection import find_complete, is_gguf_id
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.slots import format_amount

PROGRAM = ("-P", str(Path(__file__).with_name("download.py")))
# The kernel's variables for the hub and for proxies. Others are left out because the kernel's
# program does not run the download.
_OF_KERNEL = (
    "HF_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
_STOP_S = 5.0
# Branches, tags and commits, also in namespaces like refs/pr/1. The program uses them as file
# names.
_REVISION = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
# Any user in a container can read its model. Only the agent can write it.
_READABLE_UMASK = 0o022


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A fetched model. ``path``: the path that the engine loads. ``folder``: the directory on the
    node that the container mounts read-only below ``MODELS``; empty for a process."""

    path: str
    folder: str = ""


def is_fetched(spec: KernelSpec) -> bool:
    """Return whether the agent fetches the kernel's model: the model is an id on a hub, and
    huggingface-hub is installed. Otherwise, the engine fetches it if it can."""
    if spec.engine == "llamacpp":
        return is_gguf_id(spec.model)
    return _loads_from_hub(spec) and _is_installed()


def is_shared(spec: KernelSpec) -> bool:
    """Return whether a container loads its model from the cache that all of the node's containers
    read. A model from a member's own hub or token is not shared, because it is only for the
    member's project, and the engine downloads it inside its container."""
    own_hub = spec.isolated and any(name.startswith("HF_") for name in spec.env)
    return _loads_from_hub(spec) and not own_hub


def _loads_from_hub(spec: KernelSpec) -> bool:
    by_engine = spec.env.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true")
    return spec.engine == "vllm" and is_hub_id(spec.model) and not by_engine


def find_unfetchable(spec: KernelSpec) -> str:
    """Why the agent cannot fetch a model that it must fetch; empty if no obstacle is known."""
    if spec.engine == "llamacpp" and is_gguf_id(spec.model) and not _is_installed():
        return f"the model {spec.model!r} is on a hub: pip install 'moorage[hub]' on this node"
    return ""


async def fetch(
    spec: KernelSpec, agent_env: Mapping[str, str], on_progress: Callable[[str], None]
) -> str:
    """Fetch a kernel's model into this node's cache; return its directory, or its file for GGUF.

    A model that was completely fetched at this revision is used unchanged, without asking the hub.
    Cancelling the call stops the download, and the next call continues it. Raises ``CreateFailed``.
    """
    return await _fetch(spec, _environment(agent_env, spec.env), on_progress)


async def fetch_shared(
    spec: KernelSpec, cache: Path, agent_env: Mapping[str, str], on_progress: Callable[[str], None]
) -> FetchedModel | None:
    """Fetch a container's model into ``cache``, as ``fetch`` does. None means that huggingface-hub
    is not installed and the cache lacks the model, so the engine downloads it inside the container.

    The kernel's variables are used only if its owner is an administrator, because the model is
    shared by all tenants.
    """
    hub_cache = cache / "huggingface" / "hub"
    env = _environment(agent_env, {} if spec.isolated else spec.env) | {
        "HF_HUB_CACHE": str(hub_cache)
    }
    if _is_installed():
        found: Path | None = Path(await _fetch(spec, env, on_progress, umask=_READABLE_UMASK))
    else:
        found = await asyncio.to_thread(_find_snapshot, hub_cache, spec.model, _revision(spec))

    if found is None:
        return None

    folder = repository_folder(hub_cache, spec.model)
    return FetchedModel(f"{MODELS}/{folder.name}/{found.relative_to(folder)}", str(folder))


def _find_snapshot(cache: Path, model: str, revision: str) -> Path | None:
    """Find a model, with its weights, that was put into the cache by other means."""
    snapshot = cached_snapshot(cache, model, revision)
    return snapshot if snapshot and weight_files(path.name for path in snapshot.iterdir()) else None


async def _fetch(
    spec: KernelSpec,
    env: Mapping[str, str],
    on_progress: Callable[[str], None],
    umask: int | None = None,
) -> str:
    """Fetch a model. ``umask``: the umask for its files; None means the agent's."""
    hub = HubSettings.from_environment(env)
    revision = _revision(spec)
    found = await asyncio.to_thread(find_complete, hub.cache, spec.model, revision)
    if found is not None:
        return str(found)

    on_progress("downloading")
    # The program sets the umask itself, because uvloop cannot.
    umasks = () if umask is None else (f"{umask:o}",)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *PROGRAM, spec.model, revision, *umasks),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    errors = spawn(f"download-errors.{spec.kernel_id}", _read_end(process.stderr))
    try:
        last = await _follow(process, on_progress)
        await process.wait()
        tail = (await errors).decode(errors="replace").strip().rpartition("\n")[2]
    finally:
        await _end(process)
        await cancel_and_wait(errors)

    if path := last.get("path"):
        return str(path)

    detail = str(
        last.get("error") or tail or f"the download ended with status {process.returncode}"
    )
    reason = Reason.DISK_FULL if last.get("reason") == "disk-full" else Reason.MODEL_MISSING
    raise CreateFailed(detail, reason=reason)


def describe(done: int, total: int) -> str:
    return f"downloading: {min(100, 100 * done // max(1, total))}% of {format_amount('mem', total)}"


async def _follow(
    process: asyncio.subprocess.Process, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Follow the output and return the last line that is not progress."""
    assert process.stdout is not None
    last: dict[str, Any] = {}
    async for line in process.stdout:
        try:
            found = json.loads(line)
        except ValueError:
            continue

        if "total" in found:
            on_progress(describe(found["done"], found["total"]))
        else:
            last = found

    return last


async def _read_end(stream: asyncio.StreamReader | None, limit: int = 4096) -> bytes:
    assert stream is not None
    end = b""
    while piece := await stream.read(limit):
        end = (end + piece)[-limit:]
    return end


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, number)
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except (ProcessLookupError, TimeoutError):
            continue


def _environment(agent_env: Mapping[str, str], kernel_env: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment with the kernel's own settings for the hub, such as its token."""
    ours = {name: value for name, value in agent_env.items() if not name.startswith("MOORAGE_")}
    given = {name: value for name, value in kernel_env.items() if name.startswith(_OF_KERNEL)}
    return ours | given | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def _revision(spec: KernelSpec) -> str:
    """The branch, tag or commit that ``--revision`` names. Raises ``CreateFailed``."""
    revision = "main"
    for index, word in enumerate(spec.args):
        name, equals, value = word.partition("=")
        if name == "--revision":
            revision = (value if equals else next(iter(spec.args[index + 1 :]), "")) or "main"
            break

    if not _REVISION.fullmatch(revision):
        raise CreateFailed(
            f"--revision {revision!r} is not a branch, tag or commit of a model",
            reason=Reason.MODEL_MISSING,
            clean=True,
        )

    return revision


def _is_installed() -> bool:
    return importlib.util.find_spec("huggingface_hub") is not None
