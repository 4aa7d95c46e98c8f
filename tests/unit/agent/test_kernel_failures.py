"""Failures of the agent's task for a kernel, in a single step or in every one: their effects on the
kernel and its devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.agent.kernel_node import ALWAYS, CLOCK, Node, kernel

from moorage.agent.kernel import create, teardown
from moorage.agent.kernel.site_job import WALLTIME_GRACE_S
from moorage.agent.runtimes import Handle, Launch, RuntimeObservation
from moorage.common.aio import supervisor
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType


@pytest_asyncio.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(teardown, "STOP_MARGIN_S", 0.1)
    made = Node(tmp_path)
    await made.kernels.recover()
    yield made
    await made.kernels.close()


@pytest.mark.parametrize("after", [False, True], ids=["before it started", "after it started"])
async def test_failed_creation_is_undone_and_not_repeated(node: Node, after: bool) -> None:
    node.runtime.failing = {"create": 1}
    node.runtime.after = after
    spec = kernel()
    node.order(spec)
    ended = await node.until(spec, S.EXITED)
    assert ended is not None
    assert (ended.reason, "a bug in create" in ended.detail) == (Reason.CREATE_FAILED, True)
    assert node.node.kernels == {}, "nothing of it is left on the node, so its devices are free"
    assert len(node.runtime.created) == after
    node.order()
    await node.until(spec, None)


@pytest.mark.parametrize("method", ["observe", "wait"])
async def test_kernel_runs_on_while_its_task_fails(node: Node, method: str) -> None:
    node.runtime.failing = {method: 3}
    spec = kernel()
    node.order(spec)
    await node.until(spec, S.RUNNING)

    async with asyncio.timeout(30):
        while node.runtime.failing[method]:
            node.order(spec)
            await asyncio.sleep(0.01)
            for running in list(node.node.kernels.values()):
                running.changed.set()
                running.changed = asyncio.Event()

    assert spec.kernel_id in node.node.kernels
    node.order()
    await node.until(spec, None)
    assert node.node.kernels == {}


async def test_agent_ends_although_a_start_does_not(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that accepts no connection can hold up a creation for minutes."""
    monkeypatch.setattr(create, "CREATE_GRACE_S", 0.05)
    begun = asyncio.Event()

    async def hang(launch: Launch) -> Handle:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(node.runtime, "create", hang)
    node.order(kernel())
    async with asyncio.timeout(30):
        await begun.wait()
        await node.kernels.close()


@pytest.mark.parametrize("since_s", [WALLTIME_GRACE_S - 60, WALLTIME_GRACE_S + 60])
async def test_job_of_a_silent_site_ends_with_its_walltime(node: Node, since_s: float) -> None:
    """This holds even while nothing can be destroyed because the site does not answer. Until then,
    the job is unreachable."""
    spec = kernel()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    ends_at = CLOCK.now().timestamp() - since_s
    node.runtime.silent = RuntimeObservation(S.UNKNOWN, ends_at=ends_at)
    node.runtime.failing = {"destroy": ALWAYS, "stop": ALWAYS, "log_tail": ALWAYS}
    node.node.kernels[spec.kernel_id].changed.set()
    node.order(spec)
    ended = await node.until(spec, S.UNKNOWN if since_s < WALLTIME_GRACE_S else S.EXITED)
    assert ended is not None
    if since_s > WALLTIME_GRACE_S:
        assert (ended.reason, "walltime is over" in ended.detail) == (Reason.WALLTIME, True)

    node.runtime.failing = {}
    node.runtime.silent = None
    node.order()
    await node.until(spec, None)


@pytest.mark.parametrize("method", ["observe", "wait", "stop"])
async def test_kernel_that_must_end_is_destroyed_whatever_fails(node: Node, method: str) -> None:
    """Otherwise the kernel would stay in STOPPING and never free its devices."""
    spec = kernel()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    node.runtime.failing = {method: ALWAYS}
    node.order()
    await node.until(spec, None)
    assert node.node.kernels == {}


async def test_kernel_ends_without_its_log(node: Node) -> None:
    node.runtime.failing = {"log_tail": ALWAYS}
    spec = kernel(session_type=SessionType.BATCH, env={"FAKE_RUN_S": "0.05"})
    node.order(spec)
    ended = await node.until(spec, S.EXITED)
    assert ended is not None
    assert (ended.reason, ended.exit_code) == (Reason.EXIT_ZERO, 0)
    node.order()
    await node.until(spec, None)


async def test_kernel_is_kept_until_it_is_destroyed(node: Node) -> None:
    """As long as ``destroy`` fails the kernel may exist, so it is reported, and keeps its
    devices."""
    spec = kernel()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    node.runtime.failing = {"stop": ALWAYS, "destroy": 2}
    node.order()

    while node.runtime.failing["destroy"]:
        found = node.find(spec)
        assert found is not None
        assert spec.kernel_id in node.node.kernels
        await asyncio.sleep(0.001)

    await node.until(spec, None)
    assert node.node.kernels == {}


async def test_orphan_is_reported_until_it_is_destroyed(node: Node) -> None:
    """An omitted kernel is considered gone, and its devices free."""
    orphan = kernel()
    launch = Launch(orphan.kernel_id, ("sleep", "600"), {})
    await node.runtime.create(launch)
    node.runtime.failing = {"destroy": 2}
    node.order()

    async with asyncio.timeout(30):
        while orphan.kernel_id in node.node.kernels:
            await node.kernels.scan()
            await asyncio.sleep(0.01)
            assert (orphan.kernel_id not in node.node.kernels) or node.find(orphan) is not None

    assert node.runtime.failing["destroy"] == 0
