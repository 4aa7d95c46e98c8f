"""Code in containers: the code kernel and its sockets are in the workspace."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.common.model.status import ObservedState
from tests.conformance.code_sessions import CodeSession, items_of, text_of

from .conftest import MakeRuntime, launch
from .test_exec import SPEC

_ENV = {"LD_LIBRARY_PATH": "/opt/python/lib:/workspace/lib"}
_ENV |= {
    "PYTHONPATH": "/workspace/site",
    "JUPYTER_PATH": "/workspace/jupyter",
    "HOME": "/workspace",
}


def bring_ipykernel(workspace: Path) -> None:
    """The image has only Python: this adds ipykernel and its dependencies, as `pip install
    --target` installs them."""
    wanted = ["ipykernel"]
    copied = set[str]()
    while wanted:
        name = wanted.pop()
        if name in copied:
            continue

        copied.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform

        wanted += [
            match[0].lower()
            for line in found.requires or ()
            if "extra ==" not in line and (match := re.match(r"[A-Za-z0-9._-]+", line))
        ]
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = workspace / "site" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found.locate_file(file), target)

    (workspace / "lib").mkdir()
    site = workspace / "site"
    for program in (*(site / "zmq").rglob("*.so"), *(site / "pyzmq.libs").iterdir()):
        listed = subprocess.run(
            ["ldd", str(program)], capture_output=True, text=True, check=False
        ).stdout
        for library in re.findall(r"=> (/(?:usr/)?lib/\S+)", listed):
            shutil.copy(library, workspace / "lib")

    folder = workspace / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    argv = ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "language": "python"}))


# It copies ipykernel and all its dependencies twice: 16 s on idle cores, and five times as long on
# busy ones.
@pytest.mark.timeout(300)
async def test_code_in_a_container_of_any_user(
    make_runtime: MakeRuntime, reachable_dir: Path
) -> None:
    spaces = Workspaces(reachable_dir / "agent")
    path = spaces.path(SPEC, True)
    assert path is not None

    for user in ("4321:4321", ""):
        await asyncio.to_thread(spaces.create, SPEC, True, reachable_dir / "unused")
        await asyncio.to_thread(bring_ipykernel, path)
        runtime = make_runtime(user=user)
        started = replace(launch(slots={"mem": 512 << 20}), workspace=str(path), env=_ENV)
        handle = await runtime.create(started)
        async with asyncio.timeout(20):
            while (observation := await runtime.observe(handle)).state is not ObservedState.RUNNING:
                await runtime.wait(handle, observation.state)

        session = CodeSession(
            runtime, handle, started.kernel_id, path, state=reachable_dir / "state"
        )
        first = await session.execute("import os\nx = os.getuid()\nprint(os.getcwd())")
        assert (first["status"], text_of(first)) == ("finished", "/workspace\n"), first["reason"]
        result = items_of(await session.execute("x"), "result")[0]["data"]["text/plain"]
        assert result == (user.partition(":")[0] or "0")
        run = await session.ask("execute", code="while True: pass", language="python", wait_s=0.5)
        await session.ask("interrupt", run_id=run["run_id"])
        assert items_of(await session.finish(run), "error")[0]["name"] == "KeyboardInterrupt"
        died = await session.execute("os._exit(5)")
        assert "exit code 5" in died["reason"]
        await session.service.close()
        await runtime.destroy(handle)
        assert await asyncio.to_thread(spaces.remove_kept, SPEC.session_id) is not None
