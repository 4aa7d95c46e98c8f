"""Qualities of service (QoS): priority, preemption, limits and price of the sessions that use one,
as administrators set them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.run_limits import SlotLimits

MAX_PRICE_FACTOR = 1000
# The number of sessions that a limit may allow.
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class QosOptions(Model):
    """A quality of service. An absent limit means unlimited.

    Priority, preemption, price factor and time limit apply to sessions when they are submitted;
    the limits on placed sessions apply in each scheduling pass."""

    EXAMPLE: ClassVar = {
        "description": "Short debugging runs",
        "priority": 50,
        "max_time_s": 1800,
        "max_running_per_user": 1,
        "max_per_session": {"cuda.device": 1},
    }

    description: Annotated[str, Field(max_length=200)] = ""
    projects: Annotated[list[Name], Field(max_length=1000)] | None = Field(
        default=None, description="Projects that may use it; null means all."
    )
    priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description=(
            "Priority of its sessions, whatever the ceiling of their owner's role. A session may "
            "request a lower one. null means that sessions have their own."
        ),
    )
    preemptible: bool | None = Field(
        default=None,
        description=(
            "Whether its sessions may be preempted, whatever they request. null means as they "
            "request."
        ),
    )
    price_factor: Annotated[float, Field(ge=0, le=MAX_PRICE_FACTOR)] = Field(
        default=1, description="Factor on the prices of what its sessions use."
    )
    max_time_s: Seconds | None = Field(
        default=None, description="Longest time limit of its sessions, in seconds."
    )
    max_per_session: SlotLimits = Field(
        default={}, description="Most that one session may request, by slot."
    )
    max_per_user: SlotLimits = Field(
        default={}, description="Most that the placed sessions of one user may hold, by slot."
    )
    max_running_per_user: Count | None = Field(
        default=None, description="Maximum number of placed sessions of one user."
    )
    max_total: SlotLimits = Field(
        default={}, description="Most that all its placed sessions together may hold, by slot."
    )
    max_running: Count | None = Field(
        default=None, description="Maximum number of its placed sessions."
    )
