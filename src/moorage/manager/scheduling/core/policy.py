"""Scheduling policy of a resource group. An invalid option raises ``InvalidInput`` on
construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from moorage.common.model.errors import InvalidInput

STRATEGIES = ("fifo", "lifo", "drf")
HOL_MODES = ("strict", "skip", "backfill")
SELECTIONS = ("concentrated", "dispersed", "round-robin")
CUSTOM = "custom:"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Preemption of running sessions in favor of one of higher priority.

    Victims are preemptible sessions of strictly lower priority: the lowest first, then by
    ``order``. They may belong to anyone, or only to the same project or user. A policy without this
    object preempts nothing.

    ``grace`` (microseconds): if work that ends by itself within this time frees enough, the session
    waits for it and nothing is stopped. It also replaces an unknown ``Running.stop_time``.
    """

    how: Literal["requeue", "end"] = "requeue"
    grace: int = 30_000_000
    order: Literal["newest", "oldest", "smallest"] = "newest"
    min_runtime: int = 0  # how long a session runs before it may be preempted, in microseconds
    among: Literal["all", "same-project", "same-user"] = "all"

    def __post_init__(self) -> None:
        _one_of("preemption.how", self.how, ("requeue", "end"))
        _one_of("preemption.order", self.order, ("newest", "oldest", "smallest"))
        _one_of("preemption.among", self.among, ("all", "same-project", "same-user"))
        _at_least("preemption.grace", self.grace, 0)
        _at_least("preemption.min_runtime", self.min_runtime, 0)


@dataclass(frozen=True, slots=True)
class Policy:
    """``hol`` (head of line): how a session that was refused for lack of capacity affects those
    behind it.

    strict: it ends the pass. skip: it is skipped, and tried after the others of its priority once
    it has been refused ``num_retries_to_skip`` times (with 0, it ends the pass). backfill: it gets
    a reservation at the earliest known time, and sessions behind it may start if they do not delay
    it.

    The wait is bounded: a session is overdue once it has been overtaken ``max_bypasses`` times as
    the head, or has waited for ``max_skip_age`` (microseconds). From then on, no younger one may
    delay it. None means no bound.
    """

    hol: Literal["strict", "skip", "backfill"] = "backfill"
    num_retries_to_skip: int = 1
    # or dispersed, round-robin, custom:<name of an entry point>
    agent_selection: str = "concentrated"
    strategy: Literal["fifo", "lifo", "drf"] = "fifo"
    max_bypasses: int | None = 100
    max_skip_age: int | None = 3_600_000_000
    # Where there is a choice, an endpoint's replicas are either spread over agents or packed onto
    # few.
    replicas: Literal["spread", "pack", "none"] = "spread"
    # device fractions go to the emptiest or to the fullest device
    fraction: Literal["even", "fill"] = "fill"
    share_by: Literal["user", "project"] = "user"  # drf: the owner of a share
    # drf: by user or project; 1 where absent
    weights: Mapping[str, int] = field(default_factory=dict)
    session_types: frozenset[str] | None = None  # allowed session types; None means all
    # scored first, in this order; then devices, cpu, mem, the rest
    slot_priority: tuple[str, ...] = ()
    exclusive: tuple[
        frozenset[str], ...
    ] = ()  # sets of device families of which a session may request only one
    preemption: Preemption | None = None

    def __post_init__(self) -> None:
        _one_of("hol", self.hol, HOL_MODES)
        _one_of("strategy", self.strategy, STRATEGIES)
        if not (
            self.agent_selection.startswith(CUSTOM) and len(self.agent_selection) > len(CUSTOM)
        ):
            _one_of("agent_selection", self.agent_selection, (*SELECTIONS, f"{CUSTOM}NAME"))

        _one_of("replicas", self.replicas, ("spread", "pack", "none"))
        _one_of("fraction", self.fraction, ("even", "fill"))
        _one_of("share_by", self.share_by, ("user", "project"))
        _at_least("num_retries_to_skip", self.num_retries_to_skip, 0)

        for name, bound in (
            ("max_bypasses", self.max_bypasses),
            ("max_skip_age", self.max_skip_age),
        ):
            if bound is not None:
                _at_least(name, bound, 0)

        for owner, weight in self.weights.items():
            _at_least(f"weights[{owner!r}]", weight, 1)

    @property
    def head_blocks(self) -> bool:
        return self.hol == "strict" or (self.hol == "skip" and self.num_retries_to_skip < 1)

    @property
    def custom(self) -> str | None:
        """Name of the custom selector, an entry point; None for a built-in selection."""
        return (
            self.agent_selection.removeprefix(CUSTOM)
            if self.agent_selection.startswith(CUSTOM)
            else None
        )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(
            f"{name} = {value!r} is not known",
            field=name,
            next_step=f"one of: {', '.join(allowed)}",
        )


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidInput(
            f"{name} = {value} is too small",
            field=name,
            next_step=f"a whole number, {least} or more",
        )
