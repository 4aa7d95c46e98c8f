"""Scheduling options and quotas of resource groups, as administrators set them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from moorage.common.model.checkpointing import MAX_GRACE_S
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.idle import IdlePolicy
from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.run_limits import GroupLimits, SlotLimits
from moorage.common.model.spec import DEFAULT_PRIORITY, Model, Name
from moorage.common.model.spec_fields import most_bytes
from moorage.common.model.status import SessionType

SELECTIONS = ("concentrated", "dispersed", "round-robin")
CUSTOM = "custom:"
_FAMILY = re.compile(r"[a-z][a-z0-9-]*")
_SLOT = re.compile(r"[a-z][a-z0-9-]*(\.(device|shares))?")


def _check_selection(value: str) -> str:
    if value not in SELECTIONS and not (value.startswith(CUSTOM) and value != CUSTOM):
        raise ValueError(
            f"{value!r} is not an agent selection: use {', '.join(SELECTIONS)} or {CUSTOM}NAME"
        )
    return value


def _check_slot(value: str) -> str:
    if not _SLOT.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a slot: use cpu, mem, or a device family such as cuda or cuda.device"
        )
    return value


def _check_family(value: str) -> str:
    if not _FAMILY.fullmatch(value):
        raise ValueError(f"{value!r} is not a device family: use a name such as cuda")
    return value


Selection = Annotated[str, AfterValidator(_check_selection)]
Slot = Annotated[str, AfterValidator(_check_slot)]
Family = Annotated[str, AfterValidator(_check_family)]


ImagePattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9*?._:/@-]+$", max_length=512)]
Directory = Annotated[str, Field(pattern=r"^/[^\x00]*$"), most_bytes(4095)]


class PreemptionOptions(Model):
    """Preemption: sessions may be stopped in favor of sessions of strictly higher priority."""

    how: Literal["requeue", "end"] = Field(
        default="requeue", description="Whether a preempted session is requeued or ends."
    )
    order: Literal["newest", "oldest", "smallest"] = Field(
        default="newest", description="Order of preemption among sessions of the lowest priority."
    )
    min_runtime_s: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        default=0, description="Minimum runtime before a session may be preempted, in seconds."
    )
    among: Literal["all", "same-project", "same-user"] = Field(
        default="all",
        description=(
            "Sessions that a session may preempt: anybody's, its project's, or its user's."
        ),
    )
    max_grace_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=MAX_GRACE_S,
        description=(
            "Maximum time that a session with `checkpoint` gets to save its state, in seconds."
        ),
    )


class PriorityCeilings(Model):
    """Highest priorities that a project's roles may request. Platform administrators have no
    ceiling."""

    member: Annotated[int, Field(ge=0, le=100)] = Field(
        default=DEFAULT_PRIORITY, description="Highest priority that members can request."
    )
    project_admin: Annotated[int, Field(ge=0, le=100)] = Field(
        default=100, description="Highest priority that project administrators can request."
    )


class GroupOptions(Model):
    """Scheduling options of a resource group. Changes take effect in the next scheduling pass."""

    EXAMPLE: ClassVar = {"hol": "backfill", "strategy": "drf"}

    strategy: Literal["fifo", "lifo", "drf"] = Field(
        default="fifo",
        description=(
            "Order of the queue. drf: the session of the user or project with the lowest "
            "weighted dominant share is next."
        ),
    )
    hol: Literal["strict", "skip", "backfill"] = Field(
        default="backfill",
        description=(
            "Head-of-line blocking: how the queue continues behind a session that lacks "
            "resources. strict: the other sessions wait. skip: they may start first. backfill: "
            "resources are reserved for it, and other sessions may start first if they do not "
            "delay it."
        ),
    )
    num_retries_to_skip: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=1,
        description=(
            "hol=skip: number of failed attempts after which a session is tried after all others; "
            "with 0, the head of the queue blocks."
        ),
    )
    max_bypasses: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=100,
        description=(
            "Number of sessions that may start ahead of the blocked head before it is overdue; "
            "null means no limit."
        ),
    )
    max_skip_age_s: Annotated[float, Field(ge=0, le=31_536_000)] | None = Field(
        default=3600,
        description=(
            "Waiting time in seconds after which a session is overdue, so that no younger session "
            "may delay it; null means no limit."
        ),
    )
    agent_selection: Selection = Field(
        default="concentrated",
        description="concentrated, dispersed, round-robin, or custom:NAME for an entry point.",
    )
    replicas: Literal["spread", "pack", "none"] = Field(
        default="spread",
        description="Placement of an endpoint's replicas: on different agents, on as few agents as "
        "possible, or without preference.",
    )
    fraction: Literal["even", "fill"] = Field(
        default="fill",
        description=(
            "Placement of fractions of devices: on the emptiest device that fits, or on the "
            "fullest."
        ),
    )
    share_by: Literal["user", "project"] = Field(
        default="user", description="drf: whether shares are compared by user or by project."
    )
    weights: Annotated[
        dict[Name, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=10_000)
    ] = Field(default={}, description="drf: weight by user or project; all others have 1.")
    description: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] = Field(
        default="", description="Purpose of the group."
    )
    projects: Annotated[list[Name], Field(max_length=10_000)] | None = Field(
        default=None,
        description=(
            "Projects that may use the group, in addition to `users`. null for both means all."
        ),
    )
    users: Annotated[list[Name], Field(max_length=10_000)] | None = Field(
        default=None, description="Users that may use the group, in any project."
    )
    session_types: Annotated[list[SessionType], Field(min_length=1)] | None = Field(
        default=None, description="Session types that may be created; null means all except system."
    )
    reuse: ReusePolicy = Field(
        default="never",
        description=(
            "Whether the result of an equal batch session is reused if a session does not "
            "specify `reuse`."
        ),
    )
    slot_priority: Annotated[list[Slot], Field(max_length=32)] = Field(
        default=[],
        description="Slots by which agents are compared first, before devices, cpu and mem.",
    )
    exclusive: Annotated[
        list[Annotated[list[Family], Field(min_length=2)]], Field(max_length=32)
    ] = Field(
        default=[], description="Groups of device families of which a session may request only one."
    )
    # null unsets it, as it does other options.
    container_user: Annotated[
        str,
        Field(pattern=r"^([0-9]+(:[0-9]+)?)?$"),
        BeforeValidator(lambda given: "" if given is None else given),
    ] = Field(
        default="",
        description=(
            "uid or uid:gid of containers; empty means the node's setting or, without one, the "
            "image's."
        ),
    )
    images: Annotated[list[ImagePattern], Field(max_length=1000)] | None = Field(
        default=None,
        description=(
            "Images that sessions may name, such as registry.example/team/*; `*` also matches "
            "slashes. null means all."
        ),
    )
    mounts: Annotated[list[Directory], Field(max_length=100)] | None = Field(
        default=None,
        description=(
            "Directories on the nodes that may contain the models of sessions. null means all."
        ),
    )
    hpc: HpcOptions | None = Field(
        default=None,
        description=(
            "Site at which the group's sessions run as jobs; null means that they run on the nodes "
            "of its agents."
        ),
    )
    template_defaults: dict[str, Any] = Field(
        default={},
        description=(
            "Specification fields that replace those of the template in sessions created from "
            "one; the caller may override them."
        ),
    )
    idle: IdlePolicy | None = Field(
        default=None,
        description=(
            "When the group's interactive sessions are considered idle and end. null means that "
            "each session chooses."
        ),
    )
    preemption: PreemptionOptions | None = Field(
        default=None,
        description="Preemption options; null means that sessions are never preempted.",
    )
    max_priority: PriorityCeilings | None = Field(
        default=None,
        description=(
            "Highest priority of new sessions and endpoints by the requester's role; null means "
            "the default priority for members and any priority for project administrators."
        ),
    )
    limits: GroupLimits | None = Field(
        default=None,
        description=(
            "Time limits, largest requests, and numbers of sessions per user; null means none."
        ),
    )


QuotaScope = Literal["user", "project", "group"]


class QuotaLimits(Model):
    """Quota of a user, project or resource group. 0 allows nothing; an absent limit means
    unlimited."""

    EXAMPLE: ClassVar = {"slots": {"cuda.device": 4}, "sessions": 10}

    slots: SlotLimits = Field(
        default={}, description="Limits by slot, such as {'cuda.device': 4, 'mem': '256GiB'}."
    )
    sessions: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None, description="Maximum number of placed sessions that have not ended."
    )
    pending: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Maximum number of pending sessions; creation fails beyond it."
    )
    node_hours: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None,
        description=(
            "For resource groups of kind hpc: node-hours that jobs may use in a calendar month "
            "(UTC). The remaining walltime of live jobs counts as used."
        ),
    )

    system_sessions: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None,
        description=(
            "Maximum number of placed system sessions. They count against no other limit than "
            "`pending`."
        ),
    )

    @property
    def node_seconds(self) -> int | None:
        return None if self.node_hours is None else round(self.node_hours * 3600)
