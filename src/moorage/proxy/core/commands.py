"""Commands of the request flow: what a data plane does next. Pure.

Those of each request are plain classes: the constructor of a dataclass is interpreted, also where
the rest is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from moorage.common.link.messages import Target
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.limits.limiter import Observer


@dataclass(slots=True)
class ReadBody:
    """Read the body of the request, and report it with ``body``, or what is wrong with
    ``refuse``."""


class Send:
    """Send the request to ``target``, on a connection of this request alone. An earlier one is
    closed.

    ``is_anew``: on a new connection. The request has met a dead replica or connection, and is not
    sent a third time; an idle connection may be dead, too."""

    __slots__ = ("is_anew", "target")

    def __init__(self, target: Target, is_anew: bool = False) -> None:
        self.target = target
        self.is_anew = is_anew


@dataclass(slots=True)
class WaitForReplica:
    """Wait until the monotonic second ``until``, which is an event, as is every change of the
    routes before. Send the client ``comment`` first, if there is one: with the first, its response
    begins as an event stream with the status 200, and stays one."""

    until: float
    comment: bytes = b""


class StartResponse:
    """Send the client the response of the replica: its head, with the proxy's own headers and
    ``more`` added, and then its body as it comes, through ``observe`` if there is one.
    ``overhead_s``: time in the proxy."""

    __slots__ = ("more", "observe", "overhead_s")

    def __init__(
        self, overhead_s: float, more: Sequence[tuple[str, str]], observe: Observer | None
    ) -> None:
        self.overhead_s = overhead_s
        self.more = more
        self.observe = observe


@dataclass(slots=True)
class Break:
    """The response stays incomplete. Send ``event`` and end it; None: nothing can be said within
    it, so close the connection in a way that the client cannot take for its end."""

    event: bytes | None


Command: TypeAlias = (
    ReadBody | Send | WaitForReplica | StartResponse | Break | LocalResponse | ErrorResponse
)
READ_BODY = ReadBody()
