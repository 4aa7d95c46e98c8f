"""Ports: from the range, really free, not given again at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fairlead.agent.ports import NoPort, Ports
from fairlead.common.clock import ManualClock
from fairlead.common.errors import StartupError

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
    ports = Ports(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    assert {ports.take() for _ in range(4)} == set(range(span[0], span[1] + 1))
    with pytest.raises(NoPort, match=r"agent\.port_range"):
        ports.take()


def test_a_released_port_rests(span: tuple[int, int]) -> None:
    clock = ManualClock()
    ports = Ports(f"{span[0]}-{span[1]}", HOST, clock=clock, cooldown_s=60)
    taken = [ports.take() for _ in range(3)]
    ports.release(taken[0])
    clock.advance(1)
    ports.release(taken[1])
    assert ports.take() not in taken  # the last that never was given
    assert ports.take() == taken[0]  # better one that rests than none, the longest rested first
    clock.advance(120)
    ports.release(taken[0])
    assert ports.take() == taken[1]


def test_a_port_of_another_program_is_skipped(span: tuple[int, int]) -> None:
    ports = Ports(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    with socket.socket() as other:
        other.bind((HOST, span[0] + 1))
        other.listen()
        assert span[0] + 1 not in {ports.take() for _ in range(3)}
        with pytest.raises(NoPort):
            ports.take()
    assert ports.take() == span[0] + 1


def test_held_ports_are_not_given(span: tuple[int, int]) -> None:
    ports = Ports(f"{span[0]}-{span[1]}", HOST, clock=ManualClock())
    ports.hold([0, span[0], span[1], 1])
    assert {ports.take(), ports.take()} == {span[0] + 1, span[0] + 2}
    with pytest.raises(NoPort):
        ports.take()


def test_agents_begin_at_different_ports() -> None:
    first = {Ports("24000-24999", HOST, clock=ManualClock(), seed=f"agent-{n}").take() for n in range(10)}
    assert len(first) > 5


def test_an_address_of_elsewhere() -> None:
    Ports("24000-24001", HOST, clock=ManualClock()).check_host()
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(StartupError, match=r"agent\.address"):
            Ports("24000-24001", host, clock=ManualClock()).check_host()
