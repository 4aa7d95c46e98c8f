"""``moorage projects``: tenants, their limits and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import NounGroup, list_command, noun
from moorage.cli.completion import (
    archived_project_names,
    group_names,
    project_names,
    user_names,
)
from moorage.cli.context import Cli, Output, command

if TYPE_CHECKING:
    from moorage.common.views.identity import ProjectView

projects = noun("projects", help="Projects, their members and their limits.")
members = typer.Typer(cls=NounGroup)
projects.add_typer(members, name="members", help="Members of a project, and their roles.")

Project = Annotated[str, typer.Argument(help="Name of the project.", autocompletion=project_names)]
Archived = Annotated[
    str, typer.Argument(help="Name of the project.", autocompletion=archived_project_names)
]
All = Annotated[bool, typer.Option("--all", "-a", help="Include archived projects.")]
User = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=user_names)]
MaxPriority = Annotated[
    str | None, typer.Option(help="Highest priority of its sessions and endpoints; `none`: any.")
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        help="Resource group that it may use; repeatable. `all`: every group.",
        autocompletion=group_names,
    ),
]

Reuse = Annotated[
    str | None,
    typer.Option(
        help="Default reuse of equal batch sessions: success, live, both, never; `none`: the "
        "resource group's default."
    ),
]


@command(projects)
def create(
    cli: Cli,
    name: Project,
    max_priority: MaxPriority = None,
    group: Groups = None,
    reuse: Reuse = None,
) -> None:
    """Create a project. For administrators.

    \b
    Examples:
      moorage projects create vision
      moorage projects create students --group small --max-priority 5
    """
    from moorage.common.views.identity import ProjectSpec

    spec = ProjectSpec.model_validate({"name": name, **_fields(max_priority, group, None, reuse)})
    _print(cli, cli.run(lambda client: client.projects.create(spec)))


@list_command(projects)
def list_projects(cli: Cli, all_: All = False) -> None:
    """List the projects that the key can see."""
    found = cli.run(lambda client: client.projects.list(archived=all_))
    if cli.output is Output.YAML:
        cli.print_manifests(found)
    elif cli.json:
        cli.print_json({"projects": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "STATUS", "MEMBERS", "MAX PRIORITY", "GROUPS")
        output.print_table(cli.out, columns, [_row(view) for view in found])


@command(projects, "set")
def set_project(
    cli: Cli,
    name: Project,
    max_priority: MaxPriority = None,
    group: Groups = None,
    status: Annotated[
        str | None, typer.Option(help="active, or disabled: its keys are refused everywhere.")
    ] = None,
    reuse: Reuse = None,
) -> None:
    """Change a project; other settings stay. For administrators.

    \b
    Examples:
      moorage projects set students --max-priority 5
      moorage projects set students --group all
    """
    from moorage.common.views.identity import ProjectPatch

    patch = ProjectPatch.model_validate(_fields(max_priority, group, status, reuse))
    _print(cli, cli.run(lambda client: client.projects.update(name, patch)))


@command(projects)
def archive(cli: Cli, name: Project) -> None:
    """Archive a project: its keys are refused at once, and its history stays. For administrators.

    This is refused while the project has live sessions or endpoints. `moorage projects list --all`
    shows an archived project. It keeps its name, members, limits and keys, which `moorage projects
    restore` brings back.

    \b
    Examples:
      moorage projects archive summer-school
    """
    _print(cli, cli.run(lambda client: client.projects.archive(name)))


@command(projects)
def restore(cli: Cli, name: Archived) -> None:
    """Restore an archived project, with the status that it had. For administrators.

    \b
    Examples:
      moorage projects restore summer-school
    """
    _print(cli, cli.run(lambda client: client.projects.restore(name)))


@command(projects)
def delete(cli: Cli, name: Project) -> None:
    """Delete a project that nothing names, such as one with a misspelt name. For administrators.

    Its members, quotas and budgets are deleted with it. A project with sessions, endpoints, usage,
    keys in force or entries in the audit log can only be archived.

    \b
    Examples:
      moorage projects delete visoin
    """
    _print(cli, cli.run(lambda client: client.projects.delete(name)))


@command(members, "list")
def list_members(cli: Cli, project: Project) -> None:
    """List the members of a project."""
    found = cli.run(lambda client: client.members.list(project))
    if cli.json:
        cli.print_json({"members": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.user)
    else:
        rows = [
            (view.user, view.role, f"{view.changed_at:%Y-%m-%d}", view.changed_by) for view in found
        ]
        output.print_table(cli.out, ("USER", "ROLE", "SINCE", "CHANGED BY"), rows)


@command(members, "set")
def set_member(
    cli: Cli,
    project: Project,
    user: User,
    role: Annotated[str, typer.Argument(help="viewer, member or admin.")],
) -> None:
    """Make a user a member of a project, or change its role. For project admins.

    A viewer sees the project's sessions and usage. A member also creates sessions and uses their
    logs, commands and ports. An admin can do this with everyone's sessions, and sets members and
    secrets.

    \b
    Examples:
      moorage projects members set vision ann member
      moorage projects members set vision lead admin
    """
    from moorage.common.views.identity import Membership

    body = Membership.model_validate({"role": role})
    view = cli.run(lambda client: client.members.set(project, user, body))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.user)


@command(members, "delete")
def delete_member(cli: Cli, project: Project, user: User) -> None:
    """Remove a member. Its keys in the project are refused; its sessions and endpoints stay. For
    project admins."""
    view = cli.run(lambda client: client.members.delete(project, user))
    if cli.json:
        cli.print_json(view)
    else:
        print(view.user)


def _fields(
    max_priority: str | None, groups: list[str] | None, status: str | None, reuse: str | None
) -> dict[str, object]:
    fields: dict[str, object] = {} if status is None else {"status": status}
    if max_priority is not None:
        fields["max_priority"] = None if max_priority == "none" else max_priority
    if reuse is not None:
        fields["reuse"] = None if reuse == "none" else reuse
    if groups:
        fields["resource_groups"] = None if groups == ["all"] else groups

    return fields


def _print(cli: Cli, view: ProjectView) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def _row(view: ProjectView) -> tuple[str, ...]:
    groups = "all" if view.resource_groups is None else ", ".join(view.resource_groups)
    priority = "" if view.max_priority is None else str(view.max_priority)
    status = view.status if view.archived_at is None else "archived"
    return view.name, status, str(view.members), priority, groups
