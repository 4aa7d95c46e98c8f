"""Runtime ``celery``: invokes a task for each kernel, in a separate worker with the planned
devices.

A kernel is a process on the node under the process runtime's supervisor, so it outlives the agent,
and is stopped, logged and measured like any process. The program is ``task_runner.py``, which needs
Celery and the application, but not Moorage. It submits the task under the kernel's id, runs a
prefork worker for its queue, and exits with the task.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass, replace
from pathlib import Path

from moorage.agent.runtimes.base import (
    CreateFailed,
    Handle,
    Isolation,
    Launch,
    RuntimeFailed,
)
from moorage.agent.runtimes.celery.task import CeleryTask, parse_task
from moorage.agent.runtimes.process.runtime import ProcessRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import KernelId

NAME = "celery"
_RUNNER = Path(__file__).with_name("task_runner.py")
_CHECK_S = 30.0
_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True)
class Application:
    """A Celery application. ``name``: as in ``celery -A``. ``workdir``: added to the import path.
    ``python``: an interpreter with Celery and the application's imports."""

    name: str
    workdir: str = ""
    python: str = sys.executable

    @property
    def env(self) -> dict[str, str]:
        return {"MOORAGE_CELERY_APP": self.name, "MOORAGE_CELERY_WORKDIR": self.workdir}


class CeleryRuntime(ProcessRuntime):
    """The runtime. ``state``: a separate directory, so that it does not mistake the process
    runtime's kernels for its own."""

    name = NAME
    capabilities = replace(ProcessRuntime.capabilities, signals=False)

    def __init__(
        self,
        state: Path,
        logs: LogStore,
        app: Application,
        *,
        log_max_bytes: int,
        log_keep_files: int,
    ) -> None:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        super().__init__(state, logs, log_max_bytes=log_max_bytes, log_keep_files=log_keep_files)
        self._app = app
        self._brokers: list[tuple[str, int]] = []

    async def probe(self) -> Isolation:
        if not self._brokers:
            await super().probe()
            self._brokers = await self._load()

        problem = ""
        for host, port in self._brokers:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    _, writer = await asyncio.open_connection(host, port)

                writer.close()
                break
            except (OSError, TimeoutError) as error:
                problem = f"{host}:{port}: {error or 'no answer'}"
        else:
            raise RuntimeFailed(
                f"the broker of the Celery application {self._app.name} does not answer: {problem}",
                next_step="start the broker, or correct the application's broker_url",
            )

        return Isolation.of("tasks of a Celery application share its broker with each other", "")

    async def create(self, launch: Launch) -> Handle:
        if launch.isolated:
            raise CreateFailed("the runtime celery is for administrators only", clean=True)

        try:
            task = parse_task(launch.argv)
        except InvalidInput as error:
            raise CreateFailed(error.message, clean=True, next_step=error.next_step) from None

        argv = (self._app.python, str(_RUNNER), *_arguments(task, launch.kernel_id))
        return self._own(
            await super().create(replace(launch, argv=argv, env=launch.env | self._app.env))
        )

    async def find(self) -> dict[KernelId, Handle]:
        return {
            kernel_id: self._own(handle) for kernel_id, handle in (await super().find()).items()
        }

    def _own(self, handle: Handle) -> Handle:
        return replace(handle, runtime=self.name)

    async def _load(self) -> list[tuple[str, int]]:
        """Load the application and return the hosts and ports of its brokers. Raises
        ``RuntimeFailed`` if it cannot be loaded."""
        env = {"PATH": os.environ.get("PATH", os.defpath)} | self._app.env
        try:
            process = await asyncio.create_subprocess_exec(
                self._app.python,
                str(_RUNNER),
                "--check",
                env=env,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise RuntimeFailed(
                f"agent.celery_python = {self._app.python}: {error.strerror}",
                next_step="name an interpreter that has Celery and the application's imports",
            ) from error

        try:
            async with asyncio.timeout(_CHECK_S):
                output, errors = await process.communicate()
        except TimeoutError:
            output = b""
            errors = b"no end after %d s" % _CHECK_S
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

        lines = output.decode(errors="replace").splitlines()
        try:
            return [(str(host), int(port)) for host, port in json.loads(lines[-1])["brokers"]]
        except (IndexError, KeyError, ValueError, TypeError):
            cause = errors.decode(errors="replace").strip().rpartition("\n")[2] or "no output"
            raise RuntimeFailed(
                f"the Celery application {self._app.name} cannot be loaded: {cause}",
                next_step="correct agent.celery_app, agent.celery_workdir or agent.celery_python",
            ) from None


def _arguments(task: CeleryTask, kernel_id: KernelId) -> tuple[str, ...]:
    return (
        task.name,
        json.dumps(task.args),
        json.dumps(task.kwargs),
        f"{task.queue}.{kernel_id}",
        kernel_id,
    )
