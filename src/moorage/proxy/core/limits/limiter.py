"""Limiter: where limits are enforced, priorities assigned and usage counted. Pure.

The request flow calls it once for each request for a model that the caller may use, before a
replica is picked, and reports the request's end once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from moorage.common.link.messages import KeyGrant
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.permit import Permit

Observer = Callable[[bytes], bytes]
"""Receives each piece of a response's body, without its framing, and returns the piece to forward,
normally unchanged. ``b""`` marks the end, for which it returns the last piece. It may change only
event streams."""


class Ask:
    """A request that is about to be forwarded.

    ``identity``: the key with its user and project; None if the proxy requires no keys.
    ``prompt_bytes``: the size of its body without media. ``members``: the members of its body that
    are read from all requests. ``repeats``: the answer repeats tokens that have already been
    counted.
    """

    __slots__ = ("identity", "members", "path", "permit", "prompt_bytes", "repeats", "request_id")

    def __init__(
        self,
        identity: KeyGrant | None,
        permit: Permit,
        path: str,
        prompt_bytes: int,
        *,
        members: Mapping[str, object],
        request_id: str,
        repeats: bool = False,
    ) -> None:
        self.identity = identity
        self.permit = permit
        self.path = path
        self.prompt_bytes = prompt_bytes
        self.members = members
        self.request_id = request_id
        self.repeats = repeats


class RequestReservation(Protocol):
    """A running request's reservation. ``headers`` are added to its response. ``priority`` orders
    it among the requests that wait for a replica, highest first. ``prioritizes``: the priority is
    sent to a replica that supports it."""

    @property
    def prioritizes(self) -> bool: ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]: ...

    @property
    def priority(self) -> int: ...

    def observe(self, status: int, content_type: str, coding: str = "") -> Observer | None:
        """Called when the response starts. Returning None, the usual case, costs nothing during the
        relay. ``coding``: its Content-Encoding."""
        ...

    def settle(self, status: int, now: float, session_id: str = "") -> None:
        """Called exactly once, at the end. ``status``: the response's status; 499 if the client
        disconnected before the response started. ``session_id``: the session of the replica that
        had the request. The client has received exactly the pieces that the observer saw."""
        ...


class Limiter(Protocol):
    def reserve(self, ask: Ask, now: float) -> RequestReservation | ErrorResponse | None:
        """Grant or refuse a request. None means that it is granted with nothing to settle. ``now``:
        monotonic seconds."""
        ...


class Unlimited:
    """A limiter that grants everything and counts nothing."""

    def reserve(self, ask: Ask, now: float) -> RequestReservation | ErrorResponse | None:
        return None
