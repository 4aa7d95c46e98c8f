"""Scenarios by id: choosing an agent (C) and clusters (D)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planner_builders import cluster, hold, make_plan, node, placements, session

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.runtimes import required_runtime
from moorage.manager.scheduling import AgentState, DeviceState, Pending
from moorage.manager.scheduling.core.messages import refusal_message
from moorage.manager.scheduling.core.model import Running

LOW = node("low", 8, 16384, free_cpu=2, free_mem=4096)
MEDIUM = node("medium", 8, 16384, free_cpu=4, free_mem=8192)
HIGH = node("high", 8, 16384, free_cpu=6, free_mem=12288)
F1 = [LOW, MEDIUM, HIGH]
GPU = node("a-gpu", gpus=2)
CPU = node("b-cpu")
ARM = node("arm", arch="aarch64")
INTEL = node("intel", arch="x86_64")


def busy_gpus(name: str, cpu: int, busy: int) -> AgentState:
    """Two GPUs, of which ``busy`` are in use."""
    devices = tuple(
        DeviceState(DeviceId(f"{n}"), "cuda.device", 1000 * (n >= busy)) for n in range(2)
    )
    return node(name, cpu, devices=devices)


def test_member_is_placed_only_where_processes_are_isolated() -> None:
    plain = node("plain")
    capable = replace(
        node("capable"), runtimes=frozenset({"process", required_runtime("process", isolated=True)})
    )
    containers = replace(node("containers"), runtimes=frozenset({"docker"}))
    member = replace(session("s"), runtime=required_runtime("process", isolated=True))
    assert placements(make_plan([plain, capable], [member])) == {"s": ["capable"]}
    assert placements(make_plan([plain], [session("s")])) == {"s": ["plain"]}
    held = hold(make_plan([plain, containers], [member]), "s")
    assert held.reason is Reason.NOT_ISOLATED
    assert [refusal_message(refusal) for refusal in held.refusals] == [
        "1 agent: cannot isolate members' processes (run `moorage agent doctor` there to see why)",
        "1 agent: has no runtime process",
    ]
    full = replace(capable, free={"cpu": 0, "mem": 0})
    assert hold(make_plan([plain, full], [member]), "s").reason is Reason.INSUFFICIENT_RESOURCES
    assert hold(make_plan([containers], [member]), "s").reason is Reason.NO_ELIGIBLE_AGENT
    assert required_runtime("docker", isolated=True) == "docker"
    plugin = replace(node("plugin"), runtimes=frozenset({"custom:nice"}))
    theirs = replace(session("t"), runtime=required_runtime("custom:nice", isolated=True))
    assert hold(make_plan([plugin], [theirs]), "t").reason is Reason.NOT_ISOLATED


def test_cluster_over_several_agents_gets_none_that_only_dials_out() -> None:
    away = replace(node("away"), dials_out=True)
    at_home = [node("a"), node("b")]
    several = cluster("s", 1, 1, mode="multi-node")
    assert placements(make_plan([away, *at_home], [several])) == {"s": ["a", "b"]}
    assert placements(make_plan([away], [session("s")])) == {"s": ["away"]}
    assert placements(make_plan([away], [cluster("s", 1, 1, mode="single-node")])) == {
        "s": ["away"] * 2
    }
    told = (
        "1 agent: only dials out, so it cannot join clusters that span agents: use cluster mode "
        "single-node, or make agent.address reachable for proxies (`moorage agents describe` shows "
        "why they do not reach it)"
    )
    held = hold(make_plan([away, node("a")], [several]), "s")

    # It may become directly reachable again, so the session waits and is not refused for good.
    assert held.reason is Reason.NO_ELIGIBLE_AGENT
    assert [refusal_message(refusal) for refusal in held.refusals] == [
        told,
        "1 agent: some of the 2 kernels fit, but not all of them together",
    ]
    assert not held.capacity
    held = hold(make_plan([away, replace(away, agent_id=AgentId("b"))], [several]), "s")
    assert held.reason is Reason.NO_ELIGIBLE_AGENT
    assert [refusal_message(refusal) for refusal in held.refusals] == [
        told.replace("1 agent:", "2 agents:")
    ]

    # Directly reachable but with too little room: it waits for running work there to end.
    full = replace(node("b"), free={"cpu": 0, "mem": 0})
    held = hold(make_plan([away, node("a"), full], [several]), "s")
    assert held.reason is Reason.INSUFFICIENT_RESOURCES
    only_two = cluster("s", 1, 1, 1, mode="multi-node")
    assert hold(make_plan([node("a"), node("b")], [only_two]), "s").reason is Reason.INFEASIBLE


MANY = [node(f"i-{n:03}", cpu=8) for n in range(10)]


@pytest.mark.parametrize(
    ("agents", "item", "options", "expected"),
    [
        pytest.param(F1, session("s", 1, 2048), {}, "low", id="C1"),
        pytest.param(F1, session("s", 1, 2048), {"agent_selection": "dispersed"}, "high", id="C2"),
        pytest.param([GPU, CPU], session("s", slots={"cuda.shares": 0}), {}, "b-cpu", id="C4 concentrated"),
        pytest.param(
            [GPU, CPU], session("s", slots={"cuda.shares": 0}), {"agent_selection": "dispersed"}, "b-cpu",
            id="C4 dispersed",
        ),
        pytest.param([GPU, CPU], session("s"), {}, "b-cpu", id="C4 left out counts as zero"),
        pytest.param(
            [node("a", 8, free_cpu=1), node("b", 8, free_cpu=7)], session("s"),
            {"agent_selection": "dispersed"}, "b", id="C9 dispersed",
        ),
        pytest.param([node("a", 8, free_cpu=1), node("b", 8, free_cpu=7)], session("s"), {}, "a", id="C9"),
        # Requested slots are weighed, other slots are not.
        pytest.param(
            [node("a", cpu=8, mem=4000), node("b", cpu=2, mem=9000)], session("s", 0, 1000),
            {"agent_selection": "dispersed"}, "b", id="dispersed over memory, which was asked for",
        ),
        pytest.param(
            [node("a", cpu=2, mem=9000), node("b", cpu=8, mem=4000)], session("s", 0, 1000), {}, "b",
            id="concentrated over memory, which was asked for",
        ),
        # Work that needs no GPU is placed where it takes CPUs from the fewest GPUs.
        pytest.param(
            [busy_gpus("a", 8, 0), busy_gpus("b", 4, 2)], session("s"), {"agent_selection": "dispersed"}, "b",
            id="dispersed strands no GPUs",
        ),
        pytest.param(
            [busy_gpus("a", 4, 0), busy_gpus("b", 8, 2)], session("s"), {}, "b", id="nor does concentrated"
        ),
        pytest.param(F1, session("s", 1, 2048), {"slot_priority": ("npu", "cpu")}, "low", id="C11"),
        pytest.param(
            [node("a", cpu=2, mem=9000), node("b", cpu=4, mem=8000)], session("s"), {}, "a", id="C12 cpu"
        ),
        pytest.param(
            [node("a", cpu=2, mem=9000), node("b", cpu=4, mem=8000)], session("s"),
            {"slot_priority": ("mem",)}, "b", id="C12 slot priority of the group",
        ),
        pytest.param([INTEL, ARM], session("s", arch="aarch64"), {}, "arm", id="C22"),
        pytest.param(F1, session("s", designated=frozenset({"high", "gone"})), {}, "high", id="C29"),
        pytest.param([CPU, node("c")], session("s", avoid=frozenset({"b-cpu"})), {}, "c", id="C32"),
        pytest.param(
            [CPU, node("z", labels={"zone": "b"})], session("s", labels={"zone": "b"}), {}, "z", id="labels"
        ),
        pytest.param(
            [node("a", max_kernels=1, kernels=1), node("b")], session("s"), {}, "b", id="container limit"
        ),
        pytest.param([node("a", draining=True), node("b")], session("s"), {}, "b", id="drain"),
        pytest.param([node("a", fenced=True), node("b")], session("s"), {}, "b", id="fence"),
    ],
)  # fmt: skip
def test_agent_selection(
    agents: list[AgentState], item: Pending, options: dict[str, Any], expected: str
) -> None:
    for _ in range(3):  # C7: repeatable
        assert placements(make_plan(agents, [item], **options)) == {"s": [expected]}
    assert placements(make_plan(agents[::-1], [item], **options)) == {"s": [expected]}


@pytest.mark.parametrize(
    ("agents", "item", "reason", "messages"),
    [
        pytest.param(
            [INTEL],
            session("s", arch="aarch64"),
            Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: is not aarch64"],
            id="C23",
        ),
        pytest.param(
            [CPU], session("s", slots={"npu.device": 1}), Reason.INFEASIBLE,
            ["1 agent: needs 1 npu.device, has 0 even when empty"], id="C24",
        ),
        pytest.param(
            [LOW, HIGH], session("s", 4, designated=frozenset({"low"})), Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: needs 4 cpu, 2 free", "1 agent: not one of the designated agents"], id="C26",
        ),
        pytest.param(
            [LOW], session("s", designated=frozenset({"gone"})), Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: not one of the designated agents"], id="C27",
        ),
        pytest.param(
            [], session("s"), Reason.NO_ELIGIBLE_AGENT, ["the resource group has no agent"],
            id="C31",
        ),
        pytest.param(
            [node("a", labels={"zone": "a"})], session("s", labels={"zone": "b"}), Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: has no label zone=b"], id="labels",
        ),
        pytest.param(
            [node("a", max_kernels=2, kernels=2)], session("s"), Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: runs its maximum of 2 kernels"], id="container limit",
        ),
        pytest.param(
            [node("a", draining=True), node("b", fenced=True)], session("s"), Reason.NO_ELIGIBLE_AGENT,
            [
                "1 agent: cordoned or draining: accepts no new work",
                "1 agent: fenced until it reports again: abandoned work may still use its devices",
            ], id="drain and fence",
        ),
    ],
)  # fmt: skip
def test_refusal_messages(
    agents: list[AgentState], item: Pending, reason: Reason, messages: list[str]
) -> None:
    held = hold(make_plan(agents, [item]), "s")
    assert held.reason is reason
    assert [refusal_message(refusal) for refusal in held.refusals] == messages


def test_container_image_provides_the_engine() -> None:
    bare = replace(node("bare"), runtimes=frozenset({"docker", "process"}))
    by_image = replace(session("by-image"), runtime="docker", engine="vllm")
    on_the_node = replace(session("on-the-node"), engine="vllm")
    result = make_plan([bare, node("without-docker")], [by_image, on_the_node])
    assert placements(result) == {"by-image": ["bare"]}
    assert hold(result, "on-the-node").reason is Reason.NO_ELIGIBLE_AGENT


def round_robin(agents: list[AgentState], count: int, cpu: int, mem: int = 0) -> list[str | None]:
    pending = [session(f"s{n:02}", cpu, mem, created=n) for n in range(count)]
    placed = placements(make_plan(agents, pending, agent_selection="round-robin", hol="skip"))
    return [placed[item.session_id][0] if item.session_id in placed else None for item in pending]


def test_c14_c16_c17_round_robin_cycles_by_agent_id() -> None:
    assert round_robin(MANY, 20, 1) == [f"i-{n:03}" for n in range(10)] * 2
    assert round_robin([node("zebra"), node("alpha"), node("beta")], 3, 1) == [
        "alpha",
        "beta",
        "zebra",
    ]
    assert sorted(round_robin(MANY[:5], 20, 1)) == sorted([f"i-{n:03}" for n in range(5)] * 4)


def test_c15_round_robin_skips_full_agents() -> None:
    sizes = [(8, 4096), (4, 2048), (2, 1024), (1, 512)]
    agents = [node(f"{n:03}", cpu, mem) for n, (cpu, mem) in enumerate(sizes, 1)]
    expected = ["001", "002", "003", "001", "002", "001", "001", None]
    assert round_robin(agents, 8, 2, 500) == expected


def test_round_robin_continues_at_its_cursor_for_each_architecture() -> None:
    options: dict[str, Any] = {"agent_selection": "round-robin", "cursors": {"": AgentId("i-004")}}
    result = make_plan(MANY, [session("s")], **options)
    assert (placements(result), result.cursors) == ({"s": ["i-005"]}, {"": "i-005"})
    # C15: nothing fits, nothing moves
    assert make_plan(MANY, [session("s", 64)], **options).cursors == {}
    arch = [node("a", arch="arm"), node("b", arch="arm")]
    assert make_plan(arch, [session("s", arch="arm")], **options).cursors == {"arm": "a"}


def replicas(*counts: int) -> list[AgentState]:
    sizes = [(1, 512), (4, 2048), (4, 2048)]
    return [
        node(f"i-{n:03}", cpu, mem, running=tuple(
            Running(SessionId(f"r{n}-{m}"), KernelId(f"r{n}-{m}"), (), endpoint_id=EndpointId("e"))
            for m in range(count)
        ))
        for n, ((cpu, mem), count) in enumerate(zip(sizes, counts, strict=True), 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "rule", "expected"),
    [
        pytest.param((0, 0, 0), "spread", "i-001", id="C18"),
        pytest.param((1, 1, 0), "spread", "i-003", id="C19"),
        pytest.param((2, 1, 2), "spread", "i-002", id="C20"),
        pytest.param((0, 0, 1), "pack", "i-003", id="pack"),
        pytest.param((0, 0, 0), "pack", "i-001", id="D13 the first replica of a pack is free"),
        pytest.param((1, 1, 0), "none", "i-001", id="D16"),
    ],
)
def test_replicas_of_an_endpoint(counts: tuple[int, ...], rule: str, expected: str) -> None:
    item = session("s", endpoint_id=EndpointId("e"))
    assert placements(make_plan(replicas(*counts), [item], replicas=rule)) == {"s": [expected]}


def test_d10_spreading_is_a_preference_and_counts_places_of_this_pass() -> None:
    pending = [session(f"s{n}", 1, 512, created=n, endpoint_id=EndpointId("e")) for n in range(5)]
    result = make_plan(replicas(1, 0, 0), pending)
    assert [found[0] for found in placements(result).values()] == [
        "i-002",
        "i-003",
        "i-001",
        "i-002",
        "i-003",
    ]


def test_c21_sessions_go_to_agents_with_their_devices() -> None:
    agents = [node("gpu", cpu=4, gpus=4), node("cpu", cpu=3)]
    pending = [
        session("rocm", slots={"rocm.device": 1}, created=0),
        session("cuda", slots={"cuda.device": 1}, created=1),
        session("plain", created=2),
    ]
    for strategy in ("fifo", "lifo"):
        result = make_plan(agents, pending, agent_selection="dispersed", strategy=strategy)
        assert placements(result) == {"cuda": ["gpu"], "plain": ["cpu"]}


@pytest.mark.parametrize(
    ("agents", "item", "expected"),
    [
        pytest.param(
            [node("a", 4), node("b", 6)],
            cluster("s", 4, 2, mode="single-node"),
            ["b", "b"],
            id="D1",
        ),
        pytest.param(
            [node("a", 4), node("b", 4)], cluster("s", 1, 3, mode="multi-node"), ["a", "b"], id="D2"
        ),
        pytest.param([node("a", 3)], cluster("s", 2, 1, mode="single-node"), ["a", "a"], id="D3"),
        pytest.param([node("a", 4)], cluster("s", 8, 1, mode="multi-node"), None, id="D6"),
        pytest.param(
            [node("a", 4)],
            cluster("s", 1, 1, mode="multi-node"),
            None,
            id="each kernel needs an agent of its own",
        ),
        pytest.param(
            [node("a", 2), node("b", 4)],
            cluster("s", 1, 4, mode="multi-node"),
            ["a", "b"],
            id="the small kernel moves",
        ),
        pytest.param(
            [node("a", 4), node("b", 3)],
            cluster("s", 3, 3, 3, mode="multi-node"),
            None,
            id="three on two",
        ),
    ],
)
def test_clusters(agents: list[AgentState], item: Pending, expected: list[str] | None) -> None:
    result = make_plan(agents, [item, session("after", 1, created=1)])
    assert placements(result).get("s") == expected
    # D7: a failed attempt leaves no allocation behind.
    assert "after" in placements(result) or expected


def test_cluster_hold_says_that_its_kernels_do_not_fit_at_once() -> None:
    agents = [node("a", 4), node("b", 4, free_cpu=0)]
    result = make_plan(agents, [cluster("s", 2, 2, mode="multi-node")])
    assert hold(result, "s").reason is Reason.INSUFFICIENT_RESOURCES
    assert [refusal_message(refusal) for refusal in hold(result, "s").refusals] == [
        "1 agent: needs 2 cpu, 0 free",
        "1 agent: some of the 2 kernels fit, but not all of them together",
    ]
    never = make_plan([node("a", 4)], [cluster("s", 2, 2, mode="multi-node")])
    assert hold(never, "s").reason is Reason.INFEASIBLE
