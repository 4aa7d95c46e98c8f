"""Limits of keys, projects and resource groups on new workloads. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from fnmatch import fnmatchcase

from moorage.common.model.errors import Forbidden, MoorageError, NotFound
from moorage.common.model.group_options import GroupOptions, PriorityCeilings
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec, Workload
from moorage.manager.identity.scope import Scope

HIGHEST_PRIORITY = 100


def check_key(scope: Scope, spec: Workload) -> MoorageError | None:
    """The error if the caller's key or its project does not allow the resource group or the
    priority."""
    key = scope.key
    if key is None:
        return None
    if key.resource_groups is not None and spec.resource_group not in key.resource_groups:
        return unknown_group(spec.resource_group)

    if key.max_priority is not None and spec.priority > key.max_priority:
        return Forbidden(
            f"priority {spec.priority} is above {key.max_priority}, the highest of this key or "
            "its project",
            next_step=f"set priority to {key.max_priority} or less",
        )

    return None


def priority_ceiling(role: Role, ceilings: PriorityCeilings) -> int:
    """Highest priority that a role may request."""
    if role is Role.ADMIN:
        return HIGHEST_PRIORITY
    return ceilings.project_admin if role is Role.PROJECT_ADMIN else ceilings.member


def check_priority(
    scope: Scope,
    field: str,
    priority: int,
    group: str,
    *,
    ceilings: PriorityCeilings,
    recorded: int = 0,
) -> MoorageError | None:
    """The error if the caller's role may not request a priority.

    ``field``: the request field with the priority. ``group``: the resource group of the
    ``ceilings``; "" means those of the group that allows most. ``recorded``: the resource's
    existing priority, which a ceiling does not take away."""
    key = scope.key
    if key is None:
        return None

    ceiling = priority_ceiling(key.role, ceilings)
    if priority <= max(ceiling, recorded, key.kept_priority):
        return None

    option = "project_admin" if key.role is Role.PROJECT_ADMIN else "member"
    cures = [f"set {field} to {ceiling} or less"]
    if option == "member" and ceilings.project_admin > ceiling:
        cures.append(
            f"ask an administrator of the project, who may set up to {ceilings.project_admin}"
        )

    command = f"moorage groups set {group or 'GROUP'} max_priority.{option}={priority}"
    cures.append(f"an administrator of the platform can raise the ceiling: `{command}`")
    where = f"in resource_group {group!r}" if group else "in every resource group"
    return Forbidden(
        f"{field} {priority} is above {ceiling}, the ceiling of the role {str(key.role)!r} {where}",
        next_step="; or ".join(cures),
    )


def unknown_group(name: str) -> NotFound:
    return NotFound(
        f"resource_group {name!r} does not exist, or this key may not use it",
        next_step="`moorage groups` lists the groups that it may use",
    )


def admits(options: GroupOptions, projects: Collection[str], user: str) -> bool:
    """Whether one of ``projects``, or the user in any project, may use a resource group. Statements
    that create sessions check the same for the session's owner (``group_admits.sql``)."""
    if options.projects is None and options.users is None:
        return True
    by_project = any(project in projects for project in options.projects or ())
    return by_project or user in (options.users or ())


def may_use(scope: Scope, options: GroupOptions) -> bool:
    """Whether the caller may use a resource group."""
    return scope.projects is None or admits(options, scope.projects, scope.owner.user)


def check_group(name: str, options: GroupOptions, spec: Workload) -> MoorageError | None:
    """The error if resource group ``name`` does not allow an image or the model's directory."""
    images = [spec.image]
    if isinstance(spec, SessionSpec) and spec.cluster is not None and spec.cluster.sub is not None:
        images.append(spec.cluster.sub.image)

    for image in images:
        if image and options.images is not None and not _matches(image, options.images):
            return Forbidden(
                f"image {image!r} is not allowed in resource_group {name!r}; allowed images: "
                f"{', '.join(options.images) or 'none'}",
                next_step="use an allowed image, or another resource group",
            )

    if options.mounts is not None and spec.model and _is_path(spec.model):
        path = posixpath.normpath(spec.model)
        if not any(
            path == root or path.startswith(f"{root.rstrip('/')}/") for root in options.mounts
        ):
            return Forbidden(
                f"model {spec.model!r} is not in a directory that resource_group {name!r} allows: "
                f"{', '.join(options.mounts) or 'none'}",
                next_step="name a model in one of them, or a model of a hub",
            )

    return None


def _matches(image: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(image, pattern) for pattern in patterns)


def _is_path(model: str) -> bool:
    """Whether the model is a file or directory on the node rather than a name on a hub, according
    to the engine's own rule."""
    return model.startswith(("/", ".", "~")) or model.lower().endswith(".gguf")
