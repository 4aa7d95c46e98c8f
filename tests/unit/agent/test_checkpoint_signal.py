"""The checkpoint signal: what a program receives before it is stopped, and how long it may take to
save its state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.agent.kernel_node import CLOCK, Node, kernel

from moorage.agent.kernel import teardown
from moorage.agent.kernel.checkpoint import KernelRecord, record_from_json, record_to_json
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S

GRACE_S = 0.4
MEMBERS = ClusterMember("main1", "127.0.0.1"), ClusterMember("sub1", "127.0.0.1")
MEMBER = ClusterMembership(
    "sub1", "sub", index=1, mode="multi-node", group=KernelId(CLOCK.new_id()), members=MEMBERS
)


class Told:
    """The operations on kernels requested from the runtime, and when, in seconds since the stop."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = 0.0
        self.asked = list[tuple[str, float]]()
        for method in ("signal", "stop"):
            monkeypatch.setattr(
                node.runtime, method, self._noting(method, getattr(node.runtime, method))
            )

    def _noting(self, method: str, original: Any) -> Any:
        async def noting(handle: Any, *args: Any) -> None:
            self.asked.append((method, CLOCK.monotonic() - self.began))
            await original(handle, *args)

        return noting

    def begin(self) -> None:
        self.began = CLOCK.monotonic()

    @property
    def order(self) -> list[str]:
        return [method for method, _ in self.asked]

    def at(self, method: str) -> float:
        return dict(self.asked)[method]


@pytest_asyncio.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(teardown, "STOP_MARGIN_S", 0.1)
    made = Node(tmp_path)
    await made.kernels.recover()
    yield made
    await made.kernels.close()


def saving(handles: str = "USR1", **fields: Any) -> KernelSpec:
    """A kernel with a handler for these signals."""
    return kernel(
        env={"FAKE_SIGNALS": handles},
        checkpoint_signal="USR1",
        checkpoint_grace_s=GRACE_S,
        **fields,
    )


@pytest.mark.parametrize("why", ["withdrawn", "terminated"])
async def test_it_comes_first_and_sigterm_after_its_grace(
    node: Node, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    told = Told(node, monkeypatch)
    spec = saving()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    told.begin()

    if why == "withdrawn":
        node.order()
        await node.until(spec, None)
    else:
        await node.kernels.drain()
        found = await node.until(spec, S.EXITED)
        assert found is not None
        assert found.reason is Reason.AGENT_SHUTDOWN

    assert told.order == ["signal", "stop"]
    assert told.at("signal") < GRACE_S <= told.at("stop")


async def test_a_program_that_ends_is_waited_for_no_longer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(node, monkeypatch)
    spec = replace(saving(), checkpoint_grace_s=60.0)
    node.order(spec)
    await node.until(spec, S.RUNNING)
    told.begin()
    node.order()
    await node.until(spec, S.STOPPING)
    node.node.kernels[spec.kernel_id].stop(0)  # saved, and exited by itself
    await node.until(spec, None)
    assert told.order == ["signal"]


@pytest.mark.parametrize("handles", ["HUP", ""])
async def test_a_program_without_a_handler_is_stopped_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, handles: str
) -> None:
    told = Told(node, monkeypatch)
    spec = saving(handles)
    node.order(spec)
    await node.until(spec, S.RUNNING)
    told.begin()
    node.order()
    await node.until(spec, None)
    assert told.order == ["signal", "stop"]
    assert told.at("stop") < GRACE_S


async def test_a_kernel_of_a_cluster_stays_while_others_save(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(node, monkeypatch)
    spec = saving("HUP", cluster=MEMBER)
    node.order(spec)
    await node.until(spec, S.RUNNING)
    told.begin()
    node.order()
    await node.until(spec, None)
    assert told.at("stop") >= GRACE_S


async def test_a_kernel_that_has_not_begun_gets_none(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(node, monkeypatch)
    spec = saving(probe_path="/health")
    node.order(spec)
    await node.until(spec, S.CREATING)
    node.order()
    await node.until(spec, None)
    assert "signal" not in told.order


async def test_without_one_there_is_no_wait(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a manager of the previous release, and from one that names none."""
    told = Told(node, monkeypatch)
    spec = kernel()
    node.order(spec)
    await node.until(spec, S.RUNNING)
    told.begin()
    node.order()
    await node.until(spec, None)
    assert told.order == ["stop"]
    assert told.at("stop") < GRACE_S


@pytest.mark.parametrize("spec", [kernel(), saving()], ids=["plain", "saving"])
def test_a_restarted_agent_knows_it(spec: KernelSpec) -> None:
    data = record_to_json(KernelRecord(spec=spec, created_at=1.0))
    assert record_from_json(data).spec == spec
    # The previous release does not read records with unknown fields.
    assert ("checkpoint_signal" in data["spec"]) is bool(spec.checkpoint_signal)
    assert ("checkpoint_grace_s" in data["spec"]) is bool(spec.checkpoint_signal)
