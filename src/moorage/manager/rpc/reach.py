"""Decision how proxies reach an agent's kernels: at its address, or over connections that it opens.
Pure.

It is changed only for what all proxies gain from. The way out is quick, since requests fail; the
way back waits, and longer after each change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The address must have answered all proxies for so long, doubled for each change of the last hours.
BACK_S = 60.0
LONGEST_BACK_S = 3600.0
REMEMBERED_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What the proxies of all managers ask for one host. ``proxies``: how many of them want to
    reach it the other way. ``of``: how many take connections of agents. ``all_take``: all proxies
    do."""

    proxies: int
    of: int
    all_take: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """``dials_out``: at present. ``answers_since``: since when the address answers all proxies,
    while it dials out. ``changes``: when it began to dial out. Times in monotonic seconds."""

    dials_out: bool
    answers_since: float | None = None
    changes: tuple[float, ...] = ()

    @property
    def waits(self) -> bool:
        """For the way back."""
        return self.answers_since is not None


def next_reach(reach: Reach, asked: Asked, now: float) -> Reach:
    """How the agent is reached from now on."""
    if not asked.of:
        return replace(reach, answers_since=None)  # nobody knows

    if not reach.dials_out:
        if not asked.proxies or not asked.all_take:
            # A proxy that takes no such connections would lose the agent.
            return replace(reach, answers_since=None)

        return Reach(True, None, (*_recent(reach.changes, now), now))

    if asked.proxies < asked.of:
        return replace(reach, answers_since=None)

    since = now if reach.answers_since is None else reach.answers_since
    changes = _recent(reach.changes, now)
    if now - since < back_s(len(changes)):
        return replace(reach, answers_since=since)

    return Reach(False, None, changes)


def back_s(changes: int) -> float:
    """How long the address must have answered, after so many changes."""
    return float(min(BACK_S * 2 ** max(0, min(changes, 16) - 1), LONGEST_BACK_S))


def _recent(changes: tuple[float, ...], now: float) -> tuple[float, ...]:
    return tuple(at for at in changes if now - at < REMEMBERED_S)
