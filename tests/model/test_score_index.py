"""The score index, checked against ``min()`` with a plain key while nodes are allocated, reserved
and released."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import PLANS

from moorage.common.model.ids import AgentId, DeviceId
from moorage.manager.scheduling import AgentState, DeviceState
from moorage.manager.scheduling.core.demand import MAX_AMOUNT, demand_of
from moorage.manager.scheduling.core.shape import shape_of
from moorage.manager.scheduling.placement.feasible_set import FeasibleSet
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.resource_request import ResourceRequest
from moorage.manager.scheduling.placement.score_index import ScoreIndex

AMOUNTS = st.sampled_from([0, 1, 2, 1000, MAX_AMOUNT - 1, MAX_AMOUNT])
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([0, 1, 2, 1000, MAX_AMOUNT]),
        "mem": st.sampled_from([0, 1, 2, 1000, MAX_AMOUNT, MAX_AMOUNT + 1]),
        "cuda.device": st.integers(0, 2),
        "rocm.shares": st.sampled_from([0, 300, 1000]),
        "license": st.integers(0, 1),
    },
)


@st.composite
def node(draw: st.DrawFn, rank: int) -> NodeState:
    devices = tuple(
        DeviceState(
            DeviceId(f"{slot}{n}"), slot, draw(st.sampled_from([0, 300, 500, 1000, 2000])), 2000
        )
        for slot in ("cuda.device", "rocm.device")
        for n in range(draw(st.sampled_from([0, 0, 1, 3])))
    )
    free = {"cpu": draw(AMOUNTS), "mem": draw(AMOUNTS)}
    agent = AgentState(
        AgentId(f"a{rank}"),
        frozenset({"p"}),
        engines=frozenset({"c"}),
        free=free,
        capacity=free,
        devices=devices,
    )
    return NodeState(agent, rank)


def best_first(nodes: list[NodeState], slots: dict[str, int], dispersed: bool) -> list[int]:
    """Ranks of the unreserved nodes on which ``slots`` fit, by an explicit key: first the nodes
    with the fewest free devices of kinds that are not requested, then the strategy's order by the
    requested slots, and then by the others."""
    demand = demand_of(slots)
    requested = [slot for slot, _ in demand]
    sign = -1 if dispersed else 1
    all_slots = ("cuda.shares", "rocm.shares", "cpu", "mem")
    idle = [slot for slot in all_slots[:2] if slot not in requested]
    others = [slot for slot in all_slots if slot not in requested and slot not in idle]

    def key(one: NodeState) -> tuple[object, ...]:
        amounts = (
            one.free.get(slot, 0) for slot in (*(s for s in all_slots if s in requested), *others)
        )
        unrequested = (one.free.get(slot, 0) for slot in idle)
        signed = (sign * amount for amount in amounts)
        return len(one.families - set(requested)), *unrequested, *signed, one.rank

    fitting = [one for one in nodes if not one.reserved and one.fits(demand)]
    return [one.rank for one in sorted(fitting, key=key)]


@PLANS
@given(st.data(), st.booleans())
def test_candidates_are_the_fitting_nodes_in_the_order_of_a_plain_key(
    data: st.DataObject, dispersed: bool
) -> None:
    nodes = [data.draw(node(rank)) for rank in range(data.draw(st.integers(1, 6)))]
    index = ScoreIndex(nodes, dispersed)
    for _ in range(data.draw(st.integers(1, 8))):
        slots = data.draw(REQUESTS)
        shape = shape_of("p", "c", "", {}, mode="single-node", kernels=(slots,))
        expected = best_first(nodes, slots, dispersed)
        view = index.view(shape)
        assert [found.rank for found in view.candidates(shape, shape.total, nodes)] == expected
        packed = view.pack(shape.total)
        best = None if packed is None else view.best(view.segments(shape, nodes), packed)
        assert (best.rank if best else None) == (expected[0] if expected else None)
        changed = nodes[data.draw(st.integers(0, len(nodes) - 1))]
        if changed.reserved:
            index.restore(changed)
            changed.reserved = False
        elif data.draw(st.integers(0, 3)) == 0:
            index.remove(changed)
            changed.reserved = True
        elif best is not None and packed is not None:
            request = ResourceRequest(
                shape, shape.total, view, FeasibleSet(nodes, shape.constraints)
            )
            reference = best.copy()
            allocations, exact = request.allocate_on(best, "fill")
            assert allocations == reference.allocate(shape.total, "fill")
            assert best.free == reference.free

            if exact:
                index.subtract(best, view, packed)
            else:
                index.update(best)
