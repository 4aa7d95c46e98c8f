"""REST models for the scheduler's decision log."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.views.resources import ItemsView, View


class SegmentView(View):
    """Segment of the log: the decisions from about one second, encoded as stored."""

    from_at: datetime
    to_at: datetime
    term: int = Field(description="Leadership term of the manager that made the decisions.")
    whole: bool = Field(description="Whether it can be read without the preceding segment.")
    passes: int
    dropped: int = Field(description="Number of passes before it that were not stored.")
    size: int = Field(description="Length of the body in bytes.")
    body: str = Field(
        description=(
            "Lines of JSON, compressed with zlib, in base64; the first line names the format."
        )
    )


class DecisionPage(ItemsView[SegmentView]):
    """Page of segments, oldest first. Pass ``next`` as ``cursor`` for the following page."""

    next: str | None = None
    kept_since: datetime | None = Field(
        default=None, description="Time of the group's oldest stored decision."
    )
    kept_until: datetime | None = Field(
        default=None, description="Time of the group's newest stored decision."
    )


class PassPlace(View):
    session_id: str
    agents: list[str] = Field(description="The agent of each kernel.")


class PassVictim(View):
    session_id: str
    for_session: str = Field(description="Id of the session that gets its resources.")


class PassView(View):
    """One scheduling pass that had a result."""

    at: datetime
    duration_ms: float
    pending: int = Field(description="Number of sessions that waited when it began.")
    placed: int = Field(
        description="Number of places that were committed; the others were out of date."
    )
    idle_passes_before: int = Field(
        description="Number of passes before it that saw no change and changed nothing."
    )
    not_recorded_before: int = Field(
        default=0, description="Number of passes before it that the log lacks."
    )
    held: dict[str, int] = Field(description="Number of sessions that wait on, by reason.")
    places: list[PassPlace]
    preempted: list[PassVictim]
    session: Literal["placed", "waited", "preempted"] | None = Field(
        default=None, description="What it did with the session that the query names."
    )


class TakeView(View):
    slot: str
    device_id: str
    amount: int


class RunView(View):
    """Kernel and the resources that it held. ``released_at``: null while it still holds them."""

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
    limit_s: float | None = Field(
        default=None,
        description="Longest run in seconds, including the stop; null means unlimited.",
    )
    preemptible: bool = True
    takes: list[TakeView]
