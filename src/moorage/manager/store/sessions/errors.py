"""Errors for requests about sessions that the database rejects."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MoorageError,
    NotFound,
    QuotaExceeded,
)
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope


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
    if not row["group_known"]:
        return NotFound(
            f"resource_group {spec.resource_group!r} does not exist, is retired, or you may not "
            "use it",
            next_step="`moorage groups` lists them",
        )

    if row["types_allowed"] is not None:
        step = "use another resource group; `moorage groups describe` shows what each allows"
        if spec.type is SessionType.SYSTEM:
            types = ",".join((*row["types_allowed"], spec.type))
            allow = f"moorage groups set {spec.resource_group} session_types={types}"
            step = f"an administrator can allow it: `{allow}`"

        return Conflict(
            f"type {spec.type!s} is not allowed in resource_group {spec.resource_group!r}; "
            f"allowed types: {', '.join(row['types_allowed'])}",
            next_step=step,
        )

    if row["led_by_other"]:
        return Conflict("another manager leads now", next_step="that manager continues")

    if row["invalid_why"] is not None:
        why = row["invalid_why"]
        project = row["invalid_project"]
        return invalid_dependency(
            scope, spec, owner=owner, position=row["invalid_at"], why=why, project=project
        )

    if row["quota_scope"] is not None:
        return QuotaExceeded(
            f"{row['quota_scope']} {row['quota_name']!r} may have {row['quota_limit']} pending "
            "sessions, and has as many",
            next_step=(
                "wait until some have started, stop some, or ask an administrator for a "
                "larger quota"
            ),
        )

    if row["limit_group"] is not None:
        return too_many_pending(row["limit_group"], row["limit_user"], row["limit_pending"])

    return None


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
