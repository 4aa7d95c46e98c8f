"""Commands of the request flow: a data plane's next step. Pure.

The commands used by every request are plain classes, because a dataclass's constructor is
interpreted even if the rest is compiled.
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
    """Read the request's body and report it with ``body``, or report an error with ``refuse``."""


class Send:
    """Send the request to ``target`` on a connection that carries no other request. An earlier
    connection is closed.

    ``is_anew``: use a new connection. The request has already met a dead replica or connection, an
    idle connection may also be dead, and there will be no third attempt."""

    __slots__ = ("is_anew", "target")

    def __init__(self, target: Target, is_anew: bool = False) -> None:
        self.target = target
        self.is_anew = is_anew


@dataclass(slots=True)
class WaitForReplica:
    """Wait until the monotonic second ``until`` or an earlier route change; each is an event. First
    send ``comment`` to the client, if there is one. The first comment starts the response as an
    event stream with status 200."""

    until: float
    comment: bytes = b""


class StartResponse:
    """Send the replica's response to the client: its head, with the proxy's own headers and
    ``more`` added, then its body as it arrives, passed through ``observe`` if that is set.
    ``overhead_s``: time spent in the proxy."""

    __slots__ = ("more", "observe", "overhead_s")

    def __init__(
        self, overhead_s: float, more: Sequence[tuple[str, str]], observe: Observer | None
    ) -> None:
        self.overhead_s = overhead_s
        self.more = more
        self.observe = observe


@dataclass(slots=True)
class Break:
    """Break off an incomplete response. Send ``event`` and end the stream. If ``event`` is None, no
    message can be added, so close the connection in a way that the client cannot mistake for a
    normal end."""

    event: bytes | None


Command: TypeAlias = (
    ReadBody | Send | WaitForReplica | StartResponse | Break | LocalResponse | ErrorResponse
)
READ_BODY = ReadBody()
