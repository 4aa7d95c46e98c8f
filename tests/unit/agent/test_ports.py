"""The port allocator: range, actually free ports, cooldown, service ports."""

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
def port_range() -> Iterator[tuple[int, int]]:
    """First and last of four adjacent free ports."""
    for low in range(24_000, 25_000, 4):
        try:
            for port in range(low, low + 4):
                with socket.socket() as probe:
                    probe.bind((HOST, port))
        except OSError:
            continue

        yield low, low + 3
        return


def test_each_port_is_allocated_once(port_range: tuple[int, int]) -> None:
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=ManualClock())
    assert {ports.allocate() for _ in range(4)} == set(range(port_range[0], port_range[1] + 1))
    with pytest.raises(NoFreePort, match=r"agent\.port_range"):
        ports.allocate()


def test_released_port_cools_down(port_range: tuple[int, int]) -> None:
    clock = ManualClock()
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=clock, cooldown_s=60)
    allocated = [ports.allocate() for _ in range(3)]
    ports.release(allocated[0])
    clock.advance(1)
    ports.release(allocated[1])
    assert ports.allocate() not in allocated  # the last unused port
    assert ports.allocate() == allocated[0]  # none has cooled down: the first one released
    clock.advance(120)
    ports.release(allocated[0])
    assert ports.allocate() == allocated[1]


def test_port_of_another_program_is_skipped(port_range: tuple[int, int]) -> None:
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=ManualClock())
    with socket.socket() as other:
        other.bind((HOST, port_range[0] + 1))
        other.listen()
        assert port_range[0] + 1 not in {ports.allocate() for _ in range(3)}
        with pytest.raises(NoFreePort):
            ports.allocate()
    assert ports.allocate() == port_range[0] + 1


def test_reserved_ports_are_not_allocated(port_range: tuple[int, int]) -> None:
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=ManualClock())
    ports.reserve([0, port_range[0], port_range[1], 1])
    assert {ports.allocate(), ports.allocate()} == {port_range[0] + 1, port_range[0] + 2}
    with pytest.raises(NoFreePort):
        ports.allocate()


def test_agents_start_at_different_ports() -> None:
    first = {
        PortAllocator("24000-24999", HOST, clock=ManualClock(), seed=f"agent-{n}").allocate()
        for n in range(10)
    }
    assert len(first) > 5


def test_address_of_another_host_is_rejected() -> None:
    PortAllocator("24000-24001", HOST, clock=ManualClock()).check_host()
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(StartupError, match=r"agent\.address"):
            PortAllocator("24000-24001", host, clock=ManualClock()).check_host()


def test_service_ports_are_allocated_all_or_none(port_range: tuple[int, int]) -> None:
    clock = ManualClock()
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=clock)
    declared = (ServicePort("lab", base_path=True, guarded=True), ServicePort("db", protocol="tcp"))
    lab, db = ports.allocate_service_ports(declared, contained=False)
    assert lab == AppPort(
        "lab", lab.port, protocol="http", base_path=True, inner=lab.port, guarded=True
    )
    assert (db.protocol, db.inner) == ("tcp", db.port)

    with pytest.raises(NoFreePort):
        ports.allocate_service_ports(
            (ServicePort("a"), ServicePort("b"), ServicePort("c")), contained=False
        )

    rest = {ports.allocate(), ports.allocate()}
    assert rest | {lab.port, db.port} == set(range(port_range[0], port_range[1] + 1)), (
        "a refused request must hold none"
    )


def test_ports_inside_a_container_are_not_used_twice(port_range: tuple[int, int]) -> None:
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=ManualClock())
    # A declared port must not be chosen for another service to listen on.
    declared = ServicePort("lab", port_range[0])
    lab, free = ports.allocate_service_ports(
        (declared, ServicePort("free")), contained=True, used_inside=[port_range[0] + 1]
    )
    assert (lab.inner, free.inner) == (port_range[0], free.port)
    assert {lab.port, free.port} == {port_range[0] + 2, port_range[0] + 3}

    with pytest.raises(NoFreePort, match="declare another"):
        ports.allocate_service_ports(
            (ServicePort("again", port_range[0]),), contained=True, used_inside=[port_range[0]]
        )


def test_program_cannot_claim_a_port_through_its_environment(port_range: tuple[int, int]) -> None:
    ports = PortAllocator(f"{port_range[0]}-{port_range[1]}", HOST, clock=ManualClock())
    allocated = ports.allocate()
    mine = next(port for port in range(port_range[0], port_range[1] + 1) if port != allocated)
    claimed = (AppPort("mine", mine), AppPort("others", allocated), AppPort("ssh", 22))
    assert ports.reclaimable(claimed) == claimed[:1]
