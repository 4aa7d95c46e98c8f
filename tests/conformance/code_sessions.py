"""Sessions whose code runs under the agent's code service without a manager."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from moorage.agent.execution.code.kernel import CodePlace
from moorage.agent.execution.code.service import CodeService
from moorage.agent.runtimes import Handle, Runtime
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId

# Kernelspecs in addition to python3, which ipykernel itself installs.
_SPECS = {
    "bash": {"argv": [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], "language": "bash"},
    "other": {
        "argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "language": "python", "interrupt_mode": "message", "env": {"OTHER": "yes"},
    },
    "broken": {"argv": ["no-such-program", "{connection_file}"], "language": "none"},
    "silent": {"argv": ["sh", "-c", "echo it cannot >&2; exit 4", "{connection_file}"], "language": "quiet"},
    "damaged": {"argv": 7},
}  # fmt: skip


def write_kernelspecs(folder: Path) -> Path:
    """A directory to use as JUPYTER_PATH."""
    for name, spec in _SPECS.items():
        path = folder / "kernels" / name
        path.mkdir(parents=True)
        (path / "kernel.json").write_text(json.dumps(spec | {"display_name": name.title()}))
    return folder


def environment(specs: Path) -> dict[str, str]:
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "JUPYTER_PATH": str(specs),
        "HOME": str(specs),
    }


class CodeSession:
    """One session kernel, and the code service of its agent. ``restart_agent`` makes another
    one."""

    def __init__(
        self, runtime: Runtime, handle: Handle, kernel_id: KernelId, workspace: Path, *, state: Path
    ) -> None:
        self._runtime = runtime
        self._handle = handle
        self._id = kernel_id
        self._workspace = workspace
        self._state = state
        self.alive = [kernel_id]
        self.service = self._new_service()

    def _new_service(self) -> CodeService:
        place = CodePlace(
            lambda command: self._runtime.exec(self._handle, command), self._workspace
        )
        return CodeService(lambda _: place, lambda: self.alive, self._state / "code", SystemClock())

    async def restart_agent(self) -> None:
        await self.service.close()
        self.service = self._new_service()

    async def ask(self, op: str, **fields: Any) -> Any:
        """The answer to a request. Raises the error with which it is refused."""
        answer = await self.service.answer(self._id, json.dumps({"op": op, **fields}))
        output = b""
        while piece := await answer.read():
            output += piece[1]
        if op == "follow":
            return [json.loads(line) for line in output.splitlines()]
        return json.loads(output)

    async def execute(self, code: str, language: str = "python", **fields: Any) -> Any:
        """The first page of a run, and all further pages until it ends or requests input."""
        found = await self.ask("execute", code=code, language=language, **{"wait_s": 20, **fields})
        return await self.finish(found)

    async def finish(self, found: Any) -> Any:
        while found["status"] in ("continued", "build-finished", "clean-finished"):
            more = await self.ask("read", run_id=found["run_id"], after=found["next"], wait_s=20)
            found = more | {"console": found["console"] + more["console"]}
        return found


def text_of(found: Any, kind: str = "stdout") -> str:
    return "".join(
        i["text"] for i in found["console"] if i["type"] == "stream" and i["name"] == kind
    )


def items_of(found: Any, kind: str) -> list[Any]:
    return [item for item in found["console"] if item["type"] == kind]
