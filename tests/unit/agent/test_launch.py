"""Launch parameters of processes and containers, and cancellation of creation steps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.interruption import Interruption
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    session_name="chat",
    session_type=SessionType.INFERENCE,
    runtime="docker",
    engine="vllm",
    served_name="chat",
    model="/models/m",
    env={"USER_VAR": "1"},
    slots={"cpu": 2500, "mem": 1 << 30},
    devices=(DeviceGrant("cuda.device", DeviceId("GPU-a"), 1000),),
    image="img:1",
)
NODE = NodeInfo(python="/node/python", vllm_command="/node/vllm", cores=64, home="/home/user")


def context(contained: bool) -> LaunchContext:
    return LaunchContext(
        contained,
        "192.0.2.1",
        node=NODE,
        work_dir="/node/work",
        agent_env={"AGENT_VAR": "secret", "PATH": "/node/bin"},
    )


def test_container_sees_nothing_of_the_node() -> None:
    call = build_invocation(ENGINES["vllm"], SPEC, 4711, context(contained=True))
    launch = build_launch(SPEC, call, 4711, context(contained=True))
    text = " ".join((*launch.argv, *launch.env.values()))
    assert "/node/" not in text
    assert "192.0.2.1" not in text
    assert "0.0.0.0" in launch.argv
    assert {"AGENT_VAR", "PATH", "HOME"}.isdisjoint(launch.env)
    assert launch.env["USER_VAR"] == "1"
    assert (launch.image, launch.devices, launch.paths) == ("img:1", ("GPU-a",), ("/models/m",))
    assert (launch.slots, launch.port) == (SPEC.slots, 4711)


def test_process_has_the_environment_and_address_of_the_node() -> None:
    call = build_invocation(ENGINES["vllm"], SPEC, 4711, context(contained=False))
    launch = build_launch(SPEC, call, 4711, context(contained=False))
    assert launch.argv[0] == "/node/vllm"
    assert "192.0.2.1" in launch.argv
    assert "AGENT_VAR" not in launch.env
    assert (launch.env["PATH"], launch.env["HOME"]) == ("/node/bin", "/node/work")


@pytest.mark.parametrize(("host", "listens_on"), [("192.0.2.1", "0.0.0.0"), ("2001:db8::1", "::")])
def test_engine_of_a_sandboxed_process_listens_in_its_own_network(
    host: str, listens_on: str
) -> None:
    sandboxed = replace(context(contained=False), own_user=True, host=host)
    call = build_invocation(ENGINES["vllm"], SPEC, 4711, sandboxed)
    assert host not in call.argv
    assert listens_on in call.argv


async def test_step_runs_until_the_kernel_is_unwanted() -> None:
    wakeup = asyncio.Event()
    is_unwanted = [False]
    interruption = Interruption(wakeup, lambda: is_unwanted[0])

    async def step(blocked_on: asyncio.Event | None = None) -> str:
        if blocked_on is not None:
            await blocked_on.wait()
        return "done"

    assert await interruption.run("t", step()) == "done"
    never = asyncio.Event()
    waiting = asyncio.create_task(interruption.run("t", step(never)))
    wakeup.set()  # for an unrelated reason
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    is_unwanted[0] = True
    wakeup.set()
    async with asyncio.timeout(2):
        assert await waiting is None

    assert await Interruption(wakeup, lambda: True).run("t", step(never)) is None


async def test_exception_of_a_step_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Interruption(asyncio.Event(), lambda: False).run("t", fail())
