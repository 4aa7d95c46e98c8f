"""Errors for requests about sessions that the database rejects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.common.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MoorageError,
    NotFound,
    QuotaExceeded,
)
from moorage.common.model.labels import MAX_LABELS
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads.session_changes import SessionUpdate


def session_not_found(ref: str) -> NotFound:
    return NotFound(f"no session {ref!r}", next_step="`moorage ps --all` lists them")


def name_taken(spec: SessionSpec, name: str) -> Conflict:
    if spec.type is SessionType.INFERENCE:
        return Conflict(
            f"a live session named {name!r} already exists, or a model of another project had "
            "this name in the last 30 days",
            next_step="stop it, or choose another name",
        )

    return Conflict(
        f"a live session named {name!r} already exists", next_step="stop it, or choose another name"
    )


def key_reused(key: str) -> Conflict:
    return Conflict(
        f"the Idempotency-Key {key!r} was used before with another request",
        next_step="use a new key for each new request, or send the same request unchanged",
    )


def create_rejected(scope: Scope, spec: SessionSpec, owner: Owner, row: Any) -> MoorageError | None:
    """The error for a row from ``session_create*.sql`` that explains why nothing was created; None
    if the row gives no reason."""
    if not row["group_known"] or row["types_allowed"] is not None:
        types = row["types_allowed"] if row["group_known"] else None
        return group_refuses(spec.resource_group, spec, types)

    if row["led_by_other"]:
        return Conflict("another manager leads now", next_step="that manager continues")

    if row["invalid_why"] is not None:
        why = row["invalid_why"]
        project = row["invalid_project"]
        return invalid_dependency(
            scope, spec, owner=owner, position=row["invalid_at"], why=why, project=project
        )

    if row["quota_scope"] is not None:
        return _quota_exhausted(row["quota_scope"], row["quota_name"], row["quota_limit"])

    if row["limit_group"] is not None:
        return too_many_pending(row["limit_group"], row["limit_user"], row["limit_pending"])

    return None


def update_rejected(session: SessionView, change: SessionUpdate, row: Any) -> MoorageError:
    """The error for a row from ``session_update.sql`` that explains why nothing was changed."""
    name = session.name
    group = change.resource_group or session.resource_group
    if row["too_many_labels"]:
        return InvalidInput(
            f"the session would have more than {MAX_LABELS} labels",
            field="user_labels",
            next_step="remove some first",
        )

    if row["keeps_name"]:
        return Conflict(
            f"session {name!r} cannot be renamed: requests for its model use this name",
            next_step="serve the model again under the new name",
        )

    if row["ran_s"] is not None:
        return Conflict(
            f"time_limit_s = {change.limit_s:g} is not above {row['ran_s']:.0f}, the seconds that "
            f"session {name!r} has run",
            next_step=f"set a longer limit, or end it now: `moorage stop {name}`",
        )

    if not row["group_known"] or row["types_allowed"] is not None:
        types = row["types_allowed"] if row["group_known"] else None
        return group_refuses(group, session.spec, types)

    if row["earlier_agent"] is not None:
        return Conflict(
            f"resource_group of session {name!r} cannot be changed yet: an earlier attempt may "
            f"still run on agent {row['earlier_agent']}, in resource_group "
            f"{session.resource_group!r}",
            next_step="wait until it has ended; `moorage describe` shows its kernels",
        )

    if row["quota_group"] is not None:
        return _quota_exhausted("group", row["quota_group"], row["quota_pending"])
    return too_many_pending(row["limit_group"], row["limit_user"], row["limit_pending"])


def group_refuses(group: str, spec: SessionSpec, types: Sequence[str] | None) -> MoorageError:
    """The error for a resource group that does not exist for the owner or, with the ``types`` that
    it allows, does not allow the session's type."""
    if types is None:
        return NotFound(
            f"resource_group {group!r} does not exist, is retired, or you may not use it",
            next_step="`moorage groups` lists them",
        )

    step = "use another resource group; `moorage groups describe` shows what each allows"
    if spec.type is SessionType.SYSTEM:
        allow = f"moorage groups set {group} session_types={','.join((*types, spec.type))}"
        step = f"an administrator can allow it: `{allow}`"

    return Conflict(
        f"type {spec.type!s} is not allowed in resource_group {group!r}; allowed types: "
        f"{', '.join(types)}",
        next_step=step,
    )


def _quota_exhausted(scope: str, name: str, limit: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"{scope} {name!r} may have {limit} pending sessions, and has as many",
        next_step=(
            "wait until some have started, stop some, or ask an administrator for a larger quota"
        ),
    )


def too_many_pending(group: str, user: str, limit: int, *, more: int = 1) -> QuotaExceeded:
    """The error for a user with too many pending sessions in a resource group. ``more``: how many
    the request adds."""
    added = "" if more == 1 else f"; the pipeline adds {more}"
    return QuotaExceeded(
        f"user {user!r} may have {limit} pending sessions in resource_group {group!r} "
        f"(`max_pending_per_user`){added}",
        next_step="wait until some have started, or stop some",
        **{"in": "body"},
        field="resource_group",
        found=group,
        allowed=limit,
    )


def invalid_dependency(
    scope: Scope, spec: SessionSpec, owner: Owner, position: int, *, why: str, project: str | None
) -> MoorageError:
    """The error for a dependency. ``position``: the index in ``depends_on``. ``project``: the
    project of the session that it names."""
    ref = spec.depends_on[position].session
    field = f"depends_on[{position}].session = {ref!r}"
    if why == "unknown" or (why == "foreign" and not scope.reads(project or "")):
        return NotFound(
            f"{field} does not exist",
            next_step="create it first; `moorage ps --all` lists sessions",
        )

    if why == "foreign":
        return Forbidden(
            f"{field} belongs to project {project!r}, this session to {owner.project!r}",
            next_step="depend on sessions of the same project",
        )

    return InvalidInput(
        f"{field} is not a batch session, so it cannot succeed; allowed are on = any and on = "
        "failure",
        field=field.partition(" ")[0],
        next_step="set how it must end, as in {'session': ..., 'on': 'any'}",
    )
