"""Profile of simulated kernels, from which each kernel's script is drawn. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.durations import parse_duration
from moorage.common.model.errors import InvalidInput
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

# Variables in a session's environment that override values drawn for its kernels.
OVERRIDES = ("SIM_START_MS", "SIM_RUN_S", "SIM_EXIT", "SIM_STOP_MS", "SIM_FAIL_START")
FOREVER = "forever"


class Rng(Protocol):
    """The methods of ``random.Random`` that are used here."""

    def random(self) -> float: ...
    def uniform(self, low: float, high: float, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Range:
    """Uniform distribution from ``low`` to ``high`` seconds."""

    low: float
    high: float

    def draw(self, rng: Rng) -> float:
        return self.low if self.low == self.high else rng.uniform(self.low, self.high)


def parse_range(text: str, option: str) -> Range:
    """``"5ms..50ms"`` or ``"5ms"``: two durations or one. Raises ``InvalidInput``, naming
    ``option``."""
    low, dots, high = text.partition("..")
    try:
        parsed = Range(parse_duration(low), parse_duration(high if dots else low))
    except ValueError:
        parsed = Range(0, -1)

    if parsed.low > parsed.high:
        raise InvalidInput(
            f"{option} {text!r} is not a range of durations",
            next_step="write LOW..HIGH or one duration, for example 5ms..50ms",
        )

    return parsed


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """Distribution of kernel behavior. With ``run_s`` None, batch kernels run until they are
    stopped, as kernels of other types always do.

    ``fail_start``, ``fail_run`` and ``hang_stop`` are probabilities: the kernel cannot be started;
    it exits with 1 (a kernel that would run until it is stopped crashes after a time drawn from
    ``run_s``); it ignores SIGTERM and is killed when its grace period ends.
    """

    start_s: Range = Range(0.005, 0.05)
    run_s: Range | None = Range(1, 10)
    stop_s: Range = Range(0.001, 0.02)
    fail_start: float = 0.0
    fail_run: float = 0.0
    hang_stop: float = 0.0

    def draw(self, spec: KernelSpec, rng: Rng) -> KernelScript:
        """Draw a script. For a given profile, every kernel draws the same number of random values,
        so overrides for one kernel leave the scripts of all others unchanged."""
        fails_start, fails_run, hangs = (
            rng.random() < p for p in (self.fail_start, self.fail_run, self.hang_stop)
        )
        run_s = (self.run_s or Range(1, 10)).draw(rng)
        exits = spec.session_type is SessionType.BATCH and self.run_s is not None
        drawn = KernelScript(
            start_s=self.start_s.draw(rng),
            run_s=run_s if exits or fails_run else None,
            exit_code=1 if fails_run else 0,
            stop_s=None if hangs else self.stop_s.draw(rng),
            refusal="start failure injected by the simulation" if fails_start else "",
        )

        try:
            return _override(drawn, spec.env)
        except ValueError as error:
            return replace(drawn, refusal=str(error))


def _override(drawn: KernelScript, env: Mapping[str, str]) -> KernelScript:
    given = {name: env[name] for name in OVERRIDES if name in env}
    if not given:
        return drawn

    start_ms = _number(given, "SIM_START_MS")
    run_s = _number(given, "SIM_RUN_S")
    stop_ms = _number(given, "SIM_STOP_MS")
    exit_code = _number(given, "SIM_EXIT", low=-64, high=255)
    script = drawn
    if start_ms is not None:
        script = replace(script, start_s=start_ms / 1000)

    if given.get("SIM_RUN_S") == FOREVER:
        script = replace(script, run_s=None)
    elif run_s is not None:
        script = replace(script, run_s=run_s, exit_code=0)

    if exit_code is not None:
        script = replace(script, exit_code=int(exit_code))
    if stop_ms is not None:
        script = replace(script, stop_s=stop_ms / 1000)

    match given.get("SIM_FAIL_START"):
        case None:
            pass
        case "0":
            script = replace(script, refusal="")
        case "1":
            script = replace(script, refusal="SIM_FAIL_START is set")
        case other:
            raise ValueError(f"SIM_FAIL_START = {other!r}: must be 0 or 1")

    return script


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
        raise ValueError(f"{name} = {text!r}: must be a {kind} from {low:g} to {high:g}")

    return value
