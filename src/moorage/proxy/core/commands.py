"""Commands of the request flow: the next step of a data plane. Pure.

Commands of every request are plain classes, because the constructor of a dataclass is interpreted
even if the rest is compiled.
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
    """Read the body of the request, and report it with ``body``, or an error with ``refuse``."""


class Send:
    """Send the request to ``target`` on a connection only for this request. An earlier connection
    is closed.

    ``is_anew``: on a new connection. The request has already met a dead replica or connection and
    is not sent a third time, and an idle connection may be dead, too."""

    __slots__ = ("is_anew", "target")

    def __init__(self, target: Target, is_anew: bool = False) -> None:
        self.target = target
        self.is_anew = is_anew


@dataclass(slots=True)
class WaitForReplica:
    """Wait until the monotonic second ``until``, which is an event, like every earlier change of
    the routes. First send ``comment`` to the client, if there is one: the first comment starts its
    response as an event stream with the status 200."""

    until: float
    comment: bytes = b""


class StartResponse:
    """Send the response of the replica to the client: its head, with the proxy's own headers and
    ``more`` added, and then its body as it arrives, through ``observe`` if there is one.
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
    """Break off an incomplete response. Send ``event`` and end it; None: no message can be added,
    so close the connection in a way that the client cannot mistake for the end."""

    event: bytes | None


Command: TypeAlias = (
    ReadBody | Send | WaitForReplica | StartResponse | Break | LocalResponse | ErrorResponse
)
READ_BODY = ReadBody()
