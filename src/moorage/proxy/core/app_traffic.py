"""Traffic to the apps of sessions: which sessions have open connections or had some recently.
Pure."""

from __future__ import annotations

# How long the contents of a report that may have been lost are repeated.
RECENT_S = 600.0


class AppTraffic:
    """Traffic by session. ``touched``: sessions with traffic since the last report."""

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self._open: dict[str, int] = {}
        self._recent: dict[str, float] = {}

    def begin(self, session_id: str) -> None:
        """Record the start of a request or a connection."""
        self._open[session_id] = self._open.get(session_id, 0) + 1
        self.touched.add(session_id)

    def end(self, session_id: str, now: float) -> None:
        left = self._open[session_id] - 1
        if left:
            self._open[session_id] = left
        else:
            del self._open[session_id]

        self.touched.add(session_id)
        self._recent.pop(session_id, None)  # the newest come last
        self._recent[session_id] = now
        while (oldest := next(iter(self._recent))) != session_id and self._recent[
            oldest
        ] < now - RECENT_S:
            del self._recent[oldest]

    def take(self, *, whole: bool) -> tuple[str, ...]:
        """Take the sessions to report from ``touched``. ``whole``: this is a stream's first report,
        which repeats those that may have been lost."""
        told = self.touched | self._open.keys()
        if whole:
            told |= self._recent.keys()
        self.touched = set()
        return tuple(sorted(told))
