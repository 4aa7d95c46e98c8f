"""``moorage key``: who may ask the manager and the proxies, and whose what they make is."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli import parse, render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.common.views.keys import KeySpec, KeyView

key = typer.Typer(no_args_is_help=True)
app.add_typer(key, name="key", help="API keys, their owners and projects. For administrators.")

Name = Annotated[str, typer.Argument(help="Of the key.")]


@verb(key)
def create(
    cli: Cli,
    name: Name,
    user: Annotated[
        str | None, typer.Option(help="Whose everything is that is made with it; else NAME.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="In which that is; else `default`.")] = None,
    role: Annotated[str | None, typer.Option(help="member (the default) or admin.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="After so long (12h, 30d), or when: 2030-01-01T00:00:00Z. Else never.")
    ] = None,
) -> None:
    """Make a key. Its secret is printed this once: only its hash is kept.

    \b
    Examples:
      moorage key create ann --project vision
      moorage key create ci --user ann --project vision --expires 90d
      moorage key create root2 --role admin
    """
    at = None if expires is None else parse.moment(expires, cli.clock.now())
    asked = {"name": name, "user": user, "project": project, "role": role, "expires_at": at}
    spec = KeySpec.model_validate({field: value for field, value in asked.items() if value is not None})
    made = cli.run(lambda client: client.create_key(spec))
    if cli.json:
        cli.print_json(made)
    else:
        cli.say(f"the key of {made.user} in project {made.project}; it is shown only now:")
        print(made.secret)


@verb(key, "list")
def list_keys(cli: Cli) -> None:
    """List keys that are not revoked."""
    found = cli.run(lambda client: client.list_keys())
    if cli.json:
        cli.print_json({"keys": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        head = ("NAME", "PREFIX", "ROLE", "USER", "PROJECT", "CREATED", "LAST USED", "EXPIRES")
        render.print_table(cli.out, head, [_row(cli, view) for view in found])


@verb(key)
def revoke(cli: Cli, name: Name) -> None:
    """End a key: it works no more, within two seconds everywhere. Its name is free again.

    What was made with it goes on. The last administrator's key that does not expire cannot be revoked.
    """
    gone = cli.run(lambda client: client.revoke_key(name))
    if cli.json:
        cli.print_json(gone)
    else:
        print(gone.name)


def _row(cli: Cli, view: KeyView) -> tuple[str, ...]:
    now = cli.clock.now()
    used = "never" if view.last_used_at is None else f"{render.show_age(now, view.last_used_at)} ago"
    ends = "never" if view.expires_at is None else f"{view.expires_at:%Y-%m-%d %H:%M}"
    if view.expires_at is not None and view.expires_at <= now:
        ends = "expired"
    made = f"{render.show_age(now, view.created_at)} ago"
    return view.name, view.prefix, view.role, view.user, view.project, made, used, ends
