"""``moorage users``: people and robots with their roles on the platform."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import archived_user_names, user_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.identity import UserView
    from moorage.sdk import Client

_SHORTEST = 8
users = noun("users", help="People and robots with their roles on the platform.")

Name = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=user_names)]
Archived = Annotated[
    str, typer.Argument(help="Name of the user.", autocompletion=archived_user_names)
]
All = Annotated[bool, typer.Option("--all", "-a", help="Include archived users.")]
Email = Annotated[str | None, typer.Option(help="E-mail address.")]
Role = Annotated[
    str | None,
    typer.Option(help="Role on the platform: admin, auditor (reads everything) or none."),
]


@command(users)
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the user.")],
    email: Email = None,
    role: Role = None,
) -> None:
    """Create a user. `moorage projects members set` makes it a member of a project. For
    administrators.

    \b
    Examples:
      moorage users create ann --email ann@example.org
      moorage users create audit-bot --role auditor
    """
    from moorage.common.views.identity import UserSpec

    spec = UserSpec.model_validate({"name": name, **_fields(email, role, None)})
    _print(cli, cli.run(lambda client: client.users.create(spec)))


@list_command(users)
def list_users(cli: Cli, all_: All = False) -> None:
    """List users, with their projects. For administrators and auditors."""
    found = cli.run(lambda client: client.users.list(archived=all_))
    if cli.json:
        cli.print_json({"users": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "STATUS", "ROLE", "PROJECTS", "EMAIL")
        output.print_table(cli.out, columns, [_row(view) for view in found])


@command(users, "set")
def set_user(
    cli: Cli,
    name: Name,
    email: Email = None,
    role: Role = None,
    status: Annotated[
        str | None, typer.Option(help="active, or disabled: its keys are refused everywhere.")
    ] = None,
    password: Annotated[
        bool | None,
        typer.Option(
            "--password/--no-password",
            help="Set the password for the console, typed at a prompt or read from stdin; or "
            "delete it. The "
            "user's console sessions end.",
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(help="The user's claim `sub` at the OpenID provider, or none."),
    ] = None,
) -> None:
    """Change a user; other settings stay. For administrators.

    \b
    Examples:
      moorage users set ann --status disabled
      moorage users set ann --role none
      moorage users set ann --password < password.txt
      moorage users set ann --subject 248289761001
    """
    from moorage.common.views.identity import UserPatch

    patch = UserPatch.model_validate(_fields(email, role, status))
    secret = _read_password(name) if password else ""

    async def work(client: Client) -> UserView:
        if secret:
            await client.users.set_password(name, secret)
        elif password is False:
            await client.users.delete_password(name)
        if subject == "none":
            await client.users.unlink(name)
        elif subject is not None:
            await client.users.link(name, subject)
        return await client.users.update(name, patch)

    _print(cli, cli.run(work))


@command(users)
def archive(cli: Cli, name: Name) -> None:
    """Archive a user: its keys are refused at once, and its history stays. For administrators.

    This is refused while the user has live sessions or endpoints. `moorage users list --all` shows
    an archived user. It keeps its name, memberships, limits and keys, which `moorage users restore`
    brings back.

    \b
    Examples:
      moorage users archive guest
    """
    _print(cli, cli.run(lambda client: client.users.archive(name)))


@command(users)
def restore(cli: Cli, name: Archived) -> None:
    """Restore an archived user, with the status that it had. For administrators.

    \b
    Examples:
      moorage users restore guest
    """
    _print(cli, cli.run(lambda client: client.users.restore(name)))


@command(users)
def delete(cli: Cli, name: Name) -> None:
    """Delete a user that nothing names, such as one with a misspelt name. For administrators.

    Its memberships, quotas and budgets are deleted with it. A user with sessions, endpoints, usage,
    keys in force or entries in the audit log can only be archived.

    \b
    Examples:
      moorage users delete anm
    """
    _print(cli, cli.run(lambda client: client.users.delete(name)))


@command(users)
def passwd(cli: Cli) -> None:
    """Change your own password, which ends your console sessions. Your user is that of the API key.

    Type the current and the new password at prompts, or pass them on stdin, one per line.

    \b
    Examples:
      moorage users passwd
    """
    if sys.stdin.isatty():
        current = typer.prompt("Present password", hide_input=True, err=True)
        new = typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        current, _, new = sys.stdin.read().removesuffix("\n").partition("\n")

    _check_length(new)
    ended = cli.run(lambda client: client.users.change_password(current, new)).ended
    if cli.json:
        cli.print_json({"ended": ended})
    else:
        print(f"password changed; {ended} console sessions ended")


def _read_password(name: str) -> str:
    """Read a password. Raises ``InvalidInput`` if it is too short."""
    if sys.stdin.isatty():
        given = typer.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        given = sys.stdin.read().removesuffix("\n")
    _check_length(given)
    return str(given)


def _check_length(given: str) -> None:
    if len(given) < _SHORTEST:
        raise InvalidInput(
            f"the password has {len(given)} characters", next_step=f"give at least {_SHORTEST}"
        )


def _fields(email: str | None, role: str | None, status: str | None) -> dict[str, str | None]:
    given = {"email": email, "status": status, "platform_role": role}
    fields = {name: value for name, value in given.items() if value is not None}
    return {
        name: None if (name, value) == ("platform_role", "none") else value
        for name, value in fields.items()
    }


def _print(cli: Cli, view: UserView) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def _row(view: UserView) -> tuple[str, ...]:
    projects = ", ".join(f"{project} ({role})" for project, role in sorted(view.projects.items()))
    status = view.status if view.archived_at is None else "archived"
    return view.name, status, view.platform_role or "", projects, view.email
