"""Activity by model: requests, when the last one began or ended, and the time to the first token. Pure."""

from __future__ import annotations

from collections import deque

# Times to the first token that count, of each model.
RECENT_S, RECENT = 60.0, 256


class ModelActivity:
    """One model. ``requests``: since the start, never reset. ``last``: monotonic seconds."""

    __slots__ = ("_first_tokens", "last", "requests")

    def __init__(self) -> None:
        self.requests, self.last = 0, 0.0
        self._first_tokens: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def add_first_token(self, now: float, after_s: float) -> None:
        self._first_tokens.append((now, round(after_s * 1000)))

    def first_token_ms(self, now: float) -> int | None:
        """The 90th percentile of the last minute; None: no request had a first token."""
        recent = self._first_tokens
        while recent and recent[0][0] < now - RECENT_S:
            recent.popleft()
        if not recent:
            return None
        return sorted(ms for _, ms in recent)[len(recent) * 9 // 10]


class Activity:
    """All models. ``touched``: those with a request that began, had its first token or ended since
    ``touched`` was emptied."""

    def __init__(self) -> None:
        self.models: dict[str, ModelActivity] = {}
        self.touched: set[str] = set()

    def touch(self, model: str, now: float) -> ModelActivity:
        activity = self.models.get(model)
        if activity is None:
            activity = self.models[model] = ModelActivity()
        activity.last = now
        self.touched.add(model)
        return activity
