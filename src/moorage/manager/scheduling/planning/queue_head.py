"""Head of the queue: the session that others overtake while it waits for capacity."""

from __future__ import annotations

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.model import Pending


class QueueHead:
    """``session``: the first session by queue key that waits for capacity, could start once work
    ends, and is not overdue."""

    def __init__(self) -> None:
        self.session: Pending | None = None
        self._placed_keys: list[tuple[int, int, str]] = []

    def offer(self, item: Pending) -> None:
        """Offer ``item``, which waits for capacity: it becomes the head if it is older than the
        current one."""
        if self.session is None or item.queue_key < self.session.queue_key:
            self.session = item

    def note_placed(self, item: Pending) -> None:
        self._placed_keys.append(item.queue_key)

    def bypasses(self) -> dict[SessionId, int]:
        """Count the head's bypasses: each session that was placed although it comes later in the
        queue has overtaken the head."""
        head = self.session
        if head is None:
            return {}
        overtaken = sum(key > head.queue_key for key in self._placed_keys)
        return {head.session_id: head.bypassed + overtaken} if overtaken else {}
