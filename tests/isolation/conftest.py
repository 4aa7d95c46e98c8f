"""Fixtures of the isolation tests. All tests in this directory are marked ``isolation``."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Handle, Launch, ProcessRuntime, Runtime
from moorage.agent.runtimes.process.isolation import IsolationRules
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S

HOSTILE = Path(__file__).with_name("hostile.py")
PATH = "/usr/local/bin:/usr/bin:/bin"
# A range that only these tests use, so that an agent on this machine has a different one.
UIDS = range(1_950_000_000, 1_950_000_100)
ALLOWED_PORT = 27_999
UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers").exists()
"""Whether this node has only cgroup v2."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.isolation)


@dataclass
class Node:
    """An agent's runtime below ``home``, the state directory of an installation."""

    home: Path
    runtimes: list[ProcessRuntime] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.home / "agent-one"

    async def start(self, **rules: Any) -> ProcessRuntime:
        """A runtime like that of a newly started agent."""
        rules = {"of": "all", "uids": UIDS, "ports": (ALLOWED_PORT,), "pids": 64} | rules
        runtime = ProcessRuntime(
            self.state,
            LogStore(self.state / "logs"),
            log_max_bytes=1 << 20,
            log_keep_files=1,
            isolation=IsolationRules(hidden=(str(self.home),), **rules),
        )
        self.runtimes.append(runtime)
        capabilities = await runtime.probe()
        assert capabilities.isolates, capabilities.detail

        return runtime

    async def close(self) -> None:
        if self.runtimes:
            newest = self.runtimes[-1]
            for handle in (await newest.find()).values():
                await newest.destroy(handle)

        for runtime in self.runtimes:
            runtime.close()

        left = mounts(self.state)
        for folder in left:
            subprocess.run(["umount", "--lazy", folder], check=True)

        assert left == [], "disks of kernels"


def mounts(below: Path) -> list[str]:
    """The mount points, the latest last."""
    return [
        fields[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if (fields := line.split())[4].startswith(f"{below}/")
    ]


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A state directory containing the secrets of a manager and an agent."""
    home = tmp_path / "home"
    for name in ("admin-key", "link-token", "postgres/password", "agent-one/identity.json"):
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text("secret")
        # As if somebody had opened the permissions: the files are still out of reach.
        path.chmod(0o644)
    return home


@pytest_asyncio.fixture
async def node(installation: Path) -> AsyncIterator[Node]:
    node = Node(installation)
    yield node
    await node.close()


@pytest.fixture
def node_socket() -> Iterator[str]:
    """A service socket in /run to which all users of the node may connect."""
    folder = Path("/run/moorage-test-isolation")
    folder.mkdir(mode=0o755, exist_ok=True)
    yield str(folder / "docker.sock")
    shutil.rmtree(folder)


def launch(*argv: str, session: str = "one", **fields: Any) -> Launch:
    defaults: dict[str, Any] = {"slots": {"mem": 128 << 20, "cpu": 1000}, "isolated": True}
    defaults["env"] = {"PATH": PATH}
    kernel_id = KernelId(SystemClock().new_id())
    return Launch(kernel_id, argv, session_id=session, **defaults | fields)


def python(program: str, *arguments: str, **fields: Any) -> Launch:
    return launch(sys.executable, "-c", program, *arguments, **fields)


async def until_exited(runtime: Runtime, handle: Handle) -> Any:
    async with asyncio.timeout(60):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)
    return seen


async def attack(runtime: Runtime, hostile: Launch) -> dict[str, str]:
    """The outcomes of a hostile kernel, by attack."""
    handle = await runtime.create(hostile)
    await until_exited(runtime, handle)
    output = await runtime.log_tail(handle, 100_000)
    await runtime.destroy(handle)

    try:
        outcomes: dict[str, str] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise AssertionError(f"the hostile kernel failed itself: {output}") from None

    return outcomes
