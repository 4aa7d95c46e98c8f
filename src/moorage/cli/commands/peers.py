"""``moorage peers``: the agents and proxies that have joined, and their certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import peer_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.peers import CaView, PeerKind, PeerRef, PeerView
    from moorage.sdk import Client

peers = noun("peers", help="Agents and proxies that have joined. For administrators.")


@list_command(peers)
def list_peers(cli: Cli) -> None:
    """List the agents and proxies that have joined, and when their certificates expire."""
    found = cli.run(lambda client: client.peers.list())
    if cli.json:
        cli.print_json({"peers": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(f"{view.kind} {view.name}")
    else:
        columns = ("KIND", "NAME", "GROUP", "JOINED", "CERTIFICATE UNTIL", "MANAGER")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(peers)
def revoke(
    cli: Cli,
    kind: Annotated[str, typer.Argument(help="agent or proxy.")],
    name: Annotated[str, typer.Argument(help="Its name.", autocompletion=peer_names)],
) -> None:
    """Revoke the certificates of an agent or proxy: its links close at once and it cannot
    reconnect.

    Kernels of a revoked agent are given up like those of a silent agent. The name becomes free and
    can join again.

    \b
    Examples:
      moorage peers revoke agent node-7
    """
    if kind not in ("agent", "proxy"):
        raise InvalidInput(f"KIND {kind!r} is not allowed", next_step="use agent or proxy")

    peer_kind: PeerKind = "agent" if kind == "agent" else "proxy"
    revoked = cli.run(lambda client: client.peers.revoke(peer_kind, name))
    if cli.json:
        cli.print_json(revoked)
    else:
        print(revoked.name)


@command(peers)
def rotate_ca(
    cli: Cli,
    status: Annotated[
        bool, typer.Option("--status", help="Only show the progress of the rotation.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Do not wait any longer. Peers named in the output must join again."
        ),
    ] = False,
) -> None:
    """Rotate the CA of the links, without agents and proxies joining again.

    Peers first learn to trust the next CA, which then starts to issue certificates; the former CA
    is dropped when all peers have renewed theirs. With all peers connected, this takes about half
    an hour.

    \b
    Examples:
      moorage peers rotate-ca
      moorage peers rotate-ca --status
      moorage peers rotate-ca --force
    """
    if status and force:
        raise InvalidInput("--status and --force exclude each other", next_step="give one of them")

    view = cli.run(lambda client: client.ca.get() if status else _rotate_ca(client, force))
    if cli.json:
        cli.print_json(view)
    else:
        _print_ca(view)


async def _rotate_ca(client: Client, force: bool) -> CaView:
    if not force:
        return await client.ca.rotate()
    state = (await client.ca.get()).state
    if state == "steady":
        raise InvalidInput(
            "--force: no rotation is in progress",
            next_step="start one with `moorage peers rotate-ca`",
        )
    return await client.ca.rotate(state)


def _print_ca(view: CaView) -> None:
    since = "" if view.since is None else f" since {view.since:%Y-%m-%d %H:%M} UTC"
    print(f"{view.state}{since}; the CA {view.issuer[:16]} issues")
    for text, refs in (("waiting for", view.waiting_for), ("must join again", view.join_again)):
        if refs:
            print(f"{text}: {', '.join(map(_name, refs))}")


def _name(peer: PeerRef) -> str:
    return f"{peer.kind} {peer.name}"


def _row(cli: Cli, view: PeerView) -> tuple[str, ...]:
    joined = f"{output.format_age(cli.clock.now(), view.joined_at)} ago"
    return (
        view.kind,
        view.name,
        view.resource_group or "any",
        joined,
        f"{view.certificate_until:%Y-%m-%d %H:%M}",
        view.manager or "",
    )
