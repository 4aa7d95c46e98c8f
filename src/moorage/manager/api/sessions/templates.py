"""Handlers for session templates."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.common.model.errors import Forbidden, InvalidInput, NotFound
from moorage.common.model.roles import Role
from moorage.common.model.spec import Model, NoNul, SessionSpec, Word
from moorage.common.model.templates import TemplateRun, TemplateSpec, split_version
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import Page, SessionView
from moorage.common.views.templates import TemplateView
from moorage.manager.api.http.listing import PageQuery, WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, Submission, route
from moorage.manager.api.identity.secrets import check_no_mask
from moorage.manager.api.sessions import handlers as sessions
from moorage.manager.identity import limits
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads import plain_secrets, run_limits, templates

_TEMPLATE = "/v1/templates/{name:.+}"

DEFAULT_GROUP = SessionSpec.model_fields["resource_group"].default


class _TemplatePath(Model):
    name: Word


class OwnerQuery(Model):
    for_all: bool = Field(
        False, description="Use the template shared by all projects; for administrators."
    )


class VersionQuery(Model):
    version: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = Field(
        None, description="Version of the template. Default: the latest."
    )


class TemplateQuery(WholeQuery):
    project: NoNul | None = Field(
        None,
        description="Only templates of this project; if empty, only those shared by all projects.",
    )
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


class VersionsQuery(PageQuery):
    sort: Literal["version", "-version"] = order("-version")


@route(
    "GET",
    "/v1/templates",
    "List the templates of the project and the shared ones, each in its latest version",
    query=TemplateQuery,
    returns=Page[TemplateView],
    access="viewer",
)
async def list_templates(call: Call[None, TemplateQuery]) -> Page[TemplateView]:
    query = call.query
    return await call.deps.store.templates.page(call.scope, paging(query), project=query.project)


@route(
    "GET",
    _TEMPLATE,
    "Get a version of a template",
    query=VersionQuery,
    returns=TemplateView,
    access="viewer",
)
async def get_template(call: Call[None, VersionQuery]) -> TemplateView:
    return call.tagged(
        await call.deps.store.templates.get(call.scope, call.path("name"), call.query.version)
    )


@route(
    "GET",
    f"{_TEMPLATE}/versions",
    "List the versions of a template, newest first",
    query=VersionsQuery,
    returns=Page[TemplateView],
    access="viewer",
)
async def list_template_versions(call: Call[None, VersionsQuery]) -> Page[TemplateView]:
    return await call.deps.store.templates.versions(
        call.scope, call.path("name"), paging(call.query)
    )


@route(
    "PUT",
    _TEMPLATE,
    "Add a version of a template, which becomes the latest. An unchanged template adds no version.",
    body=TemplateSpec,
    query=OwnerQuery,
    returns=TemplateView,
    versioned=True,
    access="member",
)
async def put_template(call: Call[TemplateSpec, OwnerQuery]) -> TemplateView:
    name = read_path({"name": call.path("name")}, _TemplatePath).name
    template = call.body
    _check_owner(call.scope.role, call.query)
    bases: list[str] = []
    isolated = False
    if template.base is not None:
        base = await _base(call, name, template.base)
        bases = [base.ref, *base.bases]
        isolated = base.isolated
        template = templates.based_on(base.template, template)

    templates.check(template)
    check_no_mask(plain_secrets.of_template(call.body))
    await _check_priority(call, name, template)
    view = await call.deps.store.templates.put(
        call.scope,
        name,
        template,
        bases,
        for_all=call.query.for_all,
        isolated=isolated,
        if_match=call.if_match("a template"),
    )
    warnings = plain_secrets.warnings(plain_secrets.of_template(call.body))

    return call.tagged(view.model_copy(update={"warnings": warnings}))


async def _check_priority(
    call: Call[TemplateSpec, OwnerQuery], name: str, template: TemplateSpec
) -> None:
    """Raise ``Forbidden`` for a priority that the caller may not request, unless the previous
    version has it.

    The template's sessions may have that priority, no matter who starts them."""
    no_defaults: dict[str, object] = {}
    priority = templates.recorded_priority(template, no_defaults, no_defaults)
    group = str(template.spec.get("resource_group", DEFAULT_GROUP))
    recorded = 0
    try:
        before = (await call.deps.store.templates.get(call.scope, name)).template
    except NotFound:
        pass
    else:
        if str(before.spec.get("resource_group", DEFAULT_GROUP)) == group:
            recorded = templates.recorded_priority(before, no_defaults, no_defaults)

    ceilings = await call.deps.store.groups.ceilings(group)
    refusal = limits.check_priority(
        call.scope, "spec.priority", priority, group, ceilings=ceilings, recorded=recorded
    )
    if refusal:
        raise refusal


async def _base(call: Call[TemplateSpec, OwnerQuery], name: str, ref: str) -> TemplateView:
    """Find the template's base. Raises ``InvalidInput`` for a cycle, and for a chain that is too
    long."""
    try:
        found = await call.deps.store.templates.get(call.scope, *split_version(ref))
    except ValueError as error:
        raise InvalidInput(
            f"base: {error}", field="base", next_step="name a version that exists"
        ) from None

    chain = [found.ref, *found.bases]
    if call.query.for_all and found.project:
        raise InvalidInput(
            (
                f"base {found.ref!r} belongs to project {found.project!r}, so not everybody may "
                "read it"
            ),
            field="base",
            next_step="base a shared template on another shared template",
        )

    if any(split_version(base)[0] == name for base in chain):
        raise InvalidInput(
            f"template {name!r} would be based on itself: {' on '.join([name, *chain])}",
            field="base",
            next_step="give the new template another name, or omit `base`",
        )

    if len(chain) > templates.MAX_BASES:
        raise InvalidInput(
            f"base {found.ref!r} already is {templates.MAX_BASES} levels deep",
            field="base",
            next_step="base the template on one of those: " + ", ".join(found.bases),
        )

    return found


@route(
    "DELETE",
    _TEMPLATE,
    "Delete all versions of a template; sessions created from it stay",
    query=OwnerQuery,
    returns=TemplateView,
    access="project-admin",
)
async def delete_template(call: Call[None, OwnerQuery]) -> TemplateView:
    _check_owner(call.scope.role, call.query)
    return await call.deps.store.templates.delete(
        call.scope, call.path("name"), for_all=call.query.for_all
    )


@route(
    "POST",
    f"{_TEMPLATE}/sessions",
    "Create a session from a template",
    body=TemplateRun,
    query=sessions.CreateQuery,
    returns=SessionView,
    status=201,
    location="/v1/sessions/{id}",
    idempotent=True,
    access="member",
)
async def start_template(call: Call[TemplateRun, sessions.CreateQuery]) -> SessionView:
    made, template = await _filled_in(call)
    view = await sessions.create(made, template)
    if made.scope is not call.scope and view.isolated:
        warning = (
            f"the session runs isolated, since template {template.ref!r}, or one of its bases, was "
            "not written by an administrator; set the template again to run it as your own"
        )
        view = view.model_copy(update={"warnings": [*view.warnings, warning]})

    return view


@route(
    "POST",
    f"{_TEMPLATE}/sessions/plan",
    "Show where a session from a template would start now, and create nothing",
    body=TemplateRun,
    query=sessions.PlanQuery,
    returns=PlanView,
    access="member",
)
async def plan_template(call: Call[TemplateRun, sessions.PlanQuery]) -> PlanView:
    made, template = await _filled_in(call)
    return await sessions.plan(made, template)


async def _filled_in(
    call: Call[TemplateRun, Any],
) -> tuple[Call[SessionSpec, Any], sessions.OfTemplate]:
    """The call with the session that the template describes, and what it takes from the
    template."""
    spec, scope, template = await filled_in(call, call.path("name"))
    return replace(call, body=spec, scope=scope), template  # type: ignore[arg-type, return-value]


async def filled_in(
    call: Submission[TemplateRun, Any], name: str
) -> tuple[SessionSpec, Scope, sessions.OfTemplate]:
    """The session that the template describes, the scope with which it is created, and what it
    takes from the template."""
    run = call.body
    found = await call.deps.store.templates.get(call.scope, name, run.version)
    fields = templates.session_fields(found.template, run.parameters)
    chosen = str(templates.merge(fields, run.overrides).get("resource_group", DEFAULT_GROUP))
    group = await call.deps.store.groups.get(chosen)
    spec = templates.validated_merge(fields, group.options.template_defaults, run.overrides)
    spec = spec.model_copy(update={"resource_group": group.name})
    recorded = templates.recorded_priority(
        found.template, group.options.template_defaults, run.overrides
    )

    # A session that an administrator starts from somebody else's template has no more rights than
    # that person's own programs.
    scope = call.scope.isolating(found.isolated)
    limits_of_it = run_limits.of_template(found.ref, found.template)
    return spec, scope, sessions.OfTemplate(found.ref, recorded, limits_of_it)


def _check_owner(role: Role, query: OwnerQuery) -> None:
    if query.for_all and role is not Role.ADMIN:
        raise Forbidden(
            "only administrators can set templates for all projects", next_step="omit `for_all`"
        )
