"""Rows of the route table about session templates."""

from __future__ import annotations

from moorage.common.model.templates import TemplateRun, TemplateSpec
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import Page, SessionView
from moorage.common.views.templates import TemplateView
from moorage.manager.api import sessions, templates
from moorage.manager.api.route import Route, route

_TEMPLATE = "/v1/templates/{name:.+}"

TEMPLATE_ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        "/v1/templates",
        templates.list_templates,
        "List the templates of the project and those for all, each in its latest version",
        Page[TemplateView],
        query=templates.TemplateQuery,
        access="viewer",
    ),
    route(
        "POST",
        f"{_TEMPLATE}/sessions",
        templates.start_template,
        "Create a session from a template",
        SessionView,
        body=TemplateRun,
        query=sessions.CreateQuery,
        status=201,
        location="/v1/sessions/{id}",
        idempotent=True,
        dry_run=PlanView,
        access="member",
    ),
    route(
        "GET",
        f"{_TEMPLATE}/versions",
        templates.list_versions,
        "List the versions of a template, newest first",
        Page[TemplateView],
        query=templates.VersionsQuery,
        access="viewer",
    ),
    route(
        "GET",
        _TEMPLATE,
        templates.get_template,
        "Get a version of a template",
        TemplateView,
        query=templates.VersionQuery,
        access="viewer",
    ),
    route(
        "PUT",
        _TEMPLATE,
        templates.put_template,
        "Add a version of a template, which becomes the latest. The same template again adds none.",
        TemplateView,
        body=TemplateSpec,
        versioned=True,
        query=templates.OwnerQuery,
        access="member",
    ),
    route(
        "DELETE",
        _TEMPLATE,
        templates.delete_template,
        "Delete all versions of a template; sessions made from it stay",
        TemplateView,
        query=templates.OwnerQuery,
        access="project-admin",
    ),
)
