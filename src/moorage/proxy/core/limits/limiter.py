"""Limiter: where limits are enforced, priorities assigned and usage counted. Pure.

The request flow asks it once for each request that names a model which its caller may use, before a
replica is picked, and tells it once how the request ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from moorage.common.link.messages import KeyGrant
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.permit import Permit

Observer = Callable[[bytes], bytes]
"""Gets each piece of a response's body, without its framing, and returns what is passed on:
normally the piece itself. ``b""`` marks the end; what it returns then is the last piece. Only of
event streams may it change anything."""


class Ask:
    """A request that is about to be forwarded.

    ``identity``: the key with its user and project; None if the proxy requires no keys.
    ``members``: those of the ``body`` that all requests are asked for. ``repeats``: the answer
    tells of tokens that were counted before.
    """

    __slots__ = ("body", "identity", "members", "path", "permit", "repeats", "request_id")

    def __init__(
        self,
        identity: KeyGrant | None,
        permit: Permit,
        path: str,
        body: bytes,
        *,
        members: Mapping[str, object],
        request_id: str,
        repeats: bool = False,
    ) -> None:
        self.identity = identity
        self.permit = permit
        self.path = path
        self.body = body
        self.members = members
        self.request_id = request_id
        self.repeats = repeats


class RequestReservation(Protocol):
    """What a request holds while it runs. ``headers`` are added to its response. ``priority``
    orders it among the requests that wait for a replica; a greater one goes first. ``prioritizes``:
    a replica that reads a priority is told it."""

    @property
    def prioritizes(self) -> bool: ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]: ...

    @property
    def priority(self) -> int: ...

    def observe(self, status: int, content_type: str, coding: str = "") -> Observer | None:
        """Called when the response begins. None, the rule, costs nothing while it is relayed.
        ``coding``: its Content-Encoding."""
        ...

    def settle(self, status: int, now: float, session_id: str = "") -> None:
        """Called exactly once, at the end. ``status``: of the response; 499 if the client left
        before it began. ``session_id``: of the replica that had the request. The pieces that the
        observer saw are all that the client got."""
        ...


class Limiter(Protocol):
    def reserve(self, ask: Ask, now: float) -> RequestReservation | ErrorResponse | None:
        """Grant a request, or refuse it. None grants it with nothing to settle. ``now``: monotonic
        seconds."""
        ...


class Unlimited:
    """Grants everything and counts nothing."""

    def reserve(self, ask: Ask, now: float) -> RequestReservation | ErrorResponse | None:
        return None
