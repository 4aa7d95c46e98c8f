"""Feasible sets and the diagnosis of refusals, checked against a scan of every agent."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import PLANS, any_snapshot

from moorage.manager.scheduling import Policy, Snapshot
from moorage.manager.scheduling.placement.feasible_set import accepts_node, diagnose
from moorage.manager.scheduling.placement.node_pool import NodePool


@PLANS
@given(any_snapshot(), st.data())
def test_feasible_sets_are_those_of_a_scan(snapshot: Snapshot, data: st.DataObject) -> None:
    pool = NodePool(snapshot.agents, Policy())
    for item in snapshot.pending:
        feasible = pool.feasible_set(item.shape.constraints)
        able = {
            agent.agent_id
            for agent in snapshot.agents
            if item.runtime in agent.runtimes
            and item.engine in agent.engines
            and item.arch in ("", agent.arch)
            and all(agent.labels.get(name) == value for name, value in item.labels.items())
        }
        assert {node.agent.agent_id for node in feasible.nodes} == able
        assert {node.agent.agent_id for node in feasible.schedulable} == {
            agent.agent_id
            for agent in snapshot.agents
            if agent.agent_id in able
            and agent.schedulable
            and not (agent.dials_out and item.sub_kernels and item.mode == "multi-node")
        }
        classes = [node.rank for node_class in feasible.node_classes for node in node_class.nodes]
        assert sorted(classes) == [node.rank for node in feasible.nodes]
        for node_class in feasible.node_classes:
            assert len({tuple(sorted(node.capacity.items())) for node in node_class.nodes}) == 1


@PLANS
@given(any_snapshot())
def test_diagnosis_counts_each_agent_once_with_what_it_has(snapshot: Snapshot) -> None:
    """The columns of node classes yield the same counts as a scan: each agent is counted under the
    first slot of which it has too little, along with the maximum that any agent has."""
    pool = NodePool(snapshot.agents, Policy())
    for item in snapshot.pending:
        demand = pool.with_kernels(item.shape.total)
        feasible = pool.feasible_set(item.shape.constraints)
        infeasibility = diagnose(
            feasible, item, item.shape, demand, quantized=pool.quantized, version=pool.version
        )
        counts: Counter[tuple[str, str]] = Counter()
        most: dict[tuple[str, str], int] = {}
        for node in feasible.nodes:
            for kind, amounts in (
                ("never", node.capacity),
                ("unhealthy", node.healthy),
                ("capacity", node.free),
            ):
                short = next(
                    (slot for slot, amount in demand if amounts.get(slot, 0) < amount), None
                )
                dials_out = node.agent.dials_out and item.shape.constraints.direct
                takes_work = node.agent.schedulable and not dials_out
                if kind != "never" and not (takes_work and accepts_node(item, node, False)):
                    break
                if kind == "unhealthy":
                    short = None if node.fits_when_empty(demand) else short or ""

                if short is not None:
                    name = (
                        ("kernels", "")
                        if (kind, short) == ("capacity", "kernels")
                        else (kind, short)
                    )
                    counts[name] += 1
                    most[name] = max(most.get(name, 0), amounts.get(short, 0))
                    break

        found = {(kind.value, slot): count for (kind, slot), count in infeasibility.counts.items()}
        assert sum(count.agents for count in found.values()) == len(snapshot.agents)
        for name in found.keys() | counts.keys():
            if name[0] in ("never", "unhealthy", "capacity", "kernels"):
                assert found[name].agents == counts[name]
            if name[0] in ("never", "capacity"):
                assert found[name].available == most[name]
