"""Reload of a kernel's program: asks the program to reload its settings, and waits for its
acknowledgement.

A kernel has at most one reload at a time. Requests that arrive during a reload are merged into one.
The next run of the agent repeats an unfinished reload.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from moorage.agent.engines.base import bearer_headers
from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.launch import progress_file
from moorage.agent.kernel.progress import read_from, size_of
from moorage.agent.runtimes import Handle, RuntimeFailed
from moorage.agent.runtimes.signals import Signalling, SignalRefused
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import Observation
from moorage.common.model.kernel import KernelReload, KernelSpec, Reloaded
from moorage.common.model.service_ports import app_path

_POLL_S = 0.1
_ANSWER_BYTES = 200
_DETAIL = 300


class ReloadFailed(Exception):
    """The program could not be asked, or reported that it has not reloaded."""


class Reloading:
    """One kernel's reloads. ``wakeup`` is set when a reload has ended."""

    def __init__(self, context: AgentContext, wakeup: asyncio.Event) -> None:
        self._context = context
        self._wakeup = wakeup
        self._wanted = 0
        self._running: asyncio.Task[Reloaded] | None = None

    def want(self, generation: int) -> None:
        self._wanted = max(self._wanted, generation)
        self._wakeup.set()

    def advance(self, record: KernelRecord, seen: Observation) -> KernelRecord:
        """Return the record with the outcome of an ended reload, or unchanged if none has ended.
        Starts the next reload. ``seen``: where the kernel listens."""
        running = self._running
        if running is not None and running.done():
            reloaded = running.result()
            self._running = None
            spec = replace(record.spec, reload_generation=reloaded.generation)
            record = replace(record, spec=spec, reload=reloaded)

        if self._running is None and self._wanted > record.spec.reload_generation:
            work = reload(self._context, record, seen, self._wanted)
            self._running = spawn(f"reload.{record.kernel_id}", work)
            self._running.add_done_callback(lambda _: self._wakeup.set())

        return record

    async def stop(self) -> None:
        running = self._running
        self._running = None
        await cancel_and_wait(running)


async def reload(
    context: AgentContext, record: KernelRecord, seen: Observation, generation: int
) -> Reloaded:
    """Ask the program to reload, and return the outcome."""
    how = record.spec.reload
    handle = record.handle
    if how is None or handle is None:
        return Reloaded(generation, "failed", "its specification has no `reload`")

    progress = _progress_path(context, record.spec) if how.acknowledge == "progress" else None
    try:
        async with asyncio.timeout(how.timeout_s):
            begin = await asyncio.to_thread(size_of, progress) if progress is not None else 0
            if how.signal:
                await send_signal(context, record.spec, handle, how.signal)
            else:
                await _post(record.spec, how, seen)

            if progress is not None:
                await _await_line(progress, begin)
    except TimeoutError:
        return Reloaded(
            generation, "timed-out", f"it has not acknowledged within {how.timeout_s:g} s"
        )
    except (ReloadFailed, SignalRefused, RuntimeFailed, OSError) as error:
        detail = " ".join(str(error).replace("\0", "").split())
        return Reloaded(generation, "failed", detail[:_DETAIL])

    return Reloaded(generation, "reloaded")


def _progress_path(context: AgentContext, spec: KernelSpec) -> Path | None:
    folder = context.progress_folder(spec)
    return None if folder is None else folder / progress_file(spec.kernel_id)


async def send_signal(context: AgentContext, spec: KernelSpec, handle: Handle, name: str) -> None:
    """Send a signal. Raises ``ReloadFailed`` if the runtime cannot send signals, ``SignalRefused``
    and ``RuntimeFailed``."""
    runtime: object = context.runtimes.get(spec.runtime)
    if not isinstance(runtime, Signalling) or not context.capabilities(spec).signals:
        raise ReloadFailed(f"the runtime {spec.runtime} cannot send signals to programs")
    await runtime.signal(handle, name)


async def _post(spec: KernelSpec, how: KernelReload, seen: Observation) -> None:
    """Send the POST request. Raises ``ReloadFailed`` unless the answer is 2xx."""
    # Imported here because it takes 10 MB, which a node with only batch kernels does not need.
    from moorage.agent.kernel.program_client import NoAnswer, ProgramClient

    url, headers = _target(spec, how, seen)
    try:
        async with ProgramClient() as client:
            answer = await client.ask(
                "POST",
                url,
                headers=headers,
                most_bytes=_ANSWER_BYTES,
                timeout_s=how.timeout_s + 1,  # the caller gives up earlier
                whole=False,
            )
    except NoAnswer as error:
        raise ReloadFailed(f"POST {how.path}: {error}") from None

    if not 200 <= answer.status < 300:
        text = answer.body.decode(errors="replace").strip()
        raise ReloadFailed(f"POST {how.path} answered {answer.status} {text}".strip())


def _target(spec: KernelSpec, how: KernelReload, seen: Observation) -> tuple[str, dict[str, str]]:
    """The URL and headers of the request, with the proxy's path and the session's key if the app
    uses them."""
    host = f"[{seen.host}]" if ":" in seen.host else seen.host
    if not how.port and spec.answers_requests:
        if not seen.port:
            raise ReloadFailed("it listens on no port yet")
        return f"http://{host}:{seen.port}{how.path}", bearer_headers(spec)

    apps = [app for app in seen.apps if app.protocol == "http" and how.port in ("", app.name)]
    if len(apps) != 1:
        raise ReloadFailed(
            f"it has {len(apps)} service ports for http called {how.port or 'anything'!r}"
        )

    [app] = apps
    prefix = app_path(spec.session_id, app.name) if app.base_path else ""
    return f"http://{host}:{app.port}{prefix}{how.path}", bearer_headers(
        spec
    ) if app.guarded else {}


async def _await_line(path: Path, begin: int) -> None:
    """Wait for a progress line that acknowledges the reload or reports its failure."""
    while True:
        for line in (await asyncio.to_thread(read_from, path, begin)).splitlines():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue

            if isinstance(value, dict) and isinstance(done := value.get("reloaded"), bool):
                if done:
                    return

                raise ReloadFailed(
                    f"the program reports that it has not reloaded: {value.get('message', '')}"
                )

        await asyncio.sleep(_POLL_S)
