"""``moorage join-tokens``: tokens that agents and proxies join with."""

from __future__ import annotations

import socket
from typing import Annotated

import typer
from yarl import URL

from moorage.cli import output, times
from moorage.cli.app import list_command, noun
from moorage.cli.completion import group_names, names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.addresses import is_loopback
from moorage.common.views.peers import JoinTokenSpec, JoinTokenView, PeerKind

join_tokens = noun(
    "join-tokens", help="Tokens that agents and proxies join with. For administrators."
)


@command(join_tokens)
def create(
    cli: Cli,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Create a token for proxies. Default: for agents.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            help="Resource group of the agents that join with this token.",
            autocompletion=group_names,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="A duration (30m, 7d) or a time like 2030-01-01T00:00:00Z. Default: 1h."),
    ] = None,
    uses: Annotated[
        int, typer.Option(help="Number of agents or proxies that may join with it.")
    ] = 1,
) -> None:
    """Create a join token. Its secret is shown only once: the manager stores only a verifier.

    \b
    Examples:
      moorage join-tokens create
      moorage join-tokens create --group gold --uses 8 --expires 2h
      moorage join-tokens create --proxy
    """
    at = None if expires is None else times.future(expires, cli.clock.now(), "--expires")
    kind: PeerKind = "proxy" if proxy else "agent"
    fields = {"kind": kind, "resource_group": group, "uses": uses, "expires_at": at}
    spec = JoinTokenSpec.model_validate(
        {name: value for name, value in fields.items() if value is not None}
    )
    created = cli.run(lambda client: client.join_tokens.create(spec))
    if cli.json:
        cli.print_json(created)
        return

    uses_text = f"{created.uses} uses" if created.uses > 1 else "one use"
    cli.note(
        f"valid for {uses_text} until {created.expires_at:%Y-%m-%d %H:%M} UTC, shown only now; "
        f"on the {kind}'s host:\n"
        f"  moorage {kind} join {_remote_url(cli.connection.http_url)}    # asks for it"
    )
    print(created.secret)


@list_command(join_tokens)
def list_join_tokens(cli: Cli) -> None:
    """List join tokens that are still valid."""
    found = cli.run(lambda client: client.join_tokens.list())
    if cli.json:
        cli.print_json({"join_tokens": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.id)
    else:
        columns = ("ID", "FOR", "GROUP", "USED", "EXPIRES", "CREATED BY", "CREATED")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(join_tokens)
def delete(
    cli: Cli,
    token_id: Annotated[
        str,
        typer.Argument(
            help="Id that `moorage join-tokens list` shows.",
            autocompletion=names_of("join-tokens", "id"),
        ),
    ],
) -> None:
    """Delete a join token, so that nothing can join with it any more. Peers that joined with it
    stay."""
    deleted = cli.run(lambda client: client.join_tokens.delete(token_id))
    if cli.json:
        cli.print_json(deleted)
    else:
        print(deleted.id)


def _remote_url(url: str) -> str:
    """The manager's address for other hosts. A loopback address is replaced by this host's name."""
    known = URL(url)
    return str(known.with_host(socket.gethostname())) if is_loopback(known.host or "") else url


def _row(cli: Cli, view: JoinTokenView) -> tuple[str, ...]:
    created = f"{output.format_age(cli.clock.now(), view.created_at)} ago"
    expires = f"{view.expires_at:%Y-%m-%d %H:%M}"
    used = f"{view.used} of {view.uses}"

    return (
        view.id,
        view.kind,
        view.resource_group or "any",
        used,
        expires,
        view.created_by,
        created,
    )
