"""Room in engines: refusals that mean "not now", and how many requests a replica gets after one.
Pure.

An engine without room refuses valid requests that another replica would answer, or the same one a
little later. At that moment, llama.cpp drops all its running requests, so a replica that has
refused a request gets fewer concurrent requests from then on. Further requests wait in the proxy.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core.retry import is_error_event

# Engines' messages, and their statuses unless the message is in a stream's first event. vLLM has
# none, because its requests wait in an unbounded queue.
_WORDS: Final = (
    # llama.cpp, whose slots share one context, which is full
    (500, b"Context size has been exceeded."),
    (429, b"Model is overloaded"),  # TGI: --max-concurrent-requests
    (503, b"The request queue is full."),  # SGLang: --max-queued-requests
    # SGLang, when its queue is full and ordered by priority
    (503, b"The request is aborted by a higher priority request."),
)
# Marks of an error in a stream, in OpenAI's and Anthropic's formats. Within text, their newlines
# and quotes would be escaped.
_EVENTS: Final = (b'data: {"error"', b"event: error\n")
# Refusals within this time count as one, because the engine drops all requests at the same time.
ONCE_S = 1.0
# A replica that refused a request gets nothing for this long, then for twice as long, because other
# proxies may also send to it.
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 4.0
# Time until one more concurrent request is tried. It doubles each time that this is one too many.
FIRST_GROWTH_S = 30.0
LONGEST_GROWTH_S = 960.0


def tells_of_no_room(status: int, begin: bytes) -> bool:
    """Return whether a response reports that its engine has no room now. ``begin``: the beginning
    of its body."""
    if status < 429 and not is_error_event(begin):
        return False
    return any(words in begin for of, words in _WORDS if status in (of, 200))


def ends_without_room(tail: bytes) -> bool:
    """Return whether a stream ended because its engine had no room any more. ``tail``: its last
    bytes."""
    is_error = any(event in tail for event in _EVENTS)
    return is_error and any(words in tail for _, words in _WORDS)


class _Bound:
    """A replica's bound. ``most``: the most concurrent requests. ``refused``: the number that was
    too many."""

    __slots__ = (
        "grows_after_s",
        "has_grown",
        "most",
        "pause_s",
        "paused_until",
        "refused",
        "since",
    )

    def __init__(self, now: float) -> None:
        self.most = 0
        self.refused = 0
        self.pause_s = FIRST_PAUSE_S
        self.paused_until = 0.0
        self.grows_after_s = FIRST_GROWTH_S
        self.has_grown = False
        self.since = now


class EngineRoom:
    """Bounds for replicas that have refused requests for lack of room. They apply to this process's
    requests. Times are monotonic seconds. ``bounds``: by replica; empty in the usual case, which
    costs each request only the test for it."""

    def __init__(self) -> None:
        self.bounds: dict[KernelId, _Bound] = {}

    def refused(self, kernel_id: KernelId, in_flight: int, now: float) -> None:
        """Record a refusal. ``in_flight``: the replica's requests, including the refused one."""
        bound = self.bounds.get(kernel_id)
        if bound is None:
            bound = self.bounds[kernel_id] = _Bound(now)
        elif now - bound.since < ONCE_S:
            return
        elif bound.has_grown:
            bound.grows_after_s = min(2 * bound.grows_after_s, LONGEST_GROWTH_S)

        bound.most = max(1, in_flight // 2)
        bound.refused = in_flight
        bound.has_grown = False
        bound.since = now
        bound.paused_until = now + bound.pause_s
        bound.pause_s = min(2 * bound.pause_s, LONGEST_PAUSE_S)

    def answered(self, kernel_id: KernelId, now: float) -> None:
        """Record an answered request."""
        if (bound := self.bounds.get(kernel_id)) is None or now - bound.since < ONCE_S:
            return

        bound.pause_s = FIRST_PAUSE_S
        if now - bound.since >= bound.grows_after_s:
            bound.most = bound.most + 1
            bound.has_grown = True
            bound.since = now
            if bound.most > bound.refused:
                del self.bounds[kernel_id]

    def takes(self, kernel_id: KernelId, in_flight: int, now: float) -> bool:
        """Whether the replica may get one more request."""
        bound = self.bounds.get(kernel_id)
        return bound is None or (in_flight < bound.most and now >= bound.paused_until)

    def open_targets(
        self, targets: tuple[Target, ...], in_flight: Mapping[KernelId, int], now: float
    ) -> tuple[Target, ...]:
        """The replicas that may get one more request."""
        return tuple(
            t for t in targets if self.takes(t.kernel_id, in_flight.get(t.kernel_id, 0), now)
        )

    def bounds_any(self, targets: tuple[Target, ...]) -> bool:
        return any(target.kernel_id in self.bounds for target in targets)

    def keep_only(self, kernel_ids: Container[KernelId]) -> None:
        """Forget replicas that are no longer in the table."""
        for kernel_id in [bound for bound in self.bounds if bound not in kernel_ids]:
            del self.bounds[kernel_id]
