"""``moorage keys``: API keys for the manager and the proxies, with their users and projects."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli import output, times
from moorage.cli.app import list_command, noun
from moorage.cli.context import Cli, Output, command
from moorage.common.views.keys import KeySpec, KeyView

keys = noun("keys", help="API keys, their users and projects. For administrators.")

Name = Annotated[str, typer.Argument(help="Name of the key.")]


@command(keys)
def create(
    cli: Cli,
    name: Name,
    user: Annotated[
        str | None, typer.Option(help="Owner of everything created with the key. Default: NAME.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project of the user. Default: `default`.")] = None,
    role: Annotated[str | None, typer.Option(help="member (the default) or admin.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="A duration (12h, 30d) or a time like 2030-01-01T00:00:00Z. Default: never."),
    ] = None,
) -> None:
    """Create a key. Its secret is shown only once: the manager keeps only its hash.

    \b
    Examples:
      moorage keys create ann --project vision
      moorage keys create ci --user ann --project vision --expires 90d
      moorage keys create root2 --role admin
    """
    at = None if expires is None else times.future(expires, cli.clock.now(), "--expires")
    fields = {"name": name, "user": user, "project": project, "role": role, "expires_at": at}
    spec = KeySpec.model_validate({field: value for field, value in fields.items() if value is not None})
    created = cli.run(lambda client: client.create_key(spec))
    if cli.json:
        cli.print_json(created)
    else:
        cli.note(f"key of {created.user} in project {created.project}, shown only now:")
        print(created.secret)


@list_command(keys)
def list_keys(cli: Cli) -> None:
    """List keys that are not revoked."""
    found = cli.run(lambda client: client.list_keys())
    if cli.json:
        cli.print_json({"keys": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "PREFIX", "ROLE", "USER", "PROJECT", "CREATED", "LAST USED", "EXPIRES")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(keys)
def revoke(cli: Cli, name: Name) -> None:
    """Revoke a key: it is refused everywhere within two seconds, and its name is free again.

    What was created with it keeps running. The last administrator's key without expiry cannot be revoked.
    """
    revoked = cli.run(lambda client: client.revoke_key(name))
    if cli.json:
        cli.print_json(revoked)
    else:
        print(revoked.name)


def _row(cli: Cli, view: KeyView) -> tuple[str, ...]:
    now = cli.clock.now()
    used = "never" if view.last_used_at is None else f"{output.format_age(now, view.last_used_at)} ago"
    expires = "never" if view.expires_at is None else f"{view.expires_at:%Y-%m-%d %H:%M}"
    if view.expires_at is not None and view.expires_at <= now:
        expires = "expired"
    created = f"{output.format_age(now, view.created_at)} ago"
    return view.name, view.prefix, view.role, view.user, view.project, created, used, expires
