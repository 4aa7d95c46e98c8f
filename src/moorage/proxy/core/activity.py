"""Activity by model: requests, the time of the last start or end, tokens, and time to first token.
Pure."""

from __future__ import annotations

from collections import deque

from moorage.proxy.core.histogram import Histogram
from moorage.proxy.core.token_meter import Tokens

# The number of recent times to first token that are kept for each model.
RECENT_S = 60.0
RECENT = 256
# vLLM's buckets of the same name, without the last ones.
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)


class ModelActivity:
    """A model's activity. ``requests``, ``tokens_in``, ``tokens_out``, ``tokens_cached`` and
    ``first_token`` (for streams, in seconds) count from the start and are never reset. ``last``:
    time of the last activity in monotonic seconds."""

    __slots__ = (
        "_first_tokens",
        "first_token",
        "last",
        "requests",
        "tokens_cached",
        "tokens_in",
        "tokens_out",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.last = 0.0
        self.tokens_in = 0
        self.tokens_out = 0
        self.tokens_cached = 0
        self.first_token = Histogram(FIRST_TOKEN)
        self._first_tokens: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def add_first_token(self, now: float, after_s: float, *, is_stream: bool) -> None:
        self._first_tokens.append((now, int(after_s * 1000 + 0.5)))
        if is_stream:
            self.first_token.observe(after_s)

    def add_tokens(self, tokens: Tokens) -> None:
        self.tokens_in += tokens.prompt
        self.tokens_out += tokens.answer
        if tokens.cached:
            self.tokens_cached += tokens.cached

    def first_token_ms(self, now: float) -> int | None:
        """The 90th percentile over the last minute; None if no request had a first token."""
        recent = self._first_tokens
        while recent and recent[0][0] < now - RECENT_S:
            recent.popleft()
        if not recent:
            return None
        return sorted(ms for _, ms in recent)[len(recent) * 9 // 10]


class Activity:
    """The activity of all models. ``touched``: models in which a request has started, received its
    first token or ended since ``touched`` was last emptied."""

    def __init__(self) -> None:
        self.models: dict[str, ModelActivity] = {}
        self.touched: set[str] = set()

    def touch(self, model: str, now: float, requests: int = 0) -> ModelActivity:
        """Record activity of a model. ``requests``: the number of starting requests."""
        activity = self.models.get(model)
        if activity is None:
            activity = self.models[model] = ModelActivity()
        activity.last = now
        activity.requests += requests
        self.touched.add(model)
        return activity

    def take_touched(self) -> set[str]:
        """Return the models in ``touched``, and empty it."""
        touched = self.touched
        self.touched = set()
        return touched
