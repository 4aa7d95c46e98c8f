"""Limits of resource groups, keys and templates on the sessions that they admit: time limits,
requested resources, and numbers of sessions per user."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from moorage.common.model.base import Model, Seconds
from moorage.common.model.errors import MoorageError
from moorage.common.model.slots import parse_amount

PerUser = Annotated[int, Field(ge=1, le=1_000_000)]


def check_slot_limits(value: Any) -> Any:
    """Validate limits by slot."""
    if not isinstance(value, dict):
        raise ValueError("slots must be an object such as {'cuda.device': 4, 'mem': '256GiB'}")
    for slot, amount in value.items():
        try:
            parse_amount(slot, amount)
        except MoorageError as error:
            raise ValueError(str(error)) from None
    return value


SlotLimits = Annotated[dict[str, str | int | float], BeforeValidator(check_slot_limits)]


class GroupLimits(Model):
    """Limits of a resource group on the sessions in it; an absent limit means unlimited.

    System sessions do not count, and time limits do not apply to replicas of endpoints."""

    max_batch_time_s: Seconds | None = Field(
        default=None, description="Longest time limit of batch sessions, in seconds."
    )
    default_batch_time_s: Seconds | None = Field(
        default=None,
        description=(
            "Time limit of batch sessions that specify none, in seconds. null means the longest."
        ),
    )
    max_interactive_time_s: Seconds | None = Field(
        default=None, description="Longest time limit of interactive sessions, in seconds."
    )
    default_interactive_time_s: Seconds | None = Field(
        default=None,
        description=(
            "Time limit of interactive sessions that specify none, in seconds. null means the "
            "longest."
        ),
    )
    max_per_session: SlotLimits = Field(
        default={},
        description=(
            "Most that one session may request, by slot, such as {'cuda.device': 4}; the kernels "
            "of a cluster are added up."
        ),
    )
    max_per_user: SlotLimits = Field(
        default={},
        description=(
            "Most that the placed sessions of one user may hold in the group, by slot. Other "
            "sessions of the user wait."
        ),
    )
    max_running_per_user: PerUser | None = Field(
        default=None,
        description=(
            "Maximum number of placed sessions of one user in the group. Other sessions of the "
            "user wait."
        ),
    )
    max_pending_per_user: PerUser | None = Field(
        default=None,
        description=(
            "Maximum number of pending sessions of one user in the group; creation fails beyond it."
        ),
    )

    @model_validator(mode="after")
    def _check_defaults(self) -> Self:
        for kind in ("batch", "interactive"):
            default = getattr(self, f"default_{kind}_time_s")
            longest = getattr(self, f"max_{kind}_time_s")
            if default is not None and longest is not None and default > longest:
                raise ValueError(
                    f"`default_{kind}_time_s` is {default:g}, which is above "
                    f"`max_{kind}_time_s`, {longest:g}"
                )

        return self

    @property
    def limits_usage(self) -> bool:
        """Whether sessions may have to wait for others of the same user."""
        return bool(self.max_per_user) or self.max_running_per_user is not None
