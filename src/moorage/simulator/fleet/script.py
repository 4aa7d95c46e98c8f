"""What becomes of a kernel that is only played: from the script, the session's hints, and the dice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.common.model.errors import InvalidInput
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

# In a session's env: what its kernels shall do, whatever the script says.
HINTS = ("SIM_START_MS", "SIM_RUN_S", "SIM_EXIT", "SIM_STOP_MS", "SIM_FAIL_START")
FOREVER = "forever"


class Dice(Protocol):
    """What is used of ``random.Random``."""

    def random(self) -> float: ...
    def uniform(self, low: float, high: float, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds from ``low`` to ``high``, all equally likely."""

    low: float
    high: float

    def pick(self, dice: Dice) -> float:
        return self.low if self.low == self.high else dice.uniform(self.low, self.high)


def parse_range(text: str, unit_s: float, option: str) -> Range:
    """``"5..50"`` or ``"5"`` in units of ``unit_s`` seconds. Raises ``InvalidInput``, naming ``option``."""
    low, dots, high = text.partition("..")
    try:
        found = Range(float(low) * unit_s, float(high if dots else low) * unit_s)
    except ValueError:
        found = Range(-1, -1)
    if not 0 <= found.low <= found.high < float("inf"):
        raise InvalidInput(
            f"{option} {text!r} is not a range", next_step="write LOW..HIGH or one number, like 5..50"
        )
    return found


@dataclass(frozen=True, slots=True)
class Script:
    """How kernels behave. ``run_s`` None: batch kernels run until stopped, as all others always do.

    ``fail_start``, ``fail_run`` and ``hang_stop`` are probabilities: that it cannot be started; that it ends
    with 1 (a session that runs until stopped: that it crashes, after a time from ``run_s``); that it ignores
    the polite stop and is killed at the end of its grace.
    """

    start_s: Range = Range(0.005, 0.05)
    run_s: Range | None = Range(1, 10)
    stop_s: Range = Range(0.001, 0.02)
    fail_start: float = 0.0
    fail_run: float = 0.0
    hang_stop: float = 0.0


@dataclass(frozen=True, slots=True)
class Fate:
    """Of one kernel. ``run_s`` None: until it is stopped. ``stop_s`` None: it ignores the polite stop."""

    start_s: float
    run_s: float | None
    exit_code: int
    stop_s: float | None
    refusal: str = ""  # why it cannot be started


def fate(script: Script, spec: KernelSpec, dice: Dice) -> Fate:
    """The dice are thrown equally often for every kernel, so that a hint changes nobody else's fate."""
    fails_start, fails_run, hangs = (
        dice.random() < p for p in (script.fail_start, script.fail_run, script.hang_stop)
    )
    run_s = (script.run_s or Range(1, 10)).pick(dice)
    ends = spec.session_type is SessionType.BATCH and script.run_s is not None
    thrown = Fate(
        start_s=script.start_s.pick(dice),
        run_s=run_s if ends or fails_run else None,
        exit_code=1 if fails_run else 0,
        stop_s=None if hangs else script.stop_s.pick(dice),
        refusal="the script made its start fail" if fails_start else "",
    )
    try:
        return _hinted(thrown, spec.env)
    except ValueError as error:
        return replace(thrown, refusal=str(error))


def _hinted(thrown: Fate, env: Mapping[str, str]) -> Fate:
    given = {name: env[name] for name in HINTS if name in env}
    if not given:
        return thrown
    start_ms, run_s = _number(given, "SIM_START_MS"), _number(given, "SIM_RUN_S")
    stop_ms, exit_code = _number(given, "SIM_STOP_MS"), _number(given, "SIM_EXIT", low=-64, high=255)
    found = thrown
    if start_ms is not None:
        found = replace(found, start_s=start_ms / 1000)
    if given.get("SIM_RUN_S") == FOREVER:
        found = replace(found, run_s=None)
    elif run_s is not None:
        found = replace(found, run_s=run_s, exit_code=0)
    if exit_code is not None:
        found = replace(found, exit_code=int(exit_code))
    if stop_ms is not None:
        found = replace(found, stop_s=stop_ms / 1000)
    match given.get("SIM_FAIL_START"):
        case None:
            pass
        case "0":
            found = replace(found, refusal="")
        case "1":
            found = replace(found, refusal="SIM_FAIL_START is set")
        case other:
            raise ValueError(f"SIM_FAIL_START = {other!r}: allowed are 0 and 1")
    return found


def _number(given: Mapping[str, str], name: str, low: float = 0, high: float = 1e9) -> float | None:
    text = given.get(name)
    if text is None or (name == "SIM_RUN_S" and text == FOREVER):
        return None
    try:
        value = float(text)
    except ValueError:
        value = high + 1
    if not low <= value <= high or (name == "SIM_EXIT" and value != int(value)):
        kind = "whole number" if name == "SIM_EXIT" else "number"
        raise ValueError(f"{name} = {text!r}: allowed is a {kind} from {low:g} to {high:g}")
    return value
