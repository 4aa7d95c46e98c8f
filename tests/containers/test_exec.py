"""Commands in containers with a persistent workspace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.runtimes.execution import Command
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState, SessionType

from .conftest import MakeRuntime, launch

SPEC = KernelSpec(
    KernelId("k1"), SessionId("s1"), "dev", SessionType.INTERACTIVE, "docker", "custom", "dev",
    workspace="keep",
)  # fmt: skip
_LIST = "import os; print(os.getcwd(), os.getuid(), sorted(os.listdir())); open('by-%d' % os.getuid(), 'w')"


async def test_workspace_is_the_working_directory_for_any_user(
    make_runtime: MakeRuntime, reachable_dir: Path
) -> None:
    spaces = Workspaces(reachable_dir / "agent")
    path = spaces.path(SPEC, True)
    assert path is not None

    for user, files in (("4321:4321", "[]"), ("", "['by-4321']")):
        await asyncio.to_thread(spaces.create, SPEC, True, reachable_dir / "unused")
        runtime = make_runtime(user=user)
        handle = await runtime.create(replace(launch(), workspace=str(path)))
        async with asyncio.timeout(20):
            while (observation := await runtime.observe(handle)).state is not ObservedState.RUNNING:
                await runtime.wait(handle, observation.state)

        execution = await runtime.exec(handle, Command(("python3", "-c", _LIST)))
        output = b""
        while piece := await execution.read():
            output += piece[1]

        assert await execution.wait() == 0, output
        execution.disconnect()
        assert output.decode() == f"/workspace {user.partition(':')[0] or 0} {files}\n"
        await runtime.destroy(handle)

    assert sorted(file.name for file in path.iterdir()) == ["by-0", "by-4321"]
    assert await asyncio.to_thread(spaces.remove_kept, SPEC.session_id) is not None
