"""Fallbacks: other models or outside providers for requests that a model cannot serve. Pure.

The fallbacks of the requested model are tried in order, each once. Fallbacks of fallbacks are not
followed, so a chain is finite and has no loops. A caller is sent to another model only if it may
use that model itself, and only while that model has a ready replica. A provider gets only the body
of the client's request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moorage.common.link.messages import ModelRoute, RouteFallback, Target
from moorage.proxy.core.admission import (
    BodyRequired,
    Forward,
    RequestCaller,
    may_ask,
    missing_in_engine,
)
from moorage.proxy.core.body_model import with_model
from moorage.proxy.core.retry import Failure

FALLS_BACK = frozenset(
    {
        Failure.CONNECT,
        Failure.DISCONNECT,
        Failure.ENGINE_DEAD,
        Failure.BUSY,
        Failure.NO_ROOM,
        Failure.KEY_REJECTED,
        Failure.REFUSED,
    }
)
"""Failures before the first byte after which the request can go to a fallback. A silent replica is
not among them, because it may still be working on the request."""
# Paths that providers of OpenAI's API support. Each provider has its own prefix in place of /v1.
_PROVIDED = frozenset(
    f"/v1/{api}"
    for api in (
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "audio/transcriptions",
        "audio/translations",
        "audio/speech",
    )
)


@dataclass(slots=True)
class Hop:
    """The next destination of a request, with its body and path. ``route``: the model whose limits
    apply: the other model, or for a provider the requested one. ``name``: the model's name
    there."""

    name: str
    route: ModelRoute
    target: Target
    path: str
    body: bytes


class FallbackChain:
    """A request's remaining fallbacks. ``forward``, ``body``: the client's request."""

    __slots__ = ("_body", "_head", "_left", "after_s", "forward")

    def __init__(self, head: BodyRequired, forward: Forward, body: bytes) -> None:
        self._head = head
        self.forward = forward
        self._body = body
        self._left = list(forward.route.fallbacks)
        self.after_s = forward.route.fallback_after_s

    def next(
        self, find: Callable[[str], ModelRoute | None], pick: Callable[[str], Target | None]
    ) -> Hop | None:
        """Return the first fallback that can serve now, at most once. ``find`` returns a model's
        route, ``pick`` one of its ready replicas."""
        for fallback in list(self._left):
            if (hop := self._hop(fallback, find, pick)) is not None:
                self._left.remove(fallback)
                return hop
        return None

    def _hop(
        self,
        fallback: RouteFallback,
        find: Callable[[str], ModelRoute | None],
        pick: Callable[[str], Target | None],
    ) -> Hop | None:
        head = self._head
        path = self.forward.path
        route = self.forward.route
        target = fallback.provider
        if target is not None:
            if path not in _PROVIDED:
                return None
            path = target.prefix + path.removeprefix("/v1")
        else:
            found = find(fallback.model)
            if found is None or not may_ask(RequestCaller(head.key, head.project), found):
                return None
            if missing_in_engine(head, found) is not None:
                return None
            if 0 < found.max_body_bytes < len(self._body):
                return None

            route = found
            target = pick(fallback.model)

        if target is None:
            return None

        span = self.forward.model_span
        if (body := with_model(self._body, head.content_type, fallback.model, span)) is None:
            return None

        return Hop(fallback.model, route, target=target, path=path, body=body)


def is_refused(status: int) -> bool:
    """Whether a provider refused our key or redirected us. Such an answer could reveal whose key it
    is, or send the client elsewhere."""
    return status in (401, 403) or 300 <= status < 400
