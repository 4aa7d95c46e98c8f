"""REST models that explain why a session is waiting and where it would start."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.model.status import Status
from moorage.common.views.resources import DeviceView, View


class Condition(View):
    """Condition that must hold before agents are considered."""

    kind: str
    met: bool
    text: str


# Basis of an estimate: capacity that is available now; capacity reserved for the session; the known
# end times of running sessions, with other sessions placed first; the start time that its user set,
# or the end of its retry backoff; the known end times of the sessions that it depends on.
StartKind = Literal["capacity-now", "reserved", "earliest", "begin-time", "dependency"]


class StartCalibration(View):
    """Accuracy of past estimates, compared with the actual starts. The errors are those that remain
    after the correction."""

    resource_group: str
    kind: StartKind
    starts: int = Field(description="Number of recent estimates on which this is based.")
    share_p50: float = Field(
        default=1.0,
        description=(
            "Factor that corrects an estimate: the share of the time until the known end after "
            "which half of the sessions had started. 1 means no correction."
        ),
    )
    error_p50_s: float = Field(
        description="Half of the estimates were off by at most this many seconds."
    )
    error_p90_s: float = Field(
        description="Nine out of ten estimates were off by at most this many seconds."
    )


class PendingExplanation(View):
    """Explanation of why a session is waiting, or would wait."""

    text: str = Field(description="Summary in one line.")
    conditions: list[Condition] = Field(
        default=[], description="Conditions that must hold before agents are considered."
    )
    refusals: list[str] = Field(
        default=[], description="One line per kind of refusal, with the number of agents."
    )
    fenced: list[str] = Field(
        default=[], description="Fenced devices: unhealthy, and therefore not allocated."
    )
    position: int | None = Field(
        default=None, description="Position in its resource group's queue; 1 is next."
    )
    waiting: int | None = Field(default=None, description="Length of that queue.")
    blockers: list[str] = Field(default=[], description="Sessions that it waits for.")
    expected_start: datetime | None = Field(
        default=None, description="Estimated start; null if there is no basis for an estimate."
    )
    expected_kind: StartKind | None = Field(default=None, description="Kind of that estimate.")
    basis: str = Field(default="", description="Basis of the estimate, or why there is none.")
    calibration: StartCalibration | None = Field(
        default=None,
        description=(
            "Accuracy of past estimates of that kind in the resource group; null if there are none."
        ),
    )


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
    """Placement that a session would get if it were created now. Nothing is created."""

    fits: bool
    resource_group: str
    places: list[KernelPlaceView] = Field(
        default=[], description="One per kernel, the main kernel first."
    )
