"""``moorage join-token`` and ``moorage peers``: who may join the links, and who has."""

from __future__ import annotations

import socket
from datetime import datetime
from typing import Annotated

import typer
from yarl import URL

from moorage.cli import parse, render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.common.model.addresses import is_loopback
from moorage.common.model.errors import InvalidInput
from moorage.common.views.peers import JoinTokenSpec, JoinTokenView, PeerKind, PeerView

tokens = typer.Typer(no_args_is_help=True)
app.add_typer(tokens, name="join-token", help="Let agents and proxies join. For administrators.")
peers = typer.Typer(no_args_is_help=True)
app.add_typer(peers, name="peers", help="What has joined: agents and proxies. For administrators.")


@verb(tokens)
def create(
    cli: Cli,
    proxy: Annotated[bool, typer.Option("--proxy", help="For proxies; else for agents.")] = False,
    group: Annotated[
        str | None, typer.Option(help="Agents that join by it belong to this resource group.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="After so long (30m, 1h, 7d), or when. Else after an hour.")
    ] = None,
    uses: Annotated[int, typer.Option(help="So many may join by it.")] = 1,
) -> None:
    """Make a join token. Its secret is printed this once: only what checks it is kept.

    \b
    Examples:
      moorage join-token create
      moorage join-token create --group gold --uses 8 --expires 2h
      moorage join-token create --proxy
    """
    at = None if expires is None else parse.moment(expires, cli.clock.now())
    kind: PeerKind = "proxy" if proxy else "agent"
    asked = {"kind": kind, "resource_group": group, "uses": uses, "expires_at": at}
    spec = JoinTokenSpec.model_validate({field: value for field, value in asked.items() if value is not None})
    made = cli.run(lambda client: client.create_join_token(spec))
    if cli.json:
        cli.print_json(made)
        return
    times = f"{made.uses} times" if made.uses > 1 else "once"
    cli.say(
        f"good {times}, until {made.expires_at:%Y-%m-%d %H:%M} UTC, shown only now; where the {kind} is:\n"
        f"  moorage {kind} join {_from_elsewhere(cli.connection.url)} TOKEN"
    )
    print(made.secret)


@verb(tokens)
def ls(cli: Cli) -> None:
    """List join tokens that still work."""
    found = cli.run(lambda client: client.list_join_tokens())
    if cli.json:
        cli.print_json({"join_tokens": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.id)
    else:
        head = ("ID", "FOR", "GROUP", "USED", "EXPIRES", "MADE BY", "CREATED")
        render.print_table(cli.out, head, [_token_row(cli, view) for view in found])


@verb(tokens)
def rm(cli: Cli, token_id: Annotated[str, typer.Argument(help="As `moorage join-token ls` shows.")]) -> None:
    """Remove a join token: nothing joins by it any more. What has joined by it stays."""
    gone = cli.run(lambda client: client.remove_join_token(token_id))
    if cli.json:
        cli.print_json(gone)
    else:
        print(gone.id)


@verb(peers, "ls")
def list_peers(cli: Cli) -> None:
    """List the agents and proxies that have joined, and until when their certificates are good."""
    found = cli.run(lambda client: client.list_peers())
    if cli.json:
        cli.print_json({"peers": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(f"{view.kind} {view.name}")
    else:
        head = ("KIND", "NAME", "GROUP", "JOINED", "CERTIFICATE UNTIL")
        render.print_table(cli.out, head, [_peer_row(cli, view) for view in found])


@verb(peers, "rm")
def revoke_peer(
    cli: Cli,
    kind: Annotated[str, typer.Argument(help="agent or proxy.")],
    name: Annotated[str, typer.Argument(help="Its name.")],
) -> None:
    """Revoke the certificates of an agent or a proxy: its links end at once, and it is let in no more.

    Kernels of such an agent are given up like those of one that went silent. Its name is free to join again.

    \b
    Examples:
      moorage peers rm agent node-7
    """
    if kind not in ("agent", "proxy"):
        raise InvalidInput(f"KIND {kind!r} is not allowed", next_step="use agent or proxy")
    chosen: PeerKind = "agent" if kind == "agent" else "proxy"
    gone = cli.run(lambda client: client.revoke_peer(chosen, name))
    if cli.json:
        cli.print_json(gone)
    else:
        print(gone.name)


def _from_elsewhere(url: str) -> str:
    """What is reached here by loopback, by this host's name."""
    known = URL(url)
    return str(known.with_host(socket.gethostname())) if is_loopback(known.host or "") else url


def _ago(cli: Cli, at: datetime) -> str:
    return f"{render.show_age(cli.clock.now(), at)} ago"


def _token_row(cli: Cli, view: JoinTokenView) -> tuple[str, ...]:
    until = f"{view.expires_at:%Y-%m-%d %H:%M}"
    used = f"{view.used} of {view.uses}"
    return (
        view.id,
        view.kind,
        view.resource_group or "any",
        used,
        until,
        view.created_by,
        _ago(cli, view.created_at),
    )


def _peer_row(cli: Cli, view: PeerView) -> tuple[str, ...]:
    until = f"{view.certificate_until:%Y-%m-%d %H:%M}"
    return view.kind, view.name, view.resource_group or "any", _ago(cli, view.joined_at), until
