"""Handlers for users, projects and members."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.common.model.errors import Conflict
from moorage.common.model.roles import MemberRole
from moorage.common.model.spec import Model, Name
from moorage.common.views.identity import (
    Membership,
    MemberView,
    ProjectPatch,
    ProjectSpec,
    ProjectView,
    Status,
    UserPatch,
    UserSpec,
    UserSubject,
    UserView,
)
from moorage.common.views.resources import Page
from moorage.manager.api.http.editing import edit
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, NoQuery, route

_PROJECT = "/v1/projects/{name:.+}"
_SUBJECT = "/v1/users/{name:.+}/subject"
_USER = "/v1/users/{name:.+}"
_MEMBER = f"{_PROJECT}/members/{{user}}"


class _MemberPath(Model):
    project: Name
    user: Name


class NamedQuery(WholeQuery):
    status: Status | None = None
    archived: bool = Field(False, description="Include those that are archived.")
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


class MemberQuery(WholeQuery):
    role: MemberRole | None = None
    sort: Literal["user", "-user", "changed_at", "-changed_at"] = order("user")


@route(
    "POST",
    "/v1/users",
    "Create a user",
    body=UserSpec,
    returns=UserView,
    status=201,
    location="/v1/users/{name}",
    access="admin",
)
async def create_user(call: Call[UserSpec, NoQuery]) -> UserView:
    return call.tagged(await call.deps.store.users.create(call.scope, call.body))


@route("GET", "/v1/users", "List users", query=NamedQuery, returns=Page[UserView], access="auditor")
async def list_users(call: Call[None, NamedQuery]) -> Page[UserView]:
    return await call.deps.store.users.page(
        call.scope, paging(call.query), status=call.query.status, archived=call.query.archived
    )


@route("GET", _USER, "Get a user", returns=UserView, access="auditor")
async def get_user(call: Call[None, NoQuery]) -> UserView:
    return call.tagged(await call.deps.store.users.get(call.scope, call.path("name")))


@route(
    "PATCH",
    _USER,
    "Change a user: its e-mail address, status or platform role",
    body=UserPatch,
    returns=UserView,
    versioned=True,
    access="admin",
)
async def update_user(call: Call[UserPatch, NoQuery]) -> UserView:
    users = call.deps.store.users
    scope = call.scope
    name = call.path("name")
    return await edit(
        call,
        "a user",
        lambda: users.get(scope, name),
        lambda patch, versions: users.update(scope, name, patch, if_match=versions),
    )


@route(
    "DELETE",
    _USER,
    "Delete a user that nothing names: no session, endpoint, usage, key in force or entry in the "
    "audit log",
    returns=UserView,
    access="admin",
)
async def delete_user(call: Call[None, NoQuery]) -> UserView:
    return await call.deps.store.users.delete(call.scope, call.path("name"))


@route(
    "POST",
    f"{_USER}/archive",
    "Archive a user without live sessions and endpoints. Its keys are refused from then on, and "
    "its history stays.",
    returns=UserView,
    access="admin",
)
async def archive_user(call: Call[None, NoQuery]) -> UserView:
    return call.tagged(await call.deps.store.users.archive(call.scope, call.path("name")))


@route(
    "POST",
    f"{_USER}/restore",
    "Restore an archived user, with the keys, limits and members that it had",
    returns=UserView,
    access="admin",
)
async def restore_user(call: Call[None, NoQuery]) -> UserView:
    return call.tagged(await call.deps.store.users.restore(call.scope, call.path("name")))


@route(
    "PUT",
    _SUBJECT,
    "Link a user to an account at the OpenID provider",
    body=UserSubject,
    returns=UserView,
    access="admin",
)
async def link_user(call: Call[UserSubject, NoQuery]) -> UserView:
    store = call.deps.store
    name = call.path("name")
    if (oidc := call.deps.console.oidc) is None:
        raise Conflict("this manager has no OpenID provider", next_step="set manager.oidc_issuer")
    await store.oidc.link(call.scope, name, oidc.issuer, call.body.subject)
    return await store.users.get(call.scope, name)


@route(
    "DELETE",
    _SUBJECT,
    "Unlink a user from the OpenID provider, which ends the console sessions opened there",
    returns=UserView,
    access="admin",
)
async def unlink_user(call: Call[None, NoQuery]) -> UserView:
    store = call.deps.store
    name = call.path("name")
    await store.oidc.unlink(call.scope, name)
    return await store.users.get(call.scope, name)


@route(
    "POST",
    "/v1/projects",
    "Create a project",
    body=ProjectSpec,
    returns=ProjectView,
    status=201,
    location="/v1/projects/{name}",
    access="admin",
)
async def create_project(call: Call[ProjectSpec, NoQuery]) -> ProjectView:
    return call.tagged(await call.deps.store.projects.create(call.scope, call.body))


@route(
    "GET",
    "/v1/projects",
    "List projects",
    query=NamedQuery,
    returns=Page[ProjectView],
    access="viewer",
)
async def list_projects(call: Call[None, NamedQuery]) -> Page[ProjectView]:
    return await call.deps.store.projects.page(
        call.scope, paging(call.query), status=call.query.status, archived=call.query.archived
    )


@route("GET", _PROJECT, "Get a project", returns=ProjectView, access="viewer")
async def get_project(call: Call[None, NoQuery]) -> ProjectView:
    return call.tagged(await call.deps.store.projects.get(call.scope, call.path("name")))


@route(
    "PATCH",
    _PROJECT,
    "Change a project: its status and limits",
    body=ProjectPatch,
    returns=ProjectView,
    versioned=True,
    access="admin",
)
async def update_project(call: Call[ProjectPatch, NoQuery]) -> ProjectView:
    projects = call.deps.store.projects
    scope = call.scope
    name = call.path("name")
    return await edit(
        call,
        "a project",
        lambda: projects.get(scope, name),
        lambda patch, versions: projects.update(scope, name, patch, if_match=versions),
    )


@route(
    "DELETE",
    _PROJECT,
    "Delete a project that nothing names: no session, endpoint, usage, key in force or entry in the "
    "audit log",
    returns=ProjectView,
    access="admin",
)
async def delete_project(call: Call[None, NoQuery]) -> ProjectView:
    return await call.deps.store.projects.delete(call.scope, call.path("name"))


@route(
    "POST",
    f"{_PROJECT}/archive",
    "Archive a project without live sessions and endpoints. Its keys are refused from then on, and "
    "its history stays.",
    returns=ProjectView,
    access="admin",
)
async def archive_project(call: Call[None, NoQuery]) -> ProjectView:
    return call.tagged(await call.deps.store.projects.archive(call.scope, call.path("name")))


@route(
    "POST",
    f"{_PROJECT}/restore",
    "Restore an archived project, with the keys, limits and members that it had",
    returns=ProjectView,
    access="admin",
)
async def restore_project(call: Call[None, NoQuery]) -> ProjectView:
    return call.tagged(await call.deps.store.projects.restore(call.scope, call.path("name")))


@route(
    "GET",
    f"{_PROJECT}/members",
    "List the members of a project",
    query=MemberQuery,
    returns=Page[MemberView],
    access="viewer",
)
async def list_project_members(call: Call[None, MemberQuery]) -> Page[MemberView]:
    return await call.deps.store.projects.members(
        call.scope, call.path("name"), paging(call.query), role=call.query.role
    )


@route(
    "PUT",
    _MEMBER,
    "Add a user to a project as a member, or change the member's role",
    body=Membership,
    returns=MemberView,
    access="project-admin",
)
async def set_project_member(call: Call[Membership, NoQuery]) -> MemberView:
    path = read_path({"project": call.path("name"), "user": call.path("user")}, _MemberPath)
    return await call.deps.store.projects.set_member(
        call.scope, path.project, path.user, call.body.role
    )


@route(
    "DELETE",
    _MEMBER,
    "Remove a member from a project. The member's keys are refused there from then on.",
    returns=MemberView,
    access="project-admin",
)
async def remove_project_member(call: Call[None, NoQuery]) -> MemberView:
    return await call.deps.store.projects.remove_member(
        call.scope, call.path("name"), call.path("user")
    )
