"""Parts of the sandbox of process kernels, each looked at on its own: what one of them would let through, another
often stops as well."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.agent.runtimes.execution import Command
from moorage.common.model.service_ports import AppPort

from .conftest import Node, launch, until_exited


@pytest.mark.parametrize("how", ["kernel", "kernel with ports", "exec"])
async def test_environment_of_a_kernel_does_not_reach_its_supervisors(node: Node, how: str) -> None:
    """The dynamic linker of a program that runs as root would write files, or load libraries."""
    runtime = await node.start()
    trace = node.home / "traces"
    trace.mkdir()
    hostile = {"PATH": "/usr/bin:/bin", "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{trace}/of"}
    apps = (AppPort("lab", 40_000),) if how == "kernel with ports" else ()
    if how == "exec":
        handle = await runtime.create(launch("sleep", "600"))
        command = await runtime.exec(handle, Command(("true",), hostile, False, False, 0, 0))
        while await command.read():
            pass
        assert await command.wait() == 0
    else:
        handle = await runtime.create(launch("true", env=hostile, apps=apps))
        await until_exited(runtime, handle)
    assert [path.name for path in trace.iterdir()] == []
