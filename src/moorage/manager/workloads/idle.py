"""Idle criteria: when an interactive session is considered idle. Pure.

Times are seconds on the session's own axis: how long it was observed to run. Periods in which the
session was not observed, because a manager, an agent or a proxy was away, are not on this axis, and
no wall clock is involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from moorage.common.model.idle import (
    METRICS,
    NEVER,
    Bounds,
    IdleChoice,
    IdlePolicy,
    IdleRules,
    Utilization,
)
from moorage.common.model.slots import WHOLE_DEVICE

# A mean counts only if this share of its window was measured.
MEASURED = 0.9


@dataclass(frozen=True, slots=True)
class IdleSettings:
    """Settings that apply to one session. None means that the criterion is not used."""

    traffic_s: float | None = None
    lifetime_s: float | None = None
    utilization: Utilization | None = None
    grace_s: float = 0.0
    warning_s: float = 0.0
    end_when: str = "any"
    extension_s: float = 0.0
    extensions: int = 0

    @property
    def criteria(self) -> tuple[str, ...]:
        return tuple(name for name in CRITERIA if getattr(self, _FIELDS[name]) is not None)


@dataclass(frozen=True, slots=True)
class Observations:
    """``traffic_at``: time of the last traffic; 0 means none since the start. ``used``: mean usage
    over the window in percent of the allocation, without resources that were not measured."""

    traffic_at: float = 0.0
    used: Mapping[str, float] = field(default_factory=dict)


def find_problem(policy: IdlePolicy | None, project: str, choice: IdleChoice | None) -> str | None:
    """Explain why a session of ``project`` may not choose these criteria; None if it may."""
    if policy is None or choice is None:
        return None

    rules = policy.rules(project)
    for name, bounds, chosen in _chosen(rules, choice):
        if bounds is None or chosen is None:
            continue

        if chosen == NEVER or isinstance(chosen, str):
            if bounds.max_s is not None:
                return (
                    f"idle.{name}_s = never, but the resource group allows at most {bounds.max_s:g}"
                )
        elif chosen < bounds.min_s or (bounds.max_s is not None and chosen > bounds.max_s):
            most = "any number" if bounds.max_s is None else f"{bounds.max_s:g}"
            return (
                f"idle.{name}_s = {chosen:g}, but the resource group allows {bounds.min_s:g} "
                f"to {most}"
            )

    if choice.utilization is not None and rules.utilization is not None:
        return "idle.utilization is set, but the resource group sets its own thresholds"

    return None


def settings_of(policy: IdlePolicy | None, project: str, choice: IdleChoice | None) -> IdleSettings:
    """Settings that apply to a session. A choice outside bounds that were set later is clamped to
    them."""
    rules = policy.rules(project) if policy is not None else IdleRules()
    choice = choice or IdleChoice()
    durations = {
        f"{name}_s": _clamped(bounds, chosen) for name, bounds, chosen in _chosen(rules, choice)
    }

    return IdleSettings(
        **durations,
        utilization=rules.utilization or choice.utilization,
        grace_s=rules.grace_s,
        warning_s=rules.warning_s,
        end_when=rules.end_when,
        extension_s=rules.extension_s,
        extensions=rules.extensions,
    )


def _chosen(
    rules: IdleRules, choice: IdleChoice
) -> tuple[tuple[str, Bounds | None, float | str | None], ...]:
    return ("traffic", rules.traffic, choice.traffic_s), (
        "lifetime",
        rules.lifetime,
        choice.lifetime_s,
    )


def _clamped(bounds: Bounds | None, chosen: float | str | None) -> float | None:
    bounds = bounds or Bounds()
    if chosen is None:
        return bounds.default_s or bounds.max_s
    if isinstance(chosen, str):
        return bounds.max_s
    return min(max(chosen, bounds.min_s), bounds.max_s or chosen)


def remaining_traffic(seen: Observations, settings: IdleSettings, now: float) -> float | None:
    """Seconds until the session has had no traffic for too long."""
    assert settings.traffic_s is not None
    return max(seen.traffic_at, settings.grace_s) + settings.traffic_s - now


def remaining_lifetime(_: Observations, settings: IdleSettings, now: float) -> float | None:
    """Seconds until the session has run too long."""
    assert settings.lifetime_s is not None
    return max(settings.lifetime_s, settings.grace_s) - now


def remaining_utilization(seen: Observations, settings: IdleSettings, now: float) -> float | None:
    """Seconds until the means fall below their thresholds if the session stops working now; 0 means
    that they are below already.

    None if nothing is measured. No decision is made before a full window after the grace period."""
    rule = settings.utilization
    assert rule is not None
    thresholds = {name: limit for name in METRICS if (limit := getattr(rule, name)) is not None}
    if (first := settings.grace_s + rule.window_s - now) > 0:
        return first

    left = [
        0.0 if used < limit else max(1.0, rule.window_s * (1 - limit / used))
        for name, limit in thresholds.items()
        if (used := seen.used.get(name)) is not None and math.isfinite(used)
    ]
    if not left:
        return None

    return max(left) if rule.busy_if == "any" else min(left)


CRITERIA: Mapping[str, Callable[[Observations, IdleSettings, float], float | None]] = {
    "traffic": remaining_traffic,
    "utilization": remaining_utilization,
    "lifetime": remaining_lifetime,
}
_FIELDS = {"traffic": "traffic_s", "utilization": "utilization", "lifetime": "lifetime_s"}


def remaining(seen: Observations, settings: IdleSettings, now: float) -> dict[str, float | None]:
    """Remaining seconds by criterion, for the criteria that apply. 0 or less means that the
    criterion is met; None means that it never will be."""
    return {name: CRITERIA[name](seen, settings, now) for name in settings.criteria}


def ends_in(left: Mapping[str, float | None], settings: IdleSettings) -> tuple[str, float] | None:
    """The criterion that will end the session first, and the seconds until then; None if none
    will."""
    known = {name: value for name, value in left.items() if value is not None}
    if not known or (settings.end_when == "all" and len(known) < len(left)):
        return None
    pick = max if settings.end_when == "all" else min
    name = pick(known, key=lambda name: known[name])
    return name, known[name]


@dataclass(frozen=True, slots=True)
class IdleState:
    """A session's state that is kept between observations.

    ``observed_s``: the current time on its axis. ``sightings``: the number of the last traffic
    sighting that was counted. ``warned_s``: time of the warning, or None. ``extended_s``: the
    session does not end before this time."""

    observed_s: float = 0.0
    traffic_s: float = 0.0
    sightings: int = 0
    warned_s: float | None = None
    extended_s: float = 0.0
    extensions: int = 0


@dataclass(frozen=True, slots=True)
class StoredIdle:
    """The leader's latest assessment. ``ends_in_s``: by ``criterion``; None if nothing ends the
    session."""

    state: IdleState
    remaining: Mapping[str, float | None]
    criterion: str
    ends_in_s: float | None


@dataclass(frozen=True, slots=True)
class Look:
    """One observation of a session.

    ``elapsed_s``: observed time since the last observation. ``sightings``: counts traffic.
    ``traffic_known``: every proxy has reported its traffic. ``told``: whether the session shows a
    warning; None means that this follows from its state. The two differ if a leader was killed in
    between."""

    elapsed_s: float
    sightings: int = 0
    traffic_known: bool = True
    used: Mapping[str, float] = field(default_factory=dict)
    told: bool | None = None


class IdleStep(StrEnum):
    NONE = "none"
    WARN = "warn"
    RESUME = "resume"  # the session is used again, or was extended: the warning is void
    END = "end"


@dataclass(frozen=True, slots=True)
class Judgment:
    """``criterion`` ends the session in ``ends_in_s`` seconds; None if nothing is about to end the
    session."""

    state: IdleState
    step: IdleStep
    remaining: Mapping[str, float | None]
    criterion: str = ""
    ends_in_s: float | None = None


def judge(state: IdleState, look: Look, settings: IdleSettings) -> Judgment:
    """Compute the next state and the action. A session is ended only after it has been under
    warning for ``warning_s`` without interruption."""
    elapsed = max(0.0, look.elapsed_s)
    now = state.observed_s + elapsed
    traffic_s = state.traffic_s + (0.0 if look.traffic_known else elapsed)
    if look.sightings != state.sightings:
        traffic_s = now

    told = state.warned_s is not None if look.told is None else look.told
    state = replace(state, observed_s=now, traffic_s=traffic_s, sightings=look.sightings)
    left = remaining(Observations(traffic_s, look.used), settings, now)
    if not look.traffic_known and "traffic" in left:
        left["traffic"] = None

    deciding = ends_in(left, settings)
    if deciding is None:
        return _calm(state, left, told=told)

    criterion, in_s = deciding
    warned_s = now if state.warned_s is None else state.warned_s
    in_s = max(in_s, warned_s + settings.warning_s - now, state.extended_s - now, 0.0)
    if in_s > settings.warning_s:
        return _calm(state, left, criterion, in_s, told=told)
    if state.warned_s is None or (in_s > 0 and not told):
        warned = replace(state, warned_s=warned_s)
        return Judgment(warned, IdleStep.WARN, remaining=left, criterion=criterion, ends_in_s=in_s)

    # If nothing was observed, nothing is decided.
    ends = in_s <= 0 and elapsed > 0
    return Judgment(
        state,
        IdleStep.END if ends else IdleStep.NONE,
        remaining=left,
        criterion=criterion,
        ends_in_s=in_s,
    )


def _calm(
    state: IdleState,
    left: Mapping[str, float | None],
    criterion: str = "",
    in_s: float | None = None,
    *,
    told: bool,
) -> Judgment:
    step = IdleStep.RESUME if told or state.warned_s is not None else IdleStep.NONE
    return Judgment(
        replace(state, warned_s=None), step, remaining=left, criterion=criterion, ends_in_s=in_s
    )


def percent_used(
    slots: Mapping[str, int], cpu: float | None, memory: float | None, gpu: float | None
) -> dict[str, float]:
    """Mean usage in percent of the allocated ``slots``, without resources that were not measured or
    not allocated.

    ``cpu`` in 1/1000 of a processor, ``memory`` in bytes, ``gpu`` in 1/1000 of a device."""
    devices = sum(
        amount * (WHOLE_DEVICE if slot.endswith(".device") else 1)
        for slot, amount in slots.items()
        if slot.endswith((".device", ".shares"))
    )
    pairs = {
        "cpu": (cpu, slots.get("cpu", 0)),
        "memory": (memory, slots.get("mem", 0)),
        "gpu": (gpu, devices),
    }
    return {
        name: 100 * used / most for name, (used, most) in pairs.items() if used is not None and most
    }


def needed_minutes(window_s: float) -> int:
    """How many minutes of known usage a mean over a window requires."""
    return max(1, math.ceil(MEASURED * math.floor(window_s / 60)))
