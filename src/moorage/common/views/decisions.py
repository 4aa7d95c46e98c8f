"""What the REST API answers about what the scheduler decided."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.views.resources import View


class SegmentView(View):
    """What was decided within about a second, in the form in which it is kept."""

    from_at: datetime
    to_at: datetime
    term: int = Field(description="Under which the leader decided it.")
    whole: bool = Field(description="It can be read without the one before it.")
    passes: int
    dropped: int = Field(description="So many passes before it were not kept.")
    size: int = Field(description="Bytes of the body.")
    body: str = Field(description="Lines of JSON, compressed (zlib), as base64; the first names their form.")


class DecisionPage(View):
    """Oldest first. ``next`` goes into ``cursor`` for the following page."""

    items: list[SegmentView]
    next: str | None = None
    kept_since: datetime | None = Field(None, description="The oldest that is kept of this group.")
    kept_until: datetime | None = Field(None, description="The newest.")


class TakeView(View):
    slot: str
    device_id: str
    amount: int


class RunView(View):
    """One kernel, and what it held from when to when. ``released_at``: null while it does."""

    kernel_id: str
    session_id: str
    name: str
    agent_id: str
    user: str
    project: str
    priority: int
    endpoint_id: str | None
    taken_at: datetime
    released_at: datetime | None
    limit_s: float | None = Field(None, description="So long it may run, its stop included; null: endless.")
    takes: list[TakeView]
