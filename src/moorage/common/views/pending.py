"""REST models that explain why a session waits and where it would start."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from moorage.common.model.status import Status
from moorage.common.views.resources import DeviceView, View


class Condition(View):
    """A condition that must hold before agents are considered."""

    kind: str
    met: bool
    text: str


class PendingExplanation(View):
    """Explanation of why a session waits, or would wait."""

    text: str = Field(description="Summary in one line.")
    conditions: list[Condition] = Field(
        [], description="Conditions that must hold before agents are considered."
    )
    refusals: list[str] = Field([], description="One line per kind of refusal, with the number of agents.")
    fenced: list[str] = Field([], description="Fenced devices: unhealthy, so not allocated.")
    position: int | None = Field(None, description="Place in the queue of its resource group; 1 is next.")
    waiting: int | None = Field(None, description="Length of that queue.")
    blockers: list[str] = Field([], description="Sessions that it waits for.")
    expected_start: datetime | None = Field(
        None, description="Estimated start; null when there is no basis for one."
    )
    basis: str = Field("", description="Basis of the expected start, or why there is none.")


class WhyView(PendingExplanation):
    session_id: str
    name: str
    status: Status
    since: datetime
    resource_group: str


class KernelPlaceView(View):
    hostname: str = "main1"
    agent_id: str
    devices: list[DeviceView]


class PlanView(PendingExplanation):
    """Placement that a session would get if it were created now. Nothing was created."""

    fits: bool
    resource_group: str
    places: list[KernelPlaceView] = Field([], description="One per kernel, the main kernel first.")
