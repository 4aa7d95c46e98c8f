"""Tests of the excuses for sessions that ended in a fault run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.reasons import Reason

from .excuses import InjectedFault, SessionEnd, is_excused, met_fault
from .schedule import Fault

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def fault(kind: str, component: str, began: float, ended: float | None) -> InjectedFault:
    return InjectedFault(
        Fault(kind, component, 0, 0), at(began), None if ended is None else at(ended)
    )


LOST = SessionEnd(Reason.AGENT_LOST, frozenset({"agent-1"}), at(0), at(200))
ELSEWHERE = SessionEnd(Reason.AGENT_LOST, frozenset({"agent-3"}), at(0), at(200))
NOWHERE = SessionEnd(Reason.AGENT_LOST, frozenset(), at(0), at(200))
SEVERAL = SessionEnd(Reason.AGENT_LOST, frozenset({"agent-1", "agent-2"}), at(0), at(200))
AT_SITE = SessionEnd(Reason.KERNEL_GONE, frozenset({"site-1"}), at(100), at(110))
GONE = SessionEnd(Reason.KERNEL_GONE, frozenset({"agent-1"}), at(100), at(110))


@pytest.mark.parametrize(
    ("end", "injected", "excused"),
    [
        (LOST, fault("pause", "agent-1", 185, 200), True),
        (LOST, fault("pause", "agent-1", 185, None), True),
        (LOST, fault("pause", "agent-1", 100, 110), False),
        (LOST, fault("pause", "agent-1", 201, 210), False),
        (LOST, fault("pause", "agent-2", 185, 200), False),
        (LOST, fault("pause", "manager-1", 185, 200), False),
        (LOST, fault("pause", "postgres", 185, 200), False),
        (LOST, fault("unplug", "network", 185, 200), False),
        (ELSEWHERE, fault("unplug", "network", 185, 200), True),
        (SEVERAL, fault("pause", "agent-1", 185, 200), True),
        (SEVERAL, fault("pause", "agent-2", 185, 200), True),
        (SEVERAL, fault("unplug", "network", 185, 200), False),
        (NOWHERE, fault("pause", "agent-1", 185, 200), False),
        (AT_SITE, fault("job-cancelled", "site", 105, 105), True),
        (AT_SITE, fault("job-cancelled", "site", 90, 90), False),
        (GONE, fault("job-cancelled", "site", 105, 105), False),
        (GONE, fault("kill", "agent-1", 98, 101), True),
        (GONE, fault("kill", "agent-1", 90, 95), False),
        (GONE, fault("kill", "proxy-1", 98, 101), False),
    ],
)
def test_only_a_fault_of_the_agent_at_that_time_excuses(
    end: SessionEnd, injected: InjectedFault, excused: bool
) -> None:
    assert is_excused(end, [injected]) is excused


def test_nothing_is_excused_without_faults() -> None:
    assert not is_excused(LOST, [])


@pytest.mark.parametrize(
    ("injected", "met"),
    [
        (fault("resets", "site", 104, 105), True),
        (fault("resets", "site", 90, 95), True),  # the component that it broke was repaired by then
        (fault("resets", "site", 70, 75), False),
        (fault("resets", "site", 111, None), False),
        (fault("kill", "proxy-1", 104, 105), True),
        (fault("kill", "proxy-2", 104, 105), False),
        (fault("kill", "manager-1", 104, 105), False),
    ],
)
def test_only_a_fault_on_the_way_of_a_request_explains_its_failure(
    injected: InjectedFault, met: bool
) -> None:
    assert met_fault(at(100), at(110), ("site", "site-1", "proxy-1"), [injected]) is met
