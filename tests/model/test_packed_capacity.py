"""Packed capacities, checked against a search over individual devices; and device selection,
checked against packed capacities."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import PLANS

from moorage.common.model.ids import DeviceId
from moorage.manager.scheduling.core.demand import demand_of, dominates, packed_capacity
from moorage.manager.scheduling.core.model import DeviceFamily, DeviceState
from moorage.manager.scheduling.placement.devices import FreeDevices, choose_devices
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity

FREE = st.lists(st.sampled_from([0, 1, 100, 250, 500, 999, 1000]), max_size=6)
AMOUNT = st.integers(1, 12).map(lambda steps: steps * 250) | st.integers(1, 3000)


def serves(free: list[int], amount: int) -> bool:
    """Whether whole devices and a fraction of one more can provide ``amount``, found by trying
    every choice."""
    whole, fraction = divmod(amount, 1000)
    indexes = range(len(free))
    return any(
        all(free[index] >= 1000 for index in chosen)
        and (
            not fraction or any(free[index] >= fraction for index in indexes if index not in chosen)
        )
        for chosen in combinations(indexes, whole)
    )


@PLANS
@given(FREE, AMOUNT)
def test_devices_serve_exactly_the_requests_up_to_their_packed_capacity(
    free: list[int], amount: int
) -> None:
    assert (amount <= packed_capacity(free)) == serves(free, amount)


def devices(free: list[int]) -> DeviceFamily:
    states = tuple(
        DeviceState(DeviceId(f"{n}"), "cuda.device", amount) for n, amount in enumerate(free)
    )
    return DeviceFamily(states, tuple(free), False)


@PLANS
@given(FREE, AMOUNT, st.sampled_from(["even", "fill"]))
def test_selection_finds_devices_for_every_request_that_fits(
    free: list[int], amount: int, fraction: str
) -> None:
    if amount > packed_capacity(free):
        return
    chosen = choose_devices(FreeDevices(devices(free)), amount, fraction)
    assert sum(share for _, share in chosen) == amount
    assert len({index for index, _ in chosen}) == len(chosen)
    assert all(0 < share <= free[index] for index, share in chosen)


@PLANS
@given(FREE, st.integers(0, 4000), st.lists(AMOUNT, max_size=4))
def test_free_capacity_stays_consistent_with_its_devices(
    free: list[int], cpu: int, amounts: list[int]
) -> None:
    """After allocations and releases in any order, the packed number matches the devices, and
    neither a copy nor the agent's own numbers have changed."""
    family = "cuda.shares"
    agents_free = {family: packed_capacity(free), "cpu": cpu}
    before = dict(agents_free)
    capacity = FreeCapacity(agents_free, frozenset({family}), {family: devices(free)})
    held = []
    for amount in amounts:
        demand = demand_of({family: amount, "cpu": 500})
        if capacity.fits(demand):
            copy = capacity.copy()
            preview = capacity.select(demand, "fill")
            held.append(capacity.allocate(demand, "fill"))
            assert held[-1] == preview
            assert copy.allocate(demand, "fill") == preview

        assert capacity.free[family] == packed_capacity(capacity.free_devices[family].free)

    for allocations in held:
        capacity.release(allocations)

    assert capacity.free == agents_free == before


@PLANS
@given(
    st.dictionaries(
        st.sampled_from(["cpu", "mem", "cuda.device", "cuda.shares"]), st.integers(0, 3)
    ),
    st.dictionaries(
        st.sampled_from(["cpu", "mem", "cuda.device", "cuda.shares"]), st.integers(0, 3)
    ),
)
def test_a_dominating_demand_fits_on_no_node_on_which_the_other_does_not(
    one: dict[str, int], other: dict[str, int]
) -> None:
    large = demand_of(one)
    small = demand_of(other)
    exactly = FreeCapacity(dict(large), frozenset(), {})
    assert dominates(large, small) == exactly.fits(small)
