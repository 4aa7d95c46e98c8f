"""Scenarios with their ids: which agent (C), and clusters (D)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planner_words import cluster, decide, hold, node, wants, where

from moorage.common.model.ids import AgentId, EndpointId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, Pending
from moorage.manager.scheduling.core.messages import refusal_message
from moorage.manager.scheduling.core.model import Running

LOW = node("low", 8, 16384, free_cpu=2, free_mem=4096)
MEDIUM = node("medium", 8, 16384, free_cpu=4, free_mem=8192)
HIGH = node("high", 8, 16384, free_cpu=6, free_mem=12288)
F1 = [LOW, MEDIUM, HIGH]
GPU, CPU = node("a-gpu", gpus=2), node("b-cpu")
ARM, INTEL = node("arm", arch="aarch64"), node("intel", arch="x86_64")
MANY = [node(f"i-{n:03}", cpu=8) for n in range(10)]


@pytest.mark.parametrize(
    ("agents", "item", "options", "expected"),
    [
        pytest.param(F1, wants("s", 1, 2048), {}, "low", id="C1"),
        pytest.param(F1, wants("s", 1, 2048), {"agent_selection": "dispersed"}, "high", id="C2"),
        pytest.param([GPU, CPU], wants("s", slots={"cuda.shares": 0}), {}, "b-cpu", id="C4 concentrated"),
        pytest.param(
            [GPU, CPU], wants("s", slots={"cuda.shares": 0}), {"agent_selection": "dispersed"}, "b-cpu",
            id="C4 dispersed",
        ),
        pytest.param([GPU, CPU], wants("s"), {}, "b-cpu", id="C4 left out counts as zero"),
        pytest.param(
            [node("a", 8, free_cpu=1), node("b", 8, free_cpu=7)], wants("s"),
            {"agent_selection": "dispersed"}, "b", id="C9 dispersed",
        ),
        pytest.param([node("a", 8, free_cpu=1), node("b", 8, free_cpu=7)], wants("s"), {}, "a", id="C9"),
        pytest.param(F1, wants("s", 1, 2048), {"slot_priority": ("npu", "cpu")}, "low", id="C11"),
        pytest.param(
            [node("a", cpu=2, mem=9000), node("b", cpu=4, mem=8000)], wants("s"), {}, "a", id="C12 cpu first"
        ),
        pytest.param(
            [node("a", cpu=2, mem=9000), node("b", cpu=4, mem=8000)], wants("s"),
            {"slot_priority": ("mem",)}, "b", id="C12 as the group says",
        ),
        pytest.param([INTEL, ARM], wants("s", arch="aarch64"), {}, "arm", id="C22"),
        pytest.param(F1, wants("s", designated=frozenset({"high", "gone"})), {}, "high", id="C29"),
        pytest.param([CPU, node("c")], wants("s", avoid=frozenset({"b-cpu"})), {}, "c", id="C32"),
        pytest.param(
            [CPU, node("z", labels={"zone": "b"})], wants("s", labels={"zone": "b"}), {}, "z", id="labels"
        ),
        pytest.param(
            [node("a", max_kernels=1, kernels=1), node("b")], wants("s"), {}, "b", id="container limit"
        ),
        pytest.param([node("a", draining=True), node("b")], wants("s"), {}, "b", id="drain"),
        pytest.param([node("a", fenced=True), node("b")], wants("s"), {}, "b", id="fence"),
    ],
)  # fmt: skip
def test_which_agent(agents: list[AgentState], item: Pending, options: dict[str, Any], expected: str) -> None:
    for _ in range(3):  # C7: the same again
        assert where(decide(agents, [item], **options)) == {"s": [expected]}
    assert where(decide(agents[::-1], [item], **options)) == {"s": [expected]}


@pytest.mark.parametrize(
    ("agents", "item", "reason", "said"),
    [
        pytest.param(
            [INTEL],
            wants("s", arch="aarch64"),
            Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: is not aarch64"],
            id="C23",
        ),
        pytest.param(
            [CPU], wants("s", slots={"npu.device": 1}), Reason.INFEASIBLE,
            ["1 agent: needs 1 npu.device, has 0 even when empty"], id="C24",
        ),
        pytest.param(
            [LOW, HIGH], wants("s", 4, designated=frozenset({"low"})), Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: needs 4 cpu, 2 free", "1 agent: not one of the agents that were named"], id="C26",
        ),
        pytest.param(
            [LOW], wants("s", designated=frozenset({"gone"})), Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: not one of the agents that were named"], id="C27",
        ),
        pytest.param([], wants("s"), Reason.NO_ELIGIBLE_AGENT, ["the resource group has no agent"], id="C31"),
        pytest.param(
            [node("a", labels={"zone": "a"})], wants("s", labels={"zone": "b"}), Reason.NO_ELIGIBLE_AGENT,
            ["1 agent: has no label zone=b"], id="labels",
        ),
        pytest.param(
            [node("a", max_kernels=2, kernels=2)], wants("s"), Reason.INSUFFICIENT_RESOURCES,
            ["1 agent: runs as many kernels as it may (2)"], id="container limit",
        ),
        pytest.param(
            [node("a", draining=True), node("b", fenced=True)], wants("s"), Reason.NO_ELIGIBLE_AGENT,
            [
                "1 agent: cordoned or draining: no new work",
                "1 agent: fenced until it is back: work that was given up may still use its devices",
            ], id="drain and fence",
        ),
    ],
)  # fmt: skip
def test_why_no_agent(agents: list[AgentState], item: Pending, reason: Reason, said: list[str]) -> None:
    held = hold(decide(agents, [item]), "s")
    assert held.reason is reason
    assert [refusal_message(refusal) for refusal in held.refusals] == said


def test_an_engine_comes_with_its_image() -> None:
    bare = replace(node("bare"), runtimes=frozenset({"docker", "process"}))
    by_image = replace(wants("by-image"), runtime="docker", engine="vllm")
    on_the_node = replace(wants("on-the-node"), engine="vllm")
    answer = decide([bare, node("without-docker")], [by_image, on_the_node])
    assert where(answer) == {"by-image": ["bare"]}
    assert hold(answer, "on-the-node").reason is Reason.NO_ELIGIBLE_AGENT


def round_robin(agents: list[AgentState], count: int, cpu: int, mem: int = 0) -> list[str | None]:
    pending = [wants(f"s{n:02}", cpu, mem, created=n) for n in range(count)]
    placed = where(decide(agents, pending, agent_selection="round-robin", hol="skip"))
    return [placed[item.session_id][0] if item.session_id in placed else None for item in pending]


def test_c14_c16_c17_round_robin_takes_turns_by_id() -> None:
    assert round_robin(MANY, 20, 1) == [f"i-{n:03}" for n in range(10)] * 2
    assert round_robin([node("zebra"), node("alpha"), node("beta")], 3, 1) == ["alpha", "beta", "zebra"]
    assert sorted(round_robin(MANY[:5], 20, 1)) == sorted([f"i-{n:03}" for n in range(5)] * 4)


def test_c15_round_robin_passes_over_who_is_full() -> None:
    sizes = [(8, 4096), (4, 2048), (2, 1024), (1, 512)]
    agents = [node(f"{n:03}", cpu, mem) for n, (cpu, mem) in enumerate(sizes, 1)]
    expected = ["001", "002", "003", "001", "002", "001", "001", None]
    assert round_robin(agents, 8, 2, 500) == expected


def test_round_robin_goes_on_where_it_was_and_remembers_by_architecture() -> None:
    options: dict[str, Any] = {"agent_selection": "round-robin", "cursors": {"": AgentId("i-004")}}
    answer = decide(MANY, [wants("s")], **options)
    assert (where(answer), answer.cursors) == ({"s": ["i-005"]}, {"": "i-005"})
    assert decide(MANY, [wants("s", 64)], **options).cursors == {}  # C15: nothing fits, nothing moves
    arch = [node("a", arch="arm"), node("b", arch="arm")]
    assert decide(arch, [wants("s", arch="arm")], **options).cursors == {"arm": "a"}


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
        pytest.param((0, 0, 0), "pack", "i-001", id="D13 the first of a pack may go anywhere"),
        pytest.param((1, 1, 0), "none", "i-001", id="D16"),
    ],
)
def test_replicas_of_an_endpoint(counts: tuple[int, ...], rule: str, expected: str) -> None:
    item = wants("s", endpoint_id=EndpointId("e"))
    assert where(decide(replicas(*counts), [item], replicas=rule)) == {"s": [expected]}


def test_d10_spreading_is_a_wish_and_counts_the_places_of_this_pass() -> None:
    pending = [wants(f"s{n}", 1, 512, created=n, endpoint_id=EndpointId("e")) for n in range(5)]
    answer = decide(replicas(1, 0, 0), pending)
    assert [found[0] for found in where(answer).values()] == ["i-002", "i-003", "i-001", "i-002", "i-003"]


def test_c21_each_goes_where_it_can() -> None:
    agents = [node("gpu", cpu=4, gpus=4), node("cpu", cpu=3)]
    pending = [
        wants("rocm", slots={"rocm.device": 1}, created=0),
        wants("cuda", slots={"cuda.device": 1}, created=1),
        wants("plain", created=2),
    ]
    for strategy in ("fifo", "lifo"):
        answer = decide(agents, pending, agent_selection="dispersed", strategy=strategy)
        assert where(answer) == {"cuda": ["gpu"], "plain": ["cpu"]}


@pytest.mark.parametrize(
    ("agents", "item", "expected"),
    [
        pytest.param(
            [node("a", 4), node("b", 6)], cluster("s", 4, 2, mode="single-node"), ["b", "b"], id="D1"
        ),
        pytest.param(
            [node("a", 4), node("b", 4)], cluster("s", 1, 3, mode="multi-node"), ["a", "b"], id="D2"
        ),
        pytest.param([node("a", 3)], cluster("s", 2, 1, mode="single-node"), ["a", "a"], id="D3"),
        pytest.param([node("a", 4)], cluster("s", 8, 1, mode="multi-node"), None, id="D6"),
        pytest.param(
            [node("a", 4)], cluster("s", 1, 1, mode="multi-node"), None, id="each needs its own agent"
        ),
        pytest.param(
            [node("a", 2), node("b", 4)],
            cluster("s", 1, 4, mode="multi-node"),
            ["a", "b"],
            id="the small gives way",
        ),
        pytest.param(
            [node("a", 4), node("b", 3)], cluster("s", 3, 3, 3, mode="multi-node"), None, id="three on two"
        ),
    ],
)
def test_clusters(agents: list[AgentState], item: Pending, expected: list[str] | None) -> None:
    answer = decide(agents, [item, wants("after", 1, created=1)])
    assert where(answer).get("s") == expected
    # D7: what was tried for the cluster is as free as before.
    assert "after" in where(answer) or expected


def test_a_cluster_says_that_it_is_only_together_that_it_does_not_fit() -> None:
    agents = [node("a", 4), node("b", 4, free_cpu=0)]
    answer = decide(agents, [cluster("s", 2, 2, mode="multi-node")])
    assert hold(answer, "s").reason is Reason.INSUFFICIENT_RESOURCES
    assert [refusal_message(refusal) for refusal in hold(answer, "s").refusals] == [
        "1 agent: needs 2 cpu, 0 free",
        "1 agent: has room for some of the 2 kernels, but not for all at once",
    ]
    never = decide([node("a", 4)], [cluster("s", 2, 2, mode="multi-node")])
    assert hold(never, "s").reason is Reason.INFEASIBLE
