"""``moorage agent join`` and ``moorage proxy join``."""

from __future__ import annotations

import os
import re
import socket
from typing import Annotated

import typer

from moorage.cli.verbs.agent import agent as agent_verbs
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError
from moorage.common.views.peers import PeerKind
from moorage.server.bootstrap import prepare
from moorage.server.commands.daemons import Config, Home, Sets, proxy_verbs, read, run
from moorage.server.process import need

Url = Annotated[str, typer.Argument(help="The manager's REST API, like http://manager.example.com:8700.")]
Secret = Annotated[
    str | None,
    typer.Argument(
        metavar="TOKEN", help="As `moorage join-token create` printed it. Else MOORAGE_JOIN_TOKEN."
    ),
]
Id = Annotated[
    str | None, typer.Option(help="Its unique name; none: as the settings say, else made of the host name.")
]
Link = Annotated[str | None, typer.Option(help="Dial the link at this host:port; none: as the manager says.")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@agent_verbs.command("join")
def agent_join(
    url: Url, token: Secret = None, id: Id = None, link: Link = None,
    config: Config = None, home: Home = None, sets: Sets = None,
) -> None:  # fmt: skip
    """Make this node an agent of that manager: a key and a certificate of its own, for an expiring token.

    Then `moorage agent` needs no more settings to find it. The secret of the token does not leave this node.

    \b
    Examples:
      moorage agent join http://manager.example.com:8700 mgj-...
      MOORAGE_JOIN_TOKEN=mgj-... moorage agent join https://moorage.example.com --id node-7
    """
    _join("agent", url, token, id, link, config, home, sets)


@proxy_verbs.command("join")
def proxy_join(
    url: Url, token: Secret = None, id: Id = None, link: Link = None,
    config: Config = None, home: Home = None, sets: Sets = None,
) -> None:  # fmt: skip
    """Make this host a proxy of that manager: a key and a certificate of its own, for an expiring token.

    \b
    Examples:
      moorage proxy join http://manager.example.com:8700 mgj-...
    """
    _join("proxy", url, token, id, link, config, home, sets)


def _join(
    kind: PeerKind, url: str, token: str | None, id: str | None, link: str | None,
    config: Config, home: Home, sets: Sets,
) -> None:  # fmt: skip
    start = prepare(read(config, home, sets))
    settings = start.loaded.settings
    try:
        from moorage.server.registration import join
    except ImportError as error:
        raise need(kind, error) from error
    secret = token or os.environ.get("MOORAGE_JOIN_TOKEN")
    if not secret:
        raise ConfigError(
            "no join token was given",
            next_step="make one where the manager is: `moorage join-token create`; give it as TOKEN",
        )
    default = settings.agent.id or socket.gethostname()
    if kind == "proxy":
        default = settings.proxy.id or f"{socket.gethostname()}-{split_address(settings.proxy.listen)[1]}"
    name = id or default
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for an {kind}"
            if kind == "agent"
            else f"{name!r} is not a name for a proxy",
            next_step="give one with --id: letters, digits, dots, - and _, the first a letter or digit",
        )
    if link is not None:
        split_address(link)

    async def main() -> int:
        made = await join(url, secret, kind=kind, name=name, home=start.home, clock=start.clock, link=link)
        group = f" in the resource group {made.resource_group}" if made.resource_group else ""
        print(
            f"{kind} {made.name} joined{group}; its certificate is renewed by itself ({made.ends:%Y-%m-%d})"
        )
        print(f"next: moorage {kind}")
        return 0

    run(main())
