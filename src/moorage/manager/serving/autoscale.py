"""Autoscaling: how many replicas an endpoint needs for its load. Pure.

Each configured rule computes the number of replicas that brings its value to its target, and the
largest number applies, as in Kubernetes' HorizontalPodAutoscaler. Scaling up is immediate; scaling
down removes one replica when fewer have sufficed for ``down_delay_s``. An endpoint that may scale
to zero loses its last replicas when no request has arrived for ``idle_timeout_s``, and gets one
again when a request waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import ceil

from moorage.common.model.serving import Autoscale
from moorage.manager.serving.snapshots import AutoscaleDecision, LoadSample, Scaling

# Values within this share of their target change nothing.
TOLERANCE = 0.1
# At most twice as many replicas at a time, or this many more.
STEP_MIN = 2


def autoscale(scaling: Scaling, window: Sequence[LoadSample], now: datetime) -> AutoscaleDecision:
    """``window``: samples of at least the last ``down_delay_s``, oldest first; the last one was
    taken now."""
    policy = scaling.policy
    wanted = scaling.wanted
    load = window[-1]
    if wanted < policy.min:
        return AutoscaleDecision(policy.min, "min", f"at least {policy.min}")
    if wanted > policy.max:
        return AutoscaleDecision(policy.max, "max", f"at most {policy.max}")

    if wanted == 0:
        if not load.held:
            return AutoscaleDecision(0)
        return AutoscaleDecision(1, "wake", f"{load.held} requests wait")

    rule, needed, detail = _needed(policy, load, wanted)
    if needed > wanted:
        return _up(scaling, rule, needed=needed, detail=detail, now=now)
    if (idle := _idle(scaling, load, now)) is not None:
        return idle

    return _down(scaling, window, now)


def _up(
    scaling: Scaling, rule: str, needed: int, detail: str, *, now: datetime
) -> AutoscaleDecision:
    policy = scaling.policy
    wanted = scaling.wanted
    target = min(needed, policy.max, max(2 * wanted, wanted + STEP_MIN))
    if target == wanted:
        return AutoscaleDecision(wanted)

    may_at = scaling.scaled_at + timedelta(seconds=policy.up_cooldown_s)
    if now < may_at:
        return AutoscaleDecision(wanted, look_at=may_at)

    return AutoscaleDecision(
        target, rule, f"{detail}; at most {policy.max}" if needed > policy.max else detail
    )


def _idle(scaling: Scaling, load: LoadSample, now: datetime) -> AutoscaleDecision | None:
    """Scale to zero, or the time of the next check; None if the endpoint is not idle, or stays
    loaded."""
    policy = scaling.policy
    if policy.min > 0 or load.idle_s is None or load.held or load.running or load.waiting:
        return None

    idle_s = min(load.idle_s, (now - scaling.active_since).total_seconds())
    if idle_s >= policy.idle_timeout_s:
        return AutoscaleDecision(0, "idle", f"no request for {idle_s:.0f} s")
    if scaling.wanted > 1:
        return None

    return AutoscaleDecision(
        scaling.wanted, look_at=now + timedelta(seconds=policy.idle_timeout_s - idle_s)
    )


def _down(scaling: Scaling, window: Sequence[LoadSample], now: datetime) -> AutoscaleDecision:
    policy = scaling.policy
    wanted = scaling.wanted
    if wanted <= max(1, policy.min) or not any(
        target is not None for _, target, _ in _rules(policy)
    ):
        return AutoscaleDecision(wanted)

    since = now - timedelta(seconds=policy.down_delay_s)
    first = next((n for n, sample in enumerate(window) if sample.at > since), len(window))
    recent = window[max(0, first - 1) :]  # the previous sample shows the load when that time began
    if needing := [sample.at for sample in recent if _enough(scaling, sample) >= wanted]:
        last = max(needing)
        following = next((s.at for s in recent if s.at > last), None)
        start = following or now
        return AutoscaleDecision(wanted, look_at=start + timedelta(seconds=policy.down_delay_s))

    may_at = max(scaling.scaled_at, recent[0].at) + timedelta(seconds=policy.down_delay_s)
    if now < may_at:
        return AutoscaleDecision(wanted, look_at=may_at)

    rule, _, detail = _needed(policy, window[-1], wanted)
    return AutoscaleDecision(wanted - 1, rule, f"{detail}, for {policy.down_delay_s:.0f} s")


def _enough(scaling: Scaling, load: LoadSample) -> int:
    """Number of replicas that the load would need if the desired number were serving it.

    The absence of waiting requests does not mean that fewer replicas could handle the load: if
    requests began to wait earlier, when ``full_at`` of them were running per replica, they would
    wait again.
    """
    needed = _needed(scaling.policy, load, scaling.wanted)[1]
    if scaling.policy.waiting is None or not scaling.full_at:
        return needed
    return max(needed, ceil(load.running / scaling.full_at))


_Rule = tuple[str, float | None, Callable[[LoadSample, int], float | None]]


def _rules(policy: Autoscale) -> tuple[_Rule, ...]:
    """Name, target, and the sum of the value over a sample's replicas."""

    def each(value: float | None, load: LoadSample, wanted: int) -> float | None:
        return None if value is None else value * (load.ready or wanted)

    return (
        ("waiting", policy.waiting, lambda s, _: s.waiting + s.held),
        ("running", policy.running, lambda s, _: s.running + s.waiting + s.held),
        ("kv_cache", policy.kv_cache, lambda s, n: each(s.kv_cache, s, n)),
        ("request_rate", policy.request_rate, lambda s, _: s.request_rate),
        ("first_token_s", policy.first_token_s, lambda s, n: each(s.first_token_s, s, n)),
    )


def _needed(policy: Autoscale, load: LoadSample, wanted: int) -> tuple[str, int, str]:
    """The rule that requests the most replicas, the number, and the reason; none without configured
    rules."""
    best = ("", 0, "no load")
    for name, target, total in _rules(policy):
        value = total(load, wanted) if target is not None else None
        if target is None or value is None:
            continue

        average = value / max(1, wanted)
        number = wanted if abs(average / target - 1) <= TOLERANCE else ceil(value / target)
        if number > best[1] or not best[0]:
            best = (
                name,
                number,
                f"{name} {value / max(1, load.ready):.3g} per replica, target {target:g}",
            )

    return best
