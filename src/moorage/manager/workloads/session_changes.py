"""Changes of sessions by people: which fields may change in which status and by whom, the
specification that follows, and who may release a hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.common.model.durations import format_duration
from moorage.common.model.errors import Conflict, Forbidden, MoorageError
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, SessionType, Status
from moorage.common.views.resources import SessionPatch, SessionView, UserHold

# The field that holds the time limit of a session of this type.
LIMIT_FIELD = {SessionType.BATCH: "timeout_s", SessionType.INTERACTIVE: "max_lifetime_s"}
_LIMITS = ("timeout_s", "max_lifetime_s")
_RANK = {"owner": 0, "project-admin": 1, "admin": 2}


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """What a change writes; None keeps a field. ``fields``: changed fields of the specification.
    ``limit_s``: the new limit of its run, which was ``old_limit_s``. ``hold``: the role that holds
    the session from now on. ``release``: nobody holds it any more. ``detail``: the change in words,
    for the history."""

    name: str | None = None
    labels: Mapping[str, str | None] | None = None
    priority: int | None = None
    resource_group: str | None = None
    limit_s: float | None = None
    old_limit_s: float | None = None
    fields: Mapping[str, Any] | None = None
    hold: str | None = None
    release: bool = False
    detail: str = ""

    @property
    def event(self) -> str:
        """The event in the session's history."""
        if self.detail or not (self.hold or self.release):
            return "updated"
        return "held" if self.hold else "released"


def time_limit_s(spec: SessionSpec) -> float | None:
    """The limit of a session's run after it has become ready; None if it has none."""
    limits = (getattr(spec, name) for name in _LIMITS)
    return min((limit for limit in limits if limit is not None), default=None)


def changed_spec(spec: SessionSpec, patch: SessionPatch) -> SessionSpec:
    """The specification after the change."""
    changes: dict[str, Any] = {}
    if patch.priority is not None:
        changes["priority"] = patch.priority
    if patch.resource_group is not None:
        changes["resource_group"] = patch.resource_group
    if patch.time_limit_s is not None:
        changes[LIMIT_FIELD[spec.type]] = patch.time_limit_s
        for name in _LIMITS:  # a shorter other limit would end it first
            if (limit := getattr(spec, name)) is not None and limit < patch.time_limit_s:
                changes[name] = patch.time_limit_s

    return spec.model_copy(update=changes) if changes else spec


def find_refusal(session: SessionView, patch: SessionPatch, role: Role) -> MoorageError | None:
    """The error if the session's status, its type or the caller's role does not allow a change."""
    asked = _asked(session, patch)
    if not asked:
        return None

    field = asked[0]
    refused = f"{field} of session {session.name!r} cannot be changed"
    if session.endpoint is not None:
        return Conflict(
            f"{refused}: it is a replica of endpoint {session.endpoint!r}",
            next_step=f"change the endpoint: `moorage describe {session.endpoint}` shows it",
        )

    if session.needs_newer_manager:
        return Conflict(
            f"{refused}: {session.needs_newer_manager}",
            next_step="ask a manager of the newer release",
        )

    if session.adopted_from is not None:
        return Conflict(
            f"{refused}: it shares the run of session {session.adopted_from}",
            next_step=f"`moorage update {session.adopted_from}`",
        )

    pending_only = [name for name in asked if name != "time_limit_s"]
    if pending_only and session.status is not Status.PENDING:
        return _not_pending(session, pending_only[0])

    if "time_limit_s" in asked and (error := _refuse_limit(session, patch, role)):
        return error

    return _refuse_hold(session, patch, role) if "held" in asked else None


def _asked(session: SessionView, patch: SessionPatch) -> list[str]:
    """The fields that the patch changes, without names and labels."""
    wanted = {
        "priority": (patch.priority, session.priority),
        "resource_group": (patch.resource_group, session.resource_group),
        "held": (patch.held, session.held is not None),
    }
    asked = [name for name, (new, old) in wanted.items() if new is not None and new != old]
    if patch.held and session.held is not None:
        asked.append("held")  # an administrator may take over the hold of an owner
    if patch.time_limit_s is not None and patch.time_limit_s != time_limit_s(session.spec):
        asked.append("time_limit_s")

    return asked


def _not_pending(session: SessionView, field: str) -> Conflict:
    step = "its time limit, name and labels can still be changed"
    if session.status not in LIVE:
        step = "submit it again"
    elif field == "held" and session.type is SessionType.BATCH:
        step = f"`moorage requeue {session.name}` first, or `moorage suspend {session.name}`"

    return Conflict(
        f"{field} of session {session.name!r} cannot be changed: it is {session.status}, not "
        "PENDING",
        next_step=step,
    )


def _refuse_limit(session: SessionView, patch: SessionPatch, role: Role) -> MoorageError | None:
    limit_s = patch.time_limit_s
    assert limit_s is not None
    refused = f"time_limit_s of session {session.name!r} cannot be changed"
    if session.type not in LIMIT_FIELD:
        return Conflict(
            f"{refused}: it is of type {session.type}",
            next_step="only batch and interactive sessions have a time limit",
        )

    if session.spec.job is not None:
        return Conflict(
            f"{refused}: the site of its resource group received its walltime with the job",
            next_step="stop it, and submit it with another walltime_s",
        )

    if session.status not in LIVE or session.status is Status.TERMINATING:
        return Conflict(f"{refused}: it is {session.status}", next_step="submit it again")

    old_s = time_limit_s(session.spec)
    extends = old_s is not None and limit_s > old_s
    if extends and session.status is not Status.PENDING and role is not Role.ADMIN:
        assert old_s is not None
        return Forbidden(
            f"time_limit_s = {limit_s:g} is above {old_s:g}, the limit of session "
            f"{session.name!r}, which has started",
            next_step=f"set {old_s:g} or less, or ask an administrator to extend it",
        )

    return None


def held_role(session: SessionView, user: str, role: Role) -> str:
    """The role with which a caller holds a session, and which it needs to release it."""
    if session.user == user:
        return "owner"
    return "admin" if role is Role.ADMIN else "project-admin"


def _refuse_hold(session: SessionView, patch: SessionPatch, role: Role) -> MoorageError | None:
    held = session.held
    if patch.held or held is None or _may_release(held, role):
        return None

    who = "an administrator" if held.role == "admin" else "an administrator of its project"
    return Forbidden(
        f"session {session.name!r} is held by {held.by}, {who}: its owner cannot release it",
        next_step=f"ask {who}: `moorage update {session.name} --release`",
    )


def _may_release(held: UserHold, role: Role) -> bool:
    ranks = {Role.ADMIN: 2, Role.PROJECT_ADMIN: 1}
    return ranks.get(role, 0) >= _RANK[held.role]


def change_of(session: SessionView, patch: SessionPatch, *, user: str, role: Role) -> SessionUpdate:
    """The change that a patch makes. ``find_refusal`` has found no reason against it."""
    new = changed_spec(session.spec, patch)
    names = ("priority", "resource_group", *_LIMITS)
    fields = {
        name: getattr(new, name)
        for name in names
        if getattr(new, name) != getattr(session.spec, name)
    }
    old_s = time_limit_s(session.spec)
    new_s = time_limit_s(new)
    hold = None
    if patch.held:
        hold = held_role(session, user, role)
        if session.held is not None and _RANK[session.held.role] >= _RANK[hold]:
            hold = None

    name = patch.name if patch.name not in (None, session.name) else None
    told = _told(session, new, name, labels=bool(patch.user_labels))
    release = patch.held is False and session.held is not None
    if told and (hold or release):
        told.append("held" if hold else "released")

    return SessionUpdate(
        name=name,
        labels=patch.user_labels or None,
        priority=new.priority if new.priority != session.priority else None,
        resource_group=(
            new.resource_group if new.resource_group != session.resource_group else None
        ),
        limit_s=new_s if new_s != old_s else None,
        old_limit_s=old_s,
        fields=fields or None,
        hold=hold,
        release=release,
        detail="; ".join(told),
    )


def _told(session: SessionView, new: SessionSpec, name: str | None, *, labels: bool) -> list[str]:
    """The changes in words, like ``priority 0 to 20``."""
    told = [] if name is None else [f"name {session.name} to {name}"]
    if new.priority != session.priority:
        told.append(f"priority {session.priority} to {new.priority}")
    if new.resource_group != session.resource_group:
        told.append(f"group {session.resource_group} to {new.resource_group}")

    old_s = time_limit_s(session.spec)
    new_s = time_limit_s(new)
    if new_s is not None and new_s != old_s:
        before = "none" if old_s is None else format_duration(old_s)
        told.append(f"time limit {before} to {format_duration(new_s)}")

    return [*told, "labels"] if labels else told


def refuse_requeue(session: SessionView) -> Conflict | None:
    """The error if a session cannot be requeued."""
    refused = f"session {session.name!r} cannot be requeued"
    if session.endpoint is not None or session.type is not SessionType.BATCH:
        return Conflict(
            f"{refused}: it is of type {session.type}, and only batch sessions run again",
            next_step=f"`moorage stop {session.name}`, and start it again",
        )

    if session.adopted_from is not None:
        return Conflict(
            f"{refused}: it shares the run of session {session.adopted_from}",
            next_step=f"`moorage requeue {session.adopted_from}`",
        )

    if session.status is Status.PENDING:
        return Conflict(
            f"{refused}: it is PENDING", next_step=f"`moorage why {session.name}` explains its wait"
        )

    if session.status not in LIVE or session.status is Status.TERMINATING:
        return Conflict(f"{refused}: it is {session.status}", next_step="submit it again")

    return None


def refuse_suspension(
    session: SessionView, agents: Mapping[str, str], *, resume: bool
) -> Conflict | None:
    """The error if a session cannot be suspended, or resumed. ``agents``: the versions of those of
    its agents that cannot suspend it."""
    what = "resumed" if resume else "suspended"
    refused = f"session {session.name!r} cannot be {what}"
    if session.adopted_from is not None:
        return Conflict(
            f"{refused}: it shares the run of session {session.adopted_from}",
            next_step=f"`moorage {'resume' if resume else 'suspend'} {session.adopted_from}`",
        )

    if session.type not in LIMIT_FIELD:
        return Conflict(
            f"{refused}: it is of type {session.type}, and others wait for its answers",
            next_step="suspend batch and interactive sessions; `moorage scale` stops replicas",
        )

    if session.status is not Status.RUNNING:
        step = f"`moorage update {session.name} --hold` holds it"
        if session.status is not Status.PENDING:
            step = "only a session that runs has processes to stop"
        return Conflict(f"{refused}: it is {session.status}, not RUNNING", next_step=step)

    if agents:
        named = ", ".join(f"{agent} ({version})" for agent, version in agents.items())
        return Conflict(
            f"{refused}: its runtime {session.spec.runtime!r} cannot suspend kernels, or an agent "
            f"is too old: {named}",
            next_step=f"upgrade the agent, or `moorage requeue {session.name}`",
        )

    return None
