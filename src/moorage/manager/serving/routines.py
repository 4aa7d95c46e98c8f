"""Interface of custom routines: their view of endpoints, and the actions that they can request.

A routine is an async function with two arguments, installed as an entry point of the group
``moorage.routines``. ``docs/routines.md`` has an example. Its requested actions are carried out in
order when it returns, and only while this manager leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moorage.common.model.ids import EndpointId, SessionId


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """``state``: queued, loading, ready, busy or draining. ``address``: ``host:port`` of its
    engine, which expects the replica's own key; empty until it listens. ``in_flight``: counted by
    the proxies; None if no proxy reports."""

    session_id: SessionId
    name: str
    state: str
    revision: int
    agent_id: str | None
    address: str
    in_flight: int | None
    running: int
    waiting: int
    kv_cache: float | None


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """``waiting``: requests that proxies hold. ``replicas``: the live ones, including those that
    wait for a place. ``version``: requested actions are void if the endpoint has a different
    version by the time they are carried out."""

    endpoint_id: EndpointId
    name: str
    project: str
    status: str
    wanted: int
    waiting: int
    version: int
    replicas: tuple[ReplicaInfo, ...]


@dataclass(frozen=True, slots=True)
class ServingView:
    """All endpoints, by name."""

    endpoints: tuple[EndpointInfo, ...]

    def endpoint(self, name: str) -> EndpointInfo | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == name), None)


@dataclass(frozen=True, slots=True)
class ScaleEndpoint:
    endpoint: EndpointInfo
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class DrainReplica:
    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Note:
    endpoint: EndpointInfo
    text: str


class Intents:
    """Actions that a routine requests. ``asked`` is read once the routine has returned."""

    def __init__(self) -> None:
        self.asked: list[ScaleEndpoint | DrainReplica | Note] = []

    def scale(self, endpoint: EndpointInfo, replicas: int, why: str) -> None:
        """Set the desired number, within its autoscaling limits. It is recorded as a scaling
        decision, from which autoscaling continues."""
        self.asked.append(ScaleEndpoint(endpoint, replicas, why))

    def drain(self, replica: ReplicaInfo) -> None:
        """Stop a replica once it has finished its requests; another one replaces it."""
        self.asked.append(DrainReplica(replica.session_id))

    def note(self, endpoint: EndpointInfo, text: str) -> None:
        """Write a line to the manager's log."""
        self.asked.append(Note(endpoint, text))


Routine = Callable[[ServingView, Intents], Awaitable[None]]
