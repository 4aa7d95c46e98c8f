"""What a runtime is told, on the node and in a container; and work that is given up."""

from __future__ import annotations

import asyncio

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.create import run_while_wanted
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    "chat",
    SessionType.INFERENCE,
    "docker",
    "vllm",
    "chat",
    model="/models/m",
    env={"MINE": "1"},
    slots={"cpu": 2500, "mem": 1 << 30},
    devices=(DeviceGrant("cuda.device", DeviceId("GPU-a"), 1000),),
    image="img:1",
)
NODE = NodeInfo(python="/node/python", vllm_command="/node/vllm", cores=64, home="/home/user")


def context(contained: bool) -> LaunchContext:
    return LaunchContext(
        contained, "192.0.2.1", NODE, "/node/work", {"AGENTS": "secret", "PATH": "/node/bin"}
    )


def test_a_container_is_told_nothing_of_the_node() -> None:
    call = build_invocation(ENGINES["vllm"], SPEC, 4711, context(contained=True))
    told = build_launch(SPEC, call, 4711, context(contained=True))
    words = " ".join((*told.argv, *told.env.values()))
    assert "/node/" not in words
    assert "192.0.2.1" not in words
    assert "0.0.0.0" in told.argv
    assert {"AGENTS", "PATH", "HOME"}.isdisjoint(told.env)
    assert told.env["MINE"] == "1"
    assert told.env["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert (told.image, told.devices, told.paths) == ("img:1", ("GPU-a",), ("/models/m",))
    assert (told.slots, told.port) == (SPEC.slots, 4711)


def test_a_process_has_the_nodes_environment_and_address() -> None:
    call = build_invocation(ENGINES["vllm"], SPEC, 4711, context(contained=False))
    told = build_launch(SPEC, call, 4711, context(contained=False))
    assert told.argv[0] == "/node/vllm"
    assert "192.0.2.1" in told.argv
    assert (told.env["AGENTS"], told.env["HOME"]) == ("secret", "/node/work")


async def test_work_is_done_or_given_up() -> None:
    poke, wishes = asyncio.Event(), [True]

    async def answer(after: asyncio.Event | None = None) -> str:
        if after is not None:
            await after.wait()
        return "done"

    assert await run_while_wanted("t", answer(), poke, lambda: wishes[0]) == "done"
    endless = asyncio.Event()
    waiting = asyncio.create_task(run_while_wanted("t", answer(endless), poke, lambda: wishes[0]))
    poke.set()  # for another reason
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    wishes[0] = False
    poke.set()
    async with asyncio.timeout(2):
        assert await waiting is None
    never_begun = answer(endless)
    assert await run_while_wanted("t", never_begun, poke, lambda: False) is None


async def test_what_the_work_raises_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await run_while_wanted("t", fail(), asyncio.Event(), lambda: True)
