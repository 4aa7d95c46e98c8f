"""Parts of a request flow: the request as it is sent, its waits and its failed attempts. Pure.

The first is created when the body arrives. The others exist only for requests that wait or fail, so
they cost nothing in the usual case of a request that is sent and answered.
"""

from __future__ import annotations

from moorage.common.model.ids import KernelId
from moorage.proxy.core.admission import BodyRequired, Forward
from moorage.proxy.core.affinity import key_of
from moorage.proxy.core.fallback import FallbackChain, Hop
from moorage.proxy.core.retry import DEATHS, Failure
from moorage.proxy.core.stored_response import StoredResponse


class ForwardedRequest:
    """A request as it is sent to replicas.

    ``route_name``: a model in the route table, or one of its adapters. ``body``: the body that
    replicas get. ``stored``: the stored response that the request creates or refers to. ``home``:
    the only replica that has this response, if it already exists. ``chain``: the remaining
    fallbacks. ``served_by``: the model of the fallback that has the request, empty if none has.
    ``affinity``: the key by which its replica is picked. ``shows_progress``: whether the client
    reads comments while it waits. ``prompt_bytes``: size of the part of the body that is text.
    """

    __slots__ = (
        "affinity",
        "body",
        "chain",
        "home",
        "prompt_bytes",
        "route_name",
        "served_by",
        "shows_progress",
        "stored",
    )

    def __init__(
        self, head: BodyRequired, forward: Forward, body: bytes, stored: StoredResponse | None
    ) -> None:
        permit = forward.permit
        self.route_name = permit.name
        self.body = body
        self.prompt_bytes = len(body)
        self.stored = stored
        self.home = None if stored is None else forward.home
        self.served_by = ""
        self.shows_progress = head.wants_progress and forward.members.get("stream") is True
        self.chain: FallbackChain | None = None
        if permit.has_fallbacks and forward.home is None and not head.upgrades:
            self.chain = FallbackChain(head, forward, body)

        self.affinity = 0
        if permit.prefix_affinity or head.session:
            session = head.session
            self.affinity = key_of(session, forward.members if session else forward.document)

    def measure(self, prompt_bytes: int) -> None:
        """Record the size of the text in the body."""
        self.prompt_bytes = prompt_bytes

    def fall_back(self, hop: Hop) -> None:
        """Direct the request to a fallback."""
        self.route_name = hop.route.name
        self.body = hop.body
        self.served_by = hop.name

    def release(self) -> None:
        """Free the data for another attempt, because a response is being relayed and the request
        will not be sent again."""
        self.body = b""
        self.chain = None


class RequestWait:
    """The waits of one request for a replica. Times are monotonic seconds.

    ``since``: when the first wait began. ``until``: when the request is answered without a replica.
    ``fallback_at``: the earliest time at which it can go to a fallback. ``is_stream_open``: the
    client has received a comment, so its response must be an event stream.
    """

    __slots__ = ("fallback_at", "is_stream_open", "since", "until")

    def __init__(self, since: float) -> None:
        self.since = since
        self.until = 0.0
        self.fallback_at = 0.0
        self.is_stream_open = False

    def extend(self, hold_s: float) -> bool:
        """Set the time limit to ``hold_s`` seconds from the start. Returns whether this changed
        it."""
        before = self.until
        self.until = self.since + hold_s
        return self.until != before

    def allow_fallback(self, after_s: float) -> None:
        """Allow a fallback from ``after_s`` seconds after the start."""
        self.fallback_at = self.since + after_s

    def open_stream(self) -> None:
        """Record that the client gets a comment."""
        self.is_stream_open = True


class FailedAttempts:
    """A request's failed attempts.

    ``replicas``: the replicas that are not tried again for now. ``failures``: the kinds of failure,
    in order. ``refusals``: how often an engine had no room.
    """

    __slots__ = ("failures", "refusals", "replicas")

    def __init__(self) -> None:
        self.replicas: set[KernelId] = set()
        self.failures: tuple[Failure, ...] = ()
        self.refusals = 0

    @property
    def has_killed(self) -> bool:
        """Whether the request killed a replica, or may have."""
        return not DEATHS.isdisjoint(self.failures)

    def add(self, kernel_id: KernelId, failure: Failure) -> None:
        self.replicas.add(kernel_id)
        self.failures += (failure,)

    def add_refusal(self) -> None:
        self.refusals += 1

    def try_all_again(self) -> None:
        """Allow all replicas to be tried again."""
        self.replicas.clear()

    def keep_deaths(self) -> None:
        """Forget earlier failures, but remember whether the request may have killed replicas."""
        self.failures = tuple(failure for failure in self.failures if failure in DEATHS)
