"""Autoscaling decisions: a table of cases, and properties that hold for every load."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.serving import Autoscale
from moorage.manager.serving.autoscale import STEP_MIN, autoscale
from moorage.manager.serving.snapshots import AutoscaleDecision, LoadSample, Scaling

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def scaling(
    wanted: int,
    *,
    scaled_s: float = 1000,
    active_s: float = 1000,
    full_at: float | None = None,
    **policy: Any,
) -> Scaling:
    return Scaling(
        Autoscale(**({"min": 1, "max": 5} | policy)),
        wanted,
        scaled_at=ago(scaled_s),
        active_since=ago(active_s),
        full_at=full_at,
    )


def load(age_s: float = 0, **fields: Any) -> LoadSample:
    return LoadSample(ago(age_s), **({"ready": 2, "idle_s": 0.0} | fields))


BUSY = {"waiting": 2}
QUIET = {"waiting": 2, "down_delay_s": 300}
# Name, scaling, window, the desired number, and the deciding rule.
CASES: list[tuple[str, Scaling, list[LoadSample], int, str]] = [
    ("no load", scaling(2, **BUSY), [load()], 2, ""),
    ("on target", scaling(2, **BUSY), [load(waiting=4)], 2, ""),
    ("within the tolerance", scaling(2, running=10), [load(running=21)], 2, ""),
    ("up at once", scaling(2, **BUSY), [load(waiting=5)], 3, "waiting"),
    ("held requests wait, too", scaling(2, **BUSY), [load(waiting=3, held=3)], 3, "waiting"),
    ("as far as the load asks", scaling(2, **BUSY), [load(waiting=8)], 4, "waiting"),
    ("but at most twice as many", scaling(2, max=50, **BUSY), [load(waiting=80)], 4, "waiting"),
    ("or two more", scaling(1, max=50, **BUSY), [load(waiting=80)], 3, "waiting"),
    ("clamped, not skipped", scaling(4, **BUSY), [load(waiting=80)], 5, "waiting"),
    ("at the maximum", scaling(5, **BUSY), [load(waiting=80)], 5, ""),
    ("cooling down after the last change", scaling(2, scaled_s=14, **BUSY), [load(waiting=8)], 2, ""),
    ("the largest rule", scaling(2, waiting=2, kv_cache=0.5), [load(waiting=5, kv_cache=1)], 4, "kv_cache"),
    ("KV cache", scaling(2, kv_cache=0.8), [load(kv_cache=0.95)], 3, "kv_cache"),
    ("KV cache unknown", scaling(2, kv_cache=0.8), [load()], 2, ""),
    ("running", scaling(2, running=4), [load(running=9)], 3, "running"),
    ("request rate", scaling(2, request_rate=10), [load(request_rate=35)], 4, "request_rate"),
    ("time to first token", scaling(2, first_token_s=0.5), [load(first_token_s=0.7)], 3, "first_token_s"),
    ("fewer for long enough", scaling(3, **QUIET), [load(301), load(100), load()], 2, "waiting"),
    ("one at a time", scaling(5, **QUIET), [load(301), load()], 4, "waiting"),
    ("not for long enough", scaling(3, **QUIET), [load(299), load()], 3, ""),
    ("needed meanwhile", scaling(3, **QUIET), [load(301), load(100, waiting=6), load()], 3, ""),
    ("changed meanwhile", scaling(3, scaled_s=299, **QUIET), [load(301), load()], 3, ""),
    ("fewer would be full", scaling(3, full_at=4, **QUIET), [load(301, running=9), load(running=9)], 3, ""),
    ("fewer have room", scaling(3, full_at=4, **QUIET), [load(301), load(running=8)], 2, "waiting"),
    ("never below the minimum", scaling(2, min=2, **QUIET), [load(301), load()], 2, ""),
    ("without a rule, nothing goes", scaling(2), [load(1000), load()], 2, ""),
    ("below the minimum", scaling(1, min=2, **BUSY), [load()], 2, "min"),
    ("above the maximum", scaling(6, **BUSY), [load(waiting=80)], 5, "max"),
    ("idle", scaling(1, min=0), [load(idle_s=600)], 0, "idle"),
    ("idle: all go at once", scaling(3, min=0), [load(idle_s=600)], 0, "idle"),
    ("not idle yet", scaling(1, min=0), [load(idle_s=599)], 1, ""),
    ("idle, but a request runs", scaling(1, min=0), [load(idle_s=600, running=1)], 1, ""),
    ("idle, but a request is held", scaling(1, min=0), [load(idle_s=600, held=1)], 1, ""),
    ("the proxies do not say", scaling(1, min=0), [load(idle_s=None)], 1, ""),
    ("ready just now", scaling(1, min=0, active_s=599), [load(idle_s=9999)], 1, ""),
    ("idle, but may not stop", scaling(1, min=1), [load(idle_s=9999)], 1, ""),
    ("asleep", scaling(0, min=0), [load(idle_s=9999, ready=0)], 0, ""),
    ("woken", scaling(0, min=0), [load(held=1, ready=0)], 1, "wake"),
    ("woken at once, without a cooldown", scaling(0, min=0, scaled_s=0), [load(held=9, ready=0)], 1, "wake"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given_scaling", "window", "wanted", "rule"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_autoscale(
    given_scaling: Scaling, window: list[LoadSample], wanted: int, rule: str
) -> None:
    decision = autoscale(given_scaling, window, NOW)
    assert (decision.replicas, decision.rule) == (wanted, rule)
    assert bool(decision.detail) == bool(rule), "every change says why"


@pytest.mark.parametrize(
    ("given_scaling", "window", "look_in_s"),
    [
        (scaling(1, min=0), [load(idle_s=500)], 100),
        (scaling(2, scaled_s=5, waiting=2), [load(waiting=9)], 10),
        (scaling(3, **QUIET), [load(200), load()], 100),
        (scaling(3, **QUIET), [load(301, waiting=9), load(100), load()], 200),
    ],
)
def test_next_look(given_scaling: Scaling, window: list[LoadSample], look_in_s: float) -> None:
    assert autoscale(given_scaling, window, NOW).look_at == NOW + timedelta(seconds=look_in_s)


@given(
    st.integers(0, 8), st.integers(0, 5), st.integers(1, 6), st.integers(0, 100), st.integers(0, 100),
    st.floats(0, 1), st.floats(0, 1000),
)  # fmt: skip
def test_limits_hold_for_every_load(
    wanted: int, least: int, more: int, waiting: int, running: int, kv: float, idle_s: float
) -> None:
    given_scaling = scaling(wanted, min=least, max=max(1, least + more), waiting=1, kv_cache=0.5)
    samples = [
        load(age, waiting=waiting, running=running, kv_cache=kv, idle_s=idle_s)
        for age in (400, 10, 0)
    ]
    decision: AutoscaleDecision = autoscale(given_scaling, samples, NOW)
    policy = given_scaling.policy
    assert policy.min <= decision.replicas <= policy.max
    if policy.min <= wanted <= policy.max:
        assert decision.replicas <= max(2 * wanted, wanted + STEP_MIN)
        assert decision.replicas >= wanted - 1 or decision.rule == "idle"


@given(st.integers(1, 5), st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_constant_load_does_not_flap(wanted: int, waits: list[int]) -> None:
    """Once the load stays the same, the number changes in only one direction."""
    numbers = []
    current = wanted
    at = ago(0)
    window: list[LoadSample] = []
    scaled_at = ago(10_000)
    for step in range(200):
        at += timedelta(seconds=20)
        window.append(LoadSample(at, ready=current, waiting=waits[min(step, len(waits) - 1)]))
        made = Scaling(Autoscale(min=1, max=8, waiting=3), current, scaled_at, ago(0))
        decision = autoscale(made, window, at)
        if decision.replicas != current:
            current = decision.replicas
            scaled_at = at
        if step > len(waits):
            numbers.append(current)

    changes = [b - a for a, b in pairwise(numbers) if a != b]
    assert all(c > 0 for c in changes) or all(c < 0 for c in changes)


@given(st.integers(1, 5), st.integers(1, 8), st.integers(1, 60))
def test_constant_demand_does_not_flap(wanted: int, seats: int, demand: int) -> None:
    """The replicas run as many requests as they have seats, and the others wait. The number of
    replicas may fall too far once, before it is known how many requests run when others start to
    wait."""
    numbers = []
    current = wanted
    at = ago(0)
    full_at = None
    window: list[LoadSample] = []
    scaled_at = ago(10_000)
    for _ in range(400):
        at += timedelta(seconds=20)
        running = min(demand, current * seats)
        window.append(LoadSample(at, ready=current, running=running, waiting=demand - running))
        made = Scaling(
            Autoscale(min=1, max=8, waiting=3),
            current,
            scaled_at=scaled_at,
            active_since=ago(0),
            full_at=full_at,
        )
        decision = autoscale(made, window, at)
        if decision.replicas > current:
            full_at = running / current
        if decision.replicas != current:
            current = decision.replicas
            scaled_at = at

        numbers.append(current)

    changes = [b - a for a, b in pairwise(numbers) if a != b]
    turns = sum(a * b < 0 for a, b in pairwise(changes))
    assert turns <= 2, numbers
