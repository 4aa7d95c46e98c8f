"""Reach of agents, as this proxy has tried it: which addresses in its table do not answer, and
which agents that dial out have an address that does. Pure."""

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
class Probe:
    """Connect to one of ``ports`` of ``host``. ``agent_id``: who has to answer; "": whoever does.
    ``may_refuse``: a refusal is an answer, since nothing may listen there."""

    host: str
    ports: tuple[int, ...]
    agent_id: str = ""
    may_refuse: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One probe of ``port``. ``name``: of the probe."""

    name: str
    probe: Probe
    port: int


@dataclass(slots=True)
class _Tried:
    probe: Probe
    failures: int = 0
    answers: bool = False
    due_at: float = 0.0
    attempts: int = 0
    is_running: bool = False


class ReachBook:
    """By name: an address in the table, or the host of an agent that dials out."""

    def __init__(self) -> None:
        self._tried: dict[str, _Tried] = {}

    @property
    def other_way(self) -> tuple[str, ...]:
        """Those that would better be reached the other way."""
        return tuple(
            sorted(
                name
                for name, tried in self._tried.items()
                if (tried.answers if tried.probe.agent_id else tried.failures >= FAILURES)
            )
        )

    def follow(self, probes: Mapping[str, Probe]) -> None:
        """These are all that there are."""
        for name in self._tried.keys() - probes.keys():
            del self._tried[name]

        for name, probe in probes.items():
            tried = self._tried.get(name)
            if tried is None or (tried.probe.host, tried.probe.agent_id) != (
                probe.host,
                probe.agent_id,
            ):
                self._tried[name] = _Tried(probe)
            else:
                tried.probe = probe

    def suspect(self, host: str, now: float) -> None:
        """A request could not connect there."""
        if (tried := self._tried.get(host)) is not None:
            tried.due_at = min(tried.due_at, now)

    def due(self, now: float) -> list[Attempt]:
        """Each is to be told by ``record``."""
        waiting = [
            (t.due_at, name)
            for name, t in self._tried.items()
            if t.due_at <= now and not t.is_running
        ]
        found = []
        for _, name in sorted(waiting)[:_ATTEMPTS_AT_ONCE]:
            tried = self._tried[name]
            ports = tried.probe.ports
            found.append(Attempt(name, tried.probe, ports[tried.attempts % len(ports)]))
            tried.is_running = True
            tried.attempts += 1

        return found

    def record(self, attempt: Attempt, now: float, *, answers: bool) -> None:
        """The outcome of an attempt."""
        tried = self._tried.get(attempt.name)
        dials_out = bool(attempt.probe.agent_id)
        if tried is None or tried.probe.host != attempt.probe.host:
            return

        tried.is_running = False
        tried.answers = answers
        tried.failures = 0 if answers else tried.failures + 1
        stands = dials_out or tried.failures >= FAILURES
        tried.due_at = now + (AGAIN_S if stands else ANSWERS_S if answers else RETRY_S)
