"""``moorage peers``: the agents and proxies that have joined, and their certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind, PeerView

peers = noun("peers", help="Agents and proxies that have joined. For administrators.")


@list_command(peers)
def list_peers(cli: Cli) -> None:
    """List the agents and proxies that have joined, and when their certificates expire."""
    found = cli.run(lambda client: client.list_peers())
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
    name: Annotated[str, typer.Argument(help="Its name.")],
) -> None:
    """Revoke the certificates of an agent or proxy: its links close at once and it cannot reconnect.

    Kernels of a revoked agent are given up like those of a silent one. The name is free to join again.

    \b
    Examples:
      moorage peers revoke agent node-7
    """
    if kind not in ("agent", "proxy"):
        raise InvalidInput(f"KIND {kind!r} is not allowed", next_step="use agent or proxy")
    peer_kind: PeerKind = "agent" if kind == "agent" else "proxy"
    revoked = cli.run(lambda client: client.revoke_peer(peer_kind, name))
    if cli.json:
        cli.print_json(revoked)
    else:
        print(revoked.name)


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
