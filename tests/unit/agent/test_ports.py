"""PortAllocator: from the range, really free, not given again at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from moorage.agent.state.ports import NoFreePort, PortAllocator
from moorage.common.aio.clock import ManualClock
from moorage.common.model.errors import StartupError
from moorage.common.model.service_ports import AppPort, ServicePort

HOST = "127.0.0.1"


@pytest.fixture
def span() -> Iterator[tuple[int, int]]:
    """Four neighbouring ports that nobody uses now."""
    for low in range(24_000, 25_000, 4):
        try:
            for port in range(low, low + 4):
                with socket.socket() as probe:
                    probe.bind((HOST, port))
        except OSError:
            continue
        yield low, low + 3
        return


def test_each_port_once(span: tuple[int, int]) -> None:
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    assert {ports.allocate() for _ in range(4)} == set(range(span[0], span[1] + 1))
    with pytest.raises(NoFreePort, match=r"agent\.port_range"):
        ports.allocate()


def test_a_released_port_rests(span: tuple[int, int]) -> None:
    clock = ManualClock()
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=clock, cooldown_s=60)
    taken = [ports.allocate() for _ in range(3)]
    ports.release(taken[0])
    clock.advance(1)
    ports.release(taken[1])
    assert ports.allocate() not in taken  # the last that never was given
    assert ports.allocate() == taken[0]  # better one that rests than none, the longest rested first
    clock.advance(120)
    ports.release(taken[0])
    assert ports.allocate() == taken[1]


def test_a_port_of_another_program_is_skipped(span: tuple[int, int]) -> None:
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    with socket.socket() as other:
        other.bind((HOST, span[0] + 1))
        other.listen()
        assert span[0] + 1 not in {ports.allocate() for _ in range(3)}
        with pytest.raises(NoFreePort):
            ports.allocate()
    assert ports.allocate() == span[0] + 1


def test_held_ports_are_not_given(span: tuple[int, int]) -> None:
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    ports.reserve([0, span[0], span[1], 1])
    assert {ports.allocate(), ports.allocate()} == {span[0] + 1, span[0] + 2}
    with pytest.raises(NoFreePort):
        ports.allocate()


def test_agents_begin_at_different_ports() -> None:
    first = {
        PortAllocator("24000-24999", HOST, clock=ManualClock(), seed=f"agent-{n}").allocate()
        for n in range(10)
    }
    assert len(first) > 5


def test_an_address_of_elsewhere() -> None:
    PortAllocator("24000-24001", HOST, clock=ManualClock()).check_host()
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(StartupError, match=r"agent\.address"):
            PortAllocator("24000-24001", host, clock=ManualClock()).check_host()


def test_service_ports_are_given_all_or_none(span: tuple[int, int]) -> None:
    clock = ManualClock()
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=clock)
    wanted = (ServicePort("lab", base_path=True, guarded=True), ServicePort("db", protocol="tcp"))
    lab, db = ports.allocate_service_ports(wanted, contained=False)
    assert lab == AppPort("lab", lab.port, "http", True, lab.port, True)
    assert (db.protocol, db.inner) == ("tcp", db.port)
    with pytest.raises(NoFreePort):
        ports.allocate_service_ports((ServicePort("a"), ServicePort("b"), ServicePort("c")), contained=False)
    rest = {ports.allocate(), ports.allocate()}
    assert rest | {lab.port, db.port} == set(range(span[0], span[1] + 1)), "none was kept by the refused"


def test_a_container_has_its_own_ports_and_none_is_meant_twice(span: tuple[int, int]) -> None:
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    # What one declares is never what another is given to listen on.
    declared = ServicePort("lab", span[0])
    lab, free = ports.allocate_service_ports(
        (declared, ServicePort("free")), contained=True, used_inside=[span[0] + 1]
    )
    assert (lab.inner, free.inner) == (span[0], free.port)
    assert {lab.port, free.port} == {span[0] + 2, span[0] + 3}
    with pytest.raises(NoFreePort, match="declare another"):
        ports.allocate_service_ports((ServicePort("again", span[0]),), contained=True, used_inside=[span[0]])


def test_a_program_cannot_claim_a_port_by_its_environment(span: tuple[int, int]) -> None:
    ports = PortAllocator(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    held = ports.allocate()
    mine = next(port for port in range(span[0], span[1] + 1) if port != held)
    claimed = (AppPort("mine", mine), AppPort("others", held), AppPort("ssh", 22))
    assert ports.reclaimable(claimed) == claimed[:1]
