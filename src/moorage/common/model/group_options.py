"""How a resource group schedules, and what each may have, as administrators set it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model.errors import MoorageError
from moorage.common.model.slots import parse_amount
from moorage.common.model.spec import Model, Name
from moorage.common.model.status import SessionType

SELECTIONS = ("concentrated", "dispersed", "round-robin")
CUSTOM = "custom:"
_FAMILY = re.compile(r"^[a-z][a-z0-9-]*$")
_SLOT = re.compile(r"^[a-z][a-z0-9-]*(\.(device|shares))?$")


def _check_selection(value: str) -> str:
    if value not in SELECTIONS and not (value.startswith(CUSTOM) and value != CUSTOM):
        raise ValueError(f"{value!r} is not known: allowed is {', '.join(SELECTIONS)}, {CUSTOM}NAME")
    return value


def _check_slot(value: str) -> str:
    if not _SLOT.match(value):
        raise ValueError(f"{value!r} is no slot: allowed is cpu, mem, or a family like cuda or cuda.device")
    return value


def _check_family(value: str) -> str:
    if not _FAMILY.match(value):
        raise ValueError(f"{value!r} is no family of devices: allowed is a name like cuda")
    return value


Selection = Annotated[str, AfterValidator(_check_selection)]
Slot = Annotated[str, AfterValidator(_check_slot)]
Family = Annotated[str, AfterValidator(_check_family)]


class PreemptionOptions(Model):
    """Sessions may be stopped for others of strictly higher priority. Each has its own stop_grace_s."""

    how: Literal["requeue", "end"] = Field("requeue", description="They wait to run again, or they end.")
    order: Literal["newest", "oldest", "smallest"] = Field(
        "newest", description="Of those with the lowest priority, these first."
    )
    min_runtime_s: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        0, description="So long each may run undisturbed."
    )


class GroupOptions(Model):
    """How a resource group schedules. A change takes effect with the next pass."""

    strategy: Literal["fifo", "lifo", "drf"] = Field(
        "fifo", description="drf: the smallest dominant share for its weight is next."
    )
    hol: Literal["strict", "skip", "backfill"] = Field(
        "backfill",
        description="What a session that capacity refused does to those behind it. strict: they wait. skip: "
        "they go first. backfill: room is reserved for it, and they go first if they leave that alone.",
    )
    num_retries_to_skip: Annotated[int, Field(ge=0, le=1000)] = Field(
        1,
        description="hol=skip: capacity refusals after which a session is tried after the others; "
        "0: the head blocks.",
    )
    max_bypasses: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        100, description="So often the blocked head may be overtaken; none: no bound."
    )
    max_skip_age_s: Annotated[float, Field(ge=0, le=31_536_000)] | None = Field(
        3600, description="After so long nobody may overtake it any more; none: no bound."
    )
    agent_selection: Selection = Field(
        "concentrated", description="concentrated, dispersed, round-robin, or custom:NAME of an entry point."
    )
    replicas: Literal["spread", "pack", "none"] = Field(
        "spread",
        description="Replicas of one endpoint: on different agents, on as few as possible, as others.",
    )
    fraction: Literal["even", "fill"] = Field(
        "fill", description="Parts of devices: on the emptiest device that does, or on the fullest."
    )
    share_by: Literal["user", "project"] = Field("user", description="drf: whose share is compared.")
    weights: Annotated[dict[Name, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=10_000)] = (
        Field({}, description="drf: by user or project; 1 for all others.")
    )
    session_types: Annotated[list[SessionType], Field(min_length=1)] | None = Field(
        None, description="Only sessions of these types may be created; none: all."
    )
    slot_priority: Annotated[list[Slot], Field(max_length=32)] = Field(
        [], description="Agents are compared by these first; then devices, cpu, mem."
    )
    exclusive: Annotated[list[Annotated[list[Family], Field(min_length=2)]], Field(max_length=32)] = Field(
        [], description="Families of devices of which a session may ask for one only."
    )
    container_user: Annotated[str, Field(pattern=r"^([0-9]+(:[0-9]+)?)?$")] = Field(
        "", description="Containers run as this uid or uid:gid; empty: as their node says, else their image."
    )
    preemption: PreemptionOptions | None = Field(
        None, description="Without it nothing that runs is ever stopped for another session."
    )


Scope = Literal["user", "project", "group"]


def _check_limits(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("slots is an object like {'cuda.device': 4, 'mem': '256GiB'}")
    for slot, amount in value.items():
        try:
            parse_amount(slot, amount)
        except MoorageError as error:
            raise ValueError(str(error)) from None
    return value


Limits = Annotated[dict[str, str | int | float], BeforeValidator(_check_limits)]


class QuotaLimits(Model):
    """What a user, a project or a resource group may have at once. 0: none. What is left out: no limit."""

    slots: Limits = Field({}, description="By slot, e.g. {'cuda.device': 4, 'mem': '256GiB'}.")
    sessions: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(
        None, description="Sessions that have been placed and have not ended."
    )
    pending: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Sessions that wait; more are refused when they are created."
    )
