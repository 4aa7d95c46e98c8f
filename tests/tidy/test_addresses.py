"""Addresses of test processes: no two concurrent processes share one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from tests.addresses import (
    AGENT_PORTS,
    ENGINES,
    LANE,
    LANES,
    NETWORKS,
    OWN,
    PORTS,
    Place,
    claim_lane,
    number,
)

# The maximum number of workers in one lane: as many as the Makefile starts, and as the engine
# numbers suffice for.
WORKERS = {PORTS: 12, NETWORKS: 12, ENGINES: 8}


@pytest.mark.parametrize("room", WORKERS, ids=["ports", "networks", "engines"])
def test_no_address_belongs_to_two_processes(room: range) -> None:
    """This holds for any number of workers in each lane."""
    lanes: dict[int, int] = {}
    for lane, workers in itertools.product(range(LANES), range(1, WORKERS[room] + 1)):
        taken: set[int] = set()
        for worker in range(workers):
            share = Place(lane, worker, workers).share(room)
            assert share
            assert set(share) <= set(room)
            assert taken.isdisjoint(share)
            taken |= set(share)

        assert all(lanes.setdefault(address, lane) == lane for address in taken)


def test_ports_stay_below_those_of_outgoing_connections() -> None:
    assert min(PORTS) >= 10_000
    assert max(PORTS) < 32_768


@pytest.mark.parametrize("workers", range(1, WORKERS[PORTS] + 1))
def test_agents_of_a_process_have_ranges_apart_from_its_other_ports(workers: int) -> None:
    """At least three agents, as in a cluster under test."""
    place = Place(LANES - 1, workers - 1, workers)
    singles = place.single_ports()
    ranges = list(itertools.islice(place.agent_ranges(AGENT_PORTS), 3))
    together = [*singles, *itertools.chain(*ranges)]
    assert len(singles) >= 50
    assert [len(one) for one in ranges] == [AGENT_PORTS] * 3
    assert len(set(together)) == len(together)
    assert set(together) <= set(place.share(PORTS))


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, Place(0, 0, 1)),
        ({"MOORAGE_TEST_LANE": "7"}, Place(7, 0, 1)),
        ({"PYTEST_XDIST_WORKER": "gw2", "PYTEST_XDIST_WORKER_COUNT": "3"}, Place(0, 2, 3)),
        # The successor of a crashed worker.
        ({"PYTEST_XDIST_WORKER": "gw3", "PYTEST_XDIST_WORKER_COUNT": "3"}, Place(0, 0, 3)),
    ],
)
def test_place_of_a_process_is_its_lane_and_its_worker(
    environ: dict[str, str], place: Place
) -> None:
    assert Place.of(environ) == place


def test_unknown_lane_is_refused() -> None:
    with pytest.raises(ValueError, match="MOORAGE_TEST_LANE=8: there are the lanes 0 to 7"):
        Place.of({"MOORAGE_TEST_LANE": "8"})


def test_runs_that_name_no_lane_take_different_ones(tmp_path: Path) -> None:
    environs: list[dict[str, str]] = [{} for _ in range(LANES)]
    for environ in environs:
        claim_lane(environ, str(tmp_path))
    assert [environ[LANE] for environ in environs] == [str(lane) for lane in range(LANES)]


def test_run_that_names_its_lane_has_it(tmp_path: Path) -> None:
    environ = {LANE: "0"}
    other = {}
    child = {LANE: "0"}
    for one in (environ, other, child):
        claim_lane(one, str(tmp_path))
    assert (environ[LANE], other[LANE], child[LANE]) == ("0", "1", "0")


def test_too_many_workers_for_the_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="8 addresses for 9 workers: use fewer"):
        Place(0, 0, WORKERS[ENGINES] + 1).share(ENGINES)


def test_no_address_is_made_from_the_number_of_a_process() -> None:
    """Two processes whose numbers are equal modulo the range would have the same addresses."""
    modulo = re.compile(r"getpid\(\)\s*%")
    files = [
        file for file in Path(__file__).parents[1].rglob("*.py") if modulo.search(file.read_text())
    ]
    assert files == []


def test_a_number_in_use_is_not_given_again() -> None:
    used: set[int] = set()
    for _ in OWN.share(ENGINES):
        found = number(ENGINES, used)
        assert found not in used
        used.add(found)
    with pytest.raises(ValueError, match="in use"):
        number(ENGINES, used)
    used.discard(freed := min(used))
    assert [number(ENGINES, used) for _ in range(2)] == [freed, freed]
