"""Reach of agents, as this proxy has tried it: which addresses in its table do not answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# So many failed attempts in a row, and no success at any port, make an address unreachable.
FAILURES = 3
# Until the next attempt: after a failure, while the finding stands, and at an address that answers.
RETRY_S = 3.0
AGAIN_S = 20.0
ANSWERS_S = 300.0
_ATTEMPTS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class ReachProbe:
    """Connect to one of ``ports`` of ``host``. ``may_refuse``: a refusal is an answer, since
    nothing may listen there."""

    host: str
    ports: tuple[int, ...]
    may_refuse: bool = False


@dataclass(frozen=True, slots=True)
class ProbeAttempt:
    """One probe of ``port``."""

    probe: ReachProbe
    port: int


@dataclass(slots=True)
class _Tried:
    probe: ReachProbe
    failures: int = 0
    due_at: float = 0.0
    attempts: int = 0
    is_running: bool = False


class ReachBook:
    """By host."""

    def __init__(self) -> None:
        self._tried: dict[str, _Tried] = {}

    @property
    def unreached(self) -> tuple[str, ...]:
        """The hosts that do not answer."""
        return tuple(
            sorted(host for host, tried in self._tried.items() if tried.failures >= FAILURES)
        )

    def follow(self, probes: Mapping[str, ReachProbe]) -> None:
        """These are all that there are."""
        for host in self._tried.keys() - probes.keys():
            del self._tried[host]
        for host, probe in probes.items():
            if (tried := self._tried.get(host)) is not None:
                tried.probe = probe
            else:
                self._tried[host] = _Tried(probe)

    def suspect(self, host: str, now: float) -> None:
        """A request could not connect there."""
        if (tried := self._tried.get(host)) is not None:
            tried.due_at = min(tried.due_at, now)

    def due(self, now: float) -> list[ProbeAttempt]:
        """Each is to be told by ``record``."""
        waiting = [
            (t.due_at, host)
            for host, t in self._tried.items()
            if t.due_at <= now and not t.is_running
        ]
        found = []
        for _, host in sorted(waiting)[:_ATTEMPTS_AT_ONCE]:
            tried = self._tried[host]
            ports = tried.probe.ports
            found.append(ProbeAttempt(tried.probe, ports[tried.attempts % len(ports)]))
            tried.is_running = True
            tried.attempts += 1

        return found

    def record(self, attempt: ProbeAttempt, now: float, *, answers: bool) -> None:
        """The outcome of an attempt."""
        if (tried := self._tried.get(attempt.probe.host)) is None:
            return
        tried.is_running = False
        tried.failures = 0 if answers else tried.failures + 1
        is_unreached = tried.failures >= FAILURES
        tried.due_at = now + (AGAIN_S if is_unreached else ANSWERS_S if answers else RETRY_S)
