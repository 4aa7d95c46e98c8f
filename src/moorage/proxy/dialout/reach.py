"""Reachability of agents, as tested by this proxy: the addresses in its table that do not answer.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Failed attempts in a row, without success at any port, after which an address is unreachable.
FAILURES = 3
# Time until the next attempt: after a failure, while the address is unreachable, and while it
# answers.
RETRY_S = 3.0
AGAIN_S = 20.0
ANSWERS_S = 300.0
_ATTEMPTS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class ReachProbe:
    """Connect to one of ``ports`` of ``host``. ``may_refuse``: a refusal counts as an answer,
    because possibly nothing is listening there."""

    host: str
    ports: tuple[int, ...]
    may_refuse: bool = False


@dataclass(frozen=True, slots=True)
class ProbeAttempt:
    """One probe of ``port``."""

    probe: ReachProbe
    port: int


@dataclass(slots=True)
class _ProbedHost:
    probe: ReachProbe
    failures: int = 0
    due_at: float = 0.0
    attempts: int = 0
    is_running: bool = False


class ReachBook:
    """By host."""

    def __init__(self) -> None:
        self._probed: dict[str, _ProbedHost] = {}

    @property
    def unreached(self) -> tuple[str, ...]:
        """The hosts that do not answer."""
        return tuple(
            sorted(host for host, probed in self._probed.items() if probed.failures >= FAILURES)
        )

    def follow(self, probes: Mapping[str, ReachProbe]) -> None:
        """Follow these hosts and no others."""
        for host in self._probed.keys() - probes.keys():
            del self._probed[host]
        for host, probe in probes.items():
            if (probed := self._probed.get(host)) is not None:
                probed.probe = probe
            else:
                self._probed[host] = _ProbedHost(probe)

    def suspect(self, host: str, now: float) -> None:
        """Suspect a host that a request could not connect to."""
        if (probed := self._probed.get(host)) is not None:
            probed.due_at = min(probed.due_at, now)

    def due(self, now: float) -> list[ProbeAttempt]:
        """The attempts that are due. The outcome of each must be passed to ``record``."""
        waiting = [
            (t.due_at, host)
            for host, t in self._probed.items()
            if t.due_at <= now and not t.is_running
        ]
        found = []
        for _, host in sorted(waiting)[:_ATTEMPTS_AT_ONCE]:
            probed = self._probed[host]
            ports = probed.probe.ports
            found.append(ProbeAttempt(probed.probe, ports[probed.attempts % len(ports)]))
            probed.is_running = True
            probed.attempts += 1

        return found

    def record(self, attempt: ProbeAttempt, now: float, *, answers: bool) -> None:
        """Record the outcome of an attempt."""
        if (probed := self._probed.get(attempt.probe.host)) is None:
            return
        probed.is_running = False
        probed.failures = 0 if answers else probed.failures + 1
        is_unreached = probed.failures >= FAILURES
        probed.due_at = now + (AGAIN_S if is_unreached else ANSWERS_S if answers else RETRY_S)
