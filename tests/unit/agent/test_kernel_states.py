"""States that an agent reports for a kernel: what it knows from the first report on, and after a
restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.agent.kernel_node import CLOCK, Node, kernel

from moorage.agent.kernel import create, teardown
from moorage.agent.kernel.probing import Probing
from moorage.agent.kernel.report_timing import HOUSEKEEPING, IMMEDIATE
from moorage.agent.runtimes import RuntimeObservation
from moorage.common.aio import supervisor
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S

MakeNode = Callable[..., Node]


@pytest_asyncio.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeNode]:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(teardown, "STOP_MARGIN_S", 0.1)
    made: list[Node] = []

    def node(before: Node | None = None, max_jobs: int | None = None) -> Node:
        made.append(Node(tmp_path, before, max_jobs))
        return made[-1]

    yield node
    for one in made:
        await one.kernels.close()


def hold(monkeypatch: pytest.MonkeyPatch, node: Node, method: str) -> asyncio.Event:
    """The runtime answers this question once the event is set."""
    go = asyncio.Event()
    original = getattr(node.runtime, method)

    async def held(*args: object) -> object:
        await go.wait()
        return await original(*args)

    monkeypatch.setattr(node.runtime, method, held)
    return go


async def observe_as(node: Node, spec: KernelSpec, seen: RuntimeObservation) -> None:
    """Make the runtime return this from now on, and wait until it has been asked."""
    node.runtime.silent = seen
    async with asyncio.timeout(30):
        while shown(node, spec) is not seen.state:
            if (job := node.node.kernels.get(spec.kernel_id)) is not None:
                job.changed.set()
                job.changed = asyncio.Event()
            await asyncio.sleep(0.01)


def shown(node: Node, spec: KernelSpec) -> S | None:
    found = node.find(spec)
    return found.state if found is not None else None


@pytest.mark.parametrize("max_jobs", [None, 5], ids=["node", "site"])
async def test_report_that_leaves_before_the_first_step_claims_nothing(
    make: MakeNode, max_jobs: int | None
) -> None:
    node = make(max_jobs=max_jobs)
    spec = kernel()
    await node.kernels.recover()
    node.order(spec)
    assert shown(node, spec) is S.UNKNOWN
    await node.until(spec, S.RUNNING)


@pytest.mark.parametrize("env", [{"FAKE_QUEUE_S": "600"}, {"FAKE_START_S": "600"}, {}])
async def test_report_that_leaves_before_the_first_observation_after_a_restart_claims_nothing(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    before = make(max_jobs=5)
    spec = kernel(env=env)
    await before.kernels.recover()
    before.order(spec)
    state = S.QUEUED if "FAKE_QUEUE_S" in env else S.CREATING if env else S.RUNNING
    await before.until(spec, state)
    await before.kernels.close()
    after = make(before, max_jobs=5)
    observes = hold(monkeypatch, after, "observe")
    await after.kernels.recover()
    for _ in range(5):
        assert shown(after, spec) is S.UNKNOWN
        await asyncio.sleep(0)

    observes.set()
    await after.until(spec, S.QUEUED, S.CREATING, S.RUNNING)
    assert shown(after, spec) is state


async def test_submission_is_neither_a_queue_nor_a_start(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site may take a minute for it."""
    node = make(max_jobs=5)
    spec = kernel(env={"FAKE_QUEUE_S": "600"})
    await node.kernels.recover()
    creates = hold(monkeypatch, node, "create")
    node.order(spec)
    seen = await node.until(spec, S.PREPARING, S.QUEUED, S.CREATING)
    assert seen is not None
    assert (seen.state, seen.detail) == (S.PREPARING, "submitting its job")
    creates.set()
    seen = await node.until(spec, S.QUEUED, S.CREATING)
    assert seen is not None
    assert (seen.state, seen.detail) == (S.QUEUED, "Priority")


async def test_queue_that_is_longer_than_the_start_timeout(make: MakeNode) -> None:
    """The kernel is observed twice: when it starts and when it has ended."""
    node = make(max_jobs=5)
    await node.kernels.recover()
    spec = kernel(start_timeout_s=0.4, env={"FAKE_QUEUE_S": "0.8", "FAKE_START_S": "0.1"})
    node.order(spec)
    await node.until(spec, S.QUEUED)
    ended = await node.until(spec, S.RUNNING, S.EXITED)
    assert ended is not None
    assert (ended.state, ended.reason) == (S.RUNNING, Reason.NONE), ended.detail


async def test_start_timeout_counts_once_the_queue_has_ended(make: MakeNode) -> None:
    node = make(max_jobs=5)
    await node.kernels.recover()
    spec = kernel(start_timeout_s=0.2, env={"FAKE_QUEUE_S": "0.3", "FAKE_START_S": "600"})
    node.order(spec)
    ended = await node.until(spec, S.EXITED)
    assert ended is not None
    assert ended.reason is Reason.START_TIMEOUT


async def test_start_timeout_does_not_count_while_the_site_is_silent(make: MakeNode) -> None:
    node = make(max_jobs=5)
    await node.kernels.recover()
    spec = kernel(start_timeout_s=0.5, env={"FAKE_START_S": "1"})
    node.order(spec)
    await node.until(spec, S.CREATING)
    await observe_as(node, spec, RuntimeObservation(S.UNKNOWN))
    await asyncio.sleep(1.2)  # it passes without information from the site
    node.runtime.silent = None
    ended = await node.until(spec, S.RUNNING, S.EXITED)
    assert ended is not None
    assert (ended.state, ended.reason) == (S.RUNNING, Reason.NONE), ended.detail


async def test_start_timeout_counts_from_the_first_observation_after_a_restart(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = make()
    spec = kernel(start_timeout_s=0.6, env={"FAKE_START_S": "1.2"})
    await before.kernels.recover()
    before.order(spec)
    await before.until(spec, S.CREATING)
    await before.kernels.close()
    after = make(before)
    observes = hold(monkeypatch, after, "observe")
    await after.kernels.recover()
    await asyncio.sleep(0.9)
    observes.set()
    ended = await after.until(spec, S.RUNNING, S.EXITED)
    assert ended is not None
    assert (ended.state, ended.reason) == (S.RUNNING, Reason.NONE), ended.detail


async def test_job_that_waits_again_is_probed_anew() -> None:
    class Check:
        probed = 0

        async def wait(self, *_: object) -> None:
            self.probed += 1

    check = Check()
    passed = asyncio.Event()
    probing = Probing(KernelId("k"), CLOCK, passed, lambda _: None)
    probing.use(check)  # type: ignore[arg-type]
    for times in (1, 2):
        assert not probing.has_passed
        passed.clear()
        probing.begin(1)
        await passed.wait()
        assert (probing.has_passed, check.probed) == (True, times)
        await probing.stop()


async def test_kernel_whose_first_step_takes_long_can_be_stopped(
    make: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been reported about it yet, but its order is withdrawn."""
    node = make()
    spec = kernel()
    go = asyncio.Event()
    await node.kernels.recover()

    async def hang(*_: object) -> None:
        await go.wait()

    monkeypatch.setattr(create, "check_requirements", hang)
    node.order(spec)
    await asyncio.sleep(0)
    node.order()
    go.set()
    await node.until(spec, None)
    assert node.runtime.created == []


async def test_fast_start_costs_no_report_of_its_own_but_that_it_is_ready(make: MakeNode) -> None:
    """Changes of the kernel may be held back until the agent reports that it has applied the
    orders; only readiness is reported at once."""
    node = make()
    spec = kernel()
    await node.kernels.recover()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    assert sorted(w for w in node.windows if w < HOUSEKEEPING) == [IMMEDIATE]


def written_records(state: Path) -> list[dict[str, Any]]:
    """The records of a running agent's checkpoint, read without loading it, which would remove the
    file being written."""
    return [json.loads(path.read_text()) for path in (state / "checkpoint").glob("*.json")]


async def test_recovered_kernels_are_reported_together(make: MakeNode, tmp_path: Path) -> None:
    before = make()
    specs = [kernel() for _ in range(3)]
    await before.kernels.recover()
    before.order(*specs)
    for spec in specs:
        await before.until(spec, S.RUNNING)

    async with asyncio.timeout(30):
        while not all(record["ready"] for record in written_records(tmp_path)):
            await asyncio.sleep(0.01)

    await before.kernels.close()
    after = make(before)
    await after.kernels.recover()
    after.order(*specs)
    for spec in specs:
        await after.until(spec, S.RUNNING)

    assert [w for w in after.windows if w < HOUSEKEEPING] == []


async def test_job_that_its_site_requeues_waits_again(make: MakeNode) -> None:
    node = make(max_jobs=5)
    await node.kernels.recover()
    spec = kernel(start_timeout_s=600, env={"FAKE_START_S": "600"})
    node.order(spec)
    await node.until(spec, S.CREATING)
    await observe_as(node, spec, RuntimeObservation(S.QUEUED, detail="Priority"))
    seen = node.find(spec)
    assert seen is not None
    assert seen.detail == "Priority"
