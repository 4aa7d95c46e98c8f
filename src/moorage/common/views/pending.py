"""What the REST API answers to "why does it wait?" and "where would it go?"."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.model.status import Status
from moorage.common.views.resources import DeviceView, View


class Condition(View):
    """What must be true before any agent is asked."""

    kind: str
    met: bool
    text: str


class Outlook(View):
    """What stands between a session and its start."""

    text: str = Field(description="All of it in one line.")
    conditions: list[Condition] = Field([], description="Each that must be true before any agent is asked.")
    refusals: list[str] = Field([], description="One line per kind of refusal, agents counted.")
    fenced: list[str] = Field([], description="Devices that get nothing because they are not well.")
    position: int | None = Field(None, description="In the queue of those that wait for room; 1 is next.")
    waiting: int | None = Field(None, description="How many wait for room in its group.")
    blockers: list[str] = Field([], description="Sessions whose end or start it waits for.")
    expected_start: datetime | None = Field(None, description="Where there is a basis for one.")
    basis: str = Field("", description="What the expected start rests on, or why there is none.")


class WhyView(Outlook):
    session_id: str
    name: str
    status: Status
    since: datetime
    resource_group: str


class KernelPlaceView(View):
    hostname: str = "main1"
    agent_id: str
    devices: list[DeviceView]


class PlanView(Outlook):
    """Where a session would go if it were created now. Nothing was written."""

    fits: bool
    resource_group: str
    places: list[KernelPlaceView] = Field([], description="One per kernel, the main one first.")
